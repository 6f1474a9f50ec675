"""Interleaved rounds of all programs that translate, and the lower bound that their matrix products set.

Shapes: M rows, K in, N out.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from transformer_cli.addons.benchmarks.decoders import BASELINES, BATCHES_OF_32, TFM
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.matmuls import Projection, count_projections
from transformer_cli.addons.benchmarks.timing import best
from transformer_cli.addons.benchmarks.training import skeleton
from transformer_cli.addons.benchmarks.worker import BenchmarkWorker
from transformer_cli.inference.prepack import PrepackedLinear
from transformer_cli.logs import LOGGER
from transformer_cli.models.file import ModelFile
from transformer_cli.models.linear import has_onednn, project

FIXED_LENGTH = 20  # tokens of each source and translation of a random model
N_ALONE = 10  # sentences per round that are also translated one at a time; each round has different ones
N_WHOLE = 250  # lines per round of beam search that are also translated from text to text
N_TRIED = 500  # sentences for choosing the settings of a baseline

_T = TypeVar("_T")


@dataclass(frozen=True)
class BenchmarkText:
    """The sentences to translate: lines, and their token ids without EOS."""

    lines: list[str]
    rows: list[list[int]]
    references: list[str] | None = None
    is_random: bool = False


def sample_evenly(items: list[_T], n: int) -> list[_T]:
    """At most `n` items at equal distances."""
    return items[:: -(-len(items) // n)]


def request(worker: BenchmarkWorker, do: str, **arguments: Any) -> dict[str, Any]:
    """The response of a worker process of benchmarks/decoders.py."""
    return worker.request(json.dumps({"do": do, **arguments}))


@dataclass
class DecodeResult:
    """The measurements of one program with one choice of batch size and threads."""

    name: str
    worker: BenchmarkWorker
    preset: str
    preset_single: str
    counterpart: str  # the result of tfm that it is compared with
    seconds: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)  # seconds from lines to lines
    alone: list[list[float]] = field(default_factory=list)  # seconds of each sentence translated on its own
    found: list[list[int]] = field(default_factory=list)

    def time_batches(self, text: BenchmarkText, *, beam_size: int) -> None:
        done = request(self.worker, "decode", rows=text.rows, beam_size=beam_size, preset=self.preset)
        self.seconds.append(done["seconds"])
        self.found = done["found"]

    def time_lines(self, text: BenchmarkText, *, beam_size: int) -> None:
        lines = sample_evenly(text.lines, N_WHOLE)
        done = request(self.worker, "translate", lines=lines, beam_size=beam_size, preset=self.preset)
        self.whole.append(done["seconds"])

    def time_single(self, rows: list[list[int]], *, beam_size: int) -> None:
        done = request(self.worker, "alone", rows=rows, beam_size=beam_size, preset=self.preset_single)
        self.alone.append(done["seconds"])


@dataclass
class SearchResults:
    """The measurements of one search: greedy, or beam search of one size."""

    beam_size: int
    results: dict[str, DecodeResult]
    parts: dict[str, Any]  # of tfm: seconds of encoder, decoder steps and reordering
    products: list[float] = field(default_factory=list)  # seconds of the matrix products of tfm on their own
    # For each baseline: in how many lines tfm's translation is more probable, of how many that differ.
    likelier: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return "greedy" if self.beam_size == 1 else f"beam {self.beam_size}"


def run_rounds(
    config: BenchConfig,
    text: BenchmarkText,
    workers: dict[str, BenchmarkWorker],
    model: ModelFile,
    *,
    beam_size: int,
    device: torch.device,
) -> SearchResults:
    """Time all programs in interleaved rounds of one search."""
    LOGGER.info(
        "%s: choosing batch size and threads of each program", "greedy" if beam_size == 1 else f"beam {beam_size}"
    )
    results = {one.name: one for one in select_presets(workers, text, beam_size=beam_size)}
    parts = request(workers[TFM], "parts", rows=text.rows, beam_size=beam_size)
    search = SearchResults(beam_size, results, parts)
    products = MatrixProducts(config, model, parts, device)
    alone = sample_evenly(text.rows, N_ALONE * config.rounds)
    for number in range(config.rounds):
        LOGGER.info("%s: round %d of %d", search.title, number + 1, config.rounds)
        for one in results.values():
            one.time_batches(text, beam_size=beam_size)
        search.products.append(products.seconds())
        for one in results.values():
            if one.preset == BATCHES_OF_32:
                continue  # differs from the default in batch size only
            one.time_single(alone[number % len(alone) :: config.rounds], beam_size=beam_size)
            if beam_size > 1 and not text.is_random:
                one.time_lines(text, beam_size=beam_size)
    if beam_size > 1 and not text.is_random:
        search.likelier = {
            name: count_likelier(workers[TFM], text, results[TFM].found, results[name].found)
            for name in results
            if name in BASELINES
        }
    return search


def select_presets(workers: dict[str, BenchmarkWorker], text: BenchmarkText, *, beam_size: int) -> list[DecodeResult]:
    """tfm with its default batches and with batches of 32; each baseline with its fastest settings."""
    found: list[DecodeResult] = []
    for name, worker in workers.items():
        known = request(worker, "info")
        if name not in BASELINES:
            preset, alone = known["presets"][0], known["presets_single"][0]
            request(worker, "decode", rows=text.rows, beam_size=beam_size, preset=preset)  # warm-up
            found.append(DecodeResult(name, worker, preset, alone, counterpart=TFM))
            if name == TFM:
                found.append(DecodeResult(f"{TFM}, {BATCHES_OF_32}", worker, BATCHES_OF_32, alone, counterpart=TFM))
            continue
        preset = fastest_preset(
            worker, "decode", known["presets"], sample_evenly(text.rows, N_TRIED), beam_size=beam_size
        )
        alone = fastest_preset(
            worker, "alone", known["presets_single"], sample_evenly(text.rows, N_ALONE), beam_size=beam_size
        )
        found.append(DecodeResult(name, worker, preset, alone, counterpart=TFM))
    return found


def count_likelier(
    worker: BenchmarkWorker, text: BenchmarkText, mine: list[list[int]], theirs: list[list[int]]
) -> tuple[int, int]:
    """The number of lines where `mine` is more probable to the model than `theirs`, and of lines where they differ."""
    different = [n for n, (one, other) in enumerate(zip(mine, theirs, strict=True)) if one != other]
    rows = [text.rows[n] for n in different]
    of_mine, of_theirs = (
        request(worker, "log_probabilities", rows=rows, translations=[found[n] for n in different])["found"]
        for found in (mine, theirs)
    )
    return sum(one > other for one, other in zip(of_mine, of_theirs, strict=True)), len(different)


def fastest_preset(
    worker: BenchmarkWorker, do: str, presets: Sequence[str], rows: list[list[int]], *, beam_size: int
) -> str:
    """The settings that take the fewest seconds, each timed once after a warm-up of a few sentences."""

    def seconds(preset: str) -> float:
        request(worker, "decode", rows=rows[:2], beam_size=beam_size, preset=preset)
        return float(np.sum(request(worker, do, rows=rows, beam_size=beam_size, preset=preset)["seconds"]))

    return min(presets, key=seconds)


# ---- Lower bound: the matrix products


class MatrixProducts:
    """Times the matrix products of a search on their own: call by call, in the order of the layers."""

    def __init__(self, config: BenchConfig, model: ModelFile, parts: dict[str, Any], device: torch.device) -> None:
        sizes = {"vocab_size": len(model.tokenizers.target)}
        network = skeleton(replace(config, model=model.config), **sizes)
        self.device = device
        self.calls: list[tuple[list[Projection], int]] = []  # products of a call, and how many there were
        for calls, sides in (
            (parts["encoded"], {"n_source": 1, "n_target": 0}),
            (parts["stepped"], {"n_source": 0, "n_target": 1}),
        ):
            found = [one for one in count_projections(network, **sides).elements() if one.m]
            for rows, n_calls in group_sizes(calls):
                self.calls.append(([replace(one, m=rows) for one in found], n_calls))

    def seconds(self) -> float:
        return sum(n_calls * self._seconds_of(chain) for chain, n_calls in self.calls)

    @torch.inference_mode()
    def _seconds_of(self, chain: list[Projection]) -> float:
        """Seconds of one call.

        All weights together exceed the CPU cache, so they are read from memory as in a decoder step.
        """
        products = [self._product(torch.randn(one.n, one.k, device=self.device)) for one in chain]
        inputs = {k: torch.randn(chain[0].m, k, device=self.device) for k in {one.k for one in chain}}

        def work() -> None:
            for one, product in zip(chain, products, strict=True):
                product(inputs[one.k])

        return best(work, self.device, budget_s=0.05)

    def _product(self, weight_NK: Tensor) -> Callable[[Tensor], Tensor]:
        """The product as a search makes it."""
        is_prepacked = self.device.type == "cpu" and has_onednn()
        return PrepackedLinear(weight_NK, None) if is_prepacked else partial(project, weight_NK=weight_NK)


def group_sizes(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Group sizes between the same two powers of two: mean and count of each group, which suffices for a total."""
    groups: dict[int, list[int]] = {}
    for size in sizes:
        groups.setdefault(size.bit_length(), []).append(size)
    return [(round(float(np.mean(group))), len(group)) for _, group in sorted(groups.items())]
