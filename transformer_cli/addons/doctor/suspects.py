"""Suspects: the pairs of the training text that are most likely wrong, by the filters of data.clean.

Each filter is asked about all of the text as it is in its files. One that would repair a pair hands it on repaired, so
that no later filter finds the same fault once more.
"""

import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from transformer_cli.config.checks import AUTO
from transformer_cli.config.data import DataConfig
from transformer_cli.data.cleaning.base import Filter, PairTexts
from transformer_cli.data.cleaning.clean_corpora import n_workers, numbered_parts, repaired, trained_filters
from transformer_cli.data.corpus import SpooledText, check_inline_tags, check_tags, stream_text
from transformer_cli.data.download import fetch
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers import Corpus, reader_of
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.readers.checked import checked_pairs
from transformer_cli.data.tags import split_tags
from transformer_cli.data.worker_processes import in_processes
from transformer_cli.environment import folder_named
from transformer_cli.errors import ConfigError
from transformer_cli.registry import is_ours

_BLEMISHED = 0.5  # weight of a fault that a translation has, beside that of a pair that is none

# The line of each side within its file, from 0; none where the reader does not go through files line by line.
_Lines = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SidePlace:
    """A side of a pair in the files of the corpus."""

    file: str
    unit: str  # "line"; "row" of a table, "sentence" of a file with markup, "pair" where lines are not counted
    number: int  # from 1

    def __str__(self) -> str:
        return f"{self.file}:{self.number}" if self.unit == "line" else f"{self.file}: {self.unit} {self.number:,}"


@dataclass(frozen=True)
class Reason:
    """The finding of a filter on a pair, with its certainty up to 1."""

    filter: str
    certainty: float
    what: str  # of the pair, as "with the same sentence on both sides"


@dataclass(frozen=True)
class Suspect:
    """A pair that is perhaps wrong, without its tags. The score is the sum of what its reasons weigh."""

    score: float
    source: SidePlace
    target: SidePlace
    texts: Pair
    reasons: list[Reason]


@dataclass
class Suspects:
    """The worst of the pairs that filters have found, worst first, and the number of all these."""

    n_read: int
    n_found: int = 0
    n_by_filter: dict[str, int] = field(default_factory=dict)
    worst: list[Suspect] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # filters that do not suit the text, and were not asked


def find_suspects(config: DataConfig, n: int) -> Suspects:
    """The `n` worst pairs of data.train. Raises ConfigError for what are no translations, DataError.

    Asked are the filters of auto and those that data.clean names. In memory are a sample, a part, and the `n` worst.
    """
    if not config.trained.translates or config.truncate_source:
        raise ConfigError(
            f"suspects={n}: data={config.name} has no translations, which the filters judge. Leave it out"
        )
    reader = reader_of(config)
    fetch(config, progress=True)
    check_tags(config)
    check_inline_tags(config)
    reader.check()
    cache = folder_named(config.cache)
    spool = cache if os.access(cache, os.W_OK | os.X_OK) else None
    with TemporaryDirectory(prefix=".suspects-", dir=spool) as folder:
        named = [config.clean] if isinstance(config.clean, str) else config.clean
        # Undoing tokenization would cost the numbers of the lines.
        text = stream_text(replace(config, detokenize=False), Path(folder))
        return _of_text(text, config, [AUTO, *named], n)


def _of_text(text: SpooledText, config: DataConfig, entries: Sequence[str], n: int) -> Suspects:
    trained, report = trained_filters(text, config, entries)
    found = Suspects(report.n_read, warnings=list(report.warnings()))
    # A heap of the worst: by score, and of equal ones the first of the text.
    heap: list[tuple[float, int, Suspect]] = []
    for (corpus, files), filters, n_pairs in zip(text.corpora, trained, text.sizes, strict=True):
        numbered = _numbered(corpus, files)
        places = _Places(corpus, files, corpus.name or (files[0].name if files else config.name))
        work = _AskFilters(filters, config.all_tags)
        for part in in_processes(work, numbered_parts(numbered), n_processes=n_workers(n_pairs), what="reads text"):
            for one in part:
                found.n_found += 1
                suspect = _suspect(one, places)
                for reason in suspect.reasons:
                    found.n_by_filter[reason.filter] = found.n_by_filter.get(reason.filter, 0) + 1
                heapq.heappush(heap, (suspect.score, -found.n_found, suspect))
                if len(heap) > n:
                    heapq.heappop(heap)
    found.worst = [suspect for _, _, suspect in sorted(heap, key=lambda entry: entry[:2], reverse=True)]
    return found


