"""What this add-on brings."""

from transformer_cli.addons.students.keys import ShortlistConfig
from transformer_cli.command import Command, register


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
