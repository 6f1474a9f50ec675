"""The mistakes a user can make, each with its exit code.

TfmError
├── ConfigError       2  a key, value, flag or file name on the command line
│   └── TakenError       a file that has appeared where the result was to go, which is kept beside it
├── DataError         3  a corpus that cannot be used
├── CheckpointError   4  a model file or checkpoint that cannot be used
├── EnvironmentFault  5  disk, device, permission, network
│   └── LostRankError    another process of the same training is gone or out of reach
├── DivergedError     6  the loss stopped being a number
├── LockedError       7  another process owns the run directory
├── FlaggedError      8  a result that is written, and has to be checked, where this was to be told
├── Stopped         128+ a signal: 130 SIGINT, 143 SIGTERM, 129 SIGHUP, 138 SIGUSR1
└── ElsewhereError    *  what ended another process of the same training, with its code
"""

import signal


class TfmError(Exception):
    """A user's mistake or an outside failure: printed as one line, without a traceback."""

    exit_code = 70
    is_reporting: bool | None = None  # whether this process prints it; None: the first rank does


class ConfigError(TfmError):
    exit_code = 2


class TakenError(ConfigError):
    pass


class DataError(TfmError):
    exit_code = 3


class CheckpointError(TfmError):
    exit_code = 4


class EnvironmentFault(TfmError):
    exit_code = 5


class LostRankError(EnvironmentFault):
    reporter = 0  # the first of the ranks that are left


class DivergedError(TfmError):
    exit_code = 6


class LockedError(TfmError):
    exit_code = 7


class FlaggedError(TfmError):
    exit_code = 8


class Stopped(TfmError):
    """A signal ended the command, which is not a fault."""

    def __init__(self, signum: int, what: str) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}: {what}")
        self.exit_code = 128 + signum


class ElsewhereError(TfmError):
    def __init__(self, message: str, exit_code: int, *, is_reporting: bool) -> None:
        super().__init__(message)
        self.exit_code, self.is_reporting = exit_code, is_reporting


def quoted(text: str, limit: int = 80) -> str:
    """`text` as it may be shown in a terminal: control characters escaped, cut at `limit` characters."""
    shown = repr(text)
    return shown if len(shown) <= limit else shown[: limit - 2] + "…'"


def printable(message: str, limit: int = 4000) -> str:
    """`message` on one line and without what a terminal would obey, whatever names and texts it shows."""
    line = " ".join(message.split("\n"))
    if len(line) > limit:
        line = f"{line[: limit // 2]}…{line[-limit // 2 :]}"  # what to do stands at the end
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in line)
