"""A conversation at a terminal: a line typed, an answer, the next line."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from transformer_cli.environment import folder_named
from transformer_cli.errors import EnvironmentFault
from transformer_cli.logs import LOGGER

HISTORY_LINES = 1000


def converse(answer: Callable[[bytes], None], *, prompt: str) -> None:
    """Give each line that is typed to `answer`, until Ctrl-D, or Ctrl-C twice; once drops the line, or its answer."""
    just_interrupted = False
    with _line_reader(prompt) as read:
        while True:
            try:
                answer(read())
                just_interrupted = False
            except EOFError:
                _say("")
                return
            except KeyboardInterrupt:
                _say("" if just_interrupted else "\n(dropped; Ctrl-D or another Ctrl-C leaves)")
                if just_interrupted:
                    return
                just_interrupted = True


def _say(text: str) -> None:
    """Something that is for a person alone."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


@contextmanager
def _line_reader(prompt: str) -> Iterator[Callable[[], bytes]]:
    """What waits for a line, without its end; it raises EOFError after the last.

    With both streams on the terminal, lines can be edited and called back. Otherwise standard output is for results
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
    """Lines of earlier conversations, which `input` offers; where they cannot be kept, a warning says so."""
    try:
        import readline
    except ImportError:  # some builds of Python have none; lines are then edited as the terminal does it
        yield
        return
    file = _kept_in(readline)
    readline.set_history_length(HISTORY_LINES)
    try:
        yield
    finally:
        if file is not None:
            try:
                readline.write_history_file(file)
            except OSError as error:
                LOGGER.warning("%s: what was typed is not kept: %s", file, error.strerror or error)


def _kept_in(readline: ModuleType) -> Path | None:
    """The file with the lines of earlier conversations, which are read; it is made for this user alone."""
    try:
        file = history_file()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
        readline.read_history_file(file)
    except EnvironmentFault as error:
        LOGGER.warning("%s; what is typed is not kept", error)
        return None
    except OSError as error:
        LOGGER.warning("%s: what is typed is not kept: %s", file, error.strerror or error)
        return None
    return file


def history_file() -> Path:
    """In the user's folder for state (XDG). Raises EnvironmentFault where nobody knows it."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else folder_named("~/.local/state")  # others are to be ignored
    return folder / "tfm" / "history"
