"""Preparation in shards: each process works on some parts of a text and keeps what it made of them for all others.

What a part becomes depends on the text and the config alone, and the same code puts the parts together as in one
process, so that the prepared corpus is the same to the bit whatever the number of shards.
"""

import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from transformer_cli.config.shard import Shard
from transformer_cli.data.worker_processes import in_processes

_PartT = TypeVar("_PartT")
_ResultT = TypeVar("_ResultT")


class Incomplete(Exception):
    """Parts of a stage that other shards have still to make."""

    def __init__(self, stage: str, n_missing: int, n_parts: int) -> None:
        self.stage, self.n_missing, self.n_parts = stage, n_missing, n_parts
        self.what = stage.partition("-")[0]  # cleaned or encoded
        super().__init__(f"{stage}: {n_missing:,} of {n_parts:,} parts are missing")


class Codec(Protocol[_ResultT]):
    """How what a part has become is kept in a file."""

    def save(self, path: Path, result: _ResultT) -> None: ...
    def load(self, path: Path) -> _ResultT: ...


@dataclass
class PartStore:
    """A folder of parts, which the shards of one preparation share."""

    folder: Path
    shard: Shard

    def results(
        self,
        stage: str,
        work: Callable[[_PartT], _ResultT],
        parts: Iterable[_PartT],
        codec: Codec[_ResultT],
        *,
        n_processes: int,
        what: str,
    ) -> Iterator[_ResultT]:
        """`work` of each part, in order: those of this shard are made, unless they are there, and all are read.

        Raises Incomplete while other shards have not made theirs.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        n_parts = 0

        def own() -> Iterator[_PartT]:
            nonlocal n_parts
            for number, part in enumerate(parts):
                n_parts += 1
                if number % self.shard.n == self.shard.number - 1 and not self._path(stage, number).exists():
                    waiting.append(number)
                    yield part

        waiting: list[int] = []
        for made, result in enumerate(in_processes(work, own(), n_processes=n_processes, what=what)):
            path = self._path(stage, waiting[made])
            beside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
            codec.save(beside, result)
            os.replace(beside, path)
        n_missing = sum(not self._path(stage, number).exists() for number in range(n_parts))
        if n_missing:
            raise Incomplete(stage, n_missing, n_parts)
        for number in range(n_parts):
            yield codec.load(self._path(stage, number))

    def _path(self, stage: str, number: int) -> Path:
        return self.folder / f"{stage}-{number:06d}"

    def keep(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The bytes that some shard has made for all, or that `make` makes."""
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{name}-{uuid.uuid4().hex}")
            beside.write_bytes(make())
            os.replace(beside, path)
        return path.read_bytes()


def each_part(
    store: PartStore | None,
    stage: str,
    work: Callable[[_PartT], _ResultT],
    parts: Iterable[_PartT],
    codec: Codec[_ResultT],
    *,
    n_processes: int,
    what: str,
) -> Iterator[_ResultT]:
    """`work` of each part, in order: by this process alone, or of the shards that keep theirs in `store`."""
    if store is None:
        return in_processes(work, parts, n_processes=n_processes, what=what)
    return store.results(stage, work, parts, codec, n_processes=n_processes, what=what)


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="ascii")
