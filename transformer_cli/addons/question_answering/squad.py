"""SQuAD's JSON, of version 1.1 (Rajpurkar et al. 2016) and 2.0 (2018), as a file format and as a corpus format."""

import codecs
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_cli.addons.question_answering.questions import GoldAnswer, Question, as_line
from transformer_cli.config.data import DataConfig
from transformer_cli.config.fields import key
from transformer_cli.config.tasks import Task
from transformer_cli.data.corpus_files import CorpusFile, find_file
from transformer_cli.data.formats.base import Contents, Fault, FileFormat, SourceFile, Table
from transformer_cli.data.lines import NO_SURROGATES, Lines, is_encodable
from transformer_cli.data.readers.base import Corpus, Pair, Reader, file_names
from transformer_cli.errors import DataError, quoted

_COLUMNS = ("question", "context", "answers")
_REMEDY = "Correct the file, or drop such questions with data.on_bad=skip"
_FORM = 'Name a file of SQuAD\'s form: {"data": [{"paragraphs": [{"context": …, "qas": […]}]}]}'


@dataclass
class SquadOptions:
    """Settings of `data.reader=squad`."""

    stride: int | None = key(
        None,
        "Tokens of a passage from the beginning of one window to that of the next; unset: half of what a window holds.",
        low=1,
    )


class SquadFormat(FileFormat):
    """A row has a question, its passage and the JSON of its answers; it is known by its content alone."""

    what = "a set of questions with passages (SQuAD's JSON)"
    endings = ()
    data = "questions"

    def recognises(self, head: bytes) -> bool:
        return head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"{" and b'"paragraphs"' in head and b'"data"' in head

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        return Table(_COLUMNS, _rows(file))

    def contents(self, file: SourceFile) -> Contents:
        found, n_texts, n_unanswerable = Contents(), 0, 0
        for row in _rows(file):
            if isinstance(row, Fault):
                found.add_fault(row)
                continue
            found.n_rows += 1
            has_answer = row[2] != "[]"
            n_texts, n_unanswerable = n_texts + has_answer, n_unanswerable + (not has_answer)
            found.add_sample(row)
        found.columns = {"question": found.n_rows, "context": found.n_rows, "answers": n_texts}
        if n_unanswerable:
            found.notes.append(f"questions without an answer: {n_unanswerable:,}")
        return found


class Squad(Reader):
    """Questions of SQuAD's files. One is not trained on where no answer stands at its `answer_start`."""

    def suits(self, task: Task) -> bool:
        return task.has_spans

    def group(self, names: object, *, key: str) -> list[Corpus]:
        is_train = key == "data.train"
        files = [find_file(name, self.config, key=key) for name in file_names(names, key=key, task=self.config.trained)]
        return [
            Corpus(
                (CorpusFile(file.path, file.member, "squad"),),
                self.training_pairs if is_train else self.pairs,
                self.training_warnings if is_train else self.warnings,
            )
            for file in files
        ]

    def pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        """Every question: answers are scored by their texts alone."""
        return ((one.source, one.target) for one in _questions(files))

    def training_pairs(self, files: Sequence[Lines]) -> Iterator[Pair]:
        return ((one.source, one.target) for one in _questions(files) if one.placed or not one.answers)

    def warnings(self, files: Sequence[Lines]) -> Iterator[str]:
        return self._misplaced(files, "They are scored by their text, and left out of the nll")

    def training_warnings(self, files: Sequence[Lines]) -> Iterator[str]:
        return self._misplaced(files, "They are not trained on")

    def _misplaced(self, files: Sequence[Lines], effect: str) -> Iterator[str]:
        """One sentence for the answers that do not stand where they are said to."""
        n_answers, n_utf16, wrong, first = 0, 0, 0, ""
        for one in _questions(files):
            for answer in one.answers:
                n_answers += 1
                if not answer.is_placed(one.passage):
                    wrong += 1
                    n_utf16 += answer.is_placed_in_utf16(one.passage)
                    where = f"{quoted(answer.text, 40)} at {answer.start} of the passage of {quoted(one.question, 60)}"
                    first = first or where
        if wrong:
            units = f"; {n_utf16:,} are right in UTF-16 code units, and code points are needed" if n_utf16 else ""
            yield (
                f"{files[0].name}: {wrong:,} of {n_answers:,} answers do not stand at their answer_start, the first is"
                f" {first}{units}. {effect}"
            )


