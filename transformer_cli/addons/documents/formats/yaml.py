"""YAML of texts by their keys."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("yaml", endings=(".yaml", ".yml"))
def yaml(content: str) -> "Document":
    from transformer_cli.addons.documents.yaml_strings import parse_yaml

    return parse_yaml(content)
