"""The choice of the device, and one line for each that cannot be used, which names what works instead."""

import ast
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from scripts.house import modules
from tests.toy.run import CPU, config, tokenizers
from transformer_cli import cli
from transformer_cli.config.train import Compile, Device, Precision
from transformer_cli.data.transfer import copies_asynchronously
from transformer_cli.errors import EnvironmentFault
from transformer_cli.models import device as devices
from transformer_cli.models.device import accumulation_dtype, choose_device
from transformer_cli.training import compiled, resuming, summary
from transformer_cli.training.precision import choose_dtype
from transformer_cli.training.progress import MetricAccumulator
from transformer_cli.training.ranks import Ranks, join_ranks
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.state import make_trainer
from transformer_cli.training.trainer import Trainer

MPS = torch.device("mps")
TOO_OLD = (
    "CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU"
    " driver by downloading and installing a new version"
)
WHEEL = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]  # of torch 2.11 for CUDA 12.8


@pytest.fixture(autouse=True)
def _warns_anew() -> None:
    devices._warn_once.cache_clear()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """This torch as another build, on another machine; CUDA's attention by cuDNN is on at first."""
    settings = SimpleNamespace(cudnn=True)

    def become(
        *,
        cuda: str | None = None,
        says: str = "",
        capability: tuple[int, int] | None = None,
        arches: list[str] = WHEEL,
        mps: bool = False,
        nvidia_smi: bool = False,
    ) -> SimpleNamespace:
        def is_available() -> bool:
            if says:
                warnings.warn(says, stacklevel=2)
            return capability is not None

        def get_device_capability() -> tuple[int, int] | None:
            warnings.warn("A GPU with CUDA capability sm_61 is not compatible", stacklevel=2)  # as torch does
            return capability

        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.version, "hip", None)
        monkeypatch.setattr(torch.cuda, "is_available", is_available)
        monkeypatch.setattr(torch.cuda, "get_device_capability", get_device_capability)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: arches)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GeForce GTX 1080")
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", lambda on: setattr(settings, "cudnn", on))
        monkeypatch.setattr(devices.shutil, "which", lambda name: "/usr/bin/nvidia-smi" if nvidia_smi else None)
        return settings

    return become


@pytest.mark.parametrize(
    ("machine_has", "chosen"),
    [
        ({}, "cpu"),
        ({"mps": True}, "mps"),
        ({"cuda": "12.8"}, "cpu"),
        ({"cuda": "12.8", "capability": (9, 0)}, "cuda"),
        ({"cuda": "12.8", "capability": (8, 9), "mps": True}, "cuda"),
        ({"cuda": "12.8", "capability": (13, 0), "arches": [*WHEEL, "compute_120"]}, "cuda"),  # compiled by the driver
        ({"cuda": "12.6", "capability": (6, 1), "arches": ["sm_50", "sm_60", "sm_70"]}, "cuda"),
    ],
)
def test_auto_is_cuda_then_mps_then_the_cpu_and_says_nothing(
    machine: Callable[..., Any], machine_has: dict[str, Any], chosen: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = machine(**machine_has)
    assert choose_device(Device.auto).type == chosen
    assert caplog.messages == []
    # Attention has another shape in every batch, for which cuDNN would plan anew.
    assert settings.cudnn is (chosen != "cuda")


FAULTS = [
    ({}, r"this torch \(.*\) is built without CUDA\. Use device=cpu, or install a torch that is built with it"),
    ({"cuda": "13.0"}, r"no CUDA device visible\. Use device=cpu, or check the driver with nvidia-smi"),
    (
        {"cuda": "13.0", "says": TOO_OLD},
        r"the driver of the GPU is too old for this torch \(.*\)\. Use device=cpu, or update the driver, or install the"
        r" build of torch for CUDA 12\.6",
    ),
    (
        {"cuda": "13.0", "says": "CUDA initialization: CUDA unknown error - this may be due to\nan environment"},
        r"CUDA cannot be initialised \('CUDA initialization: CUDA unknown .*'\)\. Use device=cpu, or check the driver",
    ),
    (
        {"cuda": "12.8", "capability": (6, 1)},
        r"GeForce GTX 1080 has compute capability 6\.1, and this torch \(.*\) is built for 7\.5 to 12\.0\. Use"
        r" device=cpu, or install the build of torch for CUDA 12\.6",
    ),
    (
        {"cuda": "12.8", "capability": (13, 0)},
        r"has compute capability 13\.0, and .* built for 7\.5 to 12\.0\. Use device=cpu, or install a newer torch",
    ),
]


@pytest.mark.parametrize(("machine_has", "says"), FAULTS)
def test_cuda_that_cannot_be_used_is_one_line_with_what_works(
    machine: Callable[..., Any], machine_has: dict[str, Any], says: str
) -> None:
    machine(**machine_has)
    with pytest.raises(EnvironmentFault, match=rf"^device=cuda: .*{says}") as error:
        choose_device(Device.cuda)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("machine_has", "says"), [({"nvidia_smi": True}, "built without CUDA"), *FAULTS[2:]])
