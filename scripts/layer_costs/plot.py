"""Plot of the costs of layers by sequence length: time at the smallest and largest width, and memory."""

import io
import os
from pathlib import Path
from typing import Any

import torch

from scripts.layer_costs.costs import Costs
from transformer_cli.errors import EnvironmentFault
from transformer_cli.extras import imported
from transformer_cli.files import wrap_os_errors, write_whole

# Colours of Okabe and Ito, safe for colour-blind readers; in print, markers differ too.
STYLES = {
    "self-attention": ("#0072B2", "o", "-"),
    "written out": ("#0072B2", "o", ":"),
    "restricted": ("#009E73", "s", "-"),
    "LSTM": ("#D55E00", "^", "-"),
    "GRU": ("#CC79A7", "v", "-"),
    "convolution": ("#000000", "D", "-"),
}


def check_plot(file: str) -> None:
    """Check before the measurement that the plot can be written. Raises EnvironmentFault."""
    imported("matplotlib", needs="--plot")
    folder = Path(file).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"{file}: {folder} is no folder that can be written to. Choose another --plot")


def draw(costs: Costs, file: str, device: torch.device) -> None:
    """Write the plot to `file`, in the format of its suffix. Raises EnvironmentFault."""
    import matplotlib
    from matplotlib.figure import Figure

    way = "forward and backward"
    # Text is kept as text, and the file is reproducible.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "tfm", "font.size": 9}):
        figure = Figure(figsize=(11, 4), layout="constrained")
        axes = figure.subplots(1, 3)
        for panel, d in zip(axes, (costs.d[0], costs.d[-1]), strict=False):
            seconds = {name: [1e3 * costs.median(way, name, n, d) for n in costs.n] for name in STYLES}
            lines(panel, costs.n, seconds, f"{way}, d = {d}", "milliseconds")
        d = costs.d[-1]
        held = {name: [costs.held[name, n, d] / 1e6 for n in costs.n] for name in STYLES}  # type: ignore[index]
        what = "peak memory" if device.type == "cuda" else "held for backward"
        lines(axes[2], costs.n, held, f"{what}, d = {d}", "megabytes")
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
        content = io.BytesIO()
        ending = file.rpartition(".")[2]
        figure.savefig(content, format=ending, dpi=150, metadata={"Date": None} if ending == "svg" else None)
    with wrap_os_errors(Path(file), "write"):
        write_whole(Path(file), content.getvalue())


def lines(panel: Any, sizes: list[int], costs: dict[str, list[float]], title: str, unit: str) -> None:
    for name, values in costs.items():
        colour, marker, style = STYLES[name]
        panel.plot(sizes, values, color=colour, marker=marker, linestyle=style, markersize=4, label=name)
    start = sorted(values[0] for values in costs.values())[len(costs) // 2]
    for power, label, style in ((1, "∝ n", "--"), (2, "∝ n²", "-.")):  # reference slopes
        guide = [start * (n / sizes[0]) ** power for n in sizes]
        panel.plot(sizes, guide, color="#999999", linewidth=0.8, linestyle=style, zorder=0, label=label)
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(sizes, [f"{n:,}" for n in sizes], minor=False)
    panel.set(title=title, xlabel="n, positions", ylabel=unit)
    panel.grid(alpha=0.25)
