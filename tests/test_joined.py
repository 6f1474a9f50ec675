"""Attention of joined sentences: that of packed ones, from tensors alone."""

import inspect
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from transformer_cli.config.model import ModelConfig
from transformer_cli.models.layouts import Packed
from transformer_cli.models.packed_attention import CAUSAL, Joined, obstacle

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
TARGET, SOURCE = [(2, 3), (1, 1), (3, 5)], [(2, 4), (1, 2), (3, 1)]
N_HEADS, WIDTH = 2, 8


def joined(runs: list[tuple[int, int]], *, n_empty: int = 0, device: torch.device = CPU) -> Joined:
    lengths = torch.tensor([length for n, length in runs for _ in range(n)] + [0] * n_empty)
    starts_N = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int()
    positions_L = torch.cat([torch.arange(int(length)) for length in lengths])
    return Joined(positions_L.to(device), starts_N.to(device), 128)


def attended(queries: Packed | Joined, keys: Packed | Joined, *x: Tensor, causal: bool) -> list[Tensor]:
    """Of `x`, which are queries, keys and values; with the gradients of those."""
    leaves = [one.detach().clone().requires_grad_() for one in x]
    y = queries.attend(keys, *leaves, dropout=0.0, causal=causal)
    weights = torch.arange(y.numel(), dtype=y.dtype, device=y.device).view_as(y).cos()
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), leaves)]


def drawn(queries: list[tuple[int, int]], keys: list[tuple[int, int]]) -> list[Tensor]:
    torch.manual_seed(0)
    sizes = [sum(n * length for n, length in runs) for runs in (queries, keys, keys)]
    return [torch.randn(size, N_HEADS, WIDTH, dtype=torch.float64) for size in sizes]


@pytest.mark.parametrize("n_empty", [0, 3])
@pytest.mark.parametrize(("keys", "causal"), [(TARGET, False), (TARGET, True), (SOURCE, False)])
def test_joined_sentences_attend_as_packed_ones_do(keys: list[tuple[int, int]], causal: bool, n_empty: int) -> None:
    x = drawn(TARGET, keys)
    expected = attended(Packed(TARGET, CPU), Packed(keys, CPU), *x, causal=causal)
    found = attended(joined(TARGET, n_empty=n_empty), joined(keys, n_empty=n_empty), *x, causal=causal)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("keys", "causal"), [(TARGET, False), (TARGET, True), (SOURCE, False)])
def test_on_a_gpu_joined_sentences_attend_as_on_a_cpu(keys: list[tuple[int, int]], causal: bool) -> None:
    x = [one.bfloat16() for one in drawn(TARGET, keys)]
    expected = attended(Packed(TARGET, CPU), Packed(keys, CPU), *(one.double() for one in x), causal=causal)
    on_gpu = joined(TARGET, n_empty=3, device=CUDA), joined(keys, n_empty=3, device=CUDA)
    found = attended(*on_gpu, *(one.to(CUDA) for one in x), causal=causal)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=0.05, atol=0.05)


def test_the_kernel_takes_what_it_is_told_of_causality() -> None:
    told = inspect.signature(varlen_attn).bind(*range(7), **CAUSAL)
    assert set(told.kwargs) & {"window_size", "is_causal"}


@pytest.mark.parametrize(
    ("changes", "dtype", "capability", "reason"),
    [
        ({}, torch.bfloat16, (9, 0), None),
        ({}, torch.float16, (8, 0), None),
        ({}, torch.float32, (9, 0), "attention in float32"),
        ({}, torch.float16, (7, 5), "the GPU is older than Ampere"),
        ({"attention_dropout": 0.1}, torch.bfloat16, (9, 0), "model.attention_dropout=0.1"),
        ({"d_k": 32}, torch.bfloat16, (9, 0), "heads of 32 and 64 columns"),
        ({"d_k": 12, "d_v": 12}, torch.bfloat16, (9, 0), "heads of 12 and 12 columns"),
        ({"n_heads": 2}, torch.bfloat16, (9, 0), "heads of 256 and 256 columns"),
    ],
)
def test_what_the_kernel_cannot_do_is_told(
    changes: dict[str, float],
    dtype: torch.dtype,
    capability: tuple[int, int],
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    model = replace(ModelConfig(), **changes)  # type: ignore[arg-type]
    assert obstacle(model, CUDA, dtype) == reason


def test_without_flash_attention_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: False)
    assert obstacle(ModelConfig(), CUDA, torch.bfloat16) == "this torch has no flash attention"
    assert obstacle(ModelConfig(), CPU, torch.float32) is None
