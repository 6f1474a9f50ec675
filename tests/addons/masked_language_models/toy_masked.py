"""A toy masked language model: sentences of a few words, and a tokenizer that knows bytes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.addons.language_models.toy_text import prepared, tokenizer
from tests.toy import models
from tests.toy import run as toy_run
from tests.toy.run import packed
from transformer_cli.addons.masked_language_models.masked_language_model import MaskedLanguageModel
from transformer_cli.config.data import DataConfig
from transformer_cli.config.model import ModelConfig, Norm
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.training.result import TrainResult

__all__ = ["prepared", "tokenizer"]

SIZES: dict[str, Any] = {"name": "encoder", "n_encoder_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32}
MODEL = ModelConfig(**SIZES, norm=Norm.pre)
DATA = DataConfig(
    name="masked_text", task="masked_language_model", source_lang="none", target_lang="text", max_length=40
)


def masked_model(config: ModelConfig = MODEL, *, seed: int = 1) -> MaskedLanguageModel:
    model = models.random_model(config, Tokenizers(tokenizer(), tokenizer()), seed=seed, gain=2)
    assert isinstance(model, MaskedLanguageModel)
    return model


def content(**changes: Any) -> bytes:
    """The bytes of a model file."""
    ids, data = tokenizer(), {"name": "masked_text", "task": "masked_language_model", "max_length": 40}
    return packed(models.random_file(replace(MODEL, **changes), Tokenizers(ids, ids), "none-text", gain=2, data=data))


def config(*, options: dict[str, Any] | None = None, seed: int = 1, **train: Any) -> TrainConfig:
    own = {"tokens_per_update": 100, "max_tokens_per_microbatch": 50, "best_metric": "nll", "label_smoothing": 0.0}
    model = replace(MODEL, dropout=0.1, options=options or {})
    return toy_run.config(model=model, data=DATA, seed=seed, **{**own, **train})


def run(folder: Path, **settings: Any) -> TrainResult:
    return toy_run.run(folder, config(**settings), corpus=prepared())
