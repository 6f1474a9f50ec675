"""XLIFF: texts without a translation get one, with a state that says so, and nothing else of the file changes."""

import re
from xml.etree import ElementTree

import pytest

from tests.addons.documents.test_markup_properties import Scrambler, echo
from tests.support.each import each
from tests.support.marked import MARK, in_order, reversed_order
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.reading import parse
from transformer_cli.errors import DataError

STATE = ' state="needs-review-translation" state-qualifier="mt-suggestion"'
OPEN, CLOSE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<!-- <source>x</source> -->\n<xliff version="1.2"'
    ' xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" target-language="de"'
    ' original="a" datatype="x"><body>',
    "</body></file></xliff>\n",
)
OPEN_2, CLOSE_2 = (
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.1" srcLang="en" trgLang="de"><file id="f">',
    "</file></xliff>",
)


def unit(inner: str, attributes: str = "") -> str:
    return f'{OPEN}<trans-unit id="1"{attributes}>{inner}</trans-unit>{CLOSE}'


def segment(inner: str, attributes: str = "", of_unit: str = "") -> str:
    return f'{OPEN_2}<unit id="1"{of_unit}><segment{attributes}>{inner}</segment></unit>{CLOSE_2}'


def mrk(*texts: str) -> str:
    return " ".join(f'<mrk mtype="seg" mid="{n}">{text}</mrk>' for n, text in enumerate(texts, 1))


TAGGED = 'A <g id="1">b <x id="2"/></g> <bpt id="3">&lt;i></bpt>c<ept id="3">text</ept><ph id="4">%s</ph>'
DONE_2 = ' state="translated" subState="tfm:mt"'
WRITTEN = {  # what is in a unit, and what is in it afterwards
    "no target": ("<source>A cat</source>", f"<source>A cat</source><target{STATE}>Aж catж</target>"),
    "on a line of its own": (
        "\r\n\t<source>A cat</source>\r\n\t<note>x</note>\r\n",
        f"\r\n\t<source>A cat</source>\r\n\t<target{STATE}>Aж catж</target>\r\n\t<note>x</note>\r\n",
    ),
    "an empty target": ("<source>A</source><target/>", f"<source>A</source><target{STATE}>Aж</target>"),
    "white space": ("<source>A</source><target >\n</target>", f"<source>A</source><target{STATE} >Aж</target>"),
    "a copy of the source": (
        "<source>A</source><target state='new' xml:lang='de'>A</target>",
        "<source>A</source><target state='needs-review-translation' xml:lang='de'"
        ' state-qualifier="mt-suggestion">Aж</target>',
    ),
    "CDATA": (
        "<source><![CDATA[A <b>cat</b> & x]]></source>",
        f"<source><![CDATA[A <b>cat</b> & x]]></source><target{STATE}>Aж &lt;b&gt;catж&lt;/b&gt; &amp; xж</target>",
    ),
    "references": (
        "<source>A&#32;&amp; B</source>",
        f"<source>A&#32;&amp; B</source><target{STATE}>Aж &amp; Bж</target>",
    ),
    "suggestions": (
        "<source>A</source><alt-trans><source>A</source><target>B</target></alt-trans>",
        f"<source>A</source><target{STATE}>Aж</target><alt-trans><source>A</source><target>B</target></alt-trans>",
    ),
    "inline tags": (
        f"<source>{TAGGED}</source>",
        f"<source>{TAGGED}</source>"
        f'<target{STATE}>Aж <g id="1">bж <x id="2"/></g> <bpt id="3">&lt;i></bpt>cж<ept id="3">text</ept><ph id="4">'
        "%s</ph></target>",
    ),
    "segments": (
        f"<source>A. B.</source><seg-source>{mrk('A.', 'B.')}</seg-source>",
        f"<source>A. B.</source><seg-source>{mrk('A.', 'B.')}</seg-source><target{STATE}>{mrk('Aж.', 'Bж.')}</target>",
    ),
    "a segment": (
        f"<source>A. B.</source><seg-source>{mrk('A.', 'B.')}</seg-source><target>{mrk('C.', '')}</target>",
        f"<source>A. B.</source><seg-source>{mrk('A.', 'B.')}</seg-source><target>{mrk('C.', 'Bж.')}</target>",
    ),
}


