"""Messages on stderr, one line each, above a progress bar if there is one."""

import logging
import os
import sys

from transformer_cli.environment import concealed
from transformer_cli.errors import printable

LOGGER = logging.getLogger("tfm")


class _AboveTheBar(logging.Handler):
    """Writes through tqdm, which redraws its bar below the line."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm  # which takes longer to import than `--help` may take

        mark = "" if record.levelno == logging.INFO else f"tfm: {record.levelname.lower()}: "
        tqdm.write(mark + printable(concealed(record.getMessage())), file=sys.stderr)


def is_first_rank() -> bool:
    """Whether this process is the one that logs, of those that torchrun has started."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK") == "0"


def start() -> None:
    """Show messages of level INFO and above on stderr."""
    LOGGER.setLevel(logging.INFO if is_first_rank() else logging.CRITICAL)
    LOGGER.propagate = False
    if not any(isinstance(handler, _AboveTheBar) for handler in LOGGER.handlers):
        LOGGER.addHandler(_AboveTheBar())
