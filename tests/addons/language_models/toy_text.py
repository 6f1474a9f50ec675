"""A toy language model: sentences of a few words, and a tokenizer that knows bytes."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.toy import models
from tests.toy import run as toy_run
from tests.toy.run import packed
from tests.toy.translator import sentences
from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.config.model import ModelConfig, Norm, Tying
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.training.result import TrainResult

SIZES: dict[str, Any] = {"name": "decoder", "n_decoder_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32}
MODEL = ModelConfig(**SIZES, norm=Norm.pre, tie_embeddings=Tying.none)  # tied, it would say one thing again and again
DATA = DataConfig(name="text", task="language_model", source_lang="none", target_lang="text", max_length=40)


@cache
def tokenizer(*, has_bytes: bool = True) -> Tokenizer:
    """A tokenizer that may have bytes for what its text lacks."""
    size = 320 if has_bytes else 60
    return train_tokenizer(sentences(200, seed=0), TokenizerConfig(vocab_size=size, byte_fallback=has_bytes), seed=1)


def without_bytes() -> Tokenizer:
    return tokenizer(has_bytes=False)


def language_model(config: ModelConfig = MODEL, *, size: int | None = None, seed: int = 1) -> LanguageModel:
    model = models.random_model(config, Tokenizers(tokenizer(), tokenizer()), seed=seed, gain=2, size=size)
    assert isinstance(model, LanguageModel)
    return model


def content(ids: Tokenizer | None = None, **changes: Any) -> bytes:
    """The bytes of a model file."""
    ids = ids or tokenizer()
    data = {"name": "text", "max_length": 40}
    return packed(models.random_file(replace(MODEL, **changes), Tokenizers(ids, ids), "none-text", gain=2, data=data))


@cache
def prepared() -> Prepared:
    ids = [[*one, tokenizer().eos_id] for one in tokenizer().encode(sentences(60, seed=1))]
    dev = ParallelText([""] * 6, sentences(6, seed=2))
    return toy_run.prepared_of(Tokenizers(tokenizer(), tokenizer()), EncodedCorpus.of([[] for _ in ids], ids), dev)


def config(**train: Any) -> TrainConfig:
    own = {"tokens_per_update": 100, "max_tokens_per_microbatch": 50, "best_metric": "nll", "label_smoothing": 0.0}
    return toy_run.config(model=replace(MODEL, dropout=0.1), data=DATA, **{**own, **train})


def run(folder: Path, **settings: Any) -> TrainResult:
    return toy_run.run(folder, config(**settings), corpus=prepared())
