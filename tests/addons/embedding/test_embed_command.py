"""`tfm embed`: vectors of any encoder, and the nearest lines of a file."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.addons.classification.test_classify_command import TRANSLATOR
from tests.addons.classification.toy_classifier import SIZES, random_model, table
from tests.conftest import Run
from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.config.model import ModelConfig
from transformer_cli.models.file import ModelFile
from transformer_cli.models.layouts import PaddedLayout
from transformer_cli.models.transformer import Transformer

CPU = torch.device("cpu")
LINES = [line.split("\t")[1] for line in table(30, seed=4).split("\n")[:-1]]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


def states(model: ModelFile, line: str) -> torch.Tensor:
    """What the encoder makes of each token, [S, D], of ids that are written down here."""
    tokenizer = model.tokenizers.source
    first = [tokenizer.bos_id] if model.config.name == "classifier" else []
    ids = torch.tensor([[*first, *tokenizer.encode([line])[0], tokenizer.eos_id]])
    built = model.build_as(Classifier, CPU) if first else model.build(CPU)
    assert isinstance(built, Classifier | Transformer)
    with torch.inference_mode():
        found: torch.Tensor = built.encoder(built.source_embedding(ids), PaddedLayout(ids.size(1)))[0]
    return found


@pytest.mark.parametrize("config", [SIZES, TRANSLATOR], ids=["classifier", "translator"])
def test_an_array_holds_what_the_encoder_makes_of_each_line(embed: Run, tmp_path: Path, config: ModelConfig) -> None:
    model = random_model(config)
    for pooling in ("mean", "first"):
        status, out, err = embed(
            *("--output", f"{pooling}.npy", "--pooling", pooling), stdin=TEXT + b"\n" + TEXT, model=model
        )
        assert (status, out) == (0, "")
        assert f": 1 of {2 * len(LINES) + 1} lines are blank; their rows are zero" in err
        found = np.load(tmp_path / f"{pooling}.npy", allow_pickle=False)
        assert (found.shape, found.dtype) == ((2 * len(LINES) + 1, config.d_model), np.float32)
        expected = [states(model, line) for line in LINES]
        each = torch.stack([x_SD.mean(dim=0) if pooling == "mean" else x_SD[0] for x_SD in expected]).numpy()
        np.testing.assert_allclose(found[: len(LINES)], each, atol=1e-5)
        np.testing.assert_allclose(found[len(LINES) + 1 :], each, atol=1e-5)
        assert not found[len(LINES)].any()  # the blank line


def test_json_lines_hold_the_same_numbers(embed: Run, tmp_path: Path) -> None:
    embed("--output", "x.npy", stdin=TEXT)
    _, out, _ = embed(stdin=b"\n" + TEXT)
    _, written_out, _ = embed("--output", "x.jsonl", stdin=b"\n" + TEXT)
    assert (written_out, (tmp_path / "x.jsonl").read_text()) == ("", out)
    blank, *records = [json.loads(line) for line in out.split("\n")[:-1]]
    assert blank == {"line": 1, "vector": None}
    assert [record["line"] for record in records] == list(range(2, len(LINES) + 2))
    np.testing.assert_allclose([record["vector"] for record in records], np.load(tmp_path / "x.npy"), atol=2e-6)


def test_the_nearest_lines_are_those_of_brute_force(embed: Run, tmp_path: Path) -> None:
    (tmp_path / "among").write_bytes(TEXT.replace(b"\n", b"\n\n", 3))  # three blank lines, which are nearest to none
    among = (tmp_path / "among").read_text().split("\n")[:-1]
    embed("--output", "queries.npy", stdin=TEXT)
    embed("--output", "among.npy", "--input", "among")
    queries, looked_at = np.load(tmp_path / "queries.npy"), np.load(tmp_path / "among.npy")
    _, out, _ = embed("--nearest", "4", "--among", "among", stdin=TEXT)
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    assert len(rows) == 4 * len(LINES)
    for number, query in enumerate(queries, start=1):
        cosine = [float(query @ x / np.linalg.norm(query) / np.linalg.norm(x)) if x.any() else -2.0 for x in looked_at]
        best = sorted(range(len(among)), key=lambda i: -cosine[i])[:4]
        found = [row for row in rows if row[0] == str(number)]
        assert [float(row[2]) for row in found] == pytest.approx([cosine[i] for i in best], abs=1e-4)
        assert all(text == among[int(line) - 1] for _, line, _, text in found)
        assert all(cosine[int(line) - 1] == pytest.approx(float(score), abs=1e-4) for _, line, score, _ in found)
        assert found[0][3] == LINES[number - 1]  # a line is nearest to itself


def test_a_blank_line_has_no_neighbours_and_a_short_file_gives_all_it_has(embed: Run, tmp_path: Path) -> None:
    (tmp_path / "among").write_text("a H\nb\n")
    _, out, _ = embed("--nearest", "5", "--among", "among", stdin=b"\na H\n")
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    assert [row[:2] for row in rows] == [["2", "1"], ["2", "2"]]
    assert rows[0][2:] == ["1.0000", "a H"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nearest", "3"], "--among: not given, but --nearest is. Say how many lines, and of which file"),
        (["--among", "text"], "--nearest: not given, but --among is"),
        (["--nearest", "3", "--among", "nowhere"], "nowhere: no such file. Check --among"),
        (["--nearest", "3", "--among", "blank"], "blank: holds no line with text, so none is nearest"),
        (["--output", "x.txt"], "--output x.txt: neither .npy nor .jsonl"),
        (["--output", "there.npy"], "there.npy: exists already. Add --overwrite"),
        (["--input", "nowhere"], "nowhere: no such file. Check --input"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(
    embed: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "blank").write_text("\n \n")
    (tmp_path / "text").write_text("a\n")
    (tmp_path / "there.npy").write_text("")
    status, out, err = embed(*arguments, stdin=b"a\n")
    assert status in (2, 3)
    assert (out, err.count("\n")) == ("", 1)
    assert message in err


def test_a_language_model_has_no_vectors(embed: Run) -> None:
    status, _, err = embed(stdin=b"a\n", model=random_model(replace(TRANSLATOR, name="decoder")))
    assert status == 4
    assert "this is a language model; use `tfm generate`" in err


def test_long_lines_are_named_also_those_that_are_looked_through(embed: Run, tmp_path: Path) -> None:
    (tmp_path / "among").write_text("a\n" + "b " * 20)
    _, _, err = embed("--nearest", "1", "--among", "among", stdin=b"a\nb\n" + b"c " * 20)
    assert "among: line 2 longer than the model's 12 tokens" in err
    assert "line 3: longer than the model's 12 tokens; the rest is not read" in err
