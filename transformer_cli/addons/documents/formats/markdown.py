"""Markdown."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("markdown", endings=(".md", ".markdown"))
def markdown(content: str) -> "Document":
    from transformer_cli.addons.documents.markdown import parse_markdown

    return parse_markdown(content)
