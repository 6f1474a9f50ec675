"""Messages of gettext, of which those without a translation are translated."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("po", endings=(".po", ".pot"), encoding=r"^\"Content-Type:[^\"\n]{0,100}?\bcharset=([\w-]{1,40})")
def po(content: str) -> "Document":
    from transformer_cli.addons.documents.po import parse_po

    return parse_po(content)
