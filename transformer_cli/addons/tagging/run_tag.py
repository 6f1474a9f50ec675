"""`tfm tag`: sentences of words in, a label for each word out, in order, whatever the bytes.

Shapes: T words of a sentence, C labels.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from transformer_cli.addons.tagging.conll import Dialect, columns_of, trained_columns
from transformer_cli.addons.tagging.keys import TagConfig, TagFormat
from transformer_cli.addons.tagging.word_tagger import WordTagger
from transformer_cli.addons.tagging.words import words_of_line
from transformer_cli.config.filter import ResponseFormat
from transformer_cli.data.lines import shown
from transformer_cli.decoding.plan import named
from transformer_cli.errors import DataError
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, open_one_model
from transformer_cli.text_io import (
    STDIN,
    STDOUT,
    Filter,
    Line,
    LineFilter,
    Sink,
    check_files,
    decode_line,
    run_filter,
    warn_invalid,
    write_bytes,
    write_responses,
)


def run(config: TagConfig) -> None:
    """Label the words of `config.input` or stdin, to `config.output` or stdout. Raises TfmError."""
    check_files({"--input": config.input}, {"--output": config.output}, overwrite=config.overwrite)
    device, path, model = open_one_model(config, "tagger")
    tagger = WordTagger(model, device=device, batch_tokens=config.batch_tokens)

    def open_filter(sink: Sink, is_typed: bool) -> Filter:
        if config.format is not TagFormat.text:
            return RowFilter(tagger, sink, config, dialect_for(config, model))
        lines = SentenceFilter(tagger, sink, config)
        lines.greeting = f"{shown(path)}: type a sentence, with spaces between its words; Ctrl-D leaves"
        return lines

    run_filter(open_filter, input=config.input, output=config.output, overwrite=config.overwrite)


def dialect_for(config: TagConfig, model: ModelFile) -> Dialect:
    """The columns that are named, or those of the model's training text if it is of this format.

    Else those of CoNLL-U, or the first, and one more for the tags.
    """
    is_conllu = config.format is TagFormat.conllu
    return Dialect.of(config.columns or trained_columns(model.data, is_conllu_wanted=is_conllu), is_conllu=is_conllu)


def report_on(tagger: WordTagger) -> None:
    """Log what the tags do not show."""
    if tagger.n_split:
        LOGGER.info(
            "sentences with more than the model's %d tokens: %d, read in windows that overlap",
            *(tagger.max_length, tagger.n_split),
        )
    tagger.warn_truncated()
    tagger.unknown.warn()


# ---- A sentence a line


class SentenceFilter(LineFilter):
    """A line of words in, a line of tags out."""

    progress = "tag"

    def __init__(self, tagger: WordTagger, sink: Sink, config: TagConfig) -> None:
        super().__init__(config.input, strict=config.strict)
        self.tagger, self.sink, self.config = tagger, sink, config

    def respond(self, lines: Sequence[Line]) -> None:
        sentences = [words_of_line(line.text) for line in lines]
        logits = self.tagger.tag(sentences, first=self.n_lines + 1)
        texts = (
            self._text(line, words, logits_TC) for line, words, logits_TC in zip(lines, sentences, logits, strict=True)
        )
        write_responses(self.sink, texts, self.config.output or STDOUT)

    def _text(self, line: Line, words: list[str], logits_TC: Tensor) -> str:
        tags = self.tagger.predicted(logits_TC)
        if self.config.output_format is ResponseFormat.text:
            return " ".join(tags) + "\n"
        record = {
            "line": line.number,
            "words": words,
            "tags": tags,
            "probabilities": word_probabilities(logits_TC),
        }
        return json.dumps(record, ensure_ascii=False) + "\n"

    def process_typed(self, line: bytes) -> None:
        super().process_typed(line)
        self.report()
        self.n_invalid = 0
        self.tagger.begin()

    def report(self) -> None:
        report_on(self.tagger)
        super().report()


def word_probabilities(logits_TC: Tensor) -> list[float]:
    """The probability of each word's label, rounded to six digits."""
    p_T: list[float] = logits_TC.double().softmax(dim=-1).amax(dim=-1).tolist() if len(logits_TC) else []
    return [round(p, 6) for p in p_T]


# ---- CoNLL columns


@dataclass(frozen=True)
class _Row:
    """A line with its end, and the word that it is a row of; None for a comment, a blank line and the like."""

    raw: bytes
    word: str | None = None