@each("before, after", list(WRITTEN.values()))
def test_a_text_without_translation_gets_one(before: str, after: str) -> None:
    assert translate_document(unit(before), "xliff", in_order).text == unit(after)


KEPT = {
    "final": unit('<source>A</source><target state="final">B</target>'),
    "no state": unit("<source>A</source><target>B</target>"),
    "to be reviewed, as someone's work is": unit(
        '<source>A</source><target state="needs-review-translation">B</target>'
    ),
    "a suggestion": unit('<source>A</source><target state-qualifier="fuzzy-match">B</target>'),
    "empty, and to be so": unit('<source>A</source><target state="final"/>'),
    "approved": unit("<source>A</source><target/>", ' approved="yes"'),
    "not to be translated": unit("<source>A</source>", ' translate="no"'),
    "of a group": f'{OPEN}<group translate="no"><trans-unit id="1"><source>A</source></trans-unit></group>{CLOSE}',
    "confirmed in memoQ": unit("<source>A</source><target/>", ' mq:status="ManuallyConfirmed"'),
    "locked in Trados": unit(
        f"<source>A</source><seg-source>{mrk('A')}</seg-source><target>{mrk('')}</target>"
        '<sdl:seg-defs><sdl:seg id="1" locked="true"/></sdl:seg-defs>'
    ),
    "no letters": unit("<source>1 <x id='1'/> 2</source>"),
    "no text": unit("<source/>"),
    "2: translated": segment("<source>A</source><target>B</target>"),
    "2: reviewed": segment("<source>A</source><target>B</target>", ' state="reviewed"'),
    "2: not to be translated": segment("<source>A</source>", of_unit=' translate="no"'),
    "2: matches": f'{OPEN_2}<unit id="1"><mtc:matches><source>A</source></mtc:matches></unit>{CLOSE_2}',
}


@each("document", list(KEPT.values()))
def test_what_is_finished_or_not_to_be_translated_stays(document: str) -> None:
    assert translate_document(document, "xliff", in_order).text == document
    assert not parse(document, "xliff").units


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (segment("<source>A</source>"), segment("<source>A</source><target>Aж</target>", DONE_2)),
        (
            segment("<source>A</source><target>A</target>", ' state="initial" subState="x:y"'),
            segment("<source>A</source><target>Aж</target>", DONE_2),
        ),
        (
            segment('<source>A <pc id="1">b</pc> <sc id="2"/>c<ec startRef="2"/> <ph id="3"/>.</source>'),
            segment(
                '<source>A <pc id="1">b</pc> <sc id="2"/>c<ec startRef="2"/> <ph id="3"/>.</source><target>Aж'
                ' <pc id="1">bж</pc> <sc id="2"/>cж<ec startRef="2"/> <ph id="3"/>.</target>',
                DONE_2,
            ),
        ),
        (
            segment('<source>A <mrk id="m" translate="no">Foo</mrk></source>'),
            segment(
                '<source>A <mrk id="m" translate="no">Foo</mrk></source>'
                '<target>Aж <mrk id="m" translate="no">Foo</mrk>ж</target>',
                DONE_2,
            ),
        ),
    ],
)
def test_a_segment_of_version_2_has_the_state(before: str, after: str) -> None:
    assert translate_document(before, "xliff", in_order).text == after


def test_a_prefix_is_that_of_the_root() -> None:
    source = "<x:xliff xmlns:x='urn:x'><x:file><x:trans-unit><x:source>A</x:source></x:trans-unit></x:file></x:xliff>"
    found = translate_document(source, "xliff", in_order).text
    assert found == source.replace("</x:source>", f"</x:source><x:target{STATE}>Aж</x:target>")


