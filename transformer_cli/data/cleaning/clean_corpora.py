"""Cleaning of the training text of a corpus: a sample teaches the filters, and all text then goes through them.

Nothing depends on how the text is divided into parts, so that it is the same wherever it is done. In memory are the
sample and one part; with a filter of the whole text also the numbers of the pairs that are kept, 8 bytes each.
"""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress, islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from tqdm import tqdm

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tags import language_of, languages_of, tags_in
from transformer_cli.data.cleaning.base import (
    Filter,
    Languages,
    Mask,
    PairTexts,
    Unapplied,
    Verdict,
    WholeTextFilter,
    chosen_filters,
)
from transformer_cli.data.cleaning.filters import FILTERS
from transformer_cli.data.corpus import SpooledText, sentence_key
from transformer_cli.data.folds import fold_of
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers import Corpus
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.readers.checked import PairHash, checked_pairs
from transformer_cli.data.shards import Incomplete, PartStore, each_part, write_json
from transformer_cli.data.spooled import both_sides, of_both_sides
from transformer_cli.data.tags import split_tags
from transformer_cli.errors import DataError
from transformer_cli.system import n_processors

SAMPLE = 60_000  # pairs that filters learn from
PART = 10_000  # pairs in a row that go through the filters together
_PAIRS_PER_PROCESS = 50_000  # at least, to be worth its start
_TOO_MANY = 0.5  # of the sample
_APART = 1000  # lines between those of the sample: none is beside another
SHOWN = 10  # examples of each filter in the report
_LOWEST = 16  # of 256, the first byte of the hashes of a sixteenth of the sources: at most a twentieth is held out

Numbers: TypeAlias = MutableSequence[int]
_ItemT = TypeVar("_ItemT")
_Read = tuple[Corpus, Sequence[Lines]]  # a corpus with the lines of its files


@dataclass
class FilterReport:
    """What one filter did: counts, and the first pairs of each kind with their numbers in the corpus, from 1."""

    name: str
    what: str
    repair: str
    threshold: float | None
    n_dropped: int = 0
    n_repaired: int = 0
    left_out: float = 0.0  # share of the sample that it would have dropped: too much, so that it was not applied
    dropped: list[dict[str, Any]] = field(default_factory=list)
    repaired: list[dict[str, Any]] = field(default_factory=list)

    def add(self, other: "FilterReport") -> None:
        """Add what the same filter did to further pairs."""
        self.n_dropped += other.n_dropped
        self.n_repaired += other.n_repaired
        self.dropped += other.dropped[: SHOWN - len(self.dropped)]
        self.repaired += other.repaired[: SHOWN - len(self.repaired)]


@dataclass
class FilteringReport:
    """The filters of a corpus in the order in which they were applied; the number of pairs before and after."""

    n_read: int = 0
    n_kept: int = 0
    filters: list[FilterReport] = field(default_factory=list)

    def sentences(self) -> Iterator[str]:
        """One for each count, for the log."""
        if self.filters:
            yield f"{self.n_kept:,} of {self.n_read:,} training pairs kept by the filters of data.clean"
        for one in self.filters:
            if one.n_dropped:
                yield f"{one.n_dropped:,} dropped: {one.what} ({one.name})"
            if one.n_repaired:
                yield f"{one.n_repaired:,} kept, {one.repair} ({one.name})"

    def warnings(self) -> Iterator[str]:
        """A sentence for each filter of auto that was not applied."""
        for one in self.filters:
            if one.left_out:
                yield (
                    f"data.clean: {one.name} was not applied, as it would have dropped {one.left_out:.0%} of the pairs:"
                    f" {one.what}. Check the files and the languages, or name it in data.clean if that is meant"
                )

    def require_pairs(self) -> None:
        """Raise DataError if the filters dropped all there was."""
        if self.n_read and not self.n_kept:
            why = ", ".join(f"{one.n_dropped:,} {one.what} ({one.name})" for one in self.filters if one.n_dropped)
            raise DataError(
                f"data.train: the filters of data.clean dropped all of {self.n_read:,} pairs: {why}. Leave these"
                " filters out, as with data.clean=[auto,-copies], or all with data.clean=[]"
            )

    @classmethod
    def read(cls, path: Path) -> "FilteringReport":
        """The report in a file, which is its dataclass as JSON."""
        plain = json.loads(path.read_bytes())
        return cls(plain["n_read"], plain["n_kept"], [FilterReport(**one) for one in plain["filters"]])


