"""`tfm replay`."""

from transformer_cli.command import Command, register
from transformer_cli.commands.replay.keys import ReplayConfig


def _run(config: ReplayConfig) -> None:
    from transformer_cli.commands.replay.run import run

    run(config)


register(
    Command(
        "replay",
        help="repeat the update at which a run diverged",
        example="tfm replay runs/NAME/incidents/step-00001204",
        schema=ReplayConfig,
        run=_run,
        needs_word="Name the folder that a diverged run has left, as runs/NAME/incidents/step-00001204",
    )
)
