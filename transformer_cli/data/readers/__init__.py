"""Readers of corpora, one module a format. `data.reader` selects one by its name in the registry."""

from transformer_cli.config.data import DataConfig
from transformer_cli.data.readers import builtin, columns, files, parallel  # noqa: F401  (registers them)
from transformer_cli.data.readers.base import Corpus, Pair, Reader, Split, reader_name
from transformer_cli.data.registry import READERS

__all__ = ["READERS", "Corpus", "Pair", "Reader", "Split", "reader_name", "reader_of"]


def reader_of(config: DataConfig) -> Reader:
    """The reader that the config names, or else the one for generated corpora or for text files."""
    reader: Reader = READERS[reader_name(config)](config)
    return reader
