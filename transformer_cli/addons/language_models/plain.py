"""Text for a language model: each line is a sentence, or each row of a table has one."""

from collections.abc import Iterator, Sequence

from transformer_cli.config.tasks import Task
from transformer_cli.data.corpus_files import CorpusFile, find_file
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers.base import Corpus, Pair, Reader, file_names
from transformer_cli.data.readers.columns import Columns
from transformer_cli.data.readers.containers import shards_of
from transformer_cli.data.readers.table_files import format_by_name, table_files
from transformer_cli.data.registry import FORMATS


class Plain(Reader):
    """Lines, or texts in a column of a table, each of which is its own target."""

    def suits(self, task: Task) -> bool:
        return not task.has_source

    def group(self, names: object, *, key: str) -> list[Corpus]:
        return [self._corpus(name, key=key) for name in file_names(names, key=key, task=self.config.trained)]

    def _corpus(self, name: str, *, key: str) -> Corpus:
        if files := self._table(name, key=key):
            tables = Columns(self.config)
            return Corpus(files, tables.pairs, tables.warnings)
        return Corpus((find_file(name, self.config, key=key),), self.pairs, self.warnings)

    def _table(self, name: str, *, key: str) -> tuple[CorpusFile, ...] | None:
        """The files of a table; None for lines of text, as which a CSV or TSV is read unless data.columns is set."""
        named = format_by_name(name)
        if self.config.columns or (named is not None and FORMATS[named].is_certain_by_name):
            found = table_files(name, self.config, key=key, is_alone=False)
            if found is not None:
                return found
        return shards_of(name, self.config, key=key)

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        [lines] = files
        return ((line, line) for _, line in lines.numbered())
