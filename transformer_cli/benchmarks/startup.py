"""From `tfm train` to its first update, or from `tfm translate` to its first line: how long the command takes, and what
it spends that time on.

python -m transformer_cli.benchmarks.startup '{"started": …, "overrides": […]}' is what measures the parts.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

# Everything else is imported where it is timed.
if TYPE_CHECKING:
    import torch

    from transformer_cli.benchmarks.report import Measured
    from transformer_cli.config.bench import BenchConfig
    from transformer_cli.config.commands import TranslateConfig
    from transformer_cli.config.train import TrainConfig

POLL_S = 0.005
LIMIT_S = 300.0
LINE = "A man in a blue shirt is standing on a ladder."
PROGRAM = "from transformer_cli.cli import entry_point; entry_point()"


def bench_start(config: "BenchConfig", device: "torch.device") -> "Measured":
    """The command itself, `rounds` times after one that is not counted, and its parts in as many other processes."""
    if config.checkpoint is not None:
        return bench_first_line(config)
    from transformer_cli.data.prepare import prepare

    prepare(config.data)
    whole: list[float] = []
    parts: list[dict[str, float]] = []
    for number in range(config.rounds + 1):
        with TemporaryDirectory() as folder:
            overrides = [*overrides_of(config), f"runs={quoted(folder)}", "name=start", "train.log_every=1"]
            seconds = seconds_to_first_update(overrides, Path(folder) / "start" / "metrics.jsonl")
        with TemporaryDirectory() as folder:
            overrides = [*overrides_of(config), f"runs={quoted(folder)}", "name=start", "train.log_every=1"]
            marks, dynamo = seconds_of_parts(overrides)
        if number:
            whole.append(seconds)
            parts.append(marks)
    found = measured(config, "tfm train, to its first update", whole, parts)
    found.figures["torch._dynamo is imported by"] = dynamo
    if dynamo:
        found.notes.append(f"torch._dynamo, which training does not need, is imported by: {dynamo}.")
    return found


def bench_first_line(config: "BenchConfig") -> "Measured":
    """`tfm translate`, which is given a line and waits for more."""
    whole: list[float] = []
    parts: list[dict[str, float]] = []
    for number in range(config.rounds + 1):
        overrides = translating_overrides(config)
        seconds = seconds_to_first_line(overrides)
        marks, _ = seconds_of_parts(overrides, "translate")
        if number:
            whole.append(seconds)
            parts.append(marks)
    return measured(config, "tfm translate, to its first line", whole, parts)


def measured(
    config: "BenchConfig", title: str, whole: Sequence[float], parts: Sequence[Mapping[str, float]]
) -> "Measured":
    from transformer_cli.benchmarks.report import Measured
    from transformer_cli.benchmarks.timing import Spread

    found = Measured("start", ("", "seconds"))
    found.rows = [[title, Spread.of(whole).shown(".2f")]]
    found.rows += [[f"  {name}", Spread.of([one[name] for one in parts]).shown(".2f")] for name in parts[0]]
    found.figures = {"whole": whole, "parts": parts}
    found.notes = [
        f"Rounds: {config.rounds} after one that is not counted, which finds files on the disk; the median and, in"
        " brackets, the quartiles. The parts are the same functions called in turn by a program that only does that."
    ]
    return found


def translating_overrides(config: "BenchConfig") -> list[str]:
    """What to give `tfm translate` so that it searches as `config` says."""
    from transformer_cli.config.compose import load_config, to_plain

    plain, usual = to_plain(config), to_plain(load_config("translate"))
    kept = {name: plain[name] for name in ("checkpoint", "device", "decode")}
    return [f"{key}={quoted(value)}" for key, value in differing(kept, usual)]


def overrides_of(config: "BenchConfig") -> list[str]:
    """What to give `tfm train` so that it has the run of `config`: the keys that are not as they are by default."""
    from dataclasses import fields

    from transformer_cli.config.compose import load_config, to_plain
    from transformer_cli.config.train import TrainConfig

    usual, wanted = to_plain(load_config("train")), to_plain(config)
    kept = {field.name: wanted[field.name] for field in fields(TrainConfig)}
    return [f"{key}={quoted(value)}" for key, value in differing(kept, usual)]


def differing(wanted: Mapping[str, Any], usual: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in wanted.items():
        if isinstance(value, Mapping) and isinstance(usual.get(name), Mapping):
            found += differing(value, usual[name], f"{prefix}{name}.")
        elif value != usual.get(name):
            found.append((prefix + name, value))
    return found


def quoted(value: Any) -> str:
    """As Hydra's overrides have it."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{quoted(item)}" for name, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(map(quoted, value)) + "]"
    return json.dumps(value)


