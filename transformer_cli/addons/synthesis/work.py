"""The work on one shard, block after block. Each block's result is a file, whole or absent, so that a run resumes.

While the work goes on, its blocks are in the folder NAME.work; then NAME.SOURCE and NAME.TARGET hold the pairs, and
NAME.json, which is written last, what they were made from, the counts, and the SHA-256 of both.
"""

import dataclasses
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from transformer_cli.addons.synthesis.shards import n_lines
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.readers.base import Pair
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.files import (
    locked,
    make_folder,
    move_to_free,
    naming,
    remove_leftovers,
    wrap_os_errors,
    write_whole,
    writing_whole,
)
from transformer_cli.logs import LOGGER
from transformer_cli.system import sync_folder

_FORMAT = 1
SETTINGS = "settings.json"
PROGRESS_S = 30.0  # between two lines of the log


@dataclass(frozen=True)
class Made:
    """What a block of lines has come to: pairs of source and target, and the translations that gave none, by reason."""

    n_lines: int
    pairs: list[Pair]
    dropped: Counter[str]

    @property
    def n_translations(self) -> int:
        """One for each line, also where it is blank; more if several of an n-best list are used."""
        return len(self.pairs) + self.dropped.total()


@dataclass(frozen=True)
class CorpusReport:
    """What a corpus was made from, and its counts: every translation is a pair or is dropped for one reason."""

    settings: Mapping[str, Any]
    first_line: int  # of the input, from 1
    n_lines: int
    n_translations: int
    n_pairs: int
    dropped: Mapping[str, int]
    sha256: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of each file, by its ending

    def as_json(self) -> str:
        return json.dumps(
            {
                "format": _FORMAT,
                **self.settings,
                "first_line": self.first_line,
                "lines": self.n_lines,
                "translations": self.n_translations,
                "pairs": self.n_pairs,
                "dropped": dict(sorted(self.dropped.items())),
                "sha256": dict(self.sha256),
            },
            indent=1,
            ensure_ascii=False,
        )

    @classmethod
    def read(cls, path: Path) -> "CorpusReport":
        """Raises DataError for what is no report."""
        try:
            content = json.loads(path.read_bytes())
            form = content.pop("format")
            first_line, *counts = (int(content.pop(key)) for key in ("first_line", "lines", "translations", "pairs"))
            dropped, sha256 = dict(content.pop("dropped")), dict(content.pop("sha256"))
            _, _ = content["languages"]
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise DataError(f"{path}: not what `tfm augment` writes beside its corpus. Make it again") from error
        if form != _FORMAT:
            raise DataError(f"{path}: of format {form}, and this version reads {_FORMAT}. Use the same version for all")
        return cls(content, first_line, counts[0], counts[1], counts[2], dropped, sha256)

    @property
    def languages(self) -> Pair:
        source, target = self.settings["languages"]
        return source, target

    @property
    def shard(self) -> str:
        return str(self.settings["shard"])

    def is_whole(self, name: Path) -> bool:
        """Whether both files of the corpus are there, as they were made."""
        return not self.damaged(name)

    def damaged(self, name: Path) -> list[Path]:
        """The files of the corpus that are not there, or not as they were made."""
        files = zip(_endings(self.languages), files_of(name, self.languages), strict=True)
        return [file for ending, file in files if not file.is_file() or file_sha256(file) != self.sha256.get(ending)]


def files_of(name: Path, languages: Pair) -> tuple[Path, Path]:
    """NAME.en and NAME.de; NAME.source and NAME.target of a model with one language."""
    source, target = _endings(languages)
    return Path(f"{name}.{source}"), Path(f"{name}.{target}")


def _endings(languages: Pair) -> Pair:
    return languages if languages[0] != languages[1] else ("source", "target")


def report_of(name: Path) -> Path:
    return Path(f"{name}.json")


def folder_of(name: Path) -> Path:
    return Path(f"{name}.work")


