"""The task of question answering: the answer to a question is a span of a passage."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transformer_cli.addons.question_answering.questions import ENDS, ENDS_OR_NONE, F1
from transformer_cli.config.data import DataConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import Reported, Task
from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import DataError


class QuestionAnswering(Task):
    """The first and the last token of the answer are found in a passage."""

    has_labels, has_spans, reader, page = True, True, "squad", "answering"
    corpora = ("demo_questions",)
    files = "a file of SQuAD's JSON, as in data.train=train-v1.1.json"
    leak = "training questions are questions of it, of the same passage", "with the same answers"
    model, what, command = "span_extractor", "a question answering model", "answer"
    also_from = ("transformer", "classifier", "tagger", "encoder", "decoder")
    metric, unit = F1, "answer ends"
    most_epochs, fewest_updates = 10, 1000
    recipe = "questions"

    def labels_of(self, target: str) -> list[str]:
        return []

    def find_labels(self, targets: Iterable[str]) -> list[str]:
        return list(ENDS_OR_NONE if any(target == "[]" for target in targets) else ENDS)

    def scored_text(self, text: Any, labels: Sequence[str], split: str, config: DataConfig) -> Any:
        if not text.sources:
            raise DataError(f"data.{split}: holds no question. Name {self.files}")
        return text

    def encode(
        self, text: Any, tokenizers: Any, labels: Sequence[str], config: DataConfig, report: Any, **how: Any
    ) -> Any:
        from transformer_cli.addons.question_answering.encoding import encoded_spans

        return encoded_spans(text, tokenizers, labels, config, report, **how)

    def validator(self, config: TrainConfig, prepared: Any, device: Any) -> Any:
        from transformer_cli.addons.question_answering.validator import SpanValidator

        return SpanValidator(config, prepared, device)

    def evaluate(self, config: EvaluateConfig, opened: Any, device: Any) -> None:
        from transformer_cli.addons.question_answering.evaluate_answers import run

        run(config, opened.models, opened.paths, device)

    def report(self, config: TrainConfig, prepared: Any, result: Any, device: Any) -> Reported:
        from transformer_cli.addons.question_answering.evaluate_answers import report_training

        return report_training(config, prepared, result, device)

    def evaluate_files(self, config: EvaluateConfig, hypotheses: Sequence[Any]) -> None:
        from transformer_cli.addons.question_answering.score_answers import score_answers

        (lines,) = hypotheses
        score_answers(config, lines)

    def next_commands(self, config: TrainConfig, which: str) -> Iterator[str]:
        yield f'tfm answer{which} --passage passage.txt --question "Who …?"'
