"""What learns: the model, its optimizer and the precision they work in; and one update of them.

In bf16 and fp16 the matrix products and attention read and write 16 bits. All that adds up many small numbers stays
float32: the parameters and the residual sum of each layer, the statistics of its norm, the log-sum-exp of attention and
of the loss, the loss itself, the gradients as they accumulate, their norm, what the optimizer remembers (Muon's five
products apart, which torch does in bf16), and the moving average. In tf32 everything is float32, but the products round
their factors to 10 bits.

Shapes: K target tokens that are real, V vocabulary.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from transformer_cli.config.data import Task
from transformer_cli.config.train import Compile, Precision, TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import Sizes
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import EnvironmentFault
from transformer_cli.logs import LOGGER
from transformer_cli.models.build import MODELS, Model, build_model
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.training.ema import PREFIX as EMA
from transformer_cli.training.ema import Ema
from transformer_cli.training.gradients import GradientSum
from transformer_cli.training.loss import smoothed_nll
from transformer_cli.training.optimizers import (
    OPTIMIZERS,
    build_optimizer,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rate,
    take_step,
)
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.schedules import SCHEDULES
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.validation import dev_tokens, predict

if TYPE_CHECKING:
    from transformer_cli.training.compiled import FusedLoss


@dataclass(frozen=True)
class UpdateStats:
    """Tensors stay on the device: whoever looks at them waits for it."""

    loss: Tensor  # nats per target token, smoothed
    nll: Tensor  # nats per target token
    grad_norm: Tensor  # before clipping
    finite: Tensor  # False: the loss is not a number, and nothing was learnt
    n_tokens: int  # target tokens
    n_cells: int  # that were computed, both sides


Share = list[tuple[tuple[int, ...], Batch]]  # of one rank: batches with their numbers


TensorSpecs = Mapping[str, tuple[Sequence[int], str]]  # name → shape and type


def spec_of(tensor: Tensor) -> tuple[list[int], str]:
    return list(tensor.shape), str(tensor.dtype).removeprefix("torch.")


def empty(spec: tuple[Sequence[int], str], device: torch.device) -> Tensor:
    shape, dtype = spec
    return torch.empty(tuple(shape), dtype=getattr(torch, dtype), device=device)


class Learner:
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
        torch.manual_seed(stable_seed(config.seed))
        model = build_model(
            config.model,
            source_vocab_size=len(tokenizers.source),
            target_vocab_size=tokenizers.n_outputs,
            source_pad_id=tokenizers.source.pad_id,
            target_pad_id=tokenizers.target.pad_id,
        )
        self.model = self._placed(model)  # after drawing the weights on the CPU: the same ones for every device
        self.model.train()
        for stack in self.model.stacks:
            stack.recomputes = self.settings.activation_checkpointing
        self.optimizer: Optimizer = build_optimizer(self.model, config.optimizer)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype is torch.float16)
        if self.scaler.is_enabled():  # it makes its scale when it is first used, and a rank may have no batch then
            self.scaler.scale(torch.zeros((), device=device))
        self.skips = Skips(device, most=config.train.max_nonfinite_steps)
        self.ema = Ema(self.model, config.train.ema) if config.train.ema is not None else None
        self.n_splits = 0  # of batches that were too large for the memory
        self.fused: FusedLoss | None = None
        if may_fuse(config, device):
            from transformer_cli.training.compiled import make_fused  # imports torch's compiler

            self.fused = make_fused(config, self.model, device, self.dtype, is_sharded=self.is_sharded)

    def expect(self, batches: Iterable[Batch], *, longest: int) -> None:
        """Choose what is compiled for: batches like these, of sentences of at most `longest` tokens.

        Each size is compiled for when the first batch of it is learnt from.
        """
        if self.fused is not None:
            self.fused.expect(batches, longest=longest)

    @property
    def compiled_sizes(self) -> list[Sizes]:
        """What is compiled for, or will be: none where nothing is, also since a compiler has failed."""
        return self.fused.sizes if self.fused is not None else []

    def ready(self, batches: Sequence[Batch]) -> list[Batch]:
        """These of an update, those of this rank's share ready for the device; any thread may do that."""
        return [
            self._ready(batch) if i % self.ranks.world_size == self.ranks.rank else batch
            for i, batch in enumerate(batches)
        ]

    def _ready(self, batch: Batch) -> Batch:
        if self.fused is not None:
            return self.fused.ready(batch)
        return batch.pinned() if self.device.type == "cuda" else batch

    @cached_property
    def gradients(self) -> GradientSum:
        return GradientSum(self._parameters(), self.ranks)

    def _placed(self, model: Model) -> Model:
        self.whole_model = model.to(self.device)
        return model

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not torch.float32)

    def update(self, batches: Sequence[Batch], *, step: int, rate: float) -> UpdateStats:
        """One step of the optimizer over all `batches`; none, but counted, when the loss is not a number.

        Raises what `Ranks.agree` raises, and EnvironmentFault when the memory is too small for one sentence.
        """
        n_tokens = sum(batch.n_target_tokens for batch in batches)
        loss, nll = self._backward(batches, step=step, n_tokens=n_tokens) / n_tokens
        grad_norm = self._clip()
        set_rate(self.optimizer, rate)
        finite = loss.isfinite() & (grad_norm.isfinite() | self._has_scaled_less(loss))
        self.skips.add(finite, step)
        skip = self.skips.last | ~grad_norm.isfinite()
        take_step(self.optimizer, skip=skip)
        if self.ema is not None:
            self.ema.update(step, changed=~skip)
        n_cells = sum(batch.n_tokens if self.fused is None else self.fused.n_cells(batch) for batch in batches)
        return UpdateStats(loss, nll, grad_norm, finite, n_tokens, n_cells)

    def _backward(self, batches: Sequence[Batch], *, step: int, n_tokens: int) -> Tensor:
        """Leave the gradient of all ranks in the parameters of each; return the sums of the loss and the NLL.

        A batch that is too large for the memory is cut in two, and the whole share computed again: what was left of it
        in the gradients is of no use. If others have already added it to theirs, they too compute theirs again; then
        nobody begins to add up before all are done.
        Every batch has its number, which its dropout is drawn from, on whatever rank.
        """
        first, stride = self.ranks.rank, self.ranks.world_size
        numbered: Share = [((i,), batch) for i, batch in enumerate(batches)]
        share, is_early = numbered[first::stride], True
        while True:
            sums, share = self._pass(share, step=step, n_tokens=n_tokens, is_early=is_early)
            if sums is None and not self.gradients.n_begun:
                continue
            totals = torch.zeros(2, device=self.device) if sums is None else sums
            self.gradients.begin_rest(totals, step)
            are_well = self.ranks.agree(step, is_well=sums is not None)
            self.gradients.finish(totals, step)
            if are_well:
                return totals
            is_early = False

    def _pass(self, share: Share, *, step: int, n_tokens: int, is_early: bool) -> tuple[Tensor | None, Share]:
        """Sums over the share; or None, and the share with the batch cut in two that the memory was too small for.

        `is_early`: begin to add up the gradient during the last batch.
        """
        sums = torch.zeros(2, device=self.device)
        self.gradients.clear()
        for at, (number, batch) in enumerate(share):
            is_last = at == len(share) - 1
            try:
                with self.gradients.as_it_comes(step) if is_last and is_early else nullcontext():
                    sums += self.learn_from(batch, seed=stable_seed(self.seed, step, *number), n_tokens=n_tokens)
                continue
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            # Outside the handler, where the error no longer holds on to what it was computing with.
            halves = [((*number, half), part) for half, part in enumerate(self._halves(batch, step))]
            return None, [*share[:at], *halves, *share[at + 1 :]]
        return sums, share

    def learn_from(self, batch: Batch, *, seed: int, n_tokens: float) -> Tensor:
        """Add the gradient of one batch, a part of an update of `n_tokens`; return its loss and NLL, summed."""
        torch.manual_seed(seed)
        try:
            loss, nll = self._losses(batch)
            self.scaler.scale(loss / n_tokens).backward()  # type: ignore[no-untyped-call]
            return torch.stack((loss.detach(), nll))
        except RuntimeError as error:
            if self.fused is None or not self.fused.has_failed(error):
                raise
            self.fused.give_up(error)
        return self.learn_from(batch, seed=seed, n_tokens=n_tokens)

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        with self.autocast():
            if self.fused is not None:
                return self.fused(batch)
            logits_KV, targets_K = predict(self.model, batch, self.device)
        return smoothed_nll(logits_KV, targets_K, smoothing=self.settings.label_smoothing)

    def _halves(self, batch: Batch, step: int) -> tuple[Batch, Batch]:
        """Raises EnvironmentFault for a single sentence."""
        if batch.n_pairs == 1:
            raise EnvironmentFault(
                f"step {step}: out of memory with a single pair of {batch.n_tokens:,} tokens."
                " Lower data.max_length, or choose a smaller model"
            )
        self.n_splits += 1
        LOGGER.warning(
            "step %d: out of memory with a batch of %d pairs (%s tokens); it is cut in two and tried again"
            " (%d times so far). Lower train.max_tokens_per_microbatch if this happens often",
            *(step, batch.n_pairs, f"{batch.n_tokens:,}", self.n_splits),
        )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # what is left in pieces may be enough in one piece
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

    def gather(self) -> None:
        """Make whole what is to be evaluated or saved. All ranks call this."""

    @contextmanager
    def whole(self) -> Iterator[Model]:
        """`whole_model`, on the device."""
        yield self.whole_model

    def is_sound(self) -> bool:
        """Whether all weights are numbers, and none so large that no loss would be."""
        return bool(get_total_norm(self.model.parameters()).isfinite())

    def _has_scaled_less(self, loss: Tensor) -> Tensor:
        """Let the scaler of fp16 choose its next scale; True where it has found this one too large for the gradient.

        Such an update is left out and is no sign of divergence: some 16 of them look for the first scale. But no scale
        below 1 is tried, and none is to blame for a loss that is not finite, which is not scaled.
        """
        if not self.scaler.is_enabled():
            return torch.zeros((), dtype=torch.bool, device=self.device)
        scale = self.scaler._get_scale_async()
        assert scale is not None
        before = scale.clone()
        self.scaler.update()
        scale.copy_(torch.where(loss.isfinite(), torch.maximum(scale, before.clamp(max=1)), before))
        return (scale < before).squeeze()

    def remembered(self) -> dict[str, Tensor]:
        """The optimizer's tensors and those of the moving average, by parameter name."""
        averaged = self.ema.tensors() if self.ema is not None else {}
        return optimizer_tensors(self.optimizer, self.model.named_parameters()) | averaged

    def take(
        self, weights: Mapping[str, Tensor] | None, remembered: Mapping[str, Tensor], specs: TensorSpecs | None
    ) -> None:
        """Let all ranks have the first rank's weights, and what it remembers, of which they know the `specs`.

        A new run has no `specs`, and no `weights`: the first rank's model has them. The other ranks pass nothing.
        """
        if weights is not None:
            self.model.load_state_dict(weights)
        self.ranks.spread(list(self.model.state_dict().values()))
        if specs is None:
            return
        tensors = {
            name: remembered[name].to(self.device) if name in remembered else empty(spec, self.device)
            for name, spec in specs.items()
        }
        self.ranks.spread(list(tensors.values()))
        averaged = {name: tensor for name, tensor in tensors.items() if name.startswith(EMA)}
        optimizer = {name: tensor for name, tensor in tensors.items() if name not in averaged}
        load_optimizer_tensors(self.optimizer, self.model.named_parameters(), optimizer)
        if self.ema is not None:
            self.ema.restore(averaged)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with a checkpoint's `state`, which is beside the tensors."""
        if state["scaler"]:  # empty, where the run was in another precision until now
            self.scaler.load_state_dict(state["scaler"])
        self.skips.restore(state.get("skipped", (0, 0)))

    def state(self) -> dict[str, Any]:
        """What is left to save beside the tensors; JSON."""
        return {"scaler": self.scaler.state_dict(), "skipped": self.skips.counts()}


