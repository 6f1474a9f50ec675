"""The mistakes a user can make, each with its exit code.

TfmError
├── ConfigError       2  a key, value, flag or file name on the command line
├── DataError         3  a corpus that cannot be used
├── CheckpointError   4  a model file or checkpoint that cannot be used
├── EnvironmentFault  5  disk, device, permission, network
├── DivergedError     6  the loss stopped being a number
└── LockedError       7  another process owns the run directory
"""


class TfmError(Exception):
    """A user's mistake or an outside failure: printed as one line, without a traceback."""

    exit_code = 70


class ConfigError(TfmError):
    exit_code = 2


class DataError(TfmError):
    exit_code = 3


class CheckpointError(TfmError):
    exit_code = 4


class EnvironmentFault(TfmError):
    exit_code = 5


class DivergedError(TfmError):
    exit_code = 6


class LockedError(TfmError):
    exit_code = 7


def quoted(text: str, limit: int = 80) -> str:
    """`text` as it may be shown in a terminal: control characters escaped, cut at `limit` characters."""
    shown = repr(text)
    return shown if len(shown) <= limit else shown[: limit - 2] + "…'"
