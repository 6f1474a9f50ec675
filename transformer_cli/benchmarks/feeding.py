"""Making batches: target tokens a second, which must be many times what training takes."""

import torch

from transformer_cli.benchmarks.ours import Trainer
from transformer_cli.benchmarks.report import Measured
from transformer_cli.benchmarks.timing import Spread, in_turn, ratio
from transformer_cli.schema import BenchConfig

N_MADE = 20  # updates' batches in a round


def bench_data(config: BenchConfig, device: torch.device) -> Measured:
    """Batches made one after another, beside whole updates, in turn."""
    trainer = Trainer(config, device)
    done: dict[str, list[int]] = {"batches": [], "updates": []}

    def make() -> None:
        done["batches"].append(sum(batch.n_target_tokens for _ in range(N_MADE) for batch in trainer.next_batches()))

    def learn() -> None:
        done["updates"].append(trainer.round().n_target_tokens)

    taken = in_turn({"batches": make, "updates": learn}, rounds=config.rounds, device=device)
    rates = {
        name: [n / seconds for n, seconds in zip(done[name][1:], times, strict=True)] for name, times in taken.items()
    }
    found = Measured("data", ("", "target tokens/s"))
    found.rows = [[name, Spread.of(values).shown()] for name, values in rates.items()]
    found.figures = dict(rates)
    found.ratios = {"batches to updates": ratio(rates["batches"], rates["updates"])}
    found.notes = [f"Batches are made {found.ratios['batches to updates'].shown(',.0f')} times as fast as learnt from."]
    return found
