"""N-best lists with the features of their candidates, as tfm and other programs write them."""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from transformer_cli.data.lines import read_lines, shown
from transformer_cli.errors import DataError, quoted

_FIELDS = " ||| "
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|inf|nan)"
_MOSES = re.compile(rf"(?:\S+= ?{_NUMBER}(?: {_NUMBER})*(?: |$))+", re.IGNORECASE)
_MOSES_FEATURE = re.compile(rf"(\S+)= ?({_NUMBER}(?: {_NUMBER})*)", re.IGNORECASE)
SCORE, LENGTH = "score", "length"


@dataclass
class NBest:
    """The candidates of all lists one after another, their features by name, and where each list begins and ends."""

    name: str
    texts: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])  # and the end of the last
    features: dict[str, list[float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def add_feature(self, name: str, values: Sequence[float], where: str) -> None:
        """Raises DataError for a name that is there, another number of values, and one that is no finite number."""
        if name in self.features:
            raise DataError(f"{where}: the feature {name} is there already. Choose another name")
        if len(values) != len(self.texts):
            raise DataError(
                f"{where}: has {len(values):,} values, and {self.name} {len(self.texts):,} candidates. Make one of each"
            )
        for number, value in enumerate(values, 1):
            if not math.isfinite(value):
                raise DataError(f"{where}: value {number:,} is {value:g}, not a finite number. Leave its candidate out")
        self.features[name] = list(values)

    def of_each(self, lines: Sequence[str]) -> list[str]:
        """The line of each candidate, of lines that belong to the lists."""
        return [line for line, (a, b) in zip(lines, pairwise(self.starts), strict=True) for _ in range(a, b)]


def read_nbest(path: Path) -> NBest:
    """Raises DataError for a line that is no candidate, a list that is missing, and features that differ or are NaN."""
    lines, name = read_lines(path).texts, shown(path)
    if not lines:
        raise DataError(f"{name}: is empty. Make it with `tfm translate --n-best 8`")
    read = _read_json if lines[0].startswith("{") else _read_fields
    found = NBest(name)
    rows: list[Mapping[str, float]] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, 1):
        for sentence, text, features in read(line, f"{name}:{number}"):
            if rows and features.keys() != rows[0].keys():
                raise DataError(
                    f"{name}:{number}: has the features {', '.join(features)}, and the first candidate"
                    f" {', '.join(rows[0])}. Make all of the lists in the same way"
                )
            if numbers and sentence != numbers[-1]:
                found.starts.append(len(rows))
            _check_number(sentence, numbers, f"{name}:{number}")
            numbers.append(sentence)
            found.texts.append(text)
            rows.append(features)
    found.starts.append(len(rows))
    for feature in rows[0]:
        found.add_feature(feature, [row[feature] for row in rows], name)
    found.add_feature(LENGTH, [float(len(text.split())) for text in found.texts], name)
    return found


def _check_number(sentence: int, before: Sequence[int], where: str) -> None:
    """Raise DataError unless lists are numbered in order, from 0 or from 1."""
    allowed = (before[-1], before[-1] + 1) if before else (0, 1)
    if sentence not in allowed:
        raise DataError(
            f"{where}: is of sentence {sentence}, but sentence {allowed[-1]} is next. Give a list for each sentence,"
            " in order"
        )


_Row = tuple[int, str, dict[str, float]]


def _read_fields(line: str, where: str) -> Iterator[_Row]:
    """`number ||| translation ||| score`, or with features before the score, as Moses has them."""
    sentence, _, rest = line.partition(_FIELDS)
    text, between, score = rest.rpartition(_FIELDS)
    named: list[tuple[str, float]] = []
    before, is_moses, fields = text.rpartition(_FIELDS)
    if is_moses and _MOSES.fullmatch(fields):
        text = before
        for name, values in _MOSES_FEATURE.findall(fields):
            each = values.split()
            named += [(name if len(each) == 1 else f"{name}_{n}", float(one)) for n, one in enumerate(each, 1)]
    try:
        if not between:
            raise ValueError
        features = {SCORE: float(score)}
        for name, value in named:
            if name in features:
                raise DataError(f"{where}: has two features {name}. Give each another name")
            features[name] = value
        yield int(sentence), text, features
    except ValueError:
        raise DataError(
            f"{where}: {quoted(line, 60)} is no candidate. Write `number ||| translation ||| score`, as"
            " `tfm translate --n-best` does"
        ) from None


def _read_json(line: str, where: str) -> Iterator[_Row]:
    """An object of --output-format jsonl."""
    try:
        record = json.loads(line)
        for one in (record, *record["alternatives"]):
            features = {name: float("nan") if one[name] is None else float(one[name]) for name in (SCORE, "log_prob")}
            yield int(record["line"]), str(one["translation"]), features
    except (ValueError, KeyError, TypeError) as error:
        fault = quoted(f"{type(error).__name__}: {error}")
        raise DataError(
            f"{where}: no object of `tfm translate --output-format jsonl` ({fault}). Make the lists with it"
        ) from error


def read_values(path: Path) -> list[float]:
    """A number on each line, or an object of `tfm score --json`. Raises DataError."""
    name, values = shown(path), []
    for number, line in enumerate(read_lines(path).texts, 1):
        try:
            values.append(float(json.loads(line)["log_prob"] if line.startswith("{") else line))
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"{name}:{number}: {quoted(line, 60)} is no number. Write one for each candidate, as `tfm score` does"
            ) from None
    return values
