"""The splits of a corpus: dev and test sets are held out of the training text where no files are named for them.

Training text is cleaned before any is held out. A fold of it (data.fold) is the test set of a run, whether or not the
corpus has one of its own; dev is then held out of the rest.
"""

import hashlib
import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import TypeVar

from transformer_cli.config.data import DataConfig
from transformer_cli.data.cleaning.clean_corpora import FilteringReport, cleaned
from transformer_cli.data.context import Context
from transformer_cli.data.corpus import (
    ParallelText,
    SpooledText,
    Text,
    contexts_in,
    in_memory,
    load_text,
    parts_of,
    sentence_key,
    stream_text,
)
from transformer_cli.data.folds import Fold, fold_of
from transformer_cli.data.normalization import canonical
from transformer_cli.data.readers import Split
from transformer_cli.data.shards import PartStore
from transformer_cli.data.tags import split_tags
from transformer_cli.errors import DataError

MAX_HELD_OUT = 0.05  # of the pairs, in each of dev and test
_HELD_OUT: tuple[Split, ...] = ("dev", "test")
_ItemT = TypeVar("_ItemT")


@dataclass
class HeldOut:
    """Pairs that were held out of the training text, and their source sentences."""

    text: ParallelText = field(default_factory=ParallelText)
    sources: frozenset[str] = frozenset()  # as `canonical` has them, without tags; no training pair may have one
    n_before: int = 0  # pairs before these were held out
    sizes: list[int] = field(default_factory=list)  # pairs of each corpus
    indices: Sequence[int] = ()  # of the pairs in the training text
    n_asked: int | None = None  # sentences, where they were more than MAX_HELD_OUT allows
    fold: Fold | None = None  # which they are


@dataclass
class Splits:
    """All the text of a corpus. `train` is not cleaned yet, and still has the pairs whose source is in `held_out`.

    Where there is too little to hold any out, `dev` is the training text itself.
    """

    train: Text
    dev: ParallelText
    test: ParallelText | None
    held: dict[Split, HeldOut] = field(default_factory=dict)
    filtering: FilteringReport | None = None  # of `train`, by the filters of data.clean
    contexts: Callable[[], Iterator[Context]] | None = None  # of each pair of `train`, with data.context_sentences

    @property
    def held_out(self) -> frozenset[str]:
        return frozenset().union(*(held.sources for held in self.held.values()))

    def notes(self, n_left: int) -> Iterator[str]:
        """What was held out, when `n_left` pairs of the training text are left."""
        counts = [*(held.n_before for held in self.held.values()), n_left]
        for (split, held), n_after in zip(self.held.items(), counts[1:], strict=True):
            if len(held.text):
                others = f"{held.n_before - n_after - len(held.text):,} others of the same source sentences left out"
                most = f"at most {100 * MAX_HELD_OUT:.0f} % of them are, and data.holdout={held.n_asked} is more"
                less = f" ({most})" if held.n_asked else ""
                if held.fold is not None:
                    less = f" (data.fold={held.fold}, in place of a test set of the corpus)"
                yield f"{len(held.text):,} pairs held out of the training text as {split}{less}; {others}"


def load_splits(config: DataConfig, spool: Path, store: PartStore | None = None, *, progress: bool = False) -> Splits:
    """Load the named splits, clean the training text, and hold out from it those that are not named.

    The training text is kept in files in the folder `spool`. Raises Incomplete where shards have still to clean it.
    """
    raw = stream_text(config, spool)
    train, filtering = cleaned(raw, config, spool, store, progress=progress) if config.filters else (raw, None)
    splits = Splits(train, dev=ParallelText(), test=None, filtering=filtering)
    if config.context_sentences:
        splits.contexts = partial(_contexts, raw, train.kept, config)
    named: dict[Split, ParallelText | None] = {}
    if (fold := fold_of(config)) is not None:  # first, for dev is held out of the rest
        splits.held["test"] = hold_out_fold(train, fold, config)
    named |= {split: load_text(config, split) for split in _HELD_OUT if split not in splits.held}
    for split, text in named.items():
        if text is None:
            splits.held[split] = hold_out(
                train,
                config.holdout,
                config.seed,
                split=split,
                without=splits.held_out,
                tags=config.all_tags,
                key_of=sentence_key(config),
            )
    for split, held in splits.held.items():
        parts = parts_of(train, config) if any(train.tags) else []
        held.text.parts = [replace(part, n=n) for part, n in zip(parts, held.sizes, strict=False) if n]
        if splits.contexts is not None:
            held.text.contexts = list(_at(held.indices, splits.contexts()))
        named[split] = held.text if len(held.text) else None
    dev, splits.test = named["dev"], named["test"]
    splits.dev = dev if dev is not None else _in_memory_without(splits, config)
    return splits


def _in_memory_without(splits: Splits, config: DataConfig) -> ParallelText:
    """The training pairs whose source is not held out."""
    held_out, text = splits.held_out, in_memory(splits.train)
    if splits.contexts is not None:
        text.contexts = list(splits.contexts())
    if not held_out:
        return text
    key_of, tags = sentence_key(config), config.all_tags
    return text.pick(n for n, line in enumerate(text.sources) if key_of(split_tags(line, tags)[1]) not in held_out)


