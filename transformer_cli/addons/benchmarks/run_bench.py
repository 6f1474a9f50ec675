"""`tfm bench`: speed of tfm beside that of other programs and the limits of the machine."""

import json
from collections.abc import Callable
from dataclasses import replace

import torch

from transformer_cli.addons.benchmarks.decoding import bench_decode
from transformer_cli.addons.benchmarks.feeding import bench_data
from transformer_cli.addons.benchmarks.keys import BenchConfig, BenchSubject
from transformer_cli.addons.benchmarks.machine import bench_machine
from transformer_cli.addons.benchmarks.parts import bench_attention, bench_loss
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.startup import bench_start
from transformer_cli.addons.benchmarks.students import bench_students
from transformer_cli.addons.benchmarks.training import bench_train
from transformer_cli.addons.benchmarks.workload import load_workload
from transformer_cli.config.checks import AUTO
from transformer_cli.config.compose import to_plain
from transformer_cli.data.feed import epoch_of
from transformer_cli.errors import EnvironmentFault
from transformer_cli.models.device import choose_device, tune_cpu_memory
from transformer_cli.standard_streams import require_stdout
from transformer_cli.training.plan import planned
from transformer_cli.training.precision import set_float32_products
from transformer_cli.training.state import check_components

BENCHES: dict[BenchSubject, Callable[[BenchConfig, torch.device], Measured]] = {
    BenchSubject.machine: bench_machine,
    BenchSubject.train: bench_train,
    BenchSubject.loss: bench_loss,
    BenchSubject.attention: bench_attention,
    BenchSubject.data: bench_data,
    BenchSubject.start: bench_start,
    BenchSubject.decode: bench_decode,
    BenchSubject.students: bench_students,
}
OF_UPDATES = (BenchSubject.train, BenchSubject.loss, BenchSubject.attention, BenchSubject.data, BenchSubject.machine)


def run(config: BenchConfig) -> None:
    """Run a benchmark and print its report to stdout, as a table or as JSON."""
    require_stdout("the figures")
    device = choose_device(config.device)
    if device.type == "mps":  # and the clocks are those of CUDA and of a CPU
        raise EnvironmentFault("device=mps: has no float64, with which `tfm bench` compares. Use device=cpu")
    if config.subject is BenchSubject.students:  # which may have a shortlist, as dev texts may not
        check_components(replace(config, decode=replace(config.decode, shortlist=None)), device)
    else:
        check_components(config, device)
    tune_cpu_memory()
    set_float32_products(config.train.precision, device)
    if config.train.tokens_per_update == AUTO and config.subject in OF_UPDATES:
        config = planned(config, epoch_of(config, load_workload(config)), device.type)[0]
    measured = BENCHES[config.subject](config, device)
    if config.json:
        print(json.dumps(measured.as_dict(device, to_plain(config)), indent=2))
    else:
        print(measured.text(device))
