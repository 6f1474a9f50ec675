"""The work on one shard, block after block. Each block's result is a file, whole or absent, so that a run resumes.

While the work goes on, its blocks are in the folder NAME.work; then NAME.SOURCE and NAME.TARGET hold the pairs, and
NAME.json, which is written last, what they were made from, the counts, and the SHA-256 of both.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.files import locked, make_folder, wrap_os_errors, write_whole, writing_whole
from transformer_cli.logs import LOGGER

FORMAT = 1
SETTINGS = "settings.json"

Pair = tuple[str, str]


@dataclass(frozen=True)
class Made:
    """What a block of lines has come to: pairs of source and target, and how many lines gave none, by the reason."""

    pairs: list[Pair]
    dropped: Counter[str]

    @property
    def n_lines(self) -> int:
        return len(self.pairs) + self.dropped.total()

    def also_dropped(self, reason: str, n: int) -> "Made":
        return Made(self.pairs, self.dropped + Counter({reason: n}))


@dataclass(frozen=True)
class Report:
    """What a corpus was made from, and how many pairs it has."""

    settings: Mapping[str, Any]
    n_lines: int
    n_pairs: int
    dropped: Mapping[str, int]
    sha256: Mapping[str, str]  # of each language's file

    def as_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                **self.settings,
                "lines": self.n_lines,
                "pairs": self.n_pairs,
                "dropped": dict(self.dropped),
                "sha256": dict(self.sha256),
            },
            indent=1,
            ensure_ascii=False,
        )

    @classmethod
    def read(cls, path: Path) -> "Report":
        """Raises DataError for what is no report."""
        try:
            content = json.loads(path.read_bytes())
            form = content.pop("format")
            counts = {name: content.pop(name) for name in ("lines", "pairs", "dropped", "sha256")}
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise DataError(f"{path}: not what `tfm augment` writes beside its corpus. Make it again") from error
        if form != FORMAT:
            raise DataError(f"{path}: of format {form}, and this version has {FORMAT}. Use the same version for all")
        return cls(content, counts["lines"], counts["pairs"], counts["dropped"], counts["sha256"])


def work(
    name: Path,
    languages: Pair,
    lines: Iterator[bytes],
    make: Callable[[Sequence[bytes], int], Made],
    settings: Mapping[str, Any],
    *,
    block_lines: int,
    first_line: int = 1,
) -> Report:
    """Make pairs of `lines`, or go on where an earlier run with the same settings was stopped.

    `make` gets a block of lines and the number of its first one. Raises ConfigError for work with other settings.
    """
    folder = Path(f"{name}.work")
    with ExitStack() as stack:
        with wrap_os_errors(folder, "make the folder"):
            make_folder(folder)
            try:
                stack.enter_context(locked(folder / "lock", wait=False))
            except BlockingIOError:
                raise EnvironmentFault(f"{folder}: another process works there. Wait for it, or end it") from None
        _check_settings(folder, settings)
        n_resumed = 0
        number = first_line
        blocks: list[Path] = []
        while block := list(islice(lines, block_lines)):
            file = folder / f"block-{number:012}.json"
            blocks.append(file)
            if _read_block(file, len(block)) is None:
                made = make(block, number)
                assert made.n_lines == len(block)
                write_whole(file, json.dumps([made.pairs, made.dropped], ensure_ascii=False).encode())
            else:
                n_resumed += 1
            number += len(block)
        if n_resumed:
            LOGGER.info("%s of %s blocks were there already", f"{n_resumed:,}", f"{len(blocks):,}")
        report = _write_corpus(name, languages, (_read_block(file) for file in blocks), settings)
    shutil.rmtree(folder, ignore_errors=True)
    return report


def _check_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    file, wanted = folder / SETTINGS, json.loads(json.dumps(settings))
    if not file.exists():
        write_whole(file, json.dumps(wanted, ensure_ascii=False).encode())
        return
    found = json.loads(file.read_bytes())
    if found != wanted:
        different = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        raise ConfigError(
            f"{folder}: holds unfinished work with other settings ({', '.join(different)})."
            " Repeat its command, choose another --output, or remove the folder"
        )


def _read_block(file: Path, n_lines: int | None = None) -> Made | None:
    """None for a block that is not there, or not whole."""
    try:
        pairs, dropped = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    made = Made([(source, target) for source, target in pairs], Counter(dropped))
    return made if n_lines in (None, made.n_lines) else None


def _write_corpus(name: Path, languages: Pair, blocks: Iterator[Made | None], settings: Mapping[str, Any]) -> Report:
    n_lines = n_pairs = 0
    dropped: Counter[str] = Counter()
    files = [Path(f"{name}.{language}") for language in languages]
    with writing_whole(files[0]) as sources, writing_whole(files[1]) as targets:
        for made in blocks:
            assert made is not None, "a block has vanished"
            sources.writelines(f"{source}\n".encode() for source, _ in made.pairs)
            targets.writelines(f"{target}\n".encode() for _, target in made.pairs)
            n_lines, n_pairs, dropped = n_lines + made.n_lines, n_pairs + len(made.pairs), dropped + made.dropped
    return _finish(name, Report(settings, n_lines, n_pairs, dropped, _hashes(name, languages)))


def _finish(name: Path, report: Report) -> Report:
    write_whole(Path(f"{name}.json"), (report.as_json() + "\n").encode())
    return report


def _hashes(name: Path, languages: Pair) -> dict[str, str]:
    return {language: file_sha256(Path(f"{name}.{language}")) for language in languages}
