"""Tagger inference: the logits of each word of each sentence, however long it is.

Shapes: B batch, S source, T words of a sentence, C labels.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from transformer_cli.addons.embedding.encode import ask_each, longest_of
from transformer_cli.addons.tagging.tagger import Tagger, word_logits
from transformer_cli.addons.tagging.words import Window, WordEncoder, windows
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.data.unknown import UnknownCounter, unknown_characters
from transformer_cli.data.words import EncodedWords, in_a_row
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile

_Ids = Sequence[Sequence[int]]  # of each word of a sentence


def sentence_windows(words: _Ids, tokenizer: Tokenizer, *, max_length: int) -> list[tuple[Window, EncodedWords]]:
    """A sentence as the model reads it: whole, or in overlapping windows; a word longer than all is truncated."""
    room = max_length - len(tokenizer.end_ids)
    found = []
    for window in windows([len(ids) for ids in words], room):
        read = in_a_row([ids[:room] for ids in words[window.first : window.end]])
        found.append((window, EncodedWords([*read.ids, *tokenizer.end_ids], read.word_ends)))
    return found


def tag_words(
    ask: Callable[[Tensor], Tensor],
    sentences: Sequence[_Ids],
    tokenizer: Tokenizer,
    *,
    pooling: str,
    max_length: int,
    device: torch.device,
    batch_tokens: BatchTokens,
    between: Callable[[int], object] = lambda n_sentences: None,
) -> list[Tensor]:
    """Logits of the words of each sentence, [T, C], in float32 on the CPU; no sentence is empty.

    `ask` maps ids, [B, S], to logits, [B, S, C]. A sentence of more than `max_length` tokens is read in windows that
    overlap, and each word is labelled where it has the most context.
    """
    read = [sentence_windows(words, tokenizer, max_length=max_length) for words in sentences]
    parts = [part for sentence in read for part in sentence]
    answers = iter(
        ask_each(
            ask,
            [encoded.ids for _, encoded in parts],
            pad_id=tokenizer.pad_id,
            device=device,
            batch_tokens=batch_tokens,
            between=between,
        )
    )
    found: list[Tensor] = []
    for sentence in read:
        of_words = []
        for window, encoded in sentence:
            logits_TC = word_logits(next(answers), encoded.word_ends, pooling)
            of_words.append(logits_TC[window.labelled.start - window.first : window.labelled.stop - window.first])
        found.append(torch.cat(of_words))
    return found


class WordTagger:
    """A tagger of a model file.

    `n_split` counts the sentences so far that were read in windows, `n_truncated` the words that were longer than one.
    """

    def __init__(self, model: ModelFile, *, device: torch.device, batch_tokens: BatchTokens) -> None:
        self.model, self.device, self.batch_tokens = model.build_as(Tagger, device), device, batch_tokens
        self.tokenizer, self.labels = model.tokenizers.source, model.tokenizers.labels
        self.max_length = longest_of(model)
        self.encoder = WordEncoder(self.tokenizer)
        self.begin()

    def begin(self) -> None:
        """Count from 0."""
        self.n_split, self.n_truncated = 0, 0
        self.unknown = UnknownCounter()

    def tag(self, sentences: Sequence[Sequence[str]], *, first: int = 1) -> list[Tensor]:
        """Logits of the words of each sentence, [T, C]; [0, C] of none. The first is number `first` in messages."""
        ids = self.encoder.encode(sentences)
        room = self.max_length - len(self.tokenizer.end_ids)
        for number, (words, its_ids) in enumerate(zip(sentences, ids, strict=True), start=first):
            flat = [i for word in its_ids for i in word]
            self.n_split += len(words) > 1 and len(flat) > room
            self.n_truncated += sum(len(ids) > room for ids in its_ids)
            self.unknown.add(number, unknown_characters(" ".join(words), flat, self.tokenizer))
        real = [i for i, words in enumerate(sentences) if words]
        answers = tag_words(
            self.model,
            [ids[i] for i in real],
            self.tokenizer,
            pooling=self.model.pooling,
            max_length=self.max_length,
            device=self.device,
            batch_tokens=self.batch_tokens,
        )
        found = [torch.empty(0, len(self.labels))] * len(sentences)
        for i, logits_TC in zip(real, answers, strict=True):
            found[i] = logits_TC
        return found

    def warn_truncated(self, where: str = "") -> None:
        """One warning, if words were longer than the model reads."""
        if self.n_truncated:
            LOGGER.warning(
                "%swords of more than the model's %d tokens: %s, of which the beginning alone is read",
                *(where, self.max_length, f"{self.n_truncated:,}"),
            )

    def predicted(self, logits_TC: Tensor) -> list[str]:
        return [self.labels[i] for i in logits_TC.argmax(dim=-1).tolist()]
