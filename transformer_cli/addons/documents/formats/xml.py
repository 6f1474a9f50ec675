"""XML."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("xml", endings=(".xml",), encoding=r"\A<\?xml\s[^<>]{0,200}?\bencoding\s*=\s*[\"']([\w.-]{1,40})")
def xml(content: str) -> "Document":
    from transformer_cli.addons.documents.xml import parse_xml

    return parse_xml(content)
