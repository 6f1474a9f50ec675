"""`tfm translate`: lines in, as many lines out, in order, whatever the bytes."""

import gc
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transformer_cli.commands.translate.explain import LINES_AT_ONCE, Explainer, with_references
from transformer_cli.commands.translate.formats import DOCUMENT_FORMATS, LINES
from transformer_cli.commands.translate.keys import TranslateConfig
from transformer_cli.commands.translate.open_translator import flags_set, open_translator
from transformer_cli.config.checks import check_choice
from transformer_cli.config.shared import OutputFormat
from transformer_cli.data.context import History
from transformer_cli.data.lines import ChunkSource, old_line_ends, other_format_of, shown, warn_of_columns
from transformer_cli.data.unknown import UnknownCounter, shown_characters
from transformer_cli.decoding.explain import Record
from transformer_cli.decoding.explain_table import explanation_table
from transformer_cli.decoding.prefixes import PrefixIds, with_prefixes
from transformer_cli.decoding.records import record_of, to_line
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device, tune_cpu_memory
from transformer_cli.text_io import (
    BOM,
    STDIN,
    STDOUT,
    Line,
    LineFilter,
    Sink,
    check_files,
    open_output,
    run_filter,
    same_file,
    write_responses,
)

_DOCUMENT_BEGINS = re.compile(rb"\s*<(\?xml|!doctype\s+html|html)\b", re.IGNORECASE)


def run(config: TranslateConfig) -> None:
    """Translate `config.input` or stdin to `config.output` or stdout. Raises TfmError."""
    if config.format != LINES:
        check_choice("format", config.format, DOCUMENT_FORMATS.names())  # now that plugins are imported
    check_paths(config)
    if config.format != LINES:
        DOCUMENT_FORMATS[config.format].translate_file(config)
        return
    device = choose_device(config.device)
    tune_cpu_memory()
    with ExitStack() as files:

        def open_filter(sink: Sink, is_typed: bool) -> TranslationFilter:
            opened, translator = open_translator(config, device, is_typed=is_typed)
            gc.freeze()  # or all modules and the model would be searched for garbage every few thousand lines
            files.callback(gc.unfreeze)
            if is_typed:
                refuse_typed(config)
            links = None
            if config.alignments is not None:
                links = files.enter_context(open_output(config.alignments, replace=config.overwrite))
            explainer = Explainer(translator, opened, config, is_typed=is_typed) if config.explain else None
            lines = TranslationFilter(translator, sink, config, links=links, explainer=explainer)
            languages, names = opened.models[0], ", ".join(map(shown, opened.paths))
            lines.greeting = (
                f"{languages.source_lang} → {languages.target_lang} with {names}. Type a line to see its translation;"
                " Ctrl-C drops it, Ctrl-D leaves"
            )
            lines.prompt = f"{languages.source_lang}> "
            return lines

        run_filter(open_filter, input=config.input, output=config.output, overwrite=config.overwrite, text=config.text)


def check_paths(config: TranslateConfig) -> None:
    """Refuse what would fail after the model is loaded, or destroy a file."""
    if config.text is not None and os.path.isfile(config.text):
        raise ConfigError(
            f"{shown(config.text)}: a file has this name. Add --input to translate the file, or pipe the text in"
        )
    if config.format == LINES and config.input is not None and (fault := other_format_of(Path(config.input))):
        raise DataError(f"{shown(config.input)}: {fault}")
    inputs = {
        "--input": config.input,
        "--prefix": config.prefix,
        "--terms": config.terms,
        "--reference": config.reference,
    }
    outputs = {"--output": config.output, "--alignments": config.alignments, "--report": config.report}
    check_files(inputs, outputs, overwrite=config.overwrite)
    for flag, name in (("--alignments", config.alignments), ("--report", config.report)):
        if config.output is not None and name is not None and same_file(config.output, name):
            raise ConfigError(f"{name}: both --output and {flag}. Choose another {flag}")


def refuse_typed(config: TranslateConfig) -> None:
    """Raise ConfigError for files whose lines belong to those of a text, where it is typed."""
    for flag, name in (("--prefix", config.prefix), ("--reference", config.reference)):
        if name is not None:
            raise ConfigError(f"{shown(name)}: {flag} needs a text that is there before. Give --input, or a pipe")


@dataclass(frozen=True)
class _Row:
    """A line and its translation."""

    line: Line
    result: Translated
    explanation: Record | None = None


