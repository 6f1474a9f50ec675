"""Report of a benchmark: a table for reading, JSON for programs, and ratios to compare with later runs."""

import os
import platform
import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from transformer_cli.addons.benchmarks.timing import Spread

WIDTH = 120  # characters in a line of a report


@dataclass
class Measured:
    """The measurements of a benchmark. `ratios` depend on the machine less than seconds do: later runs compare them."""

    subject: str
    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    ratios: dict[str, Spread] = field(default_factory=dict)

    def table(self) -> str:
        return table(self.columns, self.rows)

    def text(self, device: torch.device) -> str:
        """The report as Markdown."""
        title = f"tfm bench {self.subject}: {', '.join(f'{key} {value}' for key, value in machine(device).items())}"
        parts = [title, self.table(), *self.notes]
        return "\n\n".join(part if "\n" in part else textwrap.fill(part, WIDTH) for part in parts)

    def as_dict(self, device: torch.device, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The report as data for JSON."""
        return {
            "subject": self.subject,
            "machine": machine(device),
            "settings": dict(settings),
            "ratios": {name: asdict(ratio) for name, ratio in self.ratios.items()},
            "figures": self.figures,
        }


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with left-aligned names and right-aligned figures."""
    lines = [columns, *rows]
    widths = [max(3, *(len(line[n]) for line in lines)) for n in range(len(columns))]
    shown = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (shown[0], rule, *shown[1:]))


def machine(device: torch.device) -> dict[str, str]:
    """Hardware and versions."""
    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else _processor(),
        "threads": str(torch.get_num_threads()),
        "cores": str(os.cpu_count()),
        "torch": torch.__version__,
        "Python": platform.python_version(),
        "commit": commit(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n")
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def commit() -> str:
    """The git commit of the checkout, with + if there are uncommitted changes; "none" outside a checkout."""
    try:
        command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, encoding="utf-8", check=True)
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return found.stdout.strip()