@pytest.mark.parametrize("mps", [False, True])
def test_auto_says_once_why_a_gpu_that_is_there_is_not_used(
    machine: Callable[..., Any], machine_has: dict[str, Any], says: str, mps: bool, caplog: pytest.LogCaptureFixture
) -> None:
    machine(**machine_has, mps=mps)
    with caplog.at_level(logging.WARNING):
        assert [choose_device(Device.auto).type for _ in range(2)] == ["mps" if mps else "cpu"] * 2
    (message,) = caplog.messages
    assert message.startswith("device=auto: does not use CUDA, as ")
    assert re.search(says.partition(r"\. Use")[0], message)


def test_rocm_has_no_list_of_compute_capabilities(machine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    machine(capability=(9, 4), arches=["gfx90a", "gfx942"])
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert choose_device(Device.auto).type == "cuda"


@pytest.mark.parametrize(
    ("is_built", "says"),
    [
        (False, r"this torch \(.*\) is built without MPS, which is for Macs alone"),
        (True, "no Apple GPU, or a macOS that is too old for this torch"),
    ],
)
def test_mps_that_is_not_there_is_said(
    machine: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, is_built: bool, says: str
) -> None:
    machine()
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: is_built)
    with pytest.raises(EnvironmentFault, match=rf"^device=mps: {says}\. Use device=cpu$"):
        choose_device(Device.mps)


@pytest.mark.parametrize("wanted", [Device.mps, Device.auto])
def test_mps_is_used_where_it_is(machine: Callable[..., Any], wanted: Device) -> None:
    machine(mps=True)
    assert choose_device(wanted) == MPS


# ---- What MPS lacks


ASKING = {"nonfinite.py", "transfer.py"}  # modules that ask `copies_asynchronously` first


@pytest.mark.slow
def test_no_copy_to_or_from_mps_goes_on_after_its_call() -> None:
    """Silently, other values would arrive."""
    for path in modules().values():
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        values = {ast.unparse(word.value) for call in calls for word in call.keywords if word.arg == "non_blocking"}
        assert path.name in ASKING or "True" not in values, f"{path}: see data/transfer.py"


def test_copies_overlap_with_work_on_other_accelerators() -> None:
    kinds = [copies_asynchronously(torch.device(kind)) for kind in ("cuda", "meta", "cpu", "mps")]
    assert kinds == [True, True, False, False]


def test_mps_trains_in_fp32_and_refuses_the_others() -> None:
    assert choose_dtype(Precision.auto, MPS) is choose_dtype(Precision.fp32, MPS) is torch.float32
    for precision in (Precision.bf16, Precision.fp16, Precision.tf32):
        says = rf"^train\.precision={precision.name}: device=mps trains in fp32\. Use train\.precision=fp32$"
        with pytest.raises(EnvironmentFault, match=says):
            choose_dtype(precision, MPS)


