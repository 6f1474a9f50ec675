"""Work on parts of a text by several processes, with the results in the order of the parts."""

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from transformer_cli.errors import EnvironmentFault
from transformer_cli.system import without_main_module

_PartT = TypeVar("_PartT")
_ResultT = TypeVar("_ResultT")


def in_processes(
    work: Callable[[_PartT], _ResultT], parts: Iterable[_PartT], *, n_processes: int, what: str
) -> Iterator[_ResultT]:
    """`work` of each part, in order, the same whatever the number of processes; one process is this one.

    `work`, parts and results are pickled. `what` completes "a process that …". Raises EnvironmentFault.
    """
    if n_processes <= 1:
        yield from map(work, parts)
        return
    with ExitStack() as cleanup:
        workers = [_start(work, cleanup) for _ in range(n_processes)]
        n_sent = n_received = 0
        try:
            # A worker is sent a part when it has handed back the last one: neither ever waits for the other to read.
            for part in parts:
                if n_sent - n_received == n_processes:
                    yield workers[n_received % n_processes].recv()
                    n_received += 1
                workers[n_sent % n_processes].send(part)
                n_sent += 1
            while n_received < n_sent:
                yield workers[n_received % n_processes].recv()
                n_received += 1
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise EnvironmentFault(f"data: a process that {what} was killed. Free memory and run again") from None


def _start(work: Callable[[Any], Any], cleanup: ExitStack) -> Connection:
    """A process that works on what it is sent, until this end of the connection is closed or this process dies."""
    context = get_context("spawn")  # a fork would copy threads' locks as they happen to be
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), name="data", daemon=True)
    with without_main_module():
        process.start()
    theirs.close()
    cleanup.callback(process.join)
    cleanup.callback(ours.close)  # before that
    return ours


def _serve(connection: Connection, work: Callable[[Any], Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C reaches every process; this one ends with the first
    while True:
        try:
            connection.send(work(connection.recv()))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return
