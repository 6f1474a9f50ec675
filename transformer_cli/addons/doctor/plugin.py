"""What this add-on brings."""

from transformer_cli.addons.doctor.keys import DoctorConfig
from transformer_cli.command import Command, register
from transformer_cli.commands.languages import missing_languages


def _run(config: DoctorConfig) -> None:
    if config.suspects is not None:
        from transformer_cli.addons.doctor.show_suspects import run
    else:
        from transformer_cli.addons.doctor.run_doctor import run
    run(config)


register(
    Command(
        "doctor",
        help="check the text, memory, time and disk of a training run before it starts",
        example="tfm doctor model=base data=wmt14_en_de",
        schema=DoctorConfig,
        run=_run,
        recipe_by_task=True,
        missing=missing_languages,
    )
)
