"""What every rank holds of a run: the trainer, the learning rate schedule, the batches, progress and metrics."""

import json
from collections.abc import Collection, Iterator, Sequence

import torch

from transformer_cli.config.checks import AUTO
from transformer_cli.config.train import Sharding, TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.feed import Feed
from transformer_cli.data.pair_changes import check_pair_changes
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.engine import check_supported
from transformer_cli.decoding.search import check_search
from transformer_cli.decoding.torch_engine import torch_capabilities
from transformer_cli.errors import ConfigError, DivergedError, EnvironmentFault
from transformer_cli.evaluation.translation import check_metrics
from transformer_cli.logs import LOGGER
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.models.registry import check_model
from transformer_cli.training.checkpoints import Checkpoint
from transformer_cli.training.dev_metrics import dev_metrics, dev_tokens
from transformer_cli.training.loggers import check_loggers
from transformer_cli.training.optimizers import check_optimizer
from transformer_cli.training.precision import choose_dtype
from transformer_cli.training.progress import MetricAccumulator, Progress
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.resuming import load_checkpoint
from transformer_cli.training.schedules import build_schedule, check_schedule
from transformer_cli.training.spikes import SpikeDetector, batch_number
from transformer_cli.training.trainer import Trainer, UpdateStats


class TrainingState:
    """A run as all ranks know it; files and scores are the main process's."""

    def __init__(self, config: TrainConfig, prepared: Prepared, device: torch.device, ranks: Ranks) -> None:
        self.config, self.prepared, self.ranks = config, prepared, ranks
        self.trainer = make_trainer(config, prepared.tokenizers, device, ranks)
        self.schedule = build_schedule(config.schedule, d_model=config.model.d_model, max_steps=config.train.max_steps)
        self.feed = Feed(config, prepared)
        self.progress, self.metrics = Progress(), MetricAccumulator(device)
        self.n_skipped = 0  # updates, as far as they have been reported
        self.spikes = SpikeDetector()
        self.trainer.expect(self.feed.expected(), longest=self.feed.longest)
        if ranks.is_first:
            warn_of_uneven_shares(self.feed.batches(1), ranks.world_size, config.train.max_tokens_per_microbatch)

    def load(self, checkpoint: Checkpoint | None, *, steps: Collection[int] = ()) -> None:
        """Continue from the checkpoint that the first rank has read, if there is one; the other ranks pass None.

        `steps` are those of the checkpoints of this run.
        """
        state = load_checkpoint(checkpoint, self.trainer, self.ranks)
        if state is None:
            return
        listed = self.ranks.publish_and_wait("checkpoints", json.dumps(list(steps)) if self.ranks.is_first else None)
        self.progress = Progress.from_state(state["progress"], steps=json.loads(listed))
        self.metrics = MetricAccumulator(self.trainer.device, state["interval"])
        self.n_skipped = self.trainer.nonfinite.counts()[1]
        self.spikes = SpikeDetector.from_state(state["spikes"]) if "spikes" in state else SpikeDetector()

    def batches(self, step: int) -> list[Batch]:
        """The batches of an update, the same on all ranks; made in a thread while another update is computed."""
        return self.trainer.ready(self.feed.batches(batch_number(step, self.progress.skips)))

    def remaining_steps(self) -> Iterator[int]:
        """The next step until the run is over, which an evaluation may decide; a rollback may go back in between."""
        while not self.progress.is_over(self.config.train):
            yield self.progress.step + 1

    def train_step(self, batches: Sequence[Batch]) -> UpdateStats:
        """The next update, with its `batches`."""
        step = self.progress.step + 1
        stats = self.trainer.train_step(batches, step=step, lr=self.schedule(step))
        self.progress.step = step
        self.progress.n_tokens += stats.n_tokens
        self.metrics.add(stats, n_real=sum(batch.n_tokens for batch in batches))
        return stats

    def reset_metrics(self) -> None:
        self.metrics = MetricAccumulator(self.trainer.device)

    def divergence(self, step: int, hint: str = "") -> DivergedError:
        """The error that ends a run whose loss is not finite."""
        key = "factor" if self.config.schedule.factor is not None else "lr"
        n_skipped = self.trainer.nonfinite.counts()[0]
        return DivergedError(
            f"step {step}: the loss or a weight is not a finite number ({n_skipped} in a row),"
            f" at learning rate {self.schedule(step):.3g}{hint}. Lower schedule.{key}, or set train.clip_norm"
        )


