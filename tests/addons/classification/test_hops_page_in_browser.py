"""The page of `tfm classify --html` in a real browser: its layout, its colours and its policy.

Needs Chromium and its chromedriver, which scripts/browser sets up.
"""

import pytest
import torch

from tests.support import browser
from tests.support.browser import COLOURS, DARK, NEEDS_CHROMIUM, geometry, reader_fixture
from transformer_cli.addons.classification.hops.page import ReadLine, render

pytestmark = NEEDS_CHROMIUM

GEOMETRY = geometry("h1, h2, dt, dd, th, .text, .most, .hint, .legend")
WORDS = ["<s>", *(f"▁{'w' * n}" for n in range(1, 30)), "▁unbreakable" + "x" * 90, "</s>"]
WEIGHTS_RL = torch.eye(3, len(WORDS)) * 0.75 + 0.25 / len(WORDS)


class Reader(browser.Reader):
    page = "hops"

    def open(self, *, width: int = 1280, dark: bool = False) -> None:
        self.resize(width, height=900)
        self.media(**(DARK if dark else {}))
        lines = [ReadLine(number, "a class", 0.5, WORDS, WEIGHTS_RL) for number in range(3)]
        self.show(render(lines, facts={"Model": "runs/a", "Pooling": "self_attentive (hops 3)"}, notes=["A note"]))


reader = reader_fixture(Reader)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (320, True)])
def test_nothing_overlaps_leaves_the_page_or_writes_to_the_console(reader: Reader, width: int, dark: bool) -> None:
    reader.messages()
    reader.open(width=width, dark=dark)
    found = reader.run(GEOMETRY)
    assert found["faults"] == []
    assert found["count"] > 30
    reader.screenshot(f"{width}-{'dark' if dark else 'light'}")
    assert reader.messages() == []
    assert reader.loaded() == []
    reader.refuses_scripts_and_the_network()


@pytest.mark.parametrize("dark", [False, True])
def test_a_larger_weight_is_farther_from_the_colour_of_the_page(reader: Reader, dark: bool) -> None:
    reader.open(dark=dark)
    paper, _ = reader.run(COLOURS)
    script = """
    const context = document.createElement("canvas").getContext("2d");
    return [...document.querySelectorAll(arguments[0])].map((node) => {
        context.fillStyle = getComputedStyle(node).backgroundColor;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
    });
    """
    steps = reader.run(script, ".scale span")
    assert len(steps) == 21
    (page,) = reader.run(script, "body")
    far = [sum(abs(a - b) for a, b in zip(step, page, strict=True)) for step in steps]
    assert far[0] == 0, (paper, steps[0])
    assert far == sorted(set(far))
    hop = reader.run(script, "tr.hop:nth-child(2) .text span")
    assert max(range(len(hop)), key=lambda i: sum(abs(a - b) for a, b in zip(hop[i], page, strict=True))) == 0
