"""`tfm evaluate` of a model of text, and what `tfm train` reports when it has trained one."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.addons.language_models.perplexity import TextScores, TextSums, text_scores
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import Reported
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.lines import read_lines
from transformer_cli.data.prepare import Prepared
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.model_test_sets import kept_test, load_test, own_corpus
from transformer_cli.evaluation.scoring import refuse_beyond_table, warn_longer
from transformer_cli.inference.precision import in_precision
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.training.result import TrainResult


@dataclass(frozen=True)
class TextSet:
    name: str
    lines: Sequence[str]


# The scores of a model on a test set.
ScoreText = Callable[[ModelFile, TextSet, torch.device, DecodeConfig], TextSums]


def evaluate_text(
    config: EvaluateConfig, models: Sequence[ModelFile], paths: Sequence[Path], device: torch.device, measure: ScoreText
) -> None:
    """Print the scores of a model on its test set, on another corpus's, or on the user's own file."""
    test = text_to_score(config, models, paths)
    print_text_scores(measure(models[0], test, device, config.decode), test, paths[0], as_json=config.json)


def text_to_score(config: EvaluateConfig, models: Sequence[ModelFile], paths: Sequence[Path]) -> TextSet:
    """The text that a model without a source is scored on.

    Raises ConfigError for a second model, and for what is of translations.
    """
    what = models[0].task.what
    config.refuse_translating(what, paths)
    if config.save is not None:
        raise ConfigError(f"--save {config.save}: {what} has no output to save. Leave it out")
    if config.source is not None:
        return _own_file(config.source)
    return _corpus_test_set(config, models[0], paths[0], what)


def report_training(
    config: TrainConfig, prepared: Prepared, result: TrainResult, device: torch.device, measure: ScoreText
) -> Reported:
    """The same of the model file that `tfm train` shipped; its scores, and why it is not usable yet."""
    if prepared.test is None:
        LOGGER.info("no test set, so no perplexity: name one with data.test, or give tfm evaluate --source")
        return {}, ""
    test = TextSet(config.data.test_name, prepared.test.targets)
    found = measure(read_model(result.model_path), test, device, config.decode)
    print_text_scores(found, test, result.model_path)
    return {f"test {name}": score for name, score in found.scores().items()}, ""


def print_text_scores(found: TextSums, test: TextSet, path: Path, *, as_json: bool = False) -> None:
    """Print the figures of a model at `path` to stdout."""
    if as_json:
        print(json.dumps({"model": str(path), "test_set": test.name, **found.as_dict()}, indent=2))
    else:
        print(f"{test.name}, {found.n_lines:,} lines, {path}")
        print("\n".join(found.lines()), flush=True)  # before a message that says so
    if found.n_blank:
        LOGGER.info("%s: %d blank lines, of which nothing is counted", test.name, found.n_blank)
    if found.n_unknown:
        LOGGER.warning("%s: %d pieces are unknown to the vocabulary. %s", test.name, found.n_unknown, found.of_unknown)


def measure(model: ModelFile, test: TextSet, device: torch.device, decode: DecodeConfig) -> TextScores:
    """Raises DataError for a line that the model cannot read, and where there is none."""
    if not any(line.strip() for line in test.lines):
        raise DataError(f"{test.name}: holds no text. Name another --source")
    lengths = [len(ids) for ids in model.tokenizers.target.encode(test.lines)]
    refuse_beyond_table(model, lengths, first_line=1)
    warn_longer(model, lengths, first_line=1)
    with tqdm(total=len(test.lines), unit="line", desc="read", disable=None, leave=False, file=sys.stderr) as bar:
        return text_scores(
            in_precision(model.build_as(LanguageModel, device), decode.precision, device),
            model.tokenizers,
            test.lines,
            device=device,
            batch_tokens=decode.batch_tokens,
            on_progress=bar.update,
        )


def _own_file(name: str) -> TextSet:
    path = Path(name)
    return TextSet(path.name, read_lines(path).texts)


def _corpus_test_set(config: EvaluateConfig, model: ModelFile, path: Path, what: str) -> TextSet:
    """The test set of `data=`, or of the text that the model was trained on."""
    data = own_corpus(model, path) if config.data is None else config.data
    kept = kept_test([model], path) if config.data is None else None
    if data.trained.has_source:
        raise ConfigError(
            f"data={data.name}: is for data.task={data.task}, and this is {what}. Give --source FILE,"
            " or add data=text data.test=FILE"
        )
    return TextSet(data.test_name, load_test(data, [model], kept).targets)
