"""Filters of synthetic pairs. Each translation that is dropped is counted under one reason."""

from dataclasses import dataclass

from transformer_cli.decoding.quality import repeats_itself
from transformer_cli.evaluation.text_statistics import is_copy


@dataclass(frozen=True)
class PairFilters:
    """The filters for pairs, besides blank lines and empty translations, which are always dropped."""

    max_ratio: float | None  # of the longer side to the shorter, in tokens with EOS
    copies: bool
    loops: bool
    unfinished: bool  # truncated at the longest length, or of a source that was cut

    def reason(self, line: str, translation: str, n_tokens: tuple[int, int], *, is_unfinished: bool) -> str | None:
        """The reason for which `translation` of `line` is dropped; None: it is kept. `n_tokens` are of both sides."""
        if not line.strip():
            return "blank"
        if not translation.strip():
            return "empty"
        if self.loops and repeats_itself(translation, line):
            return "loop"
        if self.copies and is_copy(translation, line):
            return "copy"
        if self.unfinished and is_unfinished:
            return "unfinished"
        shorter, longer = sorted(n + 1 for n in n_tokens)
        return "length ratio" if self.max_ratio is not None and longer > self.max_ratio * shorter else None
