"""`tfm average`."""

from transformer_cli.command import Command, register
from transformer_cli.commands.average.keys import AverageConfig


def _run(config: AverageConfig) -> None:
    from transformer_cli.commands.average.run import run

    run(config)


register(
    Command(
        "average",
        help="average the weights of several models, or of a run's last checkpoints",
        example="tfm average --last 5 --output average.safetensors",
        schema=AverageConfig,
        run=_run,
        input_hint="Name models with --checkpoint",
    )
)
