"""`tfm augment loop`: what each round is made from, that it goes on where it was stopped, and what it refuses."""

import json
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.contract import Ran, refused, run
from tests.support.each import each
from tests.support.forked import PROGRAM, environment
from tests.toy.run import model_file, packed, sentences
from transformer_cli.addons.synthesis import run_loop
from transformer_cli.addons.synthesis.keys import AugmentConfig
from transformer_cli.addons.synthesis.loop_record import LoopRecord, LoopRow
from transformer_cli.addons.synthesis.loop_text import RealText, data_of, directions_of
from transformer_cli.addons.synthesis.run_augment import Augmented
from transformer_cli.addons.synthesis.work import CorpusReport, files_of
from transformer_cli.arguments import parse_arguments
from transformer_cli.command import command_in
from transformer_cli.commands.train.run import Trained
from transformer_cli.config.compose import load_config
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import ConfigError, Stopped
from transformer_cli.evaluation.metrics import Score
from transformer_cli.tasks import evaluate_translations

LANGUAGES = ["data.source_lang=en", "data.target_lang=fr"]
CORPUS = ["data=files", *LANGUAGES, *(f"data.{split}=[{split}.en,{split}.fr]" for split in ("train", "dev", "test"))]
BOTH = ["--source", "mono.en", "--target", "mono.fr"]
USUAL = [*CORPUS, *BOTH, "data.clean=[]", "device=cpu"]


