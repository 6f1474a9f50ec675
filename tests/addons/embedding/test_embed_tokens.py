"""`tfm embed --tokens` and `--layer`: what the encoder computes of each token, at each layer."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.addons.classification.test_classify_command import TRANSLATOR
from tests.addons.classification.toy_classifier import SIZES, random_model, table, toy_tokenizer
from tests.addons.interop.test_m2m100 import DE_EN, m2m100
from tests.addons.interop.toy_huggingface import opus
from tests.conftest import Run, slow
from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.addons.embedding import encoder_filter
from transformer_cli.addons.embedding.hidden_states import sentence_vectors, token_vectors
from transformer_cli.addons.embedding.word_groups import word_groups, word_text
from transformer_cli.addons.interop.importing import import_model, read
from transformer_cli.config.model import ModelConfig, Norm, Positions
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.models.layouts import PaddedLayout
from transformer_cli.models.transformer import Transformer

CPU = torch.device("cpu")
LINES = [line.split("\t")[1] for line in table(30, seed=4).split("\n")[:-1]]
TEXT = "".join(f"{line}\n" for line in LINES).encode()
N_LAYERS = 2
TWO_LAYERS = replace(TRANSLATOR, n_encoder_layers=N_LAYERS)


def loaded(path: Path) -> list[tuple[list[str], np.ndarray]]:
    """The tokens and vectors of each line of an archive."""
    with np.load(path, allow_pickle=False) as archive:
        tokens, vectors, offsets = (archive[name] for name in ("tokens", "vectors", "offsets"))
    assert (vectors.dtype, offsets.dtype, len(tokens)) == (np.float32, np.int64, len(vectors))
    assert (offsets[0], offsets[-1]) == (0, len(tokens))
    return [(tokens[a:b].tolist(), vectors[a:b]) for a, b in pairwise(offsets)]


def states(model: ModelFile, line: str) -> list[torch.Tensor]:
    """What enters the first layer and what each layer returns, [S, D], of one line, layer by layer."""
    tokenizer = model.tokenizers.source
    first = [tokenizer.bos_id] if model.config.name == "classifier" else []
    ids = torch.tensor([[*first, *tokenizer.encode([line])[0], tokenizer.eos_id]])
    built = model.build_as(Classifier, CPU) if first else model.build(CPU)
    assert isinstance(built, Classifier | Transformer)
    layout, encoder = PaddedLayout(ids.size(1)), built.encoder
    with torch.inference_mode():
        x, rotation = encoder.embed_positions(built.source_embedding(ids), layout)
        found = [x]
        for layer in encoder.layers:
            found.append(layer(found[-1], layout, rotation))
        found[-1] = encoder.norm(found[-1])
        torch.testing.assert_close(found[-1], encoder(built.source_embedding(ids), layout))
    return [x_1SD[0] for x_1SD in found]


@pytest.mark.parametrize(
    "config",
    [
        SIZES,
        TWO_LAYERS,
        slow(replace(TWO_LAYERS, norm=Norm.post)),
        slow(replace(TWO_LAYERS, positions=Positions.rotary)),
    ],
    ids=["classifier", "translator", "post-LN", "rotary"],
)
def test_an_archive_holds_each_layer_of_each_token(embed: Run, tmp_path: Path, config: ModelConfig) -> None:
    model = random_model(config)
    stdin = TEXT + b"\n \n" + TEXT
    expected = [states(model, line) for line in LINES]
    choices: dict[str, Callable[[list[torch.Tensor]], torch.Tensor]] = {
        "0": lambda found: found[0],
        "1": lambda found: found[1],
        "2": lambda found: found[2],
        "-1": lambda found: found[2],
        "-3": lambda found: found[0],
        "mean": lambda found: torch.stack(found).mean(dim=0),
        "all": lambda found: torch.stack(found, dim=1),
    }
    for layer, choose in choices.items():
        name = f"layer{layer}.npz"
        status, out, _ = embed("--tokens", "pieces", "--layer", layer, "--output", name, stdin=stdin, model=model)
        assert (status, out) == (0, "")
        found = loaded(tmp_path / name)
        assert len(found) == 2 * len(LINES) + 2
        assert [len(tokens) for tokens, _ in found[len(LINES) : len(LINES) + 2]] == [0, 0]
        for line, its_states, *both in zip(LINES, expected, found, found[len(LINES) + 2 :], strict=False):
            for tokens, vectors in both:
                bos = ["<s>"] if config.name == "classifier" else []
                assert tokens == [*bos, *(f"▁{letter}" for letter in line.split()), "</s>"]
                np.testing.assert_allclose(vectors, choose(its_states).numpy(), atol=1e-5)


def test_without_a_layer_it_is_the_last_and_its_mean_is_the_vector_of_the_line(embed: Run, tmp_path: Path) -> None:
    stdin = b"\n" + TEXT
    embed("--tokens", "pieces", "--output", "x.npz", stdin=stdin)
    embed("--tokens", "pieces", "--layer", "2", "--output", "2.npz", stdin=stdin)
    assert (tmp_path / "x.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    for layer in ("0", "1", "2", "mean", "all"):
        embed("--tokens", "pieces", "--layer", layer, "--output", "t.npz", "--overwrite", stdin=stdin)
        embed("--layer", layer, "--output", "t.npy", "--overwrite", stdin=stdin)
        lines = np.load(tmp_path / "t.npy", allow_pickle=False)
        assert not lines[0].any()
        for (_, vectors), line in zip(loaded(tmp_path / "t.npz")[1:], lines[1:], strict=True):
            np.testing.assert_allclose(vectors.mean(axis=0), line, atol=1e-5)
    embed("--output", "default.npy", stdin=stdin)
    embed("--layer", "-1", "--output", "last.npy", stdin=stdin)
    assert (tmp_path / "default.npy").read_bytes() == (tmp_path / "last.npy").read_bytes()


def test_json_lines_hold_the_same_numbers(embed: Run, tmp_path: Path) -> None:
    for layer in ("1", "all"):
        _, out, _ = embed("--tokens", "pieces", "--layer", layer, stdin=b"\n" + TEXT)
        embed("--tokens", "pieces", "--layer", layer, "--output", "x.npz", "--overwrite", stdin=b"\n" + TEXT)
        blank, *records = map(json.loads, out.split("\n")[:-1])
        assert blank == {"line": 1, "tokens": [], "vectors": []}
        for number, (record, (tokens, vectors)) in enumerate(
            zip(records, loaded(tmp_path / "x.npz")[1:], strict=True), start=2
        ):
            assert (record["line"], record["tokens"]) == (number, tokens)
            np.testing.assert_allclose(record["vectors"], vectors, atol=1e-6)


def test_neither_the_batch_nor_the_order_nor_the_block_changes_a_vector(
    embed: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed("--tokens", "pieces", "--output", "together.npz", stdin=TEXT)
    embed("--tokens", "pieces", "--output", "alone.npz", "batch_tokens=1", stdin=TEXT)
    embed("--tokens", "pieces", "--output", "reversed.npz", stdin="".join(f"{x}\n" for x in LINES[::-1]).encode())
    monkeypatch.setattr(encoder_filter, "TOKENS_AT_ONCE", 9)
    embed("--tokens", "pieces", "--output", "blocks.npz", stdin=TEXT)
    together = loaded(tmp_path / "together.npz")
    others = [loaded(tmp_path / f"{name}.npz") for name in ("alone", "reversed", "blocks")]
    for lines in (others[0], others[1][::-1], others[2]):
        for (tokens, vectors), (same, close) in zip(together, lines, strict=True):
            assert tokens == same
            np.testing.assert_allclose(vectors, close, atol=1e-5)


def test_a_word_is_the_mean_of_its_pieces(embed: Run, tmp_path: Path) -> None:
    model = random_model(TRANSLATOR)
    words = "ab c abc"  # the vocabulary has letters only
    embed("--tokens", "pieces", "--output", "pieces.npz", stdin=words.encode(), model=model)
    embed("--tokens", "words", "--output", "words.npz", stdin=words.encode(), model=model)
    ((pieces, each),) = loaded(tmp_path / "pieces.npz")
    ((found, means),) = loaded(tmp_path / "words.npz")
    assert (pieces, found) == (["▁a", "b", "▁c", "▁a", "b", "c", "</s>"], ["ab", "c", "abc", "</s>"])
    np.testing.assert_allclose(means[0], each[:2].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(means[2], each[3:6].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(means[3], each[6], atol=1e-6)


def test_words_are_those_of_the_segmenter() -> None:
    special = {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    first = ["<pad>", "<unk>", "<s>", "</s>"]
    glued = PackedTokenizer(
        Segmenter.subword_nmt, [*first, "lo@@", "wer", "a@@", "b"], **special, model=b"#version: 0.2\na b</w>\n"
    )
    tokenizer = Tokenizer(glued.to_bytes())
    ids = [4, 5, 7, 6, 3]
    assert word_groups(tokenizer, ids) == [range(2), range(2, 3), range(3, 4), range(4, 5)]
    assert word_text(tokenizer, ["lo@@", "wer"]) == "lower"
    whole = Tokenizer(PackedTokenizer(Segmenter.words, [*first, "a", "b"], **special).to_bytes())
    assert word_groups(whole, [4, 5, 3]) == [range(1), range(1, 2), range(2, 3)]
    bytes_of = toy_tokenizer()
    assert word_text(bytes_of, ["▁x", "<0xC3>", "<0xA9>"]) == "xé"
    assert word_text(bytes_of, ["▁"]) == "▁"


@pytest.mark.parametrize("norm", Norm)
def test_the_layers_are_those_that_transformers_returns(norm: Norm, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    theirs = opus(folder) if norm is Norm.post else m2m100(folder)
    imported = read(folder, "hf", *([] if norm is Norm.post else [DE_EN]))
    import_model(imported, tmp_path / "m.safetensors", origin=folder, n_made_up=1)
    model = read_model(tmp_path / "m.safetensors").build_as(Transformer, CPU)
    pad = imported.tokenizers.source.pad_id
    source_BS = torch.tensor([[5, 9, 33, 12, 7], [8, 12, 4, pad, pad]])
    with torch.inference_mode():
        expected = theirs.get_encoder()(source_BS, attention_mask=source_BS != pad, output_hidden_states=True)
        all_BSYD = token_vectors(model, source_BS, layer="all")
        pooled_BYD = sentence_vectors(model, source_BS, layer="all", pooling="mean")
    expected_BSYD = torch.stack(expected.hidden_states, dim=2)
    assert all_BSYD.size(2) == imported.config.n_encoder_layers + 1
    for row, length in enumerate((5, 3)):
        torch.testing.assert_close(all_BSYD[row, :length], expected_BSYD[row, :length], rtol=1e-5, atol=2e-5)
        torch.testing.assert_close(pooled_BYD[row], expected_BSYD[row, :length].mean(dim=0), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layer", "3"], "--layer 3: the encoder has 2. Choose 0 to 2, -1, all or mean"),
        (["--layer", "-4"], "--layer -4: the encoder has 2"),
        (["--layer", "first"], "--layer first: not a layer. Choose a number from 0, all or mean"),
        (["--layer", "1.5"], "--layer 1.5: not a layer"),
        (["--tokens", "pieces", "--output", "x.npy"], "--output x.npy: neither .npz nor .jsonl"),
        (["--output", "x.npz"], "--output x.npz: neither .npy nor .jsonl"),
        (["--tokens", "letters"], "tokens=letters: unknown. Choose pieces, words"),
        (["--tokens", "words", "--pooling", "first"], "--pooling first: of lines, but --tokens has none"),
        (["--tokens", "words", "--nearest", "1", "--among", "text"], "--tokens words: several vectors of a line"),
        (["--layer", "all", "--nearest", "1", "--among", "text"], "--layer all: several vectors of a line"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_line(
    embed: Run, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "text").write_text("a\n")
    status, out, err = embed(*arguments, stdin=b"a\n")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not list(tmp_path.glob("x.*"))


def test_the_nearest_lines_can_be_those_of_another_layer(embed: Run, tmp_path: Path) -> None:
    (tmp_path / "among").write_bytes(TEXT)
    embed("--layer", "0", "--output", "x.npy", stdin=TEXT)
    vectors = np.load(tmp_path / "x.npy").astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    _, out, _ = embed("--layer", "0", "--nearest", "2", "--among", "among", stdin=TEXT)
    rows = [line.split("\t") for line in out.split("\n")[:-1]]
    for line, number, cosine, _ in rows:
        assert vectors[int(line) - 1] @ vectors[int(number) - 1] == pytest.approx(float(cosine), abs=1e-4)


def test_nothing_is_left_of_an_archive_that_fails(embed: Run, tmp_path: Path) -> None:
    status, _, err = embed("--tokens", "pieces", "--output", "x.npz", "--strict", stdin=TEXT + b"\xff\n")
    assert (status, "is not UTF-8" in err) == (3, True)
    assert sorted(os.listdir(tmp_path)) == ["model.safetensors"]


def test_an_empty_input_gives_an_empty_archive_and_a_long_line_is_named(embed: Run, tmp_path: Path) -> None:
    embed("--tokens", "words", "--layer", "all", "--output", "none.npz", stdin=b"")
    with np.load(tmp_path / "none.npz", allow_pickle=False) as archive:
        assert archive["vectors"].shape == (0, N_LAYERS + 1, SIZES.d_model)
        assert (archive["tokens"].shape, archive["offsets"].tolist()) == ((0,), [0])
    _, out, err = embed("--tokens", "pieces", stdin=b"a\n" + b"b " * 20)
    assert "line 2: longer than the model's 12 tokens; the rest is not read" in err
    assert len(json.loads(out.split("\n")[1])["tokens"]) == 12
