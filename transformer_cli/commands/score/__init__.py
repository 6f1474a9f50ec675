"""`tfm score`."""

from transformer_cli.command import Command, register
from transformer_cli.commands.score.keys import ScoreConfig


def _run(config: ScoreConfig) -> None:
    from transformer_cli.commands.score.run import run

    run(config)


register(
    Command(
        "score",
        help="print the log-probability that a model gives to existing translations, or to lines of text",
        example="tfm score --source news.en --translation news.de",
        schema=ScoreConfig,
        run=_run,
        input_hint="Name files with --source and --translation, or give source<TAB>translation on standard input",
    )
)
