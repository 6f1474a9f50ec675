"""Corpora that are generated instead of read from files: `data.builtin` names one."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

from transformer_cli.config.data import DataConfig, Task
from transformer_cli.data import demo, demo_summaries
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers.base import READERS, Corpus, Pair, Reader, Split
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry

GENERATORS: Registry[Callable[[Split], list[Pair]]] = Registry("built-in corpus")


@cache
def _demo(split: Split, *, places: bool) -> list[Pair]:
    n_train = {"n_train": 0} if split != "train" else {}  # the others are drawn first
    pairs: list[Pair] = getattr(demo.generate(**n_train, places=places), split)
    return pairs


@GENERATORS.register("demo_en_fr")
def _demo_en_fr(split: Split) -> list[Pair]:
    return _demo(split, places=True)


@GENERATORS.register("demo_fr_en")
def _demo_fr_en(split: Split) -> list[Pair]:
    return [(french, english) for english, french in _demo(split, places=True)]


@GENERATORS.register("demo_en_fr_without_places")
def _demo_en_fr_without_places(split: Split) -> list[Pair]:
    return _demo(split, places=False)


GENERATORS.register("demo_summaries")(cache(demo_summaries.generate))


@READERS.register("builtin")
class Builtin(Reader):
    tasks = frozenset({Task.translation})

    def __init__(self, config: DataConfig) -> None:
        super().__init__(config)
        if config.builtin is None:
            raise ConfigError("data.reader=builtin: data.builtin is not set. Use data=demo_en_fr or data=demo_fr_en")
        self._generate = GENERATORS[config.builtin]

    def corpora(self, split: Split) -> list[Corpus]:
        def pairs(files: Sequence[Lines]) -> Iterator[Pair]:
            generated = self._generate(split)
            return ((target, source) for source, target in generated) if self.config.is_swapped else iter(generated)

        return [Corpus((), pairs)]
