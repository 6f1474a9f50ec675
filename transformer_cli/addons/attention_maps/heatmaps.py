"""Attention maps as heat maps for papers, by matplotlib: a panel for each head, in PNG, SVG or PDF.

Shapes: Y layers, H heads, R rows (queries), C columns (keys).
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

from transformer_cli.addons.attention_maps.keys import AttentionKind
from transformer_cli.addons.attention_maps.maps import AttentionMaps, readable_labels, view
from transformer_cli.logs import LOGGER

# One hue from white to dark, darkening monotonically: legible in greyscale and in print.
COLOURS = "Blues"
FONT = "DejaVu Sans"  # bundled with matplotlib
LAST_RESORT_FONT = "Last Resort"  # a font that has placeholder glyphs only
PLACEHOLDER = "□"
MAX_LABEL_LENGTH = 24  # characters
LABEL_SIZES = (8, 7, 6, 5, 4)  # points; the first with which a figure is no wider than MAX_WIDTH
MAX_WIDTH = 20.0  # inches
LINE_HEIGHT = 1.4  # in font sizes
TEXT_SIZE = 8  # points, of all texts but labels
GAP = 0.12  # inches
BAR_WIDTH, BAR_HEIGHT, BAR_SPACE = 0.12, 1.6, 0.75  # inches
MAX_PIXELS, DPI = 10_000, 200  # longest side
_WITHOUT_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
_HEADERS = {
    AttentionKind.encoder: "Encoder self-attention: a row is a source token, columns are the tokens that it attends to",
    AttentionKind.decoder: "Decoder self-attention: a row is an input token, columns are the tokens that it attends to",
    AttentionKind.cross: "Cross-attention: a row predicts a token, columns are the source tokens that it attends to",
}


@dataclass(frozen=True)
class _Panel:
    title: str
    weights_RC: Tensor


def render_heat_map(
    maps: AttentionMaps,
    form: str,
    *,
    kind: AttentionKind = AttentionKind.cross,
    layer: int | None = None,
    head: int | None = None,
    mean: bool = False,
) -> bytes:
    """A picture in the format `form`, png, svg or pdf: one layer or all; one head, all, or the mean of the heads."""
    return figure_bytes(draw_heatmaps(maps, kind, layer=layer, head=head, mean=mean), form)


def figure_bytes(figure: Figure, form: str) -> bytes:
    """A figure in the format `form`, png, svg or pdf; a large one at a lower resolution."""
    picture = io.BytesIO()
    dpi = min(DPI, MAX_PIXELS / max(figure.get_size_inches()))
    # Equal input gives equal bytes. Publishers refuse PDF with fonts of type 3, matplotlib's default.
    with matplotlib.rc_context({"svg.hashsalt": "tfm", "pdf.fonttype": 42}):
        figure.savefig(picture, format=form, dpi=dpi, metadata=_WITHOUT_DATE.get(form))
    return picture.getvalue()


def draw_heatmaps(
    maps: AttentionMaps, kind: AttentionKind, *, layer: int | None = None, head: int | None = None, mean: bool = False
) -> Figure:
    """A row of panels for each layer. The first row and column of panels have the labels of all."""
    selected = view(maps, kind)
    grid = panels(selected.weights_YHRC, layer=layer, head=head, mean=mean)
    rows, columns = (
        [_shorten_label(label) for label in readable_labels(labels)] for labels in (selected.rows, selected.columns)
    )
    footer = [maps.model, *maps.notes]
    fonts, missing = choose_fonts("".join([*rows, *columns, *footer]))
    if missing:
        LOGGER.warning(
            "no font of this machine has %s: the picture shows %s there. Install one that has them",
            ", ".join(f"U+{ord(character):04X}" for character in sorted(missing)[:8]),
            PLACEHOLDER,
        )
    rows, columns, footer = (_replace_missing(texts, missing) for texts in (rows, columns, footer))
    layout = FigureLayout.for_panels(grid, rows, columns, _HEADERS[kind], footer, fonts)
    figure = Figure(figsize=(layout.width, layout.height))
    image = None
    for y, panels_of_layer in enumerate(grid):
        for x, panel in enumerate(panels_of_layer):
            axes = figure.add_axes(layout.panel_box(x, y))
            image = _draw_panel(axes, panel, layout)
            if x == 0:
                axes.set_yticks(range(len(rows)), rows, fontsize=layout.size, fontfamily=fonts, parse_math=False)
            if y == 0:
                axes.set_xticks(
                    range(len(columns)), columns, rotation=90, fontsize=layout.size, fontfamily=fonts, parse_math=False
                )
    assert image is not None
    _add_bar_and_texts(figure, image, layout)
    return figure


def panels(weights_YHRC: Tensor, *, layer: int | None, head: int | None, mean: bool) -> list[list[_Panel]]:
    """The panels of each layer that is shown."""
    n_layers, n_heads = weights_YHRC.shape[:2]
    layers = range(n_layers) if layer is None else [layer - 1]
    if mean:
        title = f"mean of {n_heads} heads" if n_heads > 1 else "its one head"
        return [[_Panel(f"layer {y + 1}, {title}", weights_YHRC[y].mean(0))] for y in layers]
    heads = range(n_heads) if head is None else [head - 1]
    return [[_Panel(f"layer {y + 1}, head {h + 1}", weights_YHRC[y, h]) for h in heads] for y in layers]


@dataclass(frozen=True)
class FigureLayout:
    """Sizes and positions in inches, chosen by the labels so that none overlaps another."""

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
        grid: Sequence[Sequence[_Panel]],
        rows: Sequence[str],
        columns: Sequence[str],
        header: str,
        footer: Sequence[str],
        fonts: list[str],
    ) -> "FigureLayout":
        n_panels = (len(grid[0]), len(grid))
        title_width = max(text_width(panel.title, TEXT_SIZE, fonts) for row in grid for panel in row)
        for size in LABEL_SIZES:
            cell = LINE_HEIGHT * size / 72
            panel = (cell * len(columns), cell * len(rows))
            pitch = (max(panel[0], title_width) + GAP, panel[1] + _lines(1) + 2 * GAP)
            if pitch[0] * n_panels[0] <= MAX_WIDTH:
                break
        label_width, label_height = (max(text_width(text, size, fonts) for text in texts) for texts in (rows, columns))
        left = label_width + 2 * GAP
        width = left + pitch[0] * n_panels[0] + BAR_SPACE - 2 * GAP
        wrapped = [list(wrap(text, width, fonts)) for text in (header, *footer)]
        top = _lines(len(wrapped[0])) + label_height + 3 * GAP
        return cls(size, panel, pitch, (left, top), n_panels, wrapped[0], list(chain(*wrapped[1:])), fonts)

    @property
    def width(self) -> float:
        return self.margin[0] + self.pitch[0] * self.n_panels[0] + BAR_SPACE

    @property
    def height(self) -> float:
        return self._below + GAP + _lines(len(self.footer))

    @property
    def _below(self) -> float:
        """Distance from the top to the end of the panels and the colour bar."""
        return self.margin[1] + max(self.pitch[1] * self.n_panels[1], BAR_HEIGHT + GAP)

    def panel_box(self, x: int, y: int) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a panel, as fractions of the figure."""
        return self._fractions(self.margin[0] + x * self.pitch[0], self.margin[1] + y * self.pitch[1], *self.panel)

    def bar_box(self) -> tuple[float, float, float, float]:
        return self._fractions(self.margin[0] + self.pitch[0] * self.n_panels[0], self.margin[1], BAR_WIDTH, BAR_HEIGHT)

    def text_lines(self) -> Iterator[tuple[float, float, str]]:
        """Left end and upper end of each line above and below the panels, as fractions of the figure."""
        for lines, start in ((self.header, GAP), (self.footer, self._below)):
            for i, line in enumerate(lines):
                yield GAP / self.width, 1 - (start + _lines(i)) / self.height, line

    def _fractions(self, left: float, top: float, width: float, height: float) -> tuple[float, float, float, float]:
        bottom = self.height - top - height
        return left / self.width, bottom / self.height, width / self.width, height / self.height


