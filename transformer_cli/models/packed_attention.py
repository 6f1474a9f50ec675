"""Packed sentences as tensors tell of them: attention is one kernel, and one graph, whatever their lengths.

Shapes: L tokens of all sentences, T of the queries and S of the keys, N + 1 places where N sentences start and the last
one ends, H heads, E head width.
"""

import inspect
import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from transformer_cli.config.model import ModelConfig
from transformer_cli.models.attention import attention_weights
from transformer_cli.models.layouts import Runs, Sentences, attend_runs, join_runs, split_runs

WIDEST_HEAD = 128  # wider ones have no backward pass on some GPUs

# Newer kernels have windows: nothing before is forbidden, everything after is.
_HAS_WINDOWS = "window_size" in inspect.signature(varlen_attn).parameters
CAUSAL: dict[str, Any] = {"window_size": (-1, 0)} if _HAS_WINDOWS else {"is_causal": True}


def obstacle(model: ModelConfig, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why attention cannot take joined sentences; None where it can."""
    if model.name != "transformer":
        return f"model.name={model.name}"
    if model.attention_dropout > 0:
        return f"model.attention_dropout={model.attention_dropout}"
    if device.type != "cuda":
        return None
    if torch.version.cuda is None or not torch.backends.cuda.is_flash_attention_available():
        return "this torch has no flash attention"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "the GPU is older than Ampere"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"attention in {str(dtype).removeprefix('torch.')}"
    if model.key_width != model.value_width or model.key_width % 8 or model.key_width > WIDEST_HEAD:
        return f"heads of {model.key_width} and {model.value_width} columns"
    return None


@dataclass(frozen=True)
class Joined(Sentences):
    """Sentences one after another, [L, …], some of which may be empty. Where there is no `obstacle`."""

    positions_L: Tensor
    starts_N: Tensor  # int32
    limit: int  # tokens of a sentence, at most

    @property
    def longest(self) -> int:
        return self.limit

    @property
    def positions(self) -> Tensor:
        return self.positions_L

    def attend(
        self, keys: "Joined", q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, *, dropout: float, causal: bool
    ) -> Tensor:
        assert dropout == 0, "see `obstacle`"
        if not q_THE.is_cuda:
            y_THE: Tensor = attend_in_turn(q_THE, k_SHE, v_SHE, self.starts_N, keys.starts_N, causal)
            return y_THE
        how = CAUSAL if causal else {}
        of_both = self.starts_N, keys.starts_N, self.limit, keys.limit
        return cast(Tensor, varlen_attn(q_THE, k_SHE, v_SHE, *of_both, **how))


def _runs(starts_N: Tensor, key_starts_N: Tensor) -> tuple[Runs, Runs]:
    """Of the queries and of the keys."""
    lengths_N2 = torch.stack([starts_N.diff(), key_starts_N.diff()], dim=1)
    runs_R2, counts_R = torch.unique_consecutive(lengths_N2, dim=0, return_counts=True)
    found = [(n, *lengths) for n, lengths in zip(counts_R.tolist(), runs_R2.tolist(), strict=True) if any(lengths)]
    return [(n, length) for n, length, _ in found], [(n, length) for n, _, length in found]


@torch.library.custom_op("tfm::attend_in_turn", mutates_args=())
def attend_in_turn(
    q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, starts_N: Tensor, key_starts_N: Tensor, causal: bool
) -> Tensor:
    """On a CPU: one run after another. How many there are is nothing that a compiler should look at."""
    return attend_runs(q_THE, k_SHE, v_SHE, *_runs(starts_N, key_starts_N), dropout=0.0, causal=causal)


@torch.library.custom_op("tfm::attend_in_turn_backward", mutates_args=())
def attend_in_turn_backward(
    grad_THE: Tensor,
    q_THE: Tensor,
    k_SHE: Tensor,
    v_SHE: Tensor,
    starts_N: Tensor,
    key_starts_N: Tensor,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """By hand, as autograd does not look into what it is told of."""
    runs, key_runs = _runs(starts_N, key_starts_N)
    each = (
        split_runs(grad_THE, runs),
        split_runs(q_THE, runs),
        split_runs(k_SHE, key_runs),
        split_runs(v_SHE, key_runs),
    )
    grads = []
    for grad_NHTE, q_NHTE, k_NHSE, v_NHSE in zip(*each, strict=True):
        p_NHTS = attention_weights(q_NHTE, k_NHSE, causal=causal)
        p_grad_NHTS = grad_NHTE @ v_NHSE.mT
        scores_grad_NHTS = p_NHTS * (p_grad_NHTS - (p_NHTS * p_grad_NHTS).sum(-1, keepdim=True))
        scores_grad_NHTS = scores_grad_NHTS / math.sqrt(q_NHTE.size(-1))
        grads.append((scores_grad_NHTS @ k_NHSE, scores_grad_NHTS.mT @ q_NHTE, p_NHTS.mT @ grad_NHTE))
    q_grad_THE, k_grad_SHE, v_grad_SHE = map(join_runs, zip(*grads, strict=True))
    return q_grad_THE, k_grad_SHE, v_grad_SHE


@attend_in_turn.register_fake
def _(q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, *rest: Any) -> Tensor:
    return q_THE.new_empty(*q_THE.shape[:2], v_SHE.size(-1))


@attend_in_turn_backward.register_fake
def _(grad_THE: Tensor, q_THE: Tensor, k_SHE: Tensor, v_SHE: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    q_grad, k_grad, v_grad = (x.new_empty(x.shape) for x in (q_THE, k_SHE, v_SHE))
    return q_grad, k_grad, v_grad


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.causal = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, grad_THE: Tensor) -> tuple[Tensor | None, ...]:
    return *attend_in_turn_backward(grad_THE, *ctx.saved_tensors, ctx.causal), None, None, None


attend_in_turn.register_autograd(_backward, setup_context=_remember)