def cleaned(
    text: SpooledText, config: DataConfig, spool: Path, store: PartStore | None = None, *, progress: bool = False
) -> tuple[SpooledText, FilteringReport]:
    """The training text without what the filters of `data.clean` drop, and with what they repair.

    Corpora with the same tags are cleaned by filters that learn from all of them, though not from sources that may be
    held out as dev or test. Raises ConfigError, DataError, and Incomplete where shards have parts still to make.
    """
    trained, report = trained_filters(text, config, config.filters)
    done: list[_Read] = []
    numbers: list[Numbers] = []
    needs_numbers = bool(config.context_sentences)  # a context is of the text before the filters
    needs_numbers |= any(issubclass(FILTERS[one.name], WholeTextFilter) for one in report.filters)
    missing: Incomplete | None = None
    for number, ((corpus, files), filters) in enumerate(zip(text.corpora, trained, strict=True)):
        n_pairs, off = text.sizes[number], None if progress else True  # None: on if stderr is a terminal
        pairs = tqdm(
            checked_pairs(corpus, files), "cleaning", n_pairs, unit=" pairs", unit_scale=True, leave=False, disable=off
        )
        work = _CleanPart(filters, config.all_tags)
        parts = each_part(
            store,
            f"cleaned-{number}",
            work,
            numbered_parts(iter(pairs)),
            _AsJson(),
            n_processes=n_workers(n_pairs),
            what="cleans text",
        )
        numbers.append(array("q"))
        try:
            sides = both_sides(
                _pairs_of(parts, report, numbers[-1] if needs_numbers else None), spool / f"clean-{number}"
            )
        except Incomplete as error:
            missing = error  # of this corpus; this shard has parts of the others to make
            continue
        done.append(of_both_sides(corpus, files, sides))
    if missing is not None:
        raise missing
    for its_report in report.filters:
        kind = FILTERS[its_report.name]
        if issubclass(kind, WholeTextFilter):
            one = kind(_languages("", config), its_report.threshold)
            done, numbers = _by_whole_text(one, done, numbers, config, its_report, spool)
    sizes = [len(sides[0]) for _, sides in done]
    report.n_kept = sum(sizes)
    kept = numbers if config.context_sentences else ()
    return replace(text, corpora=done, sizes=sizes, hashes=[PairHash().value] * len(done), kept=kept), report


def _by_whole_text(
    one: WholeTextFilter,
    corpora: Sequence[_Read],
    numbers: Sequence[Numbers],
    config: DataConfig,
    report: FilterReport,
    spool: Path,
) -> tuple[list[_Read], list[Numbers]]:
    """The corpora, and the numbers of their pairs, without what a filter of the whole text drops."""
    folder = spool / report.name
    folder.mkdir()
    for corpus, files in corpora:
        for first, pairs in numbered_parts(corpus.pairs(files)):
            texts = [split_tags(source, config.all_tags)[1] for source, _ in pairs]
            one.add(PairTexts(texts, [target for _, target in pairs], np.arange(first, first + len(pairs))), folder)
    masks = np.split(one.dropped(folder), np.cumsum([len(its) for its in numbers])[:-1])
    done: list[_Read] = []
    left: list[Numbers] = []
    for number, ((corpus, files), its, dropped) in enumerate(zip(corpora, numbers, masks, strict=True)):
        for row, pair in islice(_chosen(corpus.pairs(files), dropped), SHOWN - len(report.dropped)):
            report.dropped.append({"pair": its[row] + 1, "source": pair[0], "target": pair[1]})
        report.n_dropped += int(dropped.sum())
        sides = both_sides((pair for _, pair in _chosen(corpus.pairs(files), ~dropped)), folder / f"clean-{number}")
        done.append(of_both_sides(corpus, files, sides))
        left.append(array("q", np.array(its, np.int64)[~dropped].tobytes()))
        for lines in files:
            if lines.spooled is not None:
                lines.spooled.unlink()
    return done, left