class RowFilter(Filter):
    """CoNLL columns in, the same with the tag of each word out; all other bytes are kept."""

    progress = "tag"

    def __init__(self, tagger: WordTagger, sink: Sink, config: TagConfig, dialect: Dialect) -> None:
        super().__init__(config.input)
        self.tagger, self.sink, self.config, self.dialect = tagger, sink, config, dialect
        self.word_at = dialect.columns[0] if dialect.columns else 0
        self.label_at = dialect.columns[1] if dialect.columns else None
        self.waiting: list[list[_Row]] = [[]]  # sentences that are not written yet; the last one may go on
        self.n_lines, self.n_sentences, self.n_words, self.n_invalid = 0, 0, 0, 0
        self.untagged: dict[str, list[int]] = {}  # numbers of rows that get no tag, by the reason
        self.unwritten = bytearray()  # output until the first tag

    def process_block(self, block: bytes) -> None:
        *lines, rest = block.split(b"\n")
        for raw in [*(line + b"\n" for line in lines), *([rest] if rest else [])]:
            self._add(raw)
        *whole, unfinished = self.waiting
        self._write(whole)
        self.waiting = [unfinished]

    def end(self) -> None:
        self._write(self.waiting)
        self._refuse_without_tags()
        super().end()

    def _add(self, raw: bytes) -> None:
        self.n_lines += 1
        line = decode_line(raw.rstrip(b"\r\n"), self.n_lines, name=self.config.input, strict=self.config.strict)
        self.n_invalid += line.is_invalid
        if not self.dialect.is_word(line.text):
            self.waiting[-1].append(_Row(raw))
            if self.dialect.ends_sentence(line.text):
                self.waiting.append([])
            return
        fields = columns_of(line.text)
        reason = self._reason(fields)
        if reason is None:
            self.waiting[-1].append(_Row(raw, fields[self.word_at].strip(" ")))
            return
        if self.config.strict:
            where = f"{self.config.input or STDIN}:{self.n_lines}"
            raise DataError(f"{where}: {reason}. Repair the line, or leave out --strict")
        self.untagged.setdefault(reason, []).append(self.n_lines)
        self.waiting[-1].append(_Row(raw))

    def _reason(self, fields: Sequence[str]) -> str | None:
        """Why a row gets no tag, if it gets none."""
        if len(fields) <= self.word_at or not fields[self.word_at].strip(" "):
            return f"no word in column {self.word_at}"
        if self.label_at is not None and len(fields) < self.label_at:
            n_columns = "1 column" if len(fields) == 1 else f"{len(fields)} columns"
            return f"{n_columns}, too few for a tag in column {self.label_at}, counted from 0"
        return None

    def _write(self, sentences: Sequence[Sequence[_Row]]) -> None:
        words = [[row.word for row in rows if row.word is not None] for rows in sentences]
        logits = self.tagger.tag(words, first=self.n_sentences + 1)
        self.n_sentences += len(sentences)
        self.n_words += sum(map(len, words))
        out = self.unwritten
        for rows, logits_TC in zip(sentences, logits, strict=True):
            tags = iter(self.tagger.predicted(logits_TC))
            for row in rows:
                out += row.raw if row.word is None else with_tag(row.raw, next(tags), self.label_at)
        if self.n_words:
            self._flush()

    def _flush(self) -> None:
        write_bytes(self.sink, bytes(self.unwritten), self.config.output or STDOUT)
        self.unwritten.clear()

    def _refuse_without_tags(self) -> None:
        """Raise DataError, with nothing written, if there are rows and none of them has got a tag."""
        if self.untagged and not self.n_words:
            reason, numbers = next(iter(self.untagged.items()))
            raise DataError(
                f"{self.config.input or STDIN}:{numbers[0]}: {reason}, and no other row can be tagged, so nothing is"
                " written. Name the columns of word and tag, as in columns=[0,1]"
            )
        self._flush()

    def report(self) -> None:
        for reason, numbers in self.untagged.items():
            LOGGER.warning("%s: %s; kept as %s", named(numbers), reason, "it is" if len(numbers) == 1 else "they are")
        report_on(self.tagger)
        warn_invalid(self.n_invalid, self.n_lines)


def with_tag(raw: bytes, tag: str, label_at: int | None) -> bytes:
    """A row with `tag` in column `label_at`, or as one more column."""
    body = raw.rstrip(b"\r\n")
    end, divider = raw[len(body) :], b"\t" if b"\t" in body else b" "
    parts = body.split(b"\t") if divider == b"\t" else re.findall(b"[^ ]+", body)
    if label_at is None or label_at >= len(parts):
        return body + divider + tag.encode() + end
    if divider == b"\t":
        parts[label_at] = tag.encode()
        return b"\t".join(parts) + end
    at = list(re.finditer(b"[^ ]+", body))[label_at]
    return body[: at.start()] + tag.encode() + body[at.end() :] + end
