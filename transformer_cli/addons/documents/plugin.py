"""What this add-on brings: formats of documents."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("text", endings=(".txt",), is_bilingual=True)
def text(content: str) -> "Document":
    from transformer_cli.addons.documents.plain import parse_text

    return parse_text(content)


@document_format(
    "html",
    endings=(".html", ".htm", ".xhtml"),
    encoding=r"<meta\s[^<>]{0,200}?\bcharset\s*=\s*[\"']?([\w-]{1,40})",
)
def html(content: str) -> "Document":
    from transformer_cli.addons.documents.html import parse_html

    return parse_html(content)


@document_format("xml", endings=(".xml",), encoding=r"\A<\?xml\s[^<>]{0,200}?\bencoding\s*=\s*[\"']([\w.-]{1,40})")
def xml(content: str) -> "Document":
    from transformer_cli.addons.documents.xml import parse_xml

    return parse_xml(content)


@document_format("markdown", endings=(".md", ".markdown"))
def markdown(content: str) -> "Document":
    from transformer_cli.addons.documents.markdown import parse_markdown

    return parse_markdown(content)


@document_format(  # messages of gettext: those without a translation
    "po", endings=(".po", ".pot"), encoding=r"^\"Content-Type:[^\"\n]{0,100}?\bcharset=([\w-]{1,40})"
)
def po(content: str) -> "Document":
    from transformer_cli.addons.documents.po import parse_po

    return parse_po(content)


@document_format("srt", endings=(".srt", ".vtt"))  # subtitles
def srt(content: str) -> "Document":
    from transformer_cli.addons.documents.subtitles import parse_srt

    return parse_srt(content)
