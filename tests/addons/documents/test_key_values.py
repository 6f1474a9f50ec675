"""Properties of Java and strings of Apple: values are translated, and all else stays, with its escapes."""

import pytest

from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import in_order
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.errors import DataError

É = "\xe9"
PROPERTIES = [
    ("# A comment = x\n! B\n\na = One cat\n", "# A comment = x\n! B\n\na = Oneж catж\n"),
    ("a:One\r\nb One\r\nc\tOne\r\n", "a:Oneж\r\nb Oneж\r\nc\tOneж\r\n"),
    ("a = One \\\n    two\nb = x", "a = Oneж twoж\nb = xж"),
    ("key\\ with\\:signs = One", "key\\ with\\:signs = Oneж"),
    ("a = One\\tTwo\\nThree\\nfour \\\\ x", "a = Oneж\\tTwoж\\nThreeж\\nfourж \\\\ xж"),
    ("a =\nb\n=c\n\\\n", "a =\nb\n=cж\n\\\n"),
    ("a = It''s {0} of {1,number,#}", "a = It''sж {0}ж ofж {1,number,#}ж"),
    ("a = {n, plural, =0 {No cat} other {# cats {x}}}", "a = {n, plural, =0 {Noж catж} other {#ж catsж {x}ж}}"),
    ("a = One {n, plural, one {cat} other {cats}}.", "a = Oneж {n, plural, one {cat} other {cats}}ж."),
    ("a = {0,choice,0#no files|1#one file}", "a = {0,choice,0#no files|1#one file}"),
    ("a = '{'x'}' it''s", "a = '{'xж'}' it''sж"),
    ("a = Don't x", "a = Don'tж xж"),
    ("a = <b>One</b> two", "a = <b>Oneж</b> twoж"),
    ("a = 12", "a = 12"),
]
STRINGS = [
    ('/* A = "b"; */\n// "c" = "d"\n"a" = "One cat";\n', '/* A = "b"; */\n// "c" = "d"\n"a" = "Oneж catж";\n'),
    ('"a \\" = b"="One";a.b = "Two" ;', '"a \\" = b"="Oneж";a.b = "Twoж" ;'),
    ('"a" = "One %@ of %1$@ \\"x\\"";', '"a" = "Oneж %@ж ofж %1$@ж \\"xж\\"";'),
    ('"a" = "One\\nTwo\\nthree";\r\n', '"a" = "Oneж\\nTwoж\\nthreeж";\r\n'),
    ('"a" = "One\nTwo";', '"a" = "Oneж\nTwoж";'),
    ('"a" = "\\U00c9t\\u00e9 x";', f'"a" = "Ét{É}ж xж";'),
    ('"a";\n"b" = "";', '"a";\n"b" = "";'),
    ('{ "a" = "One"; }', '{ "a" = "Oneж"; }'),
    ('\ufeff"a" = "One";', '\ufeff"a" = "Oneж";'),
]


def escaped(text: str) -> str:
    return text.replace("ж", "\\u0436")


@each("source, expected", PROPERTIES)
def test_a_property_is_translated(source: str, expected: str) -> None:
    assert translate_document(source, "properties", in_order).text == escaped(expected)
    assert translate_document(source, "properties", echo).text == source


def test_characters_are_written_as_the_file_has_them() -> None:
    assert translate_document("a = \\u00E9", "properties", in_order).text == "a = \\u00E9\\u0436"
    assert translate_document("a = \\u00e9b", "properties", in_order).text == "a = \\u00e9b\\u0436"
    assert translate_document(f"a = {É}", "properties", in_order).text == f"a = {É}ж"
    assert translate_document("a = \\ud83d\\ude00 x", "properties", in_order).text == "a = \\ud83d\\ude00 x\\u0436"


def test_an_apostrophe_is_doubled_where_message_format_needs_it() -> None:
    def with_apostrophe(texts: list[str]) -> object:
        return [*echo([f"l'{text}" for text in texts])]

    sources = ["a = {0} x", "a = x", "a = it''s", "a = don't {0}"]
    found = [translate_document(one, "properties", with_apostrophe).text for one in sources]  # type: ignore[arg-type]
    assert found == ["a = l''{0} x", "a = l'x", "a = l''it''s", "a = l\\u2019don\\u2019t {0}"]


@each("source, expected", STRINGS)
def test_a_string_is_translated(source: str, expected: str) -> None:
    assert translate_document(source, "strings", in_order).text == expected
    assert translate_document(source, "strings", echo).text == source


@pytest.mark.parametrize("source", ['"a" = "b\n', '"a" = ?;', "/* x"])
def test_what_is_no_list_of_strings_is_refused(source: str) -> None:
    with pytest.raises(DataError, match=r"the document:1: .* is no key, text or comment. Correct the file"):
        translate_document(source, "strings", in_order)
