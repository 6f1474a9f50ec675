"""The parts of the memory that a run takes beside its activations, known from its trainer before it starts."""

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from transformer_cli.inference.prepack import can_prepack
from transformer_cli.models.linear import Linear
from transformer_cli.models.memory import gigabytes
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.trainer import Trainer


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes. The copy is in the memory of the machine, all else in that of the device."""

    weights: int
    gradients: int  # of what is trained
    optimizer: int
    copy: int  # of what changes, written while training goes on; from a GPU, of all
    search: int  # matrices in a layout of their own, or in 16 bits, while dev text is translated

    def __str__(self) -> str:
        return (
            f"weights {gigabytes(self.weights)}, gradients {gigabytes(self.gradients)}, optimizer"
            f" {gigabytes(self.optimizer)}, the copy that is saved {gigabytes(self.copy)}; activations come on top."
            f" An evaluation takes {gigabytes(self.search)} for its search, and has no gradients"
        )


def memory_plan(trainer: Trainer) -> MemoryPlan:
    """The plan of a trainer whose optimizer has its state, as after an update."""
    parameters = list(trainer.model.parameters())
    ours = {one.data_ptr() for one in parameters}
    state = trainer.optimizer_state().values()
    weights, trained = n_bytes(parameters), n_bytes(one for one in parameters if one.requires_grad)
    optimizer = n_bytes(one for one in state if one.data_ptr() not in ours)
    on_cpu = trainer.device.type == "cpu"
    in_16_bits = 2 * sum(one.numel() for one in parameters)
    return MemoryPlan(
        weights,
        trained,
        optimizer,
        trained + optimizer if on_cpu else weights + n_bytes(state),
        _prepacked(trainer) if on_cpu else in_16_bits,
    )


def _prepacked(trainer: Trainer) -> int:
    model = trainer.model
    if not isinstance(model, Transformer) or not can_prepack(model):
        return 0
    matrices = [*(one.weight for one in model.modules() if isinstance(one, Linear)), model.output_embedding.weight]
    return sum(4 * matrix.numel() for matrix in matrices)  # in float32, whatever training keeps them in


def n_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
