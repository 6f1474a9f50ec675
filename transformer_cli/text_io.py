"""Line filters: blocks of bytes in, numbered lines, one response to each, in order.

Shared by `tfm translate`, `score`, `classify`, `embed` and `generate`: checks of the files that they are given, outputs
that are whole or absent, decoding of lines, progress, and input that is typed at a terminal.
"""

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import BinaryIO, cast

from tqdm import tqdm

from transformer_cli.data.lines import ChunkSource, TextInput, read_chunks, refuse_unreadable, split_lines
from transformer_cli.environment import folder_named
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.files import Output, remove_leftovers, resolve_link, writing_whole
from transformer_cli.logs import LOGGER
from transformer_cli.system import NO_LINK

BOM = b"\xef\xbb\xbf"
HISTORY_LINES = 1000
STDIN, STDOUT = "standard input", "standard output"

Sink = BinaryIO | Output


# ---- Files that a command is given


def check_files(inputs: Mapping[str, str | None], outputs: Mapping[str, str | None], *, overwrite: bool) -> None:
    """Refuse what would fail after a model is loaded, or destroy a file. Both map a flag to the file that it names."""
    for flag, name in inputs.items():
        if name is not None:
            check_input(name, flag)
    for flag, name in outputs.items():
        if name is not None:
            check_output(Path(name), flag, inputs, overwrite=overwrite)


def check_input(name: str, flag: str) -> None:
    """Raise DataError for what is no text file; --input may be a pipe, as a shell's <(…) is one."""
    if not Path(name).exists():
        raise DataError(f"{name}: no such file. Check {flag}")
    if Path(name).is_dir():
        raise DataError(f"{name}: a folder, not a file. Check {flag}")
    refuse_unreadable(Path(name), pipes=flag == "--input")


def check_output(output: Path, flag: str, inputs: Mapping[str, str | None], *, overwrite: bool) -> None:
    """Raise ConfigError for a file that is an input or exists already, EnvironmentFault for one that cannot be made."""
    for input_flag, name in inputs.items():
        if name is not None and output.exists() and output.samefile(name):
            raise ConfigError(f"{output}: both {input_flag} and {flag}. Choose another {flag}")
    if output.exists() and not output.is_file():
        raise ConfigError(f"{output}: not a plain file. Choose another {flag}")
    if output.exists() and not overwrite:
        raise ConfigError(f"{output}: exists already. Add --overwrite, or choose another {flag}")
    folder = resolve_link(output).parent
    if not folder.is_dir():
        raise EnvironmentFault(f"{folder}: no such folder. Create it, or choose another {flag}")
    if not os.access(folder, os.W_OK):
        raise EnvironmentFault(f"{folder}: cannot be written. Check its permissions")


def same_file(one: str, other: str) -> bool:
    """Whether two names lead to one file, which need not exist."""
    return Path(one).resolve() == Path(other).resolve()


# ---- Inputs and outputs


@contextmanager
def open_input(path: str | None, text: str | None = None) -> Iterator[ChunkSource]:
    """Standard input, or a file or pipe, or `text` as a line of it."""
    if text is not None:
        yield BytesIO(os.fsencode(text) + b"\n")
        return
    if path is None:
        if sys.stdin is None:
            raise DataError("standard input: closed. Open it, or name a file with --input")
        yield cast(ChunkSource, sys.stdin.buffer)  # its declared type lacks read1
        return
    with TextInput(Path(path), pipes=True) as file:
        yield file


def input_size(path: str | None) -> int | None:
    """Bytes to read, if known: not of standard input, and not of compressed text."""
    return None if path is None or path.endswith(".gz") else os.path.getsize(path) or None


@contextmanager
def open_output(path: str | None, *, replace: bool) -> Iterator[Sink]:
    """Standard output, or a file that appears under its name only when it is whole.

    Without `replace`, a file that has appeared there meanwhile is kept: see `writing_whole`.
    """
    if path is None:
        if sys.stdout is None:
            raise EnvironmentFault("standard output: closed. Open it, or name a file with --output")
        yield sys.stdout.buffer
        return
    output = resolve_link(Path(path))
    remove_leftovers(output)
    with writing_whole(output, replace=replace) as file:
        yield file


