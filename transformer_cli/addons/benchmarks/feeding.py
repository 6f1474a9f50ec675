"""`tfm bench data`: the throughput of batching, which must be many times that of training."""

import time
from itertools import count

import torch

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.tfm_training import TfmTraining
from transformer_cli.addons.benchmarks.timing import Spread, finish, ratio

N_MADE = 20  # updates whose batches are made in a round


def bench_data(config: BenchConfig, device: torch.device) -> Measured:
    """Target tokens a second of batching alone and of whole updates, in interleaved rounds after a warm-up round."""
    trainer, steps = TfmTraining(config, device), count(1)

    def make() -> int:
        return sum(batch.n_target_tokens for _ in range(N_MADE) for batch in trainer.batches(next(steps)))

    def train() -> int:
        return trainer.round().n_target_tokens

    rates: dict[str, list[float]] = {"batches": [], "updates": []}
    with trainer.ahead:
        for number in range(config.rounds + 1):
            for name, work in (("batches", make), ("updates", train)):
                finish(device)
                start = time.perf_counter()
                n_tokens = work()
                finish(device)
                if number:
                    rates[name].append(n_tokens / (time.perf_counter() - start))
    found = Measured("data", ("", "target tokens/s"))
    found.rows = [[name, Spread.of(values).shown()] for name, values in rates.items()]
    found.figures = dict(rates)
    found.ratios = {"batches to updates": ratio(rates["batches"], rates["updates"])}
    found.notes = [
        f"Batches are made {found.ratios['batches to updates'].shown(',.0f')} times as fast as they are trained on."
    ]
    return found