def _draw_panel(axes: Axes, panel: _Panel, layout: FigureLayout) -> AxesImage:
    n_rows, n_columns = panel.weights_RC.shape
    image = axes.imshow(panel.weights_RC.numpy(), COLOURS, vmin=0, vmax=1, aspect="auto", interpolation="none")
    axes.tick_params(length=0, pad=2, top=False, bottom=False, labeltop=True, labelbottom=False)
    axes.set_xticks([])
    axes.set_yticks([])
    # A faint grid, because most of a heat map is white.
    axes.hlines(np.arange(1, n_rows) - 0.5, -0.5, n_columns - 0.5, colors="0.85", linewidths=0.3)
    axes.vlines(np.arange(1, n_columns) - 0.5, -0.5, n_rows - 0.5, colors="0.85", linewidths=0.3)
    for spine in axes.spines.values():
        spine.set(linewidth=0.5, color="0.5")
    axes.text(
        0, -GAP / 2 / layout.panel[1], panel.title, transform=axes.transAxes, va="top", ha="left", fontsize=TEXT_SIZE
    )
    return image


def _add_bar_and_texts(figure: Figure, image: AxesImage, layout: FigureLayout) -> None:
    """The colour bar and the texts above and below the panels."""
    bar = figure.colorbar(image, cax=figure.add_axes(layout.bar_box()))
    bar.ax.tick_params(labelsize=TEXT_SIZE, length=2)
    bar.outline.set_linewidth(0.5)
    for x, y, line in layout.text_lines():
        figure.text(x, y, line, va="top", ha="left", fontsize=TEXT_SIZE, fontfamily=layout.fonts, parse_math=False)


