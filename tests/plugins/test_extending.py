"""The plugins that docs/extending.md shows work from a folder outside the package, all in one run."""

import importlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.addons.classification import toy_classifier
from tests.conftest import ROOT
from tests.support.docs_code import write_files_of
from tests.support.forked import Ran, run
from tests.toy.run import sentences
from transformer_cli.config.poolings import POOLINGS
from transformer_cli.models.file import read_model
from transformer_cli.models.norms import NORMS
from transformer_cli.models.registry import MODELS

PAGE = ROOT / "docs" / "extending.md"
N = 8  # updates
TRAIN = [
    *(
        "train",
        "data=jsonl",
        "recipe=files",
        "data.tokenizer.vocab_size=40",
        "schedule=triangle",
        "schedule.options.top=0.25",
    ),
    *(
        "optimizer=momentum",
        "model=normed",
        "model.options.eps=0.001",
        "model.d_model=16",
        "model.n_heads=2",
        "model.d_ff=16",
        "name=run",
    ),
    "data.changes=[copied]",
    "train.loggers=[csv,tensorboard]",
    *("train.metrics=[bleu,exact_match]", f"train.max_steps={N}", "train.tokens_per_update=300", "train.log_every=1"),
    *("train.eval_every=4", "train.save_every=4", "train.eval_lines=4", "decode.beam_size=1", "device=cpu"),
]
LINES = "".join(f"{line}\n" for line in sentences(3, seed=4)).encode()


def tfm(folder: Path, *arguments: str, plugins: str, stdin: bytes = b"") -> Ran:
    named = [word for plugin in plugins.split() for word in ("--plugin", plugin)]
    ran = run([*arguments, *named, "--config-dir", "mine"], folder, stdin=stdin)
    assert ran.code == 0, ran.err.decode()
    return ran


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("outside")
    write_files_of(PAGE, made)
    records = [json.dumps({"en": line, "fr": line.upper()}) for line in sentences(120, seed=1)]
    (made / "corpus.jsonl").write_text("".join(f"{record}\n" for record in records), encoding="utf-8")
    tfm(made, *TRAIN, plugins="jsonl triangle momentum normed exact_match copied to_csv")
    return made


def test_the_schedule_sets_the_rates_and_the_metric_scores_the_dev_set(folder: Path) -> None:
    entries = [json.loads(line) for line in (folder / "runs/run/metrics.jsonl").read_text().split("\n")[:-1]]
    rates = [entry["lr"] for entry in entries if entry["kind"] == "train"]
    peak, top = 0.001, N * 0.25  # up in 2 updates, and down in the other 6 to zero at update 9
    by_hand = [peak * n / top if n <= top else peak * (N + 1 - n) / (N + 1 - top) for n in range(1, N + 1)]
    assert rates == pytest.approx(by_hand)
    assert all("exact_match" in json.dumps(entry) for entry in entries if entry["kind"] == "dev")


def test_the_logger_has_every_number_of_the_metrics_file(folder: Path) -> None:
    rows = [line.split(",") for line in (folder / "runs/run/metrics.csv").read_text().split("\n")[:-1]]
    logged = [(int(step), kind, name, float(value)) for step, kind, name, value in rows]
    entries = [json.loads(line) for line in (folder / "runs/run/metrics.jsonl").read_text().split("\n")[:-1]]
    assert logged == [
        (entry["step"], entry["kind"], name, value)
        for entry in entries
        for name, value in entry.items()
        if name not in ("step", "kind") and isinstance(value, int | float)
    ]


def test_the_model_and_the_state_of_the_optimizer_are_saved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS, "_entries", dict(MODELS._entries))
    monkeypatch.setattr(MODELS, "_options", {})
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("normed")
    model = read_model(folder / "runs/run/model.safetensors")
    assert (model.config.name, model.config.options) == ("normed", {"eps": 0.001})
    assert "encoder.embedding_norm.weight" in model.weights
    state = folder / f"runs/run/checkpoints/step-{N:08d}/optimizer.safetensors"
    assert b"momentum_buffer/encoder.embedding_norm.weight" in state.read_bytes()


def test_the_norm_is_trained_and_the_model_file_asks_for_its_plugin(folder: Path) -> None:
    sizes = ["data=jsonl", "recipe=files", "data.tokenizer.vocab_size=40", "model=tiny", "model.d_model=16"]
    sizes += ["model.n_heads=2", "model.d_ff=16", "train.max_steps=2", "train.tokens_per_update=300", "device=cpu"]
    tfm(folder, "train", *sizes, "model.norm_kind=alpha_bias", "runs=alpha", "name=one", plugins="jsonl alpha_bias")
    command = ["translate", "--checkpoint", "alpha/one/model.safetensors"]
    assert tfm(folder, *command, plugins="alpha_bias", stdin=LINES).out.count(b"\n") == 3
    ran = run(command, folder, stdin=LINES)
    assert ran.code == 4
    assert b"its norm 'alpha_bias' comes from the plugin jsonl or alpha_bias" in ran.err
    exported = run(["export", "ctranslate2", *command[1:], "--plugin", "alpha_bias", "--output", "out"], folder)
    assert exported.code == 4
    assert b"its norm 'alpha_bias' is a plugin's, and tfm export ctranslate2 has only those" in exported.err


