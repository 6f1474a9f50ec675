"""A block while it runs: its device, its size, its time, and the record that it writes after every measurement."""

import gc
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from gpu_blocks.record import FINISHED, read_record, write_record
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.report import Measured, machine
from transformer_cli.config.compose import load_config
from transformer_cli.config.train import Device
from transformer_cli.models.device import choose_device

# An update of 25,000 tokens on average is sometimes a little larger, and must still be one batch.
FULL = (
    "train.tokens_per_update=25000 train.max_tokens_per_microbatch=28000"
    " data.tokenizer.vocab_size=37000 data.max_length=128"
)
TOY = """
    train.tokens_per_update=400 train.max_tokens_per_microbatch=448 data.tokenizer.vocab_size=100 data.max_length=60
    model.d_model=32 model.d_ff=64 model.n_heads=2 model.n_encoder_layers=1 model.n_decoder_layers=1
"""
TOY_PAIRS = 2000  # random sentences of a toy workload
NO_GPU = "needs a GPU"


class Block:
    """Measures one thing after another, the most important first."""

    def __init__(
        self,
        file: Path,
        *,
        seconds: float,
        is_toy: bool,
        multi30k: Path | None = None,
        text: Path | None = None,
    ) -> None:
        self.file, self.multi30k, self.text = file, multi30k, text
        self.until = time.monotonic() + seconds
        self.device = choose_device(Device.cuda if torch.cuda.is_available() else Device.cpu)  # as the commands do
        self.is_toy = is_toy
        self.record = read_record(file) or {"measurements": []}
        self.record["machine"] = described(self.device)
        self._write()

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def left_s(self) -> float:
        """Seconds that are left to this block."""
        return self.until - time.monotonic()

    def measure(self, title: str, work: Callable[[], Measured], *, needs_s: float = 10) -> Measured | None:
        """Run `work` and write down its result, or that it failed, or that it does not fit into the time left."""
        if self.left_s < (0 if self.is_toy else needs_s):
            self._add(title, left_out=f"takes about {needs_s:.0f} s, and {max(0, self.left_s):.0f} s were left")
            return None
        self.record["now"] = title
        self._write()
        start, found = time.monotonic(), None
        try:
            found = work()
        except Exception as error:  # one failure must not cost the other measurements
            traceback.print_exc()
            self._add(title, failed=failure(error))
        else:
            self._add(title, **content_of(found), seconds=round(time.monotonic() - start, 1))
            print(f"\n{title}\n\n{found.table()}\n\n{chr(10).join(found.notes)}", flush=True)
        self.free()
        return found

    def free(self) -> None:
        """Return memory that only cycles of references hold, or that torch keeps, to the GPU."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def leave_out(self, title: str, why: str) -> None:
        self._add(title, left_out=why)

    def keep(self, found: Measured) -> None:
        """Write down what there is of the measurement that is being made, in case that it is not finished."""
        title = self.record["now"]
        self._add(title, **content_of(found))
        self.record["now"] = title

    def finish(self) -> None:
        self.record.pop("now", None)
        self.record["state"] = FINISHED
        self._write()

    def _add(self, title: str, **content: Any) -> None:
        self.record.pop("now", None)
        others = [one for one in self.record["measurements"] if one["title"] != title]
        self.record["measurements"] = [*others, {"title": title, **content}]
        self._write()

    def _write(self) -> None:
        write_record(self.file, self.record)

    # ---- What is measured

    def config(self, model: str = "base", *overrides: str, mode: str | None = None) -> BenchConfig:
        size = (TOY if self.is_toy else FULL).split()
        rounds = ["rounds=1"] if self.is_toy else ["rounds=4", "n_updates=8"]
        compiled = [f"train.compile={mode}"] if mode is not None else []
        long = ["train.max_steps=100000"]  # the paper's run, for which train.compile=auto compiles
        words = ["subject=train", f"model={model}", "lengths=wmt", *long, *rounds, *size, *compiled, *overrides]
        loaded: BenchConfig = load_config("bench", [*words, f"device={self.device.type}"])
        return loaded


def content_of(found: Measured) -> dict[str, Any]:
    return {key: value for key, value in asdict(found).items() if key != "subject"}


def with_train(config: BenchConfig, **settings: Any) -> BenchConfig:
    return replace(config, train=replace(config.train, **settings))


def failure(error: BaseException) -> str:
    """The kind of an error and the last line of its message."""
    lines = [line.strip() for line in str(error).strip().split("\n") if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def described(device: torch.device) -> dict[str, str]:
    """Hardware, driver and versions."""
    found = machine(device)
    del found["commit"]  # the command line may know it where there is no checkout
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["memory"] = f"{properties.total_memory / 2**30:.0f} GiB"
        found["capability"] = f"{properties.major}.{properties.minor}"
        found["driver"] = driver()
        found["CUDA"] = str(torch.version.cuda)
    return found


def driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