def make_trainer(config: TrainConfig, tokenizers: Tokenizers, device: torch.device, ranks: Ranks) -> Trainer:
    """Raises EnvironmentFault where not even the weights fit into the memory of the device."""
    kind: type[Trainer] = Trainer
    if config.train.sharding is Sharding.full:
        from transformer_cli.training.sharding import ShardedTrainer  # imports half of torch

        kind = ShardedTrainer
    try:
        return kind(config, tokenizers, device, ranks)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise EnvironmentFault(
            f"device={device.type}: its memory is too small for this model ({type(error).__name__})."
            " Choose a smaller model, or another device"
        ) from error


def check_components(config: TrainConfig, device: torch.device) -> None:
    """Raise ConfigError for a name that is in no registry, or settings that its entry does not take; EnvironmentFault
    for a precision that `device` lacks, or a tokenizer that is not installed.
    """
    check_what_is_open(config)
    check_model(config.model)
    check_schedule(config.schedule)
    needs_whole_model = check_optimizer(config.optimizer).needs_whole_model
    if needs_whole_model and config.train.sharding is Sharding.full:
        raise ConfigError(
            f"optimizer={config.optimizer.name}: needs the whole model, which train.sharding=full divides."
            " Set another optimizer"
        )
    check_search(config.decode)
    if config.data.trained.translates:  # the dev set, by torch: not at the first evaluation
        check_supported(torch_capabilities(batch_invariant=config.decode.batch_invariant), config.decode)
    check_pair_changes(config.data)
    check_loggers(config.train.loggers)
    choose_dtype(config.train.precision, device)
    if config.data.trained.translates:
        check_metrics(dev_metrics(config))
        dev_tokens(config.data)


def check_what_is_open(config: TrainConfig) -> None:
    """Raise ConfigError for what leaves a new run no choice: a budget beside a length, recipe=auto beside a model."""
    for name, value, is_open in (
        ("max_steps", config.train.max_steps, AUTO),
        ("max_epochs", config.train.max_epochs, None),
    ):
        if config.train.budget is not None and value != is_open:
            raise ConfigError(
                f"train.budget={config.train.budget}: train.{name}={value} says how long the run is. Set"
                f" train.{name}={is_open or 'null'}, or leave train.budget out"
            )
    if config.left_open and config.init.from_ is not None:
        raise ConfigError(
            f"init.from={config.init.from_}: recipe=auto chooses sizes and rates for a model that is trained from"
            " scratch. Leave one of them out, or set recipe=files"
        )


def warn_of_uneven_shares(batches: Sequence[Batch], n_ranks: int, max_tokens: int) -> None:
    """Name the `train.max_tokens_per_microbatch` that would give all ranks equally many batches.

    It cannot be chosen for the user: how an update is split decides its dropout, which does not depend on the ranks.
    """
    n_even = -(-len(batches) // n_ranks) * n_ranks
    if n_even > len(batches):
        n_tokens = max(sum(len(one.source_S) for one in batches), sum(one.n_target_tokens for one in batches))
        LOGGER.warning(
            "train.max_tokens_per_microbatch=%d: an update is %d batches for %d ranks, some of which wait for others."
            " train.max_tokens_per_microbatch=%d makes %d, and other dropout",
            *(max_tokens, len(batches), n_ranks, n_tokens / (n_even - 0.5), n_even),  # no update is exactly as large
        )
