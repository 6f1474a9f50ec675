"""`tfm score`: the log-probability of given translations, one line out for each pair, in order.

A model of text without a source, as a language model, scores lines: translations of an empty source.
"""

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from transformer_cli.commands.score.keys import ScoreConfig
from transformer_cli.config.tasks import Task, all_tasks
from transformer_cli.data.context import History
from transformer_cli.data.lines import TextInput, no_lines_of_text, read_chunks, shown, split_lines, warn_of_columns
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.opening import with_own_length_penalty
from transformer_cli.decoding.plan import check_given_tags
from transformer_cli.decoding.training_text import training_text
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.scoring import ScoredTranslation, score_translations
from transformer_cli.inference.precision import choose_precision, in_precision
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import AnyTokenModel, build_all, read_models
from transformer_cli.models.locate import locate_models
from transformer_cli.models.transformer import TokenModel
from transformer_cli.standard_streams import require_stdout
from transformer_cli.text_io import Line, LineFilter, Sink, decode_line, run_filter

PAIRS = 4096  # scored together: enough to sort by length, small enough to see progress


@dataclass(frozen=True)
class _Pair:
    """A source and its translation, and whether bytes of either were not UTF-8."""

    source: str
    translation: str
    is_invalid: bool = False


def run(config: ScoreConfig) -> None:
    """Score --translation as that of --source, or `source<TAB>translation` from stdin. Raises TfmError."""
    require_stdout("the scores")
    device = choose_device(config.device)
    given = [_lines(Path(name)) for name in (config.source, config.translation) if name is not None]
    _check_line_counts(config, given)
    paths = locate_models(config.checkpoint, config.runs)
    models = read_models(paths, [task.model for task in all_tasks() if not task.is_encoder_alone])
    config = replace(config, decode=with_own_length_penalty(config.decode, [model.length_penalty for model in models]))
    precision = choose_precision(config.decode.precision, device)
    task = models[0].task
    if task.has_source and config.source is not None and config.translation is None:
        raise ConfigError("--translation: not given, but --source is. Give both files, or neither")
    if not task.has_source:
        refuse_for_text(config, paths, task)
    is_single, is_text = len(models) == 1, not task.has_source
    built: AnyTokenModel = models[0].build_as(TokenModel, device) if is_single else build_all(models, device)
    model = in_precision(built, precision, device)
    tags = asked_tags(models[0], config.tag, config.source_lang, config.target_lang)
    check_given_tags(tags, models[0].tokenizers.source.tags)
    score = partial(score_translations, model, models, config.decode, device, tags=tags)
    n_context = training_text(models).context_sentences
    history = History(n_context, models[0].tokenizers.source.tags) if n_context else None
    scorer = PairScorer(score, config, unit="line" if is_text else "pair", is_text=is_text, history=history)
    if config.source is not None:
        scorer.score_files(given)
        return

    def open_filter(sink: Sink, is_typed: bool) -> PairScorer:
        if is_typed:
            LOGGER.info("type %s; Ctrl-D ends", "a line" if is_text else "a source, a tab and its translation")
        return scorer

    run_filter(open_filter, input=None)


def refuse_for_text(config: ScoreConfig, paths: Sequence[Path], task: Task) -> None:
    """Raise ConfigError for a second model of text without a source, and for translations."""
    if len(paths) > 1:
        what = task.what.removeprefix("a ")
        raise ConfigError(f"{paths[1]}: a second {what}; they answer one at a time. Name one --checkpoint")
    if config.translation is not None:
        raise ConfigError(f"--translation {config.translation}: {paths[0]} is {task.what}. Give --source alone")


def _check_line_counts(config: ScoreConfig, given: Sequence[Sequence[bytes]]) -> None:
    """Raises DataError, with both counts, where two files differ."""
    n_lines = [len(lines) for lines in given]
    if len(set(n_lines)) > 1:
        source, translation = shown(str(config.source)), shown(str(config.translation))
        raise DataError(
            f"{translation}: has {n_lines[1]:,} lines, {source} {n_lines[0]:,}, so nothing is"
            " scored. Make line n of one the translation of line n of the other"
        )


def _lines(path: Path) -> list[bytes]:
    """The lines of --source or --translation. Raises DataError for what is not lines of text."""
    with TextInput(path) as stream:
        text = b"".join(read_chunks(stream, shown(path)))
    if (fault := no_lines_of_text(text)) is not None:
        raise DataError(f"{shown(path)}: {fault}")
    lines = split_lines(text)
    warn_of_columns(shown(path), lines, "scored")
    return lines


