"""What runs have beside their translations: dev scores during training, and configs."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer_cli.addons.comparison.groups import Flat
from transformer_cli.addons.comparison.results import Curve
from transformer_cli.config.difference import flattened
from transformer_cli.evaluation.metrics import LOWER_IS_BETTER

_METRICS_FILE = "metrics.jsonl"
_DERIVED = ("dev_ppl",)  # the exponential of dev_nll


def read_curves(run_dir: Path, system: int) -> list[Curve]:
    """The dev scores of a run; none of one that has no (readable) metrics.jsonl.

    A run that was resumed from an earlier checkpoint has some updates twice; the last one counts.
    """
    points: dict[str, dict[int, float]] = {}
    try:
        lines = (run_dir / _METRICS_FILE).read_bytes().split(b"\n")
    except OSError:
        return []
    for line in lines:
        try:
            entry = json.loads(line)
            step, is_dev = int(entry["step"]), entry["kind"] == "dev"
        except (ValueError, KeyError, TypeError):  # the last line, while the run is writing it
            continue
        for name, value in entry.items() if is_dev else ():
            is_score = name.startswith("dev_") and name not in _DERIVED and type(value) in (int, float)
            if is_score and math.isfinite(value):
                points.setdefault(name, {})[step] = value
    return [Curve(system, name, sorted(by_step.items()), _higher_is_better(name)) for name, by_step in points.items()]


def _higher_is_better(name: str) -> bool | None:
    """Whether more of a dev score is better, also of a part of the dev set (`dev_bleu <2de>`); None if unknown."""
    metric = name.removeprefix("dev_").split(" ")[0]
    if metric in ("nll", *LOWER_IS_BETTER):
        return False
    return True if metric in ("bleu", "chrf", "chrf++", "comet", "accuracy", "macro_f1") else None


def flat_text(config: Mapping[str, Any]) -> Flat:
    """Dotted key → value, as it is written in a config."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in flattened(config).items()
    }
