"""A test set that is part of the training text, where that is at hand: its scores are too good."""

from collections.abc import Sequence
from typing import Literal

from transformer_cli.data.checks.text import MANY_LEAKED_PAIRS, MANY_LEAKED_SOURCES, leaks
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.logs import LOGGER

MAX_TOKENS = 300_000_000  # of prepared text, both sides: about ten seconds; more is not read for a warning


def warn_of_overlap(
    name: str,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    prepared: Prepared,
    *,
    what: Literal["dev", "test"] = "test",
) -> None:
    """Log how many pairs of a test or dev set are training pairs, with any of its references; `sources` have no tags.

    A few, which chance explains, are no warning. Nothing is said of a corpus of more than MAX_TOKENS.
    """
    train = prepared.train
    if len(train.source_ids) + len(train.target_ids) > MAX_TOKENS:
        return
    found = leaks([ParallelText(list(sources), list(reference)) for reference in references], prepared)
    n, n_pairs = len(sources), len({int(i) for pairs, _ in found for i in pairs})
    n_sources = max(len(of_source) for _, of_source in found)
    found_in_it = (
        f"{name}: {n_pairs:,} of {n:,} {what} pairs are in the training text (source and target), and {n_sources:,} by"
        " their source"
    )
    if n_pairs > MANY_LEAKED_PAIRS * n or n_sources > MANY_LEAKED_SOURCES * n:
        LOGGER.warning(
            "%s, so its scores are too good. Remove them from the training text, or from the %s set",
            *(found_in_it, what),
        )
    elif n_pairs:
        LOGGER.info("%s", found_in_it)
