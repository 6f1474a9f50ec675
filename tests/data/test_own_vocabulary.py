"""`data.tokenizer`: SentencePiece models that the user has, and what a trained vocabulary can be asked for."""

import io
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from tests.data.test_prepare import SOURCES, TARGETS, config, ids_of, prepared_folders, texts, write
from tests.support.contract import run
from tests.support.each import each
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.data.own_vocabulary import own_tokenizers
from transformer_cli.data.prepare import prepare
from transformer_cli.data.tokenizer import Tokenizer, train_tokenizer
from transformer_cli.errors import ConfigError, DataError, TfmError

__all__ = ["config"]  # a fixture

TEXT = [*SOURCES, *TARGETS]
LINES = [*TEXT, "ﬁ ½ the Café", "☃☃ the", "  two   spaces ", "<s> the </s> <pad>", "the\tlamp", ""]
# Ids of <pad>, <unk>, <s> and </s> in models that other programs train; -1: none.
LAYOUTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "sentencepiece": ({}, ["<pad>"]),  # its defaults: <unk> 0, <s> 1, </s> 2
    "marian": ({"bos_id": -1, "eos_id": 0, "unk_id": 1}, ["<pad>", "<s>"]),
    "t5": ({"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "model_type": "unigram"}, ["<s>"]),
    "fairseq": ({"bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3}, []),
    "none": ({"bos_id": -1, "eos_id": -1}, ["<pad>", "<s>", "</s>"]),
}


def spm(**options: Any) -> bytes:
    model = io.BytesIO()
    usual = {"vocab_size": 60, "model_type": "bpe", "minloglevel": 3, "hard_vocab_limit": False}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=model, **{**usual, **options})
    return model.getvalue()


def with_model(config: DataConfig, content: bytes, name: str = "own.model", **options: Any) -> DataConfig:
    file = Path(str(config.root)) / name
    file.write_bytes(content)
    return replace(config, tokenizer=TokenizerConfig(model=str(file), **options))


def source_of(config: DataConfig) -> Tokenizer:
    tokenizers = own_tokenizers(config)
    assert tokenizers is not None
    assert tokenizers.joint
    return tokenizers.source


# ---- A model that is given


@pytest.mark.parametrize("layout", LAYOUTS)
def test_text_is_encoded_as_sentencepiece_does_it(
    config: DataConfig, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    options, appended = LAYOUTS[layout]
    content = spm(**options)
    with caplog.at_level(logging.INFO):
        ours = source_of(with_model(config, content))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=content)
    assert ours.encode(LINES) == theirs.encode(LINES)
    assert ours.pieces(range(len(theirs))) == [theirs.id_to_piece(i) for i in range(len(theirs))]
    assert ours.pieces(range(len(theirs), len(ours))) == appended
    assert caplog.messages[-1].endswith(f"; appended: {', '.join(appended)}" if appended else f"{len(theirs)} pieces")
    known = [ids for ids in theirs.encode(LINES) if theirs.unk_id() not in ids]
    assert [ours.decode(ids) for ids in known] == [theirs.decode(ids) for ids in known]
    special = [theirs.pad_id(), theirs.unk_id(), theirs.bos_id(), theirs.eos_id()]
    found = [ours.pad_id, ours.unk_id, ours.bos_id, ours.eos_id]
    assert [one for one, own in zip(found, special, strict=True) if own >= 0] == [own for own in special if own >= 0]
    assert len(set(found)) == 4


def test_a_corpus_is_encoded_with_it(config: DataConfig) -> None:
    content = spm(bos_id=-1, eos_id=0, unk_id=1)
    prepared = prepare(with_model(config, content))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=content)
    sources, targets = ids_of(prepared.train)
    assert sources == [[*ids, 0] for ids in theirs.encode(SOURCES)]
    assert targets == [[*ids, 0] for ids in theirs.encode(TARGETS)]


def test_a_control_token_that_is_a_symbol_of_the_model_is_that_one(config: DataConfig) -> None:
    content = spm(user_defined_symbols=["<pad>"])
    theirs = sentencepiece.SentencePieceProcessor(model_proto=content)
    ours = source_of(with_model(config, content))
    assert ours.pad_id == theirs.piece_to_id("<pad>") < len(theirs) == len(ours)


def test_tags_that_the_model_has_keep_their_ids_and_others_are_appended(config: DataConfig) -> None:
    content = spm(user_defined_symbols=["<2fr>"], control_symbols=["<bt>"], pad_id=3)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=content)
    tagged = replace(with_model(config, content), tags=["<2fr> <bt> <new>"], dev_tags=["<2fr>"], test_tags=["<2fr>"])
    ours = source_of(tagged)
    ids, (plain,) = ours.encode(["<2fr> <bt> <new> the cat", "<new>the cat"]), theirs.encode(["the cat"])
    assert ids[0] == [theirs.piece_to_id("<2fr>"), theirs.piece_to_id("<bt>"), len(theirs), *plain]
    assert ids[1] == [len(theirs), *plain]
    assert texts(prepare(tagged))[0] == (f"<2fr> <bt> <new> {SOURCES[0]}", TARGETS[0])


