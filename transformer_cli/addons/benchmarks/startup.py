"""`tfm bench start`: time from the start of `tfm train` to its first update, or of `tfm translate` to its first line.

python -m transformer_cli.addons.benchmarks.startup '{"started": …, "overrides": […]}' measures the parts of that time.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

# All other modules are imported where the import is timed.
if TYPE_CHECKING:
    import torch

    from transformer_cli.addons.benchmarks.keys import BenchConfig
    from transformer_cli.addons.benchmarks.report import Measured
    from transformer_cli.commands.translate.keys import TranslateConfig
    from transformer_cli.config.train import TrainConfig

POLL_S = 0.005
LIMIT_S = 300.0
LINE = "A man in a blue shirt is standing on a ladder."
_PROGRAM = "from transformer_cli.cli import entry_point; entry_point()"


def bench_start(config: "BenchConfig", device: "torch.device") -> "Measured":
    """Time the command, and its parts in another process, `rounds` times after a warm-up round."""
    if config.checkpoint is not None:
        return bench_first_line(config)
    from transformer_cli.data.prepare import prepare

    prepare(config.data)
    whole: list[float] = []
    parts: list[dict[str, float]] = []
    for number in range(config.rounds + 1):
        with TemporaryDirectory() as folder:
            overrides = [*overrides_of(config), f"runs={_quoted(folder)}", "name=start", "train.log_every=1"]
            seconds = seconds_to_first_update(overrides, Path(folder) / "start" / "metrics.jsonl")
        with TemporaryDirectory() as folder:
            overrides = [*overrides_of(config), f"runs={_quoted(folder)}", "name=start", "train.log_every=1"]
            marks, dynamo = seconds_of_parts(overrides)
        if number:
            whole.append(seconds)
            parts.append(marks)
    found = _measured(config, "tfm train, to its first update", whole, parts)
    found.figures["torch._dynamo is imported by"] = dynamo
    if dynamo:
        found.notes.append(f"torch._dynamo, which training does not need, is imported by: {dynamo}.")
    return found


def bench_first_line(config: "BenchConfig") -> "Measured":
    """Time `tfm translate` from its start to the translation of one line."""
    from transformer_cli.decoding.directions import asked_tags
    from transformer_cli.models.file import read_model
    from transformer_cli.models.locate import locate_model

    model = read_model(locate_model(config.checkpoint, config.runs))
    asked_tags(model, None, config.source_lang, config.target_lang)  # what cannot be asked for is refused at once
    del model
    whole: list[float] = []
    parts: list[dict[str, float]] = []
    for number in range(config.rounds + 1):
        overrides = translating_overrides(config)
        seconds = seconds_to_first_line(overrides)
        marks, _ = seconds_of_parts(overrides, "translate")
        if number:
            whole.append(seconds)
            parts.append(marks)
    return _measured(config, "tfm translate, to its first line", whole, parts)


def _measured(
    config: "BenchConfig", title: str, whole: Sequence[float], parts: Sequence[Mapping[str, float]]
) -> "Measured":
    from transformer_cli.addons.benchmarks.report import Measured
    from transformer_cli.addons.benchmarks.timing import Spread

    found = Measured("start", ("", "seconds"))
    found.rows = [[title, Spread.of(whole).shown(".2f")]]
    found.rows += [[f"  {name}", Spread.of([one[name] for one in parts]).shown(".2f")] for name in parts[0]]
    found.figures = {"whole": whole, "parts": parts}
    found.notes = [
        f"Rounds: {config.rounds} after a warm-up round; the median and, in"
        " brackets, the quartiles. The parts are the same functions called one after another by another program."
    ]
    return found


def translating_overrides(config: "BenchConfig") -> list[str]:
    """Overrides with which `tfm translate` has the checkpoint, direction, device and search of `config`."""
    from transformer_cli.config.compose import load_config, to_plain

    plain, usual = to_plain(config), to_plain(load_config("translate"))
    kept = {name: plain[name] for name in ("checkpoint", "source_lang", "target_lang", "device", "decode")}
    return [f"{key}={_quoted(value)}" for key, value in differing(kept, usual)]


def overrides_of(config: "BenchConfig") -> list[str]:
    """Overrides with which `tfm train` has the run of `config`: the settings that differ from the defaults."""
    from dataclasses import fields

    from transformer_cli.config.compose import load_config, to_plain
    from transformer_cli.config.train import TrainConfig

    usual, wanted = to_plain(load_config("train")), to_plain(config)
    kept = {field.name: wanted[field.name] for field in fields(TrainConfig)}
    return [f"{key}={_quoted(value)}" for key, value in differing(kept, usual)]


def differing(wanted: Mapping[str, Any], usual: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in wanted.items():
        if isinstance(value, Mapping) and isinstance(usual.get(name), Mapping):
            found += differing(value, usual[name], f"{prefix}{name}.")
        elif value != usual.get(name):
            found.append((prefix + name, value))
    return found


def _quoted(value: Any) -> str:
    """A value in the syntax of Hydra's overrides."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_quoted(item)}" for name, item in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ",".join(map(_quoted, value)) + "]"
    return json.dumps(value)