def test_mps_has_no_float64_to_add_up_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accumulation_dtype(MPS) is torch.float32
    assert accumulation_dtype(CPU) is accumulation_dtype(torch.device("cuda")) is torch.float64
    monkeypatch.setattr("transformer_cli.training.progress.accumulation_dtype", lambda device: torch.float32)
    metrics = MetricAccumulator(CPU)
    two, well = torch.tensor(2.0), torch.tensor(True)
    stats: Any = SimpleNamespace(
        loss=two, nll=two, alignment=None, grad_norm=two, finite=well, n_tokens=3, n_padded_tokens=8
    )
    metrics.add(stats, n_real=6)
    assert metrics.loss.dtype is metrics.nll.dtype is torch.float32
    means = metrics.means()
    assert means is not None
    assert means["loss"] == means["nll"] == 2


def test_several_ranks_do_not_share_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with (
        pytest.raises(EnvironmentFault, match=r"^device=mps: .* without torchrun, or use device=cpu$"),
        join_ranks(StopRequest(), device_type="mps", timeout_s=1),
    ):
        pass


def test_nothing_is_compiled_for_mps() -> None:
    assert not any(compiled.chosen_ways(config(compile=Compile.auto), MPS, torch.float32))
    with pytest.raises(EnvironmentFault, match=r"^train\.compile=default: does not go with device=mps\. Set .*=none$"):
        compiled.chosen_ways(config(compile=Compile.default), MPS, torch.float32)


@pytest.mark.parametrize(
    ("error", "lacks"),
    [
        (
            NotImplementedError(
                "The operator 'aten::_linalg_eigh' is not currently implemented for the MPS device. If you want this op"
                " to be considered, comment on https://github.com/pytorch/pytorch/issues/141287"
            ),
            "aten::_linalg_eigh",
        ),
        (
            TypeError(
                "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use"
                " float32 instead."
            ),
            "float64",
        ),
    ],
)
def test_what_torch_lacks_on_mps_is_no_internal_error(error: Exception, lacks: str) -> None:
    fault = cli.as_fault(error, ["train"])
    assert isinstance(fault, EnvironmentFault)
    assert str(fault) == f"device=mps: has no {lacks}. Use device=cpu"


def test_a_gpu_that_is_too_small_for_the_weights_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Trainer, "_placed", too_large)
    says = r"^device=cpu: its memory is too small for this model \(OutOfMemoryError\)\. Choose a smaller model, or"
    with pytest.raises(EnvironmentFault, match=says):
        make_trainer(config(), tokenizers(), CPU, Ranks(StopRequest()))


def test_a_run_on_mps_says_so_and_knows_it_again() -> None:
    trainer: Any = SimpleNamespace(device=MPS, dtype=torch.float32, ranks=Ranks(StopRequest()))
    assert summary._device(config(), trainer) == "mps, float32"
    here = resuming.environment(MPS, Ranks(StopRequest()))
    assert here["device"] == "mps" != resuming.environment(CPU, Ranks(StopRequest()))["device"]


def test_mps_is_not_measured(machine: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    machine(mps=True)
    assert cli.main(["bench", "machine"]) == EnvironmentFault.exit_code
    assert "device=mps: has no float64, with which `tfm bench` compares. Use device=cpu" in capsys.readouterr().err


# ---- Memory of the CPU

PRODUCTS = """
import ctypes, torch
from transformer_cli.models.device import tune_cpu_memory
from transformer_cli.models.linear import has_onednn
from transformer_cli.system import c_function

tune_cpu_memory()
mallinfo2 = c_function("mallinfo2")
if not has_onednn() or mallinfo2 is None:
    raise SystemExit(3)
names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
mallinfo2.restype = type("mallinfo2", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_size_t) for name in names]})
torch.set_num_threads(1)
weight, in_use = torch.ones(512, 64), []
for rows in range(1000, 1300):
    torch.ops.mkldnn._linear_pointwise(torch.ones(rows, 64), weight, None, "none", [], "")
    in_use.append(mallinfo2().uordblks)
print(in_use[-1] - in_use[99])
"""


@pytest.mark.slow
def test_products_of_ever_new_sizes_do_not_fill_the_memory() -> None:
    """200 more sizes took 103 MB of what malloc gave, or 7 MB without AVX2, while all that oneDNN made was kept."""
    done = subprocess.run([sys.executable, "-c", PRODUCTS], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("no oneDNN, or no glibc 2.33 that counts what is in use")
    assert done.returncode == 0
    assert int(done.stdout) < 2 << 20
