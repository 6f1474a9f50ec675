"""Plain text for a language model: each line is a sentence."""

from collections.abc import Iterator, Sequence

from transformer_cli.config.data import Task
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers.base import READERS, Pair, Reader


@READERS.register("plain")
class Plain(Reader):
    tasks = frozenset({Task.language_model})

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        [lines] = files
        return ((line, line) for _, line in lines.numbered())
