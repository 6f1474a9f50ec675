"""`tfm translate`: lines in, as many lines out, in order, whatever the bytes."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import torch
from tqdm import tqdm

from transformer_cli.data.lines import split_lines
from transformer_cli.decoding.ctranslate2 import CTranslate2Translator
from transformer_cli.decoding.exported import Exported, locate_export
from transformer_cli.decoding.translator import Translated, Translator
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.files import writing_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import ModelFile, locate_model, read_model
from transformer_cli.schema import Engine, TranslateConfig

READ_BYTES = 1 << 20  # translated together: enough to sort by length, small enough to see progress
BOM = b"\xef\xbb\xbf"


def run(config: TranslateConfig) -> None:
    """Translate `config.input` or stdin to `config.output` or stdout. Raises TfmError."""
    check_paths(config)
    device = choose_device(config.device)
    model, translator = open_translator(config, device)
    with open_input(config.input) as source, open_output(config.output) as sink:
        if config.input is None and source.isatty():
            LOGGER.info("%s → %s: type a line, Ctrl-D ends", model.source_lang, model.target_lang)
        translate_stream(translator, source, sink, config)


def open_translator(config: TranslateConfig, device: torch.device) -> tuple[ModelFile | Exported, Translator]:
    if config.engine is Engine.ctranslate2:
        exported = locate_export(config.checkpoint, program=config.engine.name)
        return exported, CTranslate2Translator(exported, config.decode, device=device, seed=config.seed)
    model = read_model(locate_model(config.checkpoint, config.runs))
    return model, Translator(model.build(device), model.tokenizers, config.decode, device=device, seed=config.seed)


def check_paths(config: TranslateConfig) -> None:
    """Refuse what would fail after the model is loaded, or destroy a file."""
    if config.input is not None and not Path(config.input).exists():
        raise DataError(f"{config.input}: no such file. Check --input")
    if config.input is not None and Path(config.input).is_dir():
        raise DataError(f"{config.input}: a folder, not a file. Check --input")
    if config.output is None:
        return
    output = Path(config.output)
    if config.input is not None and output.exists() and output.samefile(config.input):
        raise ConfigError(f"{config.output}: both --input and --output. Choose another --output")
    if output.exists() and not output.is_file():
        raise ConfigError(f"{config.output}: not a plain file. Choose another --output")
    if output.exists() and not config.overwrite:
        raise ConfigError(f"{config.output}: exists already. Add --overwrite, or choose another --output")
    if not output.parent.is_dir():
        raise EnvironmentFault(f"{output.parent}: no such folder. Create it, or choose another --output")
    if not os.access(output.parent, os.W_OK):
        raise EnvironmentFault(f"{output.parent}: cannot be written. Check its permissions")


@contextmanager
def open_input(path: str | None) -> Iterator[BinaryIO]:
    if path is None:
        if sys.stdin is None:
            raise DataError("standard input: closed. Open it, or name a file with --input")
        yield sys.stdin.buffer
        return
    with open(path, "rb") as file:
        yield file


@contextmanager
def open_output(path: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears under its name only when it is whole."""
    if path is None:
        if sys.stdout is None:
            raise EnvironmentFault("standard output: closed. Open it, or name a file with --output")
        yield sys.stdout.buffer
        return
    with writing_whole(Path(path)) as file:
        yield file


def translate_stream(translator: Translator, source: BinaryIO, sink: BinaryIO, config: TranslateConfig) -> None:
    """Translate whatever has arrived, write it, and wait for more."""
    n_lines, n_bad, n_endless = 0, 0, 0
    size = os.path.getsize(config.input) if config.input is not None else None
    quiet = True if config.input is None else None  # None: drawn on a terminal only
    with tqdm(total=size, unit="B", unit_scale=True, disable=quiet, desc="translate", file=sys.stderr) as bar:
        for raw in read_chunks(source):
            decoded = [decode_line(line, n_lines + i, config) for i, line in enumerate(split_lines(raw))]
            n_bad += sum(was_bad for _, was_bad in decoded)
            results = translator.translate([text for text, _ in decoded], first_line=n_lines + 1)
            write_results(sink, results, n_lines, config)
            n_lines += len(results)
            n_endless += sum(result.hit_limit for result in results)
            bar.update(len(raw))
    if n_endless:
        LOGGER.warning("%d of %d translations have no end: they stop at decode.max_extra_length", n_endless, n_lines)
    if n_bad:
        LOGGER.warning(
            "%d of %d lines were not UTF-8; their bad bytes became U+FFFD (--strict stops instead)", n_bad, n_lines
        )


def read_chunks(source: BinaryIO) -> Iterator[bytes]:
    """Whole lines, as many as are there and at most about READ_BYTES; the last one may lack its newline.

    Waits only while there is not one whole line, so that a person or a program at the other end gets each answer
    before sending more.
    """
    pending = b""
    while True:
        piece = source.read1(READ_BYTES)  # type: ignore[attr-defined]
        pending += piece
        if piece and len(pending) < READ_BYTES and _more_is_waiting(source):
            continue
        end = len(pending) if not piece else pending.rfind(b"\n") + 1
        if end:
            yield pending[:end]
            pending = pending[end:]
        if not piece:
            return


def _more_is_waiting(source: BinaryIO) -> bool:
    try:
        return bool(select.select([source], [], [], 0)[0])
    except (OSError, ValueError):
        return False  # no descriptor to ask


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


def write_results(sink: BinaryIO, results: list[Translated], n_before: int, config: TranslateConfig) -> None:
    for i, result in enumerate(results):
        if config.decode.n_best == 1:
            out = f"{result.text}\n"
        else:
            out = "".join(f"{n_before + i} ||| {text} ||| {score:.4f}\n" for text, score in result.hypotheses)
        try:
            sink.write(out.encode())
        except OSError as error:
            raise _write_fault(error, n_before + i + 1, config) from error
    try:
        sink.flush()
    except OSError as error:
        raise _write_fault(error, n_before + len(results), config) from error


def _write_fault(error: OSError, line: int, config: TranslateConfig) -> OSError | EnvironmentFault:
    if isinstance(error, BrokenPipeError):
        return error
    where = config.output or "standard output"
    return EnvironmentFault(f"{where}: {error.strerror} at line {line}. Make room, or choose another --output")
