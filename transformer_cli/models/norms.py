"""The registry of norms. No torch is needed to register one."""

from collections.abc import Callable
from typing import Any, TypeAlias

from transformer_cli.registry import Registry, check_callable, guarded

# From the width D and what is added to the variance to a torch.nn.Module, [..., D] -> [..., D].
NormBuilder: TypeAlias = Callable[[int, float], Any]


def _adopted(name: str, entry: Any) -> NormBuilder:
    check_callable(entry, what="a norm", arguments="width, eps")
    return guarded(entry, _fault_of)


def _fault_of(made: object, *_: object) -> str | None:
    from torch import nn

    return None if isinstance(made, nn.Module) else f"a {type(made).__name__}, not a torch.nn.Module"


NORMS: Registry[NormBuilder] = Registry("norm", adopt=_adopted)


@NORMS.register("layer")
def layer_norm(width: int, eps: float) -> Any:
    """Layer normalization (Ba et al. 2016)."""
    from torch import nn

    return nn.LayerNorm(width, eps=eps)


@NORMS.register("rms")
def rms_norm(width: int, eps: float) -> Any:
    """Root mean square layer normalization (Zhang and Sennrich 2019): subtracts no mean and adds no bias."""
    from torch import nn

    return nn.RMSNorm(width, eps=eps)
