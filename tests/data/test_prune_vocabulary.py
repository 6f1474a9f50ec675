"""init.keep_languages: a vocabulary without the pieces that a text does not use cuts this text as before."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from tests.data.test_extend_vocabulary import SYLLABLES, all_kinds, sentences
from tests.toy import run as toy_run
from tests.toy.run import CPU, MODEL
from transformer_cli.config.data import TokenizerConfig, TokenizerKind
from transformer_cli.config.model import Tying
from transformer_cli.data.extend_vocabulary import kept_ids
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.prune_vocabulary import pruned_tokenizers
from transformer_cli.data.sentencepiece_model import read_pieces
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.errors import ConfigError
from transformer_cli.training.initialisation import Initial, initial_weights

OTHERS = ["жук", "пёс", "дом", "сон", "лес", "ваш", "мир", "год"]
KEPT, LEFT_OUT = sentences(SYLLABLES, 400, seed=1), sentences(OTHERS, 400, seed=2)
UNSEEN = sentences([*SYLLABLES, "vix", "qua", "zzy"], 100, seed=3)
TAGS = ["<2xx>", "<2yy>"]


@cache
def both(kind: TokenizerKind, in_bytes: bool) -> Tokenizer:
    """A tokenizer of two languages; some words of the first stand in capitals, so that few pieces hold them."""
    config = TokenizerConfig(kind=kind, vocab_size=230 + 256 * in_bytes, byte_fallback=in_bytes)
    return train_tokenizer([*KEPT, *LEFT_OUT, "VIX QUA ZZY"], config, seed=1, tags=TAGS)


def packed(kind: TokenizerKind, in_bytes: bool = False) -> PackedTokenizer:
    """The same pieces in an order of their own, with a token for each of two languages."""
    segmenter = both(kind, in_bytes)
    own = [name for name, _, _ in read_pieces(segmenter.model_bytes) if name not in ("<s>", "<unk>", "</s>", *TAGS)]
    random.Random(4).shuffle(own)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *own[:50], "xx", "yy", *own[50:], "madeup"]
    pieces = list(dict.fromkeys(pieces))
    return PackedTokenizer(
        Segmenter.sentencepiece, pieces, pad=1, unk=3, bos=2, eos=2, model=segmenter.model_bytes,
        languages=["xx", "yy"],
    )  # fmt: skip


def pairs(lines: list[str]) -> list[tuple[str, str]]:
    return [(line, other) for line, other in zip(lines, lines[1:] + lines[:1], strict=True)]


@all_kinds
def test_the_text_is_cut_as_before(kind: TokenizerKind, in_bytes: bool) -> None:
    before = both(kind, in_bytes)
    after = pruned_tokenizers(Tokenizers(before, before), pairs(KEPT), ["xx"]).source
    n_bytes = 256 * in_bytes
    assert len(after) - n_bytes < 0.7 * (len(before) - n_bytes)
    for line in KEPT:
        assert after.pieces(after.encode([line])[0]) == before.pieces(before.encode([line])[0])
        assert after.decode(after.encode([line])[0]) == before.decode(before.encode([line])[0])
    assert after.tags == before.tags
    assert after.pieces([after.pad_id, after.unk_id, after.bos_id, after.eos_id]) == before.pieces(
        [before.pad_id, before.unk_id, before.bos_id, before.eos_id]
    )


@all_kinds
def test_other_text_of_the_language_is_not_unknown(kind: TokenizerKind, in_bytes: bool) -> None:
    before = both(kind, in_bytes)
    after = pruned_tokenizers(Tokenizers(before, before), pairs(KEPT), ["xx"]).source
    capitals = [line.upper() for line in UNSEEN if set(line.upper()) <= before.alphabet]
    for line in [*UNSEEN, *capitals]:
        if not before.unknown_ids.intersection(before.encode([line])[0]):
            assert not after.unknown_ids.intersection(after.encode([line])[0])
            assert after.decode(after.encode([line])[0]) == line


@pytest.mark.parametrize("kind", [TokenizerKind.bpe, TokenizerKind.unigram])
def test_a_numbered_vocabulary_keeps_its_order_and_the_languages_that_are_named(kind: TokenizerKind) -> None:
    before = packed(kind)
    tokenizer = Tokenizer(before.to_bytes())
    text = [(f"<xx> <2xx> {source}", target) for source, target in pairs(KEPT)]
    pruned = pruned_tokenizers(Tokenizers(tokenizer, tokenizer), text, ["xx"])
    after = pruned.source.packed
    assert after is not None
    assert list(after.languages) == ["xx"]
    assert "yy" not in after.pieces
    assert "madeup" not in after.pieces
    names = iter(before.pieces)
    assert all(piece in names for piece in after.pieces)  # a subsequence
    assert [after.pieces[i] for i in (after.pad, after.unk, after.bos, after.eos)] == ["<pad>", "<unk>", "</s>", "</s>"]
    for source, target in text:
        for one, old, line in ((pruned.source, tokenizer, source), (pruned.target, tokenizer.without_tags(), target)):
            assert one.pieces(one.encode([line])[0]) == old.pieces(old.encode([line])[0])


@pytest.mark.parametrize("tying", list(Tying))
def test_the_model_predicts_as_before_what_is_left(tying: Tying) -> None:
    """Embeddings and the output layer keep the rows of what is left, so that its logits are the same to the bit."""
    tokenizer = Tokenizer(packed(TokenizerKind.bpe).to_bytes())
    before = Tokenizers(tokenizer, tokenizer if tying.shares_embedding else both(TokenizerKind.unigram, False))
    model = toy_run.random_file(replace(MODEL, tie_embeddings=tying, output_bias=True), before, seed=1)
    text = [(f"<xx> <2xx> {source}", target) for source, target in pairs(KEPT)]
    after = pruned_tokenizers(before, text, ["xx"])
    start = Initial(Path("a"), model, is_resumed=False)
    weights = initial_weights(replace(toy_run.config(model=model.config), name="x"), start, after)
    pruned = replace(model, tokenizers=after, weights=weights)
    left = kept_ids(before.target, after.target)
    assert len(left) == len(after.target) < len(before.target)
    for source, target in text[:20]:
        logits = []
        for one in (model, pruned):
            ids = one.tokenizers
            source_ids = [*ids.source.encode([source])[0], ids.source.eos_id]
            target_ids = [ids.target.bos_id, *ids.encode_targets([source], [target])[0]]
            logits.append(one.build(CPU)(torch.tensor([source_ids]), torch.tensor([target_ids])))
        assert torch.equal(logits[1], logits[0][..., left])


def test_only_pieces_of_sentencepiece_are_left_out() -> None:
    words = Tokenizer(
        PackedTokenizer(Segmenter.words, ["p", "u", "e", "a", "b"], pad=0, unk=1, bos=2, eos=2).to_bytes()
    )
    with pytest.raises(ConfigError, match="not SentencePiece's"):
        pruned_tokenizers(Tokenizers(words, words), [("a b", "b")], [])
