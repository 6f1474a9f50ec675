"""What this add-on brings: formats of documents, each registered by its own module."""

from transformer_cli.addons.documents.formats import html, markdown, po, srt, text, xml

__all__ = ["html", "markdown", "po", "srt", "text", "xml"]