def write_responses(sink: Sink, responses: Iterable[str], name: str, *, first_line: int | None = None) -> None:
    """Write texts and flush. Raises EnvironmentFault, which names the line if `first_line` numbers the responses."""
    number = 0
    try:
        for number, response in enumerate(responses, first_line or 1):  # noqa: B007 (the handler names it)
            sink.write(response.encode())
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        where = "" if first_line is None else f" at line {number}"
        raise EnvironmentFault(f"{name}: {error.strerror}{where}. Make room, or choose another place") from error


def write_bytes(sink: Sink, content: bytes, name: str) -> None:
    """Write and flush. Raises EnvironmentFault."""
    try:
        sink.write(content)
        sink.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EnvironmentFault(f"{name}: {error.strerror}. Make room, or choose another place") from error


# ---- Lines


@dataclass(frozen=True)
class Line:
    number: int  # from 1
    text: str
    is_invalid: bool = False  # not UTF-8; each invalid byte has become U+FFFD


def decode_line(raw: bytes, number: int, *, name: str | None, strict: bool) -> Line:
    """Line `number` of `name` or standard input. With `strict`, raises DataError for one that is not UTF-8."""
    raw = raw.removeprefix(BOM) if number == 1 else raw
    try:
        return Line(number, raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        if strict:
            raise DataError(
                f"{name or STDIN}:{number}: byte 0x{raw[error.start]:02x} at column {error.start + 1} is not UTF-8."
                " Repair the line, or leave out --strict"
            ) from error
        return Line(number, raw.decode("utf-8", errors="replace"), is_invalid=True)


def warn_invalid(n_invalid: int, n_lines: int, *, unit: str = "line") -> None:
    if n_invalid:
        LOGGER.warning(
            "%d of %d %ss were not UTF-8; their bad bytes became U+FFFD (--strict stops instead)",
            n_invalid,
            n_lines,
            unit,
        )


# A field between tabs that is in quotes and has doubled ones in it: what a spreadsheet saves, and no one types.
_QUOTED_FIELD = re.compile(r'(?:^|\t)"[^"\t]*""(?:[^"\t]|"")*"(?:\t|$)')


class Filter(ABC):
    """Blocks of bytes in, responses out. `path` is the file that they come from, None for standard input."""

    progress = ""  # name of its progress bar
    greeting, prompt = "", "> "  # at a terminal; a filter without a greeting reads it as it reads a pipe
    reports_at_end = False  # True: of lines that are typed, too, rather than on each

    def __init__(self, path: str | None) -> None:
        self.path = path

    @abstractmethod
    def process_block(self, block: bytes) -> None:
        """Respond to whole lines."""

    def process_typed(self, line: bytes) -> None:
        """Respond to a line from a terminal."""
        self.process_block(line + b"\n")

    @abstractmethod
    def report(self) -> None:
        """Log what the responses do not show."""

    def end(self) -> None:
        """Write what has waited for the end of the input, and report."""
        self.report()

    def process_stream(self, source: ChunkSource) -> None:
        """Respond to what has arrived before more is read; then report. A file has a progress bar on a terminal."""
        with tqdm(
            total=input_size(self.path),
            unit="B",
            unit_scale=True,
            disable=True if self.path is None else None,  # None: drawn on a terminal only
            desc=self.progress,
            file=sys.stderr,
        ) as bar:
            for block in read_chunks(source, self.path or STDIN):
                self.process_block(block)
                bar.update(len(block))
        self.end()


class LineFilter(Filter):
    """Numbers and decodes lines, and passes them in blocks to `respond`, which a subclass defines."""

    unit = "line"  # what messages call a line

    def __init__(self, path: str | None, *, strict: bool) -> None:
        super().__init__(path)
        self.strict = strict
        self.n_lines, self.n_invalid = 0, 0
        self.n_quoted, self.first_quoted = 0, 0  # lines with fields in quotes, and the number of the first

    @abstractmethod
    def respond(self, lines: Sequence[Line]) -> None:
        """Write one response to each line."""

    def report(self) -> None:
        """Log what the responses do not show."""
        warn_invalid(self.n_invalid, self.n_lines, unit=self.unit)
        if self.n_quoted:
            LOGGER.warning(
                "%d of %d %ss have text in quotes with doubled quotes in it, as a spreadsheet saves it, the first is"
                " %s %d: the quotes were read as text. Save the %ss without them",
                *(self.n_quoted, self.n_lines, self.unit, self.unit, self.first_quoted, self.unit),
            )
            self.n_quoted = 0  # of lines that are typed each has its own report

    def process(self, raw_lines: Sequence[bytes]) -> None:
        """Respond to lines without their ends. They count only once the response is written."""
        first = self.n_lines + 1
        lines = [
            decode_line(raw, number, name=self.path, strict=self.strict) for number, raw in enumerate(raw_lines, first)
        ]
        self.respond(lines)
        self.n_lines += len(lines)
        self.n_invalid += sum(line.is_invalid for line in lines)
        for line in lines:
            if '""' in line.text and _QUOTED_FIELD.search(line.text):
                self.first_quoted = self.first_quoted if self.n_quoted else line.number
                self.n_quoted += 1

    def process_block(self, block: bytes) -> None:
        self.process(split_lines(block))


def run_filter(
    open_filter: Callable[[Sink, bool], Filter],
    *,
    input: str | None,
    output: str | None = None,
    overwrite: bool = False,
    text: str | None = None,
) -> None:
    """Respond to a file, to `text`, or to standard input, in a file that is whole or absent, or on standard output.

    `open_filter` gets where to write, and whether the lines are typed at a terminal. Raises TfmError.
    """
    with open_input(input, text) as source, open_output(output, replace=overwrite) as sink:
        is_typed = input is None and source.isatty()
        lines = open_filter(sink, is_typed)
        if is_typed and lines.greeting:
            LOGGER.info("%s", lines.greeting)
            read_terminal(lines.process_typed, prompt=lines.prompt)
            if lines.reports_at_end:
                lines.report()
        else:
            lines.process_stream(source)


# ---- Lines that are typed at a terminal


def read_terminal(respond: Callable[[bytes], None], *, prompt: str) -> None:
    """Pass each line typed to `respond`, until Ctrl-D, or Ctrl-C twice; once drops the line or its response."""
    just_interrupted = False
    with _line_reader(prompt) as read:
        while True:
            try:
                respond(read())
                just_interrupted = False
            except EOFError:
                _print_to_terminal("")
                return
            except KeyboardInterrupt:
                _print_to_terminal("" if just_interrupted else "\n(dropped; Ctrl-D or another Ctrl-C leaves)")
                if just_interrupted:
                    return
                just_interrupted = True


def _print_to_terminal(text: str) -> None:
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


@contextmanager
def _line_reader(prompt: str) -> Iterator[Callable[[], bytes]]:
    """A function that waits for a line and returns it without its end; it raises EOFError after the last.

    With both streams on the terminal, lines can be edited and recalled. Otherwise standard output is for results
    alone, which neither the prompt nor an editor may write to.
    """
    if not sys.stdout.isatty():
        yield lambda: _plain_line(prompt)
        return
    sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    with _history():
        yield lambda: input(prompt).encode("utf-8", errors="surrogateescape")


def _plain_line(prompt: str) -> bytes:
    if sys.stderr.isatty():
        print(prompt, end="", file=sys.stderr, flush=True)
    line: bytes = sys.stdin.buffer.readline()
    if not line:
        raise EOFError
    return line.removesuffix(b"\n")


@contextmanager
def _history() -> Iterator[None]:
    """Recall of lines typed in earlier sessions; a warning where they cannot be saved."""
    try:
        import readline
    except ImportError:  # some builds of Python have none; lines are then edited as the terminal does it
        yield
        return
    file = _load_history(readline)
    readline.set_history_length(HISTORY_LINES)
    try:
        yield
    finally:
        if file is not None:
            try:
                readline.write_history_file(file)
            except OSError as error:
                LOGGER.warning("%s: what was typed is not kept: %s", file, error.strerror or error)


def _load_history(readline: ModuleType) -> Path | None:
    """Read the history file, created with permissions for this user alone; None where there can be none."""
    try:
        file = history_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600))
        readline.read_history_file(file)
    except EnvironmentFault as error:
        LOGGER.warning("%s; what is typed is not kept", error)
        return None
    except OSError as error:
        LOGGER.warning("%s: what is typed is not kept: %s", file, error.strerror or error)
        return None
    return file


def history_file() -> Path:
    """The history file in the user's folder for state (XDG). Raises EnvironmentFault where it is unknown."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if Path(state).is_absolute() else folder_named("~/.local/state")  # relative values are ignored
    return folder / "tfm" / "history"
