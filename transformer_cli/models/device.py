"""The device that a config asks for, never another one in silence; and the memory of a CPU."""

import ctypes

import torch

from transformer_cli.config.train import Device
from transformer_cli.errors import EnvironmentFault


def choose_device(wanted: Device) -> torch.device:
    """Raises EnvironmentFault when CUDA is asked for and there is none."""
    if wanted is Device.cuda and not torch.cuda.is_available():
        raise EnvironmentFault(
            "device=cuda: no CUDA device visible. Use device=cpu, or check the driver with nvidia-smi"
        )
    use_cuda = wanted is not Device.cpu and torch.cuda.is_available()
    return torch.device("cuda" if use_cuda else "cpu")


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's malloc.h
_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Let this process keep what tensors on the CPU have freed, for the next ones.

    glibc returns blocks of many megabytes to the system at once, which then has to clear the pages of the next ones: a
    tensor as large as the logits took four times as long to make (scripts/bench_choices.py). Other C libraries have no
    such setting, and nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
