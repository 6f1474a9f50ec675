"""`tfm evaluate` of a classifier, and what `tfm train` reports when it has trained one."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from transformer_cli.addons.classification.labelled_text import labelled_text, own_text
from transformer_cli.addons.classification.labels import without_blank
from transformer_cli.addons.classification.reports import print_classes, single_answer
from transformer_cli.addons.classification.scores import ClassReport, class_report
from transformer_cli.addons.embedding.encode import LineEncoder
from transformer_cli.config.data import DataConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import Reported
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.decoding.plan import named
from transformer_cli.errors import ConfigError
from transformer_cli.evaluation.report import Provenance
from transformer_cli.evaluation.saved import place_to_save, save
from transformer_cli.evaluation.test_sets import TestSet
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.models.transformer import Model
from transformer_cli.training.result import TrainResult


def run(config: EvaluateConfig, models: Sequence[ModelFile], paths: Sequence[Path], device: torch.device) -> None:
    """Print how well a classifier does on its test set, on another corpus's, or on the user's own table."""
    config.refuse_translating("a classifier", paths)
    model, path = models[0], paths[0]
    test = own_table(config, model) if config.source is not None else _corpus_test_set(config, model, path)
    _score(config, model, path, test, device)


def report_training(config: TrainConfig, prepared: Prepared, result: TrainResult, device: torch.device) -> Reported:
    """The same of the model file that `tfm train` shipped; its scores, and why it is not usable yet."""
    if prepared.test is None:
        LOGGER.info("no test set, so no scores: name one with data.test, or give tfm evaluate --source")
        return {}, ""
    test = TestSet(config.data.test_name, prepared.test.sources, [prepared.test.targets])
    path, model = result.model_path, read_model(result.model_path)
    as_evaluated = EvaluateConfig(seed=config.seed, decode=config.decode)
    predicted, found = _score(as_evaluated, model, path, test, device)
    scores = {"test accuracy": found.accuracy.score, "test macro-F1": found.macro_f1.score}
    return scores, single_answer(predicted, test.references[0])


def _score(
    config: EvaluateConfig, model: ModelFile, path: Path, test: TestSet, device: torch.device
) -> tuple[list[str], ClassReport]:
    """Classify the test set, save the classes, and print the scores to stdout."""
    saved_as = place_to_save(config, [path], [model], test)
    predicted = _predict(model, test, device, batch_tokens=config.decode.batch_tokens)
    save(predicted, saved_as, "save the classes")
    found = class_report(predicted, test.references[0], model.tokenizers.labels, seed=config.seed)
    provenance = Provenance(test.name, len(predicted), saved_as.file if saved_as else None, str(path))
    print_classes(found, provenance, as_json=config.json)
    if saved_as is not None and not config.json:
        LOGGER.info("classes: %s", saved_as.file)
    return predicted, found


def _predict(model: ModelFile, test: TestSet, device: torch.device, *, batch_tokens: BatchTokens) -> list[str]:
    """The class of each sentence; none is blank."""
    reader = LineEncoder(model.build_as(Model, device), model, device=device, batch_tokens=batch_tokens)
    answers = [logits_C for logits_C in reader.read(test.sources) if logits_C is not None]
    assert len(answers) == len(test.sources)
    reader.unknown.warn(where=f"{test.name}: ")
    if reader.cut:
        LOGGER.warning(
            "%s: %s: longer than the model's %d tokens; the rest is not read",
            *(test.name, named(reader.cut), reader.max_length),
        )
    return [model.tokenizers.labels[int(logits_C.argmax())] for logits_C in answers]


def own_table(config: EvaluateConfig, model: ModelFile) -> TestSet:
    """--source, a table of label<TAB>text, or of label<TAB>first<TAB>second for a classifier of pairs."""
    name, columns = str(config.source), [0, 1, 2] if model.config.n_segments == 2 else []
    text = own_text(name, target_lang="label", task="classification", columns=columns)
    return labelled(Path(name).name, text, model, where=name)


def _corpus_test_set(config: EvaluateConfig, model: ModelFile, path: Path) -> TestSet:
    """The test set of `data=`, or of the corpus that the model was trained on."""
    data, text = labelled_text(config, model, path, partial(check_classes, model))
    return labelled(data.test_name, text, model, where=str(data.test) if data.test is not None else "data.test")


def check_classes(model: ModelFile, data: DataConfig) -> None:
    if not data.trained.labels_lines:
        raise ConfigError(f"data={data.name}: has no classes, but this is a classifier. Choose another corpus")
    if data.n_texts != model.config.n_segments:
        what, it = ("pairs of texts", "single texts") if data.n_texts == 2 else ("single texts", "pairs of texts")
        raise ConfigError(f"data={data.name}: holds {what}, but this model classifies {it}. Choose another corpus")


def labelled(name: str, text: ParallelText, model: ModelFile, *, where: str) -> TestSet:
    """The lines that are not blank. Raises DataError for a class that the model does not know."""
    real = without_blank(text, list(model.tokenizers.labels), where=where)
    return TestSet(name, real.sources, [real.targets])
