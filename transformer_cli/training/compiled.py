"""Forward pass and loss as one function of one tensor: what a GPU is fed with, and what a compiler can work on.

Shapes: S source and T target tokens of a buffer, V vocabulary.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from transformer_cli.config.train import Compile, TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import Buffered, Filled, Sizes, chosen, constant_sizes, filled
from transformer_cli.errors import EnvironmentFault, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.models.embeddings import LearnedPositions, waves
from transformer_cli.models.packed_attention import Joined, obstacle
from transformer_cli.models.transformer import Model, Transformer
from transformer_cli.training.loss import smoothed_nll, smoothed_nll_of_learnt

COLUMNS = 64  # of the vocabulary: the fast products of 16 bits want rows of 128 bytes
TILE = 128  # queries, or keys, that attention takes at once
MOST_GRAPHS = 256  # in a process, where torch goes on without the compiler after 8 and only says so in a log
MODES = {Compile.graphs: "reduce-overhead"}

Loss = Callable[..., tuple[Tensor, Tensor]]


def make_fused(
    config: TrainConfig, model: Model, device: torch.device, dtype: torch.dtype, *, is_sharded: bool
) -> "FusedLoss | None":
    """None where something stands against it. Raises what `can_fuse` raises."""
    if not can_fuse(config, device, dtype, is_sharded=is_sharded):
        return None
    assert isinstance(model, Transformer)
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # for the whole process: it plans anew for every batch
        model.multiple_of = COLUMNS
        model.decoder.projects_at_once = (
            not config.train.activation_checkpointing
        )  # whose layers hold as little as can be
    return FusedLoss(model, config.train.compile, device, smoothing=config.train.label_smoothing)


def can_fuse(config: TrainConfig, device: torch.device, dtype: torch.dtype, *, is_sharded: bool = False) -> bool:
    """Whether nothing stands against it; or what does is told.

    Raises EnvironmentFault for a train.compile that was asked for and cannot be.
    """
    wanted = config.train.compile
    reason = "train.sharding=full" if is_sharded else obstacle(config.model, device, dtype)
    if reason is None and wanted is Compile.graphs and device.type != "cuda":
        reason = "a CPU"
    if reason is not None and wanted in (Compile.default, Compile.graphs):
        raise EnvironmentFault(f"train.compile={wanted.name}: does not go with {reason}. Set train.compile=none")
    if reason is not None:
        LOGGER.info(
            "train.compile=%s: nothing is compiled, and attention takes one length at a time (%s)", wanted.name, reason
        )
    return reason is None


def in_tiles(longest: int) -> int:
    """The tokens that attention reserves for sentences of up to `longest`: its tiles are not smaller."""
    return -(-longest // TILE) * TILE


class FusedLoss:
    """The loss of a batch and its plain NLL, summed over the target tokens. Attention takes all sentences at once.

    Once it is known which batches are to come, they are padded to a few constant sizes, and compiled for. A batch that
    fits none of them is taken as it is, and never compiled for: a compiler gives up after so many sizes.
    """

    def __init__(self, model: Transformer, compile: Compile, device: torch.device, *, smoothing: float) -> None:
        self.model, self.compile, self.device, self.smoothing = model, compile, device, smoothing
        self.sizes: list[Sizes] = []  # that are compiled for
        self._compiled: Loss

    def expect(self, batches: Iterable[Batch], *, longest: int) -> None:
        """Prepare for batches like these; `longest` are the tokens of the longest sentence of all."""
        if self.compile is Compile.none:
            return
        # Of learned positions there may be no more.
        limit = longest if isinstance(self.model.encoder.positions, LearnedPositions) else in_tiles(longest)
        self.prepare(constant_sizes(map(Sizes.of, batches), longest=limit))

    def prepare(self, sizes: list[Sizes]) -> None:
        """Compile for these, each of them when its first batch comes."""
        self.sizes = sizes
        if sizes:
            torch._dynamo.config.recompile_limit = MOST_GRAPHS  # each run has but a few; those of a sweep are many
            torch.compiler.assume_constant_result(waves)  # type: ignore[no-untyped-call]
            one = partial(_losses, self.model, loss=smoothed_nll_of_learnt, smoothing=self.smoothing)
            self._compiled = torch.compile(one, dynamic=False, mode=MODES.get(self.compile))

    def ready(self, batch: Batch) -> Buffered:
        """`batch` in its buffer; any thread may do that."""
        sizes = chosen(batch, self.sizes)
        memory = filled(batch, sizes)
        memory = memory.pin_memory() if self.device.type == "cuda" else memory
        return Buffered(batch.source_S, batch.target_in_T, batch.target_out_T, batch.runs, sizes, memory)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Within autocast."""
        sizes = chosen(batch, self.sizes)
        if not isinstance(batch, Buffered) or batch.sizes != sizes:  # made ready before a compiler gave up
            batch = self.ready(batch)
        memory = batch.memory.to(self.device, non_blocking=True)
        if sizes not in self.sizes:
            return _losses(self.model, memory, sizes, loss=smoothed_nll, smoothing=self.smoothing)
        if self.compile is Compile.graphs:
            self._begin_replay()
        return self._compiled(memory, sizes)

    def _begin_replay(self) -> None:
        """Nothing that the last replay has left is needed any more: gradients are added to memory of their own."""
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        for parameter in self.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def n_cells(self, batch: Batch) -> int:
        """Tokens of both sides that are computed for `batch`."""
        return chosen(batch, self.sizes).n_tokens

    def give_up(self, error: Exception) -> None:
        """Go on without the compiler, which has failed with `error`.

        Raises EnvironmentFault where it was asked for.
        """
        cause = getattr(error, "inner_exception", error)  # of what torch says that its compiler has raised
        what = quoted(str(cause).strip().split("\n")[0], 200)
        if self.compile is not Compile.auto:
            raise EnvironmentFault(
                f"train.compile={self.compile.name}: the compiler fails ({what})."
                " See that a C++ compiler and, for a GPU, Triton are installed, or set train.compile=none"
            ) from error
        LOGGER.warning("train.compile=auto: nothing is compiled, as the compiler fails (%s)", what)
        self.sizes = []

    def has_failed(self, error: BaseException) -> bool:
        """Whether it is the compiler's doing."""
        if not self.sizes:
            return False
        from torch._dynamo.exc import TorchDynamoException  # a second to import, and there by now

        return isinstance(error, TorchDynamoException)


def _losses(model: Transformer, memory: Tensor, sizes: Sizes, *, loss: Loss, smoothing: float) -> tuple[Tensor, Tensor]:
    batch = Filled.of(memory, sizes)
    source, target = (Joined(side.positions, side.starts, sizes.longest) for side in (batch.source, batch.target))
    logits_TV = model.predict(batch.source_S, source, batch.target_in_T, target)
    return loss(logits_TV, batch.target_out_T.long(), smoothing=smoothing)
