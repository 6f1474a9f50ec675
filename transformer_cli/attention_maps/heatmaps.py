"""Attention as heat maps for papers, by matplotlib: a panel for each head, in PNG or SVG.

Shapes: Y layers, H heads, R rows, which look, C columns, which are looked at.
"""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.image import AxesImage
from matplotlib.textpath import text_to_path
from torch import Tensor

from transformer_cli.attention_maps.maps import Looks, readable, view
from transformer_cli.config.commands import AttentionKind
from transformer_cli.logs import LOGGER

# From white to dark in one hue and ever darker: readable without colours, and on paper.
COLOURS = "Blues"
FONT = "DejaVu Sans"  # which comes with matplotlib
LAST_RESORT = "Last Resort"  # a font of pictures of what is missing
MISSING = "□"
LONGEST_LABEL = 24  # characters
LABEL_SIZES = (8, 7, 6, 5, 4)  # points; the first with which a figure is no wider than WIDE
WIDE = 20.0  # inches
LINE = 1.4  # height of a line of text, in its size
TEXT_SIZE = 8  # points, of all that is no label
GAP = 0.12  # inches
BAR_WIDTH, BAR_HEIGHT, BAR_ROOM = 0.12, 1.6, 0.75  # inches
MOST_PIXELS, DPI = 10_000, 200  # of a side
WHAT = {
    AttentionKind.encoder: "Encoder self-attention: a row is a source token, its columns what it looks at",
    AttentionKind.decoder: "Decoder self-attention: a row is a token that was read, its columns what it looks at",
    AttentionKind.cross: "Cross-attention: a row writes a token, its columns are the source that it looks at",
}


@dataclass(frozen=True)
class Panel:
    title: str
    weights_RC: Tensor


def heat_map(
    looks: Looks,
    form: str,
    *,
    kind: AttentionKind = AttentionKind.cross,
    layer: int | None = None,
    head: int | None = None,
    mean: bool = False,
) -> bytes:
    """A picture in the format `form`, png or svg: of one layer or all, of one head or all, or of the heads' mean."""
    figure = draw(looks, kind, layer=layer, head=head, mean=mean)
    picture = io.BytesIO()
    dpi = min(DPI, MOST_PIXELS / max(figure.get_size_inches()))
    # Equal input gives equal bytes.
    with matplotlib.rc_context({"svg.hashsalt": "tfm"}):
        figure.savefig(picture, format=form, dpi=dpi, metadata={"Date": None} if form == "svg" else None)
    return picture.getvalue()


def draw(
    looks: Looks, kind: AttentionKind, *, layer: int | None = None, head: int | None = None, mean: bool = False
) -> Figure:
    """A row of panels for each layer. Labels stand at the first row and column of panels, and count for all."""
    seen = view(looks, kind)
    grid = panels(seen.weights_YHRC, layer=layer, head=head, mean=mean)
    rows, columns = ([_fitting(label) for label in readable(labels)] for labels in (seen.rows, seen.columns))
    footer = [looks.model, *looks.notes]
    fonts, lacking = families("".join([*rows, *columns, *footer]))
    if lacking:
        LOGGER.warning(
            "no font of this machine has %s: the picture shows %s there. Install one that has them",
            ", ".join(f"U+{ord(character):04X}" for character in sorted(lacking)[:8]),
            MISSING,
        )
    rows, columns, footer = (_replaced(texts, lacking) for texts in (rows, columns, footer))
    sheet = Sheet.for_panels(grid, rows, columns, WHAT[kind], footer, fonts)
    figure = Figure(figsize=(sheet.width, sheet.height))
    image = None
    for y, panels_of_layer in enumerate(grid):
        for x, panel in enumerate(panels_of_layer):
            axes = figure.add_axes(sheet.place(x, y))
            image = _fill(axes, panel, sheet)
            if x == 0:
                axes.set_yticks(range(len(rows)), rows, fontsize=sheet.size, fontfamily=fonts, parse_math=False)
            if y == 0:
                axes.set_xticks(
                    range(len(columns)), columns, rotation=90, fontsize=sheet.size, fontfamily=fonts, parse_math=False
                )
    assert image is not None
    _explain(figure, image, sheet)
    return figure


def panels(weights_YHRC: Tensor, *, layer: int | None, head: int | None, mean: bool) -> list[list[Panel]]:
    """Those of each layer that is shown."""
    n_layers, n_heads = weights_YHRC.shape[:2]
    layers = range(n_layers) if layer is None else [layer - 1]
    if mean:
        title = f"mean of {n_heads} heads" if n_heads > 1 else "its one head"
        return [[Panel(f"layer {y + 1}, {title}", weights_YHRC[y].mean(0))] for y in layers]
    heads = range(n_heads) if head is None else [head - 1]
    return [[Panel(f"layer {y + 1}, head {h + 1}", weights_YHRC[y, h]) for h in heads] for y in layers]


