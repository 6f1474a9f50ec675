"""A toy size of `tfm bench` for tests."""

from functools import cache

import torch

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.config.compose import load_config

CPU = torch.device("cpu")
_WRITTEN = """
    lengths=wmt rounds=1 rivals=false device=cpu data.max_length=60 data.tokenizer.vocab_size=50
    model.d_model=16 model.d_ff=32 model.n_heads=2 model.n_encoder_layers=1 model.n_decoder_layers=1
    train.tokens_per_update=600 train.max_tokens_per_microbatch=300
"""
TOY = _WRITTEN.split()


@cache
def config(*overrides: str) -> BenchConfig:
    loaded: BenchConfig = load_config("bench", ["subject=train", *TOY, *overrides])
    return loaded
