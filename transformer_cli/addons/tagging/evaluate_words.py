"""`tfm evaluate` of a tagger, and what `tfm train` reports when it has trained one."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch

from transformer_cli.addons.classification.labelled_text import labelled_text, own_text
from transformer_cli.addons.classification.reports import print_classes, single_answer
from transformer_cli.addons.tagging.conll import is_conllu, trained_columns
from transformer_cli.addons.tagging.entities import are_bio, warn_not_bio
from transformer_cli.addons.tagging.word_labels import MostFrequent, WordReport, word_accuracy, word_report
from transformer_cli.addons.tagging.word_tagger import WordTagger
from transformer_cli.addons.tagging.words import split_words
from transformer_cli.config.data import DataConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tasks import Reported
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared, prepared_of
from transformer_cli.errors import ConfigError, DataError, TfmError
from transformer_cli.evaluation.report import Provenance
from transformer_cli.evaluation.saved import place_to_save, save
from transformer_cli.evaluation.test_sets import TestSet
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.models.runs import read_config, run_of
from transformer_cli.training.result import TrainResult


@dataclass(frozen=True)
class WordTest:
    """Sentences whose words have labels."""

    name: str
    sentences: list[list[str]]
    wanted: list[list[str]]

    @classmethod
    def of(cls, name: str, text: ParallelText) -> "WordTest":
        """Raises DataError where there is nothing to score."""
        if not text.sources:
            raise DataError(f"{name}: holds no sentence. Name a file with a word and its label a line")
        return cls(name, [split_words(one) for one in text.sources], [split_words(one) for one in text.targets])

    @property
    def as_lines(self) -> TestSet:
        return TestSet(self.name, [" ".join(words) for words in self.sentences], [])


def run(config: EvaluateConfig, models: Sequence[ModelFile], paths: Sequence[Path], device: torch.device) -> None:
    """Print how well a tagger does on its test set, on another corpus's, or on the user's own CoNLL file."""
    config.refuse_translating("a tagger", paths)
    model, path = models[0], paths[0]
    test = _own_file(config, model) if config.source is not None else _corpus_test_set(config, model, path)
    trained_on = _training_text(model, path)
    _score(config, model, path, test, trained_on, device)


def report_training(config: TrainConfig, prepared: Prepared, result: TrainResult, device: torch.device) -> Reported:
    """The same of the model file that `tfm train` shipped; its scores, and why it is not usable yet."""
    if prepared.test is None:
        LOGGER.info("no test set, so no scores: name one with data.test, or give tfm evaluate --source")
        return {}, ""
    test = WordTest.of(config.data.test_name, prepared.test)
    path, model = result.model_path, read_model(result.model_path)
    as_evaluated = EvaluateConfig(seed=config.seed, decode=config.decode)
    predicted, found = _score(as_evaluated, model, path, test, prepared, device)
    scores = {f"test {name}": score for name, score in found.scores().items()}
    return scores, single_answer(list(chain(*predicted)), list(chain(*test.wanted)))


def _score(
    config: EvaluateConfig,
    model: ModelFile,
    path: Path,
    test: WordTest,
    trained_on: Prepared | None,
    device: torch.device,
) -> tuple[list[list[str]], WordReport]:
    """Tag the test set, save the tags, and print the scores to stdout, with a baseline where the text is at hand."""
    saved_as = place_to_save(config, [path], [model], test.as_lines)
    predicted, ids = _predict(model, test, device, batch_tokens=config.decode.batch_tokens)
    tags = [" ".join(of_words) for of_words in predicted]
    save(tags, saved_as, "save the tags")
    if trained_on is None:
        LOGGER.info("no baseline: the training text is not prepared here")
    baseline = None if trained_on is None else baseline_of(trained_on, test, ids)
    known = model.tokenizers.labels
    unseen = sorted({label for labels in test.wanted for label in labels}.difference(known))
    if unseen:
        LOGGER.warning(
            "%s: the model does not have the labels %s; their words count as wrong", test.name, ", ".join(unseen)
        )
    has_entities = are_bio(known)
    if has_entities:
        warn_not_bio((label for labels in (*predicted, *test.wanted) for label in labels), test.name)
    labels = [*known, *unseen]
    found = word_report(predicted, test.wanted, labels, seed=config.seed, has_entities=has_entities, baseline=baseline)
    provenance = Provenance(test.name, len(predicted), saved_as.file if saved_as else None, str(path))
    print_classes(found, provenance, as_json=config.json)
    if saved_as is not None and not config.json:
        LOGGER.info("tags: %s", saved_as.file)
    return predicted, found


def _predict(
    model: ModelFile, test: WordTest, device: torch.device, *, batch_tokens: BatchTokens
) -> tuple[list[list[str]], list[list[list[int]]]]:
    """The labels of the words of each sentence, and the ids of the words."""
    tagger = WordTagger(model, device=device, batch_tokens=batch_tokens)
    predicted = [tagger.predicted(logits_TC) for logits_TC in tagger.tag(test.sentences)]
    tagger.warn_truncated(f"{test.name}: ")
    tagger.unknown.warn("sentence", where=f"{test.name}: ")
    return predicted, tagger.encoder.encode(test.sentences)


def baseline_of(prepared: Prepared, test: WordTest, ids: list[list[list[int]]]) -> float:
    """Accuracy of the most frequent label that each word has in training, in percent."""
    most_frequent = MostFrequent(prepared.train, prepared.tokenizers.labels)
    return word_accuracy(most_frequent.predict(ids), test.wanted)


def _training_text(model: ModelFile, path: Path) -> Prepared | None:
    """The corpus that the model was trained on, if the cache of its run has it."""
    run_dir = run_of(path)
    if run_dir is not None:
        with suppress(TfmError):  # a config of another version
            return prepared_of(read_config(run_dir).data, model.fingerprint)
    return None


def _own_file(config: EvaluateConfig, model: ModelFile) -> WordTest:
    """--source, a CoNLL file: with the columns of the model's training text, if that is of the same kind."""
    name = str(config.source)
    columns = [*trained_columns(model.data, is_conllu_wanted=is_conllu(name))]
    text = own_text(name, target_lang="label", task="token_classification", columns=columns)
    return WordTest.of(Path(name).name, text)


def _corpus_test_set(config: EvaluateConfig, model: ModelFile, path: Path) -> WordTest:
    """The test set of `data=`, or of the corpus that the model was trained on."""
    data, text = labelled_text(config, model, path, check_labels_of_words)
    return WordTest.of(data.test_name, text)


def check_labels_of_words(data: DataConfig) -> None:
    if not data.trained.has_words:
        raise ConfigError(f"data={data.name}: has no labels of words, but this is a tagger. Choose another corpus")
