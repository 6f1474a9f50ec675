"""`tfm score`: how likely a model finds translations that are given, one line out for each pair, in order.

A language model says the same of lines of text: they are translations of nothing.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_cli.config.commands import ScoreConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Positions
from transformer_cli.data.lines import ChunkSource, TextInput, read_chunks, shown, split_lines
from transformer_cli.data.unknown import UnknownCounter, unknown_characters
from transformer_cli.decoding.plan import named
from transformer_cli.decoding.search.scores import divisor
from transformer_cli.decoding.training_text import training_text
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.inference.force_decode import force_decode
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import AnyModel, build_all, read_models
from transformer_cli.models.file import ModelFile, locate_models
from transformer_cli.models.language_model import LanguageModel
from transformer_cli.text_io import Line, decode_line, open_input, warn_invalid

PAIRS = 4096  # scored together: enough to sort by length, small enough to see progress


@dataclass(frozen=True)
class Pair:
    """Texts, and whether bytes of either were not UTF-8."""

    source: str
    translation: str
    is_invalid: bool = False


@dataclass(frozen=True)
class Scored:
    """A translation as the model reads it. A blank line of a blank line costs nothing, as in `tfm translate`."""

    pieces: list[str]  # and the end, where there is anything
    log_probs: list[float]  # natural logarithms, of each piece

    @property
    def log_prob(self) -> float:
        return math.fsum(self.log_probs)

    def record(self, line: int, config: DecodeConfig) -> dict[str, object]:
        """`score` is what `tfm translate --n-best` prints of it."""
        return {
            "line": line,
            "score": round(self.log_prob / divisor(len(self.pieces), config), 4),
            "log_prob": round(self.log_prob, 4),
            "n_tokens": len(self.pieces),
            "tokens": [[piece, round(p, 4)] for piece, p in zip(self.pieces, self.log_probs, strict=True)],
        }


def run(config: ScoreConfig) -> None:
    """Score --translation as that of --source, or `source<TAB>translation` from stdin. Raises TfmError."""
    if sys.stdout is None:
        raise EnvironmentFault("standard output: closed. Open it, for the scores to be printed")
    device = choose_device(config.device)
    given = [_lines(Path(name)) for name in (config.source, config.translation) if name is not None]
    check_line_counts(config, given)
    paths = locate_models(config.checkpoint, config.runs)
    models = read_models(paths, ("transformer", "decoder"))
    is_text = models[0].config.name == "decoder"
    if is_text:
        refuse_for_text(config, paths)
        model: AnyModel | LanguageModel = models[0].build_as(LanguageModel, device)
    else:
        if config.source is not None and config.translation is None:
            raise ConfigError("--translation: not given, but --source is. Give both files, or neither")
        model = build_all(models, device)
    score = partial(score_pairs, model, models, config.decode, device)
    what = "line" if is_text else "pair"
    if config.source is not None:
        score_all(score, from_files(given, config), config, what=what, n_pairs=len(given[0]))
        return
    with open_input(None) as stream:
        if stream.isatty():
            LOGGER.info("type %s; Ctrl-D ends", "a line" if is_text else "a source, a tab and its translation")
        score_all(score, from_stream(stream, config, is_text=is_text), config, what=what)


def refuse_for_text(config: ScoreConfig, paths: Sequence[Path]) -> None:
    """Raises ConfigError for what a language model has no use for."""
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


def score_pairs(
    model: AnyModel | LanguageModel,
    files: Sequence[ModelFile],
    config: DecodeConfig,
    device: torch.device,
    pairs: Sequence[Pair],
    *,
    first_line: int,
    unknown: UnknownCounter | None = None,
) -> list[Scored]:
    """One for each of `pairs`; the first is that of `first_line`. Raises DataError for one that no model can read."""
    tokenizers = files[0].tokenizers
    sources = tokenizers.source.encode([pair.source for pair in pairs])
    targets = tokenizers.target.encode([pair.translation for pair in pairs])
    if unknown is not None:
        for line, (pair, source, target) in enumerate(zip(pairs, sources, targets, strict=True), start=first_line):
            of_source = unknown_characters(pair.source, source, tokenizers.source)
            unknown.add(line, of_source + unknown_characters(pair.translation, target, tokenizers.target))
    text = training_text(files)
    longest = [max(map(len, ids)) for ids in zip(sources, targets, strict=True)]
    for file in files:
        refuse_beyond_table(file, longest, first_line)
    if isinstance(model, LanguageModel):
        tell_longer(files[0], longest, first_line)
    elif too_long := [first_line + i for i, n in enumerate(longest) if n > text.longest_source(config)]:
        LOGGER.warning(
            "%s: longer than %s tokens, scored whole; `tfm translate` would split or cut a source like that",
            named(too_long),
            text.named_limit(config),
        )
    real = [i for i, n in enumerate(longest) if n]  # a blank line of a blank line never meets the model
    ids = [(sources[i], targets[i]) for i in real]
    read = force_decode(model, ids, tokenizers, device=device, batch_tokens=config.batch_tokens)
    scored = [Scored([], [])] * len(pairs)
    for i, back in zip(real, read, strict=True):
        scored[i] = Scored(tokenizers.target.pieces([*targets[i], tokenizers.target.eos_id]), back.log_probs)
    return scored


def refuse_beyond_table(file: ModelFile, longest: Sequence[int], first_line: int) -> None:
    if file.config.positions is not Positions.learned:
        return
    for i, n in enumerate(longest):
        if n + 1 > file.config.max_positions:
            raise DataError(
                f"line {first_line + i}: {n + 1:,} tokens with its end, but the model has model.max_positions="
                f"{file.config.max_positions}. Shorten the line, or leave it out"
            )


def tell_longer(file: ModelFile, lengths: Sequence[int], first_line: int) -> None:
    """Warn of text that a language model has not been trained for; it is read whole."""
    longest = file.data.get("max_length")
    if not isinstance(longest, int):
        return
    if too_long := [first_line + i for i, n in enumerate(lengths) if n + 1 > longest]:
        LOGGER.warning(
            "%s: longer than data.max_length=%d tokens, which the model was trained on; read whole",
            named(too_long),
            longest,
        )


def score_all(
    score: Callable[..., list[Scored]],
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
            scored = score(pairs, first_line=n_lines + 1, unknown=unknown)
            for line, one in enumerate(scored, start=n_lines + 1):
                record = one.record(line, config.decode)
                print(json.dumps(record, ensure_ascii=False) if config.json else f"{one.log_prob:.4f}")
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
