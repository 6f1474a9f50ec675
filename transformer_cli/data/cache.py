"""Folders of derived files that are whole or absent, and the memory-mapped corpus that lives in one.

A folder is built under a temporary name, with a manifest of sizes and SHA-256, synced, and renamed once.
"""

import json
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from transformer_cli.data.hashes import Hashes, file_sha256
from transformer_cli.errors import EnvironmentFault
from transformer_cli.files import locked
from transformer_cli.logs import LOGGER
from transformer_cli.system import rename, sync, sync_folder

Array = NDArray[Any]

MANIFEST = "manifest.json"
_OFFSET_TYPE = np.dtype("<i8")
_END_TYPE = np.dtype("<u4")
_WORD_ENDS = "words.ends"
_LENGTHS_AT_A_TIME = 1 << 20


@dataclass(frozen=True, eq=False)
class Alignment:
    """The word alignment of the pairs of a corpus, as links between tokens.

    Those of pair i are [offsets[i] : offsets[i + 1]]: the positions of both tokens in their sentences, by rising
    position of the target token.
    """

    sources: Array
    targets: Array
    offsets: Array

    def pick(self, indices: Array) -> "Alignment":
        """The alignment of the pairs at `indices`, in memory."""
        n = self.offsets[indices + 1] - self.offsets[indices]
        sources, targets = (gather(side, self.offsets[indices], n) for side in (self.sources, self.targets))
        return Alignment(sources, targets, np.concatenate(([0], np.cumsum(n))))

    def only(self, keep: Array) -> "Alignment":
        """The same without the links of the pairs that are not in the mask `keep`."""
        n = np.diff(self.offsets)
        kept = np.repeat(keep, n)
        return Alignment(self.sources[kept], self.targets[kept], np.concatenate(([0], np.cumsum(n * keep))))


@dataclass(frozen=True, eq=False)
class EncodedCorpus:
    """Parallel sentences as ids, each ending with EOS.

    Sentence i of a side is ids[offsets[i] : offsets[i + 1]], which are lengths[i] ids. Where words have labels, these
    are the target, without EOS; `word_ends` has the position of the last token of each word in its source sentence.
    """

    source_ids: Array
    source_offsets: Array
    source_lengths: Array
    target_ids: Array
    target_offsets: Array
    target_lengths: Array
    word_ends: Array | None = None
    alignment: Alignment | None = None  # for train.guided_alignment

    @classmethod
    def of(
        cls, sources: Sequence[Any], targets: Sequence[Any], word_ends: Sequence[Any] | None = None
    ) -> "EncodedCorpus":
        """A corpus in memory: one list or array of ids for each sentence of a side."""
        ends = None if word_ends is None else _concatenated(word_ends)[0]
        return cls(*_concatenated(sources), *_concatenated(targets), ends)

    @classmethod
    def open(cls, folder: Path, *, source_vocab_size: int, target_vocab_size: int) -> "EncodedCorpus":
        """The corpus that CorpusWriter left in `folder`, mapped into memory and read only as it is used."""
        source = _open_side(folder / "source", source_vocab_size)
        target = _open_side(folder / "target", target_vocab_size)
        path = folder / _WORD_ENDS
        ends = np.memmap(path, _END_TYPE, "r").view(np.ndarray) if path.exists() else None
        return cls(*source, *target, ends)

    def pick(self, indices: Array) -> "EncodedCorpus":
        """The sentences at `indices`, in memory."""
        source = _picked(self.source_ids, self.source_offsets, self.source_lengths, indices)
        target = _picked(self.target_ids, self.target_offsets, self.target_lengths, indices)
        ends = None
        if self.word_ends is not None:
            ends = gather(self.word_ends, self.target_offsets[indices], self.target_lengths[indices])
        alignment = None if self.alignment is None else self.alignment.pick(indices)
        return EncodedCorpus(*source, *target, ends, alignment)

    def __len__(self) -> int:
        return len(self.source_offsets) - 1


