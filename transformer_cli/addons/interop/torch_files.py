"""Weights in files of `torch.save`, of which nothing is ever executed: torch reads numbers, and refuses all else."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted

ZIP = b"PK"


def read_torch(path: Path, *, allowed: Sequence[Any] = ()) -> Any:
    """What a file of torch holds, its tensors mapped where the file is a zip archive, as since torch 1.6.

    `allowed` are classes without code of their own that may stand in it beside tensors and containers. Raises
    CheckpointError for a damaged file, and for one that would have to be executed.
    """
    try:
        with path.open("rb") as file:
            is_zip = file.read(len(ZIP)) == ZIP
        with torch.serialization.safe_globals(list(allowed)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of storages that torch calls by their old names
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except OSError as error:
        raise EnvironmentFault(f"{path}: {error.strerror}. Check the disk and the file's permissions") from error
    except MemoryError:
        raise
    except Exception as error:  # a forged file fails in many ways
        raise CheckpointError(f"{path}: {_reason(error)}") from error


def read_tensors(path: Path) -> Mapping[str, torch.Tensor]:
    """A file of named tensors, and of nothing else. Raises CheckpointError."""
    found = read_torch(path)
    if not isinstance(found, Mapping) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in found.items()
    ):
        raise CheckpointError(f"{path}: holds something else than named tensors. Fetch it again")
    return dict(found)


def _reason(error: Exception) -> str:
    text = str(error)
    if any(f"unsupported {what}" in text.lower() for what in ("global", "class", "operand")):
        named = text.partition("GLOBAL ")[2].split(" ")[0] or text.partition("Unsupported ")[2].split("\n")[0]
        return f"holds code ({quoted(named)}), which is not run. Fetch the weights as safetensors"
    return f"damaged, or not of torch ({quoted(f'{type(error).__name__}: {text}'.split(chr(10))[0])}). Fetch it again"
