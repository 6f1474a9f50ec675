"""`tfm bench decode`: translation speed of tfm and of other programs with the same weights."""

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from transformer_cli.addons.benchmarks.decoders import BASELINES, CT2_INT8, TFM
from transformer_cli.addons.benchmarks.decoding_report import summary
from transformer_cli.addons.benchmarks.decoding_rounds import (
    FIXED_LENGTH,
    BenchmarkText,
    request,
    run_rounds,
    sample_evenly,
)
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.worker import BenchmarkWorker
from transformer_cli.addons.benchmarks.workload import random_model
from transformer_cli.config.compose import to_plain
from transformer_cli.data.lines import read_lines
from transformer_cli.data.tags import with_tags
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.training_text import LONGEST
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile, read_model, write_model
from transformer_cli.models.locate import locate_model

N_RANDOM = 128  # sentences for a random model
_N_CHECKED = 8
MIN_SIMILARITY = {False: 0.8, True: 0.5}  # to the reference translations; True: of int8 models


def bench_decode(config: BenchConfig, device: torch.device) -> Measured:
    """Time each program in a process of its own, in interleaved rounds: greedy search, then beam search."""
    if config.decode.beam_size == 1:
        raise ConfigError("decode.beam_size=1: greedy search is measured anyway. Choose 2 or more")
    start = time.monotonic()
    with TemporaryDirectory() as folder:
        path, config = choose_model(config, Path(folder))
        model = read_model(path)
        if model.tokenizers.source.languages:
            raise ConfigError(
                f"{path}: its translations begin with a token of their language, which the programs here do not have."
                " Use `tfm bench students`"
            )
        text = _read_text(config, model)
        workers = _start_workers(config, path, device)
        try:
            left_out = leave_out_unable(workers)
            check_translations(workers, text)
            searches = [
                run_rounds(config, text, workers, model, beam_size=beam_size, device=device)
                for beam_size in (1, config.decode.beam_size)
            ]
            versions = [worker.request('{"do": "info"}')["version"] for worker in workers.values()]
        finally:
            for worker in workers.values():
                worker.close()
    found = summary(config, text, model, searches)
    found.notes += left_out
    found.figures["versions"] = sorted(set(filter(None, versions)))
    if config.rivals:
        found.notes.append(f"{', '.join(found.figures['versions'])}; {torch.get_num_threads()} threads for each.")
    LOGGER.info("%.0f s", time.monotonic() - start)
    return found


def choose_model(config: BenchConfig, folder: Path) -> tuple[Path, BenchConfig]:
    """The model file and the config. A random model gets translations that are as long as their sources."""
    if config.checkpoint is not None:
        if config.source is None:
            raise ConfigError(f"checkpoint={config.checkpoint}: and what is it to translate? Add source=FILE")
        return locate_model(config.checkpoint, config.runs), config
    path = folder / "random.safetensors"
    write_model(path, random_model(config))
    return path, replace(config, decode=replace(config.decode, max_extra_length=0))


def _read_text(config: BenchConfig, model: ModelFile) -> BenchmarkText:
    """Read the text, without lines that are blank or too long for the model. Raises DataError."""
    tokenizer = model.tokenizers.source
    if config.source is None:
        random = np.random.default_rng(config.seed)
        rows = random.integers(4, len(tokenizer), (N_RANDOM, FIXED_LENGTH - 1)).tolist()
        return BenchmarkText([tokenizer.decode(row) for row in rows], rows, is_random=True)
    lines = read_lines(Path(config.source)).texts
    references = read_lines(Path(config.reference)).texts if config.reference is not None else None
    if references is not None and len(references) != len(lines):
        raise DataError(
            f"{config.reference}: has {len(references):,} lines, {config.source} {len(lines):,}. Give its translation"
        )
    tags = " ".join(asked_tags(model, None, config.source_lang, config.target_lang))
    lines = [with_tags(line, tags, tokenizer.tags) for line in lines[: config.n_lines]]
    rows = tokenizer.encode(lines)
    longest = config.decode.max_source_length or LONGEST
    kept = [n for n, row in enumerate(rows) if 0 < len(row) <= longest]
    if not kept:
        raise DataError(f"{config.source}: no line with 1 to {longest} tokens. Choose another")
    if len(kept) < len(rows):
        LOGGER.info("%d of %d lines are blank or too long, and left out", len(rows) - len(kept), len(rows))
    chosen = [references[n] for n in kept] if references is not None else None
    return BenchmarkText([lines[n] for n in kept], [rows[n] for n in kept], chosen)


def _start_workers(config: BenchConfig, path: Path, device: torch.device) -> dict[str, BenchmarkWorker]:
    """A process for each program. Only tfm keeps the environment that the `tfm` command sets."""
    usual = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
    shared = {"config": to_plain(config), "model": str(path), "threads": torch.get_num_threads()}
    return {
        name: BenchmarkWorker(
            name,
            "transformer_cli.addons.benchmarks.decoders",
            {**shared, "engine": name},
            usual if name in BASELINES else os.environ,
        )
        for name in (TFM, *(BASELINES if config.rivals else ()))
    }


def leave_out_unable(workers: dict[str, BenchmarkWorker]) -> list[str]:
    """Close and remove the baselines that have no such model, as transformers with rotary positions; a note on each."""
    notes = []
    for name in sorted(workers.keys() & set(BASELINES)):
        try:
            request(workers[name], "info")
        except ConfigError as error:
            workers.pop(name).close()
            notes.append(f"Left out: {error}.")
            LOGGER.warning("left out: %s", error)
    return notes


def check_translations(workers: dict[str, BenchmarkWorker], text: BenchmarkText) -> None:
    """Compare each program with a greedy search without a cache. Raises EnvironmentFault for other translations."""
    rows = sample_evenly(text.rows, _N_CHECKED)
    plain: list[list[int]] = request(workers[TFM], "greedy_reference", rows=rows)["found"]
    for name, worker in workers.items():
        preset = request(worker, "info")["presets"][0]
        found: list[list[int]] = request(worker, "decode", rows=rows, beam_size=1, preset=preset)["found"]
        if text.is_random and {len(row) for row in found} != {FIXED_LENGTH}:
            raise EnvironmentFault(
                f"{name}: translations of {sorted({len(row) for row in found})} tokens, not {FIXED_LENGTH}"
            )
        is_int8 = name == CT2_INT8
        if text.is_random and is_int8:
            continue  # quantization changes the argmax of random weights
        same = float(np.mean([similarity(one, other) for one, other in zip(found, plain, strict=True)]))
        if same < MIN_SIMILARITY[is_int8]:
            raise EnvironmentFault(
                f"{name}: its translations have {same:.0%} in common with those of a plain greedy search, and"
                f" {MIN_SIMILARITY[is_int8]:.0%} is the least. Wrong results are not timed: run the tests on this"
                " machine, or another version of the library"
            )


def similarity(one: Sequence[int], other: Sequence[int]) -> float:
    """Ratio of matching tokens: 0 if none match, 1 for equal sentences."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()
