"""Models with random weights over a toy vocabulary, their files, and the training sets of labelled text."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer_cli.config.model import Activation, ModelConfig, Norm
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.models.build import build_model
from transformer_cli.models.file import ModelFile, write_model
from transformer_cli.models.transformer import Model, Stack

torch.set_num_threads(1)  # for matrices this small, threads only wait for each other

# Overrides of `tfm train`, with which an encoder trains for seconds.
ENCODER_OVERRIDES = [
    *("model.n_encoder_layers=1", "model.d_model=16", "model.n_heads=2", "model.d_ff=32", "norm=pre"),
    *("schedule=constant", "schedule.warmup_steps=1", "device=cpu"),
    *("train.log_every=10", "train.average_last=1"),
]


def random_model(
    config: ModelConfig, tokenizers: Tokenizers, *, seed: int = 1, gain: float = 1, size: int | None = None
) -> Model:
    """A model whose matrices are `gain` times as large as usual: with 2 it is sure of what it predicts.

    `size` takes the place of the vocabularies' own.
    """
    torch.manual_seed(seed)
    vocabularies = (one if size is None else one._replace(size=size) for one in tokenizers.vocabularies)
    model = build_model(config, *vocabularies)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(gain if weight.dim() > 1 else 1)
    return model.eval()


def torchs_layers(stack: Stack, norm: Norm, activation: Activation = Activation.relu) -> nn.TransformerEncoder:
    """Torch's own two layers of width 16 with the weights of a stack without cross-attention."""
    layer = nn.TransformerEncoderLayer(
        16, 2, 32, dropout=0, activation=activation.name, batch_first=True, norm_first=norm is Norm.pre
    )
    last = nn.LayerNorm(16) if norm is Norm.pre else None
    names = {
        "self_attention.to_qkv.": "self_attn.in_proj_",
        "self_attention.to_out.": "self_attn.out_proj.",
        "feed_forward.to_hidden.": "linear1.",
        "feed_forward.to_out.": "linear2.",
        "around_self_attention.norm.": "norm1.",
        "around_feed_forward.norm.": "norm2.",
    }
    weights = {}
    for name, value in stack.state_dict().items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        weights[name] = value
    reference = nn.TransformerEncoder(layer, 2, last, enable_nested_tensor=False).eval()
    reference.load_state_dict(weights)
    return reference


def random_file(
    config: ModelConfig,
    tokenizers: Tokenizers,
    languages: str = "en-fr",
    *,
    seed: int = 1,
    gain: float = 1,
    **meta: Any,
) -> ModelFile:
    """The content of a model file, with the weights of `random_model`."""
    weights = random_model(config, tokenizers, seed=seed, gain=gain).state_dict()
    source_lang, target_lang = languages.split("-")
    return ModelFile(config, tokenizers, weights, source_lang, target_lang, **{"step": 7, **meta})


def written(folder: Path, model: ModelFile, name: str = "model.safetensors") -> Path:
    write_model(folder / name, model)
    return folder / name


def write_sets(
    folder: Path, suffix: str, content: Callable[[int, int], str], *, n_train: int, n_test: int
) -> list[str]:
    """Write `content(lines, seed)` for train, dev and test, and return the overrides that name the files."""
    for seed, (name, n_lines) in enumerate({"train": n_train, "dev": 20, "test": n_test}.items()):
        (folder / f"{name}.{suffix}").write_text(content(n_lines, seed), encoding="utf-8")
    return [f"data.{name}={folder / name}.{suffix}" for name in ("train", "dev", "test")]
