"""Layers that are computed again in the backward pass: the same gradient from less memory."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.toy.run import CPU, MODEL, config, prepared, tokenizers
from transformer_cli.config.model import ModelConfig
from transformer_cli.data.batching import Batch, micro_batches
from transformer_cli.training.trainer import Trainer


def trainer(*, activation_checkpointing: bool, model: ModelConfig = MODEL) -> Trainer:
    return Trainer(
        config(model=model, activation_checkpointing=activation_checkpointing, max_tokens_per_microbatch=4000),
        tokenizers(),
        CPU,
    )


def batch() -> Batch:
    corpus = prepared(400).train
    (one,) = micro_batches(corpus, np.arange(len(corpus)), tokenizers(), max_tokens=1_000_000)
    return one


@pytest.mark.parametrize("changes", [{}, {"attention_dropout": 0.1, "activation_dropout": 0.1, "n_decoder_layers": 3}])
def test_the_loss_and_the_gradient_are_the_same_to_the_bit_with_dropout_on(changes: dict[str, float]) -> None:
    model = replace(MODEL, **changes)
    plain, again = (
        trainer(activation_checkpointing=False, model=model),
        trainer(activation_checkpointing=True, model=model),
    )
    sums = [one.forward_backward(batch(), seed=1, n_tokens=100) for one in (plain, again)]
    assert torch.equal(*sums)
    for (name, expected), found in zip(plain.model.named_parameters(), again.model.parameters(), strict=True):
        assert expected.grad is not None
        assert found.grad is not None
        assert torch.equal(expected.grad, found.grad), name


def peak_bytes(one: Trainer) -> int:
    """The most that tensors took at once, according to what the allocator told the profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        one.forward_backward(batch(), seed=1, n_tokens=100)
    now = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def test_the_memory_at_its_peak_is_less(figures: Callable[[str, str], None]) -> None:
    deep = replace(MODEL, n_encoder_layers=6, n_decoder_layers=6, d_model=64, d_ff=256)
    plain, again = (
        peak_bytes(trainer(activation_checkpointing=activation_checkpointing, model=deep))
        for activation_checkpointing in (False, True)
    )
    figures(
        "memory with train.activation_checkpointing", f"{again / plain:.0%} of the peak without, 6+6 layers of width 64"
    )
    assert again < 0.5 * plain
