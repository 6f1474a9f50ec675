"""Office Open XML: which texts are translated, how runs get their formatting, and what stays as it is."""

import re
import time
from xml.etree import ElementTree

from hypothesis import example, given
from hypothesis import strategies as st

from tests.addons.documents.office_files import (
    PICTURE,
    A,
    P,
    W,
    archive,
    capitals,
    docx,
    members,
    pptx,
    texts,
    translate,
    xlsx,
)
from tests.addons.documents.test_markup import reversed_words
from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
BOLD, ITALIC = "<w:rPr><w:b/></w:rPr>", "<w:rPr><w:i/></w:rPr>"


def run(text: str, properties: str = "") -> str:
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*runs: str) -> str:
    return f"<w:p><w:pPr><w:jc/></w:pPr>{''.join(runs)}</w:p>"


def body(data: bytes) -> str:
    text = members(data)["word/document.xml"].decode()
    return text[text.index("<w:body>") + 8 : text.index("<w:sectPr/>")]


def formatted(data: bytes) -> list[tuple[str, str]]:
    """Each character of a document, with the formatting of its run."""
    found = []
    for one in ElementTree.fromstring(members(data)["word/document.xml"]).iter(f"{_W}r"):
        names = " ".join(
            sorted(part.tag.removeprefix(_W) for part in one.findall(f"{_W}rPr/*") if part.tag[-4:] != "lang")
        )
        found += [(character, names) for part in one.findall(f"{_W}t") for character in part.text or ""]
    return found


