"""Office files of many kinds, made by other programs, and the texts that these find in them.

It runs in an environment of its own, without tfm: `scripts/judges office` makes that. bench_office.py starts it.
"""

import json
import subprocess
import sys
from pathlib import Path

import docx
import openpyxl
import pptx
from docx.enum.section import WD_ORIENT
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from docx.shared import Inches
from ebooklib import epub
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.table import Table
from PIL import Image
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches as Size

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
SENTENCES = ("The old man sat by the river.", "Two dogs run through the snow.", "She reads a long book about cats.")


# ---- Documents of Word


def plain(document):
    for sentence in SENTENCES:
        document.add_paragraph(sentence)


def styles(document):
    document.add_heading("A title of the text", 0)
    document.add_heading("The first part", 1)
    paragraph = document.add_paragraph("Some words are ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(", some are ")
    paragraph.add_run("slanted").italic = True
    paragraph.add_run(" and some are ")
    run = paragraph.add_run("both of it")
    run.bold = run.italic = True
    paragraph.add_run(".")
    document.add_paragraph("A quote of someone", style="Intense Quote")


def lists(document):
    for style in ("List Bullet", "List Number", "List Bullet 2"):
        for sentence in SENTENCES:
            document.add_paragraph(sentence, style=style)


def tables(document):
    table = document.add_table(rows=3, cols=2)
    for n, text in enumerate(("Name", "Town", "Anna", "Paris and Rome", "12", "13 %")):
        table.cell(n // 2, n % 2).text = text
    inner = table.cell(1, 1).add_table(rows=1, cols=2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "within", "a table"
    table.cell(0, 0).merge(table.cell(0, 1))


def heads(document):
    section = document.sections[0]
    section.header.paragraphs[0].text = "The head of each page"
    section.footer.paragraphs[0].text = "The foot of each page"
    section.different_first_page_header_footer = True
    section.first_page_header.paragraphs[0].text = "Only on the first page"
    plain(document)
    document.add_section().orientation = WD_ORIENT.LANDSCAPE
    plain(document)


def pictures(document):
    paragraph = document.add_paragraph("Before it ")
    paragraph.add_run().add_picture(picture(), width=Inches(1))
    paragraph.add_run(" and after it.")


def links(document):
    paragraph = document.add_paragraph("Read ")
    kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/hyperlink"
    number = document.part.relate_to("http://example.org/a?b=c&d=e", kind, is_external=True)
    run = '<w:r><w:rPr><w:u w:val="single"/></w:rPr><w:t>{}</w:t></w:r>'
    text = run.format("our long ") + run.format("page").replace("<w:u ", "<w:b/><w:u ")
    paragraph._p.append(parse_xml(f'<w:hyperlink {nsdecls("w", "r")} r:id="{number}">{text}</w:hyperlink>'))
    paragraph.add_run(" for more.")


def comments(document):
    paragraph = document.add_paragraph("A text with ")
    run = paragraph.add_run("remarks")
    paragraph.add_run(" in it.")
    document.add_comment([run], text="This is not right", author="A")


def changes(document):
    paragraph = document.add_paragraph("We ")
    space = nsdecls("w")
    paragraph._p.append(
        parse_xml(f'<w:del {space} w:id="1" w:author="A"><w:r><w:delText>never</w:delText></w:r></w:del>')
    )
    paragraph._p.append(parse_xml(f'<w:ins {space} w:id="2" w:author="A"><w:r><w:t>always</w:t></w:r></w:ins>'))
    paragraph.add_run(" say what we mean.")


def fields(document):
    paragraph = document.add_paragraph("This is page ")
    for part in ("begin", "PAGE", "separate", "7", "end"):
        inner = f'<w:fldChar w:fldCharType="{part}"/>'
        inner = "<w:instrText> PAGE </w:instrText>" if part == "PAGE" else "<w:t>7</w:t>" if part == "7" else inner
        paragraph._p.append(parse_xml(f"<w:r {nsdecls('w')}>{inner}</w:r>"))
    paragraph.add_run(" of the book.")


def divided(document):
    """Words that a program has divided into runs, tabs and line breaks."""
    paragraph = document.add_paragraph()
    for part in ("Th", "e win", "dow ", "is op", "en."):
        paragraph.add_run(part)
    document.add_paragraph("Name:\tAnna Smith\nTown:\tRome")
    document.add_paragraph("A line that\ngoes on here.")


def right_to_left(document):
    paragraph = document.add_paragraph("שלום לכולם")
    paragraph._p.get_or_add_pPr().append(parse_xml(f"<w:bidi {nsdecls('w')}/>"))
    document.add_paragraph("And left to right.")


def long(document):
    for n in range(400):
        document.add_paragraph(f"{SENTENCES[n % 3]} {SENTENCES[(n + 1) % 3]}")


DOCUMENTS = (
    plain,
    styles,
    lists,
    tables,
    heads,
    pictures,
    links,
    comments,
    changes,
    fields,
    divided,
    right_to_left,
    long,
)


# ---- Presentations


def slides(show):
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "The title of a slide"
    frame = slide.placeholders[1].text_frame
    frame.text = "The first point"
    paragraph = frame.add_paragraph()
    paragraph.level = 1
    for n, text in enumerate(("a ", "bold", " point")):
        run = paragraph.add_run()
        run.text, run.font.bold = text, n == 1


def notes(show):
    slide = show.slides.add_slide(show.slide_layouts[5])
    slide.shapes.title.text = "With notes"
    slide.notes_slide.notes_text_frame.text = "What the speaker says"


def tables_of_slides(show):
    slide = show.slides.add_slide(show.slide_layouts[6])
    table = slide.shapes.add_table(2, 2, Size(1), Size(1), Size(6), Size(2)).table
    table.cell(0, 0).text, table.cell(1, 1).text = "Year", "Number of cats"


def charts(show):
    slide = show.slides.add_slide(show.slide_layouts[6])
    data = CategoryChartData()
    data.categories = ["East", "West"]
    data.add_series("Cars sold", (1, 2))
    place = (Size(1), Size(1), Size(6), Size(4))
    chart = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, data).chart
    chart.has_title = True
    chart.chart_title.text_frame.text = "What we sold"


def groups(show):
    slide = show.slides.add_slide(show.slide_layouts[6])
    group = slide.shapes.add_group_shape()
    box = group.shapes.add_textbox(Size(1), Size(1), Size(3), Size(1))
    box.text_frame.text = "In a group\vof shapes\tand tabs"
    slide.shapes.add_picture(picture(), Size(5), Size(1))


def many_slides(show):
    for _ in range(12):
        slides(show)


SHOWS = (slides, notes, tables_of_slides, charts, groups, many_slides)


# ---- Spreadsheets


def cells(sheet):
    for row in (("Name", "Price"), ("Red apples", 2.5), ("Pears & plums", 3), ("Two lines\nin a cell", None)):
        sheet.append(row)


def formulas(sheet):
    cells(sheet)
    sheet["C2"], sheet["C3"] = "=B2*2", '=IF(B3>2,"yes","no")'


def sheet_table(sheet):
    for row in (("Product name", "Price", "Total"), ("Red apples", 2, "=B2*2"), ("Pears", 3, "=SUM(Goods[Price])")):
        sheet.append(row)
    sheet.add_table(Table(displayName="Goods", ref="A1:C3"))


def rich(sheet):
    sheet["A1"] = CellRichText("This is ", TextBlock(InlineFont(b=True), "very bold"), " text")


def remarks(sheet):
    cells(sheet)
    sheet["A2"].comment = Comment("Are they ripe?", "A")


def validated(sheet):
    sheet["A1"] = "Choose one"
    validation = DataValidation(type="list", formula1='"red,green"')
    sheet.add_data_validation(validation)
    validation.add("B1")
    sheet.merge_cells("A3:C3")
    sheet["A3"] = "Over three columns"


def chart_of_sheet(sheet):
    cells(sheet)
    chart = BarChart()
    chart.title = "Prices of fruit"
    chart.add_data(Reference(sheet, min_col=2, min_row=1, max_row=3), titles_from_data=True)
    sheet.add_chart(chart, "E2")


SHEETS = (cells, formulas, sheet_table, rich, remarks, validated, chart_of_sheet)

# ---- By LibreOffice, from one text in its own format that has what the libraries above cannot make

FLAT = """<?xml version="1.0" encoding="UTF-8"?>
<office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:dc="http://purl.org/dc/elements/1.1/"
 xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0" xmlns:xlink="http://www.w3.org/1999/xlink"
 xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"
 xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0" office:version="1.3"
 office:mimetype="application/vnd.oasis.opendocument.text"><office:automatic-styles>
<style:style style:name="T1" style:family="text"><style:text-properties fo:font-weight="bold"/></style:style>
<style:style style:name="T2" style:family="text"><style:text-properties fo:font-style="italic"/></style:style>
</office:automatic-styles><office:body><office:text>{}</office:text></office:body></office:document>"""
FLAT_TEXTS = {
    "notes": """<text:p>A text<text:note text:id="f1" text:note-class="footnote">
<text:note-citation>1</text:note-citation><text:note-body><text:p>With a note below.</text:p></text:note-body>
</text:note> with notes.</text:p>""",
    "boxes": """<text:p>Around <draw:frame text:anchor-type="as-char" svg:width="4cm" svg:height="1cm">
<draw:text-box><text:p>Words in a box</text:p></draw:text-box></draw:frame> goes the text.</text:p>""",
    "remarks": """<text:p>Look <office:annotation office:name="1"><dc:creator>A</dc:creator>
<text:p>Is it so?</text:p></office:annotation>here<office:annotation-end office:name="1"/> at it.</text:p>""",
    "formatting": """<text:h text:outline-level="1">A head</text:h>
<text:p>One <text:span text:style-name="T1">bold <text:span text:style-name="T2">and slanted</text:span></text:span>
word, <text:a xlink:href="http://example.org/">a link</text:a><text:line-break/>and a line.</text:p>
<text:list><text:list-item><text:p>An item</text:p></text:list-item></text:list>""",
    "table": """<table:table><table:table-column/><table:table-column/><table:table-row>
<table:table-cell><text:p>Left cell</text:p></table:table-cell>
<table:table-cell><text:p>Right cell</text:p></table:table-cell></table:table-row></table:table>
<text:p>After<text:tab/>it.</text:p>""",
}


def picture():
    path = Path("picture.png")
    if not path.exists():
        Image.new("RGB", (60, 40), "red").save(path)
    return str(path)


def book(path):
    made = epub.EpubBook()
    made.set_identifier(path.stem)
    made.set_title("A book of cats")
    made.set_language("en")
    chapters = []
    for n, sentence in enumerate(SENTENCES):
        chapter = epub.EpubHtml(title=f"Part {n}", file_name=f"part {n}.xhtml", lang="en")
        chapter.content = f"<h1>The part</h1><p>{sentence} <b>Bold</b> and <i>slanted</i>.</p>"
        made.add_item(chapter)
        chapters.append(chapter)
    made.toc, made.spine = tuple(chapters), ["nav", *chapters]
    made.add_item(epub.EpubNcx())
    made.add_item(epub.EpubNav())
    epub.write_epub(str(path), made)


def make(folder, soffice):
    for fill in DOCUMENTS:
        document = docx.Document()
        fill(document)
        document.save(folder / f"{fill.__name__}.docx")
    for fill in SHOWS:
        show = pptx.Presentation()
        fill(show)
        show.save(folder / f"{fill.__name__}.pptx")
    for fill in SHEETS:
        workbook = openpyxl.Workbook()
        fill(workbook.active)
        workbook.save(folder / f"{fill.__name__}.xlsx")
    book(folder / "book.epub")
    if not soffice:
        return
    flat = folder / "flat"
    flat.mkdir()
    for name, text in FLAT_TEXTS.items():
        (flat / f"by_libreoffice_{name}.fodt").write_text(FLAT.format(text), encoding="utf-8")
    convert(soffice, "odt", folder, *flat.glob("*.fodt"))
    convert(soffice, "docx", folder, *flat.glob("*.fodt"))
    convert(soffice, "odp", folder, folder / "many_slides.pptx", folder / "charts.pptx")
    convert(soffice, "ods", folder, folder / "sheet_table.xlsx", folder / "remarks.xlsx")


def convert(soffice, ending, folder, *files):
    command = [soffice, "--headless", "--convert-to", ending, "--outdir", str(folder), *map(str, files)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)


# ---- The texts that the libraries find


def texts(path):
    """What a reader sees, paragraph by paragraph, of each part that the library knows."""
    if path.suffix == ".docx":
        document = docx.Document(path)
        parts = [document.part, *(one.target_part for one in document.part.rels.values() if not one.is_external)]
        roots = [part.element for part in parts if hasattr(part, "element")]
        return [found for root in roots for found in of_paragraphs(root, f"{W}p", f"{W}t")]
    if path.suffix == ".pptx":
        found = []
        for slide in pptx.Presentation(path).slides:
            roots = [slide._element, *([slide.notes_slide._element] if slide.has_notes_slide else [])]
            roots += [shape.chart.part._element for shape in slide.shapes if shape.has_chart]
            found += [one for root in roots for one in of_paragraphs(root, f"{A}p", f"{A}t")]
        return found
    if path.suffix == ".xlsx":
        rows = [row for sheet in openpyxl.load_workbook(path, rich_text=True) for row in sheet.iter_rows()]
        values = [str(cell.value) for row in rows for cell in row if cell.data_type == "s"]
        values += [cell.comment.text for row in rows for cell in row if cell.comment is not None]
        return values + [
            name for sheet in openpyxl.load_workbook(path) for one in sheet.tables.values() for name in one.column_names
        ]
    if path.suffix == ".epub":
        items = epub.read_epub(str(path)).get_items()
        return [
            "".join(docx.oxml.parse_xml(one.get_content()).itertext())
            for one in items
            if one.media_type == "application/xhtml+xml"
        ]
    return []


def of_paragraphs(root, paragraph, text):
    skipped = {f"{W}del", f"{W}moveFrom"}
    found = []
    for one in root.iter(paragraph):
        own = [
            part.text or ""
            for part in one.iter(text)
            if next(above for above in part.iterancestors(paragraph)) is one
            and not any(above.tag in skipped for above in part.iterancestors())
        ]
        found.append("".join(own))
    return [one for one in found if one.strip()]


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
    else:
        print(json.dumps({name: texts(Path(name)) for name in sys.argv[2:]}))
