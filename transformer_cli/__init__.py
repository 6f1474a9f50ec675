"""tfm: train and run Transformer translation models.

The Python API (transformer_cli/api.py) is imported when one of its names is first used, and torch with it.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

API = ("load", "score", "bleu", "train")


def __getattr__(name: str) -> Any:
    if name in API:
        return getattr(import_module("transformer_cli.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *API])
