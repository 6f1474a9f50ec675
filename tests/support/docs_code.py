"""The code blocks of README.md, CONTRIBUTING.md and docs/: found by their fences, not by a list of pages."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The first line of a block that is a file of the reader's; Hydra's header comes before it.
_NAMED = re.compile(r"(?:# @package _global_\n)?# ([\w/-]+\.(?:py|yaml))\n")


@dataclass(frozen=True)
class Block:
    page: Path
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name that the page gives it."""
        named = _NAMED.match(self.text)
        return named[1] if named else None

    def __str__(self) -> str:
        return f"{self.page.name}: {self.text.partition(chr(10))[0][:60]}"


def blocks_of(page: Path) -> list[Block]:
    return [Block(page, language, text) for language, text in _BLOCK.findall(page.read_text(encoding="utf-8"))]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def write_files_of(page: Path, folder: Path) -> list[str]:
    """Write into `folder` each block of the page that is a named file; returns the names."""
    named = {block.file: block.text for block in blocks_of(page) if block.file is not None}
    for name, text in named.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return [*named]