def test_the_norm_is_layer_normalization_with_the_deviation_of_a_sample(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NORMS, "_entries", dict(NORMS._entries))
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("alpha_bias")
    x = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1))
    mine, theirs = NORMS["alpha_bias"](16, 0.0)(x), torch.nn.LayerNorm(16, eps=0.0)(x)
    torch.testing.assert_close(mine, theirs * (15 / 16) ** 0.5)


def test_the_corpus_is_prepared(folder: Path) -> None:
    ran = tfm(folder, "prepare", "data=jsonl", "data.tokenizer.vocab_size=40", plugins="jsonl")
    n_pairs = re.search(rb"jsonl: (\d+) training, (\d+) dev, (\d+) test pairs", ran.err)
    assert n_pairs is not None
    assert 0 < sum(map(int, n_pairs.groups())) <= 120


def test_a_file_of_the_format_is_listed_and_read(folder: Path) -> None:
    lines = [f"{line} ||| {line.upper()}\n" for line in sentences(120, seed=1)]
    (folder / "corpus.bars").write_text("".join(lines), encoding="utf-8")
    (folder / "other").write_text("".join(f"||| {line}" for line in lines), encoding="utf-8")
    for name in ("corpus.bars", "other"):
        shown = tfm(folder, "prepare", "--list", name, plugins="bars").out.decode()
        assert shown.startswith(f"{name}: a file of pairs with bars, 120 rows\n")
        files = ["data=files", "data.source_lang=en", "data.target_lang=fr", f"data.train={name}"]
        ran = tfm(folder, "prepare", *files, "data.tokenizer.vocab_size=40", plugins="bars")
        assert b"training pairs kept" in ran.err
    (folder / "corpus.bars").write_text("".join([*lines, "one\n"]), encoding="utf-8")
    bad = [*files[:3], "data.train=corpus.bars"]
    ran = run(["prepare", *bad, "--plugin", "bars"], folder)
    assert ran.code == 3
    assert b"corpus.bars: line 121: not source ||| target. Correct the line" in ran.err


def test_the_search_chooses_among_what_the_beam_finds(folder: Path) -> None:
    beam = ["translate", "decode=beam", "--n-best", "4"]
    n_best = tfm(folder, *beam, plugins="normed", stdin=LINES).out.decode().split("\n")[:-1]
    texts = [line.split(" ||| ")[1] for line in n_best]
    assert len(texts) == 12
    for ratio, wanted in (("10", max), ("0.1", min)):
        command = ["translate", "decode=by_length", f"decode.options.ratio={ratio}"]
        chosen = tfm(folder, *command, plugins="normed by_length", stdin=LINES).out.decode().split("\n")[:-1]
        for line, start in zip(chosen, range(0, 12, 4), strict=True):
            candidates = texts[start : start + 4]
            assert line in candidates
            assert len(line) == wanted(map(len, candidates))


def test_the_metric_prints_its_score_with_its_signature(folder: Path) -> None:
    for name, text in (("out", "a\nb\nC\nd\n"), ("ref", "a\nb\nc\nd\n")):
        (folder / name).write_text(text, encoding="utf-8")
    command = ["evaluate", "--hypotheses", "out", "--reference", "ref", "metrics=[exact_match]"]
    shown = tfm(folder, *command, plugins="exact_match").out.decode()
    assert re.search(r"^exact match +75\.00  case:mixed\|version:1$", shown, re.MULTILINE)


def test_the_settings_of_a_plugin_are_listed_and_checked(folder: Path) -> None:
    shown = tfm(folder, "train", "--keys", "options.top", plugins="triangle").out.decode()
    assert shown == (
        "schedule.options.top: number, 0.01 to 0.99, default 0.5\n    Share of the run in which the rate rises.\n"
    )
    for wrong, says in (
        ("schedule.options.topp=0.3", "schedule.options.topp: unknown key; did you mean `schedule.options.top`?"),
        ("schedule.options.top=high", "schedule.options.top=high: no number"),
        ("schedule.options.top=2", "schedule.options.top=2"),
    ):
        before = sorted(folder.rglob("*"))
        command = ["train", "--plugin", "triangle", "--config-dir", "mine", "schedule=triangle", "device=cpu", wrong]
        ran = run(command, folder)
        lines = ran.err.decode().split("\n")
        assert (ran.code, ran.out) == (2, b""), lines
        assert [line for line in lines if line.startswith(f"tfm: error: {says}")], lines
        assert sorted(folder.rglob("*")) == before