def seconds_to_first_update(overrides: Sequence[str], metrics: Path) -> float:
    """Of `tfm train`, until it has written down its first update. Raises EnvironmentFault if it ends before."""
    from transformer_cli.errors import EnvironmentFault

    command = [sys.executable, "-c", PROGRAM, "train", *overrides]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        while not (metrics.exists() and b"\n" in metrics.read_bytes()):
            if process.poll() is not None or time.monotonic() - started > LIMIT_S:
                process.kill()
                last = process.communicate()[1].strip().rpartition("\n")[2]
                raise EnvironmentFault(f"tfm train: no update within {LIMIT_S:.0f} s. It said: {last}")
            time.sleep(POLL_S)
        return time.monotonic() - started
    finally:
        process.kill()
        process.communicate()


def seconds_to_first_line(overrides: Sequence[str]) -> float:
    """Of `tfm translate`, whose input stays open. Raises EnvironmentFault if it ends before."""
    from transformer_cli.errors import EnvironmentFault

    command = [sys.executable, "-c", PROGRAM, "translate", *overrides]
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{LINE}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        seconds = time.monotonic() - started
    finally:
        process.kill()
        said = process.communicate()[1]
    if not line:
        last = said.strip().rpartition("\n")[2]
        raise EnvironmentFault(f"tfm translate: ended without a line. It said: {last}")
    return seconds


def seconds_of_parts(overrides: Sequence[str], of: str = "train") -> tuple[dict[str, float], str]:
    """By name, in order; and the part that imports torch._dynamo, or nothing."""
    from transformer_cli.errors import EnvironmentFault

    parameters = {"started": time.monotonic(), "command": of, "overrides": list(overrides)}
    command = [sys.executable, "-m", "transformer_cli.benchmarks.startup", json.dumps(parameters)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise EnvironmentFault(f"tfm {of}: its parts ended with status {done.returncode}. They said: {last}")
    found = json.loads(done.stdout)
    return found["parts"], found["dynamo"]


class Marks:
    """Seconds from one mark to the next; the clock is the one of all processes."""

    def __init__(self, started: float) -> None:
        self.parts: dict[str, float] = {}
        self.dynamo = ""
        self._last = started

    def mark(self, name: str) -> None:
        """`name` is what has been done since the mark before."""
        now = time.monotonic()
        self.parts[name] = now - self._last
        if not self.dynamo and "torch._dynamo" in sys.modules:
            self.dynamo = name
        self._last = time.monotonic()


def main() -> None:
    """The parts of the command, in its order."""
    parameters = json.loads(sys.argv[1])
    marks = Marks(parameters["started"])
    marks.mark("Python")
    from transformer_cli.config import compose as configs

    marks.mark("importing Hydra")
    config: Any = configs.load_config(parameters["command"], parameters["overrides"])
    marks.mark("composing the config")
    import torch  # noqa: F401

    marks.mark("importing torch")
    if parameters["command"] == "train":
        train_parts(config, marks)
    else:
        translate_parts(config, marks)
    print(json.dumps({"parts": marks.parts, "dynamo": marks.dynamo}))


def translate_parts(config: "TranslateConfig", marks: Marks) -> None:
    import transformer_cli.text_io  # noqa: F401
    from transformer_cli.decoding.torch_engine import torch_translator
    from transformer_cli.models.device import choose_device
    from transformer_cli.models.file import locate_model, read_model

    marks.mark("importing tfm")
    device = choose_device(config.device)
    model = read_model(locate_model(config.checkpoint, config.runs))
    marks.mark("reading the model")
    translator = torch_translator(model.build(device), model.tokenizers, config.decode, device=device, seed=config.seed)
    marks.mark("building it")
    translator.translate([LINE])
    marks.mark("the first line")


def train_parts(config: "TrainConfig", marks: Marks) -> None:
    import torch

    from transformer_cli.data.prefetch import Prefetcher
    from transformer_cli.data.prepare import prepare
    from transformer_cli.models.device import choose_device, keep_freed_memory
    from transformer_cli.training.loop import check_divergence
    from transformer_cli.training.main_process import MainProcess
    from transformer_cli.training.plan import plan_run
    from transformer_cli.training.ranks import Ranks
    from transformer_cli.training.run_directory import open_run
    from transformer_cli.training.signals import StopRequest
    from transformer_cli.training.state import TrainingState, check_components

    marks.mark("importing tfm")
    device = choose_device(config.device)
    check_components(config, device)
    with open_run(config) as run_dir:
        marks.mark("the run's folder")
        prepared = prepare(config.data)
        keep_freed_memory()
        config = plan_run(config, prepared, device).config
        marks.mark("opening the prepared data")
        torch.optim.Adam([torch.zeros(1, requires_grad=True)])
        marks.mark("the first optimizer of torch")
        process = MainProcess(run_dir, Ranks(StopRequest()))
        run = TrainingState(config, prepared, device, process.ranks)
        marks.mark("building model and optimizer")
        process.resume(run, None)
        with process.recording(run), Prefetcher(run.batches, 1) as batches:
            marks.mark("opening the run's files")
            process.record(run, run.train_step(batches.take(1)))
            check_divergence(run, process)
            marks.mark("the first update")
            process.log(run)
            marks.mark("writing it down")


if __name__ == "__main__":
    main()