class TranslationFilter(LineFilter):
    """Translates lines.

    `links` receives the word alignments. `prefixes` are what the translations of all lines of the input begin with.
    With an `explainer` the steps of every line are written, too.
    """

    progress = "translate"

    def __init__(
        self,
        translator: Translator,
        sink: Sink,
        config: TranslateConfig,
        *,
        links: Sink | None = None,
        prefixes: Sequence[PrefixIds] | None = None,
        explainer: Explainer | None = None,
    ) -> None:
        super().__init__(config.input, strict=config.strict)
        self.translator, self.config, self.prefixes, self.explainer = translator, config, prefixes, explainer
        text: Callable[[_Row], str] = partial(_text_of, config=config)
        self.sinks = [(sink, config.output or STDOUT, text)]
        if links is not None:
            self.sinks.append((links, str(config.alignments), pharaoh))
        self.n_retried, self.n_replaced = 0, 0
        self.n_flagged: Counter[str] = Counter()
        self.unknown, self.invisible, self.n_left_alone = UnknownCounter(), UnknownCounter(), 0
        self.rows: list[_Row] = []  # of the last block
        n_context = translator.text.context_sentences
        self.history = History(n_context, translator.tokenizers.source.tags) if n_context else None

    def process_stream(self, source: ChunkSource) -> None:
        """Translates the whole input at once; prefixes and references are checked before any line is translated."""
        if self.config.prefix is not None:
            source, self.prefixes = with_prefixes(
                source, Path(self.config.prefix), self.translator, path=self.path, strict=self.strict
            )
        if self.explainer is not None and self.config.reference is not None:
            source, self.explainer.references = with_references(source, self.config)
        super().process_stream(source)

    def process(self, raw_lines: Sequence[bytes]) -> None:
        if not self.n_lines and raw_lines and (name := _markup_of(raw_lines[0])):
            LOGGER.warning(
                "%s: begins as %s does; line by line its tags are translated, too. --format %s leaves them as they are",
                self.path or STDIN,
                name.upper(),
                name,
            )
        if not self.n_lines:
            self._warn_of_form(raw_lines)
        size = max(1, len(raw_lines))
        if self.explainer is not None:
            self.explainer.refuse_many(self.n_lines + len(raw_lines))
            size = LINES_AT_ONCE
        for start in range(0, len(raw_lines), size):
            super().process(raw_lines[start : start + size])

    def _warn_of_form(self, first_lines: Sequence[bytes]) -> None:
        """Warn of what is translated, but not as it was meant: the columns of a table, or many lines as one."""
        warn_of_columns(self.path or STDIN, first_lines, "translated")
        if len(first_lines) == 1 and (fault := old_line_ends(first_lines[0])) is not None:
            LOGGER.warning("%s: %s; it is translated as one text", self.path or STDIN, fault)

    def respond(self, lines: Sequence[Line]) -> None:
        first_line = self.n_lines + 1
        prefixes = self.prefixes and self.prefixes[self.n_lines : self.n_lines + len(lines)]
        texts = [line.text for line in lines]
        contexts = None if self.history is None else list(map(self.history.before, texts))
        results = self.translator.translate(texts, first_line=first_line, prefixes=prefixes or None, contexts=contexts)
        self.rows = [
            _Row(line, result, None if self.explainer is None else self.explainer.explain(line, result, context))
            for line, result, context in zip(lines, results, contexts or [()] * len(lines), strict=True)
        ]
        for sink, name, format_row in self.sinks:
            write_responses(sink, map(format_row, self.rows), name, first_line=first_line)
        self.n_retried += sum(result.retried for result in results)
        self.n_replaced += sum(result.replaced for result in results)
        for number, result in enumerate(results, start=first_line):
            self.unknown.add(number, result.unknown)
            self.invisible.add(number, result.invisible)
            self.n_left_alone += result.left_alone
            self.n_flagged.update(flags_set(result))

    def process_typed(self, line: bytes) -> None:
        """Warn of this translation at once."""
        super().process_typed(line)
        (row,) = self.rows
        if flags := flags_set(row.result):
            more = f" ({shown_characters(row.result.unknown)})" if row.result.unknown else ""
            LOGGER.warning("this translation: %s%s", ", ".join(flags), more)

    def report(self) -> None:
        if self.n_flagged:
            counts = ", ".join(f"{n:,} {flag}" for flag, n in self.n_flagged.most_common())
            more = "" if self.config.output_format is OutputFormat.jsonl else "; --output-format=jsonl shows which"
            LOGGER.warning("of %s lines: %s%s", f"{self.n_lines:,}", counts, more)
        self.unknown.warn()
        self.invisible.note("format characters, which the model does not read")
        if self.n_left_alone:
            LOGGER.info(
                "%s without a letter left as they are; decode.copy_letterless=false translates them",
                f"{self.n_left_alone:,} line{'s' * (self.n_left_alone > 1)}",
            )
        if self.history is not None and self.history.n_documents == 1 and self.n_lines > 1:
            LOGGER.info(
                "all %s lines were read as one document, each with up to %d before it; a blank line begins another",
                *(f"{self.n_lines:,}", self.translator.text.context_sentences),
            )
        if self.n_retried:
            LOGGER.info("%d lines were translated again, %d of them better", self.n_retried, self.n_replaced)
        super().report()


def _markup_of(line: bytes) -> str | None:
    """The format of a document that begins with this line, if that is plain."""
    found = _DOCUMENT_BEGINS.match(line.removeprefix(BOM))
    return None if found is None else "xml" if found[1] == b"?xml" else "html"


def _text_of(row: _Row, config: TranslateConfig) -> str:
    if config.output_format is OutputFormat.jsonl:
        record = record_of(row.result, line=row.line.number, source=row.line.text, bad_bytes=row.line.is_invalid)
        return to_line(record if row.explanation is None else {**record, "explanation": row.explanation}) + "\n"
    if row.explanation is not None:
        return explanation_table(row.line.number, row.line.text, row.explanation)
    if config.output_format is OutputFormat.moses:  # which counts lines from 0, and names the features of a score
        return "".join(
            f"{row.line.number - 1} ||| {one.text} ||| log_prob= {one.log_prob:.4f} ||| {one.score:.4f}\n"
            for one in row.result.candidates
        )
    if config.decode.n_best == 1:
        return f"{row.result.text}\n"
    return "".join(f"{row.line.number} ||| {text} ||| {score:.4f}\n" for text, score in row.result.hypotheses)


def pharaoh(row: _Row) -> str:
    """`i-j` for each word j of the translation, which comes from word i of the source."""
    return " ".join(f"{i}-{j}" for i, j in row.result.alignment or []) + "\n"
