"""Attention of short sentences by Triton's kernels, on a GPU and in Triton's interpreter: as written out."""

from importlib.util import find_spec
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from tests.support.triton import errors_in_interpreter
from transformer_cli.models.attention_kernels import attention_weights

LENGTHS = [5, 30, 0, 40, 70, 1, 300, 129]  # each tile, several tiles, and an empty sentence
OTHERS = [7, 31, 0, 20, 60, 33, 150, 260]
# Lengths of queries and keys, head width, causal, window.
CASES = [
    (LENGTHS, LENGTHS, 64, True, None),
    (LENGTHS, LENGTHS, 64, False, None),
    (LENGTHS, OTHERS, 64, False, None),
    (LENGTHS, LENGTHS, 24, True, 3),
    (LENGTHS, LENGTHS, 32, False, 2),
]
N_HEADS = 2
WORST, WORST_IN_16_BITS = 1e-5, 2e-2


def drawn(lengths: list[int], key_lengths: list[int], width: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Queries, keys and values as the slices of one product, then the gradient of the result."""
    torch.manual_seed(0)
    qkv = torch.randn(max(sum(lengths), sum(key_lengths)), 3 * N_HEADS * width).to(device, dtype)
    q, k, v = (x.unflatten(-1, (N_HEADS, width)) for x in qkv.chunk(3, dim=-1))
    grad = torch.randn(sum(lengths), N_HEADS, width).to(device, dtype)
    return [q[: sum(lengths)], k[: sum(key_lengths)], v[: sum(key_lengths)], grad]


def offsets(lengths: list[int], device: str) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)


def found(case: tuple[list[int], list[int], int, bool, int | None], dtype: torch.dtype, device: str) -> list[Tensor]:
    """The result and the three gradients."""
    from transformer_cli.models.short_attention import attend_short

    lengths, key_lengths, width, causal, window = case
    *qkv, grad = drawn(lengths, key_lengths, width, dtype, device)
    leaves = [x.detach().requires_grad_() for x in qkv]
    left, right = (-1 if window is None else window - 1, 0) if causal else (-1, -1)
    if window is not None and not causal:
        left = right = window // 2
    starts = offsets(lengths, device), offsets(key_lengths, device)
    y = attend_short(*leaves, *starts, longest=max(*lengths, *key_lengths), left=left, right=right)
    return [y.detach(), *torch.autograd.grad(y, leaves, grad)]


def expected(case: tuple[list[int], list[int], int, bool, int | None], dtype: torch.dtype) -> list[Tensor]:
    """The same in float64, by `attention_weights`, sentence by sentence."""
    lengths, key_lengths, width, causal, window = case
    *qkv, grad = drawn(lengths, key_lengths, width, dtype, "cpu")
    leaves = [x.double().requires_grad_() for x in qkv]
    parts = []
    bounds = [pairwise([0, *torch.tensor(each).cumsum(0).tolist()]) for each in (lengths, key_lengths)]
    for (start, end), (key_start, key_end) in zip(*bounds, strict=True):
        q, k, v = (
            x[a:b].transpose(0, 1)[None]
            for x, a, b in zip(leaves, (start, key_start, key_start), (end, key_end, key_end), strict=True)
        )
        parts.append((attention_weights(q, k, causal=causal, window=window) @ v)[0].transpose(0, 1))
    y = torch.cat(parts)
    return [y.detach(), *torch.autograd.grad(y, leaves, grad.double())]


def largest_error(case: tuple[list[int], list[int], int, bool, int | None], dtype: torch.dtype, device: str) -> float:
    pairs = zip(found(case, dtype, device), expected(case, dtype), strict=True)
    return max(float((one.cpu().double() - other).norm() / other.norm()) for one, other in pairs)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
def test_in_the_interpreter_short_attention_is_attention_written_out() -> None:
    errors = errors_in_interpreter(__name__)
    assert len(errors) == len(CASES)
    assert max(errors) < WORST


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu_short_attention_is_attention_written_out(
    case: tuple[list[int], list[int], int, bool, int | None], dtype: torch.dtype
) -> None:
    assert largest_error(case, dtype, "cuda") < WORST_IN_16_BITS


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_equal_calls_give_equal_bits() -> None:
    first = found(CASES[0], torch.bfloat16, "cuda")
    for _ in range(5):
        assert all(map(torch.equal, first, found(CASES[0], torch.bfloat16, "cuda")))
