"""The registry of searches: what each one does, and which options of `decode` it has.

A new search is one module that registers a SearchMethod, or a function of a SearchRequest; `decode.search` then
accepts its name.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.options import checked_options
from transformer_cli.decoding.search.request import Hypothesis, Search, SearchRequest
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, check_callable, guarded

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p")


@dataclass(frozen=True)
class SearchMethod:
    """A search, and what callers need of it.

    `rows_key` names the key of `decode` with the number of rows that each sentence has in a batch; None: one row.
    `options` are the keys of `decode` that not every search has (`beam_size`, `n_samples` and SAMPLING_OPTIONS).
    """

    name: str
    run: Search
    rows_key: str | None = None
    options: frozenset[str] = frozenset()
    draws: bool = False  # depends on the seed
    has_lexical_constraints: bool = False
    scores_are_likelihoods: bool = True  # so that they can be compared with those of beam search
    compares_texts: bool = False  # needs SearchRequest.to_text
    has_trace: bool = False  # its choices are those of `SearchRequest.recorder`'s trace

    def __call__(self, request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        options = checked_options(SEARCHES, self.name, request.config.options)
        return self.run(replace(request, config=replace(request.config, options=options)) if options else request)

    def rows_per_sentence(self, config: DecodeConfig) -> int:
        """N: how many hypotheses of a sentence are live at once."""
        return 1 if self.rows_key is None else int(getattr(config, self.rows_key))

    def label(self, config: DecodeConfig) -> str:
        """`greedy`, `beam4`: the search and its size, for names of files."""
        return self.name if self.rows_key not in self.options else f"{self.name}{self.rows_per_sentence(config)}"


def _adopted(name: str, entry: Any) -> SearchMethod:
    """A SearchMethod, or one with a row for each sentence and no options of `decode`."""
    method = entry if isinstance(entry, SearchMethod) else SearchMethod(name, entry)
    check_callable(method.run, what="a search", arguments="request")
    return replace(method, run=guarded(method.run, _fault_of))


def _fault_of(found: object, request: SearchRequest[Any]) -> str | None:
    n_sentences = len(request.max_lengths_B)
    if not isinstance(found, list) or len(found) != n_sentences:
        return f"{found!r:.80}, not a list with the hypotheses of each of {n_sentences} sentences"
    no_text = {*request.control.banned, request.control.eos}
    for of_sentence in found:
        if not isinstance(of_sentence, list) or not 1 <= len(of_sentence) <= request.config.n_best:
            return f"{of_sentence!r:.80} for a sentence, not a list of 1 to decode.n_best={request.config.n_best}"
        for one in of_sentence:
            if not isinstance(one, Hypothesis) or not all(isinstance(i, int) and i >= 0 for i in one.ids):
                return f"{one!r:.80}, not a Hypothesis whose ids are whole numbers"
            if no_text & set(one.ids):
                return f"ids with {min(no_text & set(one.ids))}, which stands for no text, such as BOS, EOS or padding"
            if not (math.isfinite(one.score) and math.isfinite(one.log_prob)):
                return f"a score of {one.score} and a log_prob of {one.log_prob}, not two finite numbers"
    return None


SEARCHES: Registry[SearchMethod] = Registry("search", adopt=_adopted, options_key="decode.options")


def register_search(method: SearchMethod) -> None:
    SEARCHES.register(method.name)(method)


def rows_per_sentence(config: DecodeConfig) -> int:
    return SEARCHES[config.search].rows_per_sentence(config)


def check_search(config: DecodeConfig) -> None:
    """Raise ConfigError for an unknown `decode.search`, and for options that it does not have."""
    method = SEARCHES[config.search]
    checked_options(SEARCHES, config.search, config.options)
    if "beam_size" not in method.options and config.beam_size != 1:
        raise ConfigError(
            f"decode.beam_size={config.beam_size}: needs decode.search=beam, not {method.name}."
            " Set decode.beam_size=1, or choose decode=beam"
        )
    is_default = config.temperature == 1 and not config.top_k and not config.top_p
    if not method.options.issuperset(SAMPLING_OPTIONS) and not is_default:
        raise ConfigError(
            f"decode.search={method.name}: decode.temperature, decode.top_k and decode.top_p need sampling."
            " Choose decode=sample, or leave them out"
        )
    if "n_samples" not in method.options and config.n_samples != DecodeConfig.n_samples:
        raise ConfigError(
            f"decode.n_samples={config.n_samples}: of minimum Bayes risk decoding, not decode.search={method.name}."
            " Choose decode=mbr, or leave it out; --n-best sets how many translations decode=sample draws"
        )
    if config.n_best <= method.rows_per_sentence(config):
        return
    if method.rows_key is None:
        raise ConfigError(f"decode.n_best={config.n_best}: {method.name} search finds one. Choose decode=beam")
    raise ConfigError(
        f"decode.n_best={config.n_best}: more than decode.{method.rows_key}={method.rows_per_sentence(config)}."
        f" Raise decode.{method.rows_key} to {config.n_best}"
    )
