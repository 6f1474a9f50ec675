"""Vocabularies that other programs have numbered."""

import io
from dataclasses import replace

import numpy as np
import pytest
import sentencepiece

from tests.support.each import each
from transformer_cli.data.encoding import Encoded
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.subword_nmt import SubwordNmt
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.errors import CheckpointError

TEXT = ["the cat sat on the mat", "a cat and a hat", "the hat sat"] * 5


def spm() -> bytes:
    """A SentencePiece model as Marian trains it: EOS is 0, <unk> 1, and there is no other control token."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=30,
        model_type="bpe",
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        minloglevel=3,
    )
    return model.getvalue()


def packed(**changes: object) -> PackedTokenizer:
    processor = sentencepiece.SentencePieceProcessor(model_proto=spm())
    pieces = [processor.id_to_piece(i) for i in range(len(processor))]
    mine = ["</s>", "<unk>", ">>fra<<", *reversed(pieces[2:]), "<pad>"]
    tokenizer = PackedTokenizer(
        Segmenter.sentencepiece,
        mine,
        pad=len(mine) - 1,
        unk=1,
        bos=len(mine) - 1,
        eos=0,
        model=spm(),
        whole=[">>fra<<"],
    )
    return replace(tokenizer, **changes)  # type: ignore[arg-type]


def test_ids_are_those_of_the_list_and_pieces_those_of_sentencepiece() -> None:
    tokenizer = Tokenizer(packed().to_bytes())
    expected = sentencepiece.SentencePieceProcessor(model_proto=spm()).encode(TEXT[0], out_type=str)
    (ids,) = tokenizer.encode([TEXT[0]])
    assert tokenizer.pieces(ids) == expected
    assert tokenizer.decode([*ids, tokenizer.eos_id, tokenizer.pad_id]) == TEXT[0]


def test_a_tag_is_one_id_at_the_beginning_of_a_line_only() -> None:
    tokenizer = Tokenizer(packed().to_bytes())
    plain, tagged, twice, alone, inside = tokenizer.encode(
        ["a cat", ">>fra<< a cat", ">>fra<< >>fra<< a cat", ">>fra<<", "a >>fra<< cat"]
    )
    assert tagged == [2, *plain]
    assert twice == [2, 2, *plain]
    assert alone == [2]
    assert 2 not in inside
    assert tokenizer.decode(tagged) == ">>fra<< a cat"


def test_a_prefix_stands_before_every_sentence_and_in_no_text() -> None:
    tokenizer = Tokenizer(packed(whole=[], prefix=[">>fra<<"]).to_bytes())
    (plain,) = Tokenizer(packed().to_bytes()).encode(["a cat"])
    assert tokenizer.encode(["a cat"]) == [[2, *plain]]
    assert tokenizer.prefix_ids == (2,)
    assert tokenizer.decode([2, *plain]) == "a cat"


def test_sources_without_eos_end_with_their_text() -> None:
    with_eos, without = Tokenizer(packed().to_bytes()), Tokenizer(packed(adds_eos=False).to_bytes())
    assert (with_eos.end_ids, without.end_ids) == ([0], [])
    sentences = Encoded.of(without, ["a cat", "the mat"], n_threads=1)
    ended, plain = (sentences.pick(np.array([True, True]), side.end_ids) for side in (with_eos, without))
    assert plain.ids.tolist() == [i for ids in without.encode(["a cat", "the mat"]) for i in ids]
    assert ended.lengths.tolist() == [length + 1 for length in plain.lengths.tolist()]


def test_what_the_vocabulary_lacks_is_unknown() -> None:
    short = packed(pieces=[piece if piece != "▁cat" else "other" for piece in packed().pieces])
    assert short.encode("a cat")[1:] == [1]
    (ids,) = Tokenizer(packed().to_bytes()).encode(["☃"])
    assert 1 in ids


def test_bytes_are_read_back_as_they_were_written() -> None:
    tokenizer = packed(lowercase=True, normalizes=True)
    again = PackedTokenizer.from_bytes(tokenizer.to_bytes())
    assert again.to_bytes() == tokenizer.to_bytes()
    assert Tokenizer(tokenizer.to_bytes()).encode(["A  CAT"]) == Tokenizer(packed().to_bytes()).encode(["a cat"])


@each(
    "damage",
    [
        lambda content: content[:40],
        lambda content: content[:-100],
        lambda content: content.replace(b'"eos":0', b'"eos":9999'),
        lambda content: content.replace(b'"unk":1', b'"unk":"1"'),
        lambda content: content.replace(b'"segmenter":"sentencepiece"', b'"segmenter":"os.system"'),
    ],
)
def test_damaged_bytes_are_refused(damage: object) -> None:
    content = damage(packed().to_bytes())  # type: ignore[operator]
    with pytest.raises(CheckpointError, match="tokenizer"):
        Tokenizer(content)


def test_merges_are_made_in_the_order_of_the_codes() -> None:
    # By hand: "l o w e r</w>" → "lo w e r</w>" → "lo w er</w>" → "low er</w>".
    codes = "#version: 0.2\nl o\ne r</w>\nlo w\n"
    assert SubwordNmt(codes).segment("lower low") == ["low@@", "er", "lo@@", "w"]
    assert SubwordNmt.joined("low@@ er lo@@ w") == "lower low"


def test_codes_that_are_no_merges_are_refused() -> None:
    with pytest.raises(ValueError, match="line 1"):
        SubwordNmt("nothing")
    with pytest.raises(ValueError, match="no merges"):
        SubwordNmt("#version: 0.2\n")
