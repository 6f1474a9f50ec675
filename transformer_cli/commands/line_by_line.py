"""What `tfm classify` and `tfm embed` have in common: lines in, an answer to each of them, in order."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from torch import Tensor
from tqdm import tqdm

from transformer_cli.commands.translate import check_input, check_output, decode_line, size_of_input
from transformer_cli.config.commands import ClassifyConfig, EmbedConfig, TranslateConfig
from transformer_cli.data.lines import ChunkSource, read_chunks, split_lines
from transformer_cli.data.unknown import UnknownCounter
from transformer_cli.decoding.terminal import converse
from transformer_cli.decoding.translator import named
from transformer_cli.errors import EnvironmentFault
from transformer_cli.files import Output
from transformer_cli.inference.encode import Reader
from transformer_cli.logs import LOGGER


@dataclass(frozen=True)
class Answer:
    """A line, its number from 1, and what a model says of it, [X]; of a blank line, nothing."""

    line: int
    text: str
    said_X: Tensor | None


class Asking:
    """Asks `reader` about lines, which it numbers, and counts what there is to tell of them in the end."""

    def __init__(self, reader: Reader, config: ClassifyConfig | EmbedConfig) -> None:
        self.reader, self.name = reader, config.input
        self.decode = partial(decode_line, config=TranslateConfig(input=config.input, strict=config.strict))
        self.n_bad = 0

    def ask(self, raw: bytes) -> list[Answer]:
        n_before = self.reader.n_lines
        lines = [self.decode(line, n_before + i) for i, line in enumerate(split_lines(raw))]
        self.n_bad += sum(was_bad for _, was_bad in lines)
        texts = [text for text, _ in lines]
        said = enumerate(zip(texts, self.reader.read(texts), strict=True), start=n_before + 1)
        return [Answer(line, text, said_X) for line, (text, said_X) in said]

    def chunks(self, source: ChunkSource, *, doing: str) -> Iterator[list[Answer]]:
        """The answers to what has arrived, before it waits for more; then what there is to tell."""
        size = size_of_input(self.name)
        quiet = True if self.name is None else None  # None: drawn on a terminal only
        with tqdm(total=size, unit="B", unit_scale=True, disable=quiet, desc=doing, file=sys.stderr) as bar:
            for raw in read_chunks(source, self.name or "standard input"):
                yield self.ask(raw)
                bar.update(len(raw))
        self.tell()

    def converse(self, answer: Callable[[list[Answer]], None], *, prompt: str) -> None:
        """With a person, who hears at once what is wrong."""

        def each(line: bytes) -> None:
            answer(self.ask(line + b"\n"))
            self.tell()
            self.n_bad, self.reader.cut, self.reader.unknown = 0, [], UnknownCounter()

        converse(each, prompt=prompt)

    def tell(self) -> None:
        if self.reader.cut:
            longest = self.reader.max_length
            LOGGER.warning(
                "%s: longer than the model's %d tokens; the rest is not read", named(self.reader.cut), longest
            )
        self.reader.unknown.warn()
        if self.n_bad:
            LOGGER.warning(
                "%d of %d lines were not UTF-8; their bad bytes became U+FFFD (--strict stops instead)",
                self.n_bad,
                self.reader.n_lines,
            )


def check_paths(config: ClassifyConfig | EmbedConfig, *, also: dict[str, str | None] | None = None) -> None:
    """Refuse what would fail after the model is loaded, or destroy a file; `also` names other files that are read."""
    inputs = {"--input": config.input, **(also or {})}
    for flag, name in inputs.items():
        if name is not None:
            check_input(name, flag)
    if config.output is not None:
        check_output(Path(config.output), "--output", inputs, overwrite=config.overwrite)


def write_lines(sink: BinaryIO | Output, lines: Sequence[str], name: str) -> None:
    """Raises EnvironmentFault where there is no room."""
    try:
        sink.write("".join(lines).encode())
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EnvironmentFault(f"{name}: {error.strerror}. Make room, or choose another place") from error