class CorpusWriter:
    """Appends encoded sentences to the files of an EncodedCorpus in `folder`; memory does not grow with the corpus."""

    def __init__(
        self, folder: Path, *, source_vocab_size: int, target_vocab_size: int, has_words: bool = False
    ) -> None:
        with ExitStack() as files:
            self._source = _SideWriter(folder / "source", source_vocab_size, files)
            self._target = _SideWriter(folder / "target", target_vocab_size, files)
            self._ends = files.enter_context((folder / _WORD_ENDS).open("wb")) if has_words else None
            self._files = files.pop_all()  # kept open, unless one of them could not be opened

    def write(self, sources: tuple[Array, Array], targets: tuple[Array, Array], word_ends: Array | None = None) -> None:
        """Add the ids of a side, one sentence after another, and the sentences' lengths."""
        assert len(sources[1]) == len(targets[1])
        assert (word_ends is None) == (self._ends is None)
        self._source.write(*sources)
        self._target.write(*targets)
        if self._ends is not None and word_ends is not None:
            self._ends.write(word_ends.astype(_END_TYPE).tobytes())

    def __enter__(self) -> "CorpusWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.close()


class _SideWriter:
    def __init__(self, stem: Path, vocab_size: int, files: ExitStack) -> None:
        self._type = _id_type(vocab_size)
        self._ids: IO[bytes] = files.enter_context(stem.with_suffix(".ids").open("wb"))
        self._offsets: IO[bytes] = files.enter_context(stem.with_suffix(".offsets").open("wb"))
        self._n_ids = 0
        self._offsets.write(np.zeros(1, _OFFSET_TYPE).tobytes())

    def write(self, ids: Array, lengths: Array) -> None:
        ends = self._n_ids + np.cumsum(lengths, dtype=_OFFSET_TYPE)
        self._n_ids += len(ids)
        self._ids.write(ids.astype(self._type).tobytes())
        self._offsets.write(ends.tobytes())


def _id_type(vocab_size: int) -> np.dtype[Any]:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def _concatenated(sentences: Sequence[Any]) -> tuple[Array, Array, Array]:
    ids = np.concatenate([np.asarray(sentence, np.int64) for sentence in sentences])
    offsets = np.cumsum([0, *map(len, sentences)])
    return ids, offsets, np.diff(offsets).astype(np.int32)


def gather(ids: Array, starts: Array, lengths: Array) -> Array:
    """The concatenated sentences that begin at `starts`."""
    skipped = starts - (np.cumsum(lengths) - lengths)  # from a token's index in the result to that in `ids`
    found: Array = ids[np.arange(lengths.sum()) + np.repeat(skipped, lengths)]
    return found


def same_ids(one: EncodedCorpus, other: EncodedCorpus) -> Array:
    """A mask of the pairs that have the same ids in both."""
    same = np.ones(len(one), np.bool_)
    for side in ("source", "target"):
        lengths, ids, starts = (
            [getattr(corpus, f"{side}_{what}") for corpus in (one, other)] for what in ("lengths", "ids", "offsets")
        )
        same &= lengths[0] == lengths[1]
        rows = np.flatnonzero(same)
        first, second = (gather(ids[i], starts[i][rows], lengths[0][rows]) for i in (0, 1))
        differs = np.bincount(np.repeat(np.arange(len(rows)), lengths[0][rows])[first != second], minlength=len(rows))
        same[rows] = differs == 0
    return same


def _picked(ids: Array, offsets: Array, lengths: Array, indices: Array) -> tuple[Array, Array, Array]:
    lengths = lengths[indices]
    return gather(ids, offsets[indices], lengths), np.concatenate(([0], np.cumsum(lengths))), lengths


def _open_side(stem: Path, vocab_size: int) -> tuple[Array, Array, Array]:
    path = stem.with_suffix(".ids")
    # Of nothing, as the source of a language model is, there is no map.
    ids = np.memmap(path, _id_type(vocab_size), "r") if path.stat().st_size else np.empty(0, _id_type(vocab_size))
    offsets = np.memmap(stem.with_suffix(".offsets"), _OFFSET_TYPE, "r")
    # Plain arrays: indexing a memmap object is slow.
    return ids.view(np.ndarray), offsets.view(np.ndarray), _lengths(stem.with_suffix(".offsets"), len(offsets) - 1)


