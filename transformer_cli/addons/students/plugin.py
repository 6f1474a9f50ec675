"""What this add-on brings."""

from collections.abc import Mapping
from typing import Any

from transformer_cli.addons.students.keys import DistillConfig, ShortlistConfig
from transformer_cli.command import TRAINING_GROUPS, Command, register


def _run(config: ShortlistConfig) -> None:
    from transformer_cli.addons.students.run_shortlist import run

    run(config)


register(
    Command(
        "shortlist",
        help="write the target tokens that each source token may become, for faster translation on a CPU",
        example="tfm shortlist --source train.en --translation train.de",
        schema=ShortlistConfig,
        run=_run,
    )
)


def _with_recipe(overrides: list[str], flags: Mapping[str, Any]) -> list[str]:
    from transformer_cli.addons.students.distillation import with_recipe

    return with_recipe(overrides, flags)


def _distill(config: DistillConfig) -> None:
    from transformer_cli.addons.students.run_distill import run

    run(config)


register(
    Command(
        "distill",
        help="train a small, fast student on the translations of a teacher, and export it",
        example="tfm distill runs/big train.en --size tiny",
        schema=DistillConfig,
        run=_distill,
        overrides=_with_recipe,
        goes_on_from="step",
        groups=TRAINING_GROUPS,
        recipe_by_task=True,
    )
)
