"""What this add-on brings."""

from transformer_cli.addons.classification.keys import ClassifyConfig
from transformer_cli.addons.classification.task import Classification
from transformer_cli.command import Command, register
from transformer_cli.config.tasks import TASKS


def _run(config: ClassifyConfig) -> None:
    from transformer_cli.addons.classification.run_classify import run

    run(config)


register(
    Command(
        "classify",
        help="classify each line of standard input, or --input, in order",
        example="tfm classify --probabilities < questions.txt",
        schema=ClassifyConfig,
        run=_run,
        input_hint="Give the text on standard input, or a file with --input",
    )
)
TASKS.register("classification")(Classification())
