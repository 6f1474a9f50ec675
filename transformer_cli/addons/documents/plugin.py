"""What this add-on brings: formats of documents, each registered by its own module, and catalogues as corpora."""

from transformer_cli.addons.documents import po_corpus
from transformer_cli.addons.documents.formats import (
    ass,
    html,
    json,
    markdown,
    po,
    properties,
    srt,
    strings,
    text,
    tmx,
    ts,
    wrapped,
    xliff,
    xml,
    yaml,
)

__all__ = [
    "ass",
    "html",
    "json",
    "markdown",
    "po",
    "po_corpus",
    "properties",
    "srt",
    "strings",
    "text",
    "tmx",
    "ts",
    "wrapped",
    "xliff",
    "xml",
    "yaml",
]
