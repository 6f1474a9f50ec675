"""Filters of training pairs: blank, duplicate, too long, unlikely length ratio. Dev and test text is never cleaned."""

import hashlib
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from transformer_cli.config.tasks import Task
from transformer_cli.data.context import Context
from transformer_cli.data.corpus import Text
from transformer_cli.data.normalization import canonical, format_characters
from transformer_cli.data.repetitions import repetitions
from transformer_cli.data.tags import split_tags
from transformer_cli.errors import DataError

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


@dataclass
class CleaningReport:
    """Counts of the filters, as in report.json. Every pair is dropped by exactly one filter, or kept."""

    n_read: int = 0
    n_bad: int = 0  # a line was not UTF-8, or had too few columns
    n_blank: int = 0  # a side was empty, in characters or in tokens
    n_left_out: int = 0  # the model that training begins with has the sentence in its dev or test set
    n_duplicate: int = 0  # the same pair came before
    n_long: int = 0  # a side had more than max_length tokens
    n_uneven: int = 0  # one side had more than max_ratio times the tokens of the other
    n_control: int = 0  # kept, although with control characters in it
    n_format: int = 0  # kept without the format characters in it, as soft hyphens
    n_truncated: int = 0  # a source was cut to max_length tokens (data.truncate_source); most of these are kept
    max_length: int = 0
    max_ratio: float = 0.0

    @property
    def n_kept(self) -> int:
        return self.n_read - sum(count for count, _ in self._drops())

    def lines(self) -> list[str]:
        """The report for the log: a line for what was kept, and one for each filter that dropped something."""
        lines = [f"{self.n_kept:,} of {self.n_read:,} training pairs kept"]
        lines += [f"{count:,} dropped: {why}" for count, why in self._drops() if count]
        if self.n_truncated:
            lines.append(
                f"{self.n_truncated:,} sources truncated to data.max_length={self.max_length} tokens"
                " (data.truncate_source=true)"
            )
        if self.n_control:
            lines.append(f"{self.n_control:,} kept with control characters in them")
        if self.n_format:
            lines.append(f"{self.n_format:,} kept without their format characters (soft hyphens, zero-width spaces, …)")
        return lines

    def require_pairs(self, task: Task) -> None:
        """Raise DataError if nothing is left."""
        if self.n_kept == 0:
            why = ", ".join(f"{count:,} {why}" for count, why in self._drops() if count) or "the text is empty"
            todo = "Loosen the filter or fix the text"
            if task.has_words and self.n_read == 0:
                todo = "Write a word and its label on each line"
            elif task.has_words and self.n_long:
                todo = "Put a blank line between two sentences, or raise data.max_length"
            raise DataError(f"data.train: none of {self.n_read:,} pairs is left: {why}. {todo}")

    def _drops(self) -> list[tuple[int, str]]:
        return [
            (self.n_bad, "with lines that cannot be read (data.on_bad=skip)"),
            (self.n_left_out, "held out as dev or test by the run that init.from names, or before it"),
            (self.n_blank, "blank on one side or both"),
            (self.n_duplicate, "duplicates (data.drop_duplicates=true)"),
            (self.n_long, f"longer than data.max_length={self.max_length} tokens"),
            (self.n_uneven, f"with a length ratio over data.max_ratio={self.max_ratio:g}"),
        ]


@dataclass(frozen=True)
class CleanText:
    """The pairs of `text` selected by the mask `kept`, which takes one byte a pair."""

    text: Text
    kept: npt.NDArray[np.bool_]
    contexts_of_text: Callable[[], Iterator[Context]] | None = None  # of each pair of `text`

    def __len__(self) -> int:
        return int(self.kept.sum())

    def each(self) -> Iterator[tuple[str, str]]:
        return compress(self.text.each(), self.kept)

    def contexts(self) -> Iterator[Context] | None:
        """The context of each pair, with data.context_sentences."""
        return None if self.contexts_of_text is None else compress(self.contexts_of_text(), self.kept)

    def shares(self, chosen: npt.NDArray[np.bool_]) -> list[int]:
        """The number of `chosen` pairs in each corpus of the text; `chosen` is a mask of these pairs."""
        of_text = self.kept.copy()
        of_text[of_text] = chosen
        return [int(part.sum()) for part in np.split(of_text, np.cumsum(self.text.sizes)[:-1])]


