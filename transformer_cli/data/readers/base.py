"""The registry of corpus formats, and the base class of their readers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from transformer_cli.config.data import DataConfig
from transformer_cli.config.options import checked_options
from transformer_cli.config.tasks import Task, all_tasks
from transformer_cli.data.corpus_files import CorpusFile, find_file
from transformer_cli.data.lines import Lines
from transformer_cli.data.registry import READERS
from transformer_cli.errors import ConfigError

Split = Literal["train", "dev", "test"]
Pair = tuple[str, str]  # source and target


def _no_warnings(files: Sequence[Lines]) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Corpus:
    """Files that hold pairs together, and a function that reads the pairs from the lines of these files.

    A split has one or more; `data.weights` has a value for each. `pairs` is called several times.
    """

    files: tuple[CorpusFile, ...]
    pairs: Callable[[Sequence[Lines]], Iterator[Pair]]
    warnings: Callable[[Sequence[Lines]], Iterable[str]] = _no_warnings  # logged once, after the pairs were read
    name: str = ""  # for scores of its own; empty: by its files
    facts: Mapping[str, Any] = field(default_factory=dict)  # where it is from, for model cards


class Reader:
    """A corpus format. A subclass is registered in READERS under the name that `data.reader` selects.

    Most formats only define `pairs`: from the lines of one file of `data.train`, `data.dev` or `data.test` to pairs of
    source and target. With data.task=classification a pair is text and label, with token_classification the words and
    their labels with a tab between two, with language_model it is the same text twice. `pairs` must be a pure
    function of its files and of the config: it is called for every pass over the text. Files come decompressed and
    decoded (UTF-8), from archives, too; memory is bounded as long as `pairs` is a generator over `Lines.numbered()`. A
    line that holds no pair is passed to `Lines.reject`, which follows `data.on_bad`.

    A format whose corpora have several files overrides `group`.

    The cache of the prepared corpus is rebuilt when the bytes of a file in `corpora`, `data.options` or `version`
    change; of a format without files, when its text changes.
    """

    version: ClassVar[int] = 1  # to be raised when the same files would give other pairs

    def __init__(self, config: DataConfig) -> None:
        """Raises ConfigError if the config has options that the format does not have, or another task."""
        self.config = config
        self.options = checked_options(READERS, reader_name(config), config.options)
        name = f"data.reader={config.reader}" if config.reader else f"data={config.name}"
        if not self.suits(config.trained):
            tasks = " and ".join(task.name for task in all_tasks() if self.suits(task))
            raise ConfigError(f"data.task={config.task}: {name} is for {tasks}. Choose another reader")

    def suits(self, task: Task) -> bool:
        """Whether files of the format may hold what the task trains on."""
        return True

    def check(self) -> None:
        """Raise ConfigError for settings without effect. Files are there already."""
        if self.config.columns:
            raise ConfigError(
                f"data.columns={self.config.columns}: data.reader={self.config.reader} has none. Leave it out"
            )

    def corpora(self, split: Split) -> list[Corpus] | None:
        """The corpora of a split; None if the config names none. Raises DataError, ConfigError."""
        names = getattr(self.config, split)
        return None if names is None else self.group(names, key=f"data.{split}")

    def group(self, names: object, *, key: str) -> list[Corpus]:
        """The corpora among the files that the config names at `key`: by default, each file is one."""
        files = [find_file(name, self.config, key=key) for name in file_names(names, key=key, task=self.config.trained)]
        return [Corpus((file,), self.pairs, self.warnings) for file in files]

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        """The pairs of one corpus. Raises DataError."""
        raise NotImplementedError

    def warnings(self, files: Sequence[Lines]) -> Iterable[str]:
        """Warnings of probable faults in a corpus that could be read."""
        return ()


def reader_name(config: DataConfig) -> str:
    """The entry that the config names, or else the one for generated corpora, for named ones or for text files.

    Raises ConfigError for named corpora with another reader.
    """
    if config.mtdata and (config.builtin is not None or config.reader not in (None, "mtdata")):
        other = f"data={config.name} is built in" if config.builtin is not None else f"data.reader={config.reader}"
        remedy = "Add data=files" if config.builtin is not None else "Leave one of them out"
        raise ConfigError(f"data.mtdata={config.mtdata}: {other}, and reads no named corpora. {remedy}")
    return config.reader or ("builtin" if config.builtin is not None else "mtdata" if config.mtdata else "files")


def no_names(key: str, task: Task) -> ConfigError:
    return ConfigError(f"{key}: not set. Name {task.files}")


def file_names(names: object, *, key: str, task: Task) -> list[str]:
    """One name, or a list of them. Raises ConfigError for anything else."""
    found = [names] if isinstance(names, str) else names
    if isinstance(found, list | tuple) and found and all(isinstance(name, str) and name for name in found):
        return list(found)
    example = f"two, as in {key}=[corpus.en,corpus.de]" if task.translates else task.files
    raise ConfigError(f"{key}={names}: names no files. Name {example}")
