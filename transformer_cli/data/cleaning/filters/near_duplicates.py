"""Pairs that nearly repeat an earlier one, by MinHash (Broder 1997) of their characters.

A pair is the set of all runs of four characters of its two sides. The share of the least values of hash functions that
two sets have in common estimates their Jaccard similarity. Pairs are compared where one of eight bands of these values
is equal, as most bands are of pairs that are alike (Leskovec et al., Mining of Massive Datasets, 3.4): at a similarity
of 0.9 all but one in a hundred are found, at 0.8 three of four.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from transformer_cli.data.cleaning.base import FILTERS, Mask, PairTexts, WholeTextFilter
from transformer_cli.data.normalization import canonical
from transformer_cli.data.repetitions import repetitions

_RUN = 4  # characters
_BANDS, _ROWS = 8, 8  # a band is as many bytes as a hash of 64 bits
_FACTORS = np.random.default_rng(1997).integers(1 << 31, size=(_BANDS * _ROWS, 2), dtype=np.uint32) * 2 + 1
_COMPARED = 1 << 18  # pairs at a time

Signatures = npt.NDArray[np.uint8]


@FILTERS.register("near_duplicates")
class NearDuplicates(WholeTextFilter):
    """The threshold is the share of the runs of characters in two pairs that both have."""

    what = "that nearly repeat an earlier one"
    threshold, low, high = 0.8, 0.5, 1.0

    def add(self, text: PairTexts, folder: Path) -> None:
        with self._file(folder).open("ab") as file:
            file.write(signatures(text).tobytes())

    def dropped(self, folder: Path) -> Mask:
        assert self.limit is not None
        path = self._file(folder)
        n_pairs = path.stat().st_size // (_BANDS * _ROWS) if path.exists() else 0
        found: Mask = np.zeros(n_pairs, np.bool_)
        if not n_pairs:
            return found
        all_of_them = np.memmap(path, np.uint8, "r", shape=(n_pairs, _BANDS * _ROWS))
        for band in range(0, _BANDS * _ROWS, _ROWS):
            bands = np.ascontiguousarray(all_of_them[:, band : band + _ROWS]).view(np.uint64)[:, 0]
            for rows, earlier in repetitions(bands):
                for first in range(0, len(rows), _COMPARED):
                    some, before = rows[first : first + _COMPARED], earlier[first : first + _COMPARED]
                    alike = np.mean(all_of_them[some] == all_of_them[before], axis=1) >= self.limit
                    found[some[alike]] = True
        return found

    def _file(self, folder: Path) -> Path:
        return folder / "near_duplicates"


def signatures(text: PairTexts) -> Signatures:
    """The MinHash values of each pair, one byte each."""
    if not len(text):
        return np.empty((0, len(_FACTORS)), np.uint8)
    between = "\n" * _RUN
    lines = [f"{canonical(source)}\n{canonical(target)}{between}".casefold() for source, target in text.each()]
    ends = np.cumsum([len(line) for line in lines])
    letters = np.frombuffer("".join([*lines, between]).encode("utf-32-le"), np.uint32)
    n_runs = int(ends[-1])
    runs = np.zeros(n_runs, np.uint32)
    for place in range(_RUN):
        runs = (runs ^ letters[place : place + n_runs]) * np.uint32(0x9E3779B1)
        runs ^= runs >> np.uint32(15)
    for place in range(1, _RUN):  # these would go on into the next pair
        runs[ends - place] = 0
    starts = np.concatenate([[0], ends[:-1]])
    found = np.empty((len(lines), len(_FACTORS)), np.uint8)
    for number, (factor, shift) in enumerate(_FACTORS):
        mixed = runs * factor + shift
        found[:, number] = np.minimum.reduceat(mixed ^ (mixed >> np.uint32(16)), starts) >> np.uint32(8)
    return found
