"""What was measured: a table for people, plain data for programs, and the ratios that a later run is held against."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from transformer_cli.benchmarks.timing import Spread


@dataclass
class Measured:
    """`ratios` do not depend on the machine as much as seconds do: these are what is compared."""

    subject: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    ratios: dict[str, Spread] = field(default_factory=dict)

    def show(self, device: torch.device, *, as_json: bool) -> None:
        """To stdout."""
        if as_json:
            print(json.dumps(self.as_dict(device), indent=2))
            return
        print(f"tfm bench {self.subject}: {', '.join(f'{key} {value}' for key, value in machine(device).items())}\n")
        print(f"| {' | '.join(self.columns)} |\n|{'---|' * len(self.columns)}")
        for row in self.rows:
            print(f"| {' | '.join(row)} |")
        for note in self.notes:
            print(f"\n{note}", end="")
        print()

    def as_dict(self, device: torch.device) -> dict[str, Any]:
        """Ready for JSON."""
        ratios = {name: [ratio.low, ratio.median, ratio.high] for name, ratio in self.ratios.items()}
        return {"subject": self.subject, "machine": machine(device), "figures": self.figures, "ratios": ratios}


def machine(device: torch.device) -> dict[str, str]:
    """What the figures belong to."""
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else processor(),
        "threads": str(torch.get_num_threads()),
        "cores": str(os.cpu_count()),
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "commit": commit(),
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n")
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit() -> str:
    """Of the checkout that this program runs from, with + if it has changed since; or that it is none."""
    try:
        command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return found.stdout.strip()
