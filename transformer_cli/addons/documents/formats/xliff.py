"""XLIFF, of which the texts without a translation are translated."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format(
    "xliff",
    endings=(".xlf", ".xliff", ".sdlxliff", ".mxliff", ".mqxliff", ".txlf"),
    encoding=r"\A<\?xml\s[^<>]{0,200}?\bencoding\s*=\s*[\"']([\w.-]{1,40})",
    is_bilingual=True,
)
def xliff(content: str) -> "Document":
    from transformer_cli.addons.documents.xliff import parse_xliff

    return parse_xliff(content)
