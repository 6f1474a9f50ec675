"""OpenDocument and EPUB: which texts are translated, and what stays as it is."""

from xml.etree import ElementTree

from tests.addons.documents.office_files import ODF, PICTURE, epub, members, odt, texts, translate
from tests.addons.documents.test_markup import reversed_words
from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import in_order

STYLES = (
    '<style:style style:name="T1" style:family="text"><style:text-properties fo:font-weight="bold"/></style:style>'
    '<style:style style:name="T2" style:family="text"><style:text-properties officeooo:rsid="0012"/></style:style>'
)


def span(text: str, style: str) -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


def content(data: bytes) -> str:
    text = members(data)["content.xml"].decode()
    return text[text.index("<office:text>") + 13 : text.index("</office:text>")]


@each(
    "paragraphs, found",
    [
        (f"<text:p>Two {span('dogs', 'T1')} run.</text:p>", ["Two dogs run."]),
        (f"<text:h>Hel{span('lo', 'T2')}{span('!', 'T2')}</text:h>", ["Hello!"]),
        ("<text:p>Name:<text:tab/>John</text:p>", ["Name:", "John"]),
        ("<text:p>One line<text:line-break/>Another</text:p>", ["One line", "Another"]),
        ("<text:p>One line<text:line-break/>goes on</text:p>", ["One line goes on"]),
        ('<text:p>A<text:s text:c="3"/>cat</text:p>', ["A cat"]),
        ("<text:p>Page <text:page-number>7</text:page-number> of it</text:p>", ["Page 7 of it"]),
        ("<text:p>12 %</text:p>", []),
        ("<text:tracked-changes><text:p>no</text:p></text:tracked-changes><text:p>yes</text:p>", ["yes"]),
        (
            "<text:p>A<text:note><text:note-body><text:p>Note</text:p></text:note-body></text:note> cat</text:p>",
            ["A cat", "Note"],
        ),
        (
            "<text:p><draw:frame><draw:text-box><text:p>In a box</text:p></draw:text-box></draw:frame></text:p>",
            ["In a box"],
        ),
        ("<draw:frame><svg:title>A cat</svg:title></draw:frame>", ["A cat"]),
        ('<table:table-cell table:formula="of:=1"><text:p>no</text:p></table:table-cell>', []),
        ('<draw:frame presentation:placeholder="true"><text:p>no</text:p></draw:frame>', []),
    ],
)
def test_the_texts_of_a_document_of_libreoffice(paragraphs: str, found: list[str]) -> None:
    assert sorted(texts(odt(paragraphs, STYLES), "odt")) == sorted(found)


def test_formatting_follows_the_words_and_what_cannot_be_seen_is_left_out() -> None:
    data = odt(f"<text:p>two {span('bl', 'T1')}{span('ack', 'T1')} {span('dogs', 'T2')}</text:p>", STYLES)
    assert content(translate(data, "odt", reversed_words)[0]) == f"<text:p>dogs {span('black', 'T1')} two</text:p>"


def test_notes_within_a_text_are_translated_with_it() -> None:
    note = '<text:note text:id="1"><text:note-citation>1</text:note-citation><text:note-body><text:p>It is.</text:p>'
    note += "</text:note-body></text:note>"
    found = content(translate(odt(f"<text:p>A cat{note} sat.</text:p>"), "odt")[0])
    assert ElementTree.fromstring(f"<a {ODF}>{found}</a>") is not None
    assert found == f"<text:p>A CAT{note.replace('It is', 'IT IS')} SAT.</text:p>"


def test_all_else_stays_as_it_is() -> None:
    data = odt("<text:p>A cat &amp; more</text:p>")
    found = members(translate(data, "odt")[0])
    assert found["Pictures/1.png"] == PICTURE
    assert next(iter(found)) == "mimetype"
    assert b"<text:p>A CAT &amp; MORE</text:p>" in found["content.xml"]
    assert members(translate(data, "odt", echo)[0]) == members(data)


