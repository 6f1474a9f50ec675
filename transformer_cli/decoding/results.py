"""What `Translator.translate` takes beside lines, and what it returns."""

import math
from dataclasses import dataclass

from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.terminology import Term, Terminology


@dataclass(frozen=True)
class Candidate:
    """One translation of a line. Of a line in segments, the numbers are sums over its segments."""

    text: str
    score: float  # not a number from an engine that gives none
    log_prob: float = 0.0  # natural logarithm
    n_tokens: int = 0  # with EOS, where there is one
    hit_limit: bool = False  # it, or a segment of it, was truncated at its longest length


@dataclass(frozen=True)
class Searched:
    """The search of a segment whose hypotheses were used."""

    source_ids: list[int]  # without EOS
    hypotheses: list[Hypothesis]  # with their trace, best first


@dataclass(frozen=True)
class Translated:
    """The result for one line."""

    candidates: list[Candidate]  # best first; a blank line has one, "" and 0
    n_parts: int = 1  # segments that were translated separately and joined
    split: bool = False  # too long, and therefore translated in segments
    cut: bool = False  # too long: only its first tokens were translated
    hit_limit: bool = False  # the best candidate, or a segment of it, was truncated at its longest length
    repeats_itself: bool = False
    copied: bool = False  # equal to its source
    empty: bool = False  # and its source is not
    unknown: tuple[str, ...] = ()  # characters of the source that the vocabulary does not have
    invisible: tuple[str, ...] = ()  # format characters of the source, which the model does not read
    left_alone: bool = False  # without a letter, and therefore as its source
    retried: bool = False  # was translated again, because of one of these four
    replaced: bool = False  # and the second translation is here, because it has fewer of them
    unsatisfied: tuple[Term, ...] = ()  # terms of its source that are not in it
    misplaced: tuple[Term, ...] = ()  # terms that are in it, but not as the translation of their source phrase
    alignment: list[tuple[int, int]] | None = None  # words of the source and of the translation, from 0
    tokens: list[tuple[str, float]] | None = None  # pieces, and the log-probability of each
    searched: list[Searched] | None = None  # of each segment, in order

    @property
    def text(self) -> str:
        return self.candidates[0].text

    @property
    def hypotheses(self) -> list[tuple[str, float]]:
        """Text and score of each candidate."""
        return [(candidate.text, candidate.score) for candidate in self.candidates]

    @property
    def n_quality_issues(self) -> int:
        """How many flags it has that another search may avoid."""
        return self.hit_limit + self.repeats_itself + self.copied + self.empty


@dataclass(frozen=True)
class TranslateOptions:
    """The options of a translation beside the search that `decode` describes."""

    terminology: Terminology | None = None  # lexical constraints
    prefixes: bool = False  # `translate` will be called with target prefixes
    retry: bool = False  # translate lines with degenerate outputs again
    alignments: bool = False  # fill in Translated.alignment
    token_scores: bool = False  # fill in Translated.tokens
    n_likeliest: int = 0  # > 0: fill in Translated.searched, with so many of the likeliest tokens of every step
    tags: tuple[str, ...] = ()  # of every line that does not begin with tags itself
    lists_scores: bool = False  # the output has a place for scores that cannot stay empty
    warns: bool = True  # log what is unusual about lines, by their numbers

    @property
    def rescores(self) -> bool:
        return self.alignments or self.token_scores


DEFAULT_OPTIONS = TranslateOptions()


def json_score(score: float) -> float | None:
    """A score as JSON has it; null where the engine gives none."""
    return None if math.isnan(score) else round(score, 4)
