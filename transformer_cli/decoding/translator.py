"""Lines of text to lines of text: plan, search, post-process."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.engine import DecodeRequest, Engine, check_supported
from transformer_cli.decoding.plan import Hypotheses, Line, Planner, Segment
from transformer_cli.decoding.postprocess import (
    ConstraintStep,
    rescore,
    retry_config,
    retry_degenerate,
    search_all,
    warn_misplaced,
    warn_unsatisfied,
)
from transformer_cli.decoding.results import DEFAULT_OPTIONS, Translated, TranslateOptions
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.training_text import TrainingText


class Translator:
    """Translates lines with any engine; a translation depends on its own line only.

    (A sample also depends on `seed` and on the line's number.) Raises ConfigError for what the engine or the search
    does not have, and DataError for a term that the vocabulary cannot write.
    """

    def __init__(
        self, engine: Engine, config: DecodeConfig, *, seed: int = 1, options: TranslateOptions = DEFAULT_OPTIONS
    ) -> None:
        check_supported(engine.capabilities, config, options)
        self.engine, self.config, self.seed, self.options = engine, config, seed, options
        self.planner = Planner(engine.tokenizers, engine.text, config, options.terminology)
        self.constraints = ConstraintStep(engine, config, options.terminology)

    @property
    def tokenizers(self) -> Tokenizers:
        return self.engine.tokenizers

    @property
    def text(self) -> TrainingText:
        return self.engine.text

    def translate(
        self,
        lines: Sequence[str],
        *,
        first_line: int = 1,
        prefixes: Sequence[tuple[int, ...]] | None = None,
        on_progress: Callable[[int], object] | None = None,
    ) -> list[Translated]:
        """One result for each line, in order. A line without tokens gives "" and is not searched.

        `prefixes` are ids that the translation of each line begins with, at most as many as `room` allows. Lines are
        numbered from `first_line` in warnings. `on_progress` gets the number of lines finished since its last call.
        """
        if prefixes is not None and not self.options.prefixes:
            check_supported(self.engine.capabilities, self.config, replace(self.options, prefixes=True))
        request = DecodeRequest(self.config, self.seed, first_line)
        work = self.planner.plan(lines, prefixes)
        self.planner.warn_too_long(work, first_line)
        found = self._search(work, request, on_progress or (lambda n_lines: None))
        unsatisfied, misplaced = self.constraints.apply(work, found, request)
        warn_unsatisfied({first_line + n: unsatisfied[n] for n in sorted(unsatisfied)})
        results = [self.planner.join(line, found) for line in work]
        for n in unsatisfied.keys() | misplaced.keys():
            results[n] = replace(results[n], unsatisfied=unsatisfied.get(n, ()), misplaced=misplaced.get(n, ()))
        if self.options.retry:
            again = replace(request, config=retry_config(self.config))
            retry_degenerate(self.planner, self.constraints, work, found, results, again)
        warn_misplaced({n: result.misplaced for n, result in enumerate(results, start=first_line)})
        if self.options.rescores:
            rescore(self.engine, self.planner, work, found, results, batch_tokens=self.config.batch_tokens)
        return results

    def best(self, ids: list[int]) -> Hypothesis:
        """The best hypothesis for one source, given without EOS and not split, however long."""
        return search_all(self.engine, [Segment(0, 0, ids)], DecodeRequest(self.config, self.seed))[0, 0][0]

    def room(self, lines: Sequence[str]) -> list[int | None]:
        """How many tokens the prefix of each line's translation may have; None for a blank line."""
        return self.planner.room(lines)

    def _search(self, work: Sequence[Line], request: DecodeRequest, on_progress: Callable[[int], object]) -> Hypotheses:
        """The hypotheses of every segment, without lexical constraints: most lines satisfy theirs anyway."""
        unfinished = [len(line.segments) for line in work]
        on_progress(unfinished.count(0))
        found: Hypotheses = {}
        segments = [segment for line in work for segment in line.segments]
        for batch, hypotheses in self.engine.search(segments, request):
            found |= zip((segment.key for segment in batch), hypotheses, strict=True)
            for segment in batch:
                unfinished[segment.line] -= 1
            on_progress(sum(unfinished[n] == 0 for n in {segment.line for segment in batch}))
        return found
