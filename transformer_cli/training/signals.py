"""Stopping when the system asks: finish the step, save, exit."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from transformer_cli.errors import Stopped

# SIGUSR1 is Slurm's usual warning; SIGBREAK comes when a window of Windows is closed, which has no SIGHUP.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGBREAK")
IDLE = "nothing was being trained yet"
SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


class StopNow(Exception):
    """What was going on is left unfinished, because there is a request to stop."""


class _Interruption(BaseException):
    """Raised by the handler. Libraries catch `Exception`, and some make another one of it."""


class StopRequest:
    """The signal that asks this process to stop, once there is one.

    Before training has begun there is nothing to save, and what is going on is interrupted on the spot. `idle` says
    what a stop means then.
    """

    def __init__(self, *, is_reporting: bool = True, idle: str = IDLE) -> None:
        self.signal = 0  # none yet
        self.is_training = False
        self.is_reporting = is_reporting
        self._idle = idle

    def note_end(self) -> None:
        """Notes that training is over, so that a stop loses nothing. Raises Stopped if a signal came until now."""
        self.is_training, self._idle = False, "the model is trained, and the same command reports its scores"
        if self.signal:
            raise self.stopped()

    def stopped(self) -> Stopped:
        return Stopped(self.signal, self._idle)

    def receive(self, signum: int, frame: FrameType | None = None) -> None:
        """The handler: it runs between any two instructions of the main thread."""
        if not self.is_training:
            self.signal = signum
            raise _Interruption
        if self.signal and signum == signal.SIGINT:
            raise KeyboardInterrupt
        if not self.signal:
            self.signal = signum
            again = "; again to stop at once" if signum == signal.SIGINT else ""
            self._announce(f"tfm: {signal.Signals(signum).name}: saving after this step{again}\n")

    def _announce(self, line: str) -> None:
        if self.is_reporting:
            with suppress(OSError):
                below_the_bar = "\n" if os.isatty(2) else ""
                os.write(2, (below_the_bar + line).encode())  # print could be interrupting itself


@contextmanager
def stop_signals(*, is_reporting: bool = True, idle: str = IDLE) -> Iterator[StopRequest]:
    """Receive the signals meanwhile. In another thread than the main one, handlers stay as they are.

    Raises Stopped for one that comes outside of training, whatever else has become of it on the way.
    """
    request = StopRequest(is_reporting=is_reporting, idle=idle)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # What was ignored stays so: nohup does that with SIGHUP.
    before = {signum: signal.getsignal(signum) for signum in SIGNALS if signal.getsignal(signum) != signal.SIG_IGN}
    try:
        for signum in before:
            signal.signal(signum, request.receive)
        yield request
    except (_Interruption, Exception) as error:
        if request.signal and not request.is_training and not isinstance(error, Stopped):
            raise request.stopped() from error
        raise
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
