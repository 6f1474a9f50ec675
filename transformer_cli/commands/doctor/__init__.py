"""`tfm doctor`."""

from transformer_cli.command import Command, register
from transformer_cli.commands.doctor.keys import DoctorConfig


def _run(config: DoctorConfig) -> None:
    from transformer_cli.commands.doctor.run import run

    run(config)


register(
    Command(
        "doctor",
        help="check the text, memory, time and disk of a training run before it starts",
        example="tfm doctor model=base data=wmt14_en_de",
        schema=DoctorConfig,
        run=_run,
    )
)
