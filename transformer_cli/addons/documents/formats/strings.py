"""Strings of Apple."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("strings", endings=(".strings",))
def strings(content: str) -> "Document":
    from transformer_cli.addons.documents.key_values import parse_strings

    return parse_strings(content)