def _questions(files: Sequence[Lines]) -> Iterator[Question]:
    [lines] = files
    for index, line in lines.numbered():
        question, passage, target = line.split("\t")
        if not question.strip() or not passage.strip():
            what = "question" if not question.strip() else "passage"
            other = f"the question {quoted(question, 60)}" if question.strip() else f"the passage {quoted(passage, 60)}"
            lines.reject(index, f"the {what} of {other} is blank", _REMEDY)
            continue
        yield Question.of(f"{question}\t{passage}", target)


def _rows(file: SourceFile) -> Iterator[Sequence[str] | Fault]:
    """A row of each question. Raises DataError for what is not SQuAD's JSON at all."""
    articles = _items(_read(file), "data")
    if articles is None:
        raise DataError(f"{file.name}: no list `data`. {_FORM}")
    n = 0
    for number, article in enumerate(articles, 1):
        paragraphs = _items(article, "paragraphs")
        if paragraphs is None:
            yield Fault(f"data[{number - 1}]", "no list `paragraphs`", _REMEDY)
            continue
        for index, paragraph in enumerate(paragraphs):
            place = f"data[{number - 1}].paragraphs[{index}]"
            questions, context = _items(paragraph, "qas"), _text(paragraph, "context")
            if questions is None or context is None:
                yield Fault(place, "no text `context`" if context is None else "no list `qas`", _REMEDY)
                continue
            for at, one in enumerate(questions):
                n += 1
                row = _row(one, context)
                yield Fault(f"{place}.qas[{at}]", row, _REMEDY) if isinstance(row, str) else row
    if not n:
        raise DataError(f"{file.name}: holds no question. {_FORM}")


def _row(one: Any, context: str) -> Sequence[str] | str:
    """The row of a question, or its fault."""
    question = _text(one, "question")
    if question is None:
        return "no text `question`"
    listed = [] if one.get("is_impossible") is True else _items(one, "answers")
    if listed is None:
        return "no list `answers`"
    answers = []
    for answer in listed:
        text, start = _text(answer, "text"), answer.get("answer_start") if isinstance(answer, dict) else None
        if text is None or not isinstance(start, int) or isinstance(start, bool):
            return "an answer without a text `text` and a whole number `answer_start`"
        answers.append(GoldAnswer(start, text))
    texts = [question, context, *(answer.text for answer in answers)]
    if not all(map(is_encodable, texts)):
        return NO_SURROGATES
    return [as_line(question), as_line(context), Question(question, context, answers).target]


def _items(one: Any, name: str) -> list[Any] | None:
    found = one.get(name) if isinstance(one, dict) else None
    return found if isinstance(found, list) else None


def _text(one: Any, name: str) -> str | None:
    found = one.get(name) if isinstance(one, dict) else None
    return found if isinstance(found, str) else None


def _read(file: SourceFile) -> Any:
    with file.open() as stream:
        parts = []
        while part := stream.read(1 << 20):
            parts.append(part)
    try:
        return json.loads(b"".join(parts).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{file.name}: byte 0x{error.object[error.start]:02x} at {error.start:,} is not UTF-8. Convert the file"
        ) from None
    except json.JSONDecodeError as error:
        raise DataError(
            f"{file.name}:{error.lineno}: not JSON ({error.msg} at column {error.colno}). {_FORM}"
        ) from None
    except (RecursionError, ValueError):
        raise DataError(f"{file.name}: not JSON that can be read. {_FORM}") from None
