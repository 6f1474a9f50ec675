"""Terminologies: what is found in a line, what meets it, and files that are wrong."""

from pathlib import Path

import pytest

from tests.support.each import each
from tests.toy.run import LETTERS, tokenizers
from transformer_cli.config.decode import TermForms
from transformer_cli.decoding.terminology import Term, Terminology, are_forms, read_terms
from transformer_cli.decoding.torch_engine import continuing_tokens
from transformer_cli.errors import DataError


def terminology(*sources: str) -> Terminology:
    return Terminology([Term(source, ("x",), n) for n, source in enumerate(sources, start=1)], name="terms")


def found(text: str, *sources: str) -> list[str]:
    return [term.source for term in terminology(*sources).find(text)]


@each(
    "text, sources, expected",
    [
        ("the dog sleeps", ["dog"], ["dog"]),
        ("the dogs sleep", ["dog"], []),
        ("a hot-dog, please", ["dog"], ["dog"]),
        ("hot dog and dog", ["dog", "hot dog"], ["hot dog", "dog"]),
        ("a hot  dog", ["hot dog", "hot", "dog"], ["hot dog"]),
        ("dog dog", ["dog"], ["dog"]),
        ("DOG Dog", ["dog"], ["dog"]),
        ("us and them", ["US"], []),
        ("the US", ["US", "us"], ["US"]),
        ("犬が好き", ["犬"], ["犬"]),
        ("cafe\u0301 noir", ["café"], ["café"]),
        ("हिन्दी भाषा", ["हिन्"], []),
        ("anything", [], []),
        ("", ["dog"], []),
    ],
)
def test_a_phrase_is_found_as_whole_words_and_the_longest_first(
    text: str, sources: list[str], expected: list[str]
) -> None:
    assert found(text, *sources) == expected


@each(
    "text, phrase, expected",
    [
        ("der Hund schläft", "Hund", True),
        ("des Hundes", "Hund", True),
        ("der Schäferhund", "Hund", False),
        ("der hund", "Hund", False),
        ("der alte Hunde-Zwinger", "alte Hund", True),
        ("der alte  Mann", "alte Hund", False),
        ("Hund", "alter Hund", False),
        ("", "Hund", False),
    ],
)
def test_a_term_is_met_from_the_beginning_of_a_word(text: str, phrase: str, expected: bool) -> None:
    assert bool(Term("dog", (phrase,), 1).places(text)) is expected


@each(
    "one, other, expected",
    [
        ("kniha", "knihu", True),
        ("kniha", "knih", True),
        ("dormir", "dort", False),  # three letters
        ("paresseux", "paresseuse", True),
        ("Hund", "Hunde", True),
        ("Hund", "Hundehütte", False),
        ("cher", "chère", False),
        ("книга", "книгами", True),  # 71 %
        ("слово", "словами", False),  # 57 %
        ("переводчик", "переводчиков", True),
        ("a", "a", True),
        ("ab", "ac", False),
        ("", "", True),
    ],
)
def test_forms_of_a_word_have_a_stem_and_short_endings(one: str, other: str, expected: bool) -> None:
    assert are_forms(one, other) is are_forms(other, one) is expected


@each(
    "text, phrase, forms, expected",
    [
        ("mit der roten Katze", "rote Katze", "ending", []),
        ("mit der roten Katze", "rote Katze", "inflected", ["roten Katze"]),
        ("do zelené knihy", "zelená kniha", "inflected", ["zelené knihy"]),
        ("der Hundehütte", "Hund", "inflected", ["Hundehütte"]),  # as an ending
        ("mit Acme Clouds", "dog", "inflected", []),
    ],
)
def test_inflected_words_satisfy_a_term_if_asked(text: str, phrase: str, forms: str, expected: list[str]) -> None:
    term = Term("dog", (phrase,), 1)
    assert [text[slice(*span)] for span in term.places(text, TermForms(forms))] == expected
    kept = Term(phrase, (phrase,), 1)
    assert kept.places(text, TermForms(forms)) == [], "what is to be kept has one form"


@each(
    "text, phrase, expected",
    [
        ("mit Acme Cloud", "Acme Cloud", True),
        ("mit Acme Clouds", "Acme Cloud", False),
        ("die Acme-Cloud", "Acme", True),
        ("mit acme", "Acme", False),
        ("u\u0308ber", "\u00fcber", True),
    ],
)
def test_a_term_that_is_kept_as_it_is_has_no_ending(text: str, phrase: str, expected: bool) -> None:
    assert bool(Term(phrase, (phrase,), 1).places(text)) is expected
    assert bool(Term(phrase, ("x", phrase), 1).places(text)) is expected, "also as one translation of several"


def test_a_file_may_name_several_translations(tmp_path: Path) -> None:
    file = tmp_path / "terms.tsv"
    file.write_bytes(b"\xef\xbb\xbfdog\tHund\r\n\r\n hot  dog \tHotdog\ndog\tK\xc3\xb6ter\ndog\tHund\n")
    assert read_terms(file).terms == [Term("dog", ("Hund", "Köter"), 1), Term("hot dog", ("Hotdog",), 3)]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"dog Hund", "terms.tsv:2: 0 tabs in 'dog Hund'"),
        (b"dog\tHund\tnoun", "terms.tsv:2: 2 tabs in"),
        (b"\tHund", "terms.tsv:2: no source phrase in"),
        (b"dog\t ", "terms.tsv:2: no target phrase in"),
        (b"dog\t\xff", "terms.tsv:2: "),
    ],
)
def test_a_line_that_is_no_term_is_named(tmp_path: Path, line: bytes, says: str) -> None:
    file = tmp_path / "terms.tsv"
    file.write_bytes(b"a\tb\n" + line + b"\n")
    with pytest.raises(DataError) as refused:
        read_terms(file)
    assert says in str(refused.value)


def test_many_terms_are_found_as_fast_as_few() -> None:
    many = terminology(*(f"word{n} next{n}" for n in range(100_000)))
    assert [term.source for term in many.find("so word5 next5 and word6 next7")] == ["word5 next5"]


def test_an_empty_file_holds_no_terms(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").touch()
    assert read_terms(tmp_path / "terms.tsv").terms == []


def test_the_terms_within_texts_are_those_that_any_part_of_them_has() -> None:
    phrases = ("hot dog", "dog", "dog food", "US", "cat")
    terms = Terminology([Term(phrase, ("x",), n) for n, phrase in enumerate(phrases)], name="terms")
    assert [term.source for term in terms.find("A hot dog food")] == ["hot dog"]
    within = terms.within(["A Hot dog food", "us"])
    assert {term.source for term in within.terms} == {"hot dog", "dog", "dog food"}
    for text in ("A Hot dog food", "dog food", "food", "us"):
        assert within.find(text) == terms.find(text)


def test_tokens_continue_a_word_where_they_write_no_space() -> None:
    target = tokenizers().target
    found = [
        piece for piece, one in zip(target.pieces(range(len(target))), continuing_tokens(target), strict=True) if one
    ]
    assert found
    assert all(piece[0] != "\u2581" and piece.isalpha() for piece in found)
    assert set(found) >= {piece for piece in target.pieces(range(len(target))) if piece in LETTERS}
