"""tfm: train and run Transformer translation models.

The Python API (transformer_cli/api.py) is imported when one of its names is first used, and torch with it.
"""

from typing import Any

from transformer_cli.version import __version__ as __version__

API = ("load", "load_classifier", "load_tagger", "score", "bleu", "train")


def __getattr__(name: str) -> Any:
    if name in API:
        from transformer_cli import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *API])
