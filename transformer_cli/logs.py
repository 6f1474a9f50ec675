"""Where messages go: stderr, one line each, above a progress bar if there is one."""

import logging
import sys

from tqdm import tqdm

LOGGER = logging.getLogger("tfm")


class _AboveTheBar(logging.Handler):
    """Writes through tqdm, which redraws its bar below the line."""

    def emit(self, record: logging.LogRecord) -> None:
        mark = "" if record.levelno == logging.INFO else f"tfm: {record.levelname.lower()}: "
        tqdm.write(mark + record.getMessage(), file=sys.stderr)


def start() -> None:
    """Show messages of level INFO and above on stderr."""
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    if not any(isinstance(handler, _AboveTheBar) for handler in LOGGER.handlers):
        LOGGER.addHandler(_AboveTheBar())