def _chosen(pairs: Iterator[Pair], chosen: Mask) -> Iterator[tuple[int, Pair]]:
    return compress(enumerate(pairs), chosen)


def trained_filters(
    text: SpooledText, config: DataConfig, entries: Sequence[str]
) -> tuple[list[dict[str, Filter]], FilteringReport]:
    """The filters that `entries` name as `data.clean` does, trained for each corpus, and a report with no pairs yet.

    Raises ConfigError.
    """
    chosen = chosen_filters(entries)
    kinds = [FilterReport(name, FILTERS[name].what, FILTERS[name].repair, limit) for name, limit in chosen.items()]
    report = FilteringReport(n_read=sum(text.sizes), filters=kinds)
    tags = list(text.tags) or [""] * len(text.corpora)
    trained: dict[str, dict[str, Filter]] = {}
    for entry in dict.fromkeys(tags):
        same = [n for n, its in enumerate(tags) if its == entry]
        sample = _sample([text.corpora[n] for n in same], sum(text.sizes[n] for n in same), config)
        trained[entry] = _learn(sample, chosen, _languages(entry, config), report, config)
    return [trained[entry] for entry in tags], report


def held_out_by_hash(config: DataConfig) -> Callable[[str], bool]:
    """Whether a source may be held out: those of the fold are, and those with the lowest hashes.

    These are the rules of `data.splits`.
    """
    fold = fold_of(config)
    splits = [split for split in ("dev", "test") if getattr(config, split) is None and (split == "dev" or fold is None)]
    key_of = sentence_key(config)

    def test(source: str) -> bool:
        key = key_of(source)
        if fold is not None and fold.has(key):
            return True
        return any(hashlib.blake2b(f"{config.seed} {split}\n{key}".encode()).digest()[0] < _LOWEST for split in splits)

    return test


def _learn(
    text: PairTexts, chosen: dict[str, float | None], languages: Languages, report: FilteringReport, config: DataConfig
) -> dict[str, Filter]:
    """The filters, each trained on a sample that those before it have cleaned.

    One of auto that would drop most of it is left out: the text is not what the filter takes it for. For the last one a
    part of the sample shows that.
    """
    trained: dict[str, Filter] = {}
    named = {entry.partition(":")[0] for entry in config.filters}
    is_held_out = held_out_by_hash(config)
    last = next((name for name in reversed(chosen) if not issubclass(FILTERS[name], WholeTextFilter)), "")
    for its_report, (name, threshold) in zip(report.filters, chosen.items(), strict=True):
        one = trained[name] = FILTERS[name](languages, threshold)
        one.configure(config)
        one.learn(text)
        if name == last and name in named:
            continue  # whatever it drops, no other filter learns from what is left
        if name == last:
            text = text.first(PART)
        after, verdict = apply(one, text)
        share = float(verdict.dropped.mean()) if len(text) else 0.0
        if share > _TOO_MANY and name not in named:
            its_report.left_out = share
            one = Unapplied(languages, threshold)
            after = text
        elif verdict.repaired:  # which may have another source now
            after = after.pick(np.array([not is_held_out(source) for source in after.sources], np.bool_))
        trained[name], text = one, after
    return trained


def _languages(entry: str, config: DataConfig) -> Languages:
    sources, targets = languages_of(config.source_lang), languages_of(config.target_lang)
    target = language_of(tags_in(entry), config.target_lang) or (targets[0] if len(targets) == 1 else "")
    return Languages(sources[0] if len(sources) == 1 else "", target)


