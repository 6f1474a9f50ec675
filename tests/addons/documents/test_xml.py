"""XML: code and style by their namespaces, white space that counts, and string resources of Android."""

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.each import each
from tests.support.marked import in_order, reversed_order, unmarked
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.reading import parse
from transformer_cli.errors import DataError


def texts(source: str) -> list[str]:
    return [unit.text for unit in parse(source, "xml").units]


# ---- White space

PIECES = st.sampled_from(
    ["A word", "go", "  ", "\n", "\n    ", "\t", "&#9;", "&#xA;", "<b>bold</b>", "<i/>", " &#169; "]
)


@settings(max_examples=60)
@given(st.lists(PIECES, min_size=1, max_size=6))
def test_white_space_that_is_to_be_preserved_is(parts: list[str]) -> None:
    source = f'<t xml:space="preserve">{"".join(parts)}</t>'
    found = translate_document(source, "xml", in_order).text
    assert "".join(ElementTree.fromstring(unmarked(found)).itertext()) == "".join(
        ElementTree.fromstring(source).itertext()
    )


def test_white_space_counts_where_the_document_says_so() -> None:
    assert texts('<t xml:space="preserve">a  b\n c d</t>') == ["a", "b", "c d"]
    assert texts("<t>a  b\n c d</t>") == ["a b c d"]
    assert texts('<t xml:space="preserve"><u xml:space="default">a  b</u><u>c  d</u></t>') == ["a b", "c", "d"]


# ---- Code and style

XHTML = 'xmlns="http://www.w3.org/1999/xhtml"'
SVG = 'xmlns:s="http://www.w3.org/2000/svg"'
DOCBOOK = 'xmlns="http://docbook.org/ns/docbook"'


@each(
    "source, expected",
    [
        (f"<html {XHTML}><style>p a</style><pre>a b</pre><p>Go on</p></html>", ["Go on"]),
        (f"<html {XHTML}><p>Use <code>a b</code> now</p></html>", ["Use a b now"]),
        (f"<h:html {XHTML.replace('xmlns', 'xmlns:h')}><h:pre>a b</h:pre><pre>c d</pre></h:html>", ["c d"]),
        (f"<x {SVG}><s:style>a b</s:style><style>c d</style><s:text>Go</s:text></x>", ["c d", "Go"]),
        (f"<x><style>c d</style><y {XHTML}><style>a b</style></y><style>e f</style></x>", ["c d", "e f"]),
        (f"<article {DOCBOOK}><para>Run <command>a b</command> now</para></article>", ["Run a b now"]),
        # Without a namespace, a document type or the root says what names mean.
        ("<svg><style>a b</style><text>Go on</text></svg>", ["Go on"]),
        ("<html><script>a b</script><p>Go on</p></html>", ["Go on"]),
        ("<book><programlisting>a b</programlisting><para>Go on</para></book>", ["Go on"]),
        ('<!DOCTYPE part PUBLIC "-//OASIS//DTD DocBook XML V4.5//EN" "x"><part><screen>a b</screen></part>', []),
        ("<data><code>x y</code><style>c d</style><screen>e f</screen></data>", ["x y", "c d", "e f"]),
        ('<resources><string name="a" translatable="false">a b</string></resources>', []),
    ],
)
def test_names_of_code_mean_something_in_their_namespace(source: str, expected: list[str]) -> None:
    assert texts(source) == expected
    for translate in (in_order, reversed_order):
        found = translate_document(source, "xml", translate).text
        assert found.count("a b") == source.count("a b")
        assert ElementTree.fromstring(found) is not None


# ---- Android


@each(
    "written, expected",
    [
        # https://developer.android.com/guide/topics/resources/string-resource#FormattingAndStyling
        (r"Hello\nworld", ["Hello", "world"]),
        (r"It\'s \"here\"", ['It\'s "here"']),
        (r"\@home \?", ["@home ?"]),
        (r"caf\u00e9 \ud83d\ude00 a\\nb", ["café 😀 a\\nb"]),
        (r"\u0020Hello\u0020you\u0020", ["Hello you"]),
        ('"Hello  you"', ["Hello you"]),
        ('Hi <xliff:g id="n">%1$s a</xliff:g>!', ["Hi %1$s a!"]),
    ],
)
def test_string_resources_are_read_and_written_with_their_backslashes(written: str, expected: list[str]) -> None:
    head = '<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2"><string name="a">'
    source = f"{head}{written}</string></resources>"
    assert texts(source) == expected
    found = unmarked(translate_document(source, "xml", in_order).text)
    assert texts(found) == expected
    inner = found.removeprefix(head).removesuffix("</string></resources>")
    # Where no escape has another form, and no white space is folded, it is written as it was.
    if r"\u00" not in written and r"\?" not in written and "  " not in written:
        assert inner == written
    assert inner.startswith(r"\u0020") == written.startswith(r"\u0020")
    assert (inner[0], inner[-1]) == (written[0], written[-1])


def test_a_property_list_is_refused() -> None:
    with pytest.raises(DataError) as caught:
        translate_document(
            "<!DOCTYPE plist><plist><dict><key>a</key><string>b</string></dict></plist>", "xml", in_order
        )
    assert str(caught.value).startswith("the document:1: is a property list of Apple, whose keys would be translated.")
