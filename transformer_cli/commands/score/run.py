"""`tfm score`: the log-probability of given translations, one line out for each pair, in order.

A language model scores lines of text: translations of an empty source.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tqdm import tqdm

from transformer_cli.commands.score.keys import ScoreConfig
from transformer_cli.config.tags import tags_in
from transformer_cli.data.lines import ChunkSource, TextInput, read_chunks, shown, split_lines
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.opening import with_own_length_penalty
from transformer_cli.decoding.plan import check_given_tags
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.evaluation.scoring import ScoredTranslation, score_translations
from transformer_cli.inference.precision import choose_precision, in_precision
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import AnyModel, build_all, read_models
from transformer_cli.models.language_model import LanguageModel
from transformer_cli.models.locate import locate_models
from transformer_cli.text_io import Line, decode_line, open_input, warn_invalid

PAIRS = 4096  # scored together: enough to sort by length, small enough to see progress


@dataclass(frozen=True)
class Pair:
    """A source and its translation, and whether bytes of either were not UTF-8."""

    source: str
    translation: str
    is_invalid: bool = False


def run(config: ScoreConfig) -> None:
    """Score --translation as that of --source, or `source<TAB>translation` from stdin. Raises TfmError."""
    if sys.stdout is None:
        raise EnvironmentFault("standard output: closed. Open it, for the scores to be printed")
    device = choose_device(config.device)
    given = [_lines(Path(name)) for name in (config.source, config.translation) if name is not None]
    check_line_counts(config, given)
    paths = locate_models(config.checkpoint, config.runs)
    models = read_models(paths, ("transformer", "decoder"))
    config = replace(config, decode=with_own_length_penalty(config.decode, [model.length_penalty for model in models]))
    precision = choose_precision(config.decode.precision, device)
    is_text = models[0].kind == "decoder"
    if is_text:
        refuse_for_text(config, paths)
        model: AnyModel | LanguageModel = in_precision(models[0].build_as(LanguageModel, device), precision, device)
    else:
        if config.source is not None and config.translation is None:
            raise ConfigError("--translation: not given, but --source is. Give both files, or neither")
        model = in_precision(build_all(models, device), precision, device)
    tags = tags_in(config.tag or "")
    check_given_tags(tags, models[0].tokenizers.source.tags)
    score = partial(score_translations, model, models, config.decode, device, tags=tags)
    what = "line" if is_text else "pair"
    if config.source is not None:
        score_all(score, from_files(given, config), config, what=what, n_pairs=len(given[0]))
        return
    with open_input(None) as stream:
        if stream.isatty():
            LOGGER.info("type %s; Ctrl-D ends", "a line" if is_text else "a source, a tab and its translation")
        score_all(score, from_stream(stream, config, is_text=is_text), config, what=what)


def refuse_for_text(config: ScoreConfig, paths: Sequence[Path]) -> None:
    """Raise ConfigError for a second language model, and for translations."""
    if len(paths) > 1:
        raise ConfigError(f"{paths[1]}: a second language model; they answer one at a time. Name one --checkpoint")
    if config.translation is not None:
        raise ConfigError(f"--translation {config.translation}: {paths[0]} is a language model. Give --source alone")


def check_line_counts(config: ScoreConfig, given: Sequence[Sequence[bytes]]) -> None:
    """Raises DataError, with both counts, where two files differ."""
    n_lines = [len(lines) for lines in given]
    if len(set(n_lines)) > 1:
        source, translation = shown(str(config.source)), shown(str(config.translation))
        raise DataError(
            f"{translation}: has {n_lines[1]:,} lines, {source} {n_lines[0]:,}, so nothing is"
            " scored. Make line n of one the translation of line n of the other"
        )


def _lines(path: Path) -> list[bytes]:
    with TextInput(path) as stream:
        return split_lines(b"".join(read_chunks(stream, shown(path))))


def from_files(given: Sequence[Sequence[bytes]], config: ScoreConfig) -> Iterator[list[Pair]]:
    """`given` are the lines of source and translation, or those of the source alone."""
    sides = list(zip((config.source, config.translation), given, strict=False))  # a language model has the source alone
    for start in range(0, len(given[0]), PAIRS):
        numbers = range(start + 1, min(start + PAIRS, len(given[0])) + 1)
        rows = [
            [decode_line(lines[number - 1], number, name=name, strict=config.strict) for name, lines in sides]
            for number in numbers
        ]
        yield [text_only(*row) if len(row) == 1 else paired(*row) for row in rows]


def from_stream(stream: ChunkSource, config: ScoreConfig, *, is_text: bool = False) -> Iterator[list[Pair]]:
    """What has arrived, before it waits for more. Raises DataError for a line that is no pair, unless it is text."""
    n_before = 0
    for raw in read_chunks(stream, "standard input"):
        lines = [
            decode_line(line, number, name=None, strict=config.strict)
            for number, line in enumerate(split_lines(raw), start=n_before + 1)
        ]
        yield [text_only(line) if is_text else split_pair(line) for line in lines]
        n_before += len(lines)


def text_only(line: Line) -> Pair:
    """A line for a language model: the translation of nothing."""
    return Pair("", line.text, line.is_invalid)


def paired(source: Line, translation: Line) -> Pair:
    return Pair(source.text, translation.text, source.is_invalid or translation.is_invalid)


def split_pair(line: Line) -> Pair:
    sides = line.text.split("\t")
    if len(sides) != 2 and line.text.strip():
        raise DataError(
            f"standard input:{line.number}: has {len(sides) - 1} tabs, not one. Write source<TAB>translation,"
            " or give --source and --translation"
        )
    return Pair(sides[0], sides[-1] if len(sides) == 2 else "", line.is_invalid)


def format_score(scored: ScoredTranslation, line: int, config: ScoreConfig) -> str:
    """In JSON, `score` is as `tfm translate --n-best` prints it."""
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


def score_all(
    score: Callable[..., list[ScoredTranslation]],
    chunks: Iterable[list[Pair]],
    config: ScoreConfig,
    *,
    what: str,
    n_pairs: int | None = None,
) -> None:
    """Print each chunk when it is scored, and in the end the sum on stderr."""
    n_lines, n_invalid, n_tokens, total, unknown = 0, 0, 0, 0.0, UnknownCounter()
    quiet = True if n_pairs is None else None  # None: drawn on a terminal only
    with tqdm(total=n_pairs, unit=what, disable=quiet, desc="score", leave=False, file=sys.stderr) as bar:
        for pairs in chunks:
            scored = score([(pair.source, pair.translation) for pair in pairs], first_line=n_lines + 1, unknown=unknown)
            for line, one in enumerate(scored, start=n_lines + 1):
                print(format_score(one, line, config))
            sys.stdout.flush()
            n_lines += len(pairs)
            n_invalid += sum(pair.is_invalid for pair in pairs)
            n_tokens += sum(len(one.pieces) for one in scored)
            total += math.fsum(one.log_prob for one in scored)
            bar.update(len(pairs))
    unknown.warn(what)
    warn_invalid(n_invalid, n_lines, unit=what)
    if n_tokens:
        LOGGER.info(
            "%s %ss, %s tokens with their ends: log-probability %.2f, perplexity %.4g per token",
            f"{n_lines:,}",
            what,
            f"{n_tokens:,}",
            total,
            math.exp(min(-total / n_tokens, 100)),
        )
