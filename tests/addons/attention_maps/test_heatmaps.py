"""Heat maps: labels without overlaps, colours for every kind of vision, and exact weights."""

import re
import struct
from collections.abc import Sequence

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tests.addons.attention_maps.test_attention_maps import random_maps
from tests.conftest import slow
from transformer_cli.addons.attention_maps import heatmaps
from transformer_cli.addons.attention_maps.heatmaps import (
    COLOURS,
    FONT,
    FigureLayout,
    choose_fonts,
    draw_heatmaps,
    panels,
    render_heat_map,
)
from transformer_cli.addons.attention_maps.keys import AttentionKind
from transformer_cli.addons.attention_maps.maps import AttentionMaps

CHAIR = ["▁She", "▁sat", "▁down", "▁in", "▁the", "▁chair", ",", "▁it", "▁was", "▁com", "fortable", ".", "</s>"]
WORDS = ["▁Donaudampfschifffahrtsgesellschaftskapitän", "▁i", "gjpqy", "▁$x^2$", "▁ÄÖÅ", "▁$", "▁W", "▁слово", "▁كلمة"]


def of_size(n: int, *, layers: int = 1, heads: int = 1) -> AttentionMaps:
    """`n` tokens on both sides, some long, some tall."""
    labels = [WORDS[i % len(WORDS)] for i in range(n - 1)]
    return random_maps([*labels, "</s>"], ["<s>", *labels], [*labels, "</s>"], layers=layers, heads=heads)


