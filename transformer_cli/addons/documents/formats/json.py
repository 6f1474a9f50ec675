"""JSON of texts by their keys."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("json", endings=(".json", ".arb"))
def json(content: str) -> "Document":
    from transformer_cli.addons.documents.json_strings import parse_json_texts

    return parse_json_texts(content)
