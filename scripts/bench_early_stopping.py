"""Measures what decode.early_stopping gains and changes, for several length penalties.

python scripts/bench_early_stopping.py MODEL SOURCE REFERENCE [--lines 1000] [--rounds 3] [--alphas 0,0.6,1.4]

Beam 4, torch, one thread: pin it to a core. In each round every search translates all lines, one after the other; a
time is the least processor time of the rounds. Printed are lines a second, the ratio to the first row, sacrebleu's
BLEU, and how many translations are those of the same search without early stopping.
"""

import argparse
import time
from pathlib import Path

import sacrebleu
import torch
from bench_small_models import read_lines

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.torch_engine import torch_engine
from transformer_cli.decoding.translator import Translator
from transformer_cli.models.file import read_model


def main() -> None:
    parser = argparse.ArgumentParser("scripts/bench_early_stopping.py", description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alphas", default="0,0.6,1.4")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines, references = (read_lines(path)[: options.lines] for path in (options.source, options.reference))
    model = read_model(options.model)
    searches = [(float(alpha), early) for alpha in options.alphas.split(",") for early in (False, True)]
    translators, seconds, found = {}, {search: [] for search in searches}, {}
    for alpha, early in searches:
        config = DecodeConfig(length_penalty=alpha, early_stopping=early)
        translators[alpha, early] = Translator(torch_engine([model], config, torch.device("cpu")), config)
        translators[alpha, early].translate(lines[:20])
    for _ in range(options.rounds):
        for search in searches:
            start = time.process_time()
            found[search] = [one.text for one in translators[search].translate(lines)]
            seconds[search].append(time.process_time() - start)
    print("| α | early_stopping | lines/s | ratio | BLEU | the same translations |\n|---:|---|---:|---:|---:|---:|")
    for alpha, early in searches:
        rate, first = (len(lines) / min(seconds[search]) for search in ((alpha, early), searches[0]))
        bleu = sacrebleu.corpus_bleu(found[alpha, early], [references]).score
        same = sum(a == b for a, b in zip(found[alpha, early], found[alpha, False], strict=True))
        print(f"| {alpha:g} | {str(early).lower()} | {rate:.0f} | {rate / first:.2f} | {bleu:.2f} | {same} |")


if __name__ == "__main__":
    main()
