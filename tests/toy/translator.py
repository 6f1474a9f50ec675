"""A translator small enough for a test: random Transformers over a few words."""

import random
from functools import cache
from typing import Any

import torch

from tests.toy import models
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Activation, Autoregression, ModelConfig, Norm, Positions, Tying
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.decoding.results import DEFAULT_OPTIONS, Translated, TranslateOptions
from transformer_cli.decoding.search import Search
from transformer_cli.decoding.torch_engine import TorchEngine, torch_translator
from transformer_cli.decoding.training_text import UNKNOWN_TEXT, TrainingText
from transformer_cli.decoding.translator import Translator
from transformer_cli.models.ensemble import AnyModel
from transformer_cli.models.transformer import Transformer

WORDS = ["the", "cat", "drank", "milk", "and", "a", "pretty", "woman", "sat", "down", "in", "her", "chair", "it", "was"]
MARKS = 'a b . ! ? … " » ) 。 ！'
GREEDY: dict[str, Any] = {"search": "greedy", "beam_size": 1}
SAMPLE: dict[str, Any] = {"search": "sample", "beam_size": 1, "n_best": 2}
SIZES: dict[str, Any] = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 32, "n_heads": 4, "d_ff": 64}
_ODD: dict[str, Any] = {"n_encoder_layers": 1, "n_decoder_layers": 3, "d_model": 34, "n_heads": 2, "d_ff": 51}
_MODERN: dict[str, Any] = {"norm_kind": "rms", "positions": Positions.rotary, "activation": Activation.swiglu}
PLAIN = ModelConfig(**SIZES, norm=Norm.pre, tie_embeddings=Tying.none)
VARIANTS = {  # every kind of norm, position, tying and activation at least once
    "plain": PLAIN,
    "paper": ModelConfig(**SIZES),
    "concat": ModelConfig(**SIZES, positions=Positions.sinusoidal_concat, tie_embeddings=Tying.decoder, d_k=12, d_v=8),
    "learned": ModelConfig(**SIZES, norm=Norm.pre, positions=Positions.learned, activation=Activation.gelu, bias=False),
    "modern": ModelConfig(**SIZES, **_MODERN, norm=Norm.pre, tie_embeddings=Tying.none, bias=False),
    "odd": ModelConfig(**_ODD, d_k=8, d_v=16, activation=Activation.silu),
    "SSRU": ModelConfig(**SIZES, decoder=Autoregression.ssru),
}


@cache
def toy_tokenizer() -> Tokenizer:
    text = [*sentences(200, seed=0), MARKS]
    return train_tokenizer(text, TokenizerConfig(vocab_size=90), seed=1)


def sentences(n: int, *, seed: int, longest: int = 12) -> list[str]:
    chooser = random.Random(seed)
    return [" ".join(chooser.choices(WORDS, k=chooser.randint(1, longest))) + " ." for _ in range(n)]


def random_model(
    tokenizer: Tokenizer,
    *,
    config: ModelConfig = PLAIN,
    dtype: torch.dtype = torch.float32,
    seed: int = 1,
    gain: float = 2,
) -> Transformer:
    """A translator that is sure of what it says, and ends only some of its sentences."""
    model = models.random_model(config, Tokenizers(tokenizer, tokenizer), seed=seed, gain=gain)
    assert isinstance(model, Transformer)
    return model.to(dtype)


def translator_of(
    tokenizer: Tokenizer,
    *,
    model: AnyModel | None = None,
    seed: int = 1,
    device: str = "cpu",
    options: TranslateOptions = DEFAULT_OPTIONS,
    text: TrainingText = UNKNOWN_TEXT,
    parallel: bool = False,
    **settings: object,
) -> Translator:
    return torch_translator(
        random_model(tokenizer) if model is None else model,
        Tokenizers(tokenizer, tokenizer),
        DecodeConfig(**{"max_extra_length": 6, **settings}),
        device=torch.device(device),
        seed=seed,
        options=options,
        text=text,
        parallel=parallel,
    )


def engine_of(translator: Translator) -> TorchEngine:
    assert isinstance(translator.engine, TorchEngine)
    return translator.engine


def replace_search(translator: Translator, run: Search) -> Search:
    """Let `run` search in place of the registered search, which is returned."""
    engine = engine_of(translator)
    before = engine._run
    engine._run = run  # type: ignore[method-assign]
    return before


def texts(results: list[Translated]) -> list[str]:
    return [result.text for result in results]