def test_a_model_of_ours_is_used_as_when_it_was_trained(config: DataConfig) -> None:
    trained = train_tokenizer(TEXT, TokenizerConfig(vocab_size=60), seed=1)
    assert source_of(with_model(config, trained.model_bytes)).sha256 == trained.sha256
    rounded = source_of(with_model(config, trained.model_bytes, multiple_of=64))
    lines = ["cafe\u0301  the", "½ the\u00a0lamp"]  # which are normalised before
    assert rounded.encode(lines) == trained.encode(lines)
    assert len(rounded) == 64


def test_two_models_are_those_of_source_and_target(config: DataConfig) -> None:
    folder = Path(str(config.root))
    (folder / "a.model").write_bytes(source := spm(vocab_size=50))
    (folder / "b.model").write_bytes(target := spm(vocab_size=55, **LAYOUTS["marian"][0]))
    two = TokenizerConfig(model=[str(folder / "a.model"), str(folder / "b.model")], joint=False)
    prepared = prepare(replace(config, tokenizer=two, tags=["<bt>"], dev_tags=[""], test_tags=[""]))
    sources, targets = ids_of(prepared.train)
    sides = [sentencepiece.SentencePieceProcessor(model_proto=content) for content in (source, target)]
    assert [ids[1:-1] for ids in sources] == sides[0].encode(SOURCES)
    assert [ids[:-1] for ids in targets] == sides[1].encode(TARGETS)
    assert prepared.tokenizers.source.tags == ("<bt>",)
    assert "<bt>" not in prepared.tokenizers.target.pieces(range(len(prepared.tokenizers.target)))


def test_another_model_is_another_cache(config: DataConfig) -> None:
    own = with_model(config, spm())
    first = prepare(own).fingerprint
    assert prepare(replace(own, tokenizer=replace(own.tokenizer, vocab_size=77))).fingerprint == first  # not used
    moved = with_model(config, spm(), name="moved.model")
    assert prepare(moved).fingerprint == first
    assert len(prepared_folders(config)) == 1
    with_model(config, spm(vocab_size=55))
    assert prepare(own).fingerprint != first
    prepare(config)
    assert len(prepared_folders(config)) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "own.model: is empty. Name a SentencePiece model"),
        (b"no model at all\n", "own.model: not a SentencePiece model"),
        (b"\x00" * 500, "own.model: not a SentencePiece model"),
        (None, "own.model: no such file"),
    ],
)
def test_what_is_no_model_is_refused(config: DataConfig, content: bytes | None, message: str) -> None:
    own = with_model(config, content or b"")
    if content is None:
        Path(str(own.tokenizer.model)).unlink()
    with pytest.raises(DataError) as refused:
        prepare(own)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_model_whose_end_is_its_padding_is_refused(config: DataConfig) -> None:
    with pytest.raises(
        DataError, match=r"own\.model: cannot be used \(EOS has the id of the padding.*\)\. Train another"
    ):
        own_tokenizers(with_model(config, spm(eos_piece="<pad>")))


def test_a_folder_is_no_model(config: DataConfig) -> None:
    with pytest.raises(DataError, match=r"a folder\. Name the SentencePiece model in it"):
        prepare(replace(config, tokenizer=TokenizerConfig(model=str(config.root))))


@pytest.mark.parametrize("damage", [lambda content: content[:-9], lambda content: content[:300]])
def test_a_damaged_model_is_refused_or_read_as_sentencepiece_reads_it(config: DataConfig, damage: Any) -> None:
    content = damage(spm())
    try:
        theirs = sentencepiece.SentencePieceProcessor(model_proto=content)
    except RuntimeError:
        with pytest.raises(DataError, match="not a SentencePiece model"):
            own_tokenizers(with_model(config, content))
    else:
        assert source_of(with_model(config, content)).encode(LINES) == theirs.encode(LINES)


