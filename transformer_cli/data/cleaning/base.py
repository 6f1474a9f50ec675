"""What filters of training text have in common, and which of them a config chooses."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_cli.config.checks import AUTO
from transformer_cli.config.data import DataConfig
from transformer_cli.data.checks.profiles import Floats
from transformer_cli.data.cleaning.registry import FILTERS, Filter, Languages
from transformer_cli.data.cleaning.texts import Mask, PairTexts, Verdict, unrelated_targets
from transformer_cli.errors import ConfigError, quoted

__all__ = [
    "FILTERS",
    "Filter",
    "Languages",
    "Mask",
    "PairTexts",
    "Unapplied",
    "Verdict",
    "WholeTextFilter",
    "certainty",
    "chosen_filters",
    "drop",
    "filter_versions",
    "unrelated_targets",
]


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


_ENTRY = re.compile(r"(?P<name>-?[^:]+)(?::(?P<threshold>.*))?")


def chosen_filters(entries: Sequence[str]) -> dict[str, float | None]:
    """The thresholds of the filters that `data.clean` names, in the order in which they are applied.

    Entries are names, with a threshold as in length_ratio:4; auto; and -name, which leaves one of auto out. Raises
    ConfigError.
    """
    # Those of this package first, in their order: add-ons and plugins may be imported before them.
    order = sorted(FILTERS.items(), key=lambda entry: not entry[1].__module__.startswith(f"{__package__}."))
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


def filter_versions(config: DataConfig) -> dict[str, Any]:
    """What the results of the chosen filters depend on besides text and thresholds, of those that say so.

    Raises ConfigError for settings that no filter uses, and TfmError for those that a filter cannot use.
    """
    kinds = {name: FILTERS[name] for name in chosen_filters(config.filters)}
    if config.clean_models and not any(kind.uses_models for kind in kinds.values()):
        users = " or ".join(name for name, kind in FILTERS.items() if kind.uses_models)
        raise ConfigError(
            f"data.clean_models={config.clean_models}: no filter of data.clean uses models. Add {users} to data.clean,"
            " or leave it out"
        )
    versions = {name: kind.version(config) for name, kind in kinds.items()}
    return {name: version for name, version in versions.items() if version is not None}


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
