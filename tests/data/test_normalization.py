"""The letters of a text through training, encoding and decoding, and when two lines are the same sentence."""

import unicodedata
from functools import cache
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.each import each
from transformer_cli.addons.interop.text import compiled
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.data.extend_vocabulary import extended, new_pieces
from transformer_cli.data.normalization import Spelling, canonical, format_characters, normalize
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer, train_tokenizer
from transformer_cli.data.unknown import unknown_characters
from transformer_cli.decoding.terminology import Term, Terminology


@cache
def replaced() -> list[str]:
    """Every code point that NFC replaces, but for two that are white space."""
    return [
        c
        for c in map(chr, range(0x110000))
        if not "\ud800" <= c <= "\udfff" and unicodedata.normalize("NFC", c) != c and not c.isspace()
    ]


FILLER = [
    " ".join("abcdefghst"[(i * k) % 10] + "aeio"[(i + k) % 4] + "lmnr"[i % 4] for k in range(6)) for i in range(120)
]


@cache
def trained(*lines: str, vocab_size: int = 200, byte_fallback: bool = False, fold_case: bool = False) -> Tokenizer:
    """A vocabulary with every character of the lines, and text enough for some pieces."""
    config = TokenizerConfig(
        vocab_size=vocab_size, character_coverage=1.0, byte_fallback=byte_fallback, fold_case=fold_case
    )
    return train_tokenizer([*lines, *lines, *FILLER], config, seed=1)


def back(tokenizer: Tokenizer, line: str) -> str:
    return tokenizer.decode(tokenizer.encode([line])[0])


def test_no_code_point_that_nfc_replaces_is_lost() -> None:
    assert len(replaced()) == 1118
    lines = [f"a {c} b{c}c" for c in replaced()]
    tokenizer = trained(*lines, vocab_size=1300)
    for as_written in (True, False):
        ids = tokenizer.encode(lines, as_written=as_written)
        assert [tokenizer.decode(one) for one in ids] == lines


def test_bytes_hold_code_points_that_no_training_text_had() -> None:
    lines = [f"a {c} b" for c in replaced()]
    tokenizer = trained("a b c", vocab_size=400, byte_fallback=True)
    assert [tokenizer.decode(ids) for ids in tokenizer.encode(lines, as_written=True)] == lines


TYPED = {
    "Bengali with letters of one code point": "আমরা বড়\u200c ঢাকায় পড়ি".replace("ড়", "\u09dc").replace("য়", "\u09df"),
    "Hindi": "वह \u0958\u0932म और \u095b\u092eीन",
    "Greek with oxia": "\u03bb\u1f79\u03b3\u03bf\u03c2 \u03ba\u03b1\u1f77",
    "Hebrew with presentation forms": "\ufb2a\u05dc\ufb35\u05dd \ufb3a",
    "Hebrew with a point before the vowel": "שִׁ \u05d1\u05bc\u05b0\u05e8",
    "Arabic with shadda before its vowel": "\u0645\u062d\u0645\u0651\u064e\u062f",
    "Japanese names": "\ufa19\u8c37 \ufa11\u7530",
    "Vietnamese with marks apart": unicodedata.normalize("NFD", "tôi không biết nói tiếng Việt"),
    "Vietnamese with tones apart": "tôi hiê\u0309u tiê\u0301ng Viê\u0323t",
    "Korean in jamo": unicodedata.normalize("NFD", "한국어를 말해요"),
    "Persian with a joiner it needs": "می\u200cخواهم",
    "Khmer with its word divider": "ខ្ញុំ\u200bស្រឡាញ់",
    "emoji that are joined": "👩\u200d👩\u200d👧 🏴\U000e0067\U000e0062\U000e007f",
}


@pytest.mark.parametrize("text", TYPED.values(), ids=TYPED)
def test_a_text_comes_out_as_it_was_typed(text: str) -> None:
    assert back(trained(text), text) == text