def text_only(line: Line) -> _Pair:
    """A line of text: the translation of nothing."""
    return _Pair("", line.text, line.is_invalid)


def paired(source: Line, translation: Line) -> _Pair:
    return _Pair(source.text, translation.text, source.is_invalid or translation.is_invalid)


def split_pair(line: Line) -> _Pair:
    sides = line.text.split("\t")
    if len(sides) != 2 and line.text.strip():
        raise DataError(
            f"standard input:{line.number}: has {len(sides) - 1} tabs, not one. Write source<TAB>translation,"
            " or give --source and --translation"
        )
    return _Pair(sides[0], sides[-1] if len(sides) == 2 else "", line.is_invalid)


def format_score(scored: ScoredTranslation, line: int, config: ScoreConfig) -> str:
    """The line of output for a pair; in JSON, `score` is as `tfm translate --n-best` prints it."""
    if not config.json:
        return f"{scored.log_prob:.4f}"
    record = {
        "line": line,
        "score": round(scored.normalized_score(config.decode), 4),
        "log_prob": round(scored.log_prob, 4),
        "n_tokens": len(scored.pieces),
        "tokens": [[piece, round(p, 4)] for piece, p in zip(scored.pieces, scored.log_probs, strict=True)],
    }
    return json.dumps(record, ensure_ascii=False)


class PairScorer(LineFilter):
    """Prints the score of each pair of standard input or of two files, and in the end the sum on stderr.

    Without a source the lines are text: `is_text`. A document-level model reads the `history` before each source.
    """

    progress = "score"

    def __init__(
        self,
        score: Callable[..., list[ScoredTranslation]],
        config: ScoreConfig,
        *,
        unit: str,
        is_text: bool = False,
        history: History | None = None,
    ) -> None:
        super().__init__(None, strict=config.strict)
        self._history = history
        self._score, self._config, self.unit, self._is_text = score, config, unit, is_text
        self.n_tokens, self.total, self.unknown = 0, 0.0, UnknownCounter()

    def respond(self, lines: Sequence[Line]) -> None:
        """Raises DataError for a line that is no pair, unless it is text."""
        self._score_pairs([text_only(line) if self._is_text else split_pair(line) for line in lines])

    def score_files(self, given: Sequence[Sequence[bytes]]) -> None:
        """Score the lines of source and translation, or where lines are text, those of the source alone."""
        sides = list(zip((self._config.source, self._config.translation), given, strict=False))
        with tqdm(
            total=len(given[0]), unit=self.unit, disable=None, desc=self.progress, leave=False, file=sys.stderr
        ) as bar:
            for start in range(0, len(given[0]), PAIRS):
                rows = [
                    [decode_line(lines[i], i + 1, name=name, strict=self.strict) for name, lines in sides]
                    for i in range(start, min(start + PAIRS, len(given[0])))
                ]
                pairs = [text_only(*row) if len(row) == 1 else paired(*row) for row in rows]
                self._score_pairs(pairs)
                self.n_lines += len(pairs)
                self.n_invalid += sum(pair.is_invalid for pair in pairs)
                bar.update(len(pairs))
        self.report()

    def _score_pairs(self, pairs: Sequence[_Pair]) -> None:
        contexts = None if self._history is None else [self._history.before(pair.source) for pair in pairs]
        score = self._score if contexts is None else partial(self._score, contexts=contexts)
        scored = score(
            [(pair.source, pair.translation) for pair in pairs], first_line=self.n_lines + 1, unknown=self.unknown
        )
        for line, one in enumerate(scored, start=self.n_lines + 1):
            print(format_score(one, line, self._config))
        sys.stdout.flush()
        self.n_tokens += sum(len(one.pieces) for one in scored)
        self.total += math.fsum(one.log_prob for one in scored)

    def report(self) -> None:
        self.unknown.warn(self.unit)
        super().report()
        if self.n_tokens:
            LOGGER.info(
                "%s %ss, %s tokens with their ends: log-probability %.2f, perplexity %.4g per token",
                f"{self.n_lines:,}",
                self.unit,
                f"{self.n_tokens:,}",
                self.total,
                math.exp(min(-self.total / self.n_tokens, 100)),
            )
