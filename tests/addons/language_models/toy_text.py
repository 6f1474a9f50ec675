"""A language model small enough for a test: sentences of a few words, with a model that can learn them."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.toy.run import train
from tests.toy.translator import sentences
from transformer_cli.addons.language_models.language_model import LanguageModel
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.config.model import ModelConfig, Norm, Tying
from transformer_cli.config.train import OptimizerConfig, ScheduleConfig, TrainConfig, TrainSettings
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.clean import CleaningReport
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.models.build import build_model
from transformer_cli.models.file import ModelFile, model_pieces
from transformer_cli.training.result import TrainResult

CPU = torch.device("cpu")
SIZES: dict[str, Any] = {"name": "decoder", "n_decoder_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32}
MODEL = ModelConfig(**SIZES, norm=Norm.pre, tie_embeddings=Tying.none)  # tied, it would say one thing again and again
DATA = DataConfig(name="text", task="language_model", source_lang="none", target_lang="text", max_length=40)


@cache
def tokenizer() -> Tokenizer:
    """A tokenizer with bytes for what its text lacks."""
    return train_tokenizer(sentences(200, seed=0), TokenizerConfig(vocab_size=320, byte_fallback=True), seed=1)


@cache
def without_bytes() -> Tokenizer:
    return train_tokenizer(sentences(200, seed=0), TokenizerConfig(vocab_size=60), seed=1)


def language_model(config: ModelConfig = MODEL, *, size: int | None = None, seed: int = 1) -> LanguageModel:
    """Weights twice as large as usual, so that it is sure of something."""
    torch.manual_seed(seed)
    size, pad_id = size or len(tokenizer()), tokenizer().pad_id
    model = build_model(
        config, source_vocab_size=size, target_vocab_size=size, source_pad_id=pad_id, target_pad_id=pad_id
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2 if weight.dim() > 1 else 1)
    assert isinstance(model, LanguageModel)
    return model.eval()


def content(ids: Tokenizer | None = None, **changes: Any) -> bytes:
    """The content of a model file with drawn weights."""
    ids, config = ids or tokenizer(), replace(MODEL, **changes)
    weights = language_model(config, size=len(ids)).state_dict()
    data = {"name": "text", "max_length": 40}
    file = ModelFile(config, Tokenizers(ids, ids), weights, source_lang="none", target_lang="text", step=1, data=data)
    return b"".join(model_pieces(file))


@cache
def prepared() -> Prepared:
    train_lines, dev = sentences(60, seed=1), sentences(6, seed=2)
    ids = [[*one, tokenizer().eos_id] for one in tokenizer().encode(train_lines)]
    return Prepared(
        tokenizers=Tokenizers(tokenizer(), tokenizer()),
        train=EncodedCorpus.of([[] for _ in ids], ids),
        dev=ParallelText([""] * len(dev), dev),
        test=None,
        fingerprint="words",
        report=CleaningReport(),
    )


def config(**train: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "tokens_per_update": 100,
        "max_tokens_per_microbatch": 50,
        "max_steps": 12,
        "log_every": 1,
        "eval_every": 4,
        "save_every": 2,
        "keep_last": 3,
        "average_last": 2,
        "best_metric": "nll",
        "label_smoothing": 0.0,
    }
    return TrainConfig(
        model=replace(MODEL, dropout=0.1),
        data=DATA,
        schedule=ScheduleConfig(name="constant", lr=0.01, warmup_steps=1),
        optimizer=OptimizerConfig(name="adam"),
        train=TrainSettings(**{**settings, **train}),
    )


def run(folder: Path, **settings: Any) -> TrainResult:
    folder.mkdir(parents=True, exist_ok=True)
    return train(config(**settings), prepared(), folder, device=CPU)
