"""The task of translation, of parallel text and the models that this program is for."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.config.tags import language_of, languages_of, tags_in
from transformer_cli.config.tasks import BLEU, TASKS, Reported, Task
from transformer_cli.config.train import TrainConfig
from transformer_cli.models.registry import MODELS


class Translation(Task):
    """A text is translated; checkpoints are ranked by dev BLEU."""

    model, what, command = "transformer", "a translator", "translate"
    metric = BLEU
    most_epochs, fewest_updates = 50, 1000
    recipe = "auto"

    def validator(self, config: TrainConfig, prepared: Any, device: Any) -> Any:
        from transformer_cli.training.validation import TranslationValidator

        return TranslationValidator(config, prepared, device)

    def evaluate(self, config: EvaluateConfig, opened: Any, device: Any) -> None:
        from transformer_cli.tasks.evaluate_translations import evaluate

        evaluate(config, opened, device)

    def report(self, config: TrainConfig, prepared: Any, result: Any, device: Any) -> Reported:
        from transformer_cli.tasks.evaluate_translations import report

        return report(config, prepared, result, device)

    def evaluate_files(self, config: EvaluateConfig, hypotheses: Sequence[Any]) -> None:
        from transformer_cli.tasks.score_translations import score_files

        score_files(config, hypotheses)

    def next_commands(self, config: TrainConfig, which: str) -> Iterator[str]:
        tags = _example_tags(config)
        which += f" --tag {shlex.quote(' '.join(tags))}" if tags else ""
        text, translation, test, reference = _example_files(config, tags)
        yield f"tfm translate{which} < {text} > {translation}"
        yield f"tfm evaluate{which} --source {test} --reference {reference}"


def _example_tags(config: TrainConfig) -> list[str]:
    """Tags for a text without any: those that name a language where there are several, else those of all corpora."""
    entries, target = list(config.data.tags), config.data.target_lang
    if len(languages_of(target)) > 1:
        entries = [entry for entry in entries if language_of(tags_in(entry), target)]
    return tags_in(entries[0]) if entries and "" not in entries else []


def _example_files(config: TrainConfig, tags: Sequence[str]) -> Iterator[str]:
    """Names of a text, its translation, a test set and its reference: four files, also within one language."""
    target = language_of(tags, config.data.target_lang) or languages_of(config.data.target_lang)[0]
    sources = languages_of(config.data.source_lang)
    source = next((one for one in sources if one.casefold() != target.casefold()), sources[0])
    is_one = source.casefold() == target.casefold()
    for name, language in (
        ("text", source),
        ("translation" if is_one else "text", target),
        ("test", source),
        ("reference" if is_one else "test", target),
    ):
        yield shlex.quote(f"{name}.{language}")


@MODELS.register("transformer")
def _transformer(config: ModelConfig, source: Vocabulary, target: Vocabulary, options: Any) -> Any:
    from transformer_cli.models.transformer import Transformer

    return Transformer(config, source, target, options)


TASKS.register("translation")(Translation())