def texts_of(figure: Figure) -> list[tuple[Text, Bbox]]:
    """All texts of a figure and their bounding boxes, in pixels."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    found = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    shown = [text for axes in figure.axes for text in (*axes.get_xticklabels(), *axes.get_yticklabels(), *axes.texts)]
    return [(text, text.get_window_extent(renderer)) for text in found if text in shown or text in figure.texts]


def overlaps(boxes: Sequence[Bbox], others: Sequence[Bbox]) -> np.ndarray:
    """Whether boxes overlap by more than 0.1 pixels, [boxes, others]."""
    (one, two), (other, another) = (
        (np.array([box.min for box in some]), np.array([box.max for box in some])) for some in (boxes, others)
    )
    common = np.minimum(two[:, None], another) - np.maximum(one[:, None], other)
    return (common > 0.1).all(axis=-1)


@pytest.mark.parametrize(
    ("kind", "n_tokens", "layers", "heads", "mean"),
    [
        ("encoder", 2, 1, 1, False),
        ("cross", 3, 2, 4, False),
        ("cross", 60, 1, 1, False),
        slow("decoder", 60, 2, 4, False),
        ("encoder", 30, 2, 3, True),
    ],
)
def test_no_label_overlaps_another_or_leaves_the_picture(
    kind: str, n_tokens: int, layers: int, heads: int, mean: bool
) -> None:
    figure = draw_heatmaps(of_size(n_tokens, layers=layers, heads=heads), AttentionKind[kind], mean=mean)
    texts, boxes = zip(*texts_of(figure), strict=True)
    places = [axes.get_window_extent() for axes in figure.axes]
    n_wide, n_panels = (1, layers) if mean else (heads, layers * heads)
    n_ticks, n_lines = 6, len(figure.texts)  # of the bar, and above and below
    assert len(texts) == n_tokens * (layers + n_wide) + n_panels + n_ticks + n_lines
    met = np.argwhere(overlaps(boxes, boxes) & ~np.eye(len(boxes), dtype=bool))
    assert [(texts[i].get_text(), texts[j].get_text()) for i, j in met] == []
    assert not overlaps(boxes, places).any()
    assert overlaps(places, places).sum() == len(places)  # each overlaps itself
    width, height = figure.get_size_inches() * figure.dpi
    assert [text.get_text() for text, box in zip(texts, boxes, strict=True) if box.x0 < 0 or box.x1 > width] == []
    assert [text.get_text() for text, box in zip(texts, boxes, strict=True) if box.y0 < 0 or box.y1 > height] == []


def test_overlapping_labels_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heatmaps, "LINE_HEIGHT", 0.8)
    _, boxes = zip(*texts_of(draw_heatmaps(of_size(20), AttentionKind.encoder)), strict=True)
    assert overlaps(boxes, boxes).sum() > len(boxes)


def test_labels_are_text_at_their_rows_and_columns() -> None:
    maps = random_maps(CHAIR, ["<s>", "▁E", "lle", "▁$x$", "▁$"], ["▁E", "lle", "▁$x$", "▁$", "</s>"])
    figure = draw_heatmaps(maps, AttentionKind.cross, layer=2, head=3)
    axes = figure.axes[0]
    texts_of(figure)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["E", "·lle", "$x$", "$", "</s>"]
    assert [label.get_text() for label in axes.get_xticklabels()][-4:] == ["com", "·fortable", ".", "</s>"]
    assert not any(label.get_parse_math() for label in (*axes.get_yticklabels(), *axes.get_xticklabels()))
    assert (list(axes.get_yticks()), list(axes.get_xticks())) == (list(range(5)), list(range(13)))
    for label, column in zip(axes.get_xticklabels(), range(13), strict=True):
        middle = axes.transData.transform((column, 0))[0]
        box = label.get_window_extent()
        assert (box.x0 + box.x1) / 2 == pytest.approx(middle, abs=2)


def shown(figure: Figure) -> list[tuple[str, np.ndarray]]:
    """Title and numbers of each panel."""
    return [(axes.texts[0].get_text(), np.asarray(axes.images[0].get_array())) for axes in figure.axes if axes.images]


def test_panels_are_heads_and_their_numbers_are_the_weights() -> None:
    maps = random_maps(CHAIR, ["<s>", "▁a"], ["▁a", "</s>"])
    w = maps.encoder_YHSS
    every = shown(draw_heatmaps(maps, AttentionKind.encoder))
    assert [title for title, _ in every] == [f"layer {y}, head {h}" for y in (1, 2) for h in (1, 2, 3)]
    assert np.array_equal(np.stack([array for _, array in every]), w.flatten(0, 1).numpy())
    ((title, array),) = shown(draw_heatmaps(maps, AttentionKind.cross, layer=2, head=1))
    assert title == "layer 2, head 1"
    assert np.array_equal(array, maps.cross_YHTS[1, 0].numpy())
    row = shown(draw_heatmaps(maps, AttentionKind.decoder, layer=2))
    assert [title for title, _ in row] == ["layer 2, head 1", "layer 2, head 2", "layer 2, head 3"]
    assert np.array_equal(row[1][1], maps.decoder_YHTT[1, 1].numpy())
    assert [title for title, _ in shown(draw_heatmaps(maps, AttentionKind.encoder, head=3))] == [
        "layer 1, head 3",
        "layer 2, head 3",
    ]
    means = shown(draw_heatmaps(maps, AttentionKind.encoder, mean=True))
    assert [title for title, _ in means] == ["layer 1, mean of 3 heads", "layer 2, mean of 3 heads"]
    assert np.allclose(means[1][1], (w[1, 0] + w[1, 1] + w[1, 2]).numpy() / 3)


def test_one_colour_means_one_weight_on_every_picture() -> None:
    figure = draw_heatmaps(of_size(5, layers=2, heads=2), AttentionKind.encoder)
    images = [image for axes in figure.axes for image in axes.images]
    assert len(images) == 4
    assert {image.get_clim() for image in images} == {(0.0, 1.0)}


def lightness(colours: np.ndarray) -> np.ndarray:
    """CIE L* of sRGB colours (IEC 61966-2-1; CIE 15)."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    y = linear @ np.array([0.2126, 0.7152, 0.0722])
    return np.where(y > (6 / 29) ** 3, 116 * np.cbrt(y) - 16, y * (29 / 3) ** 3)


def test_colours_are_one_hue_that_darkens_evenly_from_white() -> None:
    colours = matplotlib.colormaps[COLOURS](np.linspace(0, 1, 101))[:, :3]
    light = lightness(colours)
    steps = -np.diff(light)
    assert light[0] > 95  # as good as paper
    assert light[-1] < 25
    assert steps.min() > 0  # in print and without colours, more is always darker
    assert steps.max() < 3 * steps.mean()
    assert (colours[:, 2] >= colours[:, 1]).all()  # blue throughout
    assert (colours[:, 1] >= colours[:, 0]).all()


