"""The state of an optimizer as plain tensors by parameter name, as a checkpoint holds it."""

from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from transformer_cli.errors import CheckpointError, quoted
from transformer_cli.training.optimizers.registry import OptimizerKind

GROUPS = "param_groups"  # stands before the names of state that belongs to a group, not to a parameter


def optimizer_tensors(
    optimizer: Optimizer, parameters: Iterable[tuple[str, nn.Parameter]], kind: OptimizerKind
) -> dict[str, Tensor]:
    """The whole state: `exp_avg/encoder.layers.0.…` → tensor. Plain numbers become tensors."""
    slots = _slots(optimizer, dict(parameters), kind)
    return {name: _as_tensor(holder[key]) for name, holder, key in slots if holder[key] is not None}


def load_optimizer_tensors(
    optimizer: Optimizer,
    parameters: Iterable[tuple[str, nn.Parameter]],
    tensors: Mapping[str, Tensor],
    kind: OptimizerKind,
    *,
    put: Callable[[Tensor, Tensor], object] = Tensor.copy_,
) -> None:
    """The inverse of `optimizer_tensors`; `put` writes the second tensor into the first.

    Raises CheckpointError if `tensors` belong to another model or optimizer.
    """
    by_name = dict(parameters)
    kind.allocate(optimizer)
    slots = [slot for slot in _slots(optimizer, by_name, kind) if slot[1][slot[2]] is not None]
    refuse_other_tensors({name: _as_tensor(holder[key]) for name, holder, key in slots}, tensors)
    for name, holder, key in slots:
        own = _as_tensor(holder[key])
        put(own, tensors[name])
        if own is not holder[key]:
            holder[key] = own.item()


def _slots(
    optimizer: Optimizer, parameters: Mapping[str, nn.Parameter], kind: OptimizerKind
) -> Iterator[tuple[str, dict[str, object], str]]:
    """The name of each piece of state, and the dictionary and the key that it is under."""
    for name, parameter in parameters.items():
        state = optimizer.state.get(parameter, {})
        yield from ((f"{key}/{name}", state, key) for key in state)
    for i, group in enumerate(optimizer.param_groups):
        yield from ((f"{GROUPS}/{i}.{key}", group, key) for key in kind.group_state)


def _as_tensor(value: object) -> Tensor:
    if isinstance(value, Tensor):
        return value
    assert isinstance(value, bool | int | float), f"an optimizer whose state is a {type(value).__name__}"
    return torch.tensor(value, dtype={bool: torch.bool, int: torch.int64, float: torch.float64}[type(value)])


def refuse_other_tensors(like: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Raise CheckpointError if `tensors` differ from `like` in names, shapes or types."""
    for name in sorted(like.keys() | tensors.keys()):
        wanted, found = _kind(like.get(name)), _kind(tensors.get(name))
        if wanted != found:
            raise CheckpointError(
                f"optimizer state {quoted(name)}: {found}, but this model asks for {wanted}."
                " Resume with the config that the run was started with"
            )


def _kind(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"
