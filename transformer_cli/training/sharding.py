"""Ranks that hold a part of the model each, for a model that does not fit: FSDP2, or `fully_shard` of torch.

Weights, gradients and the optimizer's moments are cut along the first dimension of each tensor. A layer is gathered
when it is needed and freed afterwards, so forward and backward passes are collectives: all ranks make equally many,
and a batch that is too large for one of them cannot be split and tried again.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from transformer_cli.config.train import TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.models.layers import DecoderLayer
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.models.transformer import Model
from transformer_cli.training.ema import EMA_PREFIX as EMA
from transformer_cli.training.optimizers import load_optimizer_tensors, optimizer_tensors
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.trainer import TensorSpecs, Trainer, empty, stable_seed


class ShardedTrainer(Trainer):
    """A trainer that holds its rank's shard. The first rank has the whole model in its memory, as of the last `gather`.

    Every method but `whole` and `optimizer_state` is called by all ranks at once. Raises EnvironmentFault for float16,
    whose scaler would need all shards, and ConfigError for a single rank.
    """

    is_sharded = True

    def __init__(self, config: TrainConfig, tokenizers: Tokenizers, device: torch.device, ranks: Ranks) -> None:
        if ranks.world_size == 1:
            raise ConfigError(
                "train.sharding=full: needs several ranks. Start them with torchrun, or set train.sharding=none"
            )
        super().__init__(config, tokenizers, device, ranks)
        if self.scaler.is_enabled():
            raise EnvironmentFault("train.sharding=full: does not train in fp16. Set train.precision=fp32 or bf16")
        self._optimizer_state: dict[str, Tensor] = {}
        self._is_sound = True
        self._step = 0

    def _placed(self, model: Model) -> Model:
        """Layer by layer, so that no device ever holds the whole model."""
        self.whole_model = copy.deepcopy(model) if self.ranks.is_first else model
        mesh = init_device_mesh(self.device.type, (self.ranks.world_size,))
        for part in (*(layer for stack in model.stacks for layer in stack.layers), model):
            sharded = fully_shard(part, mesh=mesh)
            if isinstance(part, DecoderLayer):
                register_fsdp_forward_method(part, "cross_scores")
            sharded.set_gradient_divide_factor(1.0)  # the loss is divided by the target tokens of all ranks
            sharded.set_force_sum_reduction_for_comms(True)  # gloo has no other
        register_fsdp_forward_method(model, "predict")
        return model

    def autocast(self) -> AbstractContextManager[Any]:
        on = self.dtype is not torch.float32
        return torch.autocast(self.device.type, self.dtype, enabled=on, cache_enabled=False)  # it would hold all layers

    def _backward(self, batches: Sequence[Batch], *, step: int, n_tokens: int, n_linked: int) -> Tensor:
        """All ranks make equally many passes; one without a batch in a round takes the first batch, with weight 0.

        Each pass reduces its gradient and adds it to the rank's part of the sum: no rank ever holds a whole one.
        """
        self.ranks.synchronise(step)
        self._step = step
        self.optimizer.zero_grad(set_to_none=True)
        sums, n_ranks = torch.zeros(self.n_sums, device=self.device), self.ranks.world_size
        n_rounds = -(-len(batches) // n_ranks)
        for n in range(n_rounds):
            number = n * n_ranks + self.ranks.rank
            has_one = number < len(batches)
            batch, *divisors = (batches[number], n_tokens, n_linked) if has_one else (batches[0], math.inf, math.inf)
            seed = stable_seed(self.seed, step, number)
            with self._collective(batch):
                partial_sums = self.forward_backward(batch, seed=seed, n_tokens=divisors[0], n_linked=divisors[1])
            sums += partial_sums if has_one else 0
        self.ranks.wait([self.ranks.start_all_reduce(sums, step)], step, on_gpu=sums.is_cuda)
        return sums

    @contextmanager
    def _collective(self, batch: Batch | None = None) -> Iterator[None]:
        """Raise what a failure means: that the memory is too small for `batch`, or else that a rank is lost."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise self.ranks.find_lost_rank(self._step, str(error)) from error
            what = "" if batch is None else f" with a batch of {batch.n_pairs} pairs ({batch.n_tokens:,} tokens)"
            raise EnvironmentFault(
                f"step {self._step}: out of memory{what}, which is not split with train.sharding=full."
                " Lower train.max_tokens_per_microbatch, or set train.activation_checkpointing=true"
            ) from error

    def _clip(self) -> Tensor:
        norm = get_total_norm(self._gradients())
        if self.settings.clip_norm is not None:
            clip_grads_with_norm_(self._parameters(), self.settings.clip_norm, norm)
        return _whole(norm)

    def gather(self) -> None:
        with self._collective():
            self._is_sound = bool(_whole(get_total_norm(self.model.parameters())).isfinite())
            weights = self._on_first(self.model.state_dict())
            state = optimizer_tensors(self.optimizer, self.model.named_parameters(), self.optimizer_kind)
            self._optimizer_state = self._on_first(state)
        if self.ranks.is_first:
            self.whole_model.load_state_dict(weights)

    def _on_first(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The whole tensors, one after another, in the memory of the first rank; nothing on the others."""
        kept = {}
        for name, tensor in tensors.items():
            whole = _whole(tensor)
            if self.ranks.is_first:
                kept[name] = whole.detach().to("cpu", copy=True)
        return kept

    def is_sound(self) -> bool:
        return self._is_sound

    @contextmanager
    def whole(self) -> Iterator[Model]:
        try:
            yield self.whole_model.to(self.device)
        finally:
            self.whole_model.to("cpu")

    def optimizer_state(self) -> dict[str, Tensor]:
        return self._optimizer_state

    def load(
        self, weights: Mapping[str, Tensor] | None, optimizer_state: Mapping[str, Tensor], specs: TensorSpecs | None
    ) -> None:
        whole: dict[str, Tensor] = {}
        if self.ranks.is_first:
            if weights is not None:
                self.whole_model.load_state_dict(weights)
            whole = self.whole_model.state_dict()
        with self._collective():
            for name, part in self.model.state_dict().items():
                self._put(part, whole.get(name, torch.empty(part.shape, device="meta")))
            if specs is None:
                return
            # A moving average, which a run without shards may have kept, is dropped.
            names = [name for name in specs if not name.startswith(EMA)]
            tensors = {name: optimizer_state.get(name, empty(specs[name], torch.device("meta"))) for name in names}
            parameters = self.model.named_parameters()
            load_optimizer_tensors(self.optimizer, parameters, tensors, self.optimizer_kind, put=self._put)

    def _put(self, own: Tensor, whole: Tensor) -> None:
        """Write into each rank's `own` tensor, or its part of one, what the first rank has; the others' has no data."""
        received = torch.empty(whole.shape, dtype=own.dtype, device=self.device)
        if not whole.is_meta:
            received.copy_(whole)
        if isinstance(own, DTensor):
            own.copy_(distribute_tensor(received, own.device_mesh, own.placements))
        else:
            self.ranks.broadcast([received])
            own.copy_(received)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
