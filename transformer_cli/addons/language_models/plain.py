"""Plain text for a language model: each line is a sentence."""

from collections.abc import Iterator, Sequence

from transformer_cli.config.tasks import Task
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers.base import Corpus, Pair, Reader
from transformer_cli.data.readers.table_files import format_by_name
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import DataError


class Plain(Reader):
    """Lines, each of which is its own target."""

    def suits(self, task: Task) -> bool:
        return not task.has_source

    def group(self, names: object, *, key: str) -> list[Corpus]:
        """Raises DataError for a file whose lines are no text, by its name."""
        corpora = super().group(names, key=key)
        for file in (file for corpus in corpora for file in corpus.files):
            found = format_by_name(file.name)
            if found is not None and FORMATS[found].is_certain_by_name:
                raise DataError(
                    f"{file}: is {FORMATS[found].what}, and a language model trains on lines of text. Save its texts in"
                    " a file, one on each line"
                )
        return corpora

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        [lines] = files
        return ((line, line) for _, line in lines.numbered())
