"""The number format of a model that decodes.

Weights and activations have it. Sums of a kernel, softmax and normalization are computed in float32 by torch in any of
them; logits are float32 (`Float32Logits`), and so are log-probabilities, which the search sums in float64.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.config.decode import DecodeConfig, DecodePrecision
from transformer_cli.errors import CheckpointError, EnvironmentFault
from transformer_cli.models.embeddings import TokenEmbedding
from transformer_cli.models.ensemble import AnyTokenModel, Ensemble

_ModelT = TypeVar("_ModelT", bound=AnyTokenModel)

DTYPES = {
    DecodePrecision.fp32: torch.float32,
    DecodePrecision.bf16: torch.bfloat16,
    DecodePrecision.fp16: torch.float16,
}


def choose_precision(wanted: DecodePrecision, device: torch.device) -> DecodePrecision:
    """`wanted`, or what auto means on `device`. Raises EnvironmentFault for one that `device` lacks.

    On MPS auto is fp32: 16 bits have not been measured there. On a CPU 16 bits are refused: not faster, and less exact.
    """
    has_bf16 = device.type == "meta" or (
        device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    )
    if wanted is DecodePrecision.auto:
        if device.type in ("cpu", "mps"):
            return DecodePrecision.fp32
        return DecodePrecision.bf16 if has_bf16 else DecodePrecision.fp16
    if wanted is DecodePrecision.fp32:
        return wanted
    if device.type == "cpu":
        raise EnvironmentFault(
            f"decode.precision={wanted.name}: needs a GPU; on a CPU it is not faster. Use decode.precision=fp32, or"
            " for speed --engine ctranslate2 decode.quantize=int8"
        )
    if wanted is DecodePrecision.bf16 and not has_bf16:
        where = "device=mps" if device.type == "mps" else "this GPU"
        raise EnvironmentFault(f"decode.precision=bf16: {where} does not have it. Use decode.precision=fp16 or fp32")
    return wanted


def on_device(config: DecodeConfig, device: torch.device) -> DecodeConfig:
    """`config` with the precision that `device` computes in."""
    return replace(config, precision=choose_precision(config.precision, device))


def in_precision(model: _ModelT, wanted: DecodePrecision, device: torch.device) -> _ModelT:
    """`model` in the number format of a config: itself where it has it already, else a copy.

    auto leaves a model alone whose weights are not float32: its caller has chosen.
    """
    precision, dtype = choose_precision(wanted, device), dtype_of(model)
    if dtype is DTYPES[precision] or (wanted is DecodePrecision.auto and dtype is not torch.float32):
        return model
    return converted(model, DTYPES[precision])


def dtype_of(model: nn.Module) -> torch.dtype:
    """The type that a model computes in: its widest, as matrices that training has frozen may be in 16 bits."""
    return max((parameter.dtype for parameter in model.parameters()), key=lambda dtype: dtype.itemsize)


def converted(model: _ModelT, dtype: torch.dtype) -> _ModelT:
    """A copy of `model` with weights of `dtype`, for inference."""
    if isinstance(model, Ensemble):
        return cast(_ModelT, Ensemble([converted(member, dtype) for member in model.members]).eval())
    weights = {id(p): nn.Parameter(p.detach().to(dtype), requires_grad=False) for p in model.parameters()}
    found = copy.deepcopy(model, weights)
    for module in found.modules():
        if isinstance(module, TokenEmbedding):
            module.dtype = dtype
    if dtype.itemsize < 4:
        output = found.output_embedding
        output.as_output = Float32Logits(output.weight, output.bias)
    return found.eval()


class Float32Logits(nn.Module):
    """Logits in float32 of vectors and weights in 16 bits.

    Kernels sum in float32 anyway. Rounded to bf16 a logit of 10 is wrong by up to 0.03, which makes many tokens equal.
    """

    def __init__(self, weight_VD: Tensor, bias_V: Tensor | None = None) -> None:
        super().__init__()
        self.weight_VD = weight_VD
        self.bias_V = None if bias_V is None else bias_V.float()

    def forward(self, x_LD: Tensor) -> Tensor:
        logits_LV = self.product(x_LD)
        return logits_LV if self.bias_V is None else logits_LV + self.bias_V

    def product(self, x_LD: Tensor) -> Tensor:
        if x_LD.is_cpu:  # which has no such kernel: exact, and slow
            return F.linear(x_LD.float(), self.weight_VD.float())
        if x_LD.device.type == "mps" or torch.version.hip is not None:
            return F.linear(x_LD, self.weight_VD).float()
        rows_MD = x_LD.flatten(0, -2) if x_LD.dim() > 2 else x_LD
        logits_MV = torch.mm(rows_MD, self.weight_VD.T, out_dtype=torch.float32)
        return logits_MV.view(*x_LD.shape[:-1], -1)


@contextmanager
def overflow_named(dtype: torch.dtype) -> Iterator[None]:
    """Raises an EnvironmentFault that names the precision to choose if fp16 scores in the block are not finite."""
    try:
        yield
    except CheckpointError as error:
        if dtype is not torch.float16:
            raise
        raise EnvironmentFault(
            "decode.precision=fp16: scores are not numbers (NaN or infinite), perhaps because activations exceed the"
            " 65,504 of fp16. Use decode.precision=fp32, or bf16 where the GPU has it"
        ) from error