def field(instruction: str, result: str) -> str:
    def part(kind: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'

    code = f"<w:r><w:instrText> {instruction} </w:instrText></w:r>"
    return part("begin") + code + part("separate") + run(result) + part("end")


BOX = (
    "<w:r><w:pict><v:textbox xmlns:v='urn:v'><w:txbxContent><w:p><w:r><w:t>In a box</w:t></w:r></w:p></w:txbxContent>"
    "</v:textbox></w:pict></w:r>"
)


@each(
    "paragraphs, found",
    [
        (paragraph(run("Two "), run("dogs", BOLD), run(" run.")), ["Two dogs run."]),
        (paragraph(run("Hel"), '<w:proofErr w:type="x"/>', run("lo")), ["Hello"]),  # as Word divides words
        (paragraph(run("Name:"), "<w:r><w:tab/></w:r>", run("John Smith")), ["Name:", "John Smith"]),
        (paragraph(run("One line"), "<w:r><w:br/></w:r>", run("Another")), ["One line", "Another"]),
        (paragraph(run("One line"), "<w:r><w:br/></w:r>", run("goes on")), ["One line goes on"]),
        (paragraph(run("12.5"), run(" %")), []),
        (paragraph(run("On page "), field("PAGE", "seven"), run(" it is.")), ["On page seven it is."]),
        (paragraph(field("HYPERLINK x", "A page")), ["A page"]),
        (paragraph('<w:fldSimple w:instr=" DATE ">' + run("May") + "</w:fldSimple>", run(" is here.")), ["is here."]),
        (paragraph(run("Old "), "<w:del><w:r><w:delText>no</w:delText></w:r></w:del>", run("text")), ["Old text"]),
        (paragraph(run("New "), "<w:ins>" + run("words") + "</w:ins>"), ["New words"]),
        (paragraph("<w:moveFrom>" + run("no") + "</w:moveFrom>", run("yes")), ["yes"]),
        (paragraph(run("A cat."), BOX), ["A cat.", "In a box"]),
        ("<w:tbl><w:tr><w:tc>" + paragraph(run("A cell")) + "</w:tc></w:tr></w:tbl>", ["A cell"]),
        (paragraph("<w:sdt><w:sdtPr/><w:sdtContent>" + run("A field") + "</w:sdtContent></w:sdt>"), ["A field"]),
        (
            paragraph(
                run("Choose "),
                '<w:sdt><w:sdtPr><w:dropDownList><w:listItem w:displayText="A cat" w:value="cat"/></w:dropDownList>'
                "</w:sdtPr><w:sdtContent>" + run("A cat") + "</w:sdtContent></w:sdt>",
            ),
            ["A cat", "Choose A cat"],
        ),
        (paragraph(run("a"), "<w:r><w:noBreakHyphen/></w:r>", run("b c")), ["a\u2011b c"]),
        (paragraph(run("A &amp; B &lt;c&gt;")), ["A & B <c>"]),
        (paragraph(run("A"), '<w:r><w:drawing><x descr="no"/></w:drawing></w:r>', run("cat")), ["Acat"]),
        (f"<w:p {W}/>" + paragraph(), []),
    ],
)
def test_the_texts_of_a_document_of_word(paragraphs: str, found: list[str]) -> None:
    assert sorted(texts(docx(paragraphs), "docx")) == sorted(found)


def test_notes_comments_and_headers_are_translated_once() -> None:
    data = docx(paragraph(run("Text")), footnotes=paragraph(run("Note")), header=paragraph(run("Head")))
    assert sorted(texts(data, "docx")) == ["Head", "Note", "Text"]


def test_all_else_stays_as_it_is() -> None:
    data = docx(paragraph(run("Two "), run("dogs", BOLD)), header=paragraph(run("12")))
    found, before = members(translate(data, "docx")[0]), members(data)
    assert list(found) == list(before)
    assert found["word/media/image1.png"] == PICTURE
    assert {name for name in found if found[name] != before[name]} == {"word/document.xml"}
    assert members(translate(data, "docx", echo)[0]) == before


def test_runs_keep_their_formatting_where_the_words_go() -> None:
    data = docx(paragraph(run("two "), run("black", BOLD), run(" "), run("dogs", ITALIC), run(" run.")))
    found = formatted(translate(data, "docx", reversed_words)[0])
    assert "".join(character for character, _ in found) == "run. dogs black two"
    assert "".join(character for character, names in found if names == "b") == "black"
    assert "".join(character for character, names in found if names == "i") == "dogs"


def test_a_link_keeps_its_target_and_formatting() -> None:
    link = '<w:hyperlink r:id="rId1">' + run("our ", "<w:rPr><w:u/></w:rPr>") + run("page", BOLD) + "</w:hyperlink>"
    found = body(translate(docx(paragraph(run("see "), link, run(" now"))), "docx", reversed_words)[0])
    inner = found[found.index("<w:hyperlink") : found.index("</w:hyperlink>")]
    assert "".join(ElementTree.fromstring(f'<a {W} xmlns:r="r">{inner}</w:hyperlink></a>').itertext()) == "page our"
    assert found.count('<w:hyperlink r:id="rId1">') == 1
    assert "".join(ElementTree.fromstring(f'<a {W} xmlns:r="r">{found}</a>').itertext()) == "now page our see"


def test_words_with_a_reading_are_translated_and_the_reading_stays_with_them() -> None:
    reading = "<w:rubyPr><w:hps/></w:rubyPr><w:rt><w:r><w:t>かん</w:t></w:r></w:rt>"
    word = f"<w:r>{BOLD}<w:ruby>{reading}<w:rubyBase>{{}}</w:rubyBase></w:ruby></w:r>"
    data = docx(paragraph(run("the "), word.format(run("old castle", ITALIC)), run(" of Tom")))
    assert texts(data, "docx") == ["the old castle of Tom"]
    found = body(translate(data, "docx", reversed_words)[0])
    assert re.findall(r"<w:t(?: [^>]*)?>([^<]*)", found) == ["Tom of ", "かん", "castle old", " the"]
    assert word.format(run("castle old", ITALIC)) in found
    with_more = docx(paragraph("<w:r><w:t>a </w:t><w:ruby><w:rubyBase/></w:ruby><w:t>cat</w:t></w:r>"))
    assert body(translate(with_more, "docx")[0]).count("<w:ruby>") == 1


@each(
    "paragraph, found",
    [
        ("<a:r><a:t>One line</a:t></a:r><a:br/><a:r><a:t>Another</a:t></a:r>", ["One line", "Another"]),
        ("<a:r><a:t>One</a:t></a:r><a:br><a:rPr/></a:br><a:r><a:t>line goes on</a:t></a:r>", ["One line goes on"]),
        ("<a:r><a:t>One line_x000B_Another\tof</a:t></a:r>", ["One line", "Another", "of"]),
        ("<a:br/><a:r><a:t>One line</a:t></a:r><a:br/>", ["One line"]),
    ],
)
def test_a_line_break_of_powerpoint_is_beside_runs(paragraph: str, found: list[str]) -> None:
    data = pptx(f"<a:p>{paragraph}</a:p>")
    assert texts(data, "pptx") == found
    assert members(translate(data, "pptx", echo)[0]) == members(data)
    written = members(translate(data, "pptx")[0])["ppt/slides/slide1.xml"].decode()
    assert written.count("<a:br") == paragraph.count("<a:br")
    shown = " ".join(re.findall("<a:t>([^<]*)", written)).replace("_x000B_", " ")
    assert shown.split() == " ".join(found).upper().split()


def test_labels_of_charts_are_translated_and_numbers_stay() -> None:
    space = 'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"'
    point = "<c:pt idx='0'><c:v>{}</c:v></c:pt>"
    chart = (
        f"<c:x {space}><c:tx><c:v>Sales</c:v></c:tx><c:tx><c:strRef><c:strCache>{point.format('Costs')}</c:strCache>"
        f"</c:strRef></c:tx><c:cat><c:multiLvlStrCache><c:lvl>{point.format('Spring')}</c:lvl></c:multiLvlStrCache>"
        f"<c:strLit>{point.format('Autumn')}</c:strLit></c:cat><c:val><c:numCache>{point.format('1e5')}</c:numCache>"
        "</c:val></c:x>"
    )
    before = members(pptx(""))
    kind = "application/vnd.openxmlformats-officedocument.drawingml.chart+xml"
    added = f'<Override PartName="/ppt/charts/chart1.xml" ContentType="{kind}"/></Types>'
    types = before["[Content_Types].xml"].decode().replace("</Types>", added)
    data = archive({**before, "[Content_Types].xml": types, "ppt/charts/chart1.xml": chart})
    assert texts(data, "pptx") == ["Sales", "Costs", "Spring", "Autumn"]


def test_texts_of_layouts_are_translated_unless_they_only_say_what_belongs_there() -> None:
    shape = "<p:sp><p:nvSpPr><p:cNvPr id='1' name='x'/><p:nvPr>{}</p:nvPr></p:nvSpPr><p:txBody>{}</p:txBody></p:sp>"
    picture = "<p:pic><p:nvPicPr><p:cNvPr descr='A prompt'/><p:nvPr><p:ph/></p:nvPr></p:nvPicPr></p:pic>"
    fixed = shape.format("", "<a:p><a:r><a:t>For Tom only</a:t></a:r></a:p>")
    prompt = shape.format("<p:ph type='title'/>", "<a:p><a:r><a:t>Click to edit</a:t></a:r></a:p>")
    slide = f"<p:sld {P} {A}>{prompt}</p:sld>"
    layouts = {
        f"ppt/{kind}s/{kind}1.xml": (kind, f"<p:x {P} {A}>{fixed}<p:grpSp>{prompt}</p:grpSp>{picture}</p:x>")
        for kind in ("slideLayout", "slideMaster", "notesMaster", "handoutMaster")
    }
    before = members(pptx(""))
    types = before["[Content_Types].xml"].decode()
    kind_of = "application/vnd.openxmlformats-officedocument.presentationml"
    added = "".join(
        f'<Override PartName="/{name}" ContentType="{kind_of}.{kind}+xml"/>' for name, (kind, _) in layouts.items()
    )
    before["[Content_Types].xml"] = types.replace("</Types>", f"{added}</Types>").encode()
    before["ppt/slides/slide1.xml"] = slide.encode()
    data = archive({**before, **{name: content for name, (_, content) in layouts.items()}})
    assert sorted(texts(data, "pptx")) == ["Click to edit", *["For Tom only"] * 4]


def test_marks_pictures_and_fields_are_written_once() -> None:
    marks = '<w:bookmarkStart w:id="3"/>', '<w:bookmarkEnd w:id="3"/>'
    note, page = '<w:r><w:footnoteReference w:id="2"/></w:r>', field("PAGE", "7")
    data = docx(paragraph(run("a "), marks[0], run("big"), marks[1], run(" cat"), note, run(" on "), page, run(" sat")))
    found = body(translate(data, "docx", reversed_words)[0])
    for one in (*marks, '<w:footnoteReference w:id="2"/>', "<w:instrText> PAGE </w:instrText>"):
        assert found.count(one) == 1
    assert found.index(marks[0]) < found.index("big") < found.index(marks[1])
    kinds = [found.index(f'w:fldCharType="{kind}"') for kind in ("begin", "separate", "end")]
    assert kinds == sorted(kinds)
    assert (
        "".join(ElementTree.fromstring(f"<a {W}>{found}</a>").itertext()).replace(" PAGE ", "") == "sat 7 on cat big a"
    )


@each(
    "parts",
    [
        ["see ", field("HYPERLINK x", "our page"), " now"],
        [field("HYPERLINK x", "our page"), " now"],
        ["see ", field("HYPERLINK x", "our page")],
        [field("HYPERLINK x", "our page") + "<w:r><w:tab/></w:r>", "next"],
    ],
)
def test_a_link_that_is_a_field_keeps_its_parts_around_its_text(parts: list[str]) -> None:
    data = docx(paragraph(*[part if part.startswith("<") else run(part) for part in parts]))
    for one in (data, translate(data, "docx", reversed_words)[0], translate(data, "docx", capitals)[0]):
        found = body(one)
        ElementTree.fromstring(f"<a {W}>{found}</a>")
        kinds = [found.index(f'w:fldCharType="{kind}"') for kind in ("begin", "separate", "end")]
        assert kinds == sorted(kinds)
        inner = ElementTree.fromstring(
            f"<a {W}><w:r>{found[kinds[1] - len('<w:fldChar ') : kinds[2] - len('<w:fldChar ')]}</w:r></a>"
        )
        assert sorted("".join(inner.itertext()).lower().split()) == ["our", "page"]


def test_the_beginning_of_a_field_that_ends_in_another_paragraph_stays_in_one_piece() -> None:
    begin = field("TOC", "").partition("<w:r><w:t xml")[0]
    found = body(translate(docx(paragraph(run("a "), begin, run("b c"))), "docx", reversed_words)[0])
    assert begin in found


def test_space_at_the_end_of_a_text_that_does_not_keep_it_stays_visible() -> None:
    data = docx("<w:p><w:r><w:t>big</w:t></w:r>" + run(" cat", BOLD) + "</w:p>")
    found = formatted(translate(data, "docx", reversed_words)[0])
    assert "".join(character for character, _ in found) == "cat big"
    texts_of = ElementTree.fromstring(members(translate(data, "docx", reversed_words)[0])["word/document.xml"])
    for one in texts_of.iter(f"{_W}t"):
        is_kept = one.get("{http://www.w3.org/XML/1998/namespace}space") == "preserve"
        assert is_kept or (one.text or "") == (one.text or "").strip()


def test_a_box_within_a_text_is_translated_with_it() -> None:
    found = body(translate(docx(paragraph(run("A cat"), BOX, run(" sat."))), "docx")[0])
    assert "IN A BOX" in found
    assert found.count("txbxContent") == 2
    assert "".join(ElementTree.fromstring(f"<a {W}>{found}</a>").itertext()) in (
        "A CATIN A BOX SAT.",
        "A CAT SAT.IN A BOX",
    )


def test_the_description_of_a_picture_is_translated() -> None:
    space = 'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"'
    data = docx(
        paragraph(
            f'<w:r><w:drawing {space}><wp:docPr id="1" name="P 1" descr="A &quot;red&quot; cat"/></w:drawing></w:r>'
        )
    )
    assert '<wp:docPr id="1" name="P 1" descr="A &quot;RED&quot; CAT"/>' in body(translate(data, "docx")[0])


_TEXT = st.text(st.sampled_from("ab c.,é&<\"'"), max_size=8)
_FORMATS = st.sampled_from(["", BOLD, ITALIC, "<w:rPr><w:b/><w:i/></w:rPr>", '<w:rPr><w:lang w:val="en"/></w:rPr>'])
_OBJECTS = ('<w:bookmarkStart w:id="1"/>', '<w:bookmarkEnd w:id="1"/>', "<w:r><w:sym/></w:r>")
_MORE = (field("PAGE", "7"), field("HYPERLINK x", "a b"), "<w:r><w:tab/></w:r>", "<w:r><w:br/></w:r>", BOX)
_MORE += ("<w:hyperlink>" + run("a ") + run("b", BOLD) + "</w:hyperlink>",)
_OTHERS = st.sampled_from(["", *_OBJECTS, *_MORE])


@given(st.lists(st.tuples(_TEXT, _FORMATS, _OTHERS, st.booleans()), max_size=8))
@example([("a", "", "", False), ("<", "", field("PAGE", "7"), False), ("a", "", BOX, False)])  # a7<a: one word
@example([("<", "", "", True), (" ", "", "", False), ("", "", field("HYPERLINK x", "a b"), False)])  # a space alone
def test_each_letter_keeps_its_formatting_where_a_translation_has_the_same_words(
    parts: list[tuple[str, str, str, bool]],
) -> None:
    escaped = [(text.replace("&", "&amp;").replace("<", "&lt;"), *rest) for text, *rest in parts]
    runs = [
        other + (f"<w:ins>{run(text, form)}</w:ins>" if inner else run(text, form))
        for text, form, other, inner in escaped
    ]
    data = docx(paragraph(*runs))
    found = translate(data, "docx")[0]
    assert [(letter, names) for letter, names in formatted(found) if not letter.isspace()] == [
        (letter, names)
        for character, names in formatted(data)
        if not character.isspace()
        for letter in character.upper()
    ]
    for other in _OBJECTS:
        inner = other.replace("<w:r>", "").replace("</w:r>", "")
        assert body(found).count(inner) == body(data).count(inner)
    kinds = re.findall('w:fldCharType="([a-z]+)"', body(found))
    assert kinds == ["begin", "separate", "end"] * (len(kinds) // 3)
    assert members(translate(data, "docx", echo)[0]) == members(data)


def test_slides_keep_fields_breaks_and_what_they_say_of_their_language() -> None:
    data = pptx(
        '<a:p><a:r><a:rPr lang="en-US" dirty="0"/><a:t>A </a:t></a:r>'
        '<a:r><a:rPr lang="en-US" b="1"/><a:t>big</a:t></a:r><a:r><a:rPr lang="de-DE"/>'
        '<a:t> cat</a:t></a:r><a:endParaRPr lang="en-US"/></a:p>'
        '<a:p><a:r><a:t>Left\tRight</a:t></a:r></a:p><a:p><a:fld id="x" type="slidenum"><a:t>one</a:t></a:fld></a:p>'
    )
    assert texts(data, "pptx") == ["A big cat", "Left", "Right"]
    found = members(translate(data, "pptx", reversed_words)[0])["ppt/slides/slide1.xml"].decode()
    assert '<a:rPr lang="en-US" b="1"/><a:t>big</a:t>' in found
    assert "<a:t>Left\tRight</a:t>" in found
    assert '<a:fld id="x" type="slidenum"><a:t>one</a:t></a:fld>' in found
    assert "<a:bodyPr/><a:p><a:r>" in found
    assert found.endswith('<a:endParaRPr lang="en-US"/></a:p>' + found[found.index("<a:p><a:r><a:t>Left") :])
    assert A in found


def table(*names: str) -> str:
    columns = "".join(f'<tableColumn id="{n}" name="{name}"/>' for n, name in enumerate(names, 1))
    return f'name="T" ref="B2:{"ABCDEF"[len(names)]}3"><tableColumns>{columns}</tableColumns>'


def cells(*shared: int) -> str:
    found = "".join(f'<c r="{"BCDEF"[n]}2" t="s"><v>{one}</v></c>' for n, one in enumerate(shared))
    return f'<row r="2">{found}</row>'


def test_columns_of_tables_are_named_after_their_translated_heads_also_in_formulas() -> None:
    formula = "<row r='3'><c r='B3'><f>SUM(T[a b])+T[[#This Row],[c]]+T[@[a b]]</f><v>5</v></c></row>"
    strings = "<si/><si a='b'/><si><t>a b</t></si><si><r><t>c</t></r></si>"
    data = xlsx(strings, cells(2, 3) + formula, table1=table("a b", "c"))
    found = members(translate(data, "xlsx", reversed_words)[0])
    assert b'name="b a"' in found["xl/tables/table1.xml"]
    assert b"<f>SUM(T[b a])+T[[#This Row],[c]]+T[@[b a]]</f><v>5</v>" in found["xl/worksheets/sheet1.xml"]


def test_columns_of_a_table_keep_different_names() -> None:
    def same(texts: list[str]) -> list[object]:
        return [one for text in texts for one in capitals(["x" if text in "ab" else text])]

    strings = "<si><t>a</t></si><si><t>b</t></si><si><t>c</t></si>"
    data = xlsx(strings, cells(0, 1, 2), table1=table("a", "b", "c"))
    found = members(translate(data, "xlsx", same)[0])  # type: ignore[arg-type]
    assert b'name="X"/>' in found["xl/tables/table1.xml"]
    assert b'name="X 2"/>' in found["xl/tables/table1.xml"]
    assert b"<t>X</t></si><si><t>X 2</t>" in found["xl/sharedStrings.xml"]


def test_cells_are_translated_line_by_line_and_numbers_stay() -> None:
    data = xlsx(
        "<si><t>One line\nAnother &amp; more</t></si><si><t>12 %</t></si>"
        '<si><r><t xml:space="preserve">A </t></r><r><rPr><b/></rPr><t>big</t></r>'
        '<r><t xml:space="preserve"> cat</t></r></si>'
        "<si><t>漢字</t><rPh sb='0' eb='2'><t>かんじ</t></rPh></si>",
        '<row r="1"><c r="A1" t="inlineStr"><is><t>In a cell</t></is></c>'
        '<c r="B1" t="str"><f>A1</f><v>no</v></c></row>',
    )
    assert sorted(texts(data, "xlsx")) == ["A big cat", "Another & more", "In a cell", "One line", "漢字"]
    found = members(translate(data, "xlsx")[0])
    assert "<t>ONE LINE\nANOTHER &amp; MORE</t>" in found["xl/sharedStrings.xml"].decode()
    assert "<rPr><b/></rPr><t" in found["xl/sharedStrings.xml"].decode()
    assert "<t>かんじ</t>" in found["xl/sharedStrings.xml"].decode()
    assert b"<is><t>IN A CELL</t></is>" in found["xl/worksheets/sheet1.xml"]
    assert b"<v>no</v>" not in found["xl/worksheets/sheet1.xml"]  # it is computed again


@each(
    "unit",
    [
        run("word ", BOLD),
        run("word "),
        "<w:r><w:tab/></w:r>" + run("word"),
        field("PAGE", "7"),
        "<w:ins>" + run("a b") + "</w:ins>",
    ],
)
def test_time_grows_with_the_number_of_runs_alone(unit: str) -> None:
    data = docx(paragraph(run("A text "), unit * 4_000) + paragraph(*[run("More")] * 2_000))
    start = time.process_time()
    translate(data, "docx")
    assert time.process_time() - start < 5  # seconds; some 0.5 here, and quadratic time is far more
