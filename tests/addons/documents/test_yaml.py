"""YAML of texts: values are translated in the style that each has, and all else stays."""

from collections.abc import Sequence

import pytest
import yaml

from tests.addons.documents.test_markup_properties import echo
from tests.addons.documents.test_markup_properties import translated as answer
from tests.support.each import each
from tests.support.marked import in_order
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.decoding.results import Translated
from transformer_cli.errors import DataError

WRITTEN = [
    ("en:\n  a: One cat # x\n  b:   Two\n", "en:\n  a: Oneж catж # x\n  b:   Twoж\n"),
    (
        "a: 'It''s one' # x\r\nb: \"One\\n\\u00c9 \\\"x\\\"\"\r\n",
        "a: 'It''sж oneж' # x\r\nb: \"Oneж\\nÉж \\\"xж\\\"\"\r\n",
    ),
    (
        "a: |\n  One cat\n    two\n  Three\n  four\n\n# x\nb: 1\n",
        "a: |\n  Oneж catж\n    twoж\n  Threeж\n  fourж\n\n# x\nb: 1\n",
    ),
    ("a: >-  # x\n  One\n  two\n\n  Three\nb: Four", "a: >-  # x\n  Oneж\n  twoж\n\n  Threeж\nb: Fourж"),
    ("a: One\n  two", "a: Oneж twoж"),
    ('a: "One\n  two\\\n  three"', 'a: "Oneж twothreeж"'),
    ("a: [One, 'Two', {b: Three}, 1, yes, ~]", "a: [Oneж, 'Twoж', {b: Threeж}, 1, yes, ~]"),
    ("a: &x One\nb: *x\nc: !t One\nd:\n- :sym\n- Two", "a: &x Oneж\nb: *x\nc: !t One\nd:\n- :sym\n- Twoж"),
    ('a: "%{count} cats on %d.%m.%Y"', 'a: "%{count}ж catsж onж %d.%m.%Yж"'),
    ("a: <b>One</b> two", "a: <b>Oneж</b> twoж"),
    ("? One\n: Two", "? One\n: Twoж"),
    ("--- One\n...\n--- Two\n", "--- Oneж\n...\n--- Twoж\n"),
    ("a: \U0001f600 One\nb: Two", "a: \U0001f600 Oneж\nb: Twoж"),
    ("a:\nb: ''\nc: 2024-01-01\nd: 0x1F\n", "a:\nb: ''\nc: 2024-01-01\nd: 0x1F\n"),
    ("", ""),
]


@each("source, expected", WRITTEN)
def test_a_value_is_translated(source: str, expected: str) -> None:
    assert translate_document(source, "yaml", in_order).text == expected
    assert translate_document(source, "yaml", echo).text == source


SOURCE = "a: One\nb: [One, \"One\"]\nc: 'One'\nd: <b>One</b> two\ne: |\n  One\nf: >\n  One\ng: One\n  two\n"


@each("new", ["- x: y #z", "it's [1], {2}", "yes", "#x", "*x", 'a "b" \\c', "x:", "'", "12", "~", "é\x85\x07x", "x\ty"])
def test_any_translation_is_the_text_that_yaml_reads(new: str) -> None:
    def translate(texts: Sequence[str]) -> list[Translated]:
        return [answer(text.replace("One", new)) for text in texts]

    found = yaml.safe_load(translate_document(SOURCE, "yaml", translate).text)
    for key, value in yaml.safe_load(SOURCE.replace("One", "placeholder")).items():
        values = zip(value, found[key], strict=True) if isinstance(value, list) else [(value, found[key])]
        for before, after in values:
            assert _plain(after) == _plain(before.replace("placeholder", new))


def _plain(text: str) -> str:
    """A text without tags, white space and what YAML cannot have."""
    return "".join(one for one in text.replace("<b>", "").replace("</b>", "") if one.isprintable() and one != " ")


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("a: [b\n", ":2: is no YAML: did not find expected ',' or ']'. Correct it"),
        ("a: b\nc: \x00", ": is no YAML: control characters are not allowed. Correct it"),
        ("a: b: c", ":1: is no YAML: mapping values are not allowed in this context. Correct it"),
        ("[" * 501, ":1: has more than 500 lists or mappings within each other. Is it the right file?"),
    ],
)
def test_what_is_none_is_refused(source: str, says: str) -> None:
    with pytest.raises(DataError) as caught:
        translate_document(source, "yaml", in_order)
    assert says.removeprefix(":2").removeprefix(":1") in str(caught.value)
    assert "\n" not in str(caught.value)
