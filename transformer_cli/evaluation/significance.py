"""Whether the difference between two systems may be chance: paired bootstrap resampling and approximate randomization.

The p-values and intervals are those of `sacrebleu --paired-bs` and `--paired-ar` with the same seed, to the last digit:
the same draws of numpy's generator, the same sums in the same number format, and scores that sacrebleu's metrics make
of them. sacrebleu extracts the statistics of every sentence for each test, and resamples the baseline for each system;
here both are done once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.significance import estimate_ci

from transformer_cli.evaluation.metrics import LOWER_IS_BETTER, SACREBLEU, MetricSettings, Translations, sentence_scores

_Array = NDArray[Any]
_Row = Sequence[float]
_TRIALS_AT_A_TIME = 500  # so that the masks as float64 take little memory
_TIE = 1e-9  # scores this near are equal: sums of floats in another order differ by less


@dataclass(frozen=True)
class SystemScore:
    """The score of one system, with the 95 % confidence interval of bootstrap resamples of the test set."""

    score: float
    mean: float  # of the resamples
    half_width: float  # the interval is mean ± half_width, as sacrebleu prints it


@dataclass(frozen=True)
class PairedResult:
    """A system compared with the baseline: p-values of two-sided tests with the null hypothesis of equality."""

    difference: float  # score of the system minus that of the baseline
    p_bootstrap: float | None  # paired bootstrap resampling (Koehn 2004); None where it was not asked for
    p_randomization: float | None  # approximate randomization (Riezler and Maxwell 2005), as sacrebleu counts it
    # As Riezler and Maxwell count it: with the trials whose difference is just the observed one. sacrebleu leaves them
    # out, so that a difference in one line, which every trial keeps or turns round, has a p-value near 0 there.
    p_with_ties: float | None = None

    def is_significant(self, level: float = 0.05) -> bool:
        """Whether every test that was made has a p-value below `level`."""
        values = [p for p in (self.p_bootstrap, self.p_randomization, self.p_with_ties) if p is not None]
        return bool(values) and max(values) < level


@dataclass(frozen=True)
class MetricComparison:
    """One metric, by system."""

    name: str  # as in a table: BLEU, chrF2++
    signature: str  # with seed and number of resamples
    higher_is_better: bool
    scores: Sequence[SystemScore]
    against_baseline: Sequence[PairedResult | None]  # None of the baseline itself


@dataclass(frozen=True)
class Resampling:
    """How the tests draw. `seed` None: from the operating system, another time otherwise."""

    seed: int | None
    samples: int  # bootstrap resamples of the lines
    trials: int  # of randomization


@dataclass(frozen=True)
class Statistics:
    """What a metric counts in each line, by system: a score is computed from the sums over lines.

    `dtype` is what the bootstrap adds them up in, which decides the last digits.
    """

    name: str  # as in a table
    signature: Callable[[dict[str, int | str]], str]  # with these entries added
    higher_is_better: bool
    score_of: Callable[[Any], Any]  # from the sums, a list or an array
    rows: Sequence[Sequence[_Row]]  # by system and line
    dtype: str = "float32"

    def score(self, system: int, lines: Sequence[int] | None = None) -> float:
        """The score of all lines, or of the ones with these indices."""
        rows = self.rows[system] if lines is None else [self.rows[system][i] for i in lines]
        return float(self.score_of([sum(column) for column in zip(*rows, strict=True)]))


def statistics_of(name: str, systems: Sequence[Translations], settings: MetricSettings) -> Statistics:
    """The statistics of the systems, which have the same references, for the metric with this name.

    Of a metric that is not sacrebleu's they are its sentence-level scores, whose mean is compared. Raises ConfigError
    for one that has none, and MetricUnavailable.
    """
    if name in SACREBLEU:
        metric = SACREBLEU[name](settings)
        metric._ref_cache = metric._cache_references(systems[0].references)  # as its constructors do
        rows = [metric._extract_corpus_statistics(one.hypotheses, None) for one in systems]

        def signature(entries: dict[str, int | str]) -> str:
            made = metric.get_signature()
            for entry in entries.items():
                made.update(*entry)
            return str(made.format())

        def score_of(sums: Any) -> Any:
            return metric._compute_score_from_stats(sums).score  # of the type that it makes of the sums

        label = "spBLEU" if name == "spbleu" else metric._aggregate_and_compute(rows[0]).name
        return Statistics(label, signature, name not in LOWER_IS_BETTER, score_of, rows)
    found = [sentence_scores(name, one, settings) for one in systems]
    first = found[0]
    return Statistics(
        first.name,
        lambda entries: "|".join([first.signature, *(f"{key}:{value}" for key, value in entries.items())]),
        first.higher_is_better,
        lambda sums: sums[0] / sums[1],
        [[(value, 1.0) for value in one.values] for one in found],
        dtype="float64",
    )


class Draws:
    """The random choices of both tests, the same for all metrics and systems."""

    def __init__(self, n_lines: int, resampling: Resampling) -> None:
        self.resampling = resampling
        size = (resampling.samples, n_lines)
        self.resamples: _Array = np.random.default_rng(resampling.seed).choice(n_lines, size=size, replace=True)
        size = (resampling.trials, n_lines)
        self.stays: _Array = np.random.default_rng(resampling.seed).integers(2, size=size, dtype=bool)

    def entries(self) -> dict[str, int | str]:
        """The entries of signatures."""
        seed = "none" if self.resampling.seed is None else self.resampling.seed
        return {"seed": seed, "bs": self.resampling.samples, "ar": self.resampling.trials}


def compare_systems(statistics: Statistics, draws: Draws) -> MetricComparison:
    """Score every system, and test each against the first."""
    scores = [statistics.score(system) for system in range(len(statistics.rows))]
    resampled = [_resampled_scores(statistics, rows, draws) for rows in statistics.rows]
    intervals = [estimate_ci(values) for values in resampled]
    results: list[PairedResult | None] = [None]
    for system in range(1, len(scores)):
        difference = scores[system] - scores[0]
        if np.array_equal(statistics.rows[system], statistics.rows[0]):
            results.append(PairedResult(0.0, 1.0, 1.0, 1.0))  # sacrebleu, which counts no ties, has p-values near 0
            continue
        spread = np.abs(resampled[system] - resampled[0])
        shuffled = _shuffled_differences(statistics, system, draws)
        observed = abs(difference)
        results.append(
            PairedResult(
                difference,
                _p_value(spread - spread.mean() > observed),  # in float32, where the scores are
                _p_value(shuffled > observed),
                _p_value(shuffled >= observed - _TIE),
            )
        )
    return MetricComparison(
        statistics.name,
        statistics.signature(draws.entries()),
        statistics.higher_is_better,
        [
            SystemScore(score, float(mean), float(half_width))
            for score, (mean, half_width) in zip(scores, intervals, strict=True)
        ],
        results,
    )


def _resampled_scores(statistics: Statistics, rows: Sequence[_Row], draws: Draws) -> _Array:
    """The score of each bootstrap resample. Each is summed by itself: sums of float32 depend on their order."""
    table = np.array(rows, dtype=statistics.dtype)
    # A metric computes in the number format of what it is given, so it is not given Python's floats.
    return np.array([statistics.score_of(table[lines].sum(0)) for lines in draws.resamples])


def _shuffled_differences(statistics: Statistics, system: int, draws: Draws) -> _Array:
    """How far apart two systems are in each trial, where every line goes to one or the other of them by chance."""
    ours, theirs = np.array(statistics.rows[0]), np.array(statistics.rows[system])
    if ours.dtype == theirs.dtype == np.int64:
        # Exact in float64, too, whose matrices numpy multiplies a hundred times faster.
        both = np.hstack([ours, theirs]).astype(np.float64)
        n_trials = len(draws.stays)
        sums = np.concatenate(
            [
                draws.stays[start : start + _TRIALS_AT_A_TIME].astype(np.float64) @ both
                for start in range(0, n_trials, _TRIALS_AT_A_TIME)
            ]
        ).astype(np.int64)
        staying_ours, staying_theirs = np.split(sums, 2, axis=1)
        first = staying_ours + theirs.sum(0) - staying_theirs
        second = ours.sum(0) - staying_ours + staying_theirs
    else:
        first = draws.stays @ ours + ~draws.stays @ theirs
        second = ~draws.stays @ ours + draws.stays @ theirs
    one, other = ([statistics.score_of(sums) for sums in table.tolist()] for table in (first, second))
    differences: _Array = np.abs(np.array(one) - np.array(other))
    return differences


def _p_value(is_larger: _Array) -> float:
    """The share of draws, of which what was observed is one more."""
    return (int(is_larger.sum()) + 1) / (len(is_larger) + 1)
