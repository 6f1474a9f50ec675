"""The line filter of `tfm classify` and `tfm embed`: the encoder's output for each line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.plan import named
from transformer_cli.inference.encode import Reader
from transformer_cli.logs import LOGGER
from transformer_cli.text_io import Line, LineFilter


@dataclass(frozen=True)
class Encoded:
    """A line and what the model computes of it, [X]; None for a blank line."""

    line: Line
    output_X: Tensor | None


class EncoderFilter(LineFilter):
    """Encodes lines and passes each block of them to `write`."""

    described = "a line"  # what is typed at a terminal

    def __init__(
        self, reader: Reader, write: Callable[[Sequence[Encoded]], None], path: str | None, *, strict: bool
    ) -> None:
        super().__init__(path, strict=strict)
        self.reader, self.write = reader, write

    def respond(self, lines: Sequence[Line]) -> None:
        self.reader.n_lines = self.n_lines  # a line that Ctrl-C dropped does not count
        outputs = self.reader.read([line.text for line in lines])
        self.write([Encoded(line, output_X) for line, output_X in zip(lines, outputs, strict=True)])

    def process_typed(self, line: bytes) -> None:
        """Report on this line at once."""
        super().process_typed(line)
        self.report()
        self.n_invalid, self.reader.cut, self.reader.unknown = 0, [], UnknownCounter()

    def report(self) -> None:
        if self.reader.cut:
            longest = self.reader.max_length
            LOGGER.warning(
                "%s: longer than the model's %d tokens; the rest is not read", named(self.reader.cut), longest
            )
        self.reader.unknown.warn()
        super().report()
