"""TMX, of whose units those without the target language are translated."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format(
    "tmx",
    endings=(".tmx",),
    encoding=r"\A<\?xml\s[^<>]{0,200}?\bencoding\s*=\s*[\"']([\w.-]{1,40})",
    is_bilingual=True,
)
def tmx(content: str) -> "Document":
    from transformer_cli.addons.documents.tmx import parse_tmx

    return parse_tmx(content)
