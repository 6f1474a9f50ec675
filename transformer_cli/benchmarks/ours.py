"""tfm as a contestant: the updates of a run, by the code that `tfm train` runs.

python -m transformer_cli.benchmarks.ours '{"config": …, "n_updates": 1}'
"""

import json
import sys
import time

import torch

from transformer_cli.benchmarks.contestant import Round, peak_bytes, serve
from transformer_cli.benchmarks.material import material
from transformer_cli.benchmarks.timing import finish
from transformer_cli.config import from_plain
from transformer_cli.data.batching import Batch, BatchPlan, micro_batches
from transformer_cli.models.device import choose_device, keep_freed_memory
from transformer_cli.schema import BenchConfig
from transformer_cli.training.learner import Learner
from transformer_cli.training.schedules import build_schedule


class Trainer:
    """One update after another."""

    def __init__(self, config: BenchConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        self.corpus, self.tokenizers = material(config)
        self.learner = Learner(config, self.tokenizers, device)
        self.schedule = build_schedule(config.schedule, d_model=config.model.d_model, max_steps=config.train.max_steps)
        self.plan = BatchPlan(
            self.corpus.source_lengths,
            self.corpus.target_lengths,
            tokens_per_update=config.train.tokens_per_update,
            seed=config.seed,
        )
        self.step = 0

    def next_batches(self) -> list[Batch]:
        """Those of the next update."""
        self.step += 1
        indices = self.plan.update(self.step - 1)
        return micro_batches(self.corpus, indices, self.tokenizers, max_tokens=self.config.train.tokens_per_batch)

    def round(self) -> Round:
        n_target = n_source = n_cells = 0
        start = time.perf_counter()
        for _ in range(self.config.n_updates):
            batches = self.next_batches()
            stats = self.learner.update(batches, step=self.step, rate=self.schedule(self.step))
            n_target += stats.n_tokens
            n_source += sum(batch.n_tokens - batch.n_target_tokens for batch in batches)
            n_cells += stats.n_cells
        finish(self.device)
        return Round(n_target, n_source, n_cells, time.perf_counter() - start, peak_bytes(self.device))


def main() -> None:
    config: BenchConfig = from_plain(BenchConfig, json.loads(sys.argv[1])["config"])
    device = choose_device(config.device)
    keep_freed_memory()
    serve(Trainer(config, device).round)


if __name__ == "__main__":
    main()
