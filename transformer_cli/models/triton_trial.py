"""The smallest of kernels, to see whether Triton runs at all."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _fill(x, n: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(x + tl.arange(0, n), 1.0)


def fill_with_ones(x_X: Tensor) -> None:
    kernel: Any = _fill
    kernel[(1,)](x_X, n=len(x_X))
