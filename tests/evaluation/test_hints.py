"""The last lines of a run: commands that work as they are printed, or why there is nothing to use yet."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.forked import Ran, run
from tests.toy.run import config, sentences
from transformer_cli.addons.classification.reports import single_answer
from transformer_cli.command import COMMANDS
from transformer_cli.commands.train.run import _next
from transformer_cli.config.train import ScheduleConfig
from transformer_cli.evaluation.metrics import Score, bleu
from transformer_cli.evaluation.usable import chance_score, unusable_outputs
from transformer_cli.training.result import TrainResult

PACKAGE = ROOT / "transformer_cli"
_WRITTEN = """
    train name=run device=cpu data.max_length=20
    data.tokenizer.vocab_size=25 model.n_encoder_layers=1 model.n_decoder_layers=1 model.d_model=16 model.n_heads=2
    model.d_ff=32 norm=pre schedule=constant schedule.lr=0.02 schedule.warmup_steps=1 train.tokens_per_update=200
    train.max_tokens_per_microbatch=400 train.max_steps=80 train.log_every=80 train.eval_every=80 train.save_every=80
    train.samples=0 train.average_last=1 train.patience=null train.robustness_lines=0
"""
TRAIN = _WRITTEN.split()
FILES = [f"data.{split}={split}.tsv" for split in ("train", "dev", "test")]
TRANSLATION = ["data=files", "recipe=files", "decode=greedy", "decode.max_extra_length=3"]
TAGGED = [
    *("data.source_lang=en", "data.target_lang=de+fr"),
    *(f"data.{split}=[{split}.tsv,{split}.tsv]" for split in ("train", "dev", "test")),
    *(f"data.{key}=['<2fr>','<2de>']" for key in ("tags", "dev_tags", "test_tags")),
]


def translated(folder: Path, n_lines: int = 60) -> None:
    """Files of a corpus in which a letter is translated by the same letter."""
    for name, seed in (("train", 1), ("dev", 2), ("test", 3)):
        lines = sentences(n_lines if name == "train" else 12, seed=seed)
        (folder / f"{name}.tsv").write_text("".join(f"{line}\t{line}\n" for line in lines))


def classified(folder: Path) -> None:
    for name, seed in (("train", 1), ("dev", 2), ("test", 3)):
        lines = [f"{'vowel' if line[0] in 'aei' else 'other'}\t{line}" for line in sentences(30, seed=seed)]
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines))


def spoken(folder: Path) -> None:
    for name, seed in (("train", 1), ("dev", 2), ("test", 3)):
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in sentences(40, seed=seed)))


def tagged(folder: Path) -> None:
    for name, seed in (("train", 1), ("dev", 2), ("test", 3)):
        blocks = ["".join(f"{word}\t{word.upper()}\n" for word in line.split()) for line in sentences(30, seed=seed)]
        (folder / f"{name}.tsv").write_text("\n".join(blocks))


def suggested(ran: Ran) -> list[str]:
    """The command lines that a run ends with."""
    assert ran.code == 0, ran.err.decode()
    lines = ran.err.decode().split("\n")
    last = lines[next(n for n, line in enumerate(lines) if line.startswith("next: ")) :]
    return [line[6:].partition("    (")[0] for line in last if line[6:].startswith("tfm ")]


def follow(command: str, folder: Path, text: str) -> Ran:
    """Run a suggested command line as a shell does, with the files that it reads."""
    words = shlex.split(command)
    assert words[0] == "tfm"
    given = {flag: words[words.index(flag) + 1] for flag in ("<", ">", "--source", "--reference") if flag in words}
    assert len(set(given.values())) == len(given), f"{command}: one name for two files"
    for flag, name in given.items():
        if flag != ">":
            (folder / name).write_text(text)
    plain = words[1 : words.index("<") if "<" in words else None]
    ran = run(plain, folder, stdin=text.encode() if "<" in words else b"")
    assert ran.code == 0, ran.err.decode()
    return ran


@pytest.mark.parametrize(
    ("write", "settings", "n_commands"),
    [
        (translated, [*FILES, *TRANSLATION, "data.source_lang=en", "data.target_lang=en"], 2),
        (translated, [*TRANSLATION, *TAGGED], 2),
        (classified, [*FILES, "data=labels"], 1),
        (tagged, [*FILES, "data=tags"], 1),
        (spoken, [*FILES, "data=text", "data.source_lang=en"], 1),
    ],
    ids=["one language", "two languages", "classes", "tags", "text"],
)
def test_what_a_run_suggests_works_as_it_is_printed(
    tmp_path: Path, write: Callable[[Path], None], settings: list[str], n_commands: int
) -> None:
    write(tmp_path)
    trained = run([*TRAIN, *settings], tmp_path)
    commands = suggested(trained)
    assert len(commands) == n_commands, trained.err.decode()
    for command in commands:
        follow(command, tmp_path, "a b c\nd e\n")
    assert "the same command with a larger train.max_steps goes on" in trained.err.decode()
    more = run([*TRAIN, *settings, "train.max_steps=82"], tmp_path)
    assert (more.code, "resuming from step 80" in more.err.decode()) == (0, True)


@pytest.mark.parametrize(
    ("target", "tags"),
    [
        *((target, tags) for target in ("en", "EN", "de") for tags in ([], ["", "<bt>"], ["<bt>", ""], ["<2de>"])),
        *((target, tags) for target in ("de+fr", "fr+de") for tags in (["<2de>", "<2fr>"], ["<2fr> <bt>", "<2de>"])),
        ("en+fr", ["<2en>", "<2fr>"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("source", ["en", "de", "en+de"])
def test_no_suggestion_reads_and_writes_one_file(tmp_path: Path, source: str, target: str, tags: list[str]) -> None:
    plain = config()
    data = replace(plain.data, source_lang=source, target_lang=target, tags=tags)
    lines = list(_next(replace(plain, data=data), TrainResult(tmp_path / "m", 1.0, 1, "chrf"), ""))
    translate, evaluate = (shlex.split(line.removeprefix("next:")) for line in lines[:2])
    text, translation = (translate[translate.index(word) + 1] for word in "<>")
    test, reference = (evaluate[evaluate.index(word) + 1] for word in ("--source", "--reference"))
    assert len({name.lower() for name in (text, translation)}) == len({test.lower(), reference.lower()}) == 2
    tag = translate[translate.index("--tag") + 1] if "--tag" in translate else ""
    assert tag in ("", *tags)
    if "+" in target:
        assert translation.endswith(f".{tag[2:4]}")  # the file is called by the language that is asked for


# ---- A model that is of no use yet


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([""] * 6, "6 of 6 translations are empty"),
        (["", "", "", "", "a b", "c d"], "4 of 6 translations are empty"),
        (["the the"] * 4 + ["a", "b"], "4 of 6 translations are the same text"),
        ([f"{word} of the of the of the of the" for word in "uvwx"] + ["a", "b"], "4 of 6 translations are loops of"),
        (["", "", "", "a", "b", "c"], ""),  # half is not more than half
        (["a", "a", "a", "b", "c", "d"], ""),
    ],
)
def test_what_is_wrong_with_most_translations_is_said(outputs: list[str], expected: str) -> None:
    sources = [f"line {n} of the text" for n in range(6)]
    found = unusable_outputs(sources, outputs)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_blank_and_repeated_sources_are_no_evidence() -> None:
    assert unusable_outputs(["", " ", "a", "b"], ["", "", "x", "y"]) == ""
    assert unusable_outputs(["a"] * 9 + ["b", "c"], ["x"] * 9 + ["y", "z"]) == ""
    assert unusable_outputs([], []) == ""


def test_a_score_of_unrelated_text_is_chance_and_a_low_score_is_not() -> None:
    lines = sentences(50, seed=4)
    unrelated = bleu([f"{' '.join(word * 3 for word in line.split())} q" for line in lines], [lines])
    assert "no more than chance" in chance_score([unrelated])
    assert chance_score([Score("BLEU", 1.3, "")]) == ""
    assert "chrF2 is 4.0" in chance_score([Score("chrF2", 4.0, "")])


def test_the_last_line_of_a_run_whose_outputs_are_empty_names_no_command(tmp_path: Path) -> None:
    translated(tmp_path)
    settings = [*FILES, *TRANSLATION, "data.source_lang=en", "data.target_lang=xx"]
    ran = run([*TRAIN, *settings, "schedule.lr=1e-9", "train.max_steps=2"], tmp_path)
    last = ran.err.decode().split("\n")[-2]
    assert ran.code == 0
    assert re.fullmatch(
        r"not usable yet: .+\. Train longer \(raise train\.max_steps and run the same command\), .+", last
    )
    assert "next: " not in ran.err.decode()


@pytest.mark.parametrize(
    ("answers", "references", "expected"),
    [
        (["a", "a", "a"], ["a", "b", "a"], "all 3 answers are 'a'"),
        (["a", "b", "a"], ["a", "b", "a"], ""),
        (["a", "a"], ["a", "a"], ""),
        ([], [], ""),
    ],
)
def test_the_same_answer_to_all_is_none(answers: list[str], references: list[str], expected: str) -> None:
    assert single_answer(answers, references) == expected


@pytest.mark.parametrize(
    ("write", "data"), [(classified, "labels"), pytest.param(tagged, "tags", marks=pytest.mark.slow)]
)
def test_a_classifier_that_has_one_answer_is_not_usable_yet(
    tmp_path: Path, write: Callable[[Path], None], data: str
) -> None:
    write(tmp_path)
    ran = run([*TRAIN, *FILES, f"data={data}", "schedule.lr=1", "train.max_steps=4"], tmp_path)
    assert ran.code == 0
    last = ran.err.decode().split("\n")[-2]
    assert re.match(r"not usable yet: all \d+ answers are '\w+'\. Train longer ", last), last


def test_a_run_that_cannot_go_on_is_to_be_begun_anew() -> None:
    plain = replace(config(), schedule=ScheduleConfig(name="linear", lr=1e-3, warmup_steps=1))
    (line,) = _next(plain, TrainResult(Path("runs/a/m"), 1.0, 1, "chrf"), "9 of 9 translations are empty")
    assert line.endswith("Train longer (train a new run with more updates), or on more text")


# ---- Commands within messages


def test_every_command_that_a_message_names_is_there_with_its_flags() -> None:
    """Commands in backticks, in messages, comments and docstrings; a word in capitals or braces stands for others."""
    found = 0
    for file in PACKAGE.rglob("*.py"):
        for command in re.findall(r"`tfm ([^`]*)`", file.read_text()):
            name = command.split(maxsplit=1)[0]
            if not re.fullmatch(r"[a-z]+", name):
                continue
            assert name in {*COMMANDS, "completion"}, f"{file.name}: tfm {command}"
            flags = re.findall(r"--[a-z-]+", command) if name in COMMANDS else []
            known = {*COMMANDS[name].flags, "--cfg", "--help", "--keys"} if flags else set()
            assert set(flags) <= known, f"{file.name}: tfm {command}"
            found += 1
    assert found > 100
