"""Whether Triton's kernels run here: on a GPU, where Triton is installed and finds a compiler for its launchers."""

from functools import cache
from importlib.util import find_spec

import torch

from transformer_cli.logs import LOGGER


@cache
def triton_runs() -> bool:
    """Tried once, with the smallest of kernels; where it fails, torch's kernels are used and the reason is logged."""
    if torch.version.cuda is None or find_spec("triton") is None or not torch.cuda.is_available():
        return False
    if torch.cuda.get_device_capability() < (8, 0):  # whose products of 16 bits are not those of our kernels
        return False
    try:
        from transformer_cli.models.triton_trial import fill_with_ones

        x_X = torch.zeros(2, device="cuda")
        fill_with_ones(x_X)
        return x_X.tolist() == [1, 1]
    except Exception as error:  # a compiler that is missing, its headers, or a GPU that this Triton does not know
        LOGGER.info(
            "attention: by torch's own kernels, as Triton's fail (%s)", str(error).strip().split("\n")[-1][:200]
        )
        return False
