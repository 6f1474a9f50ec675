"""TS of Qt Linguist, of which the messages without a translation are translated."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format(
    "ts",
    endings=(".ts",),
    encoding=r"\A<\?xml\s[^<>]{0,200}?\bencoding\s*=\s*[\"']([\w.-]{1,40})",
    is_bilingual=True,
)
def ts(content: str) -> "Document":
    from transformer_cli.addons.documents.ts import parse_ts

    return parse_ts(content)
