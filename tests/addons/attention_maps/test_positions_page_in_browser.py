"""The page of `tfm attention --positions` in a real browser: its cells, curves, layout, mouse and keyboard.

Needs Chromium and its chromedriver, which scripts/browser sets up.
"""

import re

import pytest
import torch
from selenium.webdriver import ActionChains, Keys

from tests.support import browser
from tests.support.browser import DARK, NEEDS_CHROMIUM, geometry, reader_fixture
from transformer_cli.addons.attention_maps.positions.encodings import (
    PositionEncodings,
    compute_encodings,
    modules_of_config,
)
from transformer_cli.addons.attention_maps.positions.page import render
from transformer_cli.config.model import ModelConfig, Positions
from transformer_cli.models.embeddings import LearnedPositions

pytestmark = NEEDS_CHROMIUM

LEFT = 40  # pixels of a colour map's axis
OPENINGS = 5  # the fastest counts, because other processes may slow the rest

# Texts that overlap or reach over the edge of the page. A colour map may be wider than the page, and scrolls.
GEOMETRY = geometry(
    "text, figcaption, .readout, legend, .segments label, input, h1, h2, p",
    scrolls='node.closest(".scroll")',
    narrowest=0,
)


def encodings(kind: Positions, length: int = 20, *, d_model: int = 64, first: int = 0) -> PositionEncodings:
    config = ModelConfig(d_model=d_model, n_heads=4, positions=kind, first_position=first)
    if kind is not Positions.learned:
        return compute_encodings(modules_of_config(config), config, length, title="")
    torch.manual_seed(0)
    tables = {name: LearnedPositions(d_model, max_positions=length) for name in ("encoder", "decoder")}
    return compute_encodings(tables, config, length, title="a model")


class Reader(browser.Reader):
    page = "positions"

    def open(self, shown: PositionEncodings, *, width: int = 1280, dark: bool = False) -> None:
        self.resize(width, height=900)
        self.media(**(DARK if dark else {}))
        self.show(render(shown))

    def text(self, selector: str) -> str:
        return str(self.all(selector)[0].text)

    def numbers(self, selector: str) -> list[float]:
        """The numbers of a readout, which are printed bold."""
        return [float(one.text) for one in self.all(f"{selector} strong")]

    def point(self, index: int, row: int, column: int, columns: int, *, click: bool = False) -> None:
        """Move the mouse to a cell of a colour map."""
        canvas = self.all(".heat canvas")[index]
        self.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
        box = canvas.rect
        cell = box["width"] / columns, box["height"] / 20
        x, y = (column + 0.5) * cell[0] - box["width"] / 2, (row + 0.5) * cell[1] - box["height"] / 2
        move = ActionChains(self.driver).move_to_element_with_offset(canvas, round(x), round(y))
        (move.click() if click else move).perform()

    def leave(self) -> None:
        ActionChains(self.driver).move_to_element(self.all("#value")[0]).perform()


reader = reader_fixture(Reader)


@pytest.mark.parametrize("kind", Positions)
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (320, True)])
def test_nothing_overlaps_leaves_the_page_or_writes_to_the_console(
    reader: Reader, kind: Positions, width: int, dark: bool
) -> None:
    reader.messages()
    reader.open(encodings(kind, d_model=512), width=width, dark=dark)
    found = reader.run(GEOMETRY)
    assert found["faults"] == []
    assert found["count"] > 40
    reader.screenshot(f"{kind.name}-{width}-{'dark' if dark else 'light'}")
    for radio in reader.all("#measure-picker:not([hidden]) [value=dot]"):
        reader.run("arguments[0].click()", radio)
    assert reader.messages() == []
    assert reader.loaded() == []


def test_texts_that_overlap_or_leave_the_page_are_detected(reader: Reader) -> None:
    reader.open(encodings(Positions.sinusoidal))
    for script, says in [("margin-bottom: -20px", "lies over"), ("margin-left: -200px", "leaves the page")]:
        reader.run("document.querySelector('.how').style.cssText = arguments[0]", script)
        assert [fault for fault in reader.run(GEOMETRY)["faults"] if says in fault]


def test_the_pixels_are_the_values(reader: Reader) -> None:
    shown = encodings(Positions.sinusoidal)
    reader.open(shown)
    red, blue = "pixel[0] > 2 * pixel[2]", "pixel[2] > 2 * pixel[0]"
    values_LC = shown.maps[0].values_LC
    for row, column in [(0, 1), (1, 0), (4, 0), (3, 1), (19, 20)]:
        script = f"const pixel = arguments[0].getContext('2d').getImageData({column}, {row}, 1, 1).data;"
        is_red, is_blue = reader.run(f"{script} return [{red}, {blue}]", reader.all(".heat canvas")[0])
        value = values_LC[row, column].item()
        assert abs(value) > 0.5
        assert (is_red, is_blue) == (value > 0, value < 0)


@pytest.mark.parametrize("kind", [Positions.sinusoidal, Positions.sinusoidal_tensor2tensor])
def test_a_cell_that_is_pointed_at_is_read_in_both_layouts(reader: Reader, kind: Positions) -> None:
    shown = encodings(kind, first=2)
    reader.open(shown)
    interleaved, concatenated = (one.values_LC for one in shown.maps)
    for index, row, column in [(0, 7, 13), (1, 7, 38), (0, 3, 8), (1, 19, 63)]:
        reader.point(index, row, column, 64)
        value = (interleaved, concatenated)[index][row, column].item()
        assert reader.numbers("#value") == [pytest.approx(value, rel=1e-6)]
        i = column if index == 0 else column * 2 if column < 32 else (column - 32) * 2 + 1
        c = i // 2 + 32 * (i % 2)
        found = re.match(
            r"position (\d+), dimension (\d+) interleaved, (\d+) concatenated: (sin|cos)", reader.text("#value")
        )
        assert found
        assert found.groups() == (str(row + 2), str(i), str(c), "cos" if i % 2 else "sin")
    before = reader.run("return document.getElementById('position').value")
    reader.leave()
    assert reader.text("#value").startswith(f"position {before},")