def test_lines_are_texts_where_white_space_counts() -> None:
    source = "<source>One line\nTwo lines\ngo on</source>"
    assert [one.text for one in parse(unit(source, ' xml:space="preserve"'), "xliff").units] == [
        "One line",
        "Two lines go on",
    ]
    assert [one.text for one in parse(unit(source), "xliff").units] == ["One line Two lines go on"]
    found = translate_document(unit(source, ' xml:space="preserve"'), "xliff", in_order).text
    assert "<target" + STATE + ">Oneж lineж\nTwoж linesж\ngoж onж</target>" in found


def test_the_language_is_written_if_it_is_known_and_something_is_translated() -> None:
    first = OPEN.replace(' target-language="de"', "")
    text, second = f"<trans-unit><source>A</source></trans-unit>{CLOSE}", OPEN_2.replace(' trgLang="de"', "")
    found = translate_document(first + text, "xliff", in_order, languages=("en", "fr")).text
    assert found.startswith(first[: first.index("><body>")] + ' target-language="fr"><body>')
    assert translate_document(first + text, "xliff", in_order).text.startswith(first)
    assert translate_document(
        first + text.replace("A", "1"), "xliff", in_order, languages=("en", "fr")
    ).text.startswith(first)
    text = f"<unit><segment><source>A</source></segment></unit>{CLOSE_2}"
    found = translate_document(second + text, "xliff", in_order, languages=("en", "fr")).text
    assert found.startswith(second.replace('srcLang="en"', 'srcLang="en" trgLang="fr"'))


def test_the_translation_that_equals_its_source_is_written_as_the_source_is() -> None:
    text = "A&#x20;<g id='1'>b</g>\n  c"
    found = translate_document(unit(f"<source>{text}</source>"), "xliff", echo).text
    assert found == unit(f"<source>{text}</source><target{STATE}>{text}</target>")
    again = translate_document(found, "xliff", in_order).text
    assert again == found


WRONG = [
    ("<tmx/>", 1, "is not XLIFF: its root element is <tmx>. Name its format"),
    ("<xliff>\n<file>", 2, "the file ends here, within <file>"),
    ("<xliff>\n<file></body></xliff>", 2, "'</body></xliff>' ends nothing, as <file> is open"),
    ("<xliff/>\n<file/>", 2, "'<file/>' follows the root element"),
    ("<xliff>\n<!-- x", 2, "'<!-- x' has no end"),
    ("hello", 1, "the file ends here, without being XLIFF"),
    ("", 1, "the file ends here, without being XLIFF"),
]


@each("document, line, says", WRONG)
def test_what_is_not_well_formed_is_refused_with_the_line(document: str, line: int, says: str) -> None:
    with pytest.raises(DataError) as caught:
        translate_document(document, "xliff", in_order)
    assert str(caught.value).startswith(f"the document:{line}: {says}")
    assert "\n" not in str(caught.value)


def test_an_entity_is_never_expanded() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    found = translate_document(bomb + unit("<source>A &b; cat</source>").split("\n", 2)[2], "xliff", in_order).text
    assert f"<target{STATE}>Aж &b;ж catж</target>" in found


@each("seed", range(30))
def test_any_translation_is_well_formed_and_has_each_tag_once(seed: int) -> None:
    inner = (
        'A <g id="1">cat <x id="2"/> sat</g> on <bpt id="3">&lt;b></bpt>the<ept id="3">x</ept> mat <ph id="4">y</ph>.'
    )
    root = ElementTree.fromstring(
        translate_document(unit(f"<source>{inner}</source>"), "xliff", Scrambler(seed)).text.encode()
    )
    source, target = (root.find(f".//{{*}}{name}") for name in ("source", "target"))
    assert source is not None
    assert target is not None
    names = [sorted((one.tag, one.get("id")) for one in side.iter() if one is not side) for side in (source, target)]
    assert names[0] == names[1]


def test_words_in_another_order_take_their_tags_along() -> None:
    source = '<source>one <g id="1">two</g></source>'
    found = translate_document(unit(source), "xliff", reversed_order).text
    assert re.findall(r"<target[^>]*>(.*)</target>", found) == [f'<g id="1">two{MARK}</g> one{MARK}']
