"""JSON of texts: strings that are no keys are translated, and all else stays, with its escapes."""

import json

import pytest

from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import in_order
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.errors import DataError

WRITTEN = [
    ('{"a": "One cat",\r\n\t"b" : {"c": ["Two", "Three"]}, "d": 1, "e": null}', None),
    ('\ufeff{"a": "One"}', None),
    ('"One"', None),
    ('{"a": "A \\"b\\" \\\\ c\\/d <b>e<\\/b>"}', '{"a": "Aж \\"bж\\" \\\\ c/dж <b>eж<\\/b>"}'),
    ('{"a": "One\\nTwo\\tThree"}', '{"a": "Oneж\\nTwoж\\tThreeж"}'),
    ('{"a": "\\u00e9t\\u00e9"}', '{"a": "\\u00e9t\\u00e9\\u0436"}'),
    ('{"a": "\xe9", "b": "x \\ud83d\\ude00"}', '{"a": "\xe9ж", "b": "xж 😀"}'),
    ('{"a": "One {{x}} $t(b.c) %{d} @:e.f"}', '{"a": "Oneж {{x}}ж $t(b.c)ж %{d}ж @:e.fж"}'),
    (
        '{"@@locale": "en", "a": "One", "@a": {"description": "Not this"}}',
        '{"@@locale": "en", "a": "Oneж", "@a": {"description": "Not this"}}',
    ),
    ('{"locale": "en", "translations": {"a": "One {$X}"}}', '{"locale": "en", "translations": {"a": "Oneж {$X}ж"}}'),
    ('{"a": "{n, plural, one{One {x}} other{# cats}}"}', '{"a": "{n, plural, one{Oneж {x}ж} other{# catsж}}"}'),
    (
        '{"a": "{g, select, f{{n, plural, other{# a}}} other{b}}"}',
        '{"a": "{g, select, f{{n, plural, other{# aж}}} other{bж}}"}',
    ),
    ('{"a": "One {n, plural, one{cat} other{cats}}"}', '{"a": "Oneж {n, plural, one{cat} other{cats}}ж"}'),
    (
        '{"a": {"message": "Hi $NAME$, $1", "description": "No"}, "b": {"message": "B"}}',
        '{"a": {"message": "Hiж $NAME$ж, $1ж", "description": "No"}, "b": {"message": "Bж"}}',
    ),
    ("{}", "{}"),
    ('{"a": "", "b": "12", "c": " "}', '{"a": "", "b": "12", "c": " "}'),
]


@each("source, expected", WRITTEN)
def test_a_text_is_translated(source: str, expected: str | None) -> None:
    found = translate_document(source, "json", in_order).text
    if expected is None:
        expected = source
        for word in ("One", "cat", "Two", "Three"):
            expected = expected.replace(word, f"{word}ж")
    assert found == expected
    assert translate_document(source, "json", echo).text == source
    json.loads(found.removeprefix("\ufeff"))


def test_an_apostrophe_before_a_brace_quotes_nothing() -> None:
    def with_apostrophe(texts: list[str]) -> object:
        return [*echo([f"l'{text} d'un" for text in texts])]

    found = translate_document('{"a": "{x} y"}', "json", with_apostrophe).text  # type: ignore[arg-type]
    assert found == '{"a": "l’{x} y d\'un"}'


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ('{"a": "b"\n"c"}', ":2: is no JSON: Expecting ',' delimiter at column 1. Correct it"),
        ("// x\n{}", ":1: is no JSON: Expecting value at column 1"),
        ("[" * 100_000, ":1: has lists or objects too deep within each other. Is it the right file?"),
        ("9" * 10_000, ":1: has a number of too many digits"),
        ('{"sourceLanguage": "en", "strings": {}, "version": "1.0"}', ":1: is a string catalogue of Xcode, which"),
    ],
)
def test_what_is_none_is_refused(source: str, says: str) -> None:
    with pytest.raises(DataError) as caught:
        translate_document(source, "json", in_order)
    assert str(caught.value).startswith(f"the document{says}")
