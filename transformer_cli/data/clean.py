"""Which training pairs are worth learning from. Dev and test text is never cleaned."""

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from transformer_cli.data.corpus import ParallelText
from transformer_cli.errors import DataError

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@dataclass
class CleaningReport:
    """What became of the training pairs; every pair read is counted in exactly one of the drops, or is kept."""

    n_read: int = 0
    n_bad: int = 0  # a line was not UTF-8
    n_blank: int = 0  # a side was empty, in characters or in tokens
    n_duplicate: int = 0  # the same pair came before
    n_long: int = 0  # a side had more than max_length tokens
    n_uneven: int = 0  # one side had more than max_ratio times the tokens of the other
    n_control: int = 0  # kept, although with control characters in it
    max_length: int = 0
    max_ratio: float = 0.0

    @property
    def n_kept(self) -> int:
        return self.n_read - self.n_bad - self.n_blank - self.n_duplicate - self.n_long - self.n_uneven

    def lines(self) -> list[str]:
        """The report for the log: a line for what was kept, and one for each filter that dropped something."""
        lines = [f"{self.n_kept:,} of {self.n_read:,} training pairs kept"]
        lines += [f"{count:,} dropped: {why}" for count, why in self._drops() if count]
        if self.n_control:
            lines.append(f"{self.n_control:,} kept with control characters in them")
        return lines

    def require_pairs(self) -> None:
        """Raise DataError if nothing is left."""
        if self.n_kept == 0:
            why = ", ".join(f"{count:,} {why}" for count, why in self._drops() if count) or "the text is empty"
            raise DataError(
                f"data.train: none of {self.n_read:,} pairs is left: {why}. Loosen the filter or fix the text"
            )

    def _drops(self) -> list[tuple[int, str]]:
        return [
            (self.n_bad, "not UTF-8 (data.on_bad=skip)"),
            (self.n_blank, "blank on one side or both"),
            (self.n_duplicate, "repeated (data.drop_duplicates=true)"),
            (self.n_long, f"longer than data.max_length={self.max_length} tokens"),
            (self.n_uneven, f"more uneven than data.max_ratio={self.max_ratio:g}"),
        ]


def clean(text: ParallelText, *, drop_duplicates: bool) -> tuple[ParallelText, CleaningReport]:
    """The pairs that have two sides and, with `drop_duplicates`, did not come before; in their order."""
    report = CleaningReport(n_read=len(text) + text.n_bad, n_bad=text.n_bad)
    kept = ParallelText()
    seen: set[bytes] = set()
    for source, target in zip(text.sources, text.targets, strict=True):
        if not source.strip() or not target.strip():
            report.n_blank += 1
            continue
        if drop_duplicates:
            # 16 bytes a pair, where the pair itself would take hundreds; a chance collision is out of the question.
            pair = hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()
            if pair in seen:
                report.n_duplicate += 1
                continue
            seen.add(pair)
        if _CONTROL.search(source) or _CONTROL.search(target):
            report.n_control += 1
        kept.sources.append(source)
        kept.targets.append(target)
    return kept, report


def keep_mask(
    source_lengths: npt.NDArray[np.integer],
    target_lengths: npt.NDArray[np.integer],
    max_length: int,
    max_ratio: float,
    *,
    report: CleaningReport | None = None,
) -> npt.NDArray[np.bool_]:
    """True for pairs of 1 to `max_length` tokens a side whose longer side is at most `max_ratio` times the shorter.

    Lengths are in tokens without the end-of-sentence token. What is dropped is added to `report`.
    """
    shorter, longer = np.minimum(source_lengths, target_lengths), np.maximum(source_lengths, target_lengths)
    blank = shorter < 1
    long = ~blank & (longer > max_length)
    uneven = ~blank & ~long & (longer > max_ratio * shorter)
    if report is not None:
        report.n_blank += int(blank.sum())
        report.n_long += int(long.sum())
        report.n_uneven += int(uneven.sum())
        report.max_length, report.max_ratio = max_length, max_ratio
    kept: npt.NDArray[np.bool_] = ~(blank | long | uneven)
    return kept
