"""`tfm translate`: lines in, as many lines out, in order, whatever the bytes."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import torch
from tqdm import tqdm

from transformer_cli.config.commands import Engine, OnIssue, OutputFormat, TranslateConfig
from transformer_cli.data.lines import (
    ChunkSource,
    TextInput,
    read_chunks,
    read_lines,
    refuse_unreadable,
    shown,
    split_lines,
)
from transformer_cli.data.unknown import UnknownCounter, shown_characters
from transformer_cli.decoding.ctranslate2_engine import CTranslate2Translator
from transformer_cli.decoding.records import flags_of, record_of, to_line
from transformer_cli.decoding.terminal import converse
from transformer_cli.decoding.terminology import read_terms
from transformer_cli.decoding.training_text import training_text
from transformer_cli.decoding.translator import Translated, Translator, Wishes, written_ids
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault, quoted
from transformer_cli.files import Output, meant, remove_leftovers, writing_whole
from transformer_cli.interop.exported import Exported, chosen_engine, locate_export
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.ensemble import build_all, read_models
from transformer_cli.models.file import ModelFile, locate_models

BOM = b"\xef\xbb\xbf"

Ids = tuple[int, ...]


def run(config: TranslateConfig) -> None:
    """Translate `config.input` or stdin to `config.output` or stdout. Raises TfmError."""
    check_paths(config)
    device = choose_device(config.device)
    wishes = Wishes(
        terminology=None if config.terms is None else read_terms(Path(config.terms)),
        retry=config.on_issue is OnIssue.retry,
        read_back=config.alignments is not None or config.token_scores,
    )
    models, paths, translator = open_translator(config, device, wishes)
    with ExitStack() as files:
        source, prefixes = files.enter_context(open_input(config.input, config.text)), None
        is_typed = config.input is None and source.isatty()
        if config.prefix is not None:
            source, prefixes = with_prefixes(translator, source, config, is_typed=is_typed)
        sink = files.enter_context(open_output(config.output, replace=config.overwrite))
        links = None
        if config.alignments is not None:
            links = files.enter_context(open_output(config.alignments, replace=config.overwrite))
        answering = Answering(translator, sink, config, links=links, prefixes=prefixes)
        if is_typed:
            talk(answering, models[0], paths)
        else:
            translate_stream(answering, source, config)


def talk(answering: "Answering", model: ModelFile | Exported, paths: Sequence[Path]) -> None:
    LOGGER.info(
        "%s → %s with %s. Type a line to see its translation; Ctrl-C drops it, Ctrl-D leaves",
        model.source_lang,
        model.target_lang,
        ", ".join(map(shown, paths)),
    )
    converse(answering.answer_typed, prompt=f"{model.source_lang}> ")


def open_translator(
    config: TranslateConfig, device: torch.device, wishes: Wishes
) -> tuple[Sequence[ModelFile | Exported], Sequence[Path], Translator]:
    """What translates, where it was found, and how."""
    decode, seed = config.decode, config.seed
    if chosen_engine(config.engine, config.checkpoint) is Engine.ctranslate2:
        refuse_wishes(config)
        exported = locate_export(config.checkpoint, program=Engine.ctranslate2.name)
        translator: Translator = CTranslate2Translator(exported, decode, device=device, seed=seed, wishes=wishes)
        return [exported], [exported.directory], translator
    paths = locate_models(config.checkpoint, config.runs)
    models = read_models(paths)
    model = build_all(models, device)
    translator = Translator(
        model,
        models[0].tokenizers,
        decode,
        device=device,
        seed=seed,
        wishes=wishes,
        text=training_text(models),
        whole_machine=True,
    )
    return models, paths, translator


def refuse_wishes(config: TranslateConfig) -> None:
    """Raises ConfigError for what needs our own search, or our own model."""
    for flag, is_set in (
        ("--prefix", config.prefix is not None),
        ("--terms", config.terms is not None),
        ("--alignments", config.alignments is not None),
        ("--token-scores", config.token_scores),
    ):
        if is_set:
            raise ConfigError(f"{flag}: engine=ctranslate2 does not have it. Leave one of them out")


def check_paths(config: TranslateConfig) -> None:
    """Refuse what would fail after the model is loaded, or destroy a file."""
    if config.text is not None and os.path.isfile(config.text):
        raise ConfigError(
            f"{shown(config.text)}: a file has this name. Add --input to translate the file, or pipe the text in"
        )
    inputs = {"--input": config.input, "--prefix": config.prefix, "--terms": config.terms}
    for flag, name in inputs.items():
        if name is not None:
            check_input(name, flag)
    outputs = {"--output": config.output, "--alignments": config.alignments}
    for flag, name in outputs.items():
        if name is not None:
            check_output(Path(name), flag, inputs, overwrite=config.overwrite)
    if config.output is not None and config.alignments is not None and same(config.output, config.alignments):
        raise ConfigError(f"{config.alignments}: both --output and --alignments. Choose another --alignments")


def check_input(name: str, flag: str) -> None:
    """Refuse what is no text file; --input may be a pipe, as a shell's <(…) is one."""
    if not Path(name).exists():
        raise DataError(f"{name}: no such file. Check {flag}")
    if Path(name).is_dir():
        raise DataError(f"{name}: a folder, not a file. Check {flag}")
    refuse_unreadable(Path(name), pipes=flag == "--input")


