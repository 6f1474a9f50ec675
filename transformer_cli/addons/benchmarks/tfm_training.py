"""Training with tfm as a benchmark worker: the train steps of `tfm train`.

python -m transformer_cli.addons.benchmarks.tfm_training '{"config": …, "checked": true}'

`checked`, the default, compares loss and gradient with float64 first.
"""

import time
from collections.abc import Callable

import torch

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.reference import check_with_reference
from transformer_cli.addons.benchmarks.timing import finish
from transformer_cli.addons.benchmarks.worker import Round, config_and_parameters, peak_bytes, serve_rounds
from transformer_cli.addons.benchmarks.workload import load_workload
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.prefetch import Prefetcher
from transformer_cli.data.prepare import Prepared
from transformer_cli.models.device import choose_device, tune_cpu_memory
from transformer_cli.training.loop import check_loss
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.state import TrainingState
from transformer_cli.training.worker import Worker


class TfmTraining:
    """The train steps of a run, without evaluation, logging and checkpoints."""

    def __init__(
        self, config: TrainConfig, device: torch.device, prepared: Prepared | None = None, *, n_updates: int = 1
    ) -> None:
        """`n_updates` in a round, and what is `prepared`, unless the config of a benchmark says so."""
        if isinstance(config, BenchConfig):
            prepared, n_updates = prepared or load_workload(config), config.n_updates
        assert prepared is not None
        self.config, self.device, self.prepared, self.n_updates = config, device, prepared, n_updates
        self.process = Worker(Ranks(StopRequest()))
        self.run = TrainingState(config, self.prepared, device, self.process.ranks)
        self.ahead = Prefetcher(self.batches, 1)

    def batches(self, step: int) -> list[Batch]:
        """The batches of an update, counted from 1."""
        return self.run.batches(step)

    def round(self) -> Round:
        before = self._counts()
        start = time.perf_counter()
        for _ in range(self.n_updates):
            self.run.train_step(self.ahead.take(self.run.progress.step + 1))
            check_loss(self.run, self.process)
        finish(self.device)
        seconds = time.perf_counter() - start
        n_target, n_real, n_padded_tokens = (now - then for now, then in zip(self._counts(), before, strict=True))
        return Round(n_target, n_real - n_target, n_padded_tokens, seconds, peak_bytes(self.device))

    def _counts(self) -> tuple[int, int, int]:
        """Target tokens, tokens of both sides, and padded tokens of both sides."""
        return self.run.progress.n_tokens, self.run.metrics.n_real, self.run.metrics.n_padded_tokens


def _set_up() -> Callable[[], Round]:
    config, parameters = config_and_parameters()
    device = choose_device(config.device)
    tune_cpu_memory()
    trainer = TfmTraining(config, device)
    if parameters.get("checked", True):
        check_with_reference(trainer.run.trainer, trainer.batches(1)[0], config, trainer.prepared.tokenizers)
    return trainer.round


if __name__ == "__main__":
    serve_rounds(_set_up)
