"""The device that a config asks for, never another one in silence; and the memory of a CPU."""

import os
import re
import shutil
import warnings
from functools import cache
from typing import NamedTuple

import torch

from transformer_cli.config.train import Device
from transformer_cli.errors import EnvironmentFault, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.system import c_function


class Fault(NamedTuple):
    """Why CUDA cannot be used."""

    what: str
    todo: str
    has_gpu: bool = True  # as far as that can be known: then device=auto does not pass over it in silence


def choose_device(wanted: Device) -> torch.device:
    """The device; auto is CUDA, else MPS, else the CPU. Raises EnvironmentFault for one that cannot be used.

    On CUDA the attention of cuDNN is switched off for the whole process: it plans anew for every shape.
    """
    if wanted in (Device.auto, Device.cuda):
        fault = cuda_fault()
        if fault is None:
            torch.backends.cuda.enable_cudnn_sdp(False)
            return torch.device("cuda")
        if wanted is Device.cuda:
            raise EnvironmentFault(f"device=cuda: {fault.what}. Use device=cpu, or {fault.todo}")
        if fault.has_gpu:
            _warn_once(f"device=auto: does not use CUDA, as {fault.what}. To use it, {fault.todo}")
    if wanted in (Device.auto, Device.mps) and torch.backends.mps.is_available():
        return torch.device("mps")
    if wanted is Device.mps:
        what = "no Apple GPU, or a macOS that is too old for this torch"
        if not torch.backends.mps.is_built():
            what = f"this torch ({torch.__version__}) is built without MPS, which is for Macs alone"
        raise EnvironmentFault(f"device=mps: {what}. Use device=cpu")
    return torch.device("cpu")


def cuda_fault() -> Fault | None:
    """None where CUDA, or ROCm under that name, can be used."""
    if torch.version.cuda is None and torch.version.hip is None:
        what = f"this torch ({torch.__version__}) is built without CUDA"
        return Fault(what, "install a torch that is built with it", shutil.which("nvidia-smi") is not None)
    # torch says what is wrong in warnings, of many lines.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            return _too_old()
    said = " ".join(str(one.message) for one in caught)
    if "too old" in said:
        what = f"the driver of the GPU is too old for this torch ({torch.__version__})"
        return Fault(what, f"update the driver, or {_FOR_OLD}")
    if said:
        return Fault(f"CUDA cannot be initialised ({quoted(said, 150)})", "check the driver with nvidia-smi")
    return Fault("no CUDA device visible", "check the driver with nvidia-smi", has_gpu=False)


_FOR_OLD = "install the build of torch for CUDA 12.6"  # the last that supports GPUs and drivers of 2016


def _too_old() -> Fault | None:
    """Whether the GPU has machine code in this build: of its own major version, and of no later minor one."""
    built_for = [tuple(map(int, found)) for arch in torch.cuda.get_arch_list() for found in _CUBIN.findall(arch)]
    if torch.version.hip is not None or not built_for:
        return None
    capability = torch.cuda.get_device_capability()
    if any(major == capability[0] and minor <= capability[1] for major, minor in built_for):
        return None
    newest = max(built_for)
    if capability > newest and any("compute_" in arch for arch in torch.cuda.get_arch_list()):
        return None  # the driver compiles what is there for it
    name, version = torch.cuda.get_device_name(), "{}.{}".format(*capability)
    oldest = "{}.{}".format(*min(built_for))
    what = f"{name} has compute capability {version}, and this torch ({torch.__version__}) is built for {oldest} to "
    what += "{}.{}".format(*newest)
    return Fault(what, "install a newer torch" if capability > newest else _FOR_OLD)


_CUBIN = re.compile(r"^sm_(\d+)(\d)")


@cache
def _warn_once(message: str) -> None:
    LOGGER.warning("%s", message)


def accumulation_dtype(device: torch.device) -> torch.dtype:
    """The type for long sums on `device`: float64, or float32 on MPS, which has no wider one."""
    return torch.float32 if device.type == "mps" else torch.float64


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
_NEVER = 2**31 - 1
_N_PRIMITIVES = 128  # more than a search uses: some 20 sizes of a batch, five matrices of a layer and the output


def tune_cpu_memory() -> None:
    """Let this process keep what tensors on the CPU have freed, and oneDNN little. Call it before the first product.

    glibc returns blocks of many megabytes to the system at once, which then has to clear the pages of the next ones: a
    tensor as large as the logits took four times as long to make (scripts/bench_choices.py). Other C libraries have no
    such setting, and nothing happens.

    oneDNN and torch each keep the last 1,024 primitives, which are of one size of batch. Each has half a megabyte, and
    they lie between the tensors, so that what these free is in pieces. Nearly every batch of a training has a new size:
    memory grew to gigabytes, and primitives were seldom used again.
    """
    mallopt = c_function("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
    for names in (("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"), ("LRU_CACHE_CAPACITY",)):
        if not any(name in os.environ for name in names):  # the second is oneDNN's older one, the third torch's
            os.environ[names[0]] = str(_N_PRIMITIVES)


def release_cpu_memory() -> None:
    """Return to the system what a phase of the process has freed, where the next one needs other tensors.

    What `tune_cpu_memory` keeps is in pieces of the sizes of the last phase, beside which the next takes memory anew:
    the peak was that of all phases together.
    """
    trim = c_function("malloc_trim")
    if trim is not None:
        trim(0)