def check_output(output: Path, flag: str, inputs: Mapping[str, str | None], *, overwrite: bool) -> None:
    for input_flag, name in inputs.items():
        if name is not None and output.exists() and output.samefile(name):
            raise ConfigError(f"{output}: both {input_flag} and {flag}. Choose another {flag}")
    if output.exists() and not output.is_file():
        raise ConfigError(f"{output}: not a plain file. Choose another {flag}")
    if output.exists() and not overwrite:
        raise ConfigError(f"{output}: exists already. Add --overwrite, or choose another {flag}")
    folder = meant(output).parent
    if not folder.is_dir():
        raise EnvironmentFault(f"{folder}: no such folder. Create it, or choose another {flag}")
    if not os.access(folder, os.W_OK):
        raise EnvironmentFault(f"{folder}: cannot be written. Check its permissions")


def same(one: str, other: str) -> bool:
    """Whether two names are of one file, which need not be there."""
    return Path(one).resolve() == Path(other).resolve()


@contextmanager
def open_input(path: str | None, text: str | None = None) -> Iterator[ChunkSource]:
    """Standard input, or a file or pipe, or `text` as a line of it."""
    if text is not None:
        yield BytesIO(os.fsencode(text) + b"\n")
        return
    if path is None:
        if sys.stdin is None:
            raise DataError("standard input: closed. Open it, or name a file with --input")
        yield cast(ChunkSource, sys.stdin.buffer)  # whose type says less than it is
        return
    with TextInput(Path(path), pipes=True) as file:
        yield file


def size_of_input(path: str | None) -> int | None:
    """Bytes that will be read, where that is known: not of standard input, and not of what is packed."""
    return None if path is None or path.endswith(".gz") else os.path.getsize(path) or None


@contextmanager
def open_output(path: str | None, *, replace: bool) -> Iterator[BinaryIO | Output]:
    """Standard output, or a file that appears under its name only when it is whole.

    Without `replace`, a file that has appeared there meanwhile is kept: see `writing_whole`.
    """
    if path is None:
        if sys.stdout is None:
            raise EnvironmentFault("standard output: closed. Open it, or name a file with --output")
        yield sys.stdout.buffer
        return
    output = meant(Path(path))
    remove_leftovers(output)
    with writing_whole(output, replace=replace) as file:
        yield file


