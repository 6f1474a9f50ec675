"""Variable-length attention equals attention of each group of one length."""

import inspect

import pytest
import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from transformer_cli.models.attention import attend
from transformer_cli.models.layouts import PackedLayout

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
TARGET, SOURCE = [(2, 3), (1, 1), (3, 5)], [(2, 4), (1, 2), (3, 1)]
N_HEADS, WIDTH = 2, 8
KINDS = [(TARGET, False, None), (TARGET, True, None), (SOURCE, False, None), (TARGET, False, 2), (TARGET, True, 2)]
EACH_KIND = pytest.mark.parametrize(("keys", "causal", "window"), KINDS)


def by_offsets(groups: list[tuple[int, int]], *, n_empty: int = 0, device: torch.device = CPU) -> PackedLayout:
    lengths = torch.tensor([length for n, length in groups for _ in range(n)] + [0] * n_empty)
    cu_seqlens_N = torch.cat([torch.zeros(1), lengths.cumsum(0)]).int()
    positions_L = torch.cat([torch.arange(int(length)) for length in lengths])
    return PackedLayout(128, positions_L.to(device), cu_seqlens_N=cu_seqlens_N.to(device))


def attended(
    queries: PackedLayout, keys: PackedLayout, *qkv: Tensor, causal: bool, window: int | None = None
) -> list[Tensor]:
    """The output, and the gradients of queries, keys and values."""
    q, k, v = leaves = [x.detach().clone().requires_grad_() for x in qkv]
    y = attend(q, k, v, queries, keys, causal=causal, window=window)
    weights = torch.arange(y.numel(), dtype=torch.float64).view_as(y).cos().to(y)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), leaves)]


def drawn(queries: list[tuple[int, int]], keys: list[tuple[int, int]]) -> list[Tensor]:
    torch.manual_seed(0)
    sizes = [sum(n * length for n, length in groups) for groups in (queries, keys, keys)]
    return [torch.randn(size, N_HEADS, WIDTH, dtype=torch.float64) for size in sizes]


@pytest.mark.parametrize("n_empty", [0, 3])
@EACH_KIND
def test_variable_length_attention_is_that_of_each_length(
    keys: list[tuple[int, int]], causal: bool, window: int | None, n_empty: int
) -> None:
    x = drawn(TARGET, keys)
    expected = attended(
        PackedLayout.of_groups(TARGET, CPU), PackedLayout.of_groups(keys, CPU), *x, causal=causal, window=window
    )
    found = attended(
        by_offsets(TARGET, n_empty=n_empty), by_offsets(keys, n_empty=n_empty), *x, causal=causal, window=window
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@EACH_KIND
def test_in_bf16_a_cpu_attends_in_float32(keys: list[tuple[int, int]], causal: bool, window: int | None) -> None:
    """The same as of float32 tensors with these values, rounded once."""
    x = [one.bfloat16() for one in drawn(TARGET, keys)]
    found = attended(by_offsets(TARGET), by_offsets(keys), *x, causal=causal, window=window)
    wide = [one.float() for one in x]
    y, *_ = attended(by_offsets(TARGET), by_offsets(keys), *wide, causal=causal, window=window)
    assert torch.equal(found[0], y.bfloat16())
    assert {one.dtype for one in found} == {torch.bfloat16}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@EACH_KIND
def test_a_gpu_and_a_cpu_give_the_same_attention(keys: list[tuple[int, int]], causal: bool, window: int | None) -> None:
    x = [one.bfloat16() for one in drawn(TARGET, keys)]
    expected = attended(
        PackedLayout.of_groups(TARGET, CPU),
        PackedLayout.of_groups(keys, CPU),
        *(one.double() for one in x),
        causal=causal,
        window=window,
    )
    on_gpu = by_offsets(TARGET, n_empty=3, device=CUDA), by_offsets(keys, n_empty=3, device=CUDA)
    found = attended(*on_gpu, *(one.to(CUDA) for one in x), causal=causal, window=window)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=0.05, atol=0.05)


def test_the_kernel_has_the_option_for_causal_attention() -> None:
    bound = inspect.signature(varlen_attn).bind(*range(7), window_size=(-1, 0))
    assert set(bound.kwargs) == {"window_size"}