@dataclass(frozen=True)
class Sheet:
    """Where everything stands, in inches: sized by the labels, so that none meets another."""

    size: float  # of a label, in points
    panel: tuple[float, float]  # width and height
    pitch: tuple[float, float]  # from one panel to the next
    margin: tuple[float, float]  # left of the first column of panels, and above the first row
    n_panels: tuple[int, int]  # in a row, and rows
    header: list[str]
    footer: list[str]
    fonts: list[str]

    @classmethod
    def for_panels(
        cls,
        grid: Sequence[Sequence[Panel]],
        rows: Sequence[str],
        columns: Sequence[str],
        header: str,
        footer: Sequence[str],
        fonts: list[str],
    ) -> "Sheet":
        n_panels = (len(grid[0]), len(grid))
        title_width = max(width_of(panel.title, TEXT_SIZE, fonts) for row in grid for panel in row)
        for size in LABEL_SIZES:
            cell = LINE * size / 72
            panel = (cell * len(columns), cell * len(rows))
            pitch = (max(panel[0], title_width) + GAP, panel[1] + _lines(1) + 2 * GAP)
            if pitch[0] * n_panels[0] <= WIDE:
                break
        label_width, label_height = (max(width_of(text, size, fonts) for text in texts) for texts in (rows, columns))
        left = label_width + 2 * GAP
        width = left + pitch[0] * n_panels[0] + BAR_ROOM - 2 * GAP
        wrapped = [list(wrap(text, width, fonts)) for text in (header, *footer)]
        top = _lines(len(wrapped[0])) + label_height + 3 * GAP
        return cls(size, panel, pitch, (left, top), n_panels, wrapped[0], list(chain(*wrapped[1:])), fonts)

    @property
    def width(self) -> float:
        return self.margin[0] + self.pitch[0] * self.n_panels[0] + BAR_ROOM

    @property
    def height(self) -> float:
        return self._below + GAP + _lines(len(self.footer))

    @property
    def _below(self) -> float:
        """Where the panels and the bar end, from the top."""
        return self.margin[1] + max(self.pitch[1] * self.n_panels[1], BAR_HEIGHT + GAP)

    def place(self, x: int, y: int) -> tuple[float, float, float, float]:
        """Of a panel, in shares of the figure, as matplotlib wants it."""
        return self._shares(self.margin[0] + x * self.pitch[0], self.margin[1] + y * self.pitch[1], *self.panel)

    def bar(self) -> tuple[float, float, float, float]:
        return self._shares(self.margin[0] + self.pitch[0] * self.n_panels[0], self.margin[1], BAR_WIDTH, BAR_HEIGHT)

    def texts(self) -> Iterator[tuple[float, float, str]]:
        """Left end and upper end of each line above and below the panels, in shares of the figure."""
        for lines, start in ((self.header, GAP), (self.footer, self._below)):
            for i, line in enumerate(lines):
                yield GAP / self.width, 1 - (start + _lines(i)) / self.height, line

    def _shares(self, left: float, top: float, width: float, height: float) -> tuple[float, float, float, float]:
        bottom = self.height - top - height
        return left / self.width, bottom / self.height, width / self.width, height / self.height


def _fill(axes: Axes, panel: Panel, sheet: Sheet) -> AxesImage:
    n_rows, n_columns = panel.weights_RC.shape
    image = axes.imshow(panel.weights_RC.numpy(), COLOURS, vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.tick_params(length=0, pad=2, top=False, bottom=False, labeltop=True, labelbottom=False)
    axes.set_xticks([])
    axes.set_yticks([])
    # Lines between the cells, which lead the eye through all that is white.
    axes.hlines(np.arange(1, n_rows) - 0.5, -0.5, n_columns - 0.5, colors="0.85", linewidths=0.3)
    axes.vlines(np.arange(1, n_columns) - 0.5, -0.5, n_rows - 0.5, colors="0.85", linewidths=0.3)
    for spine in axes.spines.values():
        spine.set(linewidth=0.5, color="0.5")
    axes.text(
        0, -GAP / 2 / sheet.panel[1], panel.title, transform=axes.transAxes, va="top", ha="left", fontsize=TEXT_SIZE
    )
    return image


def _explain(figure: Figure, image: AxesImage, sheet: Sheet) -> None:
    """What is above, below and beside the panels."""
    bar = figure.colorbar(image, cax=figure.add_axes(sheet.bar()))
    bar.ax.tick_params(labelsize=TEXT_SIZE, length=2)
    bar.outline.set_linewidth(0.5)
    for x, y, line in sheet.texts():
        figure.text(x, y, line, va="top", ha="left", fontsize=TEXT_SIZE, fontfamily=sheet.fonts, parse_math=False)


def _lines(n: int) -> float:
    """Inches."""
    return n * LINE * TEXT_SIZE / 72


def _fitting(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def width_of(text: str, size: float, fonts: Sequence[str]) -> float:
    """Inches."""
    properties = FontProperties(family=list(fonts), size=size)
    width, _, _ = text_to_path.get_text_width_height_descent(text, properties, ismath=False)
    return float(width) / 72


def wrap(text: str, width: float, fonts: Sequence[str]) -> Iterator[str]:
    """Lines no wider than so many inches; a word that is wider is torn."""
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if width_of(longer, TEXT_SIZE, fonts) <= width:
            line = longer
            continue
        if line:
            yield line
        while (share := width_of(word, TEXT_SIZE, fonts) / width) > 1:
            kept = max(1, math.floor(len(word) / share) - 1)
            yield word[:kept]
            word = word[kept:]
        line = word
    yield line


def families(text: str) -> tuple[list[str], set[str]]:
    """Fonts of this machine that have all characters of `text` between them, and those that none has."""
    lacking = {character for character in text if not character.isspace()}
    lacking -= _characters_of(fontManager.findfont(FONT))
    found = [FONT]
    for entry in fontManager.ttflist:
        if not lacking:
            break
        if LAST_RESORT in entry.name or entry.style != "normal":
            continue
        if has := lacking & _characters_of(entry.fname):
            found.append(entry.name)
            lacking -= has
    return found, lacking


def _characters_of(font: str) -> set[str]:
    return {chr(code) for code in get_font(font).get_charmap()}


def _replaced(texts: Sequence[str], lacking: set[str]) -> list[str]:
    return ["".join(MISSING if character in lacking else character for character in text) for text in texts]
