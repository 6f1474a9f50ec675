"""Plain text."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("text", endings=(".txt",), is_bilingual=True)
def text(content: str) -> "Document":
    from transformer_cli.addons.documents.plain import parse_text

    return parse_text(content)
