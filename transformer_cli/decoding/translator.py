"""Lines of text to lines of text: plan, search, post-process."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.context import Context
from transformer_cli.data.lines import list_of_texts
from transformer_cli.decoding.engine import DecodeRequest, Engine, check_supported
from transformer_cli.decoding.plan import Hypotheses, PlannedLine, Planner, Segment, goes_on
from transformer_cli.decoding.postprocess import (
    ConstraintStep,
    rescore,
    retry_config,
    retry_degenerate,
    search_all,
    warn_misplaced,
    warn_unsatisfied,
)
from transformer_cli.decoding.results import DEFAULT_OPTIONS, Searched, Translated, TranslateOptions
from transformer_cli.decoding.search import Hypothesis


class Translator:
    """Translates lines with any engine; a translation depends on its own line, and its context, only.

    (A sample also depends on `seed` and on the line's number.) Raises ConfigError for what the engine or the search
    does not have, and DataError for a term that the vocabulary cannot write.
    """

    def __init__(
        self, engine: Engine, config: DecodeConfig, *, seed: int = 1, options: TranslateOptions = DEFAULT_OPTIONS
    ) -> None:
        check_supported(engine.capabilities, config, options, n_context=engine.text.context_sentences)
        self.engine, self.config, self.seed, self.options = engine, config, seed, options
        self.tokenizers, self.text = engine.tokenizers, engine.text
        self.planner = Planner(engine.tokenizers, engine.text, config, options.terminology, options.tags)
        self.constraints = ConstraintStep(engine, config, options.terminology)
        self.check: Callable[[], object] = goes_on  # called between lines; what it raises ends a translation

    def using(self, engine: Engine, check: Callable[[], object] = goes_on) -> "Translator":
        """The same with another engine of the same model, as one call's view of a shared one."""
        other = copy(self)
        other.engine, other.check, other.constraints = engine, check, self.constraints.using(engine, check)
        return other

    def translate(
        self,
        lines: Iterable[str],
        *,
        first_line: int = 1,
        prefixes: Sequence[tuple[int, ...]] | None = None,
        on_progress: Callable[[int], object] | None = None,
        contexts: Sequence[Context] | None = None,
    ) -> list[Translated]:
        """One result for each line, in order. A line without tokens gives "" and is not searched.

        For a document-level model, the lines are documents, which blank lines divide, unless `contexts` are given.

        `prefixes` are ids that the translation of each line begins with, at most as many as `room` allows. Lines are
        numbered from `first_line` in warnings. `on_progress` gets the number of lines finished since its last call.
        """
        lines = list_of_texts(lines, "lines")
        if prefixes is not None and not self.options.prefixes:
            check_supported(self.engine.capabilities, self.config, replace(self.options, prefixes=True))
        request = DecodeRequest(self.config, self.seed, first_line, self.options.n_likeliest)
        work = self.planned(lines, prefixes, first_line, contexts)
        found, results = self._search(work, request, on_progress or (lambda n_lines: None))
        unsatisfied, misplaced = self.constraints.apply(work, found, request)
        if self.options.warns:
            warn_unsatisfied({first_line + n: unsatisfied[n] for n in sorted(unsatisfied)})
        for n, line in enumerate(work):
            if any(segment.terms for segment in line.segments):
                with_terms = self.planner.join(line, found)
                results[n] = replace(with_terms, unsatisfied=unsatisfied.get(n, ()), misplaced=misplaced.get(n, ()))
        if self.options.retry:
            again = replace(request, config=retry_config(self.config))
            retry_degenerate(self.planner, self.constraints, work, found, results, again)
        if self.options.warns:
            warn_misplaced({n: result.misplaced for n, result in enumerate(results, start=first_line)})
        if self.options.rescores:
            batch_tokens = self.config.batch_tokens
            rescore(self.engine, self.planner, work, found, results, batch_tokens=batch_tokens, check=self.check)
        if self.options.n_likeliest:
            results = [
                replace(result, searched=[Searched(s.ids, found[s.key]) for s in line.segments])
                for line, result in zip(work, results, strict=True)
            ]
        return results

    @property
    def searches_once(self) -> bool:
        """Whether the hypotheses of the segments need only be joined."""
        needs_more = self.options.retry or self.options.rescores or self.options.n_likeliest > 0
        return self.options.terminology is None and not needs_more

    def planned(
        self,
        lines: Sequence[str],
        prefixes: Sequence[tuple[int, ...]] | None = None,
        first_line: int = 1,
        contexts: Sequence[Context] | None = None,
    ) -> list[PlannedLine]:
        """Lines with their segments; warns of what is unusual."""
        work = self.planner.plan(lines, prefixes, check=self.check, contexts=contexts)
        if self.options.warns:
            self.planner.warn_too_long(work, first_line)
            self.planner.warn_of_tags(lines, work, first_line)
        return work

    def best(self, ids: list[int], first_ids: tuple[int, ...] = ()) -> Hypothesis:
        """The best hypothesis for one source, given without EOS and not split, however long.

        It begins with `first_ids`, as the token of its language.
        """
        request = DecodeRequest(self.config, self.seed, n_likeliest=self.options.n_likeliest)
        segment = Segment(0, 0, ids, prefix=first_ids, n_first=len(first_ids))
        return search_all(self.engine, [segment], request)[0, 0][0]

    def room(self, lines: Sequence[str]) -> list[int | None]:
        """How many tokens the prefix of each line's translation may have; None for a blank line."""
        return self.planner.room(lines)

    def _search(
        self, work: Sequence[PlannedLine], request: DecodeRequest, on_progress: Callable[[int], object]
    ) -> tuple[Hypotheses, list[Translated]]:
        """The hypotheses of every segment, and of every line, without lexical constraints: most satisfy theirs anyway.

        A line is joined as soon as its last segment is found, while an engine with threads of its own searches on.
        """
        unfinished = [len(line.segments) for line in work]
        results = {n: self.planner.join(line, {}) for n, line in enumerate(work) if not line.segments}
        on_progress(len(results))
        found: Hypotheses = {}
        segments = [segment for line in work for segment in line.segments]
        for batch, hypotheses in self.engine.search(segments, request):
            n_before = len(results)
            for segment, of_segment in zip(batch, hypotheses, strict=True):
                found[segment.key] = of_segment
                unfinished[segment.line] -= 1
                if not unfinished[segment.line]:
                    results[segment.line] = self.planner.join(work[segment.line], found)
            on_progress(len(results) - n_before)
        return found, [results[n] for n in range(len(work))]
