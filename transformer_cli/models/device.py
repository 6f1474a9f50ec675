"""The device that a config asks for; never another one in silence."""

import torch

from transformer_cli.errors import EnvironmentFault
from transformer_cli.schema import Device


def choose_device(wanted: Device) -> torch.device:
    """Raises EnvironmentFault when CUDA is asked for and there is none."""
    if wanted is Device.cuda and not torch.cuda.is_available():
        raise EnvironmentFault(
            "device=cuda: no CUDA device visible. Use device=cpu, or check the driver with nvidia-smi"
        )
    use_cuda = wanted is not Device.cpu and torch.cuda.is_available()
    return torch.device("cuda" if use_cuda else "cpu")
