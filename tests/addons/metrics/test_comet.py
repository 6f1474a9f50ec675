"""COMET: the digits of its own command, and what is refused. The slow tests need `scripts/judges comet`."""

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.judges import call, judge
from transformer_cli.addons.metrics.comet import CometSettings, comet, model_of, sentences
from transformer_cli.cli import main
from transformer_cli.config.comet import CometConfig
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault, TfmError
from transformer_cli.evaluation.metrics import MetricSettings, MetricUnavailable, Translations

SOURCES = ["hello you", "good day\rto all", "", "a b c d", "x"]
HYPOTHESES = ["hallo du", "guten tag  ", "leer", "", "y"]
REFERENCES = ["hallo Sie", "guten Tag", "nichts", "a b c d", "z"]
TEXT = Translations(HYPOTHESES, [REFERENCES], SOURCES)

# Stands for a Python that has COMET: a score is the number of letters of the translation.
STUB = """#!{python}
import json, os, sys
if sys.argv[1] == "-c":
    print("COMET greets\\n" + {answer!r})
else:
    options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
    lines = {{name: open(options[name], newline=None).read().split("\\n")[:-1] for name in ("-s", "-t", "-r")}}
    assert len({{len(of) for of in lines.values()}}) == 1, lines
    with open(sys.argv[0] + ".given", "w") as file:
        json.dump([sys.argv[1:], lines], file)
    assert os.environ["{variable}"] == "1", "may run code"
    json.dump({{"mt": [{{"COMET": len(line)}} for line in lines["-t"]][: {n}]}}, open(options["--to_json"], "w"))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that looks like a COMET model."""
    folder = tmp_path / "my-model"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "model.ckpt").write_bytes(b"weights")
    (folder / "hparams.yaml").write_text("class_identifier: regression_metric\n", encoding="utf-8")
    return folder


@pytest.fixture
def stub(tmp_path: Path, model: Path) -> Callable[..., CometSettings]:
    def make(n: int = 10, variable: str = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", **found: object) -> CometSettings:
        path = str(model / "checkpoints" / "model.ckpt")
        answer = json.dumps(found or {"version": "2.2.7", "path": path, "gpu": False})
        program = tmp_path / f"python-{len(list(tmp_path.iterdir()))}"
        program.write_text(STUB.format(python=sys.executable, answer=answer, variable=variable, n=n), encoding="utf-8")
        program.chmod(0o755)
        return CometSettings(str(model), str(program), trust=variable != "TORCH_FORCE_WEIGHTS_ONLY_LOAD")

    return make


def given(comet: CometSettings) -> MetricSettings:
    return MetricSettings(config=SimpleNamespace(comet=comet, device=comet.device))


def refusal(work: Callable[[], object], kind: type[TfmError]) -> str:
    with pytest.raises(kind) as caught:
        work()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.skipif(os.name == "nt", reason="the stub is a script")
def test_lines_reach_comet_one_by_one_and_the_score_is_their_mean(stub: Callable[..., CometSettings]) -> None:
    settings = given(stub())
    lengths = [len(line) for line in HYPOTHESES]
    scores = sentences(TEXT, settings)
    assert list(scores.values) == lengths
    (score,) = comet(TEXT, settings)
    assert score.value == sum(lengths) / len(lengths)
    sha256 = "9a129038d9a0"  # of `printf weights | sha256sum`
    assert score.signature == scores.signature
    assert score.signature.startswith(f"nrefs:1|model:my-model|sha256:{sha256}")
    assert score.signature.endswith("|version:2.2.7")


@pytest.mark.skipif(os.name == "nt", reason="the stub is a script")
def test_code_in_a_checkpoint_is_allowed_only_on_request(stub: Callable[..., CometSettings]) -> None:
    assert comet(TEXT, given(stub(variable="TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD")))


@pytest.mark.skipif(os.name == "nt", reason="the stub is a script")
@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("absent", EnvironmentFault, "name its Python by --comet-python"),
        ("broken", EnvironmentFault, "cannot be imported (why not)"),
        ("download", EnvironmentFault, "neither a file, nor downloaded (why not). Check its name, the network"),
        ("code", CheckpointError, "--trust-comet-model"),
        ("damaged", CheckpointError, "damaged, or not a COMET model (why not)"),
    ],
)
def test_each_fault_is_a_line(fault: str, kind: type[TfmError], says: str, stub: Callable[..., CometSettings]) -> None:
    settings = stub(fault=fault, why="why not.")
    assert says in refusal(lambda: model_of(settings), kind)


@pytest.mark.skipif(os.name == "nt", reason="the stub is a script")
def test_each_text_is_given_as_what_it_is(stub: Callable[..., CometSettings]) -> None:
    settings = stub()
    texts = Translations(["h one", "h two"], [["r one", "r two"]], ["s one", "s two"])
    comet(texts, given(settings))
    arguments, lines = json.loads(Path(f"{settings.python}.given").read_text(encoding="utf-8"))
    assert lines == {"-s": ["s one", "s two"], "-t": ["h one", "h two"], "-r": ["r one", "r two"]}
    assert arguments[arguments.index("--model") + 1] == str(Path(settings.model, "checkpoints", "model.ckpt"))


