"""The trainer: a model, its optimizer and the precision they work in; and one update of them.

In bf16 and fp16 the matrix products and attention read and write 16 bits; on a CPU attention is float32. All that adds
up many small numbers stays float32: the parameters that are trained and the residual sum of each layer, the statistics
of its norm, the log-sum-exp of attention and of the loss, the loss itself, the gradients as they accumulate, their
norm, the state of the optimizer (Muon's five products apart, which torch does in bf16), and the moving average. In tf32
everything is float32, but the products round their factors to 10 bits.

Shapes: K target tokens that are real, V vocabulary.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from transformer_cli.config.train import Compile, TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import FixedSizeBatch, Sizes
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import EnvironmentFault
from transformer_cli.logs import LOGGER
from transformer_cli.models.build import build_model
from transformer_cli.models.kernel_choice import choose_kernel
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.models.penalty import penalised_parts, recorded_penalties
from transformer_cli.models.transformer import Model, ModelOptions, TokenModel
from transformer_cli.training.captured import CapturedPasses
from transformer_cli.training.consistency import TwoPasses
from transformer_cli.training.ema import EMA_PREFIX as EMA
from transformer_cli.training.ema import Ema
from transformer_cli.training.forward import inputs, ready
from transformer_cli.training.freezing import choose_trained, narrow_frozen
from transformer_cli.training.gradients import GradientReducer
from transformer_cli.training.guided_alignment import taught_attention, teach
from transformer_cli.training.lora import (
    BASE,
    PREFIX,
    adapter_tensors,
    add_adapters,
    load_model_weights,
    merged_in_place,
    model_weights,
    restore_adapters,
)
from transformer_cli.training.loss import smoothed_nll
from transformer_cli.training.nonfinite import NonFiniteTracker
from transformer_cli.training.optimizers import (
    OPTIMIZERS,
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
    refuse_other_tensors,
    set_lr,
    take_step,
)
from transformer_cli.training.precision import choose_dtype, set_float32_products
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.word_dropout import WordDropout

if TYPE_CHECKING:
    from transformer_cli.training.compiled import CompiledLoss, Ways


VOCAB_MULTIPLE = 64  # the fast products of 16 bits want rows of 128 bytes


@dataclass(frozen=True)
class UpdateStats:
    """Tensors stay on the device: reading them waits for it."""

    loss: Tensor  # nats per target token, smoothed
    nll: Tensor  # nats per target token
    grad_norm: Tensor  # before clipping
    finite: Tensor  # False: the loss is not finite, and the update was skipped
    n_tokens: int  # target tokens
    n_padded_tokens: int  # of both sides, with padding
    alignment: Tensor | None = None  # nats per target token that has a link, of guided alignment
    n_linked: int = 0  # target tokens that have one


Share = list[tuple[tuple[int, ...], Batch]]  # of one rank: batches with their numbers


TensorSpecs = Mapping[str, tuple[Sequence[int], str]]  # name → shape and type


def spec_of(tensor: Tensor) -> tuple[list[int], str]:
    return list(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def empty(spec: tuple[Sequence[int], str], device: torch.device) -> Tensor:
    shape, dtype = spec
    return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=device)


class Trainer:
    """A model and its optimizer on a device. Raises EnvironmentFault for a precision that the device does not have.

    With several `ranks` each works on its share of an update's batches, and all take the same step.
    """

    is_sharded = False
    whole_model: Model  # `model`, or what the first rank has gathered of it

    def __init__(
        self, config: TrainConfig, tokenizers: Tokenizers, device: torch.device, ranks: Ranks | None = None
    ) -> None:
        self.device, self.settings, self.seed = device, config.train, config.seed
        self.ranks = ranks or Ranks(StopRequest())
        self.dtype = choose_dtype(config.train.precision, device)
        set_float32_products(config.train.precision, device)
        self.kernel = choose_kernel(config.model, device, self.dtype)
        ways: Ways | None = None
        if may_compile(config, device):
            from transformer_cli.training import compiled  # imports torch's compiler

            ways = compiled.chosen_ways(
                config, device, self.dtype, is_sharded=self.is_sharded, n_ranks=self.ranks.world_size
            )
        torch.manual_seed(stable_seed(config.seed))
        model = build_model(config.model, *tokenizers.vocabularies, model_options(config, device, self.ranks))
        if config.lora.rank:
            add_adapters(model, config.lora)
        choose_trained(model, config)
        narrow_frozen(model, config)
        self.guided_alignment = config.train.guided_alignment
        if self.guided_alignment:
            teach(model, config.train)
        self.penalised = penalised_parts(model)
        self.model = self._placed(model)  # after drawing the weights on the CPU: the same ones for every device
        self.model.train()
        self.optimizer_kind = OPTIMIZERS[config.optimizer.name]
        self.optimizer: Optimizer = build_optimizer(self.model, config.optimizer)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype is torch.float16)
        if self.scaler.is_enabled():  # it makes its scale when it is first used, and a rank may have no batch then
            self.scaler.scale(torch.zeros((), device=device))
        self.nonfinite = NonFiniteTracker(device, limit=config.train.max_nonfinite_steps)
        self.ema = Ema(self.model, config.train.ema) if config.train.ema is not None else None
        self.layer_drop = config.model.layer_drop
        self.n_splits = 0  # of batches that were too large for the memory
        is_twice = bool(config.train.rdrop or config.train.simcut)
        self.word_dropout = WordDropout(config.train, tokenizers, device)
        self.two_passes = TwoPasses(config.train, self.word_dropout) if is_twice else None
        self.compiled: CompiledLoss | None = None
        if ways is not None and any(ways):
            assert isinstance(self.model, TokenModel)
            self.compiled = compiled.CompiledLoss(
                self.model,
                config.train.compile,
                device,
                smoothing=config.train.label_smoothing,
                compiles=ways.compiles,
                rdrop=config.train.rdrop,
            )
        self.captured = CapturedPasses(self._pass, device) if ways is not None and ways.captures else None

    def expect(self, batches: Iterable[Batch], *, longest: int) -> None:
        """Choose the sizes that are compiled for: batches like these, of sentences of at most `longest` tokens.

        Each size is compiled for when its first batch comes.
        """
        if self.compiled is not None:
            self.compiled.expect(batches, longest=longest)

    @property
    def compiled_sizes(self) -> list[Sizes]:
        """The sizes that are compiled for; none where nothing is compiled, or the compiler has failed."""
        return self.compiled.sizes if self.compiled is not None else []

    def ready(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches of an update, those of this rank's share ready for the device; any thread may call this."""
        return [
            self._ready(batch) if i % self.ranks.world_size == self.ranks.rank else batch
            for i, batch in enumerate(batches)
        ]

    def _ready(self, batch: Batch) -> Batch:
        return ready(batch, self.kernel, self.device) if self.compiled is None else self.compiled.ready(batch)

    @cached_property
    def gradients(self) -> GradientReducer:
        return GradientReducer(self._parameters(), self.ranks, in_place=self.captured is not None)

    def _placed(self, model: Model) -> Model:
        self.whole_model = model.to(self.device)
        return model

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.dtype is torch.float32 else torch.autocast(self.device.type, self.dtype)

    def train_step(self, batches: Sequence[Batch], *, step: int, lr: float) -> UpdateStats:
        """One step of the optimizer over all `batches`; none, but counted, when the loss is not finite.

        Raises what `Ranks.synchronise` raises, and EnvironmentFault when the memory is too small for one sentence.
        """
        n_tokens = sum(batch.n_target_tokens for batch in batches)
        n_linked = sum(batch.n_linked for batch in batches)
        sums = self._backward(batches, step=step, n_tokens=n_tokens, n_linked=n_linked)
        loss, nll = sums[:2] / n_tokens
        alignment: Tensor | None = None
        if self.guided_alignment:
            alignment = sums[2] / max(1, n_linked)
            loss = loss + self.guided_alignment * alignment
        if self.layer_drop:
            self._fill_gradients()
        grad_norm = self._clip()
        set_lr(self.optimizer, lr)
        finite = loss.isfinite() & (grad_norm.isfinite() | self._scale_is_lowered(loss))
        self.nonfinite.add(finite, step, loss=loss, grad_norm=grad_norm)
        skip = self.nonfinite.last | ~grad_norm.isfinite()
        take_step(self.optimizer, skip=skip)
        if self.ema is not None:
            self.ema.update(step, changed=~skip)
        n_padded_tokens = sum(map(self._n_padded_tokens, batches))
        return UpdateStats(loss, nll, grad_norm, finite, n_tokens, n_padded_tokens, alignment, n_linked)

    def _n_padded_tokens(self, batch: Batch) -> int:
        return batch.n_tokens if self.compiled is None else self.compiled.n_padded_tokens(batch)

    @property
    def n_sums(self) -> int:
        """How many sums `forward_backward` returns."""
        return 3 if self.guided_alignment else 2

    def _backward(self, batches: Sequence[Batch], *, step: int, n_tokens: int, n_linked: int) -> Tensor:
        """Leave the gradient of all ranks in the parameters of each; return the sums of `forward_backward`.

        A batch that is too large for the memory is split in two, and the whole share computed again: what was left of
        it in the gradients is of no use. If others have already added it to theirs, they compute theirs again too, and
        no bucket is reduced before all are done. The dropout of a batch is drawn from its number, on whatever rank.
        """
        first, stride = self.ranks.rank, self.ranks.world_size
        numbered: Share = [((i,), batch) for i, batch in enumerate(batches)]
        share, is_early = numbered[first::stride], True
        while True:
            sums, share = self._accumulate(share, step=step, n_tokens=n_tokens, n_linked=n_linked, is_early=is_early)
            if sums is None and not self.gradients.n_started:
                continue
            totals = torch.zeros(self.n_sums, device=self.device) if sums is None else sums
            self.gradients.start_remaining(totals, step)
            are_well = self.ranks.synchronise(step, is_well=sums is not None)
            self.gradients.finish(totals, step)
            if are_well:
                return totals
            is_early = False

    def _accumulate(
        self, share: Share, *, step: int, n_tokens: int, n_linked: int, is_early: bool
    ) -> tuple[Tensor | None, Share]:
        """Sums over the share; or None, and the share to try: with the batch split that the memory was too small for.

        `is_early`: start to reduce the gradient during the last batch.
        """
        sums = torch.zeros(self.n_sums, device=self.device)
        self.gradients.clear()
        for at, (number, batch) in enumerate(share):
            is_last = at == len(share) - 1
            try:
                seed = stable_seed(self.seed, step, *number)
                with self.gradients.overlapped(step) if is_last and is_early else nullcontext():
                    sums += self.forward_backward(batch, seed=seed, n_tokens=n_tokens, n_linked=n_linked)
                continue
            except EnvironmentFault as error:
                if not self.has_lost_compiler(error):
                    raise
                return None, share
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            # Outside the handler, where the error no longer holds on to what it was computing with.
            halves = [((*number, half), part) for half, part in enumerate(self._halves(batch, step))]
            return None, [*share[:at], *halves, *share[at + 1 :]]
        return sums, share

    def forward_backward(self, batch: Batch, *, seed: int, n_tokens: float, n_linked: float = math.inf) -> Tensor:
        """Add the gradient of one batch, a part of an update of `n_tokens`; return its loss and NLL, summed.

        With guided alignment also its cross entropy, which is no part of the loss here: its mean is that of the
        `n_linked` target tokens of the update that have a link.
        """
        is_replay = self.captured is not None and self.captured.has(batch, self.compiled_sizes)
        torch.manual_seed(seed)
        if is_replay:
            assert self.captured is not None
            assert isinstance(batch, FixedSizeBatch)
            return self.captured(batch, n_tokens)
        loss: Tensor | None = None
        try:
            loss, nll, *alignment = self._loss(batch)
            # A graph reads its divisor from the device, and must give the same bits.
            total = loss / (n_tokens if self.captured is None else torch.full_like(loss, n_tokens))
            if alignment:
                total = total + self.guided_alignment * alignment[0] / max(1, n_linked)
            self.scaler.scale(total).backward()  # type: ignore[no-untyped-call]
            return torch.stack((loss.detach(), nll, *(x.detach() for x in alignment)))
        except RuntimeError as error:
            if self.compiled is None or not self.compiled.has_failed(error):
                raise
            self.compiled.disable_compile(error)
            if loss is not None:  # torch compiles a backward pass when it is reached: that of later layers is done
                from transformer_cli.training.compiled import BackwardCompileError

                raise BackwardCompileError(
                    "the compiler fails in a backward pass. Set train.compile=none, and repeat the command"
                ) from error
        return self.forward_backward(batch, seed=seed, n_tokens=n_tokens, n_linked=n_linked)

    def _pass(self, memory: Tensor, sizes: Sizes, n_tokens: Tensor) -> Tensor:
        """`forward_backward` of a batch on the device, of constant size, as it is captured."""
        assert self.compiled is not None
        with self.autocast():
            loss, nll = self.compiled.of_memory(memory, sizes)
        self.scaler.scale(loss / n_tokens).backward()  # type: ignore[no-untyped-call]
        return torch.stack((loss.detach(), nll))

    def has_lost_compiler(self, error: EnvironmentFault) -> bool:
        """Whether the share can be computed again without the compiler."""
        if self.compiled is None:
            return False
        from transformer_cli.training.compiled import BackwardCompileError

        return isinstance(error, BackwardCompileError)

    def _loss(self, batch: Batch) -> tuple[Tensor, ...]:
        """Loss and NLL, and the cross entropy of guided alignment, if there is any; all summed."""
        if not self.guided_alignment:
            return self._loss_of_targets(batch)
        with taught_attention(self.model) as taught:
            loss, nll = self._loss_of_targets(batch)
        n_passes = 1 if self.two_passes is None else 2
        return loss, nll, taught.loss(batch, self.device, n_passes=n_passes)

    def _loss_of_targets(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Loss, with the penalties of parts of the model, and NLL."""
        if not self.penalised:
            return self._loss_of_logits(batch)
        with recorded_penalties(self.penalised) as penalties:
            loss, nll = self._loss_of_logits(batch)
        n_passes = 1 if self.two_passes is None else 2  # both are in one batch
        return loss + torch.stack(penalties).sum() / n_passes if penalties else loss, nll

    def _loss_of_logits(self, batch: Batch) -> tuple[Tensor, Tensor]:
        with self.autocast():
            if self.compiled is not None:
                return self.compiled(batch)
            if self.two_passes is not None:
                return self.two_passes.loss(self.model, batch, self.device, self.kernel)
            given = inputs(batch, self.device, self.kernel)
            with self.word_dropout.applied(self.model, given):
                logits_KV = self.model.logits(given)
        return smoothed_nll(logits_KV, given.target_out_T, smoothing=self.settings.label_smoothing)

    def _halves(self, batch: Batch, step: int) -> tuple[Batch, Batch]:
        """Raises EnvironmentFault for a single sentence."""
        if batch.n_pairs == 1:
            raise EnvironmentFault(
                f"step {step}: out of memory with a single pair of {batch.n_tokens:,} tokens."
                " Lower data.max_length, or choose a smaller model"
            )
        self.n_splits += 1
        LOGGER.warning(
            "step %d: out of memory with a batch of %d pairs (%s tokens); it is split in two and tried again"
            " (%d times so far). Lower train.max_tokens_per_microbatch if this happens often",
            *(step, batch.n_pairs, f"{batch.n_tokens:,}", self.n_splits),
        )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # what is free in fragments may be enough in one
        return batch.halves()

    def _parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for parameter in self.model.parameters() if parameter.requires_grad)

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters() if parameter.grad is not None]

    def _clip(self) -> Tensor:
        self.scaler.unscale_(self.optimizer)
        norm = get_total_norm(self._gradients())
        if self.settings.clip_norm is not None:
            clip_grads_with_norm_(self._parameters(), self.settings.clip_norm, norm)
        return norm

    def _fill_gradients(self) -> None:
        """Give parameters of layers that every batch has skipped a gradient of zero, as they have on several ranks.

        Without one, optimizers would leave them out, and how many ranks there are would change the result.
        """
        for parameter in self._parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def gather(self) -> None:
        """Gather on the first rank what is to be evaluated or saved. All ranks call this."""

    @contextmanager
    def whole(self) -> Iterator[Model]:
        """`whole_model`, on the device, as its model file will be."""
        with merged_in_place(self.whole_model):
            yield self.whole_model

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of `whole_model`, as its model file has them."""
        weights = model_weights(self.whole_model)
        # A GPU merges what it has scored: its sums are not those of a CPU to the last bit.
        return weights if self.device.type == "cpu" else dict(weights)

    def load_weights(self, weights: Mapping[str, Tensor], *, is_final: bool = False) -> None:
        """Give `whole_model` the weights of a model file; `is_final`: to evaluate, not to train.

        Raises RuntimeError for those of another model.
        """
        load_model_weights(self.whole_model, weights, widens=is_final)

    def is_sound(self) -> bool:
        """Whether all weights are finite, and none so large that no loss would be."""
        return bool(get_total_norm(self.model.parameters()).isfinite())

    def _scale_is_lowered(self, loss: Tensor) -> Tensor:
        """Let the scaler of fp16 choose its next scale; True where it has found this one too large for the gradient.

        Such an update is skipped and is no sign of divergence: some 16 of them find the first scale. But no scale below
        1 is tried, and none is the cause of a loss that is not finite, which is not scaled.
        """
        if not self.scaler.is_enabled():
            return torch.zeros((), dtype=torch.bool, device=self.device)
        scale = self.scaler._get_scale_async()
        assert scale is not None
        before = scale.clone()
        self.scaler.update()
        scale.copy_(torch.where(loss.isfinite(), torch.maximum(scale, before.clamp(max=1)), before))
        return (scale < before).squeeze()

    def optimizer_state(self) -> dict[str, Tensor]:
        """The optimizer's tensors, those of the moving average and those of LoRA, by parameter name."""
        averaged = self.ema.tensors() if self.ema is not None else {}
        own = optimizer_tensors(self.optimizer, self.model.named_parameters(), self.optimizer_kind)
        return own | averaged | adapter_tensors(self.model)

    def load(
        self, weights: Mapping[str, Tensor] | None, optimizer_state: Mapping[str, Tensor], specs: TensorSpecs | None
    ) -> None:
        """Broadcast the first rank's weights and optimizer state, of which all ranks have the `specs`.

        A new run has no `specs`, and no `weights`: the first rank's model has them. The other ranks pass no tensors.
        """
        if weights is not None:
            self.load_weights(weights)
        self.ranks.broadcast(list(self.model.state_dict().values()))
        if specs is None:
            if self.ema is not None:
                self.ema.restore({})  # of the weights that training begins with, which may be a model's
            return
        tensors = {
            name: optimizer_state[name].to(self.device) if name in optimizer_state else empty(spec, self.device)
            for name, spec in specs.items()
        }
        self.ranks.broadcast(list(tensors.values()))
        averaged = {name: tensor for name, tensor in tensors.items() if name.startswith(EMA)}
        adapters = {name: tensor for name, tensor in tensors.items() if name.startswith((PREFIX, BASE))}
        optimizer = {name: tensor for name, tensor in tensors.items() if name not in averaged | adapters}
        load_optimizer_tensors(self.optimizer, self.model.named_parameters(), optimizer, self.optimizer_kind)
        refuse_other_tensors(adapter_tensors(self.model), adapters)
        restore_adapters(self.model, adapters)
        if self.ema is not None:
            self.ema.restore(averaged)

    def restore(self, state: dict[str, Any]) -> None:
        """Load a checkpoint's `state`, which is beside the tensors."""
        if state["scaler"]:  # empty, where the run was in another precision until now
            self.scaler.load_state_dict(state["scaler"])
        self.nonfinite.restore(state["skipped"], state.get("unread"))

    def state(self) -> dict[str, Any]:
        """The state that is saved beside the tensors; JSON."""
        unread = self.nonfinite.unread()
        return {
            "scaler": self.scaler.state_dict(),
            "skipped": self.nonfinite.counts(),
            **({} if unread is None else {"unread": unread}),
        }


def stable_seed(*numbers: int) -> int:
    """One 64-bit seed from several numbers, the same on every machine and in every Python."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "little")


def model_options(config: TrainConfig, device: torch.device, ranks: Ranks) -> ModelOptions:
    """How the model is computed in training: on a GPU in few and large products.

    But not so that gradients of all decoder layers are complete only after the last one, if they are to be reduced
    meanwhile, nor so that more is kept than activation checkpointing would.
    """
    is_gpu = device.type != "cpu"
    checkpointing = config.train.activation_checkpointing
    return ModelOptions(
        activation_checkpointing=checkpointing,
        # LoRA is in the layers' own products.
        projects_memory_at_once=is_gpu and not checkpointing and ranks.world_size == 1 and not config.lora.rank,
        vocab_multiple_of=VOCAB_MULTIPLE if is_gpu else 1,
    )


def may_compile(config: TrainConfig, device: torch.device) -> bool:
    """Whether to try it: on a CPU nothing is compiled unless train.compile asks for it."""
    wanted = config.train.compile
    return wanted is not Compile.none and (device.type == "cuda" or wanted is not Compile.auto)
