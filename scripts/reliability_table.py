"""Prints what scripts/reliability has measured beside what was promised. Exit status 1: missed or not measured."""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ALL = r"([\d,]+) of \1(?![\d,])"  # 700 of 700 …
NONE = r"0 of [\d,]+ line-translations differ"

SAVES, RESUMES = "A finished save is never lost", "A resumed run is the same run"
BATCHES, SAFE = "A translation does not depend on the other lines of its batch", "A model file cannot run code"


@dataclass(frozen=True)
class Row:
    promise: str
    target: str  # of the long run
    figure: str  # the name under which a test writes down what it measured
    passes: str  # pattern at the start of what was measured
    long_only: bool = False  # --quick does not measure it


ROWS = (
    Row(SAVES, "700 kills at random instants", "kills at random instants, 1 rank", ALL),
    Row(SAVES, "300 kills at random instants, two ranks", "kills at random instants, 2 ranks", ALL),
    Row(SAVES, "a kill and a power cut at every file event of a save", "deaths at file events, saving", ALL),
    Row(SAVES, "the same at every file event of a training run", "deaths at file events, training", ALL),
    Row(SAVES, "every name is published after its content is synced", "names published in order, by strace", ALL),
    Row(SAVES, "every file event of a save fails, four errors", "failing file events, saving", ALL),
    Row(SAVES, "every file event of a run's saves fails, four errors", "failing file events, training", ALL),
    Row(SAVES, "60 disks that are really full", "full disks", ALL),
    Row(RESUMES, "60 steps × 3 endings, fp32, 0 bits differ", "resume points, fp32", ALL),
    Row(RESUMES, "60 steps × 3 endings, bf16, 0 bits differ", "resume points, bf16", ALL),
    Row(BATCHES, "10,000 lines × 20 arrangements, greedy, 0 differ", "invariance fp32, greedy", NONE, True),
    Row(BATCHES, "300 lines × 20 arrangements, beam 4, 0 differ", "invariance fp32, beam", NONE, True),
    Row(
        SAFE,
        "hostile files and their mutations, 0 executed",
        "hostile files with mutations",
        r"[\d,]+ read, 0 exec",
        True,
    ),
    Row(SAFE, "10,000 flipped bytes, all refused", "flipped bytes", ALL),
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("figures", type=Path)
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(argv)
    measured = read_figures(options.figures)
    rows = [row for row in ROWS if not (options.quick and row.long_only)]
    verdicts = [verdict(row, measured.get(row.figure)) for row in rows]
    print(f"{machine()}; {options.seconds / 60:.0f} minutes")
    print("A short run, at fewer points than the targets name.\n" if options.quick else "")
    print("| Promise | Target | Measured | |\n| --- | --- | --- | --- |")
    for row, word in zip(rows, verdicts, strict=True):
        print(f"| {row.promise} | {row.target} | {measured.get(row.figure, 'nothing')} | {word} |")
    further = {name: value for name, value in measured.items() if name not in {row.figure for row in ROWS}}
    if further:
        print("\nAlso measured:\n")
        for name, value in sorted(further.items()):
            print(f"- {name}: {value}")
    return int(any(word != "pass" for word in verdicts))


def read_figures(file: Path) -> dict[str, str]:
    """Name → value; of several values the one with the largest number, which is that of the longest run."""
    found: dict[str, list[str]] = {}
    for line in file.read_bytes().split(b"\n")[:-1]:
        figure = json.loads(line)
        found.setdefault(figure["name"], []).append(figure["value"])
    return {name: max(values, key=largest_number) for name, values in found.items()}


def largest_number(value: str) -> int:
    return max((int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", value)), default=0)


def verdict(row: Row, value: str | None) -> str:
    if value is None:
        return "MISSING"
    return "pass" if re.match(row.passes, value) else "MISS"


def machine() -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores; Python {platform.python_version()},"
        f" torch {version('torch')}; commit {commit or 'unknown'}"
    )


if __name__ == "__main__":
    sys.exit(main())
