"""Plain text for a language model: each line is a sentence."""

from collections.abc import Iterator, Sequence

from transformer_cli.config.tasks import TextKind
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers.base import READERS, Pair, Reader


@READERS.register("plain")
class Plain(Reader):
    texts = frozenset({TextKind.plain})

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        [lines] = files
        return ((line, line) for _, line in lines.numbered())
