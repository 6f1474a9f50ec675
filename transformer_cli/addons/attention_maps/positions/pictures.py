"""Position encodings as a figure for papers, by matplotlib, in PNG, SVG or PDF: colour maps, similarities below.

Shapes: L positions, C columns.
"""

import math
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from transformer_cli.addons.attention_maps.heatmaps import TEXT_SIZE, figure_bytes
from transformer_cli.addons.attention_maps.positions.encodings import ColourMap, PositionEncodings
from transformer_cli.config.model import Positions

# As on the page; legible for every kind of colour vision.
DIVERGING, CYCLIC, SEQUENTIAL = "RdBu_r", "twilight", "Blues"
WIDTH, MARGIN = 9.0, 0.75  # inches, of the figure, and left of its panels
SQUARE, PITCH = 3.0, 4.3  # inches: side of a similarity, and from one to the next
BAR_GAP, BAR_WIDTH, BAR_SPACE = 0.08, 0.1, 0.6  # inches
BETWEEN = 0.85  # inches between panels, for the ticks of one and the title of the next


@dataclass(frozen=True)
class _Panel:
    title: str
    matrix_LC: Tensor
    low: float
    high: float
    colours: str
    x_label: str
    x_first: int  # number of the first column


def render_picture(encodings: PositionEncodings, form: str) -> bytes:
    """A picture in the format `form`, png, svg or pdf; equal encodings give equal bytes."""
    return figure_bytes(draw_figure(encodings), form)


def draw_figure(encodings: PositionEncodings) -> Figure:
    """One colour map under the other, and below them the similarities, two in a row."""
    maps, squares = [_map_panel(one, encodings) for one in encodings.maps], _similarity_panels(encodings)
    map_height = min(max(0.13 * encodings.length, 1.2), 4.5)
    map_width = WIDTH - MARGIN - BAR_SPACE - BAR_GAP
    boxes = [(MARGIN, MARGIN + i * (map_height + BETWEEN), map_width, map_height) for i in range(len(maps))]
    top = MARGIN + len(maps) * (map_height + BETWEEN)
    for i in range(len(squares)):
        boxes.append((MARGIN + (i % 2) * PITCH, top + (i // 2) * (SQUARE + BETWEEN), SQUARE, SQUARE))
    height = top + math.ceil(len(squares) / 2) * (SQUARE + BETWEEN) - BETWEEN / 3
    figure = Figure(figsize=(WIDTH, height))
    title = f"Position encodings: {encodings.title}"
    figure.text(0.3 / WIDTH, 1 - 0.15 / height, title, va="top", fontsize=TEXT_SIZE + 2, parse_math=False)
    for panel, (left, down, wide, high) in zip([*maps, *squares], boxes, strict=True):
        bottom = 1 - (down + high) / height
        axes = figure.add_axes((left / WIDTH, bottom, wide / WIDTH, high / height))
        n_rows, n_columns = panel.matrix_LC.shape
        image = axes.imshow(
            panel.matrix_LC.numpy(),
            panel.colours,
            vmin=panel.low,
            vmax=panel.high,
            aspect="auto",
            interpolation="none",
            extent=(panel.x_first - 0.5, panel.x_first + n_columns - 0.5, *_ends(encodings.first, n_rows)),
        )
        axes.set_title(panel.title, fontsize=TEXT_SIZE, loc="left", parse_math=False)
        axes.set_xlabel(panel.x_label, fontsize=TEXT_SIZE)
        axes.set_ylabel("position", fontsize=TEXT_SIZE)
        axes.tick_params(labelsize=TEXT_SIZE, length=2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True, nbins=10))
        bar_box = ((left + wide + BAR_GAP) / WIDTH, bottom, BAR_WIDTH / WIDTH, high / height)
        bar = figure.colorbar(image, cax=figure.add_axes(bar_box))
        bar.ax.tick_params(labelsize=TEXT_SIZE, length=2)
        if panel.colours == CYCLIC:
            bar.set_ticks([0, math.pi, 2 * math.pi], labels=["0", "π", "2π"])
    return figure


def _ends(first: int, n_rows: int) -> tuple[float, float]:
    """Lower and upper end of the axis of positions, the first of which is at the top."""
    return first + n_rows - 0.5, first - 0.5


def _map_panel(one: ColourMap, encodings: PositionEncodings) -> _Panel:
    of_pairs = encodings.kind is Positions.rotary
    label = "pair of dimensions of each head" if of_pairs else "dimension"
    several = len(encodings.maps) > 1 and encodings.kind not in (Positions.rotary, Positions.learned)
    title = one.name + (" (the layout of this model)" if several and one.used else "")
    if one.name == "angle":
        return _Panel(f"{title}, modulo 2π", one.values_LC, 0, 2 * math.pi, CYCLIC, label, 0)
    bound = 1.0 if one.functions[0] in ("sin", "cos") else _bound(one.values_LC)
    return _Panel(title or "learned", one.values_LC, -bound, bound, DIVERGING, label, 0)


def _similarity_panels(encodings: PositionEncodings) -> list[_Panel]:
    panels = []
    for one in encodings.similarities:
        named = f" ({one.name})" if one.name else ""
        cosine = "Mean cosine of the angles between each two positions" if one.dot_LL is None else "Cosine"
        for title, matrix_LL in ((cosine, one.cosine_LL), ("Dot product", one.dot_LL)):
            if matrix_LL is not None:
                low, high = matrix_LL.min().item(), matrix_LL.max().item()
                title = title if one.dot_LL is None else f"{title} of each two positions{named}"
                panels.append(_Panel(title, matrix_LL, low, high, SEQUENTIAL, "position", encodings.first))
    return panels


def _bound(values_LC: Tensor) -> float:
    """The largest size of a value: the end of a scale with 0 in its middle."""
    return values_LC.abs().max().item() or 1.0