def _sample(corpora: Sequence[_Read], n_pairs: int, config: DataConfig) -> PairTexts:
    """Pairs from all over the corpora; those with a source that may be held out are not among them."""
    found = PairTexts([], [], np.empty(0, np.int64))
    is_held_out = held_out_by_hash(config)
    for corpus, files in corpora:
        for source, target in islice(checked_pairs(corpus, files), 0, None, max(1, -(-n_pairs // SAMPLE))):
            text = split_tags(source, config.all_tags)[1]
            if not is_held_out(text):
                found.sources.append(text)
                found.targets.append(target)
    return PairTexts(found.sources, found.targets, np.arange(len(found.sources)) * _APART)


@dataclass(frozen=True)
class _Cleaned:
    """A part of a corpus after the filters: its pairs, and what each filter did."""

    pairs: list[Pair]
    numbers: list[int]  # of the pairs in their corpus, from 0
    reports: list[FilterReport]


@dataclass(frozen=True)
class _CleanPart:
    """Passes a part, which is given with the number of its first pair, through trained filters."""

    filters: dict[str, Filter]
    known_tags: Sequence[str]

    def __call__(self, part: tuple[int, list[Pair]]) -> _Cleaned:
        first, pairs = part
        split = [split_tags(source, self.known_tags) for source, _ in pairs]
        text = PairTexts([text for _, text in split], [target for _, target in pairs], np.arange(len(pairs)))
        reports = []
        for name, one in self.filters.items():
            before, (text, verdict) = text, apply(one, text)
            reports.append(_report_of(name, one, verdict, before, first))
        tags = [split[number][0] for number in text.numbers.tolist()]
        done = [
            (" ".join([*its_tags, source]) if its_tags else source, target)
            for its_tags, (source, target) in zip(tags, text.each(), strict=True)
        ]
        return _Cleaned(done, (first + text.numbers).tolist(), reports)


def numbered_parts(items: Iterator[_ItemT]) -> Iterator[tuple[int, list[_ItemT]]]:
    """Parts of a corpus, each with the index of its first pair."""
    parts = iter(lambda: list(islice(items, PART)), [])
    return ((PART * number, part) for number, part in enumerate(parts))


def n_workers(n_pairs: int) -> int:
    """The number of processes that are worth their start for so many pairs."""
    return min(n_processors(), n_pairs // _PAIRS_PER_PROCESS)


def _pairs_of(parts: Iterator[_Cleaned], report: FilteringReport, numbers: Numbers | None) -> Iterator[Pair]:
    """The pairs of clean parts; what was done is added to `report`, and which they are to `numbers`."""
    for part in parts:
        if numbers is not None:
            numbers.extend(part.numbers)
        for one, its_report in zip(report.filters, part.reports, strict=True):
            one.add(its_report)
        yield from part.pairs


class _AsJson:
    """A clean part in a file."""

    def save(self, path: Path, part: _Cleaned) -> None:
        write_json(path, [part.pairs, part.numbers, [asdict(one) for one in part.reports]])

    def load(self, path: Path) -> _Cleaned:
        pairs, numbers, reports = json.loads(path.read_bytes())
        reports = [FilterReport(**one) for one in reports]
        return _Cleaned([(source, target) for source, target in pairs], numbers, reports)


def apply(one: Filter, text: PairTexts) -> tuple[PairTexts, Verdict]:
    """The text after a filter, and what the filter did."""
    verdict = one.apply(text)
    text = repaired(text, verdict)
    return (text.pick(~verdict.dropped) if verdict.dropped.any() else text), verdict


def repaired(text: PairTexts, verdict: Verdict) -> PairTexts:
    """All pairs of a text, those with their repairs that a filter has repaired."""
    if not verdict.repaired:
        return text
    text = PairTexts([*text.sources], [*text.targets], text.numbers)
    for row, (source, target) in verdict.repaired.items():
        text.sources[row], text.targets[row] = source, target
    return text


def _report_of(name: str, one: Filter, verdict: Verdict, before: PairTexts, first: int) -> FilterReport:
    dropped = np.flatnonzero(verdict.dropped)
    report = FilterReport(name, one.what, one.repair, one.limit, len(dropped), len(verdict.repaired))
    report.dropped = [_shown(before, row, first) for row in dropped[:SHOWN].tolist()]
    for row, pair in islice(verdict.repaired.items(), SHOWN):
        report.repaired.append({**_shown(before, row, first), "now": list(pair)})
    return report


def _shown(text: PairTexts, row: int, first: int) -> dict[str, Any]:
    return {"pair": first + int(text.numbers[row]) + 1, "source": text.sources[row], "target": text.targets[row]}
