"""Runs of one config with other seeds: their mean and spread, and whether two such groups differ."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from transformer_cli.addons.comparison.results import ConfigDifference, GroupComparison, GroupScore
from transformer_cli.config.fields import keys_that_affect
from transformer_cli.config.train import TrainConfig
from transformer_cli.evaluation.significance import MetricComparison

# What may differ between the runs of a group: the seed, how a run was begun, where it is computed, and its log.
FREE = frozenset(("seed", "resume", "force", *keys_that_affect(TrainConfig, "log", "place")))
_UNNAMED = ("name", "runs", "resume", "force")  # differences that say nothing

Flat = Mapping[str, str]  # dotted key → value as it is written


@dataclass(frozen=True)
class Grouping:
    """The systems that are runs of one config, grouped, and notes on the grouping."""

    group_of: Sequence[str | None]  # by system; None: alone
    notes: Sequence[str] = ()


def find_groups(names: Sequence[str], configs: Sequence[Flat | None]) -> Grouping:
    """Group the runs whose configs are equal but for the seed and where they lie; None: the system is no run.

    A run with the seed of another one of its group is its copy rather than another observation, and left out.
    """
    members: dict[frozenset[tuple[str, str]], list[int]] = {}
    for system, config in enumerate(configs):
        if config is not None:
            same = frozenset((key, value) for key, value in config.items() if key not in FREE)
            members.setdefault(same, []).append(system)
    group_of: list[str | None] = [None] * len(names)
    notes: list[str] = []
    for systems in members.values():
        by_seed: dict[str, int] = {}
        for system in systems:
            config = configs[system]
            assert config is not None
            first = by_seed.setdefault(config.get("seed", ""), system)
            if first != system:
                copied = f"has the config and the seed of {names[first]}, so it is not counted as another run"
                notes.append(f"{names[system]} {copied}")
        if len(by_seed) < 2:
            continue
        runs = list(by_seed.values())
        name = _common_name([names[system] for system in runs], taken=[*names, *filter(None, group_of)])
        for system in runs:
            group_of[system] = name
        listed = ", ".join(f"{names[system]} (seed {seed})" for seed, system in by_seed.items())
        notes.append(f"Group {name}: {listed}, whose configs are equal but for the seed")
    return Grouping(group_of, notes)


def _common_name(names: Sequence[str], *, taken: Sequence[str]) -> str:
    """What the names begin with, without a dangling `-seed=`."""
    first, last = min(names), max(names)
    n = next((i for i, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    common = re.sub(r"([\W_]+(seed|s)[\W_]*\d*|[\W_]+)$", "", first[:n])
    if common and common not in taken:
        return common
    return next(name for number in range(1, len(taken) + 2) if (name := f"group {number}") not in taken)


def compare_groups(
    names: Sequence[str], grouping: Grouping, metrics: Sequence[MetricComparison]
) -> tuple[list[GroupScore], list[GroupComparison]]:
    """Mean and spread of each group, and each against that of the first system; a system alone is a group of one.

    Nothing where there is no group of several.
    """
    if not any(grouping.group_of):
        return [], []
    members: dict[str, list[int]] = {}
    for system, name in enumerate(names):
        members.setdefault(grouping.group_of[system] or name, []).append(system)
    scores: list[GroupScore] = []
    comparisons: list[GroupComparison] = []
    for metric in metrics:
        values = {group: [metric.scores[system].score for system in systems] for group, systems in members.items()}
        for group, ours in values.items():
            deviation = stdev(ours) if len(ours) > 1 else 0.0
            scores.append(GroupScore(group, metric.name, len(ours), fmean(ours), deviation, min(ours), max(ours)))
        baseline, *others = values
        for group in others:
            difference = fmean(values[group]) - fmean(values[baseline])
            p_value = welch_p_value(values[baseline], values[group])
            comparisons.append(GroupComparison(metric.name, baseline, group, difference, p_value))
    return scores, comparisons


def config_differences(configs: Sequence[Flat | None]) -> list[ConfigDifference]:
    """The keys that are not the same in all runs, in their order."""
    there = [config for config in configs if config is not None]
    keys = dict.fromkeys(key for config in there for key in config if key not in _UNNAMED)
    return [
        ConfigDifference(key, [None if config is None else config.get(key) for config in configs])
        for key in keys
        if len({config.get(key) for config in there}) > 1
    ]


# ---- Welch's t-test


def welch_p_value(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The p-value of the two-sided test that two samples of unequal variances have the same mean (Welch 1947).

    None where a sample has one value, or no sample has any variance.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    errors = [stdev(values) ** 2 / len(values) for values in (ours, theirs)]  # squared, of each mean
    if sum(errors) == 0:
        return None
    t = (fmean(ours) - fmean(theirs)) / math.sqrt(sum(errors))
    # Of the Welch-Satterthwaite equation.
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, (ours, theirs), strict=True)
    )
    return regularized_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def regularized_beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function I_x(a, b) (NIST DLMF 8.17), by its continued fraction 8.17.22."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, and that of the rest does not
        return 1 - regularized_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / a / _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """1 + d1 / (1 + d2 / (1 + …)), from the inside out, with enough terms for all digits."""
    value = 1.0
    for n in range(400, 0, -1):
        m = n // 2
        if n % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        value = 1 + d / value
    return value
