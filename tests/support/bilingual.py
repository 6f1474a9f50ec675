"""Files of bilingual formats as tests give them: bytes in, rows or contents out."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformer_cli.config.data import DataConfig
from transformer_cli.data.compression import ByteSource
from transformer_cli.data.formats.base import Contents, FileFormat, SourceFile
from transformer_cli.data.registry import FORMATS


def source_file(data: bytes, name: str = "file", *, keeps_tags: bool = False) -> SourceFile:
    @contextmanager
    def opened() -> Iterator[ByteSource]:
        yield io.BytesIO(data)

    return SourceFile(name, Path(name), None, opened, keeps_tags)


def rows(
    name: str, text: str | bytes, source: str = "en", target: str = "de", *, keeps_tags: bool = False
) -> list[tuple[str, str]]:
    """The rows of a file of the format `name`. Raises DataError."""
    data = text if isinstance(text, bytes) else text.encode()
    table = FORMATS[name].table(
        source_file(data, keeps_tags=keeps_tags), DataConfig(source_lang=source, target_lang=target)
    )
    assert table.columns == (source, target)
    return [(first, second) for first, second in table.rows]


def contents(name: str, text: str | bytes, *, keeps_tags: bool = False) -> Contents:
    data = text if isinstance(text, bytes) else text.encode()
    found: Contents = FORMATS[name].contents(source_file(data, keeps_tags=keeps_tags))
    return found


def format_of(name: str) -> FileFormat:
    found: FileFormat = FORMATS[name]
    return found
