"""Filters of synthetic pairs. Each pair that is dropped is counted under one reason."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformer_cli.decoding.results import Translated


@dataclass(frozen=True)
class PairFilters:
    """What is dropped beside translations of blank lines and empty ones."""

    max_ratio: float | None  # of the longer side to the shorter, in tokens with EOS
    copies: bool
    loops: bool
    unfinished: bool  # truncated at the longest length, or of a source that was cut


def dropped_because(
    result: Translated, filters: PairFilters, *, n_source_tokens: int, n_target_tokens: int
) -> str | None:
    """The reason for which a translation is dropped; None: it is kept."""
    if result.empty or not result.text.strip():
        return "empty"
    if filters.loops and result.repeats_itself:
        return "loop"
    if filters.copies and result.copied:
        return "copy"
    if filters.unfinished and (result.hit_limit or result.cut):
        return "unfinished"
    lengths = sorted((n_source_tokens + 1, n_target_tokens + 1))
    if filters.max_ratio is not None and lengths[1] > filters.max_ratio * lengths[0]:
        return "length ratio"
    return None


def best_by(scores: Sequence[float]) -> int:
    """The index of the highest score; of equal ones the first, which the search ranks higher."""
    return max(range(len(scores)), key=lambda i: scores[i])
