"""Small office files, made of XML by hand as their standards have it, and what is in them."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

from tests.addons.documents.test_markup_properties import translated
from transformer_cli.addons.documents.document import TranslatedUnit, translate_parsed
from transformer_cli.addons.documents.formats import formats
from transformer_cli.addons.documents.reading import read_file
from transformer_cli.decoding.results import Translated

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
P = 'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
X = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
ODF = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{full}:1.0"'
    for name, full in (
        *(("office", "office"), ("text", "text"), ("table", "table"), ("style", "style"), ("draw", "drawing")),
        *(("svg", "svg-compatible"), ("fo", "xsl-fo-compatible"), ("presentation", "presentation")),
    )
)
ODF += ' xmlns:officeooo="http://openoffice.org/2009/office" xmlns:calcext="urn:calcext"'
PICTURE = bytes(range(256)) * 8  # stands for a member that is no text
_WORD, _SLIDES, _SHEETS = (
    f"application/vnd.openxmlformats-officedocument.{name}ml."
    for name in ("wordprocessing", "presentation", "spreadsheet")
)
Translate = Callable[[Sequence[str]], list[Translated]]


def archive(members: Mapping[str, str | bytes]) -> bytes:
    target = BytesIO()
    with ZipFile(target, "w") as file:
        for name, content in members.items():
            info = ZipInfo(name, (2026, 1, 2, 3, 4, 6))
            info.compress_type = ZIP_STORED if name == "mimetype" else ZIP_DEFLATED
            file.writestr(info, content)
    return target.getvalue()


def members(data: bytes) -> dict[str, bytes]:
    with ZipFile(BytesIO(data)) as file:
        return {info.filename: file.read(info) for info in file.infolist()}


def _types(parts: Mapping[str, str]) -> str:
    overrides = "".join(f'<Override PartName="/{name}" ContentType="{kind}"/>' for name, kind in parts.items())
    return f'<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">{overrides}</Types>'


def docx(paragraphs: str, **others: str) -> bytes:
    """A document of these elements of its body; `others` are footnotes, header and the like with theirs."""
    parts = {f"word/{name}.xml": f"{_WORD}{name}+xml" for name in others}
    roots = {"footnotes": "footnotes", "comments": "comments", "header": "hdr"}
    return archive(
        {
            "[Content_Types].xml": _types({"word/document.xml": f"{_WORD}document.main+xml", **parts}),
            "word/document.xml": f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\r\n<w:document {W} '
            'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">'
            f"<w:body>{paragraphs}<w:sectPr/></w:body></w:document>",
            "word/media/image1.png": PICTURE,
            **{f"word/{name}.xml": f"<w:{roots[name]} {W}>{text}</w:{roots[name]}>" for name, text in others.items()},
        }
    )


def pptx(paragraphs: str, number: int = 1) -> bytes:
    return archive(
        {
            "[Content_Types].xml": _types(
                {
                    "ppt/presentation.xml": f"{_SLIDES}presentation.main+xml",
                    f"ppt/slides/slide{number}.xml": f"{_SLIDES}slide+xml",
                }
            ),
            "ppt/presentation.xml": f"<p:presentation {P}/>",
            f"ppt/slides/slide{number}.xml": f"<p:sld {P} {A}><p:txBody><a:bodyPr/>{paragraphs}</p:txBody></p:sld>",
        }
    )


def xlsx(strings: str, sheet: str = "", **tables: str) -> bytes:
    """A workbook with these elements of its shared texts and its only sheet, and tables of that."""
    relations = "".join(
        f'<Relationship Id="r{name}" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/table"'
        f' Target="../tables/{name}.xml"/>'
        for name in tables
    )
    space = "http://schemas.openxmlformats.org/package/2006/relationships"
    return archive(
        {
            "[Content_Types].xml": _types(
                {
                    "xl/workbook.xml": f"{_SHEETS}sheet.main+xml",
                    "xl/sharedStrings.xml": f"{_SHEETS}sharedStrings+xml",
                    "xl/worksheets/sheet1.xml": f"{_SHEETS}worksheet+xml",
                }
            ),
            "xl/workbook.xml": f"<workbook {X}/>",
            "xl/sharedStrings.xml": f"<sst {X}>{strings}</sst>",
            "xl/worksheets/sheet1.xml": f"<worksheet {X}><sheetData>{sheet}</sheetData></worksheet>",
            "xl/worksheets/_rels/sheet1.xml.rels": f'<Relationships xmlns="{space}">{relations}</Relationships>',
            **{f"xl/tables/{name}.xml": f"<table {X} {text}</table>" for name, text in tables.items()},
        }
    )


def odt(paragraphs: str, styles: str = "", kind: str = "text") -> bytes:
    return archive(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:document-content {ODF}><office:automatic-styles>{styles}</office:automatic-styles>"
            f"<office:body><office:text>{paragraphs}</office:text></office:body></office:document-content>",
            "Pictures/1.png": PICTURE,
        }
    )


def epub(chapter: str, *, encrypted: str = "") -> bytes:
    book = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata>'
        "<dc:title>A book</dc:title><dc:creator>A. Writer</dc:creator></metadata><manifest>"
        '<item id="toc" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
        '<item id="one" href="text/chapter%201.xhtml" media-type="application/xhtml+xml"/></manifest>'
        '<spine><itemref idref="one"/></spine></package>'
    )
    locked = f'<e><EncryptedData><CipherReference URI="{encrypted}"/></EncryptedData></e>'
    return archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<a><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></a>',
            "OPS/book.opf": book,
            "OPS/toc.ncx": "<ncx><navMap><navLabel><text>The first</text></navLabel></navMap></ncx>",
            "OPS/text/chapter 1.xhtml": '<?xml version="1.0"?><!DOCTYPE html PUBLIC "x" "y"><html><head/>'
            f"<body>{chapter}</body></html>",
            **({"META-INF/encryption.xml": locked} if encrypted else {}),
        }
    )


def capitals(texts: Sequence[str]) -> list[Translated]:
    """Translates into capitals, each word by itself."""
    return [translated(text.upper(), [(i, i) for i in range(len(text.split()))]) for text in texts]


def translate(data: bytes, kind: str, by: Translate = capitals) -> tuple[bytes, list[TranslatedUnit]]:
    """The file translated, and its units."""
    opened = read_file(formats()[kind], data, f"file.{kind}")
    documents = translate_parsed(opened.documents, by)
    return opened.write([one.text for one in documents]), [unit for one in documents for unit in one.units]


def texts(data: bytes, kind: str) -> list[str]:
    return [one.source for one in translate(data, kind)[1]]
