"""SHA-256 of files, cached for large ones, so that not every start reads the whole corpus."""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from transformer_cli.files import locked, write_whole

CHEAP_BYTES = 1 << 25  # files that have no more together are read every time
RACY_NS = 2_000_000_000  # a file that was changed so recently may change again without another time
RECORDS = "hashes.json"

Stamp = list[int]  # size, and the times of the last change of content and of status, in nanoseconds


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Hashes:
    """Hashes of files, cached in `folder` and valid while the size and the times of a file are unchanged.

    If several processes need the same hashes at once, one computes them (each, if the folder cannot be written).
    With `verify` the cache is ignored.
    """

    def __init__(self, folder: Path, *, verify: bool = False) -> None:
        self._folder, self._verify = folder, verify

    def of(self, paths: Sequence[Path]) -> list[str]:
        """SHA-256 of each file. Raises OSError."""
        if sum(path.stat().st_size for path in paths) <= CHEAP_BYTES:
            return [file_sha256(path) for path in paths]
        with self._alone():
            known = self._read()
            trusted = {} if self._verify else known
            found: dict[str, tuple[Stamp, str]] = {}
            hashes = [_hashed(path, trusted, found) for path in paths]
            if found:
                self._write({**known, **found})
        return hashes

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for other processes that read; on a disk without locks, or that cannot be written, read like them."""
        with ExitStack() as stack:
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self._folder / f".{RECORDS}.lock"))
            yield

    def _read(self) -> dict[str, tuple[Stamp, str]]:
        """The cached hashes; none if the file is damaged."""
        try:
            noted = json.loads((self._folder / RECORDS).read_bytes())
            return {str(name): ([int(n) for n in stamp], str(sha256)) for name, (stamp, sha256) in noted.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}

    def _write(self, noted: Mapping[str, tuple[Stamp, str]]) -> None:
        there = {name: entry for name, entry in noted.items() if Path(name).exists()}
        with suppress(OSError):  # then the next start reads the files again
            write_whole(self._folder / RECORDS, json.dumps(there, indent=1).encode())


def _hashed(path: Path, trusted: Mapping[str, tuple[Stamp, str]], found: dict[str, tuple[Stamp, str]]) -> str:
    """The hash of a file; if it had to be read and will not change unnoticed, it is put among the `found`."""
    name, stamp, now = str(path.resolve()), _stamp(path), time.time_ns()
    if name in trusted and trusted[name][0] == stamp:
        return trusted[name][1]
    sha256 = file_sha256(path)
    if _stamp(path) == stamp and max(stamp[1:]) < now - RACY_NS:
        found[name] = stamp, sha256
    return sha256


def _stamp(path: Path) -> Stamp:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
