"""SentencePiece models: reproducible bytes, text that survives the round trip, control ids that text cannot reach."""

import unicodedata
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.each import each
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import TokenizerConfig, TokenizerKind
from transformer_cli.data.normalization import canonical, normalize
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, suited_size, train_tokenizer
from transformer_cli.data.unknown import unknown_characters
from transformer_cli.errors import CheckpointError, ConfigError, DataError

TEXT = """the a cat dog milk chair drank sat down in on very comfortable was it she he Œuvre Straße café naïve
red black white horse bird table lamp book water wine sleeps eats under behind yesterday today never because"""
WORDS = TEXT.split()
CONTROL_TEXT = ["<s>", "</s>", "<pad>", "<unk>", "<2de>", "a </s> b", "<s></s>", "<0x0A>"]


def sentences(n: int = 400) -> Iterator[str]:
    for i in range(n):
        yield " ".join(WORDS[(i * k * k + k) % len(WORDS)] for k in range(3, 3 + i % 9)) + "."


SUBWORDS = [TokenizerKind.bpe, TokenizerKind.unigram]


def train(lines: list[str] | None = None, *, seed: int = 1, vocab_size: int = 70, **options: object) -> Tokenizer:
    config = TokenizerConfig(vocab_size=vocab_size, **options)  # type: ignore[arg-type]
    return train_tokenizer(list(sentences()) if lines is None else lines, config, seed=seed)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train()


@pytest.fixture(scope="module")
def byte_tokenizer() -> Tokenizer:
    return train(vocab_size=350, byte_fallback=True)


def test_every_character_coverage_that_the_config_allows_is_one_of_sentencepiece() -> None:
    train(character_coverage=0.98)
    with pytest.raises(ConfigError, match=r"^data\.tokenizer\.character_coverage=0\.979: out of range\. .* 0\.98 "):
        train(character_coverage=0.979)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_equal_input_gives_equal_bytes(kind: TokenizerKind) -> None:
    assert train(kind=kind).model_bytes == train(kind=kind).model_bytes


def test_a_vocabulary_of_words_has_the_most_frequent_ones_and_cuts_none() -> None:
    lines = ["Who saw the cat ?", "Who saw the dog ?", "Who is the King ?"]
    tokenizer = train(lines, kind=TokenizerKind.word, vocab_size=4 + 4, fold_case=True)
    assert sorted(tokenizer.pieces(range(4, 8))) == sorted(["▁who", "▁the", "▁?", "▁saw"])
    assert tokenizer.sha256 == train(lines, kind=TokenizerKind.word, vocab_size=4 + 4, fold_case=True).sha256
    (ids,) = tokenizer.encode(["WHO saw  the walrus ?"])
    assert [*tokenizer.pieces(ids)] == ["▁who", "▁saw", "▁the", "<unk>", "▁?"]
    assert tokenizer.decode(ids) == "who saw the⁇ ?"
    assert unknown_characters("the walrus", tokenizer.encode(["the walrus"])[0], tokenizer) == ()  # meant to be so
    assert tokenizer.has_words_only
    assert not any(train(kind=kind).has_words_only for kind in SUBWORDS)
    assert not TokenizerConfig(kind=TokenizerKind.word, vocab_size=2000).has_bytes


def test_words_have_neither_bytes_nor_subwords() -> None:
    with pytest.raises(ConfigError, match=r"byte_fallback=true: data\.tokenizer\.kind=word has <unk>"):
        TokenizerConfig(kind=TokenizerKind.word, byte_fallback=True)
    with pytest.raises(
        ConfigError, match=r"split_digits=true: data\.tokenizer\.kind=word cuts no words\. Leave it out"
    ):
        TokenizerConfig(kind=TokenizerKind.word, split_digits=True)
    with pytest.raises(ConfigError, match=r"user_symbols=\['<num>'\]: data\.tokenizer\.kind=word cuts no words"):
        TokenizerConfig(kind=TokenizerKind.word, user_symbols=["<num>"])
    with pytest.raises(ConfigError, match=r"subword_dropout=0\.1: data\.tokenizer\.kind=word has no subwords"):
        load_config("train", ["data=labels", "data.tokenizer.kind=word", "data.subword_dropout=0.1"])
    words = train(["who saw the cat ?"] * 3, kind=TokenizerKind.word, vocab_size=9)
    with pytest.raises(ConfigError, match=r"subword_dropout: the model's tokenizer has no subwords"):
        words.sample(words.encode(["who saw"]), [1], alpha=0.1)


