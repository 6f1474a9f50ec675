"""`tfm inspect`."""

from transformer_cli.command import Command, register
from transformer_cli.commands.inspect.keys import InspectConfig


def _run(config: InspectConfig) -> None:
    from transformer_cli.commands.inspect.run import run

    run(config)


register(
    Command(
        "inspect",
        help="print what a model file, run, checkpoint or export says of itself",
        example="tfm inspect model.safetensors",
        schema=InspectConfig,
        run=_run,
    )
)
