"""Measures the data path at scale, each size in a process of its own; benchmarks/data.md holds what it printed.

python scripts/bench_data.py plan 100000000   the plan of an epoch: memory, and the time to find a step
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from transformer_cli.data.batching import BatchPlan
from transformer_cli.data.cache import EncodedCorpus


def peak_gib() -> float:
    """The most that this process has had in memory so far, the pages of mapped files included."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def write_offsets(path: Path, n_pairs: int, random: np.random.Generator) -> None:
    """Sentences of 1 to 256 tokens, 27 on average."""
    end = 0
    with path.open("wb") as file:
        file.write(np.zeros(1, "<i8").tobytes())
        for start in range(0, n_pairs, 1 << 20):
            lengths = random.gamma(2.0, 13.0, min(1 << 20, n_pairs - start)).astype(np.int64) + 1
            ends = end + np.cumsum(lengths.clip(max=256))
            file.write(ends.astype("<i8").tobytes())
            end = int(ends[-1])


def plan(n_pairs: int) -> dict[str, float]:
    """Updates of 25,000 tokens of a corpus of `n_pairs`, at ten steps, each found by a new plan."""
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        for side in ("source", "target"):
            write_offsets(Path(name, f"{side}.offsets"), n_pairs, random)
            Path(name, f"{side}.ids").write_bytes(bytes(2))
        without = peak_gib()
        start = time.perf_counter()
        corpus = EncodedCorpus.open(Path(name), source_vocab_size=8000, target_vocab_size=8000)
        opened = time.perf_counter() - start
        seconds, sizes = [], []
        for step in random.integers(0, 10**7, 10).tolist():
            start = time.perf_counter()
            batches = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=25_000, seed=1)
            sizes.append(len(batches.update(step)))
            seconds.append(time.perf_counter() - start)
    return {
        "n_pairs": n_pairs,
        "updates_per_epoch": batches.updates_per_epoch,
        "pairs_in_update": min(sizes),
        "open_s": round(opened, 2),
        "seek_s": round(max(seconds), 3),
        "peak_gib": round(peak_gib(), 3),
        "peak_before_gib": round(without, 3),
    }


if __name__ == "__main__":
    print(json.dumps({"plan": plan}[sys.argv[1]](int(sys.argv[2]))))
