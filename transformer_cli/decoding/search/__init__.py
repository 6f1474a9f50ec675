"""Greedy search, beam search and sampling over any model that can tell what comes next.

A search knows `step(ids_R, cache) -> logits_RV`, which takes the newest token of each row, and a cache that can be
reordered; not what either is made of. What it is asked, and what it answers, is in `task.py`; `stepping.py` takes the
steps, `following.py` and `beam.py` choose, `rules.py` says what they may choose from, `terms.py` what they have to say,
and `scoring.py` what comes of it.

A hypothesis has at most its sentence's `max_length` tokens, EOS counted. Its score is log_prob divided for its length
(`scoring.divisor`), plus a penalty for what of the source it leaves out (`scoring.Coverage`). One that comes to
`max_length` without EOS is cut: it is marked, and ranks behind all finished ones, because it has not paid for its end.
Of equal candidates the lower token id goes first, then the earlier beam; of equal finished hypotheses the one that
finished first.
What no rule lets a hypothesis say, as PAD, BOS and the unknown token, keeps its share of the probability: a score is
what the model says of the sentence when it is read back.
A choice between log-probabilities less than CLOSE apart may be turned by the rounding of kernels, which depends on the
shape of the batch. Greedy and beam search mark the hypotheses of a sentence in which they had to make such a choice.
"""

from transformer_cli.decoding.search.beam import beam_search
from transformer_cli.decoding.search.greedy import greedy_search, sample
from transformer_cli.decoding.search.request import (
    AttendingCache,
    Cache,
    CacheT,
    ControlIds,
    Demands,
    Hypothesis,
    Search,
    Task,
    longest_translation,
    rows_per_sentence,
)
from transformer_cli.decoding.search.top_k import CLOSE
from transformer_cli.registry import Registry

__all__ = [
    "CLOSE",
    "SEARCHES",
    "AttendingCache",
    "Cache",
    "CacheT",
    "ControlIds",
    "Demands",
    "Hypothesis",
    "Search",
    "Task",
    "longest_translation",
    "rows_per_sentence",
]

SEARCHES: Registry[Search] = Registry("search")
SEARCHES.register("greedy")(greedy_search)
SEARCHES.register("sample")(sample)
SEARCHES.register("beam")(beam_search)
