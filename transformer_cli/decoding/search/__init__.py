"""Searches over any model that gives the logits of the next token: greedy, beam, sampling and MBR.

A search calls `step(ids_R, cache) -> logits_RV` with the newest token of each row, and reorders the cache; it depends
on nothing else of the model. `request.py` defines its input and its result, `loop.py` the loop over tokens, `steps.py`
one step of it, `beam.py`, `greedy.py`, `sampling.py` and `mbr.py` the choices, `logits_processors.py` which tokens may
be chosen, `constraints.py` lexical constraints, and `scores.py` scores.

A hypothesis has at most its sentence's `max_length` tokens, EOS counted. Its score is log_prob divided for its length
(`scores.divisor`), plus a coverage penalty (`scores.Coverage`). One that reaches `max_length` without EOS is truncated:
it is marked, and ranks behind all finished ones, because its log-probability does not include the end.
Ties: of equal candidates the lower token id goes first, then the earlier beam; of equal finished hypotheses the one
that finished first.
Banned tokens, such as PAD, BOS and the unknown token, keep their share of the probability: a score is what
force-decoding the translation gives.
A choice between log-probabilities less than `SearchRequest.near_tie` apart may change with the rounding of kernels,
which depends on the shape of the batch. Greedy and beam search mark the hypotheses of a sentence that had such a near
tie. On an accelerator, where the host waits for the device only every few steps, equal candidates are near ties
as well, unless `exact` puts them in order.
"""

from transformer_cli.decoding.search import beam, greedy, mbr, sampling  # noqa: F401  (each registers its search)
from transformer_cli.decoding.search.registry import SEARCHES, SearchMethod, check_search, rows_per_sentence
from transformer_cli.decoding.search.request import (
    AttendingCache,
    Cache,
    CacheT,
    Constraints,
    ControlIds,
    Hypothesis,
    Search,
    SearchRequest,
    longest_translation,
)
from transformer_cli.decoding.search.top_k import NEAR_TIE

__all__ = [
    "NEAR_TIE",
    "SEARCHES",
    "AttendingCache",
    "Cache",
    "CacheT",
    "Constraints",
    "ControlIds",
    "Hypothesis",
    "Search",
    "SearchMethod",
    "SearchRequest",
    "check_search",
    "longest_translation",
    "rows_per_sentence",
]
