"""Forward pass and loss as one function of one tensor: what a GPU is fed with, and what a compiler can work on.

Shapes: S source and T target tokens of a buffer, V vocabulary.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from transformer_cli.data.batching import Batch
from transformer_cli.data.buffers import Filled, Sizes, chosen, constant_sizes, filled
from transformer_cli.errors import EnvironmentFault, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.models.embeddings import LearnedPositions, waves
from transformer_cli.models.joined import Joined, obstacle
from transformer_cli.models.transformer import Transformer
from transformer_cli.schema import Compile, TrainConfig
from transformer_cli.training.loss import smoothed_nll, smoothed_nll_of_learnt

COLUMNS = 64  # of the vocabulary: the fast products of 16 bits want rows of 128 bytes
TILE = 128  # queries, or keys, that attention takes at once
MODES = {Compile.graphs: "reduce-overhead"}

Loss = Callable[..., tuple[Tensor, Tensor]]


def make_fused(
    config: TrainConfig, model: Transformer, device: torch.device, dtype: torch.dtype, *, is_sharded: bool
) -> "FusedLoss | None":
    """None where something stands against it.

    Raises EnvironmentFault for a train.compile that was asked for and cannot be.
    """
    wanted, on_gpu = config.train.compile, device.type == "cuda"
    is_asked_for = wanted in (Compile.default, Compile.graphs)
    reason = "train.sharding=full" if is_sharded else obstacle(config.model, device, dtype)
    if reason is None and wanted is Compile.graphs and not on_gpu:
        reason = "a CPU"
    if reason is not None and is_asked_for:
        raise EnvironmentFault(f"train.compile={wanted.name}: does not go with {reason}. Set train.compile=none")
    if reason is not None:
        LOGGER.info(
            "train.compile=%s: nothing is compiled, and attention takes one length at a time (%s)", wanted.name, reason
        )
        return None
    if on_gpu:
        torch.backends.cuda.enable_cudnn_sdp(False)  # for the whole process: it plans anew for every batch
        model.multiple_of = COLUMNS
        model.decoder.projects_at_once = not config.train.recompute  # whose layers hold as little as can be
    return FusedLoss(model, wanted, device, smoothing=config.train.label_smoothing)


class FusedLoss:
    """The loss of a batch and its plain NLL, summed over the target tokens. Attention takes all sentences at once.

    Once `expect` has been told of the batches to come, they are padded to a few constant sizes and compiled for.
    """

    def __init__(self, model: Transformer, compile: Compile, device: torch.device, *, smoothing: float) -> None:
        self.model, self.compile, self.device, self.smoothing = model, compile, device, smoothing
        self.sizes: list[Sizes] = []  # that are compiled for
        self._compiled: Loss | None = None

    def expect(self, batches: Iterable[Batch], *, longest: int) -> None:
        """These batches are like those to come, and `longest` are the tokens of the longest sentence of all."""
        if self.compile is Compile.none:
            return
        # Tiles of the kernel are not smaller; of learned positions there may be no more.
        limit = longest if isinstance(self.model.encoder.positions, LearnedPositions) else -(-longest // TILE) * TILE
        self.sizes = constant_sizes(map(Sizes.of, batches), longest=limit)
        torch.compiler.assume_constant_result(waves)  # type: ignore[no-untyped-call]
        one = partial(_losses, self.model, loss=smoothed_nll_of_learnt, smoothing=self.smoothing)
        self._compiled = torch.compile(one, dynamic=False, mode=MODES.get(self.compile))

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Within autocast."""
        sizes = self._sizes_for(batch)
        memory = filled(batch, sizes)
        if self.device.type == "cuda":
            memory = memory.pin_memory().to(self.device, non_blocking=True)
        if self._compiled is None:
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
        return self._sizes_for(batch).n_tokens

    def _sizes_for(self, batch: Batch) -> Sizes:
        return Sizes.of(batch) if self._compiled is None else chosen(batch, self.sizes)

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
        self._compiled = None

    def has_failed(self, error: BaseException) -> bool:
        """Whether it is the compiler's doing."""
        if self._compiled is None:
            return False
        from torch._dynamo.exc import TorchDynamoException  # a second to import, and there by now

        return isinstance(error, TorchDynamoException)


def _losses(model: Transformer, memory: Tensor, sizes: Sizes, *, loss: Loss, smoothing: float) -> tuple[Tensor, Tensor]:
    batch = Filled.of(memory, sizes)
    source, target = (Joined(side.positions, side.starts, sizes.longest) for side in (batch.source, batch.target))
    logits_TV = model.predict(batch.source_S, source, batch.target_in_T, target)
    return loss(logits_TV, batch.target_out_T.long(), smoothing=smoothing)