@each(
    "known, form",
    [
        ("\u0986\u09ae\u09b0\u09be \u09aa\u09dc\u09bf", "NFC"),
        ("\u0958\u0932\u092e", "NFC"),
        ("\u03bb\u1f79\u03b3\u03bf\u03c2", "NFC"),
        ("\ufb2a\u05dc\ufb35\u05dd", "NFD"),
        ("\ufa19\u8c37", "NFC"),
        (unicodedata.normalize("NFD", "tiếng Việt"), "NFC"),
        ("tiê\u0301ng Viê\u0323t", "NFC"),
        ("tiê\u0301ng Viê\u0323t", "NFD"),
        ("tiếng Việt", "NFD"),
        (unicodedata.normalize("NFD", "한국어"), "NFC"),
        ("한국어", "NFD"),
    ],
)
def test_text_in_another_form_is_read_as_that_of_training(known: str, form: Literal["NFC", "NFD"]) -> None:
    other = unicodedata.normalize(form, known)
    assert other != known
    assert trained(known).encode([other]) == trained(known).encode([known])


def test_a_letter_is_spelled_as_most_of_the_text_spells_it() -> None:
    composed, apart = "café é", unicodedata.normalize("NFD", "café é")
    mostly_composed = trained(composed, composed, apart)
    mostly_apart = trained(composed, apart, apart)
    for tokenizer, expected in ((mostly_composed, composed), (mostly_apart, apart)):
        assert {back(tokenizer, line) for line in (composed, apart)} == {expected}


def test_a_letter_and_what_nfc_makes_of_it_stay_apart_where_the_text_has_both() -> None:
    names = "\ufa19\u8c37 \u795e\u8c37"
    assert back(trained(names, names), names) == names


def test_a_model_whose_training_text_was_composed_reads_text_as_before() -> None:
    """The vocabulary has none of the letters that NFC replaces."""
    lines = ("ড় a é", "ড় b Å", "가 c")
    lines = tuple(unicodedata.normalize("NFC", line) for line in lines)
    tokenizer = trained(*lines)
    for line in lines:
        for text in (line, unicodedata.normalize("NFD", line), line.replace("Å", "\u212b")):
            assert back(tokenizer, text) == line


def test_symbols_are_found_in_every_spelling_of_theirs() -> None:
    for symbol in ("<é>", "<e\u0301>"):
        config = TokenizerConfig(vocab_size=150, user_symbols=[symbol])
        tokenizer = train_tokenizer(["a <é> b café", "c a b é", *FILLER], config, seed=1)
        for text in ("a <é> b", "a <e\u0301> b"):
            assert "<é>" in tokenizer.pieces(tokenizer.encode([text])[0])


def test_new_pieces_keep_the_letters_of_the_new_text() -> None:
    old = trained("the cat sat on the mat", "a hat")
    text = [f"\u0958\u0932 \u095b{c}" for c in "abc"] * 4
    new = Tokenizer(extended(old.model_bytes, pieces=new_pieces(old.model_bytes, text, 8)))
    assert [back(new, line) for line in text] == text


ACCENTS = "e\u0301é\u0958\u0915\u093c\u212b’'-\u00ad\u200d"


@settings(deadline=None, max_examples=200)
@given(st.text(st.one_of(st.characters(), st.deferred(lambda: st.sampled_from([*ACCENTS, *replaced()])))))
def test_spelling_changes_no_letter_and_is_stable(text: str) -> None:
    spelling = Spelling("abc é\u0958\u212bÅ'\u0301e-")
    text = normalize(text)
    assert normalize(text) == text
    assert canonical(spelling(text)) == canonical(text)
    assert spelling(spelling(text)) == spelling(text)


def test_exported_vocabularies_hold_the_spelling() -> None:
    import sentencepiece

    from transformer_cli.addons.interop.text import normalising

    lines = ("ক\u09dc আ a\u0301b", "ক\u09dc b a\u0301", 'it\'s - "a"')
    tokenizer = trained(*lines)
    exported = sentencepiece.SentencePieceProcessor(model_proto=normalising(tokenizer))
    texts = [*lines, "কড\u09bc", "\u00e1b", "it’s – “a”", "i\u00adt\u2060's"]
    assert [exported.encode(text) for text in texts] == tokenizer.encode(texts)
    assert compiled(tokenizer.alphabet)


