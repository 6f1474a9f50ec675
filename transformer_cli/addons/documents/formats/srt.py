"""Subtitles of SubRip and WebVTT."""

from typing import TYPE_CHECKING

from transformer_cli.addons.documents.register import document_format

if TYPE_CHECKING:
    from transformer_cli.addons.documents.units import Document


@document_format("srt", endings=(".srt", ".vtt"))
def srt(content: str) -> "Document":
    from transformer_cli.addons.documents.subtitles import parse_srt

    return parse_srt(content)
