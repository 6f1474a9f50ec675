"""The registry of filters of training text, and their base class."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from transformer_cli.config.checks import AUTO
from transformer_cli.data.checks.profiles import Floats
from transformer_cli.data.readers.base import Pair
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.registry import Registry, place_of

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Languages:
    """The languages of the two sides: codes as the config has them, empty where a side has several."""

    source: str
    target: str


@dataclass
class PairTexts:
    """Pairs without tags, and the number of each in its corpus: those that no earlier filter has dropped."""

    sources: list[str]
    targets: list[str]
    numbers: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sources)

    def each(self) -> Iterator[Pair]:
        return zip(self.sources, self.targets, strict=True)

    def first(self, n: int) -> "PairTexts":
        return PairTexts(self.sources[:n], self.targets[:n], self.numbers[:n])

    def pick(self, mask: Mask) -> "PairTexts":
        indices = np.flatnonzero(mask).tolist()
        return PairTexts([self.sources[i] for i in indices], [self.targets[i] for i in indices], self.numbers[mask])


@dataclass
class Verdict:
    """The pairs that a filter drops, and those that it repairs, by their index with what they become.

    `partners` has the index of the pair whose target a repaired pair gets, where it gets that of another.
    """

    dropped: Mask
    repaired: dict[int, Pair] = field(default_factory=dict)
    partners: dict[int, int] = field(default_factory=dict)


class Filter:
    """A filter of training pairs. Its object serves the corpora of one pair of languages in one preparation.

    `learn` gets a sample of the text, of which earlier filters have dropped and repaired what they could, and in which
    no pair is that will be held out as dev or test. `apply` then gets all text, in parts of pairs in a row.
    """

    what: ClassVar[str]  # the dropped pairs, as "copies of the source": completes "12 pairs left out: "
    repair: ClassVar[str] = ""  # the repaired pairs, as "without markup": completes "12 pairs kept "
    # The pairs to repair, where they are translations in spite of a fault, as "with markup on one side only".
    blemish: ClassVar[str] = ""
    threshold: ClassVar[float | None] = None  # the default; None: the filter has none
    low: ClassVar[float] = 0.0  # the range of the threshold
    high: ClassVar[float] = math.inf
    is_auto: ClassVar[bool] = False  # whether data.clean=auto has it

    def __init__(self, languages: Languages, threshold: float | None) -> None:
        self.languages, self.limit = languages, threshold

    def learn(self, text: PairTexts) -> None:
        """Set what depends on the text."""

    def apply(self, text: PairTexts) -> Verdict:
        raise NotImplementedError

    def suspicion(self, text: PairTexts) -> Floats:
        """How certain it is that each of these pairs, which `apply` drops or repairs, is wrong: up to 1."""
        return np.ones(len(text))


class WholeTextFilter(Filter):
    """A filter that sees all text before it drops a pair, as one that drops repetitions, or a share of the text.

    It acts on what all other filters have left. One object serves all corpora, whatever their languages. What it must
    keep until then is in files of `folder`, so that memory is bounded.
    """

    def apply(self, text: PairTexts) -> Verdict:
        """Nothing is dropped of a part, nor of a sample."""
        return Verdict(np.zeros(len(text), np.bool_))

    def add(self, text: PairTexts, folder: Path) -> None:
        """Take a part of the text; parts come in their order."""
        raise NotImplementedError

    def dropped(self, folder: Path) -> Mask:
        """The pairs to drop of all that were added."""
        raise NotImplementedError


class Unapplied(Filter):
    """A filter that drops nothing, in place of one that does not suit the text."""

    what = ""

    def apply(self, text: PairTexts) -> Verdict:
        return Verdict(np.zeros(len(text), np.bool_))


def certainty(excess: Floats) -> Floats:
    """How certain a finding is: a half at the limit of a filter, nearly 1 at three units of `excess` over it."""
    found: Floats = 1 - 0.5 * np.exp(-np.maximum(excess, 0))
    return found


def drop(found: Sequence[bool] | Mask) -> Verdict:
    return Verdict(np.array(found, np.bool_))


def _adopted(name: str, entry: Any) -> type[Filter]:
    if not (isinstance(entry, type) and issubclass(entry, Filter) and hasattr(entry, "what")):
        raise ConfigError(f"{place_of(entry)}: a filter is a subclass of Filter with a sentence `what`. Correct it")
    return entry


FILTERS: Registry[type[Filter]] = Registry("filter of training text", adopt=_adopted)

_ENTRY = re.compile(r"(?P<name>-?[^:]+)(?::(?P<threshold>.*))?")


def chosen_filters(entries: Sequence[str]) -> dict[str, float | None]:
    """The thresholds of the filters that `data.clean` names, in the order in which they are applied.

    Entries are names, with a threshold as in length_ratio:4; auto; and -name, which leaves one of auto out. Raises
    ConfigError.
    """
    order = FILTERS.items()
    chosen: dict[str, float | None] = {}
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        name = match["name"] if match else entry
        if name == AUTO:
            chosen = {one: kind.threshold for one, kind in order if kind.is_auto} | chosen
            continue
        FILTERS.check(name.removeprefix("-"))
        if name.startswith("-"):
            if name[1:] not in chosen:
                raise ConfigError(f"data.clean: {name}: {name[1:]} is not among the filters. Leave it out")
            del chosen[name[1:]]
        else:
            chosen[name] = _threshold(name, FILTERS[name], match["threshold"] if match else None)
    return {name: chosen[name] for name, _ in order if name in chosen}


def _threshold(name: str, kind: type[Filter], text: str | None) -> float | None:
    if text is None:
        return kind.threshold
    if kind.threshold is None:
        raise ConfigError(f"data.clean: {name}:{text}: {name} has no threshold. Leave it out")
    try:
        value = float(text)
    except ValueError:
        raise ConfigError(f"data.clean: {name}:{quoted(text)}: the threshold is no number. Write {name}:4") from None
    if not kind.low <= value <= kind.high:
        most = "" if kind.high == math.inf else f" and at most {kind.high:g}"
        raise ConfigError(f"data.clean: {name}:{text}: must be at least {kind.low:g}{most}")
    return value