def test_the_texts_of_a_book_are_those_of_its_chapters_contents_and_title() -> None:
    data = epub('<h1>One</h1><p>A <b>big</b> cat.<br/>It sat.</p><script src="x"/><img alt="A picture"/>')
    assert sorted(texts(data, "epub")) == ["A big cat.", "A book", "A picture", "It sat.", "One", "The first"]
    found = members(translate(data, "epub")[0])
    assert b"<dc:title>A BOOK</dc:title><dc:creator>A. Writer</dc:creator>" in found["OPS/book.opf"]
    assert b"<p>A <b>BIG</b> CAT.<br/>IT SAT.</p>" in found["OPS/text/chapter 1.xhtml"]
    assert b"<text>THE FIRST</text>" in found["OPS/toc.ncx"]
    assert members(translate(data, "epub", echo)[0]) == members(data)


CELL = '<table:table-cell {}office:value-type="string"{}><text:p>{}</text:p></table:table-cell>'


@each(
    "old, new",
    [
        ('<table:a table:formula="of:=IF([.A1]=&quot;pears&quot;;1;2)"/>', "pears"),
        ('<table:a table:condition="of:cell-content-is-in-list(&quot;pears&quot;;&quot;no&quot;)"/>', "pears"),
        ('<calcext:a calcext:value="contains-text(&quot;pears&quot;)"/>', "pears"),
        ('<style:map style:condition="cell-content()=&quot;pears&quot;"/>', "pears"),
        ('<table:named-expression table:expression="&quot;two cats&quot;"/>', "two cats"),
        ('<table:filter-condition table:field-number="1" table:value="pears" table:operator="="/>', "pears"),
        (
            '<table:data-pilot-field table:source-field-name="pears"/><table:data-pilot-member table:name="pears"/>',
            "pears",
        ),
        ('<table:a table:formula="of:=INDIRECT(&quot;pears&quot;)"/>', ""),
        ('<table:filter-condition table:value="pea.*"/>', ""),
    ],
)
def test_what_repeats_the_texts_of_cells_follows_them(old: str, new: str) -> None:
    cells = CELL.format("", "", "pears") + CELL.format("", "", "two<text:s/>cats").replace("<text:s/>", " ")
    data = odt(cells + old, kind="spreadsheet")
    assert members(translate(data, "ods", echo)[0]) == members(data)
    found = content(translate(data, "ods", in_order)[0])
    expected = old.replace(new, " ".join(f"{word}ж" for word in new.split())) if new else old
    assert found == cells.replace("pears", "pearsж").replace("two cats", "twoж catsж") + expected


def test_results_that_are_texts_are_computed_again() -> None:
    result = CELL.format('table:formula="of:=[.A1]" ', ' office:string-value="pears"', "pears")
    number = '<table:table-cell table:formula="of:=1" office:value-type="float"><text:p>1</text:p></table:table-cell>'
    data = odt(CELL.format("", "", "pears") + result + number, kind="spreadsheet")
    empty = '<table:table-cell table:formula="of:=[.A1]"></table:table-cell>'
    assert content(translate(data, "ods", in_order)[0]) == CELL.format("", "", "pearsж") + empty + number


def test_titles_of_messages_are_translated_and_the_cells_of_a_chart_are_named_as_before() -> None:
    message = '<table:help-message table:title="A title"><text:p>A message</text:p></table:help-message>'
    assert texts(odt(message, kind="spreadsheet"), "ods") == ["A title", "A message"]
    group = "<table:table-cell><text:p>Pears</text:p><draw:g><svg:desc>Sheet.A1</svg:desc></draw:g></table:table-cell>"
    assert texts(odt(f"<office:chart>{group}</office:chart>", kind="spreadsheet"), "ods") == ["Pears"]
    assert texts(odt(group), "odt") == ["Pears", "Sheet.A1"]