def clean(
    text: Text,
    *,
    drop_duplicates: bool,
    held_out: frozenset[str] = frozenset(),
    left_out: frozenset[str] = frozenset(),
    tags: Sequence[str] = (),
    key_of: Callable[[str], str] = canonical,
) -> tuple[CleanText, CleaningReport]:
    """The pairs that have two sides, a source not in `held_out` and, with `drop_duplicates`, did not come before.

    Pairs whose source is in `left_out` are dropped too, and counted: what is held out is no training text at all.
    The `tags` that a source begins with are no part of it; but with others, it is another pair. Sources are the same
    sentence if `key_of` makes the same of them.

    Takes 12 bytes a pair: duplicates are found by 64-bit hashes. Among 100 million different pairs, the probability of
    any collision is 1 in 4,000.
    """
    report = CleaningReport(n_bad=text.n_bad)
    kept, hashes = bytearray(), array("Q")
    with_control: list[int] = []
    with_format: list[int] = []
    for index, (source, target) in enumerate(text.each()):
        its_tags, rest = split_tags(source, tags)
        key, target_key, is_kept = key_of(rest), "", False
        if key not in held_out:
            report.n_read += 1
            target_key = canonical(target)
            is_left_out = key in left_out
            is_kept = bool(key and target_key and not is_left_out)
            report.n_left_out += is_left_out
            report.n_blank += not (is_kept or is_left_out)
            if is_kept and (_CONTROL.search(source) or _CONTROL.search(target)):
                with_control.append(index)
            if is_kept and (format_characters(source) or format_characters(target)):
                with_format.append(index)
        kept.append(is_kept)
        if is_kept and drop_duplicates:
            pair = hashlib.blake2b(f"{' '.join([*its_tags, key])}\n{target_key}".encode(), digest_size=8).digest()
            hashes.append(int.from_bytes(pair, "little"))
    report.n_read += text.n_bad
    mask = np.frombuffer(kept, np.bool_)
    if drop_duplicates:
        came_before = _came_before(np.frombuffer(hashes, np.uint64))
        report.n_duplicate = int(came_before.sum())
        mask[mask] = ~came_before
    report.n_control, report.n_format = int(mask[with_control].sum()), int(mask[with_format].sum())
    return CleanText(text, mask), report


def _came_before(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """True for each value that occurs earlier."""
    found = np.zeros(len(hashes), np.bool_)
    for rows, _ in repetitions(hashes):
        found[rows] = True
    return found


def keep_mask(
    source_lengths: npt.NDArray[np.integer],
    target_lengths: npt.NDArray[np.integer],
    max_length: int,
    max_ratio: float,
    *,
    report: CleaningReport | None = None,
    n_tags: npt.NDArray[np.integer] | int = 0,
) -> npt.NDArray[np.bool_]:
    """True for pairs of 1 to `max_length` tokens a side whose longer side is at most `max_ratio` times the shorter.

    Lengths are in tokens without the end-of-sentence token; `n_tags` of a source are tags, which no ratio counts. What
    is dropped is added to `report`.
    """
    of_text = source_lengths - n_tags
    shorter, longer = np.minimum(of_text, target_lengths), np.maximum(of_text, target_lengths)
    blank = shorter < 1
    long = ~blank & (np.maximum(source_lengths, target_lengths) > max_length)
    out_of_ratio = ~blank & ~long & (longer > max_ratio * shorter)
    if report is not None:
        report.n_blank += int(blank.sum())
        report.n_long += int(long.sum())
        report.n_uneven += int(out_of_ratio.sum())
        report.max_length, report.max_ratio = max_length, max_ratio
    kept: npt.NDArray[np.bool_] = ~(blank | long | out_of_ratio)
    return kept
