"""TMX: units that lack the target language get it, and nothing else of the memory changes."""

import pytest

from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import in_order
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.errors import DataError

OPEN = (
    '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
    '<tmx version="1.4"><header srclang="en" datatype="x"/><body>'
)
CLOSE = "</body></tmx>\n"
ADDED = '<tuv xml:lang="de" creationtool="tfm">'


def memory(*units: str, opening: str = OPEN) -> str:
    return opening + "".join(f"<tu>{unit}</tu>" for unit in units) + CLOSE


def variant(language: str, text: str) -> str:
    return f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>'


WRITTEN = [
    (variant("en", "A cat"), variant("en", "A cat") + f"{ADDED}<seg>Aж catж</seg></tuv>"),
    (
        '\r\n  <tuv xml:lang="en">\r\n    <seg>A</seg>\r\n  </tuv>\r\n',
        f'\r\n  <tuv xml:lang="en">\r\n    <seg>A</seg>\r\n  </tuv>\r\n  {ADDED}\r\n    <seg>Aж</seg>\r\n  </tuv>\r\n',
    ),
    (
        variant("en", '<bpt i="1">&lt;b></bpt>A<ept i="1">text</ept> <ph>%s</ph> <hi>b</hi> &amp; c'),
        variant("en", '<bpt i="1">&lt;b></bpt>A<ept i="1">text</ept> <ph>%s</ph> <hi>b</hi> &amp; c')
        + f'{ADDED}<seg><bpt i="1">&lt;b></bpt>Aж<ept i="1">text</ept> <ph>%s</ph> <hi>bж</hi> &amp; cж</seg></tuv>',
    ),
    (
        variant("en", "A") + '<tuv xml:lang="de"><seg/></tuv>',
        variant("en", "A") + f"{ADDED}<seg>Aж</seg></tuv>",
    ),
    (
        variant("en", "A") + variant("fr", "B"),
        variant("en", "A") + variant("fr", "B") + f"{ADDED}<seg>Aж</seg></tuv>",
    ),
    (
        '<tuv lang="en"><seg>A</seg></tuv>',
        '<tuv lang="en"><seg>A</seg></tuv><tuv lang="de" creationtool="tfm"><seg>Aж</seg></tuv>',
    ),
    (variant("EN-us", "A"), variant("EN-us", "A") + f"{ADDED}<seg>Aж</seg></tuv>"),
    (
        f"<note>x</note>{variant('en', '<![CDATA[A < b]]>')}",
        f"<note>x</note>{variant('en', '<![CDATA[A < b]]>')}{ADDED}<seg>Aж &lt; bж</seg></tuv>",
    ),
]
KEPT = [
    variant("en", "A") + variant("de", "B"),
    variant("de", "B"),
    variant("fr", "B"),
    variant("en", "12"),
    variant("en", ""),
    "<note>A cat</note>",
]


@each("before, after", WRITTEN)
def test_a_unit_without_the_target_gets_it(before: str, after: str) -> None:
    assert translate_document(memory(before), "tmx", in_order, languages=("en", "de")).text == memory(after)


@each("unit", KEPT)
def test_other_units_stay(unit: str) -> None:
    document = memory(unit, variant("en", "1"))
    assert translate_document(document, "tmx", in_order, languages=("en", "de")).text == document


def test_without_languages_the_header_and_the_only_other_language_say_them() -> None:
    document = memory(variant("en", "A"), variant("en-GB", "B") + variant("de-AT", "C"))
    assert '<tuv xml:lang="de-AT" creationtool="tfm"><seg>Aж' in translate_document(document, "tmx", in_order).text


def test_the_code_of_the_target_is_the_one_that_the_memory_has() -> None:
    document = memory(variant("en", "A"), variant("fr", "x") + variant("DE_de", "C"))
    assert (
        '<tuv xml:lang="DE_de" creation' in translate_document(document, "tmx", in_order, languages=("en", "de")).text
    )


def test_a_translation_that_equals_its_source_is_written_and_is_not_translated_again() -> None:
    document = memory(variant("en", "A &#x21;"))
    found = translate_document(document, "tmx", echo, languages=("en", "de")).text
    assert found == memory(variant("en", "A &#x21;") + f"{ADDED}<seg>A &#x21;</seg></tuv>")
    assert translate_document(found, "tmx", in_order, languages=("en", "de")).text == found


@pytest.mark.parametrize(
    ("units", "languages", "says"),
    [
        ([variant("fr", "A")], ("en", "de"), "3: has texts in fr, and none in en. Name the language to translate from"),
        ([variant("en", "A")], ("", ""), "3: has texts in en. Name the language to translate into, by --to"),
        (
            [variant("en", "A"), variant("fr", "A"), variant("de", "A")],
            ("", ""),
            "3: has texts in en, fr, de. Name the",
        ),
    ],
)
def test_languages_that_are_not_known_are_asked_for(units: list[str], languages: tuple[str, str], says: str) -> None:
    with pytest.raises(DataError) as caught:
        translate_document(memory(*units), "tmx", in_order, languages=languages)
    assert str(caught.value).startswith(f"the document:{says}")
