"""A step of attention over a cache by Triton's kernel, on a GPU and in Triton's interpreter: as torch computes it."""

import math
from importlib.util import find_spec

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.triton import errors_in_interpreter

# Groups, queries, heads, positions, head width, the mask.
CASES = [(3, 1, 2, 40, 64, "source"), (2, 4, 2, 64, 64, "beam"), (2, 5, 2, 33, 24, None), (3, 1, 2, 1, 16, None)]


def drawn(case: tuple[int, int, int, int, int, str | None], dtype: torch.dtype, device: str) -> list[Tensor | None]:
    """Queries that are slices of a product, keys and values that are a part of a cache, and the mask."""
    n_groups, n_queries, n_heads, n_keys, width, kind = case
    torch.manual_seed(0)
    q = torch.randn(n_groups, n_queries, 3 * n_heads * width)[..., : n_heads * width].unflatten(-1, (n_heads, width))
    k, v = (torch.randn(n_groups, n_heads, n_keys + 9, width)[:, :, 2 : n_keys + 2] for _ in range(2))
    mask: Tensor | None = None
    if kind == "source":
        mask = torch.zeros(n_groups, 1, 1, n_keys)
        mask[0, ..., 30:] = -math.inf
    elif kind == "beam":
        mask = torch.where(torch.rand(n_groups, 1, n_queries, n_keys) < 0.5, -math.inf, 0.0)
        mask[..., 0] = 0
    return [None if x is None else x.to(device, dtype) for x in (q, k, v, mask)]


def largest_error(case: tuple[int, int, int, int, int, str | None], dtype: torch.dtype, device: str) -> float:
    from transformer_cli.models.cached_attention import cached_attention, serves

    q, k, v, mask = drawn(case, dtype, device)
    assert q is not None
    assert k is not None
    assert v is not None
    assert serves(q, k, v)
    found = cached_attention(q, k, v, mask)
    wide = [x.cpu().double() for x in (q.transpose(1, 2), k, v)]
    expected = F.scaled_dot_product_attention(*wide, None if mask is None else mask.cpu().double()).transpose(1, 2)
    return float((found.cpu().double() - expected).abs().max())


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
def test_in_the_interpreter_a_step_is_that_of_torch() -> None:
    errors = errors_in_interpreter(__name__)
    assert len(errors) == len(CASES)
    assert max(errors) < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    ("dtype", "worst"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)], ids=str
)
@pytest.mark.parametrize("case", CASES)
def test_on_a_gpu_a_step_is_that_of_torch(
    case: tuple[int, int, int, int, int, str | None], dtype: torch.dtype, worst: float
) -> None:
    assert largest_error(case, dtype, "cuda") < worst


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_a_group_does_not_depend_on_the_others() -> None:
    from transformer_cli.models.cached_attention import cached_attention

    q, k, v, _ = drawn((64, 4, 8, 100, 64, None), torch.float32, "cuda")
    assert q is not None
    assert k is not None
    assert v is not None
    assert torch.equal(cached_attention(q[5:7], k[5:7], v[5:7], None), cached_attention(q, k, v, None)[5:7])
