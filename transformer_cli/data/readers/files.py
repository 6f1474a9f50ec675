"""The default: the format follows from the task, and for translation from what the named files are."""

from collections.abc import Iterator, Sequence

from transformer_cli.config.data import DataConfig
from transformer_cli.config.key_help import shown_value
from transformer_cli.config.tasks import Task
from transformer_cli.data.corpus_files import CorpusFile
from transformer_cli.data.lines import Lines
from transformer_cli.data.named_sets import set_files
from transformer_cli.data.readers.base import Corpus, Reader, Split, file_names
from transformer_cli.data.readers.columns import Columns
from transformer_cli.data.readers.containers import members_of, shards_of
from transformer_cli.data.readers.parallel import Parallel, files_of_prefix
from transformer_cli.data.readers.table_files import is_tsv, table_files
from transformer_cli.data.registry import READERS
from transformer_cli.errors import ConfigError

SPLITS: tuple[Split, ...] = ("train", "dev", "test")
NAMED = "sacrebleu:"  # begins the name of a test set that sacrebleu has


@READERS.register("files")
class Files(Reader):
    """Translation: pairs of files, a prefix, tables and other files of pairs, or several in one list.

    `sacrebleu:NAME` is a test set of sacrebleu, in the direction of the corpus; `sacrebleu:NAME:en-de` in another.
    """

    def __init__(self, config: DataConfig) -> None:
        super().__init__(config)

    def check(self) -> None:
        """Raise ConfigError for a key of tables if no split names one."""
        config = self.config
        keys = {"columns": config.columns, "quoted": config.quoted, "header": config.header}
        given = [f"data.{name}={shown_value(value)}" for name, value in keys.items() if value not in (None, [])]
        if not given:
            return
        has_no_rows = config.trained.has_words or not (config.trained.has_source or config.columns)
        is_text = has_no_rows and given[-1].partition("=")[0] != "data.columns"
        corpora = (corpus for split in SPLITS for corpus in self.corpora(split) or ())
        if is_text or not any(_is_table(corpus.files, config.trained) for corpus in corpora):
            raise ConfigError(f"{given[-1]}: no table is named, but other files. Leave it out")

    def group(self, names: object, *, key: str) -> list[Corpus]:
        config = self.config
        if config.trained.reader != "files":
            of_task: list[Corpus] = READERS[config.trained.reader](config).group(names, key=key)
            return of_task
        listed = [names] if isinstance(names, str) else file_names(names, key=key, task=config.trained)
        found = [file for name in listed for file in members_of(name, config, key=key) or [name]]
        tables, parallel = Columns(config), Parallel(config)

        def table_of(name: str) -> tuple[CorpusFile, ...] | None:
            found_in = table_files(name, config, key=key, is_alone=len(found) == 1)
            return found_in or shards_of(name, config, key=key)

        if isinstance(names, str) and found == [names] and not names.startswith(NAMED) and table_of(names) is None:
            found = files_of_prefix(names, config, key=key)

        corpora: list[Corpus] = []
        rest = iter(found)
        for name in rest:
            if name.startswith(NAMED):
                corpora.append(_named_corpus(name, parallel, key=key))
            elif files := table_of(name):
                corpora.append(Corpus(files, tables.pairs, tables.warnings))
            else:
                other = next(rest, None)
                is_corpus = other is not None and (other.startswith(NAMED) or table_of(other) is not None)
                corpora.append(parallel.corpus(name, None if is_corpus else other, key=key))
        return corpora


def _is_table(files: Sequence[CorpusFile], task: Task) -> bool:
    if task.translates:
        return len(files) != 2 or files[0].format is not None
    return task.has_source or files[0].format is not None or is_tsv(files[0].name)


def _named_corpus(name: str, parallel: Parallel, *, key: str) -> Corpus:
    """A set that sacrebleu has. A pair has one translation, so of several references it is the first."""
    set_name, _, languages = name.removeprefix(NAMED).partition(":")
    config = parallel.config
    languages = languages or f"{config.source_lang}-{config.target_lang}"
    named = set_files(set_name, languages, asked_by=f"{key}={name}", instead=f"name files in {key}")

    def warnings(files: Sequence[Lines]) -> Iterator[str]:
        yield from parallel.warnings(files)
        if (n := len(named.references)) > 1:
            yield (
                f"{key}={name}: has {n} references, of which the first is used. `tfm evaluate --test-set {set_name}`"
                " uses all"
            )

    files = (CorpusFile(named.source), CorpusFile(named.references[0]))
    return Corpus(files, parallel.pairs, warnings, set_name)
