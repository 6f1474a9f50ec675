"""Plain text whose paragraphs are wrapped."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("wrapped", is_bilingual=True)
def wrapped(content: str) -> "Document":
    from transformer_cli.addons.documents.wrapped import parse_wrapped

    return parse_wrapped(content)
