"""Measures the ratios of benchmarks/ratios.json again: see scripts/bench_regress."""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent.parent / "benchmarks" / "ratios.json"
TOLERANCE = 0.07  # allowed below the recorded lower quartile
PROGRAM = "from transformer_cli.cli import entry_point; entry_point()"
SMALL = (
    "lengths=wmt data.max_length=100 data.tokenizer.vocab_size=8000 model=small model.d_model=256 model.d_ff=1024"
    " model.n_encoder_layers=3 model.n_decoder_layers=3 model.dropout=0.1 train.tokens_per_update=2048"
    " train.max_tokens_per_microbatch=2048 device=cpu"
)
# Higher is better for all ratios.
MEASUREMENTS = {
    "train, tiny": "tfm bench train model=tiny device=cpu rounds=7",
    "train, small": f"tfm bench train {SMALL} rounds=5",
    "loss": f"tfm bench loss {SMALL} rounds=9",
    "attention": f"tfm bench attention {SMALL} rounds=9",
    "decode": (
        "tfm bench decode data.tokenizer.vocab_size=8000 model=small model.d_model=256 model.d_ff=1024"
        " model.n_encoder_layers=3 model.n_decoder_layers=3 device=cpu rounds=7"
    ),
}


def measured(command: str) -> dict[str, dict[str, float]]:
    """Ratios by name, as `command` prints them."""
    print(command, file=sys.stderr)
    words = [sys.executable, "-c", PROGRAM, *shlex.split(command)[1:], "--json"]
    found: dict[str, dict[str, float]] = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)[
        "ratios"
    ]
    return found


def losses(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A line for each ratio on file that is too low now, or is no longer measured."""
    found = [f"{name}: not on file. Run scripts/bench_regress --update" for name in now if name not in before]
    for name, then in before.items():
        if name not in now:
            found.append(f"{name}: no longer measured. Run scripts/bench_regress --update if that is meant")
        elif now[name]["median"] < (1 - TOLERANCE) * then["low"]:
            found.append(
                f"{name}: {now[name]['median']:.3f}, was {then['median']:.3f} ({then['low']:.3f}–{then['high']:.3f})."
                f" Repeat it with: {then['command']}"
            )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--update", action="store_true", help="write what is measured into benchmarks/ratios.json")
    parser.add_argument("--only", choices=MEASUREMENTS, help="one measurement by name")
    options = parser.parse_args()
    chosen = {options.only: MEASUREMENTS[options.only]} if options.only else MEASUREMENTS
    now = {
        f"{title}: {name}": {**spread, "command": command}
        for title, command in chosen.items()
        for name, spread in measured(command).items()
    }
    before = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if options.update:
        others = (
            {name: then for name, then in before.items() if name.partition(":")[0] not in chosen}
            if options.only
            else {}
        )
        FILE.write_text(json.dumps({**others, **now}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    before = {name: then for name, then in before.items() if name.partition(":")[0] in chosen}
    for name, spread in now.items():
        print(f"{name}: {spread['median']:.3f} ({spread['low']:.3f}–{spread['high']:.3f})")
    slower = losses(before, now)
    for line in slower:
        print(f"slower: {line}", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
