"""Toy sizes of `tfm bench` for tests."""

from functools import cache

import torch

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.config.compose import load_config

CPU = torch.device("cpu")
SIZES = [
    *("rounds=1", "device=cpu", "model.d_model=16", "model.d_ff=32", "model.n_heads=2"),
    *("model.n_encoder_layers=1", "model.n_decoder_layers=1"),
]
DECODING = [*SIZES, "data.tokenizer.vocab_size=60"]
TRAINING = [
    *(*SIZES, "data.tokenizer.vocab_size=50", "lengths=wmt", "rivals=false", "data.max_length=60"),
    *("train.tokens_per_update=600", "train.max_tokens_per_microbatch=300"),
]


@cache
def config(*overrides: str, subject: str = "train") -> BenchConfig:
    toy = TRAINING if subject == "train" else DECODING
    loaded: BenchConfig = load_config("bench", [f"subject={subject}", *toy, *overrides])
    return loaded
