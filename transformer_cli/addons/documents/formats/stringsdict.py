"""Plural forms of Apple."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format(
    "stringsdict",
    endings=(".stringsdict",),
    encoding=r"\A<\?xml\s[^<>]{0,200}?\bencoding\s*=\s*[\"']([\w.-]{1,40})",
)
def stringsdict(content: str) -> "Document":
    from transformer_cli.addons.documents.stringsdict import parse_stringsdict

    return parse_stringsdict(content)