def test_a_click_picks_a_position_and_its_curves_follow(reader: Reader) -> None:
    shown = encodings(Positions.sinusoidal)
    reader.open(shown)
    reader.point(0, 9, 20, 64, click=True)
    reader.leave()
    assert reader.run("return ['position', 'dimension'].map(id => document.getElementById(id).value)") == ["9", "20"]
    assert reader.text("#row-title") == "Position 9 in every pair of dimensions"
    assert reader.text("#column-title").startswith("Pair 10 at every position")
    assert reader.text("#similar-chart-title") == "Cosine of position 9 with every position"
    # 1 at its own position, and lower on both sides: of the heights, counted downwards, the smallest.
    heights = reader.run(
        "return [...document.querySelectorAll('#similar-chart .curve ~ circle')].map(e => +e.getAttribute('cy'))"
    )
    assert len(heights) == 20
    assert heights.index(min(heights)) == 9


def test_similarities_are_read_exactly(reader: Reader) -> None:
    shown = encodings(Positions.learned)
    reader.open(shown)
    reader.point(3, 6, 11, 20)
    encoder, decoder = shown.similarities
    assert reader.text("#similarity").startswith("positions 6 and 11, distance 5: encoder: cosine ")
    expected = [m[6, 11].item() for one in (encoder, decoder) for m in (one.cosine_LL, one.dot_LL) if m is not None]
    assert reader.numbers("#similarity") == pytest.approx(expected, rel=1e-6)
    assert reader.text("#value").startswith("position 6, dimension ")


def test_rotary_angles_are_read_with_cosine_and_sine(reader: Reader) -> None:
    shown = encodings(Positions.rotary)
    reader.open(shown)
    reader.point(0, 5, 3, 8)
    angle, cos, sin = (one.values_LC[5, 3].item() for one in shown.maps)
    assert reader.text("#value").startswith("position 5, pair 3 (dimensions 3 and 11 of a head): angle 5 · ")
    assert reader.numbers("#value") == [pytest.approx(angle, rel=1e-3), pytest.approx(cos), pytest.approx(sin)]
    assert not reader.all("#measure-picker")[0].is_displayed()


def test_the_keyboard_alone_reaches_and_changes_everything(reader: Reader) -> None:
    reader.open(encodings(Positions.sinusoidal))
    focused = "const e = document.activeElement; return e.id || e.name || e.className"
    reader.press(Keys.TAB)
    assert reader.run(focused) == "position"
    reader.press(Keys.ARROW_UP)
    assert reader.text("#value").startswith("position 5, dimension 4 interleaved")
    reader.press(Keys.TAB)
    assert reader.run(focused) == "dimension"
    reader.press(Keys.TAB, Keys.ARROW_RIGHT)
    assert reader.text("#similar-chart-title").startswith("Dot product")
    reader.press(Keys.TAB)
    assert reader.run(focused) == "heat"
    assert reader.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    reader.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert reader.text("#value").startswith("position 7, dimension 5 interleaved")
    reader.press(Keys.END)
    assert "dimension 63 interleaved" in reader.text("#value")
    ActionChains(reader.driver).key_down(Keys.SHIFT).send_keys(Keys.ARROW_LEFT).key_up(Keys.SHIFT).perform()
    assert "dimension 53 interleaved" in reader.text("#value")
    reader.press(Keys.HOME, Keys.ARROW_LEFT, *[Keys.PAGE_DOWN] * 3)  # and not beyond
    assert reader.text("#value").startswith("position 19, dimension 0 interleaved")
    reader.press(Keys.TAB, Keys.ARROW_RIGHT)  # in the concatenated layout one to the right is the next sine
    assert reader.text("#value").startswith("position 19, dimension 2 interleaved, 1 concatenated")
    reader.press(Keys.TAB, Keys.ARROW_UP)
    assert reader.text("#similarity").startswith("positions 18 and 4")


@pytest.mark.parametrize("written", ["", "-1", "20", "1.5", "1e9"])
def test_a_position_that_is_not_there_changes_nothing(reader: Reader, written: str) -> None:
    reader.messages()
    reader.open(encodings(Positions.sinusoidal))
    before = reader.text("#value")
    field = reader.all("#position")[0]
    field.clear()
    field.send_keys(written)
    assert reader.text("#value") == before
    reader.press(Keys.TAB)
    assert field.get_attribute("value") == "4"
    assert reader.messages() == []


@pytest.mark.parametrize("length", [1, 2])
def test_one_position_is_enough(reader: Reader, length: int) -> None:
    reader.messages()
    for kind in Positions:
        reader.open(encodings(kind, length))
        assert "NaN" not in reader.run("return document.body.innerHTML.replace(/<script[^]*?<.script>/g, '')")
    assert reader.messages() == []


def test_the_largest_page_opens_in_a_second(reader: Reader) -> None:
    shown, times = encodings(Positions.sinusoidal, 512, d_model=512), []
    for _ in range(OPENINGS):
        reader.open(shown)
        times.append(reader.run("const t = performance.timing; return t.loadEventEnd - t.navigationStart"))
    assert min(times) < 1000
    assert reader.messages() == []