@each(
    "options, message",
    [
        ({"model": "a", "joint": False}, "do not fit. Name two models"),
        ({"model": ["a", "b"]}, "do not fit. Add data.tokenizer.joint=false"),
        ({"model": ["a", "b", "c"], "joint": False}, "must be a file, or two"),
        ({"model": 7}, "must be a file, or two"),
        ({"model": ""}, "must be a file, or two"),
        ({"model": "a", "fold_case": True}, "data.tokenizer.fold_case=true: data.tokenizer.model=a is used as it is"),
        ({"model": "a", "split_digits": True}, "data.tokenizer.split_digits=true: data.tokenizer.model=a"),
        ({"model": "a", "user_symbols": ["<num>"]}, "data.tokenizer.user_symbols=['<num>']: data.tokenizer.model=a"),
        ({"user_symbols": ["a b"]}, "'a b' is empty or has white space in it"),
        ({"user_symbols": ["</s>"]}, "</s> is a control token"),
        ({"user_symbols": [""]}, "'' is empty or has white space in it"),
        ({"user_symbols": ["<a>", "\0"]}, r"'\x00' has a control character"),
        ({"user_symbols": ["a\ud800"]}, r"'a\ud800' has a control character"),
        ({"multiple_of": 0}, "data.tokenizer.multiple_of=0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TokenizerConfig(**options)
    assert message in str(refused.value)


def test_a_model_to_begin_with_has_its_own_vocabulary(config: DataConfig) -> None:
    own = with_model(config, spm())
    with pytest.raises(ConfigError, match="the vocabulary is that of the model that training begins with"):
        prepare(own, tokenizers=own_tokenizers(own))
    with pytest.raises(ConfigError, match=r"the model's vocabulary has no tag <bt> \(tags: none\)"):
        prepare(replace(config, tags=["<bt>"], dev_tags=[""], test_tags=[""]), tokenizers=own_tokenizers(own))


def test_training_and_translating_with_ones_own_model(config: DataConfig) -> None:
    folder = Path(str(config.root))
    (folder / "own.model").write_bytes(spm(**LAYOUTS["marian"][0]))
    ran = run(
        [
            *("train", "data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=train"),
            *("data.dev=dev", "data.test=test", "data.tokenizer.model=own.model", "data.tokenizer.multiple_of=8"),
            *("model=tiny", "model.d_model=16", "model.d_ff=16", "model.n_heads=2", "train.max_steps=2", "name=own"),
            *("train.eval_every=2", "data.subword_dropout=0.1", "decode.max_length=4", "--device", "cpu"),
        ],
        folder,
    )
    assert ran.code == 0, ran.err
    assert b"data.tokenizer.model: own.model, 64 pieces; appended: <pad>, <s>" in ran.err
    (folder / "own.model").unlink()  # the model file has it
    translated = run(["translate", "the cat saw the lamp .", "--device", "cpu", "decode.max_length=4"], folder)
    assert (translated.code, translated.out.count(b"\n")) == (0, 1)


# ---- A vocabulary that is trained


def test_symbols_are_never_cut() -> None:
    lines = [line.replace("lamp", "<num>") for line in TEXT]
    asked = TokenizerConfig(vocab_size=70, user_symbols=["<num>", "livre"])
    tokenizer = train_tokenizer(lines, asked, seed=1)
    for line in ("the <num> .", "x<num>y", "un livre rouge", "livres"):
        (ids,) = tokenizer.encode([line])
        assert {"<num>", "livre"} & set(tokenizer.pieces(ids))
        assert tokenizer.decode(ids) == line or tokenizer.unk_id in ids
    assert tokenizer.tags == ()  # they are text


def test_a_symbol_that_is_named_twice_is_one_piece() -> None:
    lines = [line.replace("lamp", "<num>") for line in TEXT]
    once, twice = (
        train_tokenizer(lines, TokenizerConfig(vocab_size=70, user_symbols=symbols), seed=1)
        for symbols in (["<num>", "<url>"], ["<num>", "<url>", "<num>"])
    )
    assert twice.pieces(range(70)).count("<num>") == 1
    assert twice.sha256 == once.sha256


def test_digits_stand_alone() -> None:
    lines = ["year 2026 and 1999", "2026 1999 2026"] * 10
    pieces = {
        split: train_tokenizer(lines, TokenizerConfig(vocab_size=28, split_digits=split), seed=1)
        for split in (False, True)
    }
    assert max(sum(map(str.isdigit, piece)) for piece in pieces[True].pieces(range(len(pieces[True])))) == 1
    assert max(sum(map(str.isdigit, piece)) for piece in pieces[False].pieces(range(len(pieces[False])))) > 1


@pytest.mark.parametrize(("vocab_size", "multiple_of", "size"), [(57, 8, 64), (64, 8, 64), (57, 1, 57)])
def test_a_size_is_rounded_up(vocab_size: int, multiple_of: int, size: int) -> None:
    asked = TokenizerConfig(vocab_size=vocab_size, multiple_of=multiple_of)
    tokenizer = train_tokenizer(TEXT, asked, seed=1)
    assert len(tokenizer) == asked.size == size
    assert tokenizer.sha256 == train_tokenizer(TEXT, TokenizerConfig(vocab_size=size), seed=1).sha256


def test_what_a_vocabulary_is_asked_for_is_in_the_key_of_the_cache(config: DataConfig) -> None:
    prepare(config)
    prepare(replace(config, tokenizer=replace(config.tokenizer, multiple_of=10)))  # of which it is one
    assert len(prepared_folders(config)) == 1
    prepare(replace(config, tokenizer=replace(config.tokenizer, user_symbols=["milk"])))
    prepare(replace(config, tokenizer=replace(config.tokenizer, split_digits=True)))
    assert len(prepared_folders(config)) == 3


def test_a_size_that_the_text_does_not_have_names_the_one_that_it_has(config: DataConfig) -> None:
    write(Path(str(config.root)), "train.en", SOURCES)
    with pytest.raises(TfmError, match=r"data.tokenizer.vocab_size=9001: more pieces than the training text has"):
        prepare(replace(config, tokenizer=TokenizerConfig(vocab_size=9001, multiple_of=8)))
