"""Standard streams that block: reads return b"" only at the end of input, writes are complete or raise an error.

Python's own take an empty read of a non-blocking pipe for the end, and do not check how much of an unbuffered write
was done (PYTHONUNBUFFERED). Whether a pipe blocks is shared with who handed it over, so that it stays as it is.
On Windows pipes always block, and only Python's own streams know how to write to a console.
"""

import io
import os
import select
import sys

from transformer_cli.errors import EnvironmentFault
from transformer_cli.files import naming

BUFFER_BYTES = 1 << 16


class Input(io.RawIOBase):
    """Reads of a descriptor that wait until something is there, and give b"" at the end alone."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self.name = descriptor, name

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        with naming(self.name):
            while True:
                try:
                    return os.readv(self._descriptor, [buffer])
                except BlockingIOError:
                    _wait(self._descriptor, select.POLLIN)


class BufferedOutput(io.BufferedIOBase):
    """Collects what is written, and writes all of it when flushed: nothing is left out, nothing comes twice."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self.name = descriptor, name
        self._pending = bytearray()

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, content: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        self._pending += content
        if len(self._pending) >= BUFFER_BYTES:
            self.flush()
        return len(content)

    def flush(self) -> None:
        """Raises OSError, which names the stream; what has not been written by then stays for the next try."""
        while self._pending:
            block = bytes(self._pending[:BUFFER_BYTES])
            del self._pending[:BUFFER_BYTES]  # first: a signal's handler may print meanwhile
            n_written = 0
            try:
                while n_written < len(block):
                    n_written += self._write_some(block[n_written:])
            finally:
                self._pending[:0] = block[n_written:]

    def _write_some(self, block: bytes) -> int:
        with naming(self.name):
            try:
                return os.write(self._descriptor, block)
            except BlockingIOError:
                _wait(self._descriptor, select.POLLOUT)
                return 0


class Messages(BufferedOutput):
    """The stream of messages, which are discarded where they cannot be written: that must not end the command."""

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            self._pending.clear()


def _wait(descriptor: int, event: int) -> None:
    """Waits until the descriptor is ready, or the other end has gone."""
    poll = select.poll()
    poll.register(descriptor, event)
    poll.poll()


def replace_standard_streams() -> None:
    """Let sys.stdin, sys.stdout and sys.stderr wait; one that is closed stays None."""
    if not hasattr(os, "readv") or not hasattr(select, "poll"):
        return
    if sys.stdin is not None:
        old = sys.stdin
        reader = io.BufferedReader(Input(old.fileno(), "standard input"), BUFFER_BYTES)
        sys.stdin = io.TextIOWrapper(reader, old.encoding, old.errors, line_buffering=old.isatty())
    if sys.stdout is not None:
        old = sys.stdout
        output = BufferedOutput(old.fileno(), "standard output")
        sys.stdout = io.TextIOWrapper(output, old.encoding, old.errors, line_buffering=old.isatty())
    if sys.stderr is not None:
        old = sys.stderr
        messages = Messages(old.fileno(), "standard error")
        sys.stderr = io.TextIOWrapper(messages, old.encoding, old.errors, line_buffering=True)


def require_stdout(printed: str) -> None:
    """Raise EnvironmentFault where standard output is closed, before the work on what is to be `printed` there."""
    if sys.stdout is None:
        raise EnvironmentFault(f"standard output: closed. Open it, for {printed} to be printed")