def test_the_sample_depends_on_the_seed_alone() -> None:
    many = [*sentences(2000), *CONTROL_TEXT]
    first, again, other = (train(many, max_sentences=200, seed=seed) for seed in (1, 1, 2))
    assert first.sha256 == again.sha256
    assert first.sha256 != other.sha256


def test_a_model_loaded_from_its_bytes_is_the_same(tokenizer: Tokenizer) -> None:
    loaded = Tokenizer(tokenizer.model_bytes)
    assert loaded.sha256 == tokenizer.sha256
    assert len(loaded) == 70
    assert loaded.encode(WORDS) == tokenizer.encode(WORDS)


def test_the_four_special_ids_differ_and_no_text_reaches_them(tokenizer: Tokenizer) -> None:
    special = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id}
    assert len(special) == 4
    assert all(special.isdisjoint(ids) for ids in tokenizer.encode(list(sentences())))


def test_joint_means_one_model_for_both_sides(tokenizer: Tokenizer, byte_tokenizer: Tokenizer) -> None:
    assert Tokenizers(tokenizer, Tokenizer(tokenizer.model_bytes)).joint
    assert not Tokenizers(tokenizer, byte_tokenizer).joint


def test_training_says_nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    train()
    with pytest.raises(ConfigError):
        train(vocab_size=5000)
    assert capfd.readouterr() == ("", "")


# ---- Text


def test_seen_text_comes_back_as_it_was(tokenizer: Tokenizer) -> None:
    lines = list(sentences())
    assert [tokenizer.decode(ids) for ids in tokenizer.encode(lines)] == lines


@settings(deadline=None, max_examples=300)
@given(text=st.text(st.characters(exclude_characters="\u2581")))
def test_with_byte_fallback_any_text_comes_back_normalized(byte_tokenizer: Tokenizer, text: str) -> None:
    back = byte_tokenizer.decode(byte_tokenizer.encode([text], as_written=True)[0])
    assert canonical(back) == canonical(text)
    if unicodedata.is_normalized("NFC", text):
        assert back == normalize(text)


@settings(deadline=None, max_examples=300)
@given(text=st.text(st.one_of(st.characters(), st.sampled_from("\u2581⁇ \n abcdet"))))
@example(text="⁇ \u2581⁇")
@example(text="a\u2581 \u2581 b\u2581")
@example(text="a \u00ad b")
def test_encoding_is_stable_after_one_pass(tokenizer: Tokenizer, byte_tokenizer: Tokenizer, text: str) -> None:
    for one in (tokenizer, byte_tokenizer, imported(tokenizer)):
        once = one.decode(one.encode([text])[0])
        assert one.decode(one.encode([once])[0]) == once


@cache
def imported(tokenizer: Tokenizer) -> Tokenizer:
    """The same pieces as those of a model that another program has trained, which normalises text by itself."""
    special = {name: getattr(tokenizer, f"{name}_id") for name in ("pad", "unk", "bos", "eos")}
    pieces = tokenizer.pieces(range(len(tokenizer)))
    packed = PackedTokenizer(Segmenter.sentencepiece, pieces, **special, model=tokenizer.model_bytes)
    return Tokenizer(packed.to_bytes())


@given(st.lists(st.text(max_size=20), min_size=17, max_size=40))
@settings(max_examples=30, deadline=None)
def test_a_line_has_the_same_ids_alone_and_among_many(byte_tokenizer: Tokenizer, lines: list[str]) -> None:
    assert byte_tokenizer.encode(lines) == [byte_tokenizer.encode([line])[0] for line in lines]