def with_prefixes(
    translator: Translator, source: ChunkSource, config: TranslateConfig, *, is_typed: bool
) -> tuple[ChunkSource, list[Ids]]:
    """The whole input, and the beginning of each line's translation: all is looked at before anything is translated.

    Raises DataError naming the line of a prefix that cannot be met.
    """
    name, where = shown(str(config.prefix)), config.input or "standard input"
    if is_typed:
        raise ConfigError(f"{name}: --prefix needs a text that is there before. Give --input, or a pipe")
    data = b"".join(read_chunks(source, where))
    lines = [decode_line(line, n, config)[0] for n, line in enumerate(split_lines(data))]
    prefix_file = Path(str(config.prefix))
    is_empty = prefix_file.is_file() and prefix_file.stat().st_size == 0  # as the input may be
    prefixes = [] if is_empty else read_lines(prefix_file).texts
    if len(prefixes) != len(lines):
        raise DataError(
            f"{name}: has {len(prefixes):,} lines, {where} {len(lines):,}, so nothing is translated."
            " Make line n of one the beginning of the translation of line n of the other"
        )
    found: list[Ids] = []
    for number, (prefix, room) in enumerate(zip(prefixes, translator.room(lines), strict=True), start=1):
        ids = written_ids(prefix, translator.tokenizers.target)
        if ids is None:
            raise DataError(
                f"{name}:{number}: {quoted(prefix)} cannot be written with the pieces of this model."
                " Write it in other letters, or leave the line blank"
            )
        if ids and room is None:
            raise DataError(f"{name}:{number}: {quoted(prefix)} begins the translation of a blank line. Remove it")
        if room is not None and len(ids) > room:
            key = "decode.max_length" if room + 1 == config.decode.max_length else "decode.max_extra_length"
            raise DataError(
                f"{name}:{number}: {len(ids)} tokens, where the translation of line {number} may have {room}."
                f" Shorten it, or raise {key}"
            )
        found.append(ids)
    return BytesIO(data), found


class Answering:
    """Answers lines, which it numbers, and counts what there is to tell of them in the end.

    `links` takes the word alignments. `prefixes` are the beginnings of the translations of all lines that will come.
    """

    def __init__(
        self,
        translator: Translator,
        sink: BinaryIO | Output,
        config: TranslateConfig,
        *,
        links: BinaryIO | Output | None = None,
        prefixes: Sequence[Ids] | None = None,
    ) -> None:
        self.translator, self.config, self.prefixes = translator, config, prefixes
        text: Callable[[Row], str] = partial(text_of, config=config)
        self.sinks = [(sink, config.output or "standard output", text)]
        if links is not None:
            self.sinks.append((links, str(config.alignments), pharaoh))
        self.n_lines, self.n_bad, self.n_retried, self.n_replaced = 0, 0, 0, 0
        self.n_flagged: Counter[str] = Counter()
        self.unknown = UnknownCounter()

    def answer(self, raw: bytes) -> list[Translated]:
        """Translate some lines, and write what became of them."""
        n_before = self.n_lines
        decoded = [decode_line(line, n_before + i, self.config) for i, line in enumerate(split_lines(raw))]
        prefixes = self.prefixes and self.prefixes[n_before : n_before + len(decoded)]
        results = self.translator.translate(
            [text for text, _ in decoded], first_line=n_before + 1, prefixes=prefixes or None
        )
        rows = [
            Row(n_before + i, text, was_bad, result)
            for i, ((text, was_bad), result) in enumerate(zip(decoded, results, strict=True))
        ]
        for sink, name, written in self.sinks:
            write_rows(sink, rows, name, written)
        self.n_lines += len(results)
        self.n_bad += sum(was_bad for _, was_bad in decoded)
        self.n_retried += sum(result.retried for result in results)
        self.n_replaced += sum(result.replaced for result in results)
        for line, result in enumerate(results, start=n_before + 1):
            self.unknown.add(line, result.unknown)
            self.n_flagged.update(flag for flag, is_set in flags_of(result).items() if is_set)
        return results

    def answer_typed(self, line: bytes) -> None:
        """Answer a person, who hears at once what is wrong."""
        (result,) = self.answer(line + b"\n")
        if flags := [flag for flag, is_set in flags_of(result).items() if is_set]:
            more = f" ({shown_characters(result.unknown)})" if result.unknown else ""
            LOGGER.warning("this translation: %s%s", ", ".join(flags), more)

    def tell(self) -> None:
        """What a user must know who does not look at every line."""
        if self.n_flagged:
            counts = ", ".join(f"{n:,} {flag}" for flag, n in self.n_flagged.most_common())
            more = "" if self.config.output_format is OutputFormat.jsonl else "; --output-format=jsonl tells which"
            LOGGER.warning("of %s lines: %s%s", f"{self.n_lines:,}", counts, more)
        self.unknown.warn()
        if self.n_retried:
            LOGGER.info("%d lines were translated again, %d of them better", self.n_retried, self.n_replaced)
        if self.n_bad:
            LOGGER.warning(
                "%d of %d lines were not UTF-8; their bad bytes became U+FFFD (--strict stops instead)",
                self.n_bad,
                self.n_lines,
            )


