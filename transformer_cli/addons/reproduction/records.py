"""Reproductions: experiments with the scores that others have published and the dev scores of our own runs, as data.

`configs/reproductions/NAME.yaml` belongs to `configs/experiment/NAME.yaml`.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from transformer_cli.config.overrides import parse_override
from transformer_cli.config.yaml_files import choices_of, config_dir, read_yaml
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.registry import did_you_mean

KEY = "reproduction"
REPRODUCTIONS_FOLDER = "reproductions"  # of configs/; Hydra takes a key of the name of a folder for a group


@dataclass(frozen=True)
class Published:
    """A score that others have published."""

    score: float
    metric: str  # as its source computed it
    source: str
    our_metric: str | None = None  # the score of our test report that is nearest to it


@dataclass(frozen=True)
class OurScore:
    """A score of our own run, or the mean over its seeds."""

    score: float
    metric: str  # as the test report names it, or dev BLEU, dev accuracy, dev perplexity
    signature: str
    search: str = ""  # signature of the search; empty of what is not translated


@dataclass(frozen=True)
class DevCurve:
    """The dev scores of one run. A point has the step, the NLL in nats per target token, and the score if any."""

    seed: int
    points: list[list[float]]


@dataclass(frozen=True)
class Tolerance:
    """Half of the interval around the curve of a single run within which another run is on track."""

    nll: float
    score: float
    reason: str


@dataclass(frozen=True)
class OurRuns:
    """Runs of the recipe as it was at `commit`."""

    machine: str
    torch: str
    date: str
    commit: str
    source: str  # where the figures are from
    scores: list[OurScore]
    curves: list[DevCurve]
    minutes: float | None = None  # of one run; None: not written down
    dev_metric: str | None = None  # the score of a point: bleu, chrf or accuracy
    tolerance: Tolerance | None = None  # None: computed from the curves of several seeds
    note: str = ""  # what has changed since

    def __post_init__(self) -> None:
        if not self.curves:
            raise ConfigError("curves: empty. Give the dev scores of a run")
        for i, curve in enumerate(self.curves):
            _check_points(curve.points, self.dev_metric, f"curves.{i}.points")
        if len({curve.seed for curve in self.curves}) < len(self.curves):
            raise ConfigError("curves: a seed stands twice. Remove one")
        if len({tuple(point[0] for point in curve.points) for curve in self.curves}) > 1:
            raise ConfigError("curves: have other steps. Leave out the steps that not all of them have")
        if len(self.curves) == 1 and self.tolerance is None:
            raise ConfigError("tolerance: not given, and one curve has no deviation. Give nll, score and reason")


@dataclass(frozen=True)
class Reproduction:
    title: str
    published: list[Published]
    differs: list[str]  # between what is published and the recipe
    cost: str = ""  # rough time and machine, where no run of ours says it
    ours: OurRuns | None = None  # None: never run
    name: str = ""  # of the file and of the experiment

    @property
    def recipe(self) -> str:
        return f"tfm train experiment={self.name}"

    def published_lines(self) -> Iterator[str]:
        """A line for each source of the published figures."""
        for source in dict.fromkeys(score.source for score in self.published):
            scores = [f"{score.score:g} {score.metric}" for score in self.published if score.source == source]
            yield f"published   {', '.join(scores)}: {source}"
        if not self.published:
            yield "published   nothing: the recipe is ours"

    def our_line(self) -> str:
        """The scores of our runs, the time of one and the machine; of none, what is known of time and machine."""
        if self.ours is None:
            return f"never run; {self.cost}"
        n = len(self.ours.curves)
        scores = ", ".join(f"{score.score:g} {score.metric}" for score in self.ours.scores)
        how_many = "one run" if n < 2 else f"mean of {n} seeds"
        return f"{scores} ({how_many}, {self.ours.date}): {_duration(self.ours.minutes)}{self.ours.machine}"


def _duration(minutes: float | None) -> str:
    if minutes is None:
        return ""
    return f"{minutes:g} minutes, " if minutes >= 2 else f"{60 * minutes:.0f} seconds, "


def _check_points(points: Sequence[Sequence[float]], metric: str | None, where: str) -> None:
    length = 2 if metric is None else 3
    before = 0.0
    if not points:
        raise ConfigError(f"{where}: empty. Give a row for each evaluation, or leave the curve out")
    for row, point in enumerate(points):
        if len(point) != length or not all(map(math.isfinite, point)):
            wanted = "[step, dev NLL]" if metric is None else f"[step, dev NLL, dev {metric}]"
            raise ConfigError(f"{where}.{row}: {list(point)}: not as {wanted}. Give {length} finite numbers")
        if point[0] <= before or point[0] % 1:
            raise ConfigError(f"{where}.{row}: step {point[0]:g} after {before:g}. Give whole, rising steps from 1")
        before = point[0]


def names() -> list[str]:
    return choices_of(REPRODUCTIONS_FOLDER)


def read_reproduction(name: str, folder: Path | None = None) -> Reproduction:
    """Raises ConfigError for an unknown name, and naming file and key for a file that is not as the schema."""
    folder = folder or config_dir() / REPRODUCTIONS_FOLDER
    known = choices_of(REPRODUCTIONS_FOLDER, [folder])
    if name not in known:
        near = did_you_mean(name, known) or "; `tfm reproduce` lists all"
        raise ConfigError(f"no reproduction called `{name}`{near}")
    path = folder / f"{name}.yaml"
    try:
        found: Reproduction = _as_dataclass(Reproduction, read_yaml(path), "")
    except ConfigError as error:
        message = str(error)
        raise ConfigError(message if message.startswith(str(path)) else f"{path}: {message}") from None
    return dataclasses.replace(found, name=name)


def with_experiment(overrides: Sequence[str], flags: Mapping[str, Any]) -> list[str]:
    """The overrides of `tfm reproduce`, after the experiment of the chosen name. Raises ConfigError."""
    given = {parsed.key_or_group: parsed.value() for parsed in map(parse_override, overrides)}
    name = flags.get(KEY, given.get(KEY))
    if name is None:
        if overrides:
            raise ConfigError(
                f"{overrides[0]}: no recipe is named. Name one, as `tfm reproduce multi30k {overrides[0]}`; without any"
                " override `tfm reproduce` lists them"
            )
        return []
    if "experiment" in given:
        raise ConfigError(
            f"experiment={given['experiment']}: {name} is an experiment itself. Leave one out, or use `tfm train`"
        )
    read_reproduction(str(name))
    return [f"experiment={name}", *overrides]


def _as_dataclass(schema: Any, plain: Any, where: str) -> Any:
    """`plain` as an instance of a dataclass, by its type hints. Raises ConfigError that begins with the dotted key."""
    if not isinstance(plain, dict):
        _refuse(where, plain, "a table of keys and values")
    fields = {one.name: one for one in dataclasses.fields(schema)}
    hints = typing.get_type_hints(schema)
    for name in plain:
        if name not in fields:
            raise ConfigError(f"{_below(where, name)}: unknown key{did_you_mean(str(name), fields)}. Remove it")
    for name, one in fields.items():
        if name not in plain and one.default is dataclasses.MISSING:
            raise ConfigError(f"{_below(where, name)}: missing. Add it")
    values = {name: _as_value(hints[name], value, _below(where, name)) for name, value in plain.items()}
    try:
        return schema(**values)
    except ConfigError as error:
        raise ConfigError(_below(where, error)) from None


def _as_value(hint: Any, value: Any, where: str) -> Any:
    if isinstance(hint, types.UnionType):
        (hint,) = [one for one in typing.get_args(hint) if one is not types.NoneType]
        return None if value is None else _as_value(hint, value, where)
    if dataclasses.is_dataclass(hint):
        return _as_dataclass(hint, value, where)
    if typing.get_origin(hint) is list:
        if not isinstance(value, list):
            _refuse(where, value, "a list")
        (element,) = typing.get_args(hint)
        return [_as_value(element, one, f"{where}.{i}") for i, one in enumerate(value)]
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        _refuse(where, value, {str: "text", int: "a whole number", float: "a number"}[hint])
    return value


def _refuse(where: str, value: Any, wanted: str) -> NoReturn:
    raise ConfigError(f"{where or 'the file'}: {quoted(str(value))} is not {wanted}. Write {wanted} there")


def _below(where: str, name: object) -> str:
    return f"{where}.{name}".removeprefix(".")
