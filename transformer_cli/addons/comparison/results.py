"""What a comparison found, as plain values: the table, the JSON and the page are made from it.

`systems[0]` is the baseline, which every other system is compared with. A list "by system" has their order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from transformer_cli.evaluation.significance import MetricComparison


@dataclass(frozen=True)
class System:
    """One that translates: a run, a model file, a checkpoint, an export, or a file with translations."""

    name: str  # the shortest that tells it from the others
    path: str  # as the user named it
    kind: str  # run, model, export or translations
    translations: Sequence[str]
    search: str | None = None  # signature of the search that made them; None of a file
    model_hash: str | None = None
    group: str | None = None  # the runs of one config with other seeds have the same one


@dataclass(frozen=True)
class GroupScore:
    """The runs of one config with other seeds, by one metric."""

    group: str
    metric: str
    n_runs: int
    mean: float
    deviation: float  # sample standard deviation; 0 of a single run
    lowest: float
    highest: float


@dataclass(frozen=True)
class GroupComparison:
    """Two groups by one metric: the difference of their means, and Welch's t-test where both have several runs."""

    metric: str
    baseline: str
    group: str
    difference: float
    p_value: float | None


@dataclass(frozen=True)
class Sentence:
    """A line of the test set, whose translations differ much in their sentence-level scores."""

    line: int  # from 1
    source: str | None
    references: Sequence[str]
    translations: Sequence[str]  # by system
    scores: Sequence[float]  # by system, of the metric of `Comparison.sentence_metric`


@dataclass(frozen=True)
class Bucket:
    """A share of the test set, or of its words, and the score of each system on it."""

    label: str  # as 1-10, 11-20, 50+
    n: int  # lines, or words of the references
    scores: Sequence[float | None]  # by system; None where nothing is in it


@dataclass(frozen=True)
class Breakdown:
    """Scores by a property of the lines or words, as length or frequency."""

    title: str  # "chrF2 by length of the reference"
    of: str  # what n counts: lines, words
    property: str  # what the labels are: words of the reference, occurrences in the training text
    buckets: Sequence[Bucket]


@dataclass(frozen=True)
class Curve:
    """A dev score during the training of one system."""

    system: int  # index into `systems`
    metric: str  # as in metrics.jsonl: dev_bleu, dev_nll
    points: Sequence[tuple[int, float]]  # update, score
    higher_is_better: bool | None = None  # None: nothing is said of it


@dataclass(frozen=True)
class ConfigDifference:
    """A config key that is not the same in all runs; None: not in that config, or the system is no run."""

    key: str
    values: Sequence[str | None]  # by system


@dataclass(frozen=True)
class Comparison:
    """Everything that `tfm compare` reports."""

    test_set: str
    n_lines: int
    n_references: int
    systems: Sequence[System]
    metrics: Sequence[MetricComparison]
    sentence_metric: str  # name of the metric of `better` and `worse`
    better: Mapping[int, Sequence[Sentence]] = field(default_factory=dict)  # system → lines on which it gains most
    worse: Mapping[int, Sequence[Sentence]] = field(default_factory=dict)  # system → lines on which it loses most
    groups: Sequence[GroupScore] = ()
    group_comparisons: Sequence[GroupComparison] = ()
    breakdowns: Sequence[Breakdown] = ()
    curves: Sequence[Curve] = ()
    config_differences: Sequence[ConfigDifference] = ()
    statistics: Sequence[Mapping[str, float | int | None]] = ()  # by system: length ratio, copies, loops, … by name
    notes: Sequence[str] = ()  # what a reader must know, a sentence each
    clear_best: Mapping[str, int] = field(default_factory=dict)  # metric → system; only where it was tested
    source_language: str | None = None  # codes as de, pt-BR, zho_Hans; None where nothing names the language
    target_language: str | None = None
