"""Forward pass and loss as one function of one tensor: what a GPU is fed with, and what torch.compile can take.

Shapes: S source and T target tokens of a buffer, V vocabulary.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from transformer_cli.config.train import Compile, TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import FixedSizeBatch, PaddedTensors, Sizes, constant_sizes, padded, size_for
from transformer_cli.errors import EnvironmentFault, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.models.embeddings import LearnedPositions, sinusoid_table
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.models.packed_attention import unsupported_reason
from transformer_cli.models.transformer import Model, Transformer
from transformer_cli.training.loss import masked_smoothed_nll, smoothed_nll

TILE = 128  # queries, or keys, that attention takes at once
MOST_GRAPHS = 256  # in a process, where torch continues without the compiler after 8, with only a log line
MODES = {Compile.graphs: "reduce-overhead"}

Loss = Callable[..., tuple[Tensor, Tensor]]


def make_compiled_loss(config: TrainConfig, model: Model, device: torch.device) -> "CompiledLoss":
    """Where `can_compile`."""
    assert isinstance(model, Transformer)
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)  # for the whole process: it plans anew for every batch
    return CompiledLoss(model, config.train.compile, device, smoothing=config.train.label_smoothing)


def can_compile(config: TrainConfig, device: torch.device, dtype: torch.dtype, *, is_sharded: bool = False) -> bool:
    """Whether it is supported; the reason is logged where it is not.

    Raises EnvironmentFault where train.compile asks for it and it is not.
    """
    wanted = config.train.compile
    reason = "train.sharding=full" if is_sharded else unsupported_reason(config.model, device, dtype)
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
    """The tokens that attention reserves for sentences of up to `longest`: a multiple of its tile."""
    return -(-longest // TILE) * TILE


class CompiledLoss:
    """The loss of a batch and its plain NLL, summed over the target tokens. Attention takes all sentences at once.

    After `expect`, batches are padded to a few constant sizes, which are compiled for. A batch that fits none is
    computed without padding and without the compiler, which gives up after so many sizes.
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
            torch.compiler.assume_constant_result(sinusoid_table)  # type: ignore[no-untyped-call]
            one = partial(_losses, self.model, loss=masked_smoothed_nll, smoothing=self.smoothing)
            self._compiled = torch.compile(one, dynamic=False, mode=MODES.get(self.compile))

    def ready(self, batch: Batch) -> FixedSizeBatch:
        """`batch` in its buffer; any thread may call this."""
        sizes = size_for(batch, self.sizes)
        memory = padded(batch, sizes)
        memory = memory.pin_memory() if self.device.type == "cuda" else memory
        return FixedSizeBatch(batch.source_S, batch.target_in_T, batch.target_out_T, batch.runs, sizes, memory)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Within autocast."""
        sizes = size_for(batch, self.sizes)
        if not isinstance(batch, FixedSizeBatch) or batch.sizes != sizes:  # made ready before compilation was disabled
            batch = self.ready(batch)
        memory = batch.memory.to(self.device, non_blocking=True)
        if sizes not in self.sizes:
            return _losses(self.model, memory, sizes, loss=smoothed_nll, smoothing=self.smoothing)
        if self.compile is Compile.graphs:
            self._begin_replay()
        return self._compiled(memory, sizes)

    def _begin_replay(self) -> None:
        """Release the outputs of the last replay: gradients accumulate in memory of their own."""
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        for parameter in self.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def n_padded_tokens(self, batch: Batch) -> int:
        """Tokens of both sides with padding, as computed for `batch`."""
        return size_for(batch, self.sizes).n_tokens

    def disable_compile(self, error: Exception) -> None:
        """Continue without the compiler, which has failed with `error`.

        Raises EnvironmentFault where train.compile asks for it.
        """
        cause = getattr(error, "inner_exception", error)  # of the error that torch wraps
        what = quoted(str(cause).strip().split("\n")[0], 200)
        if self.compile is not Compile.auto:
            raise EnvironmentFault(
                f"train.compile={self.compile.name}: the compiler fails ({what})."
                " See that a C++ compiler and, for a GPU, Triton are installed, or set train.compile=none"
            ) from error
        LOGGER.warning("train.compile=auto: nothing is compiled, as the compiler fails (%s)", what)
        self.sizes = []

    def has_failed(self, error: BaseException) -> bool:
        """Whether `error` comes from the compiler."""
        if not self.sizes:
            return False
        from torch._dynamo.exc import TorchDynamoException  # a second to import, and there by now

        return isinstance(error, TorchDynamoException)


def _losses(model: Transformer, memory: Tensor, sizes: Sizes, *, loss: Loss, smoothing: float) -> tuple[Tensor, Tensor]:
    batch = PaddedTensors.of(memory, sizes)
    source, target = (
        PackedLayout(sizes.longest, side.positions, cu_seqlens_N=side.starts) for side in (batch.source, batch.target)
    )
    logits_TV = model.predict(batch.source_S, source, batch.target_in_T, target)
    return loss(logits_TV, batch.target_out_T.long(), smoothing=smoothing)
