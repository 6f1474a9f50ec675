"""The types that a device computes in."""

import torch

from transformer_cli.config.train import Precision
from transformer_cli.errors import EnvironmentFault


def choose_dtype(wanted: Precision, device: torch.device) -> torch.dtype:
    """The type of matrix products; weights stay float32. Raises EnvironmentFault for one that `device` lacks."""
    if device.type == "mps" and wanted not in (Precision.auto, Precision.fp32):
        raise EnvironmentFault(f"train.precision={wanted.name}: device=mps trains in fp32. Use train.precision=fp32")
    on_gpu = device.type == "cuda"
    has_bf16 = not on_gpu or torch.cuda.is_bf16_supported(including_emulation=False)
    if wanted is Precision.fp16 and not on_gpu:
        raise EnvironmentFault("train.precision=fp16: needs a GPU. Use train.precision=fp32")
    if wanted is Precision.tf32 and not on_gpu:
        raise EnvironmentFault("train.precision=tf32: needs a GPU; a CPU has fp32 and bf16. Use train.precision=fp32")
    if wanted is Precision.tf32 and not torch.cuda.is_tf32_supported():
        raise EnvironmentFault("train.precision=tf32: this GPU does not have it. Use train.precision=fp32")
    if wanted is Precision.bf16 and not has_bf16:
        raise EnvironmentFault("train.precision=bf16: this GPU does not have it. Use train.precision=fp16")
    if wanted is Precision.auto:
        wanted = (Precision.bf16 if has_bf16 else Precision.fp16) if on_gpu else Precision.fp32
    return {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}.get(wanted, torch.float32)


def set_float32_products(precision: Precision, device: torch.device) -> None:
    """Let a GPU multiply float32 matrices as `precision` says: exactly, or with factors rounded to tf32.

    It holds for the whole process. torch has a newer name for it, but its compiler refuses to work once that is used.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if precision is Precision.tf32 else "highest")
