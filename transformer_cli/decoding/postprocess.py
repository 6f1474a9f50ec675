"""What happens to hypotheses after the search: lexical constraints, retry of degenerate outputs, rescoring.

Each step needs something of the engine, which `engine.check_supported` refuses beforehand: lexical constraints need
`lexical_constraints`, `scores` and `attention`, retry needs beam search, rescoring `scores` and `attention`.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate, islice

from transformer_cli.config.decode import LARGEST_BEAM, DecodeConfig
from transformer_cli.data.normalization import canonical, normalize
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.decoding.alignment import align_words, word_numbers
from transformer_cli.decoding.engine import DecodeRequest, Engine
from transformer_cli.decoding.placement import AlignedTranslation, Placement
from transformer_cli.decoding.plan import N_NAMED, Hypotheses, PlannedLine, Planner, Segment, goes_on, named
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.errors import DataError, quoted
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.inference.force_decode import ForcedScores
from transformer_cli.logs import LOGGER

RETRY_BEAM = 8  # at least: the beam of a retry
RETRY_NO_REPEAT = 3  # n-grams that a retry may not repeat

TermsOfLines = dict[int, tuple[Term, ...]]


def search_all(engine: Engine, segments: Sequence[Segment], request: DecodeRequest) -> Hypotheses:
    return {
        segment.key: hypotheses
        for batch, found in engine.search(segments, request)
        for segment, hypotheses in zip(batch, found, strict=True)
    }


# ---- Lexical constraints


@dataclass(frozen=True)
class _Choice:
    """The accepted translations of a segment with terms, best first; none, if a term is dropped."""

    hypotheses: list[Hypothesis]
    misplaced: tuple[Term, ...] = ()  # of the first
    dropped: tuple[Term, ...] = ()


class ConstraintStep:
    """Searches segments again whose translation lacks a term.

    A translation that already contains its terms is kept. A term that the search cannot place, or only by leaving a
    sentence without its end, or in a wrong place at too high a cost, is dropped, and the others are tried without it.
    Raises DataError for a term that the vocabulary cannot write.
    """

    def __init__(self, engine: Engine, config: DecodeConfig, terminology: Terminology | None) -> None:
        self.engine, self.config = engine, config
        self.tokenizers = engine.tokenizers
        self.check: Callable[[], object] = goes_on  # called for each segment; what it raises ends the step
        self.term_ids = {} if terminology is None else ids_of_terms(terminology, engine.tokenizers.target)

    def using(self, engine: Engine, check: Callable[[], object]) -> "ConstraintStep":
        other = copy(self)
        other.engine, other.check = engine, check
        return other

    def apply(
        self, work: Sequence[PlannedLine], found: Hypotheses, request: DecodeRequest
    ) -> tuple[TermsOfLines, TermsOfLines]:
        """Replace hypotheses in `found`; returns the terms that are unsatisfied, and those that are misplaced."""
        unsatisfied: TermsOfLines = {}
        misplaced: TermsOfLines = {}
        waiting: list[Segment] = []
        for segment in (segment for line in work for segment in line.segments):
            if missing := self._missing(segment, found):
                fitting = self._with_room(segment)
                if lacking := tuple(term for term in missing if term not in fitting):
                    unsatisfied[segment.line] = (*unsatisfied.get(segment.line, ()), *lacking)
                segment = replace(segment, terms=tuple(fitting))
                waiting += [segment] if self._missing(segment, found) else []
        while waiting:
            tried, waiting = self._constrained(waiting, found, request), []
            for segment, choice in tried:
                if not choice.dropped:
                    found[segment.key] = choice.hypotheses
                    if choice.misplaced:
                        misplaced[segment.line] = (*misplaced.get(segment.line, ()), *choice.misplaced)
                    continue
                unsatisfied[segment.line] = (*unsatisfied.get(segment.line, ()), *choice.dropped)
                rest = replace(segment, terms=tuple(term for term in segment.terms if term not in choice.dropped))
                if self._missing(rest, found):
                    waiting.append(rest)
        return unsatisfied, misplaced

    def _with_room(self, segment: Segment) -> dict[Term, None]:
        """The terms whose tokens have room in the longest translation, beside those of the terms before them."""
        room = self.engine.text.longest_translation(self.config, len(segment.ids) + 1) - 1 - len(segment.prefix)
        fitting: dict[Term, None] = {}
        for term in segment.terms:
            if len(self.term_ids[term]) <= room:
                room -= len(self.term_ids[term])
                fitting[term] = None
        return fitting

    def _constrained(
        self, segments: Sequence[Segment], plain: Hypotheses, request: DecodeRequest
    ) -> list[tuple[Segment, _Choice]]:
        """A choice for each segment among what the search finds with its terms.

        All hypotheses of the beam are considered: the likeliest often adds a term instead of replacing a word by it.
        """
        config = replace(request.config, n_best=max(request.config.n_best, request.config.beam_size))
        constrained = [self._with_terms(segment) for segment in segments]
        again = search_all(self.engine, constrained, replace(request, config=config))
        candidates = [(segment, self._candidates(segment, plain, again)) for segment in segments]
        pairs = [(s.ids, h.ids) for s, of_segment in candidates for h in (plain[s.key][0], *of_segment)]
        scores = iter(self.engine.score(pairs, batch_tokens=self.config.batch_tokens, with_attention=True))
        choices = []
        for segment, of_segment in candidates:
            forced = list(islice(scores, 1 + len(of_segment)))
            if of_segment:
                choices.append((segment, self._choice(segment, plain[segment.key][0], of_segment, forced)))
            else:
                choices.append((segment, _Choice([], dropped=self._missing(segment, again) or segment.terms)))
        return choices

    def _with_terms(self, segment: Segment) -> Segment:
        kept = (term for term in segment.terms if term.is_kept_by(term.targets[0]))
        return replace(
            segment,
            required=tuple(self.term_ids[term] for term in segment.terms),
            whole=frozenset(self.term_ids[term] for term in kept),
        )

    def _candidates(self, segment: Segment, plain: Hypotheses, again: Hypotheses) -> list[Hypothesis]:
        """Translations that contain all terms, and have an end if the one without terms has."""
        needs_end = plain[segment.key][0].finished
        return [
            hypothesis
            for hypothesis in again[segment.key]
            if (hypothesis.finished or not needs_end) and not self._missing(segment, {segment.key: [hypothesis]})
        ]

    def _choice(
        self, segment: Segment, plain: Hypothesis, candidates: Sequence[Hypothesis], forced: Sequence[ForcedScores]
    ) -> _Choice:
        """The likeliest translation whose terms are all in their place; if there is none, the likeliest."""
        n = segment.n_tags
        reference, *translations = [
            AlignedTranslation(h.ids, None if scores.attention_TS is None else scores.attention_TS[:, n:])
            for h, scores in zip((plain, *candidates), forced, strict=True)
        ]
        placement = Placement(segment.ids[n:], self.tokenizers, reference, self.config.term_forms)
        misplaced = [placement.misplaced(segment.terms, translation) for translation in translations]
        order = sorted(range(len(candidates)), key=lambda i: len(misplaced[i]))  # stable: the likeliest first
        best = order[0]
        most = self.config.max_misplaced_cost
        if misplaced[best] and most is not None and per_token(plain) - per_token(candidates[best]) > most:
            return _Choice([], dropped=misplaced[best])
        return _Choice([candidates[i] for i in order][: self.config.n_best], misplaced=misplaced[best])

    def _missing(self, segment: Segment, found: Mapping[tuple[int, int], Sequence[Hypothesis]]) -> tuple[Term, ...]:
        """The terms of `segment` that its best translation does not contain."""
        if not segment.terms:
            return ()
        self.check()
        text = self.tokenizers.target.decode(found[segment.key][0].ids)
        return tuple(term for term in segment.terms if not term.places(text, self.config.term_forms))


def per_token(hypothesis: Hypothesis) -> float:
    return hypothesis.log_prob / max(1, len(hypothesis.ids) + hypothesis.finished)


def ids_of_terms(terminology: Terminology, target: Tokenizer) -> dict[Term, tuple[int, ...]]:
    """The required tokens of each term. Raises DataError for one that the vocabulary cannot write."""
    term_ids = {}
    for term in terminology.terms:
        ids = written_ids(term.targets[0], target)
        if ids is None:
            raise DataError(
                f"{terminology.name}:{term.line}: {quoted(term.targets[0])} cannot be written with the pieces of this"
                " model. Write it in other letters, or remove the line"
            )
        term_ids[term] = ids
    return term_ids


def written_ids(text: str, target: Tokenizer) -> tuple[int, ...] | None:
    """The ids that decode to `text`; None where none do, because it is not in the vocabulary."""
    (ids,) = target.encode([text], as_written=True)
    return tuple(ids) if target.unk_id not in ids and canonical(target.decode(ids)) == canonical(text) else None


def warn_misplaced(misplaced: Mapping[int, Sequence[Term]]) -> None:
    """One warning, if there are any."""
    if lines := [line for line, terms in misplaced.items() if terms]:
        LOGGER.warning("%s: a term is not where its source phrase is translated, or stands beside it", named(lines))


def warn_unsatisfied(unsatisfied: Mapping[int, Sequence[Term]]) -> None:
    """One warning for each term of the first few lines, and the number of the rest."""
    terms = [(line, term) for line, of_line in unsatisfied.items() for term in of_line]
    for line, term in terms[:N_NAMED]:
        LOGGER.warning(
            "line %d: %s has no room or no likely place in its translation as %s, and is left to the model",
            line,
            quoted(term.source),
            quoted(term.targets[0]),
        )
    if len(terms) > N_NAMED:
        LOGGER.warning("%d more terms have no room or no likely place in their translations", len(terms) - N_NAMED)


# ---- Retry of degenerate outputs


def retry_config(config: DecodeConfig) -> DecodeConfig:
    """The search of a retry: a wider beam that repeats no n-gram."""
    return replace(
        config,
        search="beam",
        beam_size=min(max(RETRY_BEAM, 2 * config.beam_size, config.n_best), LARGEST_BEAM),
        no_repeat_ngram=config.no_repeat_ngram or RETRY_NO_REPEAT,
        diversity_groups=1,
        diversity_strength=0.5,
        temperature=1.0,
        top_k=None,
        top_p=None,
    )


def retry_degenerate(
    planner: Planner,
    constraints: ConstraintStep,
    work: Sequence[PlannedLine],
    found: Hypotheses,
    results: list[Translated],
    request: DecodeRequest,
) -> None:
    """Translate lines with degenerate outputs again, and keep what has fewer issues, and no term less.

    Not those that were truncated, whose source is incomplete.
    """
    degenerate = [n for n, result in enumerate(results) if result.n_quality_issues and not result.cut]
    if not degenerate:
        return
    lines = []
    for n in degenerate:
        dropped = results[n].unsatisfied
        segments = [replace(s, terms=tuple(t for t in s.terms if t not in dropped)) for s in work[n].segments]
        lines.append(replace(work[n], segments=segments))
    again = search_all(constraints.engine, [segment for line in lines for segment in line.segments], request)
    unsatisfied, misplaced = constraints.apply(lines, again, request)
    for n in degenerate:
        first, second = results[n], replace(planner.join(work[n], again), misplaced=misplaced.get(n, ()))
        is_worse = n in unsatisfied or len(second.misplaced) > len(first.misplaced)
        if is_worse or second.n_quality_issues >= first.n_quality_issues:
            results[n] = replace(first, retried=True)
            continue
        results[n] = replace(second, retried=True, replaced=True, unsatisfied=first.unsatisfied)
        found |= {key: hypotheses for key, hypotheses in again.items() if key[0] == n}


# ---- Rescoring


def rescore(
    engine: Engine,
    planner: Planner,
    work: Sequence[PlannedLine],
    found: Hypotheses,
    results: list[Translated],
    *,
    batch_tokens: BatchTokens,
    check: Callable[[], object] = goes_on,
) -> None:
    """Add word alignments and token scores to `results`, from force-decoding them with attention."""
    segments = [segment for line in work for segment in line.segments]
    best = [found[segment.key][0] for segment in segments]
    pairs = [(segment.ids, hypothesis.ids) for segment, hypothesis in zip(segments, best, strict=True)]
    forced = engine.score(pairs, batch_tokens=batch_tokens, with_attention=True)
    results[:] = [replace(result, alignment=[], tokens=[]) for result in results]
    source, target = engine.tokenizers.source, engine.tokenizers.target
    for segment, hypothesis, scores in zip(segments, best, forced, strict=True):
        check()
        alignment, tokens = results[segment.line].alignment, results[segment.line].tokens
        assert alignment is not None
        assert tokens is not None
        ids = [*hypothesis.ids, target.eos_id] if hypothesis.finished else hypothesis.ids
        tokens += zip(target.pieces(ids), scores.log_probs, strict=False)
        if target.decode(hypothesis.ids):
            assert scores.attention_TS is not None
            first_source, first_target = _first_word(work[segment.line], segment.part), len(alignment)
            n = segment.n_tags
            links = align_words(
                scores.attention_TS[:, n:], word_numbers(segment.ids[n:], source), word_numbers(hypothesis.ids, target)
            )
            if alignment and not planner.separator(work[segment.line]):  # its first word continues the last one
                links = links[1:]
            alignment += [(first_source + i, first_target + j) for j, i in enumerate(links)]


def _first_word(line: PlannedLine, part: int) -> int:
    """The number of the word that a segment of a line begins with, or in."""
    ends = list(accumulate(len(word) for word in normalize(line.text).split()))
    before = (normalize(segment.text) for segment in line.segments[:part])
    return min(bisect_right(ends, sum(len("".join(text.split())) for text in before)), len(ends) - 1)