def test_the_command_is_one_as_ours_are(folder: Path) -> None:
    text = sentences(3, seed=4)[0]
    tokens = tfm(folder, "tokens", text, "checkpoint=runs/run", plugins="normed tokens").out.decode().split()
    assert "".join(tokens).replace("▁", " ").removesuffix("</s>").strip() == text
    count = tfm(folder, "tokens", text, "--checkpoint", "runs/run", "--count", plugins="normed tokens").out.decode()
    assert count == f"{len(tokens)}\n"
    shown = tfm(folder, "tokens", "--help", plugins="tokens").out.decode()
    assert "usage: tfm tokens TEXT [flags]" in shown
    assert "--count" in shown
    assert "Print their number alone." in shown
    assert "count: true or false" in tfm(folder, "tokens", "--keys", plugins="tokens").out.decode()
    assert "count: false" in tfm(folder, "tokens", "x", "--cfg", plugins="tokens").out.decode()
    assert "  tokens " in run(["--help", "--plugin", "tokens"], folder).out.decode()
    for words, says in (
        (["tokens"], "`tfm tokens`: no text given. Give the text"),
        (["tokens", "x", "coutn=true"], "coutn: unknown key; did you mean `count`?"),
        (["tokens", "x", "--most", "0"], "most=0: out of range"),
        (["tokens", "x", "--coutn"], "did you mean `--count`?"),
        (["token", "x"], "no command called `token`; did you mean `tokens`?"),
    ):
        ran = run([*words, "--plugin", "tokens"], folder)
        assert (ran.code, ran.out) == (2, b"")
        assert says in ran.err.decode()


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("'tokens'", "register() takes a Command"),
        ("Command('train', help='', example='', schema=C, run=print)", "two entries called `train`"),
        ("Command('new', help='', example='', schema=dict, run=print)", "whose schema is a dataclass"),
        ("Command('new', help='', example='', schema=C, run=lambda: 0)", "the run of command `new`"),
        ("Command('new', help='', example='', schema=N, run=print)", "has no key `plugins`"),
    ],
)
def test_what_is_no_command_is_refused_in_one_line(tmp_path: Path, made: str, says: str) -> None:
    fields = "plugins: list[str] = field(default_factory=list)"
    source = f"""
from dataclasses import dataclass, field
from transformer_cli.command import Command, register


@dataclass
class C:
    {fields}


@dataclass
class N:
    pass


register({made})
"""
    (tmp_path / "wrong.py").write_text(source, encoding="utf-8")
    ran = run(["new", "--plugin", "wrong"], tmp_path)
    [line] = ran.err.decode().strip().split("\n")
    assert ran.code == 2
    assert says in line
    assert "plugin wrong" in line


def test_a_classifier_is_pooled_by_the_plugin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "labels.tsv").write_text(toy_classifier.table(80, seed=1), encoding="utf-8")
    named = ["data=labels", "data.train=labels.tsv", "data.tokenizer.vocab_size=30", "device=cpu", "name=labels"]
    small = ["model.d_model=16", "model.n_heads=2", "model.d_ff=16", "model.n_encoder_layers=1", "train.max_steps=2"]
    pooled = ["model.pooling=generalized", "model.pooling_options.power=2"]
    tfm(folder, "train", *named, *small, *pooled, plugins="generalized")
    tfm(folder, "classify", "--checkpoint", "runs/labels", "device=cpu", plugins="generalized", stdin=LINES)
    refused = run(["classify", "--checkpoint", "runs/labels", "device=cpu"], folder, stdin=LINES)
    assert refused.code == 4
    assert b"its pooling 'generalized' comes from the plugin generalized" in refused.err
    monkeypatch.setattr(POOLINGS, "_entries", dict(POOLINGS._entries))
    monkeypatch.setattr(POOLINGS, "_options", dict(POOLINGS._options))
    monkeypatch.syspath_prepend(folder)
    importlib.import_module("generalized")
    model = read_model(folder / "runs/labels/model.safetensors")
    assert 1.9 < float(model.weights["pooling.power"]) < 2.1
    x_1LD = torch.tensor([[[1.0, 3.0], [7.0, 4.0], [9.0, 9.0]]])
    built = POOLINGS["generalized"].build(replace(model.config, d_model=2, pooling_options={"power": 2.0}))
    expected = [[25**0.5, 12.5**0.5]]  # √((1 + 49) / 2) and √((9 + 16) / 2)
    torch.testing.assert_close(built.of_sentences(x_1LD, torch.tensor([[True, True, False]])), torch.tensor(expected))
