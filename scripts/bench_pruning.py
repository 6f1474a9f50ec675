"""Measures a model of many pieces and languages: how it is imported, and what init.keep_languages leaves of it.

python scripts/bench_pruning.py [import] [prune] [--pieces 40000] [--width 256] [--layers 2] [--lines 1000]
python scripts/bench_pruning.py import --pieces 256000 --width 1024 --layers 12 --updates 0    # NLLB's 600M

The model is one of bench_nllb.py, with the classes and files of NLLB in transformers, twenty languages, and so many
pieces, most of which no text has; it is trained for a moment, between three of the languages. `import` is `tfm import`,
with the comparison that it makes; `prune` translates lines of the three languages, fine-tunes the model on these lines
for an update at a rate of 1e-9 with init.keep_languages, and translates them again. A peak is the resident memory of a
process as the system has it, with torch and all that is mapped. Everything is in a temporary folder in --out.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import transformers
from bench_nllb import CODES, Toy, sentence
from bench_small_models import TFM, read_lines, write_lines

from transformer_cli.config.tags import source_tag, target_tag

STEPS = ("import", "prune")
KEPT = CODES["nllb"][::7]  # three languages
SEARCHES = {"greedy": ["decode=greedy"], "beam 4": ["--beam=4"]}


@dataclass(frozen=True)
class Spent:
    """The largest memory of a command, and its time."""

    peak: float  # GB
    minutes: float


# A process counts the memory of the one that it was forked from, which this small one keeps apart.
LAUNCH = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=sys.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def spent(arguments: Sequence[str | Path]) -> Spent:
    """Run a command of tfm in one thread; its log is shown if it fails."""
    start, environment = time.monotonic(), {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LAUNCH, *TFM, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"tfm {arguments[0]}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return Spent(int(done.stdout) * 1024 / 1e9, (time.monotonic() - start) / 60)


def imported(folder: Path, file: Path, more: Sequence[str]) -> None:
    """Print what an import takes."""
    size = (folder / "model.safetensors").stat().st_size / 1e9
    found = spent(["import", "huggingface", folder, "--output", file, *more])
    show("import", gb=size, peak=found.peak, times=found.peak / size, minutes=found.minutes)


def pruned(file: Path, toy: Toy, n_lines: int) -> None:
    """Print what translating takes before and after pruning, and how many translations are the same."""
    place = file.parent
    after = place / "runs/pruned/model.safetensors"
    directions = [(source, target) for source in KEPT for target in KEPT if source != target]
    lines = write_text(place, toy, directions, n_lines)
    files = [str(place / f"{source}-{target}.{one}") for source, target in directions for one in (source, target)]
    tags = json.dumps([f"{source_tag(source)} {target_tag(target)}" for source, target in directions])
    every = "+".join(KEPT)
    train = ["train", f"init.from={file}", f"init.keep_languages=[{','.join(KEPT)}]", "data=files", "data.clean=[]"]
    train += [f"data.train={json.dumps(files)}", f"data.tags={tags}", f"data.source_lang={every}"]
    train += [f"data.target_lang={every}", "data.holdout=1", "train.max_steps=1", "schedule=constant"]
    train += ["schedule.lr=1e-9", "train.average_last=1", "train.robustness_lines=0", "train.samples=0", "name=pruned"]
    for number, model in enumerate((file, after)):
        if number:
            used = spent([*train, f"runs={place / 'runs'}", f"data.cache={place / 'cache'}"])
            show("pruning", peak=used.peak, minutes=used.minutes)
        for name, search in SEARCHES.items():
            output = place / f"{name}.{number}"
            given = [f"--checkpoint={model}", f"--input={lines}", f"--output={output}", *search]
            used = spent(["translate", *given])
            show(f"{name}, {'pruned' if number else 'whole'}", gb=model.stat().st_size / 1e9, peak=used.peak)
    for name in SEARCHES:
        before, now = (read_lines(place / f"{name}.{number}") for number in (0, 1))
        same = sum(a == b for a, b in zip(before, now, strict=True))
        show(name, identical=same, lines=len(before), different_translations=len(set(before)))


def write_text(place: Path, toy: Toy, directions: Sequence[tuple[str, str]], n_lines: int) -> Path:
    """Write lines and translations in some directions in turn, and all lines with their tags to the file it returns."""
    chooser, tagged = random.Random(4), []
    sides: dict[str, list[str]] = {}
    for number in range(n_lines):
        source, target = directions[number % len(directions)]
        concepts = sentence(chooser)
        for code in (source, target):
            sides.setdefault(f"{source}-{target}.{code}", []).append(toy.text(code, concepts))
        tagged.append(f"{source_tag(source)} {target_tag(target)} {toy.text(source, concepts)}")
    for name, lines in {**sides, "lines": tagged}.items():
        write_lines(place / name, lines)
    return place / "lines"


def show(what: str, **figures: float) -> None:
    print(json.dumps({"what": what, **{name: round(value, 3) for name, value in figures.items()}}), flush=True)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help="import, prune; unset: both")
    parser.add_argument("--pieces", type=int, default=40_000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--updates", type=int, default=500, help="of the model in transformers")
    parser.add_argument("--lines", type=int, default=1000, help="of text that is translated")
    parser.add_argument(
        "--compared", type=int, help="lines of the comparison of the import; unset: as tfm import has it"
    )
    parser.add_argument("--out", type=Path, help="unset: the folder of temporary files")
    options = parser.parse_intermixed_args(arguments)
    if unknown := [step for step in options.steps if step not in STEPS]:
        parser.error(f"{unknown[0]}: no step. Steps: {', '.join(STEPS)}")
    transformers.utils.logging.disable_progress_bar()
    sizes = {"layers": options.layers, "attention_heads": max(4, options.width // 64)}
    sizes |= {"ffn_dim": 4 * options.width, "d_model": options.width}
    with tempfile.TemporaryDirectory(dir=options.out) as name:
        place = Path(name)
        toy = Toy("nllb", place / "model", steps=options.updates, sizes=sizes, n_pieces=options.pieces, between=KEPT)
        del toy.model  # which would be in memory beside what is measured
        file = place / "whole.safetensors"
        more = [] if options.steps != ["prune"] else ["compare=false"]
        if options.compared:
            chooser = random.Random(5)
            write_lines(place / "some", (toy.text(toy.codes[0], sentence(chooser)) for _ in range(options.compared)))
            more.append(f"--lines={place / 'some'}")
        imported(toy.folder, file, more)
        if options.steps != ["import"]:
            pruned(file, toy, options.lines)


if __name__ == "__main__":
    main(sys.argv[1:])
