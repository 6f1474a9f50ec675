"""Questions as training examples: each window of the passage, with the first and the last token of the answer in it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from tqdm import tqdm

from transformer_cli.addons.question_answering.questions import Question
from transformer_cli.addons.question_answering.tokens import (
    PassageEncoder,
    PassageTokens,
    WindowSize,
    joined_ids,
    offset_of,
)
from transformer_cli.config.data import DataConfig
from transformer_cli.data.cache import Array
from transformer_cli.data.clean import CleaningReport, CleanText
from transformer_cli.data.encoding import Encoded
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import ConfigError
from transformer_cli.logs import LOGGER

_QUESTIONS = 2_000  # that are encoded at a time
NOWHERE = (0, 0)  # the ends of no answer, both at BOS


@dataclass(frozen=True)
class Example:
    """The ids of question and window, and the positions of the ends of the answer in them."""

    ids: list[int]
    ends: tuple[int, int]


def window_size(config: DataConfig) -> WindowSize:
    return WindowSize(config.max_length, config.options.get("stride"))


def refuse_unfit(config: DataConfig) -> None:
    """Raise ConfigError for what spans do not have."""
    for setting, is_set, why in (
        (f"data.subword_dropout={config.subword_dropout:g}", config.subword_dropout, "moves the tokens of answers"),
        (f"data.weights={config.weights}", config.weights, "is not for questions, of which some are several windows"),
        (f"data.temperature={config.temperature:g}", config.temperature != 1, "is not for questions"),
    ):
        if is_set:
            raise ConfigError(f"{setting}: {why} (data.task={config.task}). Leave it out")
    if config.max_length < 8:
        raise ConfigError(f"data.max_length={config.max_length}: too short for a question and a passage. Raise it")


def examples(
    question: Question,
    ids: Sequence[int],
    tokens: PassageTokens,
    size: WindowSize,
    encoder: PassageEncoder,
    ends: Any = None,
) -> list[Example]:
    """The windows of a question; `ends` take the place of those of an answer that is nowhere."""
    cut = size.question(ids)
    span = next((tokens.span(a.start, a.start + len(a.text)) for a in question.placed), None)
    found = []
    for window in size.of(cut, len(tokens.ids)):
        its_ids = joined_ids(encoder.tokenizer, cut, tokens.ids[window.start : window.stop])
        its_ends = NOWHERE
        if span is not None and window.start <= span[0] and span[1] < window.stop:
            moved = offset_of(cut) - window.start
            its_ends = (span[0] + moved, span[1] + moved)
        found.append(Example(its_ids, its_ends if ends is None else ends))
    return found


def encoded_spans(
    text: CleanText,
    tokenizers: Tokenizers,
    labels: Sequence[str],
    config: DataConfig,
    report: CleaningReport,
    *,
    progress: bool,
    kept: list[Array],
) -> Iterator[tuple[Encoded, Encoded]]:
    """Chunks of all windows, with their targets. `kept` gets a mask of the questions of each chunk: none is dropped."""
    refuse_unfit(config)
    off = None if progress else True
    encoder, size = PassageEncoder(tokenizers.source, as_written=True), window_size(config)
    n_questions, n_cut, n_windows, n_long = 0, 0, 0, 0
    rest = text.each()
    with tqdm(total=len(text), desc="encoding", unit=" questions", unit_scale=True, disable=off) as bar:
        while chunk := [Question.of(*pair) for pair in islice(rest, _QUESTIONS)]:
            asked = encoder.questions([one.question for one in chunk])
            passages = encoder.passages([one.passage for one in chunk])
            found: list[Example] = []
            for one, ids, tokens in zip(chunk, asked, passages, strict=True):
                its = examples(one, ids, tokens, size, encoder)
                n_cut += len(size.question(ids)) < len(ids)
                n_long += len(its) > 1
                found += its
            n_questions, n_windows = n_questions + len(chunk), n_windows + len(found)
            report.max_length = config.max_length
            kept.append(np.ones(len(chunk), np.bool_))
            yield Encoded.of_sentences([e.ids for e in found]), Encoded.of_sentences([e.ends for e in found])
            bar.update(len(chunk))
    if n_long:
        LOGGER.info(
            "data.train: %s of %s passages are longer than data.max_length=%d, %s windows in all",
            *(f"{n_long:,}", f"{n_questions:,}", config.max_length, f"{n_windows:,}"),
        )
    if n_cut:
        LOGGER.warning("data.train: %s questions are longer than half of a window, and are cut", f"{n_cut:,}")
