"""`tfm bench`: what this machine can do, what tfm makes of it, and what others make of it."""

from collections.abc import Callable

import torch

from transformer_cli.benchmarks.feeding import bench_data
from transformer_cli.benchmarks.machine import bench_machine
from transformer_cli.benchmarks.parts import bench_attention, bench_loss
from transformer_cli.benchmarks.report import Measured
from transformer_cli.benchmarks.training import bench_train
from transformer_cli.models.device import choose_device, keep_freed_memory
from transformer_cli.schema import BenchConfig, BenchSubject
from transformer_cli.training.learner import check_parts

BENCHES: dict[BenchSubject, Callable[[BenchConfig, torch.device], Measured]] = {
    BenchSubject.machine: bench_machine,
    BenchSubject.train: bench_train,
    BenchSubject.loss: bench_loss,
    BenchSubject.attention: bench_attention,
    BenchSubject.data: bench_data,
}


def run(config: BenchConfig) -> None:
    """Print a table, or JSON, to stdout."""
    device = choose_device(config.device)
    check_parts(config, device)
    keep_freed_memory()
    BENCHES[config.subject](config, device).show(device, as_json=config.json)
