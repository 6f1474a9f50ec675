"""What batch composition does to translations in each precision: a table of docs/faster.md.

python scripts/bench_near_ties.py MODEL FILE [--lines 500] [--device cpu] [--beam 4] [--precisions fp32,bf16,fp16]

The same lines are translated in batches of five compositions, without a second pass. Gap: the largest difference
between the scores of one text. Near ties: the share of sentences with a choice between scores that are less than ten
times as far apart, which is what NEAR_TIES of transformer_cli/decoding/torch_engine.py should be. Changed: the share of
lines whose text differs between any two compositions; and with the second pass, where NEAR_TIES asks for one.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from transformer_cli.config.decode import DecodeConfig, DecodePrecision
from transformer_cli.data.lines import split_lines
from transformer_cli.decoding.engine import DecodeRequest
from transformer_cli.decoding.plan import Segment
from transformer_cli.decoding.search import Hypothesis
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.decoding.training_text import training_text
from transformer_cli.inference.precision import DTYPES, converted
from transformer_cli.models.file import ModelFile, read_model
from transformer_cli.models.locate import locate_model

COMPOSITIONS = [(4096, None), (600, 1), (2000, 2), (16_384, 3), (1, None)]  # batch_tokens, and the seed of an order
Found = list[Hypothesis]  # the best of each line


@dataclass(frozen=True)
class Figures:
    gap: float
    near_ties: float
    changed: float
    changed_with_second_pass: float | None  # None: there is none in this precision
    unlike_fp32: float


def measured(model: ModelFile, lines: Sequence[str], precision: str, device: torch.device, beam: int) -> Figures:
    reference = next(compositions(engine_of(model, "fp32", device), lines, beam))
    engine = engine_of(model, precision, device)
    tolerance = engine.near_tie
    engine.near_tie, engine.second_pass = 0.0, False
    found = list(compositions(engine, lines, beam))
    gap = max(
        abs(one.score - other.score)
        for others in found[1:]
        for one, other in zip(found[0], others, strict=True)
        if one.ids == other.ids
    )
    engine.near_tie = 10 * gap
    (flagged, *_) = compositions(engine, lines, beam)
    with_second_pass = None
    if tolerance > 0:
        engine = engine_of(model, precision, device)
        with_second_pass = changed(list(compositions(engine, lines, beam)))
    near_ties = sum(one.is_near_tie for one in flagged) / len(lines)
    return Figures(gap, near_ties, changed(found), with_second_pass, changed([reference, found[0]]))


def engine_of(model: ModelFile, precision: str, device: torch.device) -> TorchEngine:
    """An engine of any precision, also on a CPU, where the command refuses 16 bits."""
    built = converted(model.build(device), DTYPES[DecodePrecision[precision]])
    return TorchEngine(built, model.tokenizers, device=device, text=training_text([model]))


def compositions(engine: TorchEngine, lines: Sequence[str], beam: int) -> Iterator[Found]:
    ids = engine.tokenizers.source.encode(lines)
    search = {"search": "greedy", "beam_size": 1} if beam == 1 else {"beam_size": beam}
    config = DecodeConfig(**search)  # type: ignore[arg-type]
    for batch_tokens, seed in COMPOSITIONS:
        segments = [Segment(line, 0, one) for line, one in enumerate(ids)]
        if seed is not None:
            random.Random(seed).shuffle(segments)
        request = DecodeRequest(replace(config, batch_tokens=batch_tokens))
        best = {
            segment.line: hypotheses[0]
            for batch, found in engine.search(segments, request)
            for segment, hypotheses in zip(batch, found, strict=True)
        }
        yield [best[line] for line in range(len(lines))]


def changed(found: Sequence[Found]) -> float:
    """The share of lines that have more than one text."""
    each = zip(*found, strict=True)
    return sum(len({tuple(one.ids) for one in of_line}) > 1 for of_line in each) / len(found[0])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="model file or run directory")
    parser.add_argument("file", type=Path, help="lines to translate")
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--precisions", default="fp32,bf16,fp16")
    args = parser.parse_args(argv)
    model = read_model(locate_model(args.model, "runs"))
    lines = [line.decode() for line in split_lines(args.file.read_bytes()) if line.strip()][: args.lines]
    print("| precision | gap | near ties | changed | with the second pass | unlike fp32 |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in args.precisions.split(","):
        one = measured(model, lines, name, args.device, args.beam)
        second = "none" if one.changed_with_second_pass is None else f"{one.changed_with_second_pass:.2%}"
        row = f"| {name} | {one.gap:.1e} | {one.near_ties:.1%} | {one.changed:.2%} | {second} | {one.unlike_fp32:.2%} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