class Skips:
    """Counts the updates that taught nothing because their loss was not a number: in a row, and in all.

    After `most` in a row nothing is learnt any more, so that the weights stay what they were when it went wrong.
    """

    def __init__(self, device: torch.device, *, most: int) -> None:
        self.most = most
        self.in_a_row, self.in_all = torch.zeros(2, dtype=torch.int64, device=device)
        self.last = torch.zeros((), dtype=torch.bool, device=device)  # whether the last update was skipped
        self._seen = torch.zeros(3, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._is_copied = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def add(self, finite: Tensor, step: int) -> None:
        self.last = ~finite | (self.in_a_row >= self.most)
        self.in_a_row = (self.in_a_row + 1) * self.last
        self.in_all = self.in_all + self.last
        self._step = step

    def look(self) -> tuple[int, int, int]:
        """(in a row, in all, step) on a CPU; on a GPU as they were one call ago, for which nobody has to wait."""
        now = torch.stack((self.in_a_row, self.in_all, torch.full_like(self.in_all, self._step)))
        if self._is_copied is None:
            in_a_row, in_all, step = now.tolist()
        else:
            self._is_copied.synchronize()
            in_a_row, in_all, step = self._seen.tolist()
            self._seen.copy_(now, non_blocking=True)
            self._is_copied.record()
        return in_a_row, in_all, step

    def counts(self) -> list[int]:
        """In a row and in all."""
        return [int(self.in_a_row), int(self.in_all)]

    def restore(self, counts: Sequence[int]) -> None:
        """The inverse of `counts`."""
        self.in_a_row, self.in_all = torch.tensor(counts, dtype=torch.int64, device=self.in_all.device)


def stable_seed(*numbers: int) -> int:
    """One 64-bit seed from several numbers, the same on every machine and in every Python."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "little")


def check_parts(config: TrainConfig, device: torch.device) -> None:
    """Raises ConfigError for a name that is in no registry, EnvironmentFault for a precision that `device` lacks, or
    for a tokenizer that is not installed.
    """
    MODELS.check(config.model.name)
    SCHEDULES.check(config.schedule.name)
    OPTIMIZERS.check(config.optimizer.name)
    choose_dtype(config.train.precision, device)
    if config.data.task is Task.translation:
        dev_tokens(config.data)


def choose_dtype(wanted: Precision, device: torch.device) -> torch.dtype:
    """The type of matrix products; weights stay float32. Raises EnvironmentFault for one that `device` lacks."""
    on_gpu = device.type == "cuda"
    has_bf16 = not on_gpu or torch.cuda.is_bf16_supported(including_emulation=False)
    if wanted is Precision.fp16 and not on_gpu:
        raise EnvironmentFault("train.precision=fp16: needs a GPU. Use train.precision=fp32")
    if wanted is Precision.tf32 and not on_gpu:
        raise EnvironmentFault("train.precision=tf32: needs a GPU; a CPU has fp32 and bf16. Use train.precision=fp32")
    if wanted is Precision.tf32 and not torch.cuda.is_tf32_supported():
        raise EnvironmentFault("train.precision=tf32: this GPU does not have it. Use train.precision=fp32")
    if wanted is Precision.bf16 and not has_bf16:
        raise EnvironmentFault("train.precision=bf16: this GPU does not have it. Use train.precision=fp16")
    if wanted is Precision.auto:
        wanted = (Precision.bf16 if has_bf16 else Precision.fp16) if on_gpu else Precision.fp32
    return {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}.get(wanted, torch.float32)


def may_fuse(config: TrainConfig, device: torch.device) -> bool:
    """Whether to try it: on a CPU, unless somebody asks for it, a batch is better taken as it is."""
    return device.type == "cuda" or config.train.compile in (Compile.default, Compile.graphs)


def set_float32_products(precision: Precision, device: torch.device) -> None:
    """Let a GPU multiply float32 matrices as `precision` says: exactly, or with factors rounded to tf32.

    It holds for the whole process. torch has a newer name for it, but its compiler refuses to work once that is used.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if precision is Precision.tf32 else "highest")
