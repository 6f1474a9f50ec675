"""init.extend_vocab: pieces at the end of a vocabulary, which leave text without them as it was."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import sentencepiece
import torch

from tests.support.each import each
from tests.toy import run as toy_run
from tests.toy.run import CPU, model_file
from transformer_cli.config.data import TokenizerConfig, TokenizerKind
from transformer_cli.config.model import Tying
from transformer_cli.data.extend_vocabulary import Pieces, extended, extended_tokenizers, new_pieces, parts_of_new
from transformer_cli.data.normalization import normalize
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.errors import ConfigError
from transformer_cli.training.initialisation import Initial, initial_weights

SYLLABLES = ["ka", "to", "mi", "ner", "os", "la", "ru", "pe", "shi", "vol"]
NEW_SYLLABLES = [*SYLLABLES[:4], "zzy", "qua", "жук", "99"]
KINDS = [(kind, in_bytes) for kind in (TokenizerKind.bpe, TokenizerKind.unigram) for in_bytes in (False, True)]


def sentences(syllables: list[str], n: int, *, seed: int) -> list[str]:
    draw = random.Random(seed)

    def word() -> str:
        return "".join(draw.choice(syllables) for _ in range(draw.randint(1, 3)))

    return [" ".join(word() for _ in range(draw.randint(2, 7))) + "." for _ in range(n)]


OLD_TEXT, NEW_TEXT = sentences(SYLLABLES, 300, seed=1), sentences(NEW_SYLLABLES, 300, seed=2)


@cache
def old(kind: TokenizerKind, in_bytes: bool) -> Tokenizer:
    config = TokenizerConfig(kind=kind, vocab_size=80 + 256 * in_bytes, byte_fallback=in_bytes)
    return train_tokenizer(OLD_TEXT, config, seed=1)


@cache
def new(kind: TokenizerKind, in_bytes: bool, n_pieces: int = 40) -> Tokenizer:
    model_bytes = old(kind, in_bytes).model_bytes
    return Tokenizer(extended(model_bytes, pieces=new_pieces(model_bytes, NEW_TEXT, n_pieces)))


def by_kind(kind: TokenizerKind, in_bytes: bool) -> str:
    return f"{kind.name}{', bytes' if in_bytes else ''}"


all_kinds = pytest.mark.parametrize(("kind", "in_bytes"), KINDS, ids=[by_kind(*one) for one in KINDS])


@all_kinds
def test_old_pieces_keep_their_ids(kind: TokenizerKind, in_bytes: bool) -> None:
    before, after = old(kind, in_bytes), new(kind, in_bytes)
    assert len(after) == len(before) + 40
    assert after.pieces(range(len(before))) == before.pieces(range(len(before)))
    assert (after.pad_id, after.unk_id, after.bos_id, after.eos_id) == (
        before.pad_id,
        before.unk_id,
        before.bos_id,
        before.eos_id,
    )


@all_kinds
def test_text_without_new_pieces_is_cut_as_before(kind: TokenizerKind, in_bytes: bool) -> None:
    before, after = old(kind, in_bytes), new(kind, in_bytes)
    mixed = sentences([*SYLLABLES, *NEW_SYLLABLES], 300, seed=3)
    n_same = 0
    for line in [*OLD_TEXT, *NEW_TEXT, *mixed]:
        ids = after.encode([line])[0]
        if all(i < len(before) for i in ids):
            assert ids == before.encode([line])[0]
            n_same += 1
        assert after.decode(ids) == normalize(line)
    assert n_same > 30


@all_kinds
def test_new_text_is_shorter_and_in_new_pieces(kind: TokenizerKind, in_bytes: bool) -> None:
    before, after = old(kind, in_bytes), new(kind, in_bytes)
    lengths = [sum(map(len, one.encode(NEW_TEXT))) for one in (before, after)]
    assert lengths[1] < 0.75 * lengths[0]
    used = {i for ids in after.encode(NEW_TEXT) for i in ids}
    assert len([i for i in range(len(before), len(after)) if i in used]) > 25
    assert not used & after.unknown_ids  # letters that the old one lacks are pieces now


def test_a_new_merge_joins_pieces_of_the_old_segmentation() -> None:
    """Each new piece of BPE is a concatenation of what the old model cuts its text into."""
    before, after = old(TokenizerKind.bpe, True), new(TokenizerKind.bpe, True)
    for line in NEW_TEXT:
        cuts = []
        for one in (before, after):
            pieces = [piece for piece in one.pieces(one.encode([line])[0]) if not piece.startswith("<0x")]
            ends = [0]
            for piece in pieces:
                ends.append(ends[-1] + len(piece))
            cuts.append(set(ends))
        if not any(piece.startswith("<0x") for piece in before.pieces(before.encode([line])[0])):
            assert cuts[1] <= cuts[0]


def test_merges_are_those_that_byte_pair_encoding_makes_next() -> None:
    """The expected merges of `ab ab ab ac`, over the letters alone, are made by hand."""
    letters = train_tokenizer(["a b c"] * 5, TokenizerConfig(vocab_size=8, byte_fallback=False), seed=1)
    assert letters.pieces(range(4, 8)) == ["▁", "a", "b", "c"] or len(letters) == 8
    found = new_pieces(letters.model_bytes, ["abc abc abc ab ac ac"], 3)
    # ▁a stands there 6 times, then ▁ab 4 times, then ▁abc 3 times.
    assert found == ["▁a", "▁ab", "▁abc"]


def test_pieces_are_of_one_script_and_within_a_word() -> None:
    letters = train_tokenizer(["a b c"] * 5, TokenizerConfig(vocab_size=8, byte_fallback=False), seed=1)
    found = new_pieces(letters.model_bytes, ["abж12! abж12! abж12! 日本ab"] * 5, 40)
    mixed = [piece for piece in found if len({_kind(character) for character in piece.strip("▁")}) > 1]
    assert mixed == []
    assert all("▁" not in piece[1:] for piece in found)
    assert {"▁ab", "12", "ж", "▁日本"} <= set(found)


def _kind(character: str) -> str:
    groups = {"digit": "12", "latin": "abc", "han": "日本"}
    return next((name for name, members in groups.items() if character in members), character)


@all_kinds
def test_parts_are_what_the_old_tokenizer_cuts_a_word_into(kind: TokenizerKind, in_bytes: bool) -> None:
    """Checked against SentencePiece itself, which can be asked for pieces that begin a word."""
    before, after = old(kind, in_bytes), new(kind, in_bytes)
    names = after.pieces(range(len(before), len(after)))
    parts = dict(zip(names, parts_of_new(before, after), strict=True))
    words = [name for name in names if name.startswith("▁") and len(name) > 1]
    assert words
    for name in words:
        (ids,) = before.encode([name[1:]])
        wanted = [i for i in ids if i != before.unk_id]  # which SentencePiece writes once for several characters
        assert [i for i in parts[name] if i != before.unk_id] == wanted
    segmenter = Pieces(before.model_bytes)
    processor = sentencepiece.SentencePieceProcessor(model_proto=before.model_bytes)
    for line in NEW_TEXT[:50]:
        for word in line.split():
            assert segmenter.cut("▁" + word) == _known(processor.encode(word, out_type=str), segmenter)


def _known(pieces: list[str], segmenter: Pieces) -> list[str]:
    """What SentencePiece joins to one unknown piece, as its characters."""
    return [one for piece in pieces for one in ([piece] if piece in segmenter.names else list(piece))]


def test_symbols_and_tags_are_one_piece_each() -> None:
    before = old(TokenizerKind.bpe, True)
    after = Tokenizer(extended(before.model_bytes, symbols=["[num]"], tags=["<2de>"]))
    assert after.pieces([len(before), len(before) + 1]) == ["[num]", "<2de>"]
    assert len(before) in after.encode(["kato[num]mi"])[0]
    assert extended(after.model_bytes, symbols=["[num]"], tags=["<2de>"]) == after.model_bytes  # it has both


def test_fewer_new_pieces_than_asked_for_is_an_error_with_their_number() -> None:
    model = old(TokenizerKind.bpe, True)
    with pytest.raises(ConfigError, match=r"init\.extend_vocab=5000: more .* which are (\d+)\. Set .*=\1 or less"):
        extended_tokenizers(Tokenizers(model, model), n_pieces=5000, sentences=(NEW_TEXT, []))


def packed(tokenizer: Tokenizer, *, shift: int = 0) -> Tokenizer:
    """The same segmenter with the pieces in another order, as of a model that another program has trained."""
    pieces = tokenizer.pieces(range(len(tokenizer)))
    rotated = [*pieces[shift:], *pieces[:shift]]
    ids = {piece: i for i, piece in enumerate(rotated)}
    return Tokenizer(
        PackedTokenizer(
            segmenter=Segmenter.sentencepiece,
            pieces=rotated,
            pad=ids["<pad>"],
            unk=ids["<unk>"],
            bos=ids["<s>"],
            eos=ids["</s>"],
            model=tokenizer.model_bytes,
        ).to_bytes()
    )


def test_a_vocabulary_that_another_program_has_numbered_is_extended() -> None:
    before = packed(old(TokenizerKind.bpe, False), shift=7)
    after = Tokenizer(extended(before.model_bytes, pieces=new_pieces(before.model_bytes, NEW_TEXT, 20), tags=["<2de>"]))
    assert len(after) == len(before) + 21
    assert after.pieces(range(len(before))) == before.pieces(range(len(before)))
    assert any(i >= len(before) for ids in after.encode(NEW_TEXT) for i in ids)
    assert after.encode(["<2de> kato"])[0][0] == len(before) + 20


def test_two_segmenters_of_one_vocabulary_stay_one_vocabulary() -> None:
    config = TokenizerConfig(vocab_size=60, byte_fallback=False)
    models = [train_tokenizer(text, config, seed=1) for text in (OLD_TEXT[:150], OLD_TEXT[100:])]
    pieces = list(dict.fromkeys(piece for one in models for piece in one.pieces(range(len(one)))))
    both = [
        Tokenizer(PackedTokenizer(Segmenter.sentencepiece, pieces, 0, 1, 2, 3, one.model_bytes).to_bytes())
        for one in models
    ]
    found = extended_tokenizers(Tokenizers(*both), n_pieces=10, sentences=(NEW_TEXT[:150], NEW_TEXT[150:]))
    sides = [one.pieces(range(len(one))) for one in (found.source, found.target)]
    assert sides[0] == sides[1]
    assert len(sides[0]) > len(pieces)


@pytest.mark.parametrize(
    ("segmenter", "model", "what"),
    [
        (Segmenter.subword_nmt, b"#version: 0.2\nk a\n", "BPE codes of subword-nmt"),
        (Segmenter.words, b"", "cut already"),
    ],
)
def test_a_tokenizer_that_is_not_sentencepiece_is_refused(segmenter: Segmenter, model: bytes, what: str) -> None:
    content = PackedTokenizer(segmenter, ["<pad>", "<unk>", "<s>", "</s>", "ka"], 0, 1, 2, 3, model).to_bytes()
    with pytest.raises(ConfigError, match=f"init.extend_vocab: the model's tokenizer .*{what}.* Leave it out"):
        new_pieces(content, NEW_TEXT, 5)


# The model


@each("tying", list(Tying))
@each("output_bias, d_embedding", [(False, None), (True, None), (False, 6)])
def test_new_rows_are_the_mean_of_their_parts_and_old_logits_stay(
    tying: Tying, output_bias: bool, d_embedding: int | None
) -> None:
    before = toy_run.tokenizers(joint=tying.shares_embedding)
    text = [" ".join(line) for line in ("abcd", "abce", "abcdé")] + ["abcde abcde abé é é"] * 5
    after = extended_tokenizers(before, n_pieces=3, sentences=(text, [line.upper() for line in text]))
    changes = {"tie_embeddings": tying, "output_bias": output_bias, "d_embedding": d_embedding}
    model = model_file(joint=tying.shares_embedding, **changes)
    drawn = {
        name: torch.randn_like(x)
        for name, x in model.weights.items()
        if name.endswith(("embedding.bias", "output.bias"))
    }
    assert len(drawn) == output_bias
    model = replace(model, weights={**model.weights, **drawn})
    config = replace(toy_run.config(model=model.config), name="x")
    weights = initial_weights(config, Initial(Path("x"), model, is_resumed=False), after)
    built = replace(model, tokenizers=after, weights=weights).build(CPU)
    source = torch.tensor([[4, 9, 12, before.source.eos_id]])
    target = torch.tensor([[before.target.bos_id, 7, 11]])
    old_logits, new_logits = model.build(CPU)(source, target), built(source, target)
    n_old = len(before.target)
    assert torch.equal(new_logits[..., :n_old], old_logits)  # all that has changed is the sum of the softmax
    for number, parts in enumerate(parts_of_new(before.target, after.target)):
        assert parts
        # The mean of the rows has the mean of the logits, bias and all.
        mean = old_logits[..., parts].mean(dim=-1)
        assert torch.allclose(new_logits[..., n_old + number], mean, atol=1e-5)
    for number, parts in enumerate(parts_of_new(before.source, after.source)):
        row = weights["source_embedding.weight"][len(before.source) + number]
        assert torch.allclose(row, model.weights["source_embedding.weight"][parts].mean(dim=0), atol=1e-6)