def _contexts(raw: SpooledText, kept: Sequence[Sequence[int]], config: DataConfig) -> Iterator[Context]:
    """The contexts of the training pairs that the filters have `kept`: what stood before them in the `raw` text."""
    if not kept:
        return contexts_in(raw, config)
    starts = accumulate(raw.sizes, initial=0)
    numbers = (start + number for start, its in zip(starts, kept, strict=False) for number in its)
    return _at(numbers, contexts_in(raw, config))


def _at(indices: Iterable[int], items: Iterator[_ItemT]) -> Iterator[_ItemT]:
    """The items at `indices`, which rise."""
    last = -1
    for index in indices:
        yield next(islice(items, index - last - 1, None))
        last = index


def hold_out_fold(text: Text, fold: Fold, config: DataConfig) -> HeldOut:
    """The pairs of the training text whose source sentence is in `fold`, without blank ones, in their order.

    Of a sentence with several targets all are kept, so that each pair is tested in one fold; repetitions of a pair only
    with data.drop_duplicates=false. Raises DataError where the fold is empty, or is all there is.
    """
    key_of, tags = sentence_key(config), config.all_tags
    n_pairs = n_others = 0
    sources, seen = set[str](), set[tuple[str, ...]]()
    pairs: list[tuple[int, str, str]] = []
    for n_pairs, (source, target) in enumerate(text.each(), 1):
        its_tags, rest = split_tags(source, tags)
        key, target_key = key_of(rest), canonical(target)
        if not key or not target_key:
            continue
        if not fold.has(key):
            n_others += 1
            continue
        sources.add(key)
        pair = (*its_tags, key, target_key)
        if pair in seen:
            continue
        if config.drop_duplicates:
            seen.add(pair)
        pairs.append((n_pairs - 1, source, target))
    if not pairs and n_others:
        raise DataError(
            f"data.fold={fold}: none of the {n_others:,} pairs of data.train is in this fold. Use fewer folds, or more"
            " text"
        )
    if pairs and not n_others:
        raise DataError(
            f"data.fold={fold}: all {len(pairs):,} pairs of data.train are in this fold, so none is left to train on."
            " Use more folds, or more text"
        )
    held = ParallelText([source for _, source, _ in pairs], [target for _, _, target in pairs])
    indices = [index for index, _, _ in pairs]
    return HeldOut(held, frozenset(sources), n_pairs, _sizes(text, indices), indices, fold=fold)


def _sizes(text: Text, indices: Sequence[int]) -> list[int]:
    """How many of the pairs at `indices` are of each corpus."""
    ends = list(accumulate(text.sizes))
    corpora = [bisect_right(ends, index) for index in indices]
    return [corpora.count(number) for number in range(len(ends))]


def hold_out(
    text: Text,
    n: int,
    seed: int,
    *,
    split: Split = "dev",
    without: frozenset[str] = frozenset(),
    tags: Sequence[str] = (),
    key_of: Callable[[str], str] = canonical,
) -> HeldOut:
    """Choose held-out pairs of the training text: `n` of them, at most 5 %, at least one.

    A held-out source sentence is in no training pair: its other translations are dropped. Blank pairs are not held
    out, nor those whose source is in `without`. Nothing is held out of fewer than four different sources. Whether a
    source comes before another depends on the two, `seed` and `split` alone, so that little changes when the corpus
    grows or is filtered. With `tags`, a source is what stands behind them, and one pair of it with each is held out.
    """
    n_pairs = 0
    different: set[str] = set()  # no more than needed to compare with `n`
    # The n sources of highest rank so far, with the first pair of each, or of each of its tags.
    found: dict[str, dict[tuple[str, ...], tuple[int, str, str]]] = {}
    ranks: list[tuple[int, str]] = []  # a heap of these
    for index, (source, target) in enumerate(text.each()):
        its_tags, rest = split_tags(source, tags)
        key = key_of(rest)
        if key in without:
            continue
        n_pairs += 1
        rank = -int.from_bytes(hashlib.blake2b(f"{seed} {split}\n{key}".encode()).digest())
        counts = len(different) < 2 * n + 4
        may_be_held = len(ranks) < n or rank > ranks[0][0] or key in found
        if not key or not (counts or may_be_held) or not canonical(target):
            continue
        if counts:
            different.add(key)
        if key in found:
            found[key].setdefault(tuple(its_tags), (index, source, target))
        elif len(ranks) < n or rank > ranks[0][0]:
            found[key] = {tuple(its_tags): (index, source, target)}
            heapq.heappush(ranks, (rank, key))
            if len(ranks) > n:
                del found[heapq.heappop(ranks)[1]]
    if len(different) < 4:
        return HeldOut(n_before=n_pairs)
    most = max(1, int(MAX_HELD_OUT * n_pairs))
    n_held = min(n, most, len(different) // 2)
    chosen = [key for _, key in heapq.nlargest(n_held, ranks)]
    pairs = sorted(pair for key in chosen for pair in found[key].values())
    held = ParallelText([source for _, source, _ in pairs], [target for _, _, target in pairs])
    indices = [index for index, _, _ in pairs]
    return HeldOut(held, frozenset(chosen), n_pairs, _sizes(text, indices), indices, n_asked=n if n > most else None)
