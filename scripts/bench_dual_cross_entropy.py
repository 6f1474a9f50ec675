"""Measures the filter dual_cross_entropy; benchmarks/cleaning.md holds what it printed. FOLDER has tatoeba_en_fr/.

python scripts/bench_dual_cross_entropy.py write FOLDER noisy      noisy.en, noisy.fr: sound pairs with known faults
tfm train …                                                        two models of them, one in each direction
python scripts/bench_dual_cross_entropy.py measure FOLDER MODEL MODEL      what the filter finds after those of auto
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from bench_cleaning import Broken, broken, cleaned, lines_of, pairs_of

from transformer_cli.addons.dual_cross_entropy.scores import DualModels, dual_models, unrelated
from transformer_cli.config.data import DataConfig
from transformer_cli.data.cleaning.base import FILTERS, Languages, PairTexts

SOURCE, TARGET = "en", "fr"
KINDS = ("misaligned", "shifted", "foreign", "copied")  # of pairs that are no translations
SHARES = (0.5, 0.8, 0.9, 0.95, 0.98)


def noisy(folder: Path, n: int, seed: int) -> Broken:
    """Pairs of Tatoeba en-fr, of which 40 % get faults of eight kinds."""
    sound = pairs_of(folder / "tatoeba_en_fr", ["train"], SOURCE, TARGET)
    random.Random(seed).shuffle(sound)
    return broken(sound[:n], lines_of(folder / "tatoeba_en_de" / "train.de"), (SOURCE, TARGET), seed=seed)


def write(text: Broken, stem: Path) -> None:
    for side, language in enumerate((SOURCE, TARGET)):
        stem.with_suffix(f".{language}").write_bytes("".join(f"{pair[side]}\n" for pair in text.pairs).encode())


def measure(text: Broken, models: DualModels) -> Iterator[str]:
    """What each threshold drops of each kind that the filters of auto have left, and of the sound pairs."""
    done = cleaned(text.pairs, (SOURCE, TARGET))
    rows = [row for row, is_dropped in enumerate(done.dropped) if not is_dropped]
    pairs = [done.left[row] for row in rows]
    kinds = np.array([text.kinds[row] if done.left[row] != text.sound[row] else "" for row in rows])
    is_wrong = np.isin(kinds, KINDS)
    started, on_processor = time.perf_counter(), time.process_time()
    scores = models.scores(pairs)
    seconds, on_processor = time.perf_counter() - started, time.process_time() - on_processor
    yield f"{len(pairs):,} pairs: {len(pairs) / seconds:,.0f} pairs/s, {len(pairs) / on_processor:,.0f} a CPU second"
    sides = PairTexts([source for source, _ in pairs], [target for _, target in pairs], np.arange(len(pairs)))
    others = models.scores(unrelated(sides))
    yield f"\n| threshold | {' | '.join(KINDS)} | sound | precision |\n|---|{'---:|' * (len(KINDS) + 2)}"
    for share in SHARES:
        dropped = scores < np.quantile(others, share)
        found = [f"{dropped[kinds == kind].sum()} of {(kinds == kind).sum()}" for kind in KINDS]
        lost, right = dropped & ~is_wrong, dropped & is_wrong
        percent = 100 * lost.sum() / (~is_wrong).sum()
        precision = right.sum() / max(1, dropped.sum())
        yield f"| {share:g} | {' | '.join(found)} | {lost.sum()} ({percent:.1f} %) | {precision:.2f} |"
        if share == FILTERS["dual_cross_entropy"].threshold:
            for row in np.flatnonzero(lost)[:: max(1, lost.sum() // 15)].tolist():
                print(f"{scores[row]:.4f}", *pairs[row], sep=" | ", file=sys.stderr)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "measure"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+", help="the stem of the files to write; or both models")
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    text = noisy(given.folder, given.pairs, given.seed)
    if given.what == "write":
        write(text, Path(given.names[0]))
        return
    config = DataConfig(source_lang=SOURCE, target_lang=TARGET, clean_models=given.names)
    for line in measure(text, dual_models(config, Languages(SOURCE, TARGET))):
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