def translate_stream(answering: Answering, source: ChunkSource, config: TranslateConfig) -> None:
    """Translate whatever has arrived, write it, and wait for more."""
    size = size_of_input(config.input)
    quiet = True if config.input is None else None  # None: drawn on a terminal only
    with tqdm(total=size, unit="B", unit_scale=True, disable=quiet, desc="translate", file=sys.stderr) as bar:
        for raw in read_chunks(source, config.input or "standard input"):
            answering.answer(raw)
            bar.update(len(raw))
    answering.tell()


def decode_line(line: bytes, index: int, config: TranslateConfig) -> tuple[str, bool]:
    """The text of a line, and whether bytes of it had to be replaced."""
    line = line.removeprefix(BOM) if index == 0 else line
    try:
        return line.decode("utf-8"), False
    except UnicodeDecodeError as error:
        if config.strict:
            where = f"{config.input or 'standard input'}:{index + 1}"
            raise DataError(
                f"{where}: byte 0x{line[error.start]:02x} at column {error.start + 1} is not UTF-8."
                " Repair the line, or leave out --strict"
            ) from error
        return line.decode("utf-8", errors="replace"), True


@dataclass(frozen=True)
class Row:
    """A line and what became of it."""

    index: int  # from 0
    source: str
    was_bad: bool  # bytes of it had to be replaced
    result: Translated


def text_of(row: Row, config: TranslateConfig) -> str:
    if config.output_format is OutputFormat.jsonl:
        return to_line(record_of(row.result, line=row.index + 1, source=row.source, bad_bytes=row.was_bad)) + "\n"
    if config.output_format is OutputFormat.moses:  # which counts lines from 0, and names the features of a score
        return "".join(
            f"{row.index} ||| {one.text} ||| log_prob= {one.log_prob:.4f} ||| {one.score:.4f}\n"
            for one in row.result.candidates
        )
    if config.decode.n_best == 1:
        return f"{row.result.text}\n"
    return "".join(f"{row.index + 1} ||| {text} ||| {score:.4f}\n" for text, score in row.result.hypotheses)


def pharaoh(row: Row) -> str:
    """`i-j` for each word j of the translation, which comes from word i of the source."""
    return " ".join(f"{i}-{j}" for i, j in row.result.alignment or []) + "\n"


def write_rows(sink: BinaryIO | Output, rows: Sequence[Row], name: str, written: Callable[[Row], str]) -> None:
    line = 0
    try:
        for row in rows:
            line = row.index + 1
            sink.write(written(row).encode())
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EnvironmentFault(
            f"{name}: {error.strerror} at line {line}. Make room, or choose another place"
        ) from error
