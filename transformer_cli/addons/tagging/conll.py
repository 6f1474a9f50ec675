"""CoNLL columns: a word and its label a line, and a blank line between two sentences."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_cli.addons.tagging.words import join_words
from transformer_cli.config.tasks import Task
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers.base import Pair, Reader
from transformer_cli.errors import quoted

CONLLU = ".conllu"  # the ending of files of Universal Dependencies, which also have comments and rows of no word
CONLLU_COLUMNS = (1, 3)  # FORM and UPOS
DOCUMENT_START = "-DOCSTART-"
_SPACES = re.compile(" +")
_NOT_A_WORD = re.compile(r"\d+[-.]\d+")  # IDs of multiword tokens (1-2) and of empty nodes (1.1)
_CORRECT = "Correct the line, or drop such sentences with data.on_bad=skip"


@dataclass(frozen=True)
class Dialect:
    """How the rows of a file are read; `columns` are those of word and label, from 0."""

    is_conllu: bool = False
    columns: tuple[int, int] | None = None  # None: the first and the last

    @classmethod
    def of(cls, columns: Sequence[int], *, is_conllu: bool) -> "Dialect":
        """The dialect that a config selects, else the usual one."""
        chosen = (columns[0], columns[1]) if columns else CONLLU_COLUMNS if is_conllu else None
        return cls(is_conllu, chosen)

    def is_word(self, line: str) -> bool:
        """Whether a line is a row of a word: not blank, and no comment."""
        if not line.strip() or line.startswith(DOCUMENT_START):
            return False
        return not self.is_conllu or not (line.startswith("#") or _NOT_A_WORD.fullmatch(line.partition("\t")[0]))

    def ends_sentence(self, line: str) -> bool:
        return not line.strip() or line.startswith(DOCUMENT_START)


def is_conllu(name: str) -> bool:
    """Whether a file is CoNLL-U, by its name."""
    return name.lower().removesuffix(".gz").endswith(CONLLU)


def trained_columns(data: Mapping[str, Any], *, is_conllu_wanted: bool) -> list[int]:
    """`data.columns` of a model file for files of one kind; none where its training text has no such file.

    Columns of CoNLL-U count its IDs, so they are not those of the same text in other files, nor the reverse.
    """
    columns, train = data.get("columns"), data.get("train")
    names = [name for name in (train if isinstance(train, list) else [train]) if isinstance(name, str)]
    if not isinstance(columns, list) or all(is_conllu(name) != is_conllu_wanted for name in names):
        return []
    is_sound = len(columns) == 2 and all(isinstance(n, int) and n >= 0 for n in columns)
    return columns if is_sound else []


def columns_of(line: str) -> list[str]:
    """What tabs divide, or spaces in a line without tabs: a word of a table with tabs may have spaces in it."""
    return line.split("\t") if "\t" in line else _SPACES.split(line.strip(" "))


class Conll(Reader):
    """Sentences of words with labels. Rows are divided by tabs or spaces."""

    def suits(self, task: Task) -> bool:
        return task.has_words

    def check(self) -> None:
        """Columns may be selected."""

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        [lines] = files
        dialect = Dialect.of([*map(int, self.config.columns)], is_conllu=is_conllu(lines.name))
        words: list[str] = []
        labels: list[str] = []
        is_sound, n_columns = True, 0

        for index, line in enumerate(lines.each()):
            if index in lines.bad:  # which is an empty text here, and ends no sentence
                is_sound = False
            elif dialect.ends_sentence(line):
                if words and is_sound:
                    yield join_words(words), join_words(labels)
                words, labels, is_sound = [], [], True
            elif dialect.is_word(line) and is_sound:
                fields = columns_of(line)
                n_columns = n_columns or len(fields)
                row = _word_and_label(fields, dialect, n_columns)
                if isinstance(row, str):
                    lines.reject(index, f"{row}: {quoted(line)}", _CORRECT)
                    is_sound = False
                else:
                    words.append(row[0])
                    labels.append(row[1])
        if words and is_sound:
            yield join_words(words), join_words(labels)


def _word_and_label(fields: Sequence[str], dialect: Dialect, n_columns: int) -> Pair | str:
    """The word and the label of a row, or its fault; `n_columns` is the number of columns of the first row."""
    if dialect.columns is None:
        if len(fields) < 2:
            return "one column, where a word and its label are needed"
        if len(fields) != n_columns:  # the last column would be another
            return f"{len(fields)} columns, and the first row has {n_columns}"
    word_at, label_at = dialect.columns or (0, len(fields) - 1)
    if len(fields) <= max(word_at, label_at):
        return f"too few columns for data.columns=[{word_at},{label_at}], counted from 0"
    word, label = fields[word_at].strip(" "), fields[label_at].strip(" ")
    if not word:
        return f"no word in column {word_at}, counted from 0"
    if not label or len(label.split()) != 1:
        return f"{'no' if not label else 'white space in the'} label in column {label_at}, counted from 0"
    return word, label