def test_exported_vocabularies_fold_case_as_the_model_does() -> None:
    import sentencepiece

    from transformer_cli.addons.interop.text import normalising

    lines = ("a great film in the bar", "its two halves 1 2 ガ élan", 'it\'s - "so"')
    tokenizer = trained(*lines, fold_case=True)
    exported = sentencepiece.SentencePieceProcessor(model_proto=normalising(tokenizer))
    texts = [
        *lines,
        "A GREAT Film",
        "½ ＡＢＣ ﬁlm",
        "ｶﾞ カ\u3099",
        "ÉLAN E\u0301lan",
        "İt’s  “SO”\u00a0¨ \u2167",
        "ẞ Ω\u00ad",
    ]
    assert [exported.encode(text) for text in texts] == tokenizer.encode(texts)
    assert exported.encode("A GREAT Film") == exported.encode("a great film")


# ---- Format characters


@each("sign", list("\u00ad\u200b\u200c\u200d\u200e\u200f\u202e\u2060\u2066\ufeff\U000e0041"))
def test_format_characters_change_no_token(sign: str) -> None:
    tokenizer = trained("the soup is hot", "soup the hot")
    text = f"{sign}the so{sign}up{sign} is {sign}hot{sign}"
    assert tokenizer.encode([text]) == tokenizer.encode(["the soup is hot"])
    assert len(format_characters(text)) == 5
    assert sign not in trained(text, "soup the hot").alphabet


# ---- Marks that a vocabulary lacks

READ = {
    "it’s": "it's",
    "“so” „so‟ «so»": '"so" "so" "so"',
    "so – so — so−so": "so - so - so-so",
    "so…": "so...",
    "ﬁsh ＡＢ": "fish AB",
    "a‑b": "a-b",
}


@each("typed, known", READ.items())
def test_a_mark_that_the_vocabulary_lacks_is_read_as_the_one_it_has(typed: str, known: str) -> None:
    lines = ('it\'s so "so" - so-so...', "fish AB ab")
    for has_bytes in (False, True):
        tokenizer = trained(*lines, vocab_size=450 if has_bytes else 150, byte_fallback=has_bytes)
        assert tokenizer.encode([typed]) == tokenizer.encode([known])


def test_a_mark_that_the_vocabulary_has_is_read_as_it_is() -> None:
    lines = ("it's so", "it’s so", '“so” "so"', "so… so...", "10² is 10 ½")
    tokenizer = trained(*lines)
    assert [back(tokenizer, line) for line in lines] == list(lines)


def test_a_typographic_vocabulary_reads_the_plain_marks() -> None:
    lines = ("it’s “so” – so…", "“so” it’s so – so…")
    tokenizer = trained(*lines)
    assert tokenizer.encode(['it\'s "so" - so']) == tokenizer.encode(["it’s ”so” – so"])


def test_a_sentence_is_read_without_quotation_marks_if_the_vocabulary_has_none_and_they_count_as_unknown() -> None:
    tokenizer = trained("the soup is hot.", vocab_size=400, byte_fallback=True)
    for text in ("“the soup is hot.”", '"the soup is hot."', "«the soup» is hot."):
        (ids,) = tokenizer.encode([text])
        assert [ids] == tokenizer.encode(["the soup is hot."])
        assert set(unknown_characters(text, ids, tokenizer)) == set(text) - set("the soup is hot.")
        assert tokenizer.decode(tokenizer.encode([text], as_written=True)[0]) == text


def test_numbers_are_not_read_as_others() -> None:
    tokenizer = trained("10 2 1 2 m a b", "m 2 10 12")
    for text, wrong in (("10²", "102"), ("3½", "31/2"), ("①", "1")):
        assert tokenizer.encode([text]) != tokenizer.encode([wrong])


# ---- Tags and terms


def test_tags_and_terms_are_found_in_every_form() -> None:
    apart = unicodedata.normalize("NFD", "<thème> un café à côté")
    assert split_tags(apart, ["<thème>", "<de>"]) == (["<thème>"], apart[len("<the\u0300me> ") :])
    for one in ("café", "cafe\u0301"):
        for other in ("un café noir", "un cafe\u0301 noir"):
            term = Term(one, ("ca\u0301f",), 1)
            assert Terminology([term], name="").find(other) == [term]
            assert Term("x", (one,), 1).places(other)
    assert Term("x", ("ca\u0301f",), 1).places("un cáf")
