"""Plain text for a language model: each line is a sentence."""

from collections.abc import Iterator, Sequence

from transformer_cli.config.tasks import Task
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers.base import Pair, Reader


class Plain(Reader):
    """Lines, each of which is its own target."""

    def suits(self, task: Task) -> bool:
        return not task.has_source

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        [lines] = files
        return ((line, line) for _, line in lines.numbered())
