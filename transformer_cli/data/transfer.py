"""Copies from the memory of the CPU to a device, and back."""

from collections.abc import Sequence

import torch
from torch import Tensor


def copies_asynchronously(device: torch.device) -> bool:
    """Whether the CPU may go on while `device` copies to or from pinned memory.

    Not on Apple's GPUs: what torch copies there without blocking may arrive corrupted (its issues 139550 and 189690).
    """
    return device.type not in ("cpu", "mps")


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """`tensor`, which is on the CPU, on `device`; through pinned memory, or the CPU would wait for the device."""
    if not copies_asynchronously(device):
        return tensor.to(device)
    return (tensor if tensor.is_pinned() else tensor.pin_memory()).to(device, non_blocking=True)


def on_host(tensors: Sequence[Tensor]) -> list[Tensor]:
    """`tensors`, all of one device, in the memory of the CPU, which waits for the device once."""
    *others, last = tensors
    assert last.numel(), "torch copies nothing for an empty tensor, and waits for nothing"
    copies = [tensor.to("cpu", non_blocking=copies_asynchronously(last.device)) for tensor in others]
    return [*copies, last.cpu()]  # a device copies in turn: with the last one all have come
