"""TS of Qt: unfinished messages without a translation get one, and nothing else of the file changes."""

import pytest

from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import in_order
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.reading import parse
from transformer_cli.errors import DataError


def message(inner: str, attributes: str = "") -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?>\r\n<!DOCTYPE TS>\r\n<TS version="2.1" language="de">\r\n<context>'
        f"<name>Main window</name><message{attributes}><location filename='a.cpp' line='1'/>"
        f"{inner}</message></context></TS>\r\n"
    )


UNFINISHED = '<translation type="unfinished">'
NUMERUS = ' numerus="yes"'
WRITTEN = [  # the source, what is in a translation, what is in it afterwards, attributes of the message
    ("A cat", "", "Aж catж", ""),
    ("&amp;Open %1 of &quot;%L2&quot;", "", '&amp;Openж %1ж ofж "%L2ж"', ""),
    ("&lt;b&gt;A&lt;/b&gt; &lt;br/&gt; x &lt; y", "", "&lt;b&gt;Aж&lt;/b&gt; &lt;br/&gt; xж &lt; yж", ""),
    ("One line\nTwo lines\ngo on\n\nThree", "", "Oneж lineж\nTwoж linesж\ngoж onж\n\nThreeж", ""),
    ("A<byte value='x1b'/> cat", "", "Aж<byte value='x1b'/> catж", ""),
    ("<![CDATA[A & B]]>", "", "Aж &amp; Bж", ""),
    ("A cat", "<!-- x -->", "Aж catж", ""),
    (
        "%n file(s)",
        "<numerusform></numerusform>\n  <numerusform/>",
        "<numerusform>%nж file(sж)</numerusform>\n  <numerusform>%nж file(sж)</numerusform>",
        NUMERUS,
    ),
    ("%n cats", "", "<numerusform>%nж catsж</numerusform>", NUMERUS),
    ("Gone", "Weg", "Weg", ""),
    ("%n files", "<numerusform>A</numerusform><numerusform/>", "<numerusform>A</numerusform><numerusform/>", NUMERUS),
    ("A", "<lengthvariant></lengthvariant>", "<lengthvariant></lengthvariant>", ""),
    ("12 %", "", "", ""),
]


@each("source, before, after, attributes", WRITTEN)
def test_an_unfinished_message_gets_a_translation(source: str, before: str, after: str, attributes: str) -> None:
    texts = [
        message(f"<source>{source}</source><comment>Not this</comment>{UNFINISHED}{text}</translation>", attributes)
        for text in (before, after)
    ]
    assert translate_document(texts[0], "ts", in_order).text == texts[1]


@each(
    "translation",
    [
        "<translation>B</translation>",
        "<translation></translation>",
        '<translation type="vanished"></translation>',
        '<translation type="obsolete"/>',
        "",
    ],
)
def test_other_messages_stay(translation: str) -> None:
    document = message(f"<source>A cat</source>{translation}")
    assert translate_document(document, "ts", in_order).text == document


def test_an_empty_element_gets_an_end() -> None:
    found = translate_document(message('<source>A</source><translation type="unfinished" />'), "ts", in_order).text
    assert found == message(f"<source>A</source>{UNFINISHED}Aж</translation>")


def test_the_forms_of_other_messages_say_how_many_there_are() -> None:
    first = f"<source>A</source>{UNFINISHED}<numerusform/><numerusform/><numerusform/></translation>"
    second = f"<source>B</source>{UNFINISHED}</translation>"
    text = f"<TS><message{NUMERUS}>{first}</message><message{NUMERUS}>{second}</message></TS>"
    assert translate_document(text, "ts", in_order).text.count("<numerusform>Bж</numerusform>") == 3


def test_the_translation_that_equals_its_source_is_written_as_the_source_is() -> None:
    found = translate_document(message(f"<source>A &quot;b&quot;&#x21;</source>{UNFINISHED}</translation>"), "ts", echo)
    assert f"{UNFINISHED}A &quot;b&quot;&#x21;</translation>" in found.text
    assert not parse(found.text, "ts").units


def test_what_is_no_ts_is_refused() -> None:
    with pytest.raises(DataError, match=r"the document:1: is not a TS of Qt: its root element is <a>. Name its format"):
        translate_document("<a/>", "ts", in_order)
