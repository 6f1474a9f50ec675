"""The test text of a model that predicts labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformer_cli.config.data import DataConfig
from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.data.corpus import ParallelText, load_text
from transformer_cli.data.prepare import prepare
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.model_test_sets import check_corpus, kept_test, now_or_kept, own_corpus
from transformer_cli.models.file import ModelFile


def labelled_text(
    config: EvaluateConfig, model: ModelFile, path: Path, check: Callable[[DataConfig], None]
) -> tuple[DataConfig, ParallelText]:
    """The test text of `data=`, or of the corpus that a model which predicts labels was trained on.

    Where the corpus names none it is what was held out of the training text. `check` raises ConfigError for a corpus
    that such a model is not for.
    """
    try:
        data = check_corpus(config, config.data if config.data is not None else own_corpus(model, path))
        check(data)
        return data, _named_or_held_out(data, model, kept_test([model], path) if config.data is None else None)
    except DataError as error:
        if config.data is not None:
            raise
        raise DataError(f"{error}, or give --source (this is the corpus of the model's run)") from error


def own_text(file: str, **data: Any) -> ParallelText:
    """The text of --source, a file of labels; `data` are the keys of its corpus."""
    if not Path(file).exists():
        raise DataError(f"{file}: no such file. Check --source")
    text = load_text(DataConfig(source_lang="text", test=file, **data), "test")
    assert text is not None
    return text


def _named_or_held_out(data: DataConfig, model: ModelFile, kept: ParallelText | None) -> ParallelText:
    if kept is not None:
        return now_or_kept(data, kept)
    if data.test is not None:
        text = load_text(data, "test")
        assert text is not None
        return text
    # Encoded by the model's own tokenizer, which may not have been trained on this text: else equal in every byte.
    prepared = prepare(data, progress=True, tokenizers=model.tokenizers)
    if prepared.fingerprint != model.fingerprint:
        raise DataError(
            f"data={data.name}: is not the text that the model was trained on, so what is held out of it may"
            " have been trained on. Restore it"
        )
    if prepared.test is None:
        raise ConfigError(f"data.test: {data.name} has no test set. Name one, or give --source")
    return prepared.test
