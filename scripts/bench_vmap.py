"""What a lexical shortlist costs CTranslate2, whose batches have the lists of all their sentences: docs/faster.md.

python scripts/bench_vmap.py MODEL SHORTLIST FILE [--lines 600] [--rounds 3]

Target tokens that one core computes in a second of processor time, with and without the list, in batches of 1,024
source tokens and one by one; each translation has as many tokens as its source. The ways take turns.
"""

import argparse
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import ctranslate2

from transformer_cli.addons.interop import ctranslate2 as to_ctranslate2
from transformer_cli.data.lines import split_lines
from transformer_cli.decoding.shortlist import Shortlist
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.models.locate import locate_model

WAYS = [(1024, False), (1024, True), (1, False), (1, True)]  # source tokens of a batch, and whether with the list
Sentences = Sequence[Sequence[str]]


def batches(sources: Sentences, most: int) -> Iterator[Sentences]:
    """The longest first."""
    batch: list[Sequence[str]] = []
    for source in sorted(sources, key=len, reverse=True):
        if batch and (len(batch) + 1) * len(batch[0]) > most:
            yield batch
            batch = []
        batch.append(source)
    yield batch


def tokens_a_second(
    translator: ctranslate2.Translator, sources: Sentences, *, beam_size: int, most: int, use_vmap: bool
) -> float:
    began, n = time.process_time(), 0
    for batch in batches(sources, most):
        lengths = [len(source) for source in batch]
        found = translator.translate_batch(
            batch,
            beam_size=beam_size,
            max_decoding_length=max(lengths),
            min_decoding_length=min(lengths) - 1,
            use_vmap=use_vmap,
            max_input_length=0,
            disable_unk=True,
        )
        n += sum(len(one.hypotheses[0]) for one in found)
    return n / (time.process_time() - began)


def table(model: ModelFile, shortlist: Shortlist, sources: Sentences, folder: Path, rounds: int) -> Iterator[str]:
    for quantization in ("float32", "int8"):
        to_ctranslate2.write(model, folder / quantization, quantization=quantization)
        content = to_ctranslate2.vocabulary_map(shortlist, model.tokenizers)
        (folder / quantization / to_ctranslate2.VOCABULARY_MAP).write_bytes(content)
        translator = ctranslate2.Translator(str(folder / quantization), inter_threads=1, intra_threads=1)
        for beam_size in (1, 4):
            found = defaultdict(list)
            for _ in range(rounds):
                for most, use_vmap in WAYS:
                    speed = tokens_a_second(translator, sources, beam_size=beam_size, most=most, use_vmap=use_vmap)
                    found[most, use_vmap].append(speed)
            cells = [f"{median(found[way]):,.0f}" for way in WAYS]
            yield f"| {quantization}, beam {beam_size} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("model", "shortlist", "file"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--lines", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    model = read_model(locate_model(str(options.model), "runs"))
    shortlist = Shortlist.read(options.shortlist, model.tokenizers, (model.source_lang, model.target_lang))
    source = model.tokenizers.source
    lines = [line.decode() for line in split_lines(options.file.read_bytes())][: options.lines]
    sources = [source.pieces(ids) for ids in source.encode(lines) if ids]
    folder = Path(tempfile.mkdtemp())
    try:
        for quantization in ("float32", "int8"):
            (folder / quantization).mkdir()
        print("| | batches | batches, list | one by one | one by one, list |", flush=True)
        for row in table(model, shortlist, sources, folder, options.rounds):
            print(row, flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
