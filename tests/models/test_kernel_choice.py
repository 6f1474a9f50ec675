"""The choice of the attention kernel by device, capability, type and model."""

from dataclasses import replace

import pytest
import torch

from transformer_cli.config.model import ModelConfig
from transformer_cli.models.kernel_choice import Gpu, PackedKernel, choose_kernel, no_varlen_reason

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
HOPPER = Gpu((9, 0), has_flash=True, has_varlen=True)


@pytest.mark.parametrize(
    ("changes", "dtype", "gpu", "reason"),
    [
        ({}, torch.bfloat16, HOPPER, None),
        ({}, torch.float16, replace(HOPPER, capability=(8, 0)), None),
        ({"name": "decoder"}, torch.bfloat16, HOPPER, None),
        ({"name": "classifier"}, torch.bfloat16, HOPPER, None),
        ({}, torch.float32, HOPPER, "attention in float32"),
        ({}, torch.float16, replace(HOPPER, capability=(7, 5)), "the GPU is older than Ampere"),
        ({"attention_dropout": 0.1}, torch.bfloat16, HOPPER, "model.attention_dropout=0.1"),
        ({"d_k": 32}, torch.bfloat16, HOPPER, "heads of 32 and 64 columns"),
        ({"d_k": 12, "d_v": 12}, torch.bfloat16, HOPPER, "heads of 12 and 12 columns"),
        ({"n_heads": 2}, torch.bfloat16, HOPPER, "heads of 256 and 256 columns"),
        ({}, torch.bfloat16, replace(HOPPER, has_flash=False), "this torch has no flash attention"),
        ({}, torch.bfloat16, replace(HOPPER, has_varlen=False), "this torch has no variable-length attention"),
        ({}, torch.float32, None, None),
        ({"attention_dropout": 0.1}, torch.float32, None, "model.attention_dropout=0.1"),
    ],
)
def test_what_the_kernel_does_not_support_has_a_reason(
    changes: dict[str, float], dtype: torch.dtype, gpu: Gpu | None, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replace(ModelConfig(), **changes)  # type: ignore[arg-type]
    assert no_varlen_reason(model, dtype, gpu) == reason
    if gpu is not None:
        monkeypatch.setattr(Gpu, "of", lambda device: gpu)
        expected = PackedKernel.varlen if reason is None else PackedKernel.buckets
        assert choose_kernel(model, CUDA, dtype) is expected


@pytest.mark.parametrize(("device", "kernel"), [("cpu", PackedKernel.per_length), ("meta", PackedKernel.buckets)])
def test_without_cuda_the_device_decides(device: str, kernel: PackedKernel) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        assert choose_kernel(ModelConfig(), torch.device(device), dtype) is kernel


def test_what_a_gpu_has_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    assert Gpu.of(CUDA) == Gpu((8, 6), has_flash=True, has_varlen=True)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert not Gpu.of(CUDA).has_flash