# ---- Where a pair is


class _Followed(Lines):
    """Lines that know which of them was read last."""

    newest = -1

    def each(self) -> Iterator[str]:
        for index, text in enumerate(super().each()):
            self.newest = index
            yield text


def _numbered(corpus: Corpus, files: Sequence[Lines]) -> Iterator[tuple[_Lines, Pair]]:
    """The pairs of a corpus with the lines that each was read from, as file and index of both sides.

    The readers of a plugin may read ahead, so that their pairs have none.
    """
    if not is_ours(corpus.pairs):
        yield from (((), pair) for pair in checked_pairs(corpus, files))
        return
    followed = [_Followed(**{one.name: getattr(lines, one.name) for one in fields(Lines)}) for lines in files]
    before = [-1] * len(files)
    for pair in corpus.pairs(followed):
        newest = [lines.newest for lines in followed]
        moved = tuple((file, index) for file, index in enumerate(newest) if index != before[file])
        yield moved, pair
        before = newest


@dataclass(frozen=True)
class _Places:
    """The places of the pairs of a corpus."""

    corpus: Corpus
    files: Sequence[Lines]
    name: str

    def of(self, number: int, lines: _Lines) -> tuple[SidePlace, SidePlace]:
        """Both sides of a pair, by its number in the corpus and its lines."""
        if not lines:
            return (SidePlace(self.name, "pair", number),) * 2
        return self._place(*lines[0]), self._place(*lines[-1])

    def _place(self, file: int, index: int) -> SidePlace:
        lines = self.files[file]
        has_markup = file < len(self.corpus.files) and self.corpus.files[file].has_markup
        unit = "sentence" if has_markup else "row" if lines.is_decoded else "line"
        return SidePlace(lines.name, unit, index + 1)


# ---- What is wrong with it


@dataclass
class _Found:
    """A pair that filters have found, as a worker hands it back."""

    number: int  # in its corpus, from 1
    lines: _Lines
    texts: Pair
    weight: float = 0.0
    reasons: list[Reason] = field(default_factory=list)
    # By filter, the number and the lines of the pair that has the translation of this one.
    partners: dict[str, tuple[int, _Lines]] = field(default_factory=dict)

    def add(self, reason: Reason, *, is_blemish: bool) -> None:
        self.weight += reason.certainty * (_BLEMISHED if is_blemish else 1)
        self.reasons.append(reason)


@dataclass(frozen=True)
class _AskFilters:
    """Asks all filters about the pairs of a part."""

    filters: dict[str, Filter]
    known_tags: Sequence[str]

    def __call__(self, part: tuple[int, list[tuple[_Lines, Pair]]]) -> list[_Found]:
        first, pairs = part
        sources = [split_tags(source, self.known_tags)[1] for _, (source, _) in pairs]
        raw = PairTexts(sources, [target for _, (_, target) in pairs], np.arange(len(pairs)))
        found: dict[int, _Found] = {}
        text = raw
        for name, one in self.filters.items():
            verdict = one.apply(text)
            is_found = verdict.dropped.copy()
            is_found[list(verdict.repaired)] = True
            rows = np.flatnonzero(is_found).tolist()
            certainties = one.suspicion(text.pick(is_found)).tolist() if rows else []
            for row, certainty in zip(rows, certainties, strict=True):
                its = found.setdefault(
                    row, _Found(first + row + 1, pairs[row][0], (raw.sources[row], raw.targets[row]))
                )
                is_blemish = row in verdict.repaired and one.blemish != ""
                its.add(Reason(name, certainty, one.blemish if is_blemish else one.what), is_blemish=is_blemish)
                if (other := verdict.partners.get(row)) is not None:
                    its.partners[name] = first + other + 1, pairs[other][0]
            text = repaired(text, verdict)  # but not without what was dropped: later filters are asked about it, too
        return [found[row] for row in sorted(found)]


def _suspect(found: _Found, places: _Places) -> Suspect:
    source, target = places.of(found.number, found.lines)
    reasons = []
    for reason in sorted(found.reasons, key=lambda reason: -reason.certainty):
        if reason.filter in found.partners:
            _, right = places.of(*found.partners[reason.filter])
            reason = replace(reason, what=f"with its translation in {right.unit} {right.number:,}")
        reasons.append(reason)
    return Suspect(found.weight, source, target, found.texts, reasons)
