"""Floors of dev scores: what a checkpoint may lose on text that the model could already translate.

A name is that of a part of the dev set, as in the log, or `old`, the dev set of the text that fine-tuning began with.
Marks of tags, which a command line cannot have there, are left out: `2fr` is <2fr>, and `en-2fr` is <en> <2fr>.
"""

import re
from collections.abc import Mapping
from typing import Any

from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.metrics import LOWER_IS_BETTER
from transformer_cli.training.validation import LABELS

_OLD_DEV = "old"


def broken_floors(
    floors: Mapping[str, float], before: Mapping[str, Any], scores: Mapping[str, Any], metric: str
) -> list[str]:
    """A phrase for each floor under which the scores of a checkpoint lie, beside those `before` fine-tuning.

    Raises ConfigError for a name of no scored text.
    """
    sign = -1 if metric in (*LOWER_IS_BETTER, "nll") else 1
    known = _known(before, metric)
    phrases = []
    for name, floor in floors.items():
        if name not in known:
            raise ConfigError(
                f"train.floor={{{name}: {floor:g}}}: no dev set with a {metric} score is called so. Choose among"
                f" {', '.join(known) or 'none: name several files in data.dev, or an init.from whose dev set is there'}"
            )
        key = known[name]
        first, now = float(before[key]), float(scores.get(key, -sign * float("inf")))
        if sign * (now - first) < floor:
            phrases.append(f"{name} {LABELS.get(metric, metric)} {first:.4g} → {now:.4g}, allowed {floor:g}")
    return phrases


def _known(scores: Mapping[str, Any], metric: str) -> dict[str, str]:
    """The names of scored texts, each with the name of its score."""
    part, old = f"dev_{metric} ", f"dev_old_{metric}"
    known = {_plain(name.removeprefix(part)): name for name in scores if name.startswith(part)}
    known |= {f"{_OLD_DEV}-{_plain(name.removeprefix(old))}": name for name in scores if name.startswith(f"{old} ")}
    return known | ({_OLD_DEV: old} if old in scores else {})


def _plain(name: str) -> str:
    return "-".join(re.findall(r"[\w.]+", name))
