"""Attention kernels of a GPU by its generation, type and model; and what the package needs of torch's versions.

What variable-length attention takes is what FlashAttention 2 in torch checks (flash_api.cpp): Ampere or newer, 16 bits,
no dropout through `varlen_attn`, keys and values of one width, which is a multiple of 8.
"""

import inspect
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.each import each
from transformer_cli.config.model import ModelConfig
from transformer_cli.config.train import Precision
from transformer_cli.models import packed_attention
from transformer_cli.models.kernel_choice import PackedKernel, choose_kernel
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.models.packed_attention import attend_varlen
from transformer_cli.training.precision import choose_dtype

CUDA = torch.device("cuda")
GPUS = {"V100": (7, 0), "T4": (7, 5), "A100": (8, 0), "3090": (8, 6), "4090": (8, 9), "H100": (9, 0), "B200": (10, 0)}
HAVE_FLASH = {"A100", "3090", "4090", "H100", "B200"}
HEADS: dict[str, tuple[dict[str, int], bool]] = {  # and whether their widths are for variable-length attention
    "64": ({}, True),
    "128": ({"n_heads": 4}, True),
    "160": ({"d_k": 160, "d_v": 160}, False),  # by our choice: no run has tried wider ones
    "12": ({"d_k": 12, "d_v": 12}, False),
    "64 and 128": ({"d_k": 64, "d_v": 128}, False),
}


def takes_varlen(model: ModelConfig, device: torch.device, dtype: torch.dtype) -> bool:
    return choose_kernel(model, device, dtype) is PackedKernel.varlen


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let torch find a GPU of this capability."""

    def find(capability: tuple[int, int]) -> None:
        major, minor = capability
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        monkeypatch.setattr(
            torch.cuda, "get_device_properties", lambda device=None: SimpleNamespace(major=major, minor=minor)
        )
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    return find


@each("dropout", [0.0, 0.1])
@each("heads", HEADS)
@each("dtype", [torch.float32, torch.float16, torch.bfloat16])
@each("name", GPUS)
def test_variable_length_attention_is_taken_where_the_kernel_is(
    name: str, dtype: torch.dtype, heads: str, dropout: float, gpu: Any
) -> None:
    gpu(GPUS[name])
    widths, are_taken = HEADS[heads]
    model = replace(ModelConfig(), **widths, attention_dropout=dropout)
    expected = name in HAVE_FLASH and dtype is not torch.float32 and are_taken and dropout == 0
    assert takes_varlen(model, CUDA, dtype) is expected


@each("device", ["cpu", "mps", "meta"])
@each("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_without_cuda_it_is_never_taken(device: str, dtype: torch.dtype) -> None:
    assert not takes_varlen(ModelConfig(), torch.device(device), dtype)


def test_a_torch_without_flash_attention_does_not_take_it(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu((9, 0))
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: False)
    assert not takes_varlen(ModelConfig(), CUDA, torch.bfloat16)
    monkeypatch.undo()
    gpu((9, 0))
    monkeypatch.setattr(torch.version, "cuda", None)  # AMD's
    assert not takes_varlen(ModelConfig(), CUDA, torch.bfloat16)


@pytest.mark.parametrize("name", GPUS)
def test_the_default_precision_is_the_gpus_own(name: str, gpu: Any) -> None:
    """bf16, that torch would only emulate on older ones, from Ampere on; fp16 before."""
    gpu(GPUS[name])
    is_older = name in ("V100", "T4")
    assert choose_dtype(Precision.auto, CUDA) is (torch.float16 if is_older else torch.bfloat16)
    assert choose_dtype(Precision.fp16, CUDA) is torch.float16
    assert choose_dtype(Precision.fp32, CUDA) is torch.float32


# ---- Versions of torch


def torch_2_11(
    query: Any,
    key: Any,
    value: Any,
    cu_seq_q: Any,
    cu_seq_k: Any,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
) -> None: ...


def torch_2_12_and_2_13(
    query: Any,
    key: Any,
    value: Any,
    cu_seq_q: Any,
    cu_seq_k: Any,
    max_q: int,
    max_k: int,
    *,
    return_aux: Any = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Any = None,
    block_table: Any = None,
    num_splits: int | None = None,
) -> None: ...


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("version", [torch_2_11, torch_2_12_and_2_13, packed_attention.varlen_attn])
def test_each_version_takes_our_call_of_variable_length_attention(
    version: Any, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(packed_attention, "HAS_TRITON", False)
    monkeypatch.setattr(
        packed_attention,
        "varlen_attn",
        lambda *args, **kwargs: calls.append(inspect.signature(version).bind(*args, **kwargs).arguments),
    )
    q, k, v = (SimpleNamespace(is_cuda=True, is_meta=False, is_cpu=False, device=CUDA) for _ in range(3))
    offsets_N, key_offsets_N = torch.tensor([0, 2]), torch.tensor([0, 3])
    layout = PackedLayout(2, torch.arange(2), cu_seqlens_N=offsets_N)
    keys = PackedLayout(3, torch.arange(3), cu_seqlens_N=key_offsets_N)
    attend_varlen(q, k, v, layout, keys, causal=causal)  # type: ignore[arg-type]
    (call,) = calls
    assert [call[name] for name in ("query", "key", "value")] == [q, k, v]
    assert call["cu_seq_q"] is offsets_N
    assert call["cu_seq_k"] is key_offsets_N
    assert (call["max_q"], call["max_k"]) == (2, 3)
    assert call.get("window_size", (-1, -1)) == ((-1, 0) if causal else (-1, -1))


NAMES: dict[str, tuple[str, ...]] = {  # that 2.11, 2.12 and 2.13 have, with parameters that are passed by name
    "torch.amp.GradScaler": ("device", "enabled"),
    "torch.amp.GradScaler._get_scale_async": (),
    "torch.autocast": ("device_type", "dtype", "enabled"),
    "torch.Event": (),
    "torch.accelerator.current_accelerator": (),
    "torch.accelerator.synchronize": (),
    "torch.accelerator.empty_cache": (),
    "torch.accelerator.memory.get_memory_info": (),
    "torch.backends.cuda.enable_cudnn_sdp": ("enabled",),
    "torch.backends.cuda.is_flash_attention_available": (),
    "torch.cuda.is_bf16_supported": ("including_emulation",),
    "torch.cuda.is_tf32_supported": (),
    "torch.cuda.graph": ("cuda_graph", "pool"),
    "torch.nn.Module.compile": (),
    "torch.nn.RMSNorm": ("eps",),
    "torch.nn.utils.get_total_norm": ("tensors",),
    "torch.nn.utils.clip_grads_with_norm_": ("parameters", "max_norm", "total_norm"),
    "torch.nn.attention.sdpa_kernel": ("backends", "set_priority"),
    "torch.optim.Adam": ("fused",),
    "torch.optim.AdamW": ("fused",),
    "torch.optim.Muon": ("adjust_lr_fn",),
    "torch.compile": ("dynamic", "mode"),
    "torch.compiler.is_compiling": (),
    "torch.compiler.assume_constant_result": (),
    "torch.compiler.cudagraph_mark_step_begin": (),
    "torch.compiler.set_stance": (),
    "torch.library.custom_op": ("mutates_args",),
    "torch.mps.recommended_max_memory": (),
}


@each("name", NAMES)
def test_torch_has_what_is_asked_of_it(name: str) -> None:
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    if NAMES[name]:
        assert set(NAMES[name]) <= inspect.signature(found).parameters.keys()