def test_model_notes_and_kind_are_written_on_the_picture() -> None:
    maps = random_maps(CHAIR, ["<s>"], ["</s>"])
    maps.notes.append("translation given")
    maps.notes.append("of 501 source tokens the first 58 and the last are shown, the others as one: …")
    for kind in AttentionKind:
        text = " ".join(line.get_text() for line in draw_heatmaps(maps, kind).texts)
        assert "toy" in text
        assert "translation given" in text
        assert "the others as one" in text
        assert kind.name in text.lower()


def test_files_are_of_their_format_and_equal_each_time() -> None:
    maps = of_size(6, heads=2)
    png, svg = (render_heat_map(maps, form) for form in ("png", "svg"))
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    inches = draw_heatmaps(maps, AttentionKind.cross).get_size_inches()
    assert (width, height) == pytest.approx(tuple(inches * 200), abs=1)
    assert svg.startswith(b"<?xml")
    assert svg.rstrip().endswith(b"</svg>")
    assert not re.search(rb'(href|src)="(?!#|data:)', svg)  # nothing from elsewhere
    assert render_heat_map(maps, "png") == png
    assert render_heat_map(maps, "svg") == svg


def test_a_pdf_has_the_size_of_the_figure_and_fonts_that_publishers_accept() -> None:
    maps = random_maps([*CHAIR, "ż", "→", "日"], ["Elle", "été"], ["été", "</s>"])
    pdf = render_heat_map(maps, "pdf", kind=AttentionKind.encoder)
    assert pdf.startswith(b"%PDF-1.")
    assert pdf.rstrip().endswith(b"%%EOF")
    points = draw_heatmaps(maps, AttentionKind.encoder).get_size_inches() * 72
    (box,) = re.findall(rb"/MediaBox \[ ([\d. ]+) \]", pdf)
    assert [float(number) for number in box.split()] == pytest.approx([0, 0, *points])
    kinds = set(re.findall(rb"/Subtype /(Type\w+|CIDFont\w+|TrueType)", pdf))
    assert b"CIDFontType2" in kinds
    assert b"Type3" not in kinds
    assert b"/CreationDate" not in pdf
    assert render_heat_map(maps, "pdf", kind=AttentionKind.encoder) == pdf


def test_a_large_grid_fits_into_a_picture_that_can_be_opened() -> None:
    maps = of_size(60, layers=6, heads=8)
    grid = panels(maps.encoder_YHSS, layer=None, head=None, mean=False)
    layout = FigureLayout.for_panels(grid, maps.source, maps.source, "a header", ["a note"], [FONT])
    assert max(layout.width, layout.height) * 200 <= heatmaps.MAX_PIXELS
    assert layout.size >= 4
    assert min(layout.panel) > 60 * layout.size / 72  # a line for each token


def test_characters_that_no_font_has_are_boxes_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    unassigned = chr(0x0378)
    maps = random_maps([f"▁{unassigned}", "▁a", "</s>"], ["<s>"], ["</s>"])
    figure = draw_heatmaps(maps, AttentionKind.encoder)
    texts_of(figure)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "□"
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == "no font of this machine has U+0378: the picture shows □ there. Install one that has them"


def test_fonts_are_chosen_by_their_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_fonts("aß→я") == (["DejaVu Sans"], set())
    known = heatmaps._characters_of

    def without_letters(font: str) -> set[str]:
        return known(font) - {"q"} if font.endswith("DejaVuSans.ttf") else known(font)

    monkeypatch.setattr(heatmaps, "_characters_of", without_letters)
    fonts, missing = choose_fonts("aq")
    assert (fonts[0], len(fonts), missing) == ("DejaVu Sans", 2, set())
    assert "Last Resort" not in fonts[1]


def test_long_texts_are_wrapped_to_the_width() -> None:
    text = "a note of several words and " + "x" * 200
    lines = list(heatmaps.wrap(text, 1.5, [FONT]))
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert max(heatmaps.text_width(line, 8, [FONT]) for line in lines) <= 1.5
    assert list(heatmaps.wrap("short", 5, [FONT])) == ["short"]
