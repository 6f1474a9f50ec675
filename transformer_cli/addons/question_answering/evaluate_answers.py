"""`tfm evaluate` of an answer extractor, and what `tfm train` reports when it has trained one."""

from collections.abc import Sequence
from pathlib import Path

import torch

from transformer_cli.addons.classification.labelled_text import labelled_text, own_text
from transformer_cli.addons.classification.reports import print_classes, single_answer
from transformer_cli.addons.question_answering.answerer import reading_of
from transformer_cli.addons.question_answering.questions import Question, as_line
from transformer_cli.addons.question_answering.scores import AnswerReport, answer_report
from transformer_cli.config.data import DataConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import Reported
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.report import Provenance
from transformer_cli.evaluation.saved import place_to_save, save
from transformer_cli.evaluation.test_sets import TestSet
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.training.result import TrainResult


def run(config: EvaluateConfig, models: Sequence[ModelFile], paths: Sequence[Path], device: torch.device) -> None:
    """Print how well a model answers its test set, that of another corpus, or the user's own file."""
    config.refuse_translating("a question answering model", paths)
    model, path = models[0], paths[0]
    if config.source is not None:
        name = Path(config.source).name
        text = own_text(config.source, target_lang="text", task="question_answering", reader="squad")
    else:
        data, text = labelled_text(config, model, path, _check_questions)
        name = data.test_name
    _score(config, model, path, name, text, device)


def report_training(config: TrainConfig, prepared: Prepared, result: TrainResult, device: torch.device) -> Reported:
    """The same of the model file that `tfm train` exported; its scores, and why it is not usable yet."""
    if prepared.test is None:
        LOGGER.info("no test set, so no scores: name one with data.test, or give tfm evaluate --source")
        return {}, ""
    name, text = config.data.test_name, prepared.test
    path, model = result.model_path, read_model(result.model_path)
    as_evaluated = EvaluateConfig(seed=config.seed, decode=config.decode)
    predicted, found = _score(as_evaluated, model, path, name, text, device)
    scores = {"test exact match": found.exact_match.score, "test F1": found.f1.score}
    wanted = [" / ".join(answer.text for answer in Question.of(*pair).answers) for pair in text.each()]
    return scores, single_answer(predicted, wanted)


def _score(
    config: EvaluateConfig, model: ModelFile, path: Path, name: str, text: ParallelText, device: torch.device
) -> tuple[list[str], AnswerReport]:
    """Answer the questions of the test set, save the answers, and print the scores to stdout."""
    saved_as = place_to_save(config, [path], [model], TestSet(name, list(text.sources), []))
    predicted = _predict(model, name, text, device, batch_tokens=config.decode.batch_tokens)
    save(predicted, saved_as, "save the answers")
    wanted = [[answer.text for answer in Question.of(*pair).answers] for pair in text.each()]
    found = answer_report(predicted, wanted, seed=config.seed)
    provenance = Provenance(name, len(predicted), saved_as.file if saved_as else None, str(path))
    print_classes(found, provenance, as_json=config.json)
    if saved_as is not None and not config.json:
        LOGGER.info("answers: %s", saved_as.file)
    return predicted, found


def _predict(
    model: ModelFile, name: str, text: ParallelText, device: torch.device, *, batch_tokens: BatchTokens
) -> list[str]:
    """The answer to each question, on one line; empty for none."""
    reading = reading_of(model, device=device, batch_tokens=batch_tokens)
    asked = [Question.of(*pair) for pair in text.each()]
    found = [as_line(one.text) for one in reading.answers([(one.question, one.passage) for one in asked])]
    reading.unknown.warn("question", where=f"{name}: ")
    return found


def _check_questions(data: DataConfig) -> None:
    if not data.trained.has_spans:
        raise ConfigError(f"data={data.name}: has no questions, and this model answers some. Choose another corpus")