def written(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def write_text(folder: Path, n_pairs: int, n_lines: int) -> None:
    """Pairs of words and their capitals, and further lines of either."""
    for number, (name, n) in enumerate({"train": n_pairs, "dev": 8, "test": 8, "mono": n_lines}.items()):
        lines = sentences(n, seed=10 + number)
        written(folder / f"{name}.en", lines)
        written(folder / f"{name}.fr", [line.upper() for line in lines[::-1] if name == "mono"] or upper(lines))


def upper(lines: Sequence[str]) -> list[str]:
    return [line.upper() for line in lines]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_text(tmp_path, 40, 6)
    for source, target in (("en", "fr"), ("fr", "en")):
        model = replace(model_file(), source_lang=source, target_lang=target)
        (tmp_path / f"{source}-{target}.safetensors").write_bytes(packed(model))
    return tmp_path


class Steps:
    """Stand-ins for training, back-translation and scoring, with the configs that they got."""

    def __init__(self) -> None:
        self.trained: list[TrainConfig] = []
        self.augmented: list[AugmentConfig] = []
        self.scores: Callable[[str], float] = lambda model: float(len(self.trained))
        self.stop_at: int | None = None  # the training that is stopped

    def train(self, config: TrainConfig) -> Trained:
        if len(self.trained) == self.stop_at:
            self.stop_at = None
            raise Stopped(signal.SIGTERM, "step 3 is the newest that is saved")
        self.trained.append(config)
        run_dir = Path(config.runs) / str(config.name)
        run_dir.mkdir(parents=True)
        data = config.data
        model = replace(model_file(seed=len(self.trained)), source_lang=data.source_lang, target_lang=data.target_lang)
        (run_dir / "model.safetensors").write_bytes(packed(model))
        return Trained(run_dir, 1.0, 3, {}, True, {"test BLEU": 20.0, "test chrF2": 30.0, "test TER": 1.0})

    def augment(self, config: AugmentConfig) -> Augmented:
        self.augmented.append(config)
        lines = Path(str(config.input)).read_text().split("\n")[:-1]
        assert config.target_lang is not None
        assert config.source_lang is not None
        languages = [config.target_lang, config.source_lang]
        report = CorpusReport({"languages": languages}, 1, len(lines), len(lines), len(lines) - 1, Counter(loop=1))
        name = Path(str(config.output))
        for file in files_of(name, report.languages):
            written(file, lines[1:])
        return Augmented(name, report, is_new=True)

    def report(self, path: Path, *arguments: Any, **options: Any) -> evaluate_translations.TestOutcome:
        bleu = self.scores(str(path))
        return evaluate_translations.TestOutcome([Score("BLEU", bleu, ""), Score("chrF2", 2 * bleu, "")], "")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()
    monkeypatch.setattr(run_loop, "train_and_report", steps.train)
    monkeypatch.setattr(run_loop, "augmented", steps.augment)
    monkeypatch.setattr(run_loop, "report_test_set", steps.report)
    return steps


def loop(folder: Path, *more: str) -> Ran:
    return run(["augment", "loop", *USUAL, *more], folder)


def succeeded(ran: Ran) -> str:
    assert ran.code == 0, ran.err.decode()
    return ran.out.decode()


def test_each_model_trains_on_what_the_other_direction_made_in_the_round_before(folder: Path, steps: Steps) -> None:
    printed = succeeded(loop(folder, "--rounds", "2", "--search", "sample", "seed=3", "data.weights=[4,1]"))
    assert [(config.runs, config.name) for config in steps.trained] == [
        (f"loop/round-{number}", name) for number in range(3) for name in ("en-fr", "fr-en")
    ]
    first, last = steps.trained[0].data, steps.trained[-1].data
    assert (first.train, first.tags, first.weights) == (["loop/text/train.en", "loop/text/train.fr"], [], [])
    bt = ["loop/round-2/bt-fr-en.fr", "loop/round-2/bt-fr-en.en"]
    assert last.train == ["loop/text/train.fr", "loop/text/train.en", *bt]
    assert (last.source_lang, last.target_lang, last.dev) == ("fr", "en", ["loop/text/dev.fr", "loop/text/dev.en"])
    assert (last.tags, last.dev_tags, last.test_tags, last.weights) == (["", "<bt>"], [""], [""], [4, 1])
    assert [(config.checkpoint, config.input, config.output) for config in steps.augmented] == [
        ("loop/round-0/fr-en", "mono.fr", "loop/round-1/bt-en-fr"),
        ("loop/round-0/en-fr", "mono.en", "loop/round-1/bt-fr-en"),
        ("loop/round-1/fr-en", "mono.fr", "loop/round-2/bt-en-fr"),
        ("loop/round-1/en-fr", "mono.en", "loop/round-2/bt-fr-en"),
    ]
    assert {(config.decode.search, config.seed) for config in steps.augmented} == {("sample", 3)}
    first_table, *_, last_table = printed.split("round  direction")[1:]
    assert "dev BLEU" in first_table
    assert "test" not in first_table
    assert last_table.split("\n")[-4].split()[:8] == ["2", "fr-en", "5", "1", "6.00", "12.00", "20.00", "30.00"]
    assert last_table.endswith(
        "best on dev: tfm translate --checkpoint loop/round-2/en-fr\n"
        + " " * 13
        + ("tfm translate --checkpoint loop/round-2/fr-en\n")
    )
    rows = json.loads((folder / "loop/loop.json").read_bytes())["rows"]
    assert (rows[-1]["dev"], rows[-1]["pairs"], rows[-1]["dropped"]) == ({"BLEU": 6.0, "chrF2": 12.0}, 5, 1)


def test_every_command_is_printed_as_it_can_be_repeated(
    folder: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ["--rounds", "1", "--output", "a loop=1,2", "--search", "greedy", "model=tiny", "train.max_steps=7"]
    ran = loop(folder, *more, "decode=greedy")
    succeeded(ran)
    lines = [shlex.split(line[2:]) for line in ran.err.decode().split("\n") if line.startswith("$ ")]
    composed: dict[str, list[Any]] = {}
    monkeypatch.chdir(folder)
    for _, *words in lines:
        name, arguments = command_in(words)
        parsed, flags = parse_arguments(name, arguments)
        user_dir = Path(parsed.config_dir) if parsed.config_dir else None
        composed.setdefault(name, []).append(load_config(name, parsed.overrides, flags=flags, user_dir=user_dir))
    assert composed["train"] == steps.trained
    assert composed["augment"] == steps.augmented
    assert {(config.model.preset, config.train.max_steps) for config in steps.trained} == {("tiny", 7)}
    searches = [(one.source, one.decode.search, one.decode.beam_size) for one in composed["evaluate"]]
    assert searches[0] == ("a loop=1,2/text/dev.en", "greedy", 1)
    assert len(searches) == 4


@pytest.mark.parametrize("at", [0, 3])
def test_a_stopped_loop_goes_on_with_the_step_that_was_stopped(folder: Path, steps: Steps, at: int) -> None:
    steps.stop_at = at
    more = ["--rounds", "1", "--output", "deep/er"]
    stopped = loop(folder, *more)
    assert (stopped.code, len(steps.trained)) == (128 + signal.SIGTERM, at)
    assert "Go on with `tfm augment loop data=files" in stopped.err.decode()
    printed = succeeded(loop(folder, *more))
    assert [(config.runs, config.name) for config in steps.trained] == [
        (f"deep/er/round-{number}", name) for number in range(2) for name in ("en-fr", "fr-en")
    ]
    assert len(printed.split("round  direction")[-1].split("\n")) == 8


def test_a_finished_loop_makes_nothing_and_prints_its_table_again_and_more_rounds_go_on(
    folder: Path, steps: Steps
) -> None:
    first = succeeded(loop(folder, "--rounds", "1"))
    n_made = len(steps.trained), len(steps.augmented)
    files = {path: path.stat().st_mtime_ns for path in (folder / "loop").rglob("*.*")}
    again = succeeded(loop(folder, "--rounds", "1", "train.log_every=7"))
    assert (len(steps.trained), len(steps.augmented)) == n_made
    assert first.endswith(again)
    assert again.count("round  direction") == 1
    assert files == {path: path.stat().st_mtime_ns for path in (folder / "loop").rglob("*.*")}
    succeeded(loop(folder, "--rounds", "2"))
    assert (len(steps.trained), len(steps.augmented)) == (6, 4)


def test_another_setting_text_or_model_is_refused(folder: Path, steps: Steps) -> None:
    succeeded(loop(folder, "--rounds", "1"))

    def refuse(named: str, *more: str) -> None:
        says = f"--output loop: holds a loop that was begun with another value of: {named}. Repeat its command, or"
        refused(["augment", "loop", *USUAL, *more], folder, code=2, says=[says])

    refuse("train.max_steps", "train.max_steps=9")
    refuse("search", "--search", "greedy")
    refuse("search and 1 more", "--beam", "3", "seed=2")
    refuse("--reverse", "--reverse", "fr-en.safetensors")
    for name, named in (("mono.fr", "--target"), ("train.en", "text of data.train")):
        before = (folder / name).read_bytes()
        written(folder / name, sentences(40, seed=99))
        refuse(named)
        (folder / name).write_bytes(before)
    assert len(steps.trained) == 4


def test_a_file_that_was_edited_is_not_made_again(folder: Path, steps: Steps) -> None:
    succeeded(loop(folder, "--rounds", "1"))
    for name in ("text/train.fr", "round-0/fr-en/model.safetensors"):
        file = folder / "loop" / name
        before = file.read_bytes()
        for now, says in ((None, "has gone"), (b"a\n", "was changed since")):
            file.unlink() if now is None else file.write_bytes(now)
            message = f"loop/{name}: was made by this loop, and {says}. Restore it, or choose another --output"
            refused(["augment", "loop", *USUAL], folder, code=2, says=[message])
        file.write_bytes(before)
    assert len(steps.trained) == 4


def test_text_in_one_language_is_back_translated_once_for_one_direction(folder: Path, steps: Steps) -> None:
    ran = run(["augment", "loop", *CORPUS, "--target", "mono.fr", "device=cpu", "--rounds", "3"], folder)
    succeeded(ran)
    says = (
        "--source: not given, so fr-en is not trained again, and there is one round: back-translation for en-fr alone"
    )
    assert says in ran.err.decode()
    assert [config.name for config in steps.trained] == ["en-fr", "fr-en", "en-fr"]


def test_models_that_are_given_are_those_of_round_0(folder: Path, steps: Steps) -> None:
    given = ["--forward", "en-fr.safetensors", "--reverse", "fr-en.safetensors"]
    printed = succeeded(loop(folder, "--rounds", "1", *given))
    assert [config.runs for config in steps.trained] == ["loop/round-1"] * 2
    assert [config.checkpoint for config in steps.augmented] == ["fr-en.safetensors", "en-fr.safetensors"]
    row = printed.split("round  direction")[-1].split("\n")[1].split()
    assert (row[:2], row[-1]) == (["0", "en-fr"], "given")


def test_a_loop_that_gains_nothing_ends_early_where_that_is_asked_for(folder: Path, steps: Steps) -> None:
    steps.scores = lambda model: 5.0 if "round-1/fr-en" in model else 4.0
    ran = loop(folder, "--rounds", "5", "--stop-early")
    succeeded(ran)
    assert "round 2: no direction has gained dev BLEU, so no round follows" in ran.err.decode()
    assert len(steps.trained) == 6


def test_what_is_held_out_is_on_neither_side_of_the_training_text(folder: Path, steps: Steps) -> None:
    """The target side of a held-out pair is the source of the reverse model."""
    english, french = sentences(100, seed=3), [f"{line} X" for line in sentences(100, seed=4)]
    written(folder / "train.en", [*english, *english])
    written(folder / "train.fr", [*french, *french[1:], french[0]])
    corpus = ["data=files", "data.train=[train.en,train.fr]", "data.clean=[]", *BOTH, "device=cpu"]
    succeeded(run(["augment", "loop", *corpus, "--rounds", "1"], folder))
    for language in ("en", "fr"):
        text = {
            split: set((folder / f"loop/text/{split}.{language}").read_text().split("\n")[:-1])
            for split in ("train", "dev", "test")
        }
        assert all(text.values())
        assert not text["train"] & (text["dev"] | text["test"])


def test_references_among_the_monolingual_text_are_warned_of(folder: Path, steps: Steps) -> None:
    test = (folder / "test.fr").read_text().split("\n")[:2]
    written(folder / "mono.fr", [*test, "A NEW LINE"])
    ran = loop(folder, "--rounds", "1")
    succeeded(ran)
    says = "warning: --target mono.fr: 2 of its lines are references of data.test, and a model that trains on them"
    assert says in ran.err.decode()


def test_vocabularies_of_the_sides_are_turned_for_the_reverse_direction(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    sizes = ["data.tokenizer.vocab_size=[60,80]", "data.tokenizer.joint=false", "model.tie_embeddings=decoder"]
    config = load_config("augment loop", [*CORPUS, *sizes, "data.bleu_tokenize=intl"], flags={"target": "mono.fr"})
    text = RealText(Path("t"), ("en", "fr"))
    forward, reverse = (data_of(config.data, text, one, []) for one in directions_of(config))
    assert (forward.tokenizer.vocab_size, forward.bleu_tokenize) == ([60, 80], "intl")
    assert (reverse.tokenizer.vocab_size, reverse.bleu_tokenize) == ([80, 60], None)


def test_the_built_in_corpus_is_written_as_files(folder: Path, steps: Steps) -> None:
    succeeded(run(["augment", "loop", *BOTH, "device=cpu", "--rounds", "1"], folder))
    assert len((folder / "loop/text/train.fr").read_text().split("\n")) > 1000
    assert steps.trained[1].data.train == ["loop/text/train.fr", "loop/text/train.en"]


@each(
    "arguments, code, message",
    [
        (["--rounds", "1"], 2, "--source and --target: neither is given"),
        (["--target", "nothing"], 3, "nothing: no such file"),
        (["--target", "empty"], 3, "--target empty: has no text"),
        (["--target", "mono.en"], 3, "--target mono.en: is en by its name, and --target is text in fr. Name it with"),
        (["--source", "novel"], 3, "--source novel: reads like fr, and --source is text in en. Name it with"),
        ([*BOTH, "--forward", "fr-en.safetensors"], 2, "--forward fr-en.safetensors: translates fr → en, and must"),
        ([*BOTH, "--reverse", "none"], 4, "none: no such file or folder. Check --reverse"),
        ([*BOTH, "--rounds", "0"], 2, "rounds=0: out of range"),
        ([*BOTH, "--search", "best"], 2, "search=best: unknown"),
        ([*BOTH, "--engine", "x"], 2, "engine=x: unknown"),
        ([*BOTH, "data.target_lang=de+fr", "data.source_lang=en"], 2, "the loop has two directions, between two"),
        ([*BOTH, "data.weights=[1]"], 2, "data.weights=[1.0]: here are two, of the real text and of the synthetic"),
        ([*BOTH, "data.tags=['<a>']"], 2, "data.tags=['<a>']: is not for a loop of both directions. Leave it out"),
        ([*BOTH, "init.from=x"], 2, "--forward and --reverse name the models that it begins with. Leave it out"),
        ([*BOTH, "name=x"], 2, "name=x: is not for a loop"),
        ([*BOTH, "data.dev=null", "data.train=[few,few]"], 2, "data.dev: not given, and data.train is too short"),
        ([*BOTH, "data.train=[few,novel]"], 3, "novel: has 40 lines, few 2"),
        ([*BOTH, "--output", "empty"], 5, "empty"),
        ([*BOTH, "--output", "."], 2, "--output .: holds other files, and no loop. Choose another"),
        ([*BOTH, "model=tyni"], 2, "no model called `tyni`"),
        ([*BOTH, "optimizer.name=adm"], 2, "adm"),
    ],
)
def test_a_wrong_order_is_refused_before_anything_is_made(
    folder: Path, steps: Steps, arguments: list[str], code: int, message: str
) -> None:
    written(folder / "empty", [])
    written(folder / "few", ["a b", "b c"])
    written(folder / "novel", ["le chat est sur la table et il ne veut pas que nous le voyions dans cette maison"] * 40)
    given = [word.partition("=")[0] for word in arguments]
    corpus = [word for word in CORPUS if word.partition("=")[0] not in given]
    line = ["augment", "loop", *corpus, "data.clean=[]", "device=cpu", *arguments]
    refused(line, folder, code=code, says=[message], working=True)
    assert not steps.trained


def test_several_ranks_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.chdir(folder)
    config = load_config("augment loop", CORPUS, flags={"target": "mono.fr"})
    with pytest.raises(ConfigError, match="tfm augment loop: is one process"):
        run_loop.run(config)


def test_a_folder_of_something_else_is_named(folder: Path) -> None:
    (folder / "loop").mkdir()
    (folder / "loop/loop.json").write_text("{}")
    says = "loop/loop.json: not what `tfm augment loop` writes. Choose another --output"
    refused(["augment", "loop", *USUAL], folder, code=3, says=[says], new=["loop/lock"], working=True)


def test_loop_stands_behind_augment(folder: Path) -> None:
    refused(["augment", "--output", "x", "loop"], folder, code=2, says=["Write it first, as `tfm augment loop`"])


@each("bleu, gains", [((1, 2, 1, 3), True), ((1, 2, 1, 2), False), ((None, 2, 1, 2), True), ((1, 2, None, 1), False)])
def test_a_round_gains_where_a_direction_is_better_than_before(bleu: tuple[float | None, ...], gains: bool) -> None:
    record = LoopRecord(Path(), {})
    for number, score in enumerate(bleu):
        record.rows.append(LoopRow(number // 2, ("en-fr", "fr-en")[number % 2], "m", {"BLEU": score}, {}))
    assert record.gained(1) == gains


QUICK = [
    *("model=tiny", "train.rdrop=0", "train.tokens_per_update=512", "train.max_steps=300", "device=cpu"),
    *("data.tokenizer.vocab_size=40", "train.robustness_lines=0", "data.drop_duplicates=true", "train.save_every=20"),
]


@pytest.mark.slow  # six trainings, two of which are killed and go on
def test_a_loop_that_was_killed_ends_as_one_that_was_not(tmp_path: Path) -> None:
    write_text(tmp_path, 2000, 200)
    words = ["augment", "loop", *USUAL, *QUICK, "--rounds", "1", "--search", "greedy", "--output"]
    whole = run([*words, "whole"], tmp_path)
    succeeded(whole)
    log = tmp_path / "killed.log"
    for signum, waits_for in ((signal.SIGKILL, "round-0/en-fr"), (signal.SIGTERM, "round-1/fr-en")):
        with log.open("wb") as stderr:
            child = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *words, "killed"], cwd=tmp_path, stderr=stderr, env=environment()
            )
            while not list((tmp_path / f"killed/{waits_for}/checkpoints").glob("step-*")):
                assert child.poll() is None, log.read_text()
                time.sleep(0.05)
            child.send_signal(signum)
            assert child.wait() == (-signum if signum == signal.SIGKILL else 128 + signum)
    ended = run([*words, "killed"], tmp_path)
    succeeded(ended)
    assert b"resuming from step" in ended.err
    rows = {name: json.loads((tmp_path / name / "loop.json").read_bytes())["rows"] for name in ("whole", "killed")}
    for ours, theirs in zip(rows["killed"], rows["whole"], strict=True):
        assert (ours["dev"], ours["test"], ours["pairs"]) == (theirs["dev"], theirs["test"], theirs["pairs"])
    assert rows["whole"][-1]["pairs"] > 50  # so small a model repeats itself in half of the 200 lines
