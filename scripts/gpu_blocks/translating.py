"""(e) Translating with base and big in each precision, with and without CUDA graphs, beside other programs.

The weights are random and the same in all programs, and each translation has 20 tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from gpu_blocks.block import Block, failure
from transformer_cli.addons.benchmarks.decoders import (
    DEFAULT,
    BenchmarkEngine,
    CTranslate2,
    HuggingFace,
    Rows,
    TfmEngine,
)
from transformer_cli.addons.benchmarks.decoding_rounds import FIXED_LENGTH
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.timing import Spread, in_turn, ratio
from transformer_cli.addons.benchmarks.workload import random_model
from transformer_cli.models.file import ModelFile

BATCHES, TOY_BATCHES = (256, 32, 1, 1024), (1, 4)  # sentences in a batch, in the order of their worth
TFM, EAGER, HUGGING_FACE, CT2 = "tfm", "tfm, no graphs", "Hugging Face", "CTranslate2"
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
COMPUTE_TYPES = {"bf16": "float16", "fp16": "float16", "fp32": "float32"}  # of CTranslate2
ROUNDS = 4
OF_HUGGING_FACE = ("bf16",)  # the precisions in which it is measured, as it takes most of the time
AIM_STEP_US = 200  # a greedy step of one sentence
# In the order of their worth; what has the same model and precision is made once.
SEARCHES = (
    *(("base", 4, "bf16"), ("base", 1, "bf16"), ("big", 4, "bf16"), ("big", 1, "bf16"), ("base", 4, "fp16")),
    *(("base", 1, "fp16"), ("big", 4, "fp16"), ("big", 1, "fp16"), ("base", 4, "fp32"), ("base", 1, "fp32")),
    *(("big", 4, "fp32"), ("big", 1, "fp32")),
)

Decode = Callable[[Rows, int], list[list[int]]]  # of rows, with a beam size


@dataclass
class Programs:
    """What translates with the same weights, and why something does not."""

    model: ModelFile
    ways: dict[str, Decode]
    failed: dict[str, str]


def run(block: Block) -> None:
    models: dict[str, ModelFile] = {}
    latest: dict[tuple[str, str], Programs] = {}
    for model, beam_size, precision in SEARCHES:
        if block.is_toy and model != "base":
            continue  # the same at toy size
        search = "greedy" if beam_size == 1 else f"beam {beam_size}"
        if precision == "fp16" and not block.on_gpu:
            block.leave_out(f"{model}, {search}, {precision}", "needs a GPU")
            continue
        block.measure(
            f"{model}, {search}, {precision}",
            partial(translating, block, models, latest, model=model, beam_size=beam_size, precision=precision),
            needs_s=25,
        )


def programs(block: Block, config: BenchConfig, model: ModelFile, *, precision: str) -> Programs:
    found = Programs(model, {}, {})
    tokens = FIXED_LENGTH * max(beam_size for _, beam_size, _ in SEARCHES) * max(BATCHES)
    decode = replace(config.decode, max_extra_length=0, batch_tokens=tokens)
    device, dtype = block.device, DTYPES[precision]

    def of(engine: BenchmarkEngine, preset: str) -> Decode:
        return lambda rows, beam_size: engine.decode(rows, beam_size=beam_size, preset=preset.format(n=len(rows)))

    makers: dict[str, Callable[[], Decode]] = {
        TFM: lambda: of(TfmEngine(model, decode, device=device, dtype=dtype), DEFAULT),
        EAGER: lambda: of(TfmEngine(model, decode, device=device, dtype=dtype, parallel=False), DEFAULT),
        HUGGING_FACE: lambda: of(HuggingFace(model, extra=0, device=device, dtype=dtype), "{n} sentences a batch"),
        f"{CT2} {compute_type(block, precision)}": lambda: of(
            CTranslate2(
                model,
                extra=0,
                compute_type=compute_type(block, precision),
                device=device,
                threads=torch.get_num_threads(),
            ),
            f"1 × {torch.get_num_threads()} threads, {{n}} sentences",
        ),
    }
    if precision not in OF_HUGGING_FACE:
        del makers[HUGGING_FACE]
    for name, make in makers.items():
        try:
            found.ways[name] = make()
        except Exception as error:  # a program that is not installed, or that does not know this GPU
            found.failed[name] = failure(error)
    return found


def compute_type(block: Block, precision: str) -> str:
    return COMPUTE_TYPES[precision] if block.on_gpu else "float32"


def translating(
    block: Block,
    models: dict[str, ModelFile],
    latest: dict[tuple[str, str], Programs],
    *,
    model: str,
    beam_size: int,
    precision: str,
) -> Measured:
    """Target tokens a second of batches of several sizes, in interleaved rounds."""
    config = block.config(model)
    if (model, precision) not in latest:
        latest.clear()
        block.free()
        models[model] = models.get(model) or random_model(config)
        latest[model, precision] = programs(block, config, models[model], precision=precision)
    made = latest[model, precision]
    others = replace(made, ways=dict(made.ways), failed=dict(made.failed))
    names = list(dict.fromkeys((TFM, EAGER, *others.ways, *others.failed)))
    columns = ("sentences", *(f"{name}, tokens/s" for name in names), "tfm to CTranslate2", "tfm, µs a step")
    found = Measured("decode", columns)
    random = np.random.default_rng(config.seed)
    for batch in TOY_BATCHES if block.is_toy else BATCHES:
        if block.left_s < 15 and not block.is_toy:
            found.notes.append(f"{batch:,} sentences: left out, no time.")
            continue
        rows = random.integers(4, len(others.model.tokenizers.source), (batch, FIXED_LENGTH - 1)).tolist()
        rates = rates_of(block, others, rows, beam_size)
        found.rows.append(row_of(batch, names, rates))
        found.figures[f"{batch} sentences"] = rates
        for name, values in rates.items():
            if name != TFM and TFM in rates:
                found.ratios[f"{batch} sentences: {TFM} to {name}"] = ratio(rates[TFM], values)
        block.keep(found)
    found.rows.sort(key=lambda row: int(row[0].replace(",", "")))
    if beam_size == 1:
        found.notes.append(f"Aimed at: {AIM_STEP_US} µs a step, encoder and all, with one sentence.")
    found.notes += [f"{name} failed: {why}" for name, why in others.failed.items()]
    return found


def rates_of(block: Block, others: Programs, rows: Rows, beam_size: int) -> dict[str, list[float]]:
    """Tokens a second in each round. A program that fails, or translates to another length, is named and dropped."""
    for name, decode in list(others.ways.items()):
        try:
            lengths = {len(ids) for ids in decode(rows, beam_size)}
            if lengths != {FIXED_LENGTH}:
                raise RuntimeError(f"translations of {sorted(lengths)} tokens, not {FIXED_LENGTH}")
        except Exception as error:
            others.failed[name] = f"{failure(error)}, with {len(rows):,} sentences"
            del others.ways[name]
    work = {name: partial(decode, rows, beam_size) for name, decode in others.ways.items()}
    taken = in_turn(work, rounds=1 if block.is_toy else ROUNDS, device=block.device)
    return {name: [len(rows) * FIXED_LENGTH / seconds for seconds in times] for name, times in taken.items()}


def row_of(batch: int, names: list[str], rates: dict[str, list[float]]) -> list[str]:
    row = [f"{batch:,}", *(Spread.of(rates[name]).shown_briefly() if name in rates else "failed" for name in names)]
    ct2 = next((name for name in rates if name.startswith(CT2)), None)
    row.append(ratio(rates[TFM], rates[ct2]).shown(".2f") if ct2 is not None and TFM in rates else "")
    step_s = batch / Spread.of(rates[TFM]).median if TFM in rates else None
    return [*row, "" if step_s is None else f"{1e6 * step_s:,.0f}"]
