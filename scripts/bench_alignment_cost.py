"""What guided alignment costs an update of training, and full context `tfm translate --alignments`.

python scripts/bench_alignment_cost.py MODEL SOURCE TARGET [--rounds 7] [--lines 500]

MODEL is one with a head that is taught, and TARGET has the translations of the lines of SOURCE. Updates of 4,096 target
tokens are those of a new model of its size, in bfloat16: without guided alignment, with a causal head, and with one of
full context. The first --lines lines of SOURCE are translated without --alignments, and with those of MODEL as one and
as the other kind of head. The ways take turns; all times are of the processor, of one thread, and the middle ones of
all rounds. The first update of each way is not counted. benchmarks/alignment.md has figures.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
import torch

from transformer_cli.config.data import DataConfig
from transformer_cli.config.train import Precision, TrainConfig, TrainSettings
from transformer_cli.data.alignments import aligner_of
from transformer_cli.data.batching import Batch, micro_batches
from transformer_cli.data.cache import Alignment, EncodedCorpus
from transformer_cli.data.corpus import ParallelText
from transformer_cli.models.file import ModelFile, read_model, write_model
from transformer_cli.models.locate import locate_model
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.validation import encode_pairs

TOKENS = 4096  # of an update, and at most of a micro-batch
CPU = torch.device("cpu")
TFM = [sys.executable, "-c", "from transformer_cli.cli import entry_point; entry_point()"]
WAYS = {"without": (0.0, False), "guided": (0.5, False), "guided, full context": (0.5, True)}


def in_turn(rounds: int, ways: dict[str, Callable[[int], float]]) -> dict[str, list[float]]:
    """The seconds of each way in each round, whose number it is given; each round begins with another way."""
    found, names = defaultdict[str, list[float]](list), list(ways)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            found[name].append(ways[name](number))
    return found


def table(found: dict[str, list[float]], names: Sequence[str], n_tokens: Sequence[int] | None = None) -> Iterator[str]:
    """A row of each way; the ratios are those within each round."""
    unit = "seconds" if n_tokens is None else "target tokens/s"
    yield f"| | {unit} | times as long | of single rounds |"
    yield "|---|---:|---:|---:|"
    for name in names:
        ratios = [one / base for one, base in zip(found[name], found[names[0]], strict=True)]
        if n_tokens is None:
            cell = f"{median(found[name]):.1f}"
        else:
            cell = f"{median(n / seconds for n, seconds in zip(n_tokens, found[name], strict=True)):,.0f}"
        yield f"| {name} | {cell} | {median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |"


# ---- Updates


def aligned_corpus(file: ModelFile, text: ParallelText) -> EncodedCorpus:
    corpus = encode_pairs(text, file.tokenizers, max_length=256)
    with tempfile.TemporaryDirectory() as scratch:
        links = list(aligner_of(corpus, file.tokenizers, Path(scratch)).links())
    sources, targets, n = (np.concatenate(column) for column in zip(*links, strict=True))
    return replace(corpus, alignment=Alignment(sources, targets, np.concatenate(([0], np.cumsum(n)))))


def updates(file: ModelFile, corpus: EncodedCorpus) -> Iterator[list[Batch]]:
    """The micro-batches of one update after the other, of as many pairs as have its tokens."""
    ends = np.cumsum(corpus.target_lengths, dtype=np.int64)
    first = 0
    while (last := int(np.searchsorted(ends, (ends[first - 1] if first else 0) + TOKENS))) < len(ends):
        yield micro_batches(corpus, np.arange(first, last), file.tokenizers, max_tokens=TOKENS)
        first = last


def trainer(file: ModelFile, weight: float, *, full_context: bool) -> Trainer:
    settings = TrainSettings(
        guided_alignment=weight,
        full_context_alignment=full_context,
        precision=Precision.bf16,
        tokens_per_update=TOKENS,
        max_tokens_per_microbatch=TOKENS,
    )
    data = DataConfig(source_lang=file.source_lang, target_lang=file.target_lang)
    return Trainer(TrainConfig(model=file.config, data=data, train=settings), file.tokenizers, CPU)


def measure_updates(file: ModelFile, text: ParallelText, rounds: int) -> None:
    chosen = list(islice(updates(file, aligned_corpus(file, text)), rounds + 1))
    if len(chosen) <= rounds:
        sys.exit(f"--rounds {rounds}: the text has {len(chosen)} updates of {TOKENS:,} tokens. Give more text")
    trainers = {name: trainer(file, weight, full_context=full) for name, (weight, full) in WAYS.items()}

    def seconds(name: str, number: int) -> float:
        start = time.process_time()
        trainers[name].train_step(chosen[number], step=number + 1, lr=1e-4)
        return time.process_time() - start

    for name in WAYS:
        seconds(name, rounds)
    found = in_turn(rounds, {name: partial(seconds, name) for name in WAYS})
    n_tokens = [sum(batch.n_target_tokens for batch in one) for one in chosen[:rounds]]
    print(*table(found, list(WAYS), n_tokens), "", sep="\n", flush=True)


# ---- tfm translate --alignments


def measure_translation(file: ModelFile, lines: Sequence[str], rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        links = ["--alignments", str(folder / "links")]
        ways: dict[str, tuple[str, list[str]]] = {
            "without --alignments": ("causal", []),
            "--alignments": ("causal", links),
            "--alignments, full context": ("full", links),
        }
        for kind in ("causal", "full"):
            write_model(folder / kind, replace(file, full_context_alignment=kind == "full"))

        def seconds(kind: str, flags: Sequence[str], _: int) -> float:
            command = ["translate", "--checkpoint", str(folder / kind), "--engine", "torch", "--overwrite", *flags]
            return spent([*command, "device=cpu"], folder / "source")

        found = in_turn(rounds, {name: partial(seconds, *way) for name, way in ways.items()})
    print(*table(found, list(ways)), sep="\n", flush=True)


def spent(command: Sequence[str], source: Path) -> float:
    """The seconds of the processor that `tfm` takes."""
    with source.open("rb") as stdin, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen([*TFM, *command], stdin=stdin, stdout=subprocess.DEVNULL, stderr=stderr)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            stderr.seek(0)
            sys.exit(f"tfm {' '.join(command)}: exit code {process.returncode}: {stderr.read().decode()[-2000:]}")
    return used.ru_utime + used.ru_stime


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lines", type=int, default=500)
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    file = read_model(locate_model(given.model, "runs"))
    if file.alignment_head is None:
        sys.exit(f"{given.model}: has no head that is taught. Train it with train.guided_alignment")
    sources, targets = (path.read_text(encoding="utf-8").split("\n")[:-1] for path in (given.source, given.target))
    n = 300 * given.rounds + 2000  # more than the updates have, so that the links are no random ones
    measure_updates(file, ParallelText(sources[:n], targets[:n]), given.rounds)
    measure_translation(file, sources[: given.lines], given.rounds)


if __name__ == "__main__":
    main()
