"""`tfm answer`: questions in, the answers that stand in their passages out, in order, whatever the bytes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_cli.addons.question_answering.answerer import AnswerSearch, PassageReader, reading_of
from transformer_cli.addons.question_answering.keys import AnswerConfig, QuestionFormat
from transformer_cli.addons.question_answering.questions import as_line
from transformer_cli.addons.question_answering.spans import AnswerSpan, Prediction
from transformer_cli.config.filter import ResponseFormat
from transformer_cli.data.lines import is_encodable, open_text, shown
from transformer_cli.errors import DataError, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import open_one_model
from transformer_cli.text_io import BOM, STDIN, STDOUT, Line, LineFilter, Sink, check_files, run_filter, write_responses

_MOST_BYTES = 1 << 24  # of a passage


def run(config: AnswerConfig) -> None:
    """Answer `config.question`, or those of `config.input` or stdin, to `config.output` or stdout. Raises TfmError."""
    check_files(
        {"--input": config.input, "--passage": config.passage},
        {"--output": config.output},
        overwrite=config.overwrite,
    )
    device, path, model = open_one_model(config, "span_extractor")
    passage = None if config.passage is None else read_passage(config.passage)
    search = AnswerSearch(config.n_best, config.max_answer, config.none_threshold)
    reading = reading_of(model, device=device, batch_tokens=config.batch_tokens, search=search, stride=config.stride)

    def open_filter(sink: Sink, is_typed: bool) -> QuestionFilter:
        lines = QuestionFilter(reading, sink, config, passage)
        lines.greeting = f"{shown(path)}: type {lines.described}; Ctrl-D leaves"
        return lines

    question = None if config.question is None else as_line(config.question)
    run_filter(open_filter, input=config.input, output=config.output, overwrite=config.overwrite, text=question)


def read_passage(file: str) -> str:
    """The text of a file, in which offsets count code points behind a byte order mark. Raises DataError."""
    with open_text(Path(file)) as stream:
        content = b""
        while len(content) <= _MOST_BYTES and (part := stream.read(1 << 20)):
            content += part
    if len(content) > _MOST_BYTES:
        raise DataError(f"{shown(file)}: more than {_MOST_BYTES:,} bytes. Name the passage alone with --passage")
    try:
        text = content.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{shown(file)}: byte 0x{content[error.start]:02x} at {error.start:,} is not UTF-8. Convert the file"
        ) from None
    if not text.strip():
        raise DataError(f"{shown(file)}: is blank. Name a file with a passage with --passage")
    return text


class QuestionFilter(LineFilter):
    """A question in, an answer out; a blank line gives a blank one. Raises DataError for a line without a passage."""

    progress = "answer"

    def __init__(self, reading: PassageReader, sink: Sink, config: AnswerConfig, passage: str | None) -> None:
        super().__init__(config.input, strict=config.strict)
        self.reading, self.sink, self.config, self.passage = reading, sink, config, passage
        self.described = "a question" if passage is not None else "a question, a tab and its passage"
        if config.format is QuestionFormat.jsonl:
            self.described = "a JSON object with question and passage"

    def respond(self, lines: Sequence[Line]) -> None:
        asked: list[tuple[str, str] | None] = []
        fault = None
        for line in lines:
            found = self._asked(line.text)
            if isinstance(found, str):
                fault = DataError(f"{self.path or STDIN}:{line.number}: {found}")
                break
            asked.append(found)
        predictions = iter(self.reading.answers([one for one in asked if one is not None]))
        texts = [
            self._text(line, one, None if one is None else next(predictions))
            for line, one in zip(lines, asked, strict=False)
        ]
        write_responses(self.sink, texts, self.config.output or STDOUT)
        if fault is not None:
            raise fault

    def _asked(self, line: str) -> tuple[str, str] | str | None:
        """Question and passage of a line; None for a blank one, or what is wrong with it."""
        if not line.strip():
            return None
        if self.passage is not None:
            return line, self.passage
        if self.config.format is QuestionFormat.jsonl:
            return _of_json(line)
        question, tab, passage = line.partition("\t")
        if not tab:
            return "no tab in it. Write question<TAB>passage, or name the passage of all lines with --passage"
        if not question.strip() or not passage.strip():
            return f"nothing {'before' if passage.strip() else 'after'} the tab. Write question<TAB>passage"
        return question, passage

    def _text(self, line: Line, asked: tuple[str, str] | None, found: Prediction | None) -> str:
        best = None if found is None else found.best
        if self.config.output_format is ResponseFormat.jsonl:
            record: dict[str, Any] = {"line": line.number, "question": None if asked is None else asked[0]}
            return json.dumps(record | _record(found), ensure_ascii=False) + "\n"
        if found is None:
            return "\n"
        text = "" if best is None else as_line(best.text)
        probability = found.none_probability if best is None else best.probability
        return f"{text}\t{probability:.6f}\n" if self.config.probabilities else f"{text}\n"

    def process_typed(self, line: bytes) -> None:
        """A line that is no question is refused, and the next can be typed."""
        try:
            super().process_typed(line)
        except DataError as error:
            LOGGER.warning("%s", error)
        self.report()
        self.n_invalid = 0
        self.reading.begin()

    def report(self) -> None:
        if self.reading.n_split:
            LOGGER.info(
                "passages with more than the model's %d tokens: %s, read in windows that overlap",
                *(self.reading.size.max_length, f"{self.reading.n_split:,}"),
            )
        if self.reading.n_cut:
            LOGGER.warning("questions that are longer than half of a window, and are cut: %d", self.reading.n_cut)
        self.reading.unknown.warn("question")
        super().report()


def _of_json(line: str) -> tuple[str, str] | str:
    form = 'Write {"question": "…", "passage": "…"}'
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return f"not JSON: {quoted(line)}. {form}"
    texts = [found.get(name) if isinstance(found, dict) else None for name in ("question", "passage")]
    for name, text in zip(("question", "passage"), texts, strict=True):
        if not isinstance(text, str) or not text.strip() or not is_encodable(text):
            return f"no text `{name}`. {form}"
    return str(texts[0]), str(texts[1])


def _record(found: Prediction | None) -> dict[str, Any]:
    """What JSON says of a prediction."""
    best = None if found is None else found.best
    record: dict[str, Any] = {"answer": None if best is None else best.text}
    if found is None:
        return record
    if best is not None:
        record |= _place(best)
    if found.none_score is not None:
        record |= {"none_score": round(found.none_score, 4), "none_probability": round(found.none_probability, 6)}
    return record | {"answers": [{"answer": one.text} | _place(one) for one in found.spans]}


def _place(span: AnswerSpan) -> dict[str, Any]:
    return {
        "start": span.start,
        "end": span.end,
        "score": round(span.score, 4),
        "probability": round(span.probability, 6),
    }
