"""Prints the runs of scripts/table3 beside the rows of the paper's table 3: whose perplexity and BLEU move as there?

python scripts/table3_table.py runs/table3 --rows base a_heads_1 --seeds 1 2
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from transformer_cli.config.compose import load_config, to_plain
from transformer_cli.config.yaml_files import config_dir
from transformer_cli.models.file import read_model
from transformer_cli.models.header import MODEL_FILE

HEAD = """\
| row | what differs | parameters, M | PPL | BLEU | paper: M | PPL | BLEU | PPL moves as there | BLEU moves as there |
|---|---|---:|---:|---:|---:|---:|---:|---|---|"""


@dataclass(frozen=True)
class Published:
    """The results of the paper for a row, from the comment in its YAML file."""

    ppl: str
    bleu: str
    millions: str  # of parameters; "" where the paper names none


@dataclass(frozen=True)
class Measured:
    """The results of tfm for a row; `ppl` and `bleu` have a value for each seed."""

    n_parameters: int
    ppl: list[float]
    bleu: list[float]


def published(row: str) -> Published:
    text = (config_dir() / "experiment" / f"table3_{row}.yaml").read_text(encoding="utf-8")
    found = re.search(r"dev perplexity ([\d.]+), BLEU ([\d.]+)(?:, (\d+) million)?", text.replace("\n# ", " "))
    assert found is not None, row
    return Published(found[1].rstrip("."), found[2].rstrip("."), found[3] or "")


def differences(row: str) -> dict[str, tuple[Any, Any]]:
    """Key of the config → its value in base and in `row`."""
    base, other = settings("base"), settings(row)
    return {key: (base[key], other[key]) for key in base if base[key] != other[key]}


@cache
def settings(row: str) -> dict[str, Any]:
    return dict(flat(to_plain(load_config("train", [f"experiment=table3_{row}"]))))


def flat(config: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def measured(runs: Path, row: str, seeds: Sequence[int]) -> Measured:
    """Raises SystemExit for a run that has not come to its end."""
    n_parameters, scores = 0, []
    for seed in seeds:
        folder = runs / f"{row}-{seed}"
        if not (folder / MODEL_FILE).is_file():
            raise SystemExit(f"{folder}: is not finished. Start scripts/table3 again")
        n_parameters = sum(weight.numel() for weight in read_model(folder / MODEL_FILE).weights.values())
        lines = (folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
        scores.append([entry for entry in map(json.loads, lines) if entry["kind"] == "dev"][-1])
    return Measured(n_parameters, [score["dev_ppl"] for score in scores], [score["dev_bleu"] for score in scores])


def moves(found: Sequence[float], base: Sequence[float], theirs: str, their_base: str) -> str:
    """Whether `found` differs from base in the direction of the paper: yes or no if all seeds agree, else how many."""
    wanted = float(theirs) - float(their_base)
    if wanted == 0:
        return "it does not there"
    agree = sum((mine - its) * wanted > 0 for mine, its in zip(found, base, strict=True))
    return "yes" if agree == len(found) else "no" if agree == 0 else f"with {agree} of {len(found)} seeds"


def table(rows: dict[str, Measured]) -> Iterator[str]:
    yield HEAD
    base, there = rows["base"], published("base")
    for row, here in rows.items():
        paper = published(row)
        columns = ["", "base"]
        agreement = ["", ""]
        if row != "base":
            changed = (f"{key.split('.')[1]} {new}" for key, (_, new) in differences(row).items())
            columns = [f"({row[0].upper()})", ", ".join(changed)]
            agreement = [moves(here.ppl, base.ppl, paper.ppl, there.ppl)]
            agreement += [moves(here.bleu, base.bleu, paper.bleu, there.bleu)]
        columns += [f"{here.n_parameters / 1e6:.3f}", f"{mean(here.ppl):.3f}", f"{mean(here.bleu):.1f}"]
        columns += [paper.millions, paper.ppl, paper.bleu]
        yield f"| {' | '.join([*columns, *agreement])} |"


def seeds_of(rows: dict[str, Measured]) -> Iterator[str]:
    yield "| row | PPL | BLEU |\n|---|---|---|"
    for row, here in rows.items():
        ppl, bleu = (f"{one:.3f}" for one in here.ppl), (f"{one:.1f}" for one in here.bleu)
        yield f"| {row} | {', '.join(ppl)} | {', '.join(bleu)} |"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--rows", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    options = parser.parse_args(argv)
    rows = {row: measured(options.runs, row, options.seeds) for row in options.rows}
    print("\n".join(table(rows)))
    if len(options.seeds) > 1:
        print("\nSeed by seed:\n", *seeds_of(rows), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
