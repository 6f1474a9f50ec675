"""What this add-on brings."""

from typing import Any

from transformer_cli.addons.tagging.conll import Conll
from transformer_cli.addons.tagging.keys import TagConfig
from transformer_cli.addons.tagging.task import Tagging
from transformer_cli.command import Command, register
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.config.tasks import TASKS
from transformer_cli.data.registry import READERS
from transformer_cli.models.registry import MODELS


def _run(config: TagConfig) -> None:
    from transformer_cli.addons.tagging.run_tag import run

    run(config)


register(
    Command(
        "tag",
        help="label each word of each line of standard input, or --input, in order",
        example="tfm tag < sentences.txt",
        schema=TagConfig,
        run=_run,
        input_hint="Give the text on standard input, or a file with --input",
    )
)


@MODELS.register("tagger")
def _tagger(config: ModelConfig, source: Vocabulary, target: Vocabulary, options: Any) -> Any:
    from transformer_cli.addons.tagging.tagger import Tagger

    return Tagger(config, source, target, options)


READERS.register("conll")(Conll)
TASKS.register("token_classification")(Tagging())
