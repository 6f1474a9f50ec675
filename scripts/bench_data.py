"""Measures the data path at scale, each size in a process of its own; benchmarks/data.md holds what it printed.

python scripts/bench_data.py plan 100000000   the plan of an epoch: memory, and the time to find a step
python scripts/bench_data.py prepare 1000000  a preparation: time, and memory of this process and of those it starts
"""

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.data.batching import BatchPlan
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.prepare import prepare


def peak_gib(process: str = "self") -> float:
    """The most that a process has had in memory so far, the pages of mapped files included."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


class Children:
    """The most memory that each process started by this one has had, in GiB; measured ten times a second."""

    def __init__(self) -> None:
        self.peaks: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "Children":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(0.1):
            for tasks in Path("/proc/self/task").glob("*/children"):
                for child in tasks.read_text(encoding="ascii").split():
                    try:
                        self.peaks[child] = peak_gib(child)
                    except (OSError, IndexError):  # it has ended
                        continue


def write_offsets(path: Path, n_pairs: int, random: np.random.Generator) -> None:
    """Offsets of pairs with 1 to 256 tokens, 27 on average."""
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
            start = time.process_time()  # CPU time: other processes on the machine matter less
            batches = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=25_000, seed=1)
            sizes.append(len(batches.update(step)))
            seconds.append(time.process_time() - start)
    return {
        "n_pairs": n_pairs,
        "updates_per_epoch": batches.updates_per_epoch,
        "pairs_in_update": min(sizes),
        "open_s": round(opened, 2),
        "seek_s": round(max(seconds), 3),
        "peak_gib": round(peak_gib(), 3),
        "peak_before_gib": round(without, 3),
    }


def write_text(folder: Path, n_pairs: int, random: np.random.Generator) -> None:
    """Pairs of 1 to 60 made-up words, 13 on average, drawn as words are: the n-th of 50,000 about 1/n times."""
    letters = np.array(list("etaoinshrdlucmfwyp"))
    for language in ("en", "de"):
        words = ["".join(random.choice(letters, n)) for n in random.integers(2, 9, 50_000)]
        with (folder / f"corpus.{language}").open("w", encoding="ascii") as file:
            for start in range(0, n_pairs, 100_000):
                lengths = (random.gamma(2.0, 6.0, min(100_000, n_pairs - start)) + 1).astype(int).clip(max=60)
                ranks = (len(words) ** random.random(lengths.sum())).astype(int) - 1
                rest = iter(ranks.tolist())
                file.writelines(" ".join(words[next(rest)] for _ in range(n)) + "\n" for n in lengths.tolist())


def preparation(n_pairs: int) -> dict[str, float]:
    """Preparation of `n_pairs`, with a vocabulary of 8,000 trained on 100,000 lines."""
    with tempfile.TemporaryDirectory() as name:
        if os.fork() == 0:  # in another process, so that its memory is not measured
            write_text(Path(name), n_pairs, np.random.default_rng(1))
            os._exit(0)
        os.wait()
        config = DataConfig(
            source_lang="en",
            target_lang="de",
            root=name,
            train="corpus",
            cache=name,
            tokenizer=TokenizerConfig(max_sentences=100_000),
        )
        start = time.perf_counter()
        with Children() as children:
            prepared = prepare(config)
        seconds = time.perf_counter() - start
        size = sum(Path(name, f"corpus.{language}").stat().st_size for language in ("en", "de"))
    return {
        "n_pairs": n_pairs,
        "text_mib": size // 2**20,
        "n_kept": len(prepared.train),
        "seconds": round(seconds, 1),
        "pairs_per_s": round(n_pairs / seconds),
        "peak_gib": round(peak_gib(), 3),
        "children": len(children.peaks),
        "peak_of_children_gib": round(max(children.peaks.values(), default=0.0), 3),
    }


if __name__ == "__main__":
    print(json.dumps({"plan": plan, "prepare": preparation}[sys.argv[1]](int(sys.argv[2]))))