@pytest.mark.skipif(os.name == "nt", reason="the stub is a script")
def test_a_line_without_a_score_is_noticed(stub: Callable[..., CometSettings]) -> None:
    settings = given(stub(n=4))
    assert "scored 4 lines of 5" in refusal(lambda: comet(TEXT, settings), EnvironmentFault)


def test_what_cannot_be_scored_is_refused_before_comet_starts(model: Path) -> None:
    settings = MetricSettings()
    no_source = Translations(HYPOTHESES, [REFERENCES])
    assert "Name it with --source" in refusal(lambda: comet(no_source, settings), ConfigError)
    with pytest.raises(MetricUnavailable, match="takes one reference, and there are 2"):
        comet(Translations(HYPOTHESES, [REFERENCES] * 2, SOURCES), settings)
    for name in ("none.ckpt", "./none", str(model / "none")):
        assert "no such file" in refusal(partial(model_of, CometSettings(name)), ConfigError)
    assert "cannot be run" in refusal(lambda: model_of(CometSettings(str(model), "./no-python")), EnvironmentFault)
    (model / "hparams.yaml").unlink()
    assert "without its hparams.yaml" in refusal(lambda: model_of(CometSettings(str(model))), CheckpointError)


def test_without_the_package_the_command_says_how_to_install_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("x\n", encoding="utf-8")
    files = ["--source", str(tmp_path / "a.en"), "--reference", str(tmp_path / "a.de")]
    assert main(["evaluate", *files, "--hypotheses", str(tmp_path / "a.de"), "metrics=[comet]"]) == 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "unbabel-comet is not installed" in captured.err
    assert CometConfig().model == CometSettings().model


MAKE_A_MODEL = """
import sys, string, torch, yaml
from pathlib import Path
from types import SimpleNamespace
import pytorch_lightning
from comet.models import RegressionMetric
from transformers import BertConfig, BertModel, BertTokenizerFast

torch.manual_seed(0)
folder = Path("model")
(folder / "encoder").mkdir(parents=True)
(folder / "checkpoints").mkdir()
signs = string.ascii_letters + string.punctuation
pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *signs, *("##" + sign for sign in signs)]
(folder / "encoder" / "vocab.txt").write_text("\\n".join(pieces) + "\\n")
BertTokenizerFast(str(folder / "encoder" / "vocab.txt")).save_pretrained(folder / "encoder")
sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
BertModel(BertConfig(vocab_size=len(pieces), **sizes)).save_pretrained(folder / "encoder")
encoder = str((folder / "encoder").resolve())
model = RegressionMetric(encoder_model="BERT", pretrained_model=encoder, hidden_sizes=[32, 16], layer="mix")
for weights in model.parameters():
    torch.nn.init.normal_(weights, std=0.3)
trainer = pytorch_lightning.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
trainer.strategy.connect(model)
trainer.save_checkpoint(folder / "checkpoints" / "model.ckpt")
(folder / "hparams.yaml").write_text(yaml.safe_dump(dict(model.hparams)))
"""

ADD_CODE = """
import os, torch

class Code:
    def __reduce__(self):
        return os.mkdir, ("has-run",)

path = "model/checkpoints/model.ckpt"
content = torch.load(path, weights_only=True)
content["more"] = Code()
torch.save(content, path)
"""


@pytest.mark.slow
def test_the_digits_are_those_of_comet_score_and_code_is_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    python = judge("comet")
    monkeypatch.chdir(tmp_path)
    call(python, "-c", MAKE_A_MODEL, cwd=tmp_path)
    lines = 40 * list(zip(SOURCES, HYPOTHESES, REFERENCES, strict=True))
    for name, texts in zip(("src", "mt", "ref"), zip(*lines, strict=True), strict=True):
        text = "".join(text.replace("\r", " ") + "\n" for text in texts)
        (tmp_path / name).write_text(text, encoding="utf-8")
    files = ["-s", "src", "-t", "mt", "-r", "ref"]
    theirs = call(python, "comet-score", *files, "--model", "model/checkpoints/model.ckpt", "--gpus", "0", cwd=tmp_path)
    printed = [line.rpartition("score: ")[2] for line in theirs.split("\n") if line.startswith("mt\t")]

    asked = ["evaluate", "--source", "src", "--hypotheses", "mt", "--reference", "ref", "metrics=[comet]"]
    asked += ["--comet-model", "model", "--comet-python", str(python), "device=cpu"]
    assert main([*asked, "--sentence-scores", "lines.jsonl"]) == 0
    shown = capsys.readouterr().out
    ours = [
        json.loads(line)["scores"]["comet"] for line in Path("lines.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    ]
    assert [f"{score:.4f}" for score in ours] == printed[:-1]
    assert len(set(ours)) > 3
    assert shown.split("\n")[1].startswith(f"COMET  {printed[-1]}  nrefs:1|model:model|sha256:")

    call(python, "-c", ADD_CODE, cwd=tmp_path)
    model_of.cache_clear()
    assert main(asked) == 4
    assert "--trust-comet-model" in capsys.readouterr().err
    assert not (tmp_path / "has-run").exists()
