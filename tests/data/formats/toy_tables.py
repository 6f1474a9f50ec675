"""Writes tables and reads their pairs, for the tests of file formats."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_cli.config.data import DataConfig
from transformer_cli.data.corpus import load_text

Pairs = list[tuple[str, str]]


class Folder:
    """A folder with files of a corpus from English to French."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: str | bytes) -> str:
        path = self.path / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def config(self, train: str | Sequence[str], **changes: Any) -> DataConfig:
        return DataConfig(
            **{"source_lang": "en", "target_lang": "fr", "root": str(self.path), "train": train, **changes}
        )

    def pairs(self, train: str | Sequence[str], **changes: Any) -> Pairs:
        text = load_text(self.config(train, **changes), "train")
        assert text is not None
        return list(text.each())
