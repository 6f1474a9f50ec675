"""The line filter of `tfm classify` and `tfm embed`: the encoder's output for each line, or its tokens.

Shapes: T tokens, X numbers of each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_cli.addons.embedding.encode import LineEncoder
from transformer_cli.addons.embedding.word_groups import word_groups, word_text
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.plan import named
from transformer_cli.logs import LOGGER
from transformer_cli.text_io import Line, LineFilter

TOKENS_AT_ONCE = 16_384  # whose vectors are computed before they are written: 32 MB in each layer of the base model


@dataclass(frozen=True)
class EncodedLine:
    """A line and what the model computes of it, [X], or of each of its `tokens`, [T, X]; None for a blank line."""

    line: Line
    output_X: Tensor | None
    tokens: Sequence[str] | None = None  # none of a blank line; None where lines are encoded


class EncoderFilter(LineFilter):
    """Encodes lines and passes each block of them to `write`."""

    progress = "embed"

    def __init__(
        self,
        reader: LineEncoder,
        write: Callable[[Sequence[EncodedLine]], None],
        path: str | None,
        *,
        strict: bool,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(path, strict=strict)
        self.reader, self.write, self._finish = reader, write, finish

    def respond(self, lines: Sequence[Line]) -> None:
        self.reader.n_lines = self.n_lines  # a line that Ctrl-C dropped does not count
        self.write(self.encoded(lines))

    def encoded(self, lines: Sequence[Line]) -> list[EncodedLine]:
        outputs = self.reader.read([line.text for line in lines])
        return [EncodedLine(line, output_X) for line, output_X in zip(lines, outputs, strict=True)]

    def process_typed(self, line: bytes) -> None:
        """Report on this line at once."""
        super().process_typed(line)
        self.report()
        self.n_invalid, self.reader.cut, self.reader.unknown = 0, [], UnknownCounter()

    def end(self) -> None:
        self._finish()
        super().end()

    def report(self) -> None:
        warn_of_texts(self.reader)
        super().report()


def warn_of_texts(reader: LineEncoder) -> None:
    """One warning of the lines that were cut, and one of characters that the vocabulary does not have."""
    if reader.cut:
        longest = reader.max_length
        LOGGER.warning("%s: longer than the model's %d tokens; the rest is not read", named(reader.cut), longest)
    reader.unknown.warn()


class TokenFilter(EncoderFilter):
    """Encodes lines and passes the vectors of their tokens to `write`."""

    of_words = False

    def respond(self, lines: Sequence[Line]) -> None:
        """Responds in parts, as the vectors of the tokens take a thousand times the memory of the text."""
        self.reader.n_lines = self.n_lines
        sentences = self.reader.encode([line.text for line in lines])
        start, n_tokens = 0, 0
        for end, ids in enumerate(sentences, start=1):
            n_tokens += len(ids)
            if n_tokens >= TOKENS_AT_ONCE or end == len(lines):
                self._respond(lines[start:end], sentences[start:end])
                start, n_tokens = end, 0

    def _respond(self, lines: Sequence[Line], sentences: Sequence[list[int]]) -> None:
        answers = iter(self.reader.answers([ids for ids in sentences if ids]))
        self.write(
            [
                self._encoded(line, ids, next(answers)) if ids else EncodedLine(line, None, [])
                for line, ids in zip(lines, sentences, strict=True)
            ]
        )

    def _encoded(self, line: Line, ids: Sequence[int], padded_TX: Tensor) -> EncodedLine:
        tokenizer, x_TX = self.reader.tokenizer, padded_TX[: len(ids)]
        pieces = tokenizer.pieces(ids)
        if not self.of_words:
            return EncodedLine(line, x_TX, pieces)
        words = [slice(group.start, group.stop) for group in word_groups(tokenizer, ids)]
        means_TX = torch.stack([x_TX[word].mean(dim=0) for word in words])
        return EncodedLine(line, means_TX, [word_text(tokenizer, pieces[word]) for word in words])


class WordFilter(TokenFilter):
    """The same with the mean of the tokens of each word."""

    of_words = True