def _lengths(path: Path, n: int) -> Array:
    """The lengths of `n` sentences, in memory: half the size of their offsets, which are read and not mapped."""
    lengths = np.empty(n, np.int32)
    for start in range(0, n, _LENGTHS_AT_A_TIME):
        count = min(_LENGTHS_AT_A_TIME, n - start)
        with path.open("rb") as file:  # by numpy alone it would stay open where no further descriptor is left
            file.seek(start * _OFFSET_TYPE.itemsize)
            offsets = np.fromfile(file, _OFFSET_TYPE, count + 1)
        lengths[start : start + count] = np.diff(offsets)
    return lengths


def ensure_folder(folder: Path, build: Callable[[Path], None], hashes: Hashes | None = None) -> None:
    """Make sure that `folder` is there and whole: as it is, or as `build` fills an empty folder beside it.

    Processes that want the same folder wait for the first one and use what it has built. Raises EnvironmentFault.
    """
    hashes = hashes or Hashes(folder.parent)
    try:
        if _fault(folder, hashes) is None:
            return
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent / f".{folder.name}.lock") as alone:  # if not, only the rename decides
            fault = _fault(folder, hashes)  # again: another process may have built it while we waited
            if fault is None:
                return
            if folder.exists():
                LOGGER.warning("%s: %s; it is built again", folder, fault)
            if alone:  # then what lies about was left by processes that were killed
                for left in folder.parent.glob(f".{folder.name}-*"):
                    shutil.rmtree(left)
            _build_beside(folder, build, hashes)
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename or folder}: cannot keep the prepared data: {error.strerror}."
            " Make room, or set data.cache to a folder that can be written"
        ) from error


def _build_beside(folder: Path, build: Callable[[Path], None], hashes: Hashes) -> None:
    beside = folder.parent / f".{folder.name}-{uuid.uuid4().hex}"
    try:
        beside.mkdir()
        build(beside)
        files = {path.name: _written(path) for path in sorted(beside.iterdir())}
        (beside / MANIFEST).write_bytes(manifest(files))
        for path in beside.iterdir():
            with path.open("r+b") as file:  # Windows syncs no file that was opened for reading alone
                sync(file.fileno())
        sync_folder(beside)
        if folder.exists() and _fault(folder, hashes) is not None:
            rename(folder, beside.with_name(f"{beside.name}-damaged"))
        try:
            rename(beside, folder)
        except OSError:
            if _fault(folder, hashes) is not None:  # else another process was faster, on a disk without locks
                raise
        sync_folder(folder.parent)
    finally:
        for left in folder.parent.glob(f"{beside.name}*"):
            shutil.rmtree(left)


def manifest(files: Mapping[str, Any]) -> bytes:
    """The content of the manifest of `files`, each with its size and its SHA-256."""
    return json.dumps({"files": files}, indent=1).encode("ascii")


def _fault(folder: Path, hashes: Hashes) -> str | None:
    """The fault of `folder`, compared with its manifest; None if there is none."""
    if not folder.is_dir():
        return "missing"
    try:
        files: dict[str, dict[str, Any]] = json.loads((folder / MANIFEST).read_bytes())["files"]
        for name, expected in files.items():
            if Path(name).name != name or ((folder / name).exists() and not (folder / name).is_file()):
                return f"{MANIFEST} is damaged"  # it could lead to a device, and reading that would never end
            if (folder / name).stat().st_size != expected["size"]:
                return f"{name} is not as it was written"
        found = hashes.of([folder / name for name in files])  # last: it may read for minutes
        for (name, expected), sha256 in zip(files.items(), found, strict=True):
            if expected != {"size": expected["size"], "sha256": sha256}:
                return f"{name} is not as it was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is damaged"
    return None


def _written(path: Path) -> dict[str, Any]:
    """What the manifest says of a file."""
    return {"size": path.stat().st_size, "sha256": file_sha256(path)}