def _lines(n: int) -> float:
    """Height of `n` lines of text, in inches."""
    return n * LINE_HEIGHT * TEXT_SIZE / 72


def _shorten_label(label: str) -> str:
    return label if len(label) <= MAX_LABEL_LENGTH else f"{label[: MAX_LABEL_LENGTH - 1]}…"


def text_width(text: str, size: float, fonts: Sequence[str]) -> float:
    """Inches."""
    properties = FontProperties(family=list(fonts), size=size)
    width, _, _ = text_to_path.get_text_width_height_descent(text, properties, ismath=False)
    return float(width) / 72


def wrap(text: str, width: float, fonts: Sequence[str]) -> Iterator[str]:
    """Lines no wider than `width` inches; a longer word is split."""
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if text_width(longer, TEXT_SIZE, fonts) <= width:
            line = longer
            continue
        if line:
            yield line
        while (share := text_width(word, TEXT_SIZE, fonts) / width) > 1:
            kept = max(1, math.floor(len(word) / share) - 1)
            yield word[:kept]
            word = word[kept:]
        line = word
    yield line


def choose_fonts(text: str) -> tuple[list[str], set[str]]:
    """Installed fonts that together have the characters of `text`, and the characters that none of them has."""
    missing = {character for character in text if not character.isspace()}
    missing -= _characters_of(fontManager.findfont(FONT))
    found = [FONT]
    for entry in fontManager.ttflist:
        if not missing:
            break
        if LAST_RESORT_FONT in entry.name or entry.style != "normal":
            continue
        if has := missing & _characters_of(entry.fname):
            found.append(entry.name)
            missing -= has
    return found, missing


def _characters_of(font: str) -> set[str]:
    return {chr(code) for code in get_font(font).get_charmap()}


def _replace_missing(texts: Sequence[str], missing: set[str]) -> list[str]:
    return ["".join(PLACEHOLDER if character in missing else character for character in text) for text in texts]
