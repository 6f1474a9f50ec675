"""Properties of Java."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("properties", endings=(".properties",))
def properties(content: str) -> "Document":
    from transformer_cli.addons.documents.key_values import parse_properties

    return parse_properties(content)
