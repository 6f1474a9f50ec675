"""Chooses the kernel for the attention of packed sentences: a function of the device, the type and the model."""

from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec

import torch

from transformer_cli.config.model import ModelConfig

MAX_HEAD_WIDTH = 128  # of variable-length attention: wider heads have no backward pass on some GPUs
AMPERE = (8, 0)


class PackedKernel(Enum):
    per_length = "one call of fused attention for each length"  # no padding; a GPU would launch thousands of kernels
    varlen = "one call of variable-length attention"
    buckets = "one call of fused attention for each of a few buckets of padded sentences"


@dataclass(frozen=True)
class Gpu:
    """What decides between the kernels on a CUDA device."""

    capability: tuple[int, int]
    has_flash: bool  # of this build of torch
    has_varlen: bool

    @classmethod
    def of(cls, device: torch.device) -> "Gpu":
        has_flash = torch.version.cuda is not None and torch.backends.cuda.is_flash_attention_available()
        has_varlen = find_spec("torch.nn.attention.varlen") is not None
        return cls(torch.cuda.get_device_capability(device), has_flash, has_varlen)


def choose_kernel(model: ModelConfig, device: torch.device, dtype: torch.dtype) -> PackedKernel:
    """The kernel for packed sentences, in training and for the dev NLL. `dtype` is that of matrix products."""
    if device.type == "cpu":
        return PackedKernel.per_length
    if device.type != "cuda" or no_varlen_reason(model, dtype, Gpu.of(device)) is not None:
        return PackedKernel.buckets
    return PackedKernel.varlen


def no_varlen_reason(model: ModelConfig, dtype: torch.dtype, gpu: Gpu | None) -> str | None:
    """Why variable-length attention cannot serve this model; None where it can. `gpu` None: a CPU."""
    if model.attention_dropout > 0:
        return f"model.attention_dropout={model.attention_dropout}"
    if gpu is None:
        return None
    if not gpu.has_flash or not gpu.has_varlen:
        return f"this torch has no {'flash' if not gpu.has_flash else 'variable-length'} attention"
    if gpu.capability < AMPERE:
        return "the GPU is older than Ampere"
    if dtype not in (torch.float16, torch.bfloat16):
        return f"attention in {str(dtype).removeprefix('torch.')}"
    if model.key_width != model.value_width or model.key_width % 8 or model.key_width > MAX_HEAD_WIDTH:
        return f"heads of {model.key_width} and {model.value_width} columns"
    return None
