"""The word alignment of parallel text: IBM model 2 with a prior for the diagonal, as fast_align (Dyer et al. 2013).

Words are the tokens of the text. Two models are estimated, one in each direction, and the best links of both are
symmetrised by grow-diag-final-and (Koehn et al. 2003). Memory is bounded: the models are estimated on a sample, and
pairs are aligned some at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.checks.profiles import Floats
from transformer_cli.data.cleaning.base import Mask
from transformer_cli.data.cleaning.lexicon import Ints

_ITERATIONS = 5  # all constants up to _ALPHA are those of fast_align, but for _HIGH
# λ of the prior e^(-λ · distance from the diagonal), and its range. Where words keep their order the likeliest λ is
# above 10, and then a word is linked to what is in its place sooner than to its translation (benchmarks/alignment.md).
_TENSION, _LOW, _HIGH = 4.0, 0.1, 4.0
_HALVINGS = 20  # of that range
_NULL = 0.08  # probability that a word is the translation of none
_ALPHA = 0.01  # of the Dirichlet prior of translation probabilities
_UNSEEN = 1e-7  # probability of a translation that the sample does not have
_SAMPLE = 40_000_000  # cells, of which there are as many as source tokens times target tokens of each pair
_AT_A_TIME = 1 << 19  # cells
_MOST = 1 << 22  # cells of a pair: a longer one, of 2,048 tokens on both sides, is not aligned
_FOR_TENSION = 1 << 16  # cells, at least, that the tension is estimated on
_BESIDE = [(t, s) for t in (-1, 0, 1) for s in (-1, 0, 1) if t or s]


@dataclass(frozen=True)
class Cells:
    """Each target token of some pairs with each source token of its pair; those of a target token stand together.

    `keys` are the pairs of ids, and `open` says of which both are words: neither EOS, nor a tag.
    """

    pair: Ints
    target: Ints  # its position in the sentence
    source: Ints
    target_place: Ints  # its index among the tokens of all these pairs
    source_place: Ints
    target_ids: Ints  # of each place
    source_ids: Ints
    target_lengths: Ints  # of each pair
    source_lengths: Ints
    keys: Ints
    open: Mask

    @classmethod
    def of(cls, pairs: EncodedCorpus, not_words: Sequence[Array]) -> "Cells":
        """`not_words` are the ids of each side that are no words."""
        n_source, n_target = pairs.source_lengths.astype(np.int64), pairs.target_lengths.astype(np.int64)
        per_pair = n_source * n_target
        pair = np.repeat(np.arange(len(per_pair)), per_pair)
        within = np.arange(len(pair)) - np.repeat(np.cumsum(per_pair) - per_pair, per_pair)
        target, source = np.divmod(within, n_source[pair])
        target_place = target + (np.cumsum(n_target) - n_target)[pair]
        source_place = source + (np.cumsum(n_source) - n_source)[pair]
        source_ids, target_ids = pairs.source_ids.astype(np.int64), pairs.target_ids.astype(np.int64)
        is_word, is_target_word = ~np.isin(source_ids, not_words[0]), ~np.isin(target_ids, not_words[1])
        keys = (source_ids[source_place] << 32) | target_ids[target_place]
        both = is_word[source_place] & is_target_word[target_place]
        places = target_place, source_place, target_ids, source_ids
        return cls(pair, target, source, *places, n_target, n_source, keys, both)

    @cached_property
    def distance(self) -> Floats:
        """The distance from the diagonal, from 0 to 1."""
        at = self.source / self.source_lengths[self.pair] - self.target / self.target_lengths[self.pair]
        distance: Floats = np.abs(at)
        return distance

    def prior(self, tension: float, explained: Ints) -> Floats:
        """The prior of each cell, which sums to 1 over those of a place of `explained`."""
        prior = np.exp(-tension * self.distance) * self.open
        total = np.bincount(explained, prior)
        total[total == 0] = 1
        prior /= total[explained]
        return prior

    def near(self, cells: Ints, t: int, s: int) -> Ints:
        """The cell that is so many target and source tokens behind each of `cells`; -1 where its pair has none."""
        pair = self.pair[cells]
        target, source, n_source = self.target[cells] + t, self.source[cells] + s, self.source_lengths[pair]
        inside = (target >= 0) & (target < self.target_lengths[pair]) & (source >= 0) & (source < n_source)
        found: Ints = np.where(inside, cells + t * n_source + s, -1)
        return found


class _Model:
    """Translation probabilities of one direction: `table` of each key, and `null` of each explained word by none."""

    def __init__(self, n_keys: int, by: Ints, n_explained: int) -> None:
        self.by = by  # the explaining id of each key
        self.table, self.null = np.ones(n_keys), np.ones(n_explained)
        self.tension = _TENSION
        self._clear()

    def _clear(self) -> None:
        self.counts, self.null_counts = np.zeros(len(self.table)), np.zeros(len(self.null))
        self.distance = 0.0  # of all links that were counted

    def scores(self, cells: Cells, explained: Ints, ids: Ints, translation: Floats) -> tuple[Floats, Floats]:
        """The probability of each cell, and of each explained place that it has none."""
        is_open = np.bincount(explained, cells.open, minlength=len(ids)) > 0
        prior = cells.prior(self.tension, explained)
        return (1 - _NULL) * prior * translation, np.where(is_open, _NULL * self.null[ids], 0)

    def count(self, cells: Cells, link: Ints, explained: Ints, ids: Ints) -> None:
        """Add the expected counts of some cells, whose keys have the indices `link` (the E step)."""
        scores, null = self.scores(cells, explained, ids, self.table[link])
        total = np.bincount(explained, scores, minlength=len(ids)) + null
        total[total == 0] = 1
        shares = scores / total[explained]
        np.add.at(self.counts, link, shares)
        np.add.at(self.null_counts, ids, null / total)
        self.distance += float((shares * cells.distance).sum())

    def normalise(self, some: Cells, explained: Ints) -> None:
        """Probabilities from the counts, by the mean-field of a Dirichlet prior (the M step).

        The tension becomes that of which links are as far from the diagonal as was counted, of `some` cells.
        """
        wanted, low, high = self.distance / max(self.counts.sum(), _ALPHA), _LOW, _HIGH
        n = max(1, len(np.unique(explained[some.open])))
        for _ in range(_HALVINGS):
            self.tension = (low + high) / 2
            is_far = float((some.prior(self.tension, explained) * some.distance).sum()) / n > wanted
            low, high = (self.tension, high) if is_far else (low, self.tension)
        by, totals = self.by, np.bincount(self.by, self.counts + _ALPHA)
        self.table = np.exp(_digamma(self.counts + _ALPHA) - _digamma(np.maximum(totals, _ALPHA))[by])
        smooth = self.null_counts + _ALPHA
        self.null = np.exp(_digamma(smooth) - _digamma(smooth.sum(keepdims=True)))
        self._clear()


class Aligner:
    """Links tokens of the pairs of a text. `scratch` is a folder for what is as large as the sample.

    `not_words` are the ids of each side that are not linked. `spaces` are those of spaces by themselves: one is linked
    as the token behind it.
    """

    def __init__(
        self,
        text: EncodedCorpus,
        not_words: tuple[Sequence[int], Sequence[int]],
        scratch: Path,
        *,
        spaces: tuple[Sequence[int], Sequence[int]] = ((), ()),
    ) -> None:
        self._text, self._spaces = text, spaces
        self._not_words = tuple(np.array(sorted({*ids, *own})) for ids, own in zip(not_words, spaces, strict=True))
        sample = self._sampled()
        self._keys: Ints = np.empty(0, np.int64)
        for pairs in self._some(sample):
            cells = self._cells(pairs)
            self._keys = np.union1d(self._keys, cells.keys[cells.open])
        source, target = self._keys >> 32, self._keys & 0xFFFFFFFF
        n_source, n_target = (int(ids.max(initial=0)) + 1 for ids in (text.source_ids, text.target_ids))
        self._forward, self._backward = (
            _Model(len(self._keys), *of) for of in ((source, n_target), (target, n_source))
        )
        self._estimate(sample, scratch / "cells")

    def _sampled(self) -> Ints:
        """The pairs that the models are estimated on: all, or of equal distance as many as _SAMPLE allows."""
        whole = np.arange(len(self._text))
        whole = whole[self._sizes(whole) <= _MOST]
        return whole[:: max(1, -(-self._n_cells(whole) // _SAMPLE))]

    def _n_cells(self, pairs: Ints) -> int:
        return int(self._sizes(pairs).sum())

    def _sizes(self, pairs: Ints) -> Ints:
        sizes: Ints = self._text.source_lengths[pairs].astype(np.int64) * self._text.target_lengths[pairs]
        return sizes

    def _some(self, pairs: Ints) -> Iterator[Ints]:
        """`pairs`, as many at a time as have _AT_A_TIME cells, or a single one."""
        sizes = self._sizes(pairs)
        n_long_before: Ints = np.cumsum(sizes > _MOST) - (sizes > _MOST)
        part = np.cumsum(sizes) // _AT_A_TIME + n_long_before
        bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(pairs)]
        return (pairs[start:end] for start, end in pairwise(bounds))

    def _cells(self, pairs: Ints) -> Cells:
        return Cells.of(self._text.pick(pairs), self._not_words)

    def _indices(self, cells: Cells) -> Ints:
        """The index of the key of each cell; of one that is not there, the number of keys."""
        different, where = np.unique(cells.keys, return_inverse=True)
        at = np.searchsorted(self._keys, different)
        is_there = self._keys[np.minimum(at, len(self._keys) - 1)] == different if len(self._keys) else at < 0
        found: Ints = np.where(is_there, at, len(self._keys))[where]
        return found

    def _estimate(self, sample: Ints, kept: Path) -> None:
        with kept.open("wb") as file:  # as finding them takes the longest
            for pairs in self._some(sample):
                cells = self._cells(pairs)
                file.write(self._indices(cells)[cells.open].astype("<u4").tobytes())
        some = self._cells(sample[:: max(1, self._n_cells(sample) // _FOR_TENSION)])
        for _ in range(_ITERATIONS):
            with kept.open("rb") as file:
                for pairs in self._some(sample):
                    cells = _opened(self._cells(pairs))
                    link = np.frombuffer(file.read(4 * len(cells.keys)), "<u4").astype(np.int64)
                    self._forward.count(cells, link, cells.target_place, cells.target_ids)
                    self._backward.count(cells, link, cells.source_place, cells.source_ids)
            self._forward.normalise(some, some.target_place)
            self._backward.normalise(some, some.source_place)
        kept.unlink()

    def links(self) -> Iterator[tuple[Array, Array, Array]]:
        """The links of all pairs, some pairs at a time: source and target positions, and the number of each pair."""
        for pairs in self._some(np.arange(len(self._text))):
            if self._n_cells(pairs[:1]) > _MOST:  # which stands alone
                yield np.empty(0, np.int64), np.empty(0, np.int64), np.zeros(1, np.int64)
                continue
            cells = self._cells(pairs)
            index = self._indices(cells)
            forward = self._best(self._forward, cells, index, cells.target_place, cells.target_ids)
            backward = self._best(self._backward, cells, index, cells.source_place, cells.source_ids)
            linked = np.flatnonzero(self._with_spaces(symmetrised(forward, backward, cells), cells))
            yield cells.source[linked], cells.target[linked], np.bincount(cells.pair[linked], minlength=len(pairs))

    def _with_spaces(self, linked: Mask, cells: Cells) -> Mask:
        """The links of spaces by themselves added, on the target side first."""
        sources, targets = self._spaces
        for ids, places, spaces, step in (
            (cells.target_ids, cells.target_place, targets, (1, 0)),
            (cells.source_ids, cells.source_place, sources, (0, 1)),
        ):
            alone = np.flatnonzero(np.isin(ids, list(spaces))[places])
            behind = cells.near(alone, *step)
            linked[alone] = (behind >= 0) & linked[behind]
        return linked

    def _best(self, model: _Model, cells: Cells, index: Ints, explained: Ints, ids: Ints) -> Mask:
        """The likeliest cell of each explained word, unless it is likelier to be the translation of none."""
        translation = np.append(model.table, _UNSEEN)[index]
        scores, null = model.scores(cells, explained, ids, translation)
        best = np.zeros(len(ids))
        np.maximum.at(best, explained, scores)
        found: Mask = cells.open & (scores == best[explained]) & (scores > null[explained])
        return found


def symmetrised(forward: Mask, backward: Mask, cells: Cells) -> Mask:
    """grow-diag-final-and: the links that both directions have, and of the others those that fit.

    First those beside a link, also diagonally, of which a word has none yet, until there are no more; then those of
    which neither word has any. Moses adds them one by one; here all are added that fit at the same time.
    """
    linked = forward & backward
    rest = np.flatnonzero((forward | backward) & ~linked)
    n_targets, n_sources = len(cells.target_ids), len(cells.source_ids)

    def lacking() -> tuple[Mask, Mask]:
        """Whether the target word and the source word of each of the rest have no link."""
        have_target = np.bincount(cells.target_place[linked], minlength=n_targets) > 0
        have_source = np.bincount(cells.source_place[linked], minlength=n_sources) > 0
        return ~have_target[cells.target_place[rest]], ~have_source[cells.source_place[rest]]

    while len(rest):
        target, source = lacking()
        beside = [cells.near(rest, *step) for step in _BESIDE]
        is_near = np.any([(cell >= 0) & linked[cell] for cell in beside], axis=0)
        fits = is_near & (target | source)
        if not fits.any():
            break
        linked[rest[fits]] = True
        rest = rest[~fits]
    target, source = lacking()
    linked[rest[target & source]] = True
    return linked


def _opened(cells: Cells) -> Cells:
    """The cells of two words alone, for sums over them."""
    names = ("pair", "target", "source", "target_place", "source_place", "keys", "open")
    return replace(cells, **{name: getattr(cells, name)[cells.open] for name in names})


def _digamma(x: Floats) -> Floats:
    """The derivative of ln Γ, by its recurrence and asymptotic series, to 1e-9 for x > 0."""
    shift = sum(1 / (x + k) for k in range(6))
    y = x + 6
    square = 1 / (y * y)
    series = np.log(y) - 0.5 / y - square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    result: Floats = series - shift
    return result
