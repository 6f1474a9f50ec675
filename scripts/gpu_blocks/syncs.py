"""Host syncs that torch detects: where the CPU waits for the GPU, with their places in the code."""

import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

PACKAGE = "transformer_cli"
NOT_OURS = "benchmarks"  # of the package


@contextmanager
def counted_syncs() -> Iterator[Counter[str]]:
    """Counts by place. Waiting for an event, as for a copy that was begun earlier, is no sync of this kind."""
    places: Counter[str] = Counter()

    def show(message: Any, *rest: Any, **options: Any) -> None:
        if "synchroniz" in str(message):
            places[place()] += 1

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode("default")


@contextmanager
def refused_syncs() -> Iterator[None]:
    """The first sync raises RuntimeError."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def place() -> str:
    """The innermost line of ours on the stack, or the innermost of any package."""
    frames = [one for one in traceback.extract_stack() if one.filename not in (__file__, warnings.__file__)]
    of_package = [one for one in frames if f"/{PACKAGE}/" in one.filename and f"/{NOT_OURS}/" not in one.filename]
    innermost = of_package[-1] if of_package else frames[-1]
    return f"{shortened(innermost.filename)}:{innermost.lineno}"


def shortened(filename: str) -> str:
    parts = Path(filename).parts
    return "/".join(parts[parts.index(PACKAGE) :]) if PACKAGE in parts else Path(filename).name
