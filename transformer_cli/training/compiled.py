"""Forward pass and loss of batches of constant sizes, compiled: each layer once for each size, not the unrolled model.

All layers of a stack share the kernels that are compiled for one of them, so that seconds pass instead of minutes; and
the gradients of a layer are complete, and can be reduced over the ranks, while those of others are still computed.
`captured` makes CUDA graphs of these passes.

Shapes: S source and T target tokens of a buffer, D width, V vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_cli.config.checks import AUTO
from transformer_cli.config.tasks import our_kinds
from transformer_cli.config.train import Compile, TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import FixedSizeBatch, Sizes, constant_sizes, padded, size_for
from transformer_cli.data.transfer import to_device
from transformer_cli.errors import EnvironmentFault, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.models.embeddings import LearnedPositions, TokenEmbedding, sinusoid_table
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.kernel_choice import Gpu, no_varlen_reason
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.models.transformer import Model, TokenModel, call_part
from transformer_cli.training.consistency import rdrop_loss
from transformer_cli.training.forward import pinned
from transformer_cli.training.loss import masked_smoothed_nll, smoothed_nll

TILE = 128  # queries, or keys, that attention takes at once
MOST_GRAPHS = 4096  # in a process, where torch continues without the compiler after 8, with only a log line
# The shortest run that train.compile=auto compiles for: it takes as long as it saves in so many updates, or, where
# graphs are captured, so many target tokens: half a minute of base on an H100, which saves 1.4 µs a token.
FEWEST_UPDATES = 5000
FEWEST_TOKENS = 25_000_000

Loss = Callable[..., tuple[Tensor, Tensor]]


class BackwardCompileError(EnvironmentFault):
    """The compiler has failed when gradients of this batch were already added: its share has to be computed again."""


class Ways(NamedTuple):
    """Ways to spend less time on a forward and backward pass."""

    compiles: bool  # its layers
    captures: bool  # all of it as a CUDA graph


def chosen_ways(
    config: TrainConfig, device: torch.device, dtype: torch.dtype, *, is_sharded: bool = False, n_ranks: int = 1
) -> Ways:
    """The ways that train.compile asks for, as far as they are supported; with auto the reason against is logged.

    Raises EnvironmentFault where it asks for something by its name and that is not supported.
    """
    wanted = config.train.compile
    against_both = _reason_against(config, device, dtype, is_sharded=is_sharded)
    against_graphs = against_both or _reason_against_graphs(config, device, n_ranks=n_ranks)
    against = against_both or ("train.rdrop" if config.train.rdrop else None)
    reason = against or against_graphs if wanted is Compile.graphs else against
    if reason is not None and wanted in (Compile.default, Compile.graphs):
        other = "default" if against is None and device.type == "cuda" else "none"
        raise EnvironmentFault(f"train.compile={wanted.name}: does not go with {reason}. Set train.compile={other}")
    captures = wanted in (Compile.auto, Compile.graphs) and against_graphs is None
    if wanted is Compile.auto and reason is None:
        reason = _too_short(config, captures=captures)
    if reason is not None:
        instead = "updates are CUDA graphs of what is not compiled" if captures else "nothing is compiled"
        LOGGER.info("train.compile=%s: %s (%s)", wanted.name, instead, reason)
    return Ways(compiles=reason is None, captures=captures)


def _too_short(config: TrainConfig, *, captures: bool) -> str | None:
    n_updates, size = config.train.max_steps, config.train.tokens_per_update
    if AUTO in (n_updates, size):  # where no plan is made
        return None
    if captures and n_updates * size < FEWEST_TOKENS:
        return f"a run of {n_updates * size:,} target tokens, fewer than {FEWEST_TOKENS:,}"
    if not captures and n_updates < FEWEST_UPDATES:
        return f"a run of {n_updates:,} updates, fewer than {FEWEST_UPDATES:,}"
    return None


def _reason_against(config: TrainConfig, device: torch.device, dtype: torch.dtype, *, is_sharded: bool) -> str | None:
    if is_sharded:
        return "train.sharding=full"
    if config.train.simcut:
        return "train.simcut"
    if config.train.guided_alignment:
        return f"train.guided_alignment={config.train.guided_alignment:g}"
    for side in ("source", "target"):
        if share := getattr(config.train, f"{side}_word_dropout"):
            return f"train.{side}_word_dropout={share:g}"
    if config.data.trained.is_encoder_alone or config.model.name not in our_kinds():
        return f"model.name={config.model.name}"
    if device.type not in ("cpu", "cuda"):
        return f"device={device.type}"
    return no_varlen_reason(config.model, dtype, Gpu.of(device) if device.type == "cuda" else None)


def _reason_against_graphs(config: TrainConfig, device: torch.device, *, n_ranks: int) -> str | None:
    if device.type != "cuda":
        return "a CPU" if device.type == "cpu" else f"device={device.type}"
    if n_ranks > 1:
        return f"{n_ranks} ranks"  # whose gradients are reduced while the backward pass computes the rest of them
    if config.model.layer_drop:
        return f"model.layer_drop={config.model.layer_drop:g}"  # a graph computes the same layers in every update
    if config.train.activation_checkpointing:
        return "train.activation_checkpointing=true"  # which repeats dropout from a state that a graph cannot read
    return None


def in_tiles(longest: int) -> int:
    """The tokens that attention reserves for sentences of up to `longest`: a multiple of its tile."""
    return -(-longest // TILE) * TILE


class CompiledLoss:
    """The loss of a batch and its plain NLL, summed over the target tokens.

    After `expect`, batches are padded to a few constant sizes, which are compiled for. A batch that fits none is
    computed without padding and without the compiler, which gives up after so many sizes. Not `compiles`: padded, but
    not compiled.
    """

    def __init__(
        self,
        model: TokenModel,
        compile: Compile,
        device: torch.device,
        *,
        smoothing: float,
        compiles: bool = True,
        rdrop: float = 0.0,
    ) -> None:
        self.model, self.compile, self.device, self.smoothing = model, compile, device, smoothing
        self.compiles, self.rdrop = compiles, rdrop
        self.sizes: list[Sizes] = []  # that are compiled for
        self._call: Callable[..., object]
        self._compiled: Loss

    def expect(self, batches: Iterable[Batch], *, longest: int) -> None:
        """Prepare for batches like these; `longest` are the tokens of the longest sentence of all."""
        # Of learned positions there may be no more.
        is_limited = any(isinstance(stack.positions, LearnedPositions) for stack in self.model.stacks)
        limit = longest if is_limited else in_tiles(longest)
        self.prepare(constant_sizes(map(Sizes.of, batches), longest=limit))

    def prepare(self, sizes: list[Sizes]) -> None:
        """Compile for these, each of them when its first batch comes."""
        self.sizes = sizes
        if not sizes:
            return
        if not self.compiles:
            self._compiled = self._loss_as_written
            return
        # Each run has but a few; those of a sweep are many, and all compile the same `call_part`.
        torch._dynamo.config.recompile_limit = MOST_GRAPHS
        torch._dynamo.config.accumulated_recompile_limit = MOST_GRAPHS
        torch.compiler.assume_constant_result(sinusoid_table)  # type: ignore[no-untyped-call]
        self._call = torch.compile(call_part, dynamic=False)
        self._compiled = partial(self._loss_by_layer, torch.compile(_loss_of_states, dynamic=False))

    def _loss_as_written(self, memory: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
        given = Inputs.of_memory(memory, sizes)
        targets_T, smoothing = given.target_out_T, self.smoothing
        if self.rdrop:
            logits_2TV = self.model.logits(given.twice())
            return rdrop_loss(logits_2TV, targets_T, smoothing=smoothing, alpha=self.rdrop, has_padding=True)
        return smoothed_nll(self.model.logits(given), targets_T, smoothing=smoothing, has_padding=True)

    def _loss_by_layer(self, of_states: Loss, memory: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
        given = Inputs.of_memory(memory, sizes)
        with parts_called_by(self._call, self.model):
            y_TD = self.model.states(given)
        return of_states(self.model.output_embedding, y_TD, given.target_out_T, smoothing=self.smoothing)

    def ready(self, batch: Batch) -> FixedSizeBatch:
        """`batch` in its buffer; any thread may call this."""
        sizes = size_for(batch, self.sizes)
        return pinned(FixedSizeBatch.of(batch, sizes, padded(batch, sizes)), self.device)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Computes the loss; to be called within autocast."""
        sizes = size_for(batch, self.sizes)
        if not isinstance(batch, FixedSizeBatch) or batch.sizes != sizes:  # made ready before compilation was disabled
            batch = self.ready(batch)
        if sizes not in self.sizes:
            return self._loss_as_written(to_device(batch.memory, self.device), sizes)
        return self.of_memory(to_device(batch.memory, self.device), sizes)

    def of_memory(self, memory: Tensor, sizes: Sizes) -> tuple[Tensor, Tensor]:
        """The loss of a batch on the device, one of `sizes`; to be called within autocast."""
        return self._compiled(memory, sizes)

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

        return isinstance(error, TorchDynamoException) and not is_out_of_memory(error)


@contextmanager
def parts_called_by(call: Callable[..., object], model: Model) -> Iterator[None]:
    """Runs the layers of `model` through `call` in the block; elsewhere, dev sets and searches have any shape."""
    for stack in model.stacks:
        stack.call = call
    try:
        yield
    finally:
        for stack in model.stacks:
            stack.call = call_part


def _loss_of_states(
    output: TokenEmbedding, y_TD: Tensor, targets_T: Tensor, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The product with the vocabulary and the loss as one region: their kernels read and write the logits once."""
    return masked_smoothed_nll(output.training_logits(y_TD), targets_T, smoothing=smoothing)
