"""Inference of an answer extractor: questions and passages of any length in, answers out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from transformer_cli.addons.embedding.encode import ask_each, longest_of
from transformer_cli.addons.question_answering.extractor import SpanExtractor
from transformer_cli.addons.question_answering.questions import ENDS_OR_NONE
from transformer_cli.addons.question_answering.spans import MAX_ANSWER, Prediction, predict
from transformer_cli.addons.question_answering.tokens import PassageEncoder, WindowSize, joined_ids, offset_of
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.data.unknown import UnknownCounter, unknown_characters
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.models.file import ModelFile

_QUESTIONS = 500  # whose logits are in memory at a time
Asked = tuple[str, str]  # question and passage, neither of which is blank


@dataclass(frozen=True)
class AnswerSearch:
    """Settings of the search for answers."""

    n_best: int = 1
    max_answer: int = MAX_ANSWER
    none_threshold: float = 0.0


DEFAULT_SEARCH = AnswerSearch()


class PassageReader:
    """Answers questions with a model that `ask` calls: from ids, [B, S], to logits, [B, S, 2].

    `n_split` counts the passages so far that were read in windows, and `n_cut` the questions that were too long.
    """

    def __init__(
        self,
        ask: Callable[[Tensor], Tensor],
        tokenizer: Tokenizer,
        size: WindowSize,
        *,
        may_find_none: bool,
        device: torch.device,
        batch_tokens: BatchTokens,
        search: AnswerSearch = DEFAULT_SEARCH,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self.ask, self.tokenizer, self.size, self.may_find_none = ask, tokenizer, size, may_find_none
        self.device, self.batch_tokens, self.search, self.between = device, batch_tokens, search, between
        self.encoder = PassageEncoder(tokenizer)
        self.begin()

    def begin(self) -> None:
        """Count from nothing."""
        self.n_split, self.n_cut, self.n_questions = 0, 0, 0
        self.unknown = UnknownCounter()

    def answers(self, asked: Sequence[Asked]) -> list[Prediction]:
        """The prediction for each question, in order."""
        rest, found = iter(asked), list[Prediction]()
        while part := list(islice(rest, _QUESTIONS)):
            found += self._answers(part)
        return found

    def _answers(self, asked: Sequence[Asked]) -> list[Prediction]:
        different = list(dict.fromkeys(passage for _, passage in asked))
        tokens_of = dict(zip(different, self.encoder.passages(different), strict=True))
        questions = self.encoder.questions([question for question, _ in asked])
        read, sentences = [], list[list[int]]()
        for (question, passage), ids in zip(asked, questions, strict=True):
            tokens, cut = tokens_of[passage], self.size.question(ids)
            windows = self.size.of(cut, len(tokens.ids))
            sentences += [joined_ids(self.tokenizer, cut, tokens.ids[w.start : w.stop]) for w in windows]
            read.append((passage, tokens, windows, offset_of(cut)))
            self.n_questions += 1
            self.n_split += len(windows) > 1
            self.n_cut += len(cut) < len(ids)
            text = f"{question} {passage}"
            self.unknown.add(self.n_questions, unknown_characters(text, [*ids, *tokens.ids], self.tokenizer))
        logits = iter(
            ask_each(
                self.ask,
                sentences,
                pad_id=self.tokenizer.pad_id,
                device=self.device,
                batch_tokens=self.batch_tokens,
                between=lambda n_sentences: self.between(),
            )
        )
        return [
            predict(
                passage,
                tokens,
                windows,
                [next(logits) for _ in windows],
                offset=offset,
                may_find_none=self.may_find_none,
                n_best=self.search.n_best,
                max_answer=self.search.max_answer,
                threshold=self.search.none_threshold,
            )
            for passage, tokens, windows, offset in read
        ]


def reading_of(
    model: ModelFile,
    *,
    device: torch.device,
    batch_tokens: BatchTokens,
    search: AnswerSearch = DEFAULT_SEARCH,
    stride: int | None = None,
) -> PassageReader:
    """The reading of a model file, with the windows that it was trained with unless `stride` is another."""
    options = model.data.get("options")
    stored = options.get("stride") if isinstance(options, dict) else None
    is_sound = isinstance(stored, int) and stored > 0
    size = WindowSize(max(longest_of(model), 8), stride or (stored if is_sound else None))
    return PassageReader(
        model.build_as(SpanExtractor, device),
        model.tokenizers.source,
        size,
        may_find_none=model.tokenizers.labels == ENDS_OR_NONE,
        device=device,
        batch_tokens=batch_tokens,
        search=search,
    )
