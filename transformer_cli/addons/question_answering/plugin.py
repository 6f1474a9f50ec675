"""What this add-on brings."""

from functools import partial
from typing import Any

from transformer_cli.addons.question_answering.keys import AnswerConfig
from transformer_cli.addons.question_answering.squad import Squad, SquadFormat, SquadOptions
from transformer_cli.addons.question_answering.task import QuestionAnswering
from transformer_cli.command import Command, register
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.config.tasks import TASKS
from transformer_cli.data.readers.builtin import CORPORA, read_builtin
from transformer_cli.data.registry import FORMATS, READERS
from transformer_cli.errors import ConfigError
from transformer_cli.models.registry import MODELS


def _run(config: AnswerConfig) -> None:
    from transformer_cli.addons.question_answering.run_answer import run

    run(config)


register(
    Command(
        "answer",
        help="answer questions by a span of a passage, for each line of standard input, or --input, in order",
        example='tfm answer --passage passage.txt --question "Who sold the lamp?"',
        schema=AnswerConfig,
        run=_run,
        input_hint="Give the question with --question, or lines on standard input, or a file with --input",
    )
)


@MODELS.register("span_extractor")
def _span_extractor(config: ModelConfig, source: Vocabulary, target: Vocabulary, options: Any) -> Any:
    from transformer_cli.addons.question_answering.extractor import SpanExtractor

    if config.pooling != "first":
        raise ConfigError(
            f"model.pooling={config.pooling}: the ends of an answer are predicted from the states of all tokens,"
            " and nothing is pooled. Leave it out"
        )
    return SpanExtractor(config, source, target, options)


READERS.register("squad", options=SquadOptions)(Squad)
FORMATS.register("squad")(SquadFormat())
CORPORA.register("demo_questions")(partial(read_builtin, "demo_questions"))
TASKS.register("question_answering")(QuestionAnswering())
