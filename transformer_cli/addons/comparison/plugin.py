"""What this add-on brings."""

from transformer_cli.addons.comparison.keys import CompareConfig
from transformer_cli.command import Command, register
from transformer_cli.config import comet


def _run(config: CompareConfig) -> None:
    from transformer_cli.addons.comparison.run_compare import run

    run(config)


register(
    Command(
        "compare",
        help="say which of several systems translates better, whether by chance, and where; with a page",
        example="tfm compare runs/old runs/new",
        schema=CompareConfig,
        run=_run,
        groups={"data": None, "decode": "beam"},
        group_flags={**comet.FLAGS, "--beam": "decode.beam_size"},
        needs_word="Name two or more, as `tfm compare runs/old runs/new`",
    )
)
