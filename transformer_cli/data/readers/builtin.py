"""Corpora that come with the package, as text files in data/demo/: `data.builtin` names one."""

import gzip
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tasks import Task, all_tasks
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers.base import Corpus, Pair, Reader, Split
from transformer_cli.data.registry import READERS
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry

FOLDER = Path(__file__).parents[1] / "demo"  # written by scripts/demo_corpora
CORPORA: Registry[Callable[[Split], list[Pair]]] = Registry("built-in corpus")


@cache
def read_builtin(name: str, split: Split) -> list[Pair]:
    """The pairs of a split of a corpus in `FOLDER`."""
    packed = [(FOLDER / name / f"{split}.{side}.gz").read_bytes() for side in ("source", "target")]
    sources, targets = (gzip.decompress(side).decode().split("\n")[:-1] for side in packed)
    return list(zip(sources, targets, strict=True))


for _name in ("demo_en_fr", "demo_en_fr_without_places", "demo_summaries", "demo_trees"):
    CORPORA.register(_name)(partial(read_builtin, _name))


@CORPORA.register("demo_fr_en")
def _demo_fr_en(split: Split) -> list[Pair]:
    return [(french, english) for english, french in read_builtin("demo_en_fr", split)]


@READERS.register("builtin")
class Builtin(Reader):
    def suits(self, task: Task) -> bool:
        own = self.config.builtin in task.corpora
        return own or (task.translates and all(self.config.builtin not in one.corpora for one in all_tasks()))

    def __init__(self, config: DataConfig) -> None:
        super().__init__(config)
        if config.builtin is None:
            raise ConfigError("data.reader=builtin: data.builtin is not set. Use data=demo_en_fr or data=demo_fr_en")
        self._read = CORPORA[config.builtin]

    def corpora(self, split: Split) -> list[Corpus]:
        def pairs(files: Sequence[Lines]) -> Iterator[Pair]:
            found = self._read(split)
            return ((target, source) for source, target in found) if self.config.is_swapped else iter(found)

        return [Corpus((), pairs)]
