"""Subtitles of SubStation Alpha."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("ass", endings=(".ass", ".ssa"))
def ass(content: str) -> "Document":
    from transformer_cli.addons.documents.ass import parse_ass

    return parse_ass(content)