@each("text", ["10 m²", "½ cup …", "ＡＢＣ！", "™ № ﬁ", "می‌خواهم", "👩‍👩‍👧", "“quoted” – dash"])
def test_characters_are_not_folded_into_others(text: str) -> None:
    tokenizer = train([*sentences(), text, text], vocab_size=150)
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


def test_folded_case_reads_capitals_as_small_letters_and_keeps_the_rule_in_its_bytes() -> None:
    folded = Tokenizer(
        train(["Wer hat den Élan?", "wer WEISS, wo ½ davon ist"] * 9, vocab_size=60, fold_case=True).model_bytes
    )
    assert folded.encode(["WER HAT DEN ÉLAN?"]) == folded.encode(["wer hat den élan?"])
    assert folded.decode(folded.encode(["Wer WEISS"])[0]) == "wer weiss"
    plain = train(["Wer hat den Élan?", "wer WEISS, wo ½ davon ist"] * 9, vocab_size=60)
    assert plain.encode(["Wer"]) != plain.encode(["wer"])


def test_composed_and_separate_accents_are_the_same_text(tokenizer: Tokenizer) -> None:
    composed, separate = tokenizer.encode(["café naïve", unicodedata.normalize("NFD", "café naïve")])
    assert composed == separate


def many_words() -> list[str]:
    """Text that fills a vocabulary of more than a thousand pieces."""
    words = ["".join("bcdfghjkl"[i // 9**k % 9] + "aeiou"[i // 5**k % 5] for k in range(3)) for i in range(729)]
    return [" ".join(words[(i * k + k) % len(words)] for k in range(3, 11)) for i in range(1000)]


@pytest.mark.parametrize("kind", SUBWORDS)
def test_a_new_vocabulary_spells_what_it_does_not_have_in_bytes(kind: TokenizerKind) -> None:
    tokenizer = train(many_words(), kind=kind, vocab_size=1000)
    (ids,) = tokenizer.encode(["baceda 東京 😀"])
    assert tokenizer.unk_id not in ids
    assert tokenizer.decode(ids) == "baceda 東京 😀"


@pytest.mark.parametrize("options", [{"vocab_size": 999}, {"vocab_size": 1000, "byte_fallback": False}])
def test_a_small_vocabulary_keeps_its_pieces_for_the_text_and_so_does_one_that_is_asked_to(
    options: dict[str, int],
) -> None:
    tokenizer = train(many_words(), **options)
    assert tokenizer.unk_id in tokenizer.encode(["東京"])[0]
    assert "<0x41>" not in tokenizer.pieces(range(len(tokenizer)))


@each("text", ["", " ", "\t", "\u00a0", "\u3000", "\u2028\u2029", "\x85\x0b\x0c\x1c", " \u2003 \t"])
def test_D2_white_space_has_no_ids(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.encode([text]) == [[]]


@each("space", ["\t", "\u00a0", "\u2028", "\x85", "  ", "\r", "\x0b"])
def test_every_space_is_a_plain_space(tokenizer: Tokenizer, space: str) -> None:
    assert tokenizer.encode([f" the{space}cat "]) == tokenizer.encode(["the cat"])


def test_C7_nul_and_lone_surrogates_are_text(byte_tokenizer: Tokenizer) -> None:
    nul, surrogate = byte_tokenizer.encode(["a\0b", "a\udcffb"])
    assert byte_tokenizer.decode(nul) == "a\0b"
    assert byte_tokenizer.decode(surrogate) == "a\ufffdb"


def test_C11_a_line_of_a_million_characters_is_trained_on_and_encoded() -> None:
    line = "the cat sat " * 90_000 + "Ж"
    tokenizer = train([*sentences(), line])
    assert tokenizer.decode(tokenizer.encode([line])[0]) == line


@each("text", ["😀 👍🏽", "שלום עולם", "مرحبا", "x\u0301\u0323", "日本語の文"])
def test_C13_any_script_that_was_trained_on_comes_back(text: str) -> None:
    tokenizer = train([*sentences(), text], vocab_size=120)
    assert tokenizer.decode(tokenizer.encode([text])[0]) == text


def test_C13_unknown_characters_are_marked(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(["the Ж"])[0]
    assert tokenizer.unk_id in ids
    assert tokenizer.decode(ids) == "the ⁇"


@each("kind", SUBWORDS)
@each("text", CONTROL_TEXT)
def test_C14_literal_control_tokens_are_plain_text(kind: TokenizerKind, text: str) -> None:
    tokenizer = train([*sentences(), *CONTROL_TEXT * 5], kind=kind)
    ids = tokenizer.encode([text])[0]
    assert {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id}.isdisjoint(ids)
    assert tokenizer.decode(ids) == text


def test_C14_a_written_byte_token_is_plain_text(byte_tokenizer: Tokenizer) -> None:
    assert byte_tokenizer.decode(byte_tokenizer.encode(["a<0x41>b"])[0]) == "a<0x41>b"


def test_D3_line_ends_from_byte_fallback_become_spaces(byte_tokenizer: Tokenizer) -> None:
    pieces = byte_tokenizer.pieces(range(len(byte_tokenizer)))
    for character in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029":
        between = [f"<0x{byte:02X}>" for byte in character.encode()]
        assert byte_tokenizer.decode([pieces.index(piece) for piece in ["a", *between, "b"]]) == "a b"


def test_D3_control_ids_leave_no_trace(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(["the cat"])[0]
    around = [tokenizer.bos_id, *ids, tokenizer.eos_id, tokenizer.pad_id, tokenizer.pad_id]
    assert tokenizer.decode(around) == "the cat"


# ---- Mistakes


@each("kind", SUBWORDS)
@each("byte_fallback", [False, True])
def test_C19_a_vocabulary_too_big_names_the_largest_possible(kind: TokenizerKind, byte_fallback: bool) -> None:
    lines = list(sentences(40))
    with pytest.raises(ConfigError) as caught:
        train(lines, kind=kind, byte_fallback=byte_fallback, vocab_size=20_000)
    start, _, rest = str(caught.value).partition("possible is ")
    largest = int(rest.partition(",")[0])
    assert start == "data.tokenizer.vocab_size=20000: more pieces than the training text has; the largest "
    assert rest.endswith(" Set data.tokenizer.vocab_size=auto")
    assert len(train(lines, kind=kind, byte_fallback=byte_fallback, vocab_size=largest)) == largest
    with pytest.raises(ConfigError, match=f"largest possible is {largest}"):
        train(lines, kind=kind, byte_fallback=byte_fallback, vocab_size=largest + 1)


# 100 lines of 100 characters, of which 27 are different; the four control tokens are pieces, too.
ALPHABET = ["abcdefghij klmnopqrst uvwxyz " + "the cat sat on the mat " * 3 + "ab"] * 100


@each(
    "share, pieces",
    [
        (1.0, 27 + 4 + 500),  # 10,000 characters: 5 times 100
        (0.25, 27 + 4 + 1000),
        (1 / 400, 27 + 4 + 10_000),  # 4 million: 5 times 2,000
        (1 / 9000, 27 + 4 + 10_000),  # 90 million: 5 times 9,487 are more
        (1 / 40_000, 27 + 4 + 20_000),  # 400 million: the root alone
        (1e-9, 27 + 4 + 32_000),
    ],
)
def test_auto_goes_by_the_root_of_the_characters_of_the_text(share: float, pieces: int) -> None:
    assert sum(map(len, ALPHABET)) == 10_000
    assert suited_size(ALPHABET, TokenizerConfig(), share=share) == pieces


def test_each_character_and_symbol_is_a_piece_of_its_own_beside_those_of_auto() -> None:
    kanji = "".join(map(chr, range(0x4E00, 0x4E00 + 2000)))
    text = [kanji, "ab" * 500] * 3
    assert suited_size(text, TokenizerConfig()) == 2002 + 4 + 500  # 9,000 characters: 474, to the next hundred
    asked = TokenizerConfig(user_symbols=["<num>"], character_coverage=0.98)
    assert suited_size(text, asked, ["<2de>"]) == 2002 - 60 + 4 + 2 + 500  # 2 % of the 9,000: 60 thrice


@each("kind", [*SUBWORDS, TokenizerKind.word])
@each("multiple_of", [1, 8])
def test_auto_is_never_refused_for_text_that_has_a_vocabulary(kind: TokenizerKind, multiple_of: int) -> None:
    few_words = ["go up or go down the hill and sing a song there"]
    for lines in (few_words * 500, list(sentences(500)), list(sentences(20))):
        config = TokenizerConfig(kind=kind, multiple_of=multiple_of)
        tokenizer = train_tokenizer(lines, config, seed=1)
        assert len(tokenizer) % multiple_of == 0
        assert len(tokenizer) < suited_size(lines, config) + multiple_of
        assert tokenizer.sha256 == train_tokenizer(lines, config, seed=1).sha256


@each("kind", [*SUBWORDS, TokenizerKind.word])
@each("vocab_size", [8, 5000])
def test_a_text_of_one_word_is_too_little_for_any_vocabulary(kind: TokenizerKind, vocab_size: int) -> None:
    # <pad>, <unk>, <s>, </s>, and ▁a; a model of subwords has ▁ or a besides, at least.
    with pytest.raises(
        DataError, match=r"^data\.train: too little text to train a tokenizer on, [567] pieces; .* 8 or more\. Add text"
    ):
        train(["a"], kind=kind, vocab_size=vocab_size)


def test_the_largest_possible_is_a_multiple_where_one_is_asked_for() -> None:
    lines = ["hello world"] * 3
    with pytest.raises(ConfigError, match=r"^data\.tokenizer\.multiple_of=64: more than the \d+ pieces of the"):
        train(lines, multiple_of=64)
    with pytest.raises(ConfigError, match=r"vocab_size=70: more pieces .* the largest possible is (\d+)") as caught:
        train(lines, multiple_of=5)
    largest = int(str(caught.value).partition("possible is ")[2].partition(",")[0])
    assert len(train(lines, vocab_size=largest, multiple_of=5)) == largest


def test_a_vocabulary_too_small_names_the_smallest_possible() -> None:
    with pytest.raises(
        ConfigError, match=r"^data.tokenizer.vocab_size=8: too small .* smallest possible is (\d+)\."
    ) as e:
        train(vocab_size=8)
    smallest = int(str(e.value).split("smallest possible is ")[1].split(".")[0])
    assert len(train(vocab_size=smallest)) == smallest


@each("lines", [[], [""], [" ", "\t"], ["\0", "\u2581", "\u2585"]])
def test_no_text_to_train_on_is_a_data_error(lines: list[str]) -> None:
    with pytest.raises(DataError, match="no text to train a tokenizer on"):
        train(lines)


@each("junk", [b"", b"junk", b"\x80\x04K\x01.", b"PK\x03\x04"])
def test_foreign_bytes_are_no_tokenizer(junk: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"^tokenizer: "):
        Tokenizer(junk)


def test_F10_a_piece_that_is_no_text_is_refused(tokenizer: Tokenizer) -> None:
    forged = tokenizer.model_bytes.replace("\u2581t".encode(), b"\xe2\x96\xfft", 1)
    assert forged != tokenizer.model_bytes
    with pytest.raises(CheckpointError, match="tokenizer: not a SentencePiece model"):
        Tokenizer(forged)


def test_F10_an_unknown_word_that_is_written_as_no_text_is_refused(tokenizer: Tokenizer) -> None:
    forged = Tokenizer(tokenizer.model_bytes.replace("\u2047".encode(), b"\xff\xfe\xfd", 1))
    with pytest.raises(CheckpointError, match="writes what is no text"):
        forged.decode([forged.unk_id])
