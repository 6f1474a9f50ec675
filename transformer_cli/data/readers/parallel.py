"""Two files per corpus: line i of one is the translation of line i of the other."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from transformer_cli.config.data import DataConfig
from transformer_cli.config.tags import languages_of
from transformer_cli.config.tasks import Task
from transformer_cli.data.column_names import is_header
from transformer_cli.data.corpus_files import CorpusFile, exists, find_file
from transformer_cli.data.formats.base import HEAD_BYTES
from transformer_cli.data.formats.csv import delimiter_of
from transformer_cli.data.lines import FIRST_LINES, Lines, no_corpus, shown
from transformer_cli.data.readers.base import Corpus, Pair, Reader, file_names
from transformer_cli.data.readers.table_files import has_tabs
from transformer_cli.data.registry import READERS
from transformer_cli.errors import ConfigError, DataError, quoted

_NOT_LANGUAGES = (".gz", ".sgm", ".xml", ".txt")  # endings that follow the language in file names


@READERS.register("parallel")
class Parallel(Reader):
    """A list of files, source and target in turn, or a prefix to which the languages are added."""

    def suits(self, task: Task) -> bool:
        return task.translates

    def group(self, names: object, *, key: str) -> list[Corpus]:
        if isinstance(names, str):
            names = files_of_prefix(names, self.config, key=key)
        rest = iter(file_names(names, key=key, task=self.config.trained))
        return [self.corpus(name, next(rest, None), key=key) for name in rest]

    def corpus(self, name: str, other: str | None, *, key: str) -> Corpus:
        """The corpus of two files, which are called `name` and `other`."""
        if other is None:
            raise ConfigError(f"{key}: {name} has no file of translations after it. Name files in pairs, source first")
        files = find_file(name, self.config, key=key), find_file(other, self.config, key=key)
        files = files[::-1] if self.config.is_swapped else files
        _refuse_other_direction(files, self.config, key=key)
        return Corpus(files, self.pairs, self.warnings)

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        sources, targets = files
        for lines in files:
            _refuse_comma_table(lines)
        if len(sources) != len(targets):
            raise DataError(
                f"{targets.name}: has {len(targets):,} lines, {sources.name} {len(sources):,}."
                " Make line i of one the translation of line i of the other"
            )
        bad = sources.bad.keys() | targets.bad.keys()
        pairs = zip(sources.each(), targets.each(), strict=True)
        yield from (pair for index, pair in enumerate(pairs) if index not in bad) if bad else pairs

    def warnings(self, files: Sequence[Lines]) -> Iterator[str]:
        sources, targets = files
        if sources.name == targets.name:
            yield f"{sources.name}: is both source and target; a model of it learns to copy"
        elif has_tabs(sources) and has_tabs(targets):
            names = f"{sources.name} and {targets.name}"
            yield f"{names}: both have tabs in their first lines. If they are tables, call them .tsv"
        first = [next(lines.each(), "") for lines in files]
        if is_header(first[0], first[1], self.config.source_lang, self.config.target_lang):
            says = " and ".join(map(quoted, first))
            yield f"{sources.name} and {targets.name}: begin with {says}. If these are headers, remove both lines"


def _refuse_comma_table(lines: Lines) -> None:
    """Raise DataError for a .csv whose rows have columns: each would be a sentence of one side."""
    if not lines.name.lower().removesuffix(".gz").endswith(".csv"):
        return
    if (delimiter := delimiter_of(list(islice(lines.each(), FIRST_LINES)))) is not None:
        what = {",": "commas", ";": "semicolons"}[delimiter]
        raise DataError(
            f"{lines.name}: is a table with {what} between its columns, but named as the text of one side, a sentence a"
            " line. Leave out data.reader and the name of the other side"
        )


def files_of_prefix(prefix: str, config: DataConfig, *, key: str) -> list[str]:
    """`prefix` with each of the two languages. Raises ConfigError and DataError if there are no such files."""
    names = [f"{prefix}.{language}" for language in config.languages or (config.source_lang, config.target_lang)]
    if not exists(names[0], config):
        how = f"Name two files, as in {key}=[corpus.en,corpus.de], or a table of source<TAB>target lines"
        if exists(prefix, config):
            if fault := no_corpus(find_file(prefix, config, key=key).head(HEAD_BYTES)):
                raise DataError(f"{key}={shown(prefix)}: {fault}")
            raise ConfigError(f"{key}={shown(prefix)}: one file, without tabs in its first lines. {how}")
        if config.root is None and not config.downloads:
            if prefix and Path(prefix).exists():
                raise DataError(f"{key}={shown(prefix)}: is not a regular file. Name a file, or save its text in one")
            raise DataError(f"{key}={shown(prefix)}: no such file, and no {shown(names[0])} either. {how}")
    return names


def _refuse_other_direction(files: tuple[CorpusFile, CorpusFile], config: DataConfig, *, key: str) -> None:
    """Raise ConfigError if the file names end with the languages of the other side."""
    declared = [set(languages_of(side.lower())) for side in (config.source_lang, config.target_lang)]
    endings = [file_language(file.name) for file in files]
    if endings[0] == endings[1]:
        return
    if endings[1] in declared[0] - declared[1] or endings[0] in declared[1] - declared[0]:
        names = " and ".join(quoted(file.name) for file in files)
        raise ConfigError(
            f"{key}: {names} are named as the other sides of data.source_lang={config.source_lang}"
            f" data.target_lang={config.target_lang}. Name the file of {config.source_lang} first, or exchange the two"
            " keys"
        )


def file_language(name: str) -> str:
    """The ending of a file's name, as `de` of news.de.gz, which need not be a language."""
    name = name.lower()
    while name.endswith(_NOT_LANGUAGES):
        name = name.rpartition(".")[0]
    return name.rpartition(".")[2]