def seconds_to_first_update(overrides: Sequence[str], metrics: Path) -> float:
    """Time of `tfm train` until its first update is logged. Raises EnvironmentFault if it ends before."""
    from transformer_cli.errors import EnvironmentFault

    command = [sys.executable, "-c", _PROGRAM, "train", *overrides]
    started = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
    try:
        while not (metrics.exists() and b"\n" in metrics.read_bytes()):
            if process.poll() is not None or time.monotonic() - started > LIMIT_S:
                process.kill()
                last = process.communicate()[1].strip().rpartition("\n")[2]
                raise EnvironmentFault(f"tfm train: no update within {LIMIT_S:.0f} s. Its last message: {last}")
            time.sleep(POLL_S)
        return time.monotonic() - started
    finally:
        process.kill()
        process.communicate()


def seconds_to_first_line(overrides: Sequence[str]) -> float:
    """Time of `tfm translate` until its first translation, with open input. Raises EnvironmentFault if it ends."""
    from transformer_cli.errors import EnvironmentFault

    command = [sys.executable, "-c", _PROGRAM, "translate", *overrides]
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
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
        messages = process.communicate()[1]
    if not line:
        last = messages.strip().rpartition("\n")[2]
        raise EnvironmentFault(f"tfm translate: ended without a line. Its last message: {last}")
    return seconds


def seconds_of_parts(overrides: Sequence[str], of: str = "train") -> tuple[dict[str, float], str]:
    """Seconds by part, in order; and the part that imports torch._dynamo, or an empty string."""
    from transformer_cli.errors import EnvironmentFault

    parameters = {"started": time.monotonic(), "command": of, "overrides": list(overrides)}
    command = [sys.executable, "-m", "transformer_cli.addons.benchmarks.startup", json.dumps(parameters)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise EnvironmentFault(f"tfm {of}: its parts ended with status {done.returncode}. The last message: {last}")
    found = json.loads(done.stdout)
    return found["parts"], found["dynamo"]


class Marks:
    """Seconds between marks, by a clock that all processes share."""

    def __init__(self, started: float) -> None:
        self.parts: dict[str, float] = {}
        self.dynamo = ""
        self._last = started

    def mark(self, name: str) -> None:
        """Record the time since the previous mark as that of `name`."""
        now = time.monotonic()
        self.parts[name] = now - self._last
        if not self.dynamo and "torch._dynamo" in sys.modules:
            self.dynamo = name
        self._last = time.monotonic()


def main() -> None:
    """Run and time the parts of the command in order."""
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
    from transformer_cli.decoding.directions import asked_tags
    from transformer_cli.decoding.results import TranslateOptions
    from transformer_cli.decoding.torch_engine import torch_translator
    from transformer_cli.models.device import choose_device
    from transformer_cli.models.file import read_model
    from transformer_cli.models.locate import locate_model

    marks.mark("importing tfm")
    device = choose_device(config.device)
    model = read_model(locate_model(config.checkpoint, config.runs))
    marks.mark("reading the model")
    options = TranslateOptions(tags=asked_tags(model, None, config.source_lang, config.target_lang))
    built = model.build(device)
    translator = torch_translator(
        built, model.tokenizers, config.decode, device=device, seed=config.seed, options=options
    )
    marks.mark("building it")
    translator.translate([LINE])
    marks.mark("the first line")


def train_parts(config: "TrainConfig", marks: Marks) -> None:
    import torch

    from transformer_cli.data.prefetch import Prefetcher
    from transformer_cli.data.prepare import prepare
    from transformer_cli.models.device import choose_device, tune_cpu_memory
    from transformer_cli.training.loop import check_loss
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
        tune_cpu_memory()
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
            check_loss(run, process)
            marks.mark("the first update")
            process.log(run)
            marks.mark("writing it down")


if __name__ == "__main__":
    main()
