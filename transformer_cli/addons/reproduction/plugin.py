"""What this add-on brings."""

from collections.abc import Mapping
from typing import Any

from transformer_cli.addons.reproduction.keys import ReproduceConfig
from transformer_cli.command import TRAINING_GROUPS, Command, register


def _with_experiment(overrides: list[str], flags: Mapping[str, Any]) -> list[str]:
    from transformer_cli.addons.reproduction.records import with_experiment

    return with_experiment(overrides, flags)


def _run(config: ReproduceConfig) -> None:
    from transformer_cli.addons.reproduction.run_reproduce import run

    run(config)


register(
    Command(
        "reproduce",
        help="train a published or measured recipe beside the curve of our own run, and compare the scores at the end",
        example="tfm reproduce demo_en_fr",
        schema=ReproduceConfig,
        run=_run,
        overrides=_with_experiment,
        goes_on_from="checkpoint",
        groups=TRAINING_GROUPS,
        recipe_by_task=True,
        word_choices="reproductions",
    )
)
