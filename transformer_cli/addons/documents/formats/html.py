"""HTML."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format(
    "html",
    endings=(".html", ".htm", ".xhtml"),
    encoding=r"<meta\s[^<>]{0,200}?\bcharset\s*=\s*[\"']?([\w-]{1,40})",
)
def html(content: str) -> "Document":
    from transformer_cli.addons.documents.html import parse_html

    return parse_html(content)
