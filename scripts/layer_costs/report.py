"""The measurement of all layers, and its report."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from scripts.layer_costs.costs import Costs, LayerSize
from scripts.layer_costs.exponents import upper
from scripts.layer_costs.kinds import (
    AT_ONCE,
    KINDS,
    LAYERS,
    RECURRENT,
    TABLE_1,
    Layer,
    check_attention,
    layers_on,
)
from scripts.layer_costs.plot import check_plot, draw
from scripts.layer_costs.settings import Settings
from transformer_cli.addons.benchmarks.report import Measured, table
from transformer_cli.addons.benchmarks.timing import Spread, in_turn, ratio
from transformer_cli.errors import EnvironmentFault
from transformer_cli.logs import LOGGER

MIN_S = 0.01  # seconds per layer and round: there are hundreds of layers
WAYS: dict[str, Callable[[Layer], object]] = {
    "forward": Layer.forward,
    "forward and backward": Layer.forward_and_backward,
}
BOTH = "forward and backward"
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
PROCESSOR = " Times are those that this process had of the processor, all threads added."


def bench_layers(settings: Settings, device: torch.device) -> Measured:
    """Time all layers and sizes in interleaved rounds, so that a temporary slowdown affects all of them."""
    if settings.plot is not None:
        check_plot(settings.plot)
    if device.type == "cuda" and settings.clock == "processor":
        raise EnvironmentFault("--clock processor: does not measure a GPU. Use --clock wall")
    check_attention(settings, device)
    costs = measure(settings, device)
    if settings.plot is not None:
        draw(costs, settings.plot, device)
    return report(costs, settings, device)


def measure(settings: Settings, device: torch.device) -> Costs:
    layers: dict[LayerSize, Layer] = {}
    sizes_n, sizes_d = sorted(settings.n), sorted(settings.d)
    for n in sizes_n:
        for d in sizes_d:
            layers |= {LayerSize(name, n, d): layer for name, layer in layers_on(n, d, settings, device).items()}
    held = {size: layer.bytes_held(device) for size, layer in layers.items()}
    works = {
        (way, size): (lambda work=work, layer=layer: work(layer))
        for size, layer in layers.items()
        for way, work in WAYS.items()
    }
    LOGGER.info("timing %d layers of %d sizes in %d rounds", len(KINDS), len(layers) // len(KINDS), settings.rounds)
    taken = in_turn(works, rounds=settings.rounds, device=device, min_s=MIN_S, clock=CLOCKS[settings.clock])
    seconds = {way: {size: taken[way, size] for size in layers} for way in WAYS}
    return Costs(sizes_n, sizes_d, seconds, held)


# ---- Report


def report(costs: Costs, settings: Settings, device: torch.device) -> Measured:
    found = Measured("layers", ("forward and backward", "complexity", "sequential", "path", *exponent_columns(costs)))
    found.rows = [
        [name, *(TABLE_1[row] if row else ("", "", "")), *exponents_shown(costs, BOTH, name)]
        for name, row in KINDS.items()
    ]
    found.notes = [
        explanation(costs, settings),
        table(
            ("forward alone", *exponent_columns(costs)),
            [[name, *exponents_shown(costs, "forward", name)] for name in KINDS],
        ),
        memory_explanation(device),
        memory_table(costs),
        "One after another: microseconds a token of the longest sentence, beside the same matrix products done for all"
        " positions at once, as attention and convolution have them.",
        sequential_table(costs),
        "Who is faster: the n from which self-attention takes longer than another layer, between the measured sizes on"
        " straight lines between logarithms.",
        crossover_table(costs),
        "The fastest layer, forward and backward:",
        fastest_table(costs),
        "Milliseconds, forward and backward; the median of the rounds ± half the distance of the quartiles:",
        *(times_table(costs, d) for d in costs.d),
    ]
    found.figures = figures(costs)
    found.ratios = {
        f"{name} to its products at once, n = {costs.n[-1]}, d = {d}": one_after_another(costs, BOTH, name, d)
        for name in RECURRENT
        for d in costs.d
    }
    return found


def explanation(costs: Costs, settings: Settings) -> str:
    n, d = upper(costs.n), upper(costs.d)
    return (
        "Beside the complexity, sequential operations and longest path of table 1 in the paper: the exponents of n and"
        " d, by least squares through the logarithms of the times of each round, n from"
        f" {n[0]:,} to {n[-1]:,} and d from {d[0]:,} to {d[-1]:,}; median ± half the distance of the quartiles of"
        f" {settings.rounds} rounds. One sentence, heads of {settings.head}, r = {settings.window},"
        f" k = {settings.kernel}. Table 1 leaves the four projections of attention out, O(n·d²): compare it"
        " with the rows without projections. Self-attention is models/attention.py by torch's fused kernel, which"
        " never holds all weights; written out, it holds them." + PROCESSOR * (settings.clock == "processor")
    )


def memory_explanation(device: torch.device) -> str:
    if device.type == "cuda":
        return "Memory: the peak of forward and backward above what was allocated before (max_memory_allocated)."
    return (
        "Memory: bytes that forward keeps for backward, each piece of memory once, the input included, parameters not"
        " (torch.autograd.graph.saved_tensors_hooks)."
    )


def exponent_columns(costs: Costs) -> list[str]:
    return [f"n, d = {costs.d[0]}", f"n, d = {costs.d[-1]}", f"d, n = {costs.n[-1]:,}"]


def exponents_shown(costs: Costs, way: str, name: str) -> list[str]:
    spreads = [
        costs.in_n(way, name, costs.d[0]),
        costs.in_n(way, name, costs.d[-1]),
        costs.in_d(way, name, costs.n[-1]),
    ]
    return [f"{spread.median:.2f} ± {(spread.high - spread.low) / 2:.2f}" for spread in spreads]


def memory_table(costs: Costs) -> str:
    n, d = costs.n[-1], costs.d[-1]
    return table(
        ("memory", *exponent_columns(costs), f"MB, n = {n:,}, d = {d}"),
        [
            [
                name,
                *(f"{costs.held_in_n(name, width):.2f}" for width in (costs.d[0], d)),
                f"{costs.held_in_d(name, n):.2f}",
                f"{costs.held[LayerSize(name, n, d)] / 1e6:,.1f}",
            ]
            for name in KINDS
        ],
    )


def one_after_another(costs: Costs, way: str, name: str, d: int) -> Spread:
    """Time of a recurrent layer divided by that of the same matrix products for all positions at once."""
    seconds, n = costs.seconds[way], costs.n[-1]
    return ratio(seconds[LayerSize(name, n, d)], seconds[LayerSize(name + AT_ONCE, n, d)])


def sequential_table(costs: Costs) -> str:
    n = costs.n[-1]
    rows = []
    for name in RECURRENT:
        for d in costs.d:
            row = [f"{name}, d = {d}"]
            for way in WAYS:
                each = [1e6 * costs.median(way, kind, n, d) / n for kind in (name, name + AT_ONCE)]
                row += [*map(figure, each), one_after_another(costs, way, name, d).shown(".1f")]
            rows.append(row)
    return table(("", "forward", "at once", "times", "and backward", "at once", "times"), rows)


def crossover_table(costs: Costs) -> str:
    others = [name for name in LAYERS if name != "self-attention"]
    rows = [
        [f"{name}, {way}", *(crossover_text(costs.overtaken(way, name, d), costs) for d in costs.d)]
        for way in WAYS
        for name in others
    ]
    return table(("self-attention is slower than", *(f"d = {d}" for d in costs.d)), rows)


def crossover_text(n: float, costs: Costs) -> str:
    if n == 0:
        return f"from {costs.n[0]:,} or less"
    return f"not up to {costs.n[-1]:,}" if math.isinf(n) else f"from {n:,.0f}"


def fastest(costs: Costs, way: str, n: int, d: int) -> str:
    return min(LAYERS, key=lambda name: costs.median(way, name, n, d))


def fastest_table(costs: Costs) -> str:
    rows = [[f"d = {d}", *(fastest(costs, BOTH, n, d) for n in costs.n)] for d in costs.d]
    return table(("", *(f"n = {n:,}" for n in costs.n)), rows)


def times_table(costs: Costs, d: int) -> str:
    rows = []
    for name in KINDS:
        spreads = [Spread.of([1e3 * time for time in costs.seconds[BOTH][LayerSize(name, n, d)]]) for n in costs.n]
        rows.append([name, *(f"{figure(x.median)} ± {(x.high - x.low) / 2 / x.median:.0%}" for x in spreads)])
    return table((f"d = {d}", *(f"n = {n:,}" for n in costs.n)), rows)


def figure(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def figures(costs: Costs) -> dict[str, Any]:
    """All measurements for --json; null for a crossover beyond the measured n."""
    return {
        "table 1": {name: row._asdict() for name, row in TABLE_1.items()},
        "seconds": {
            way: [{**size._asdict(), "rounds": rounds} for size, rounds in by_size.items()]
            for way, by_size in costs.seconds.items()
        },
        "bytes held": [{**size._asdict(), "bytes": n_bytes} for size, n_bytes in costs.held.items()],
        "exponents in n": {
            way: {name: {str(d): asdict(costs.in_n(way, name, d)) for d in costs.d} for name in KINDS} for way in WAYS
        },
        "exponents in d": {
            way: {name: {str(n): asdict(costs.in_d(way, name, n)) for n in costs.n} for name in KINDS} for way in WAYS
        },
        "self-attention is slower from n": {
            way: {name: {str(d): beyond(costs.overtaken(way, name, d)) for d in costs.d} for name in LAYERS[1:]}
            for way in WAYS
        },
    }


def beyond(n: float) -> float | None:
    return None if math.isinf(n) else n