def finished(name: Path, settings: Mapping[str, Any]) -> CorpusReport | None:
    """The report of a corpus that is there and was made with these settings. What a stop left of it is removed.

    Raises ConfigError if a file of that corpus has gone or was edited.
    """
    if not report_of(name).is_file():
        return None
    try:
        report = CorpusReport.read(report_of(name))
    except DataError:  # another file with that name
        return None
    if dict(report.settings) != as_read(settings):
        return None
    if damaged := report.damaged(name):
        what = "was edited since" if damaged[0].exists() else "has gone"
        raise ConfigError(
            f"{damaged[0]}: was made before with these settings, and {what}. Add --overwrite to make the corpus again,"
            " which replaces its files"
        )
    folder = folder_of(name)
    if folder.is_dir() and _settings_in(folder) in (None, as_read(settings)):
        with alone_in(folder):
            shutil.rmtree(folder, ignore_errors=True)
    return report


def _settings_in(folder: Path) -> Any:
    try:
        return json.loads((folder / SETTINGS).read_bytes())
    except (OSError, ValueError):
        return None


def is_begun(name: Path, settings: Mapping[str, Any]) -> bool:
    """Whether a block of this corpus has been made; raises ConfigError if that was with other settings."""
    found, wanted = _settings_in(folder_of(name)), as_read(settings)
    if found is None or not any(folder_of(name).glob("block-*.json")):
        return False
    if found != wanted:
        raise ConfigError(
            f"{folder_of(name)}: holds unfinished work with other settings ({', '.join(different(found, wanted))})."
            " Repeat its command, choose another --output, or remove the folder"
        )
    return True


def refuse_unfinished(name: Path) -> None:
    """Raise EnvironmentFault while another process works on this corpus, ConfigError where a run of it was stopped."""
    folder = folder_of(name)
    if not folder.is_dir():
        return
    with alone_in(folder):
        if any(folder.glob("block-*.json")):
            raise ConfigError(
                f"{folder}: holds unfinished work on {name}. Repeat its command to finish it, or remove the folder"
            )


