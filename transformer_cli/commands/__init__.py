"""The commands of the translator, in the order of `tfm --help`, and its task. Each imports its work when it runs."""

from transformer_cli.tasks import translation

from transformer_cli.commands import (  # isort: skip
    train,
    translate,
    evaluate,
    prepare,
    score,
    average,
    inspect,
    config,
    replay,
)

__all__ = [
    "average",
    "config",
    "evaluate",
    "inspect",
    "prepare",
    "replay",
    "score",
    "train",
    "translate",
    "translation",
]