def as_read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as JSON gives them back."""
    read: dict[str, Any] = json.loads(json.dumps(settings))
    return read


def different(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys whose values are not the same."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def work(
    name: Path,
    lines: Iterator[bytes],
    make: Callable[[Sequence[bytes], int], Made],
    settings: Mapping[str, Any],
    *,
    inputs: Mapping[Path, str],
    n_expected: int,
    block_lines: int,
    first_line: int = 1,
    replace: bool = False,
) -> CorpusReport:
    """Make pairs of `lines`, or go on where an earlier run with the same settings was stopped.

    `make` gets a block of lines and the number of its first one. `inputs` are the files that are read, with their
    SHA-256 at the start. Raises ConfigError for work with other settings, and DataError if there are not `n_expected`
    lines or an input was changed.
    """
    with alone_in(folder_of(name)) as folder:
        if not is_begun(name, settings):
            for stale in folder.glob("block-*"):  # of settings that are not known any more
                stale.unlink()
            write_whole(folder / SETTINGS, json.dumps(as_read(settings), ensure_ascii=False).encode())
        for stale in unpublished(folder):
            remove_leftovers(stale)
        progress = _Progress(name, n_expected)
        number, n_resumed, blocks = first_line, 0, list[Path]()
        while block := list(islice(lines, block_lines)):
            file = folder / f"block-{number:012}.json"
            blocks.append(file)
            if (made := _read_block(file)) is None or made.n_lines != len(block):
                with _removed_if_useless(folder):
                    made = make(block, number)
                assert made.n_lines == len(block)
                write_whole(file, json.dumps([made.n_lines, made.pairs, made.dropped], ensure_ascii=False).encode())
                progress.add(len(block))
            else:
                n_resumed += len(block)
                progress.skip(len(block))
            number += len(block)
        if number - first_line != n_expected:
            raise DataError(
                f"{name}: the input had {n_expected:,} lines at the start, and {number - first_line:,} were read."
                f" Leave it as it is, remove {folder}, and run the same command again"
            )
        for file, sha256 in inputs.items():
            if file_sha256(file) != sha256:
                raise DataError(
                    f"{name}: {file} was changed while it was read. Leave it as it is, remove {folder}, and run"
                    " the same command again"
                )
        if n_resumed:
            LOGGER.info("%s: %s of %s lines were there already", name, f"{n_resumed:,}", f"{n_expected:,}")
        whole = (_require_block(file) for file in blocks)
        report = publish(name, folder, _assemble(folder, whole, settings, first_line), replace=replace)
        shutil.rmtree(folder, ignore_errors=True)
    return report


@contextmanager
def alone_in(folder: Path) -> Iterator[Path]:
    """The folder, which is made, while no other process works in it."""
    with wrap_os_errors(folder, "make the folder"):
        make_folder(folder)
    try:
        with locked(folder / "lock", wait=False):
            yield folder
    except BlockingIOError:
        raise EnvironmentFault(f"{folder}: another process works there. Wait for it, or end it") from None


@contextmanager
def _removed_if_useless(folder: Path) -> Iterator[None]:
    """Remove the folder after an exception before the first block is there."""
    try:
        yield
    except BaseException:
        if not any(folder.glob("block-*")):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _read_block(file: Path) -> Made | None:
    """None for a block that is not there, or not whole."""
    try:
        n_lines, pairs, dropped = json.loads(file.read_bytes())
        return Made(n_lines, [(source, target) for source, target in pairs], Counter(dropped))
    except (OSError, ValueError, TypeError):
        return None


def _require_block(file: Path) -> Made:
    made = _read_block(file)
    if made is None:
        raise EnvironmentFault(f"{file}: has gone while the work went on. Run the same command again")
    return made


def _assemble(folder: Path, parts: Iterable[Made], settings: Mapping[str, Any], first_line: int) -> CorpusReport:
    """Write the pairs of all parts to the two files that `publish` takes."""
    n_lines = n_translations = n_pairs = 0
    dropped: Counter[str] = Counter()
    source_file, target_file = unpublished(folder)
    with writing_whole(source_file) as sources, writing_whole(target_file) as targets:
        for part in parts:
            sources.writelines(f"{source}\n".encode() for source, _ in part.pairs)
            targets.writelines(f"{target}\n".encode() for _, target in part.pairs)
            n_lines, n_translations = n_lines + part.n_lines, n_translations + part.n_translations
            n_pairs, dropped = n_pairs + len(part.pairs), dropped + part.dropped
    return CorpusReport(as_read(settings), first_line, n_lines, n_translations, n_pairs, dropped)


def unpublished(folder: Path) -> tuple[Path, Path]:
    return folder / "source", folder / "target"


def publish(name: Path, folder: Path, report: CorpusReport, *, replace: bool) -> CorpusReport:
    """Move the two files of a corpus from `folder` to their names, and write the report, with their hashes.

    The report of an earlier corpus goes first and the new one comes last, so that a kill at any moment leaves no
    report beside files that it is not of. Raises ConfigError for another file of that name, without `replace`.
    """
    final, written = files_of(name, report.languages), unpublished(folder)
    for file in written:
        if (n_found := n_lines(file)) != report.n_pairs:
            raise AssertionError(f"{file}: {n_found} lines of {report.n_pairs} pairs")
    hashes = {one: file_sha256(file) for one, file in zip(_endings(report.languages), written, strict=True)}
    report = dataclasses.replace(report, sha256=hashes)
    kept = [file.exists() and file_sha256(file) == sha256 for file, sha256 in zip(final, hashes.values(), strict=True)]
    if not replace:
        for file, is_kept in zip(final, kept, strict=True):
            if file.exists() and not is_kept:
                raise ConfigError(f"{file}: exists already, and is another. Add --overwrite, or move it away")
    elif not all(kept):
        for file in (report_of(name), *final):
            file.unlink(missing_ok=True)
        sync_folder(name.parent)
    for file, made in zip(final, written, strict=True):
        if not file.exists():
            with naming(file, made):
                move_to_free(made, file)
    sync_folder(name.parent)
    write_whole(report_of(name), (report.as_json() + "\n").encode())
    remove_leftovers(report_of(name))
    return report


class _Progress:
    """Lines of the log: how much is done, how fast, and how long the rest takes."""

    def __init__(self, name: Path, n_lines: int) -> None:
        self.name, self.n_lines, self.n_done, self.n_new = name, n_lines, 0, 0
        self.started = self.logged = time.monotonic()

    def skip(self, n: int) -> None:
        self.n_done += n

    def add(self, n: int) -> None:
        self.n_done, self.n_new, now = self.n_done + n, self.n_new + n, time.monotonic()
        if now - self.logged >= PROGRESS_S:
            self.logged, speed = now, self.n_new / (now - self.started)
            minutes = (self.n_lines - self.n_done) / speed / 60
            done = f"{self.n_done:,} of {self.n_lines:,}"
            LOGGER.info("%s: %s lines, %.1f lines/s, %.0f minutes left", self.name, done, speed, minutes)
