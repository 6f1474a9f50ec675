"""The HTML page of a comparison in a real browser: its script, keyboard, widths, print, and without its script.

Needs Chromium and its chromedriver, which scripts/browser sets up. Screenshots go to the folder $TFM_ARTEFACTS if that
is set.
"""

import base64
import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from tests.addons.comparison.toy_comparison import toy_comparison
from tests.support.browser import NEEDS_CHROMIUM, chromium
from transformer_cli.addons.comparison.page import render
from transformer_cli.addons.comparison.results import Comparison

pytestmark = NEEDS_CHROMIUM

HOSTILE = "</title></style></script><script>window.broken=1</script> & <b> مرحبا بالعالم 👩‍👩‍👧‍👦 $script <!-- \\u003c"
DARK = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
SHOWN = "return [...document.querySelectorAll('.card')].filter(card => card.checkVisibility()).length"

# Text that reaches over the edge of the page, or lies over other text.
GEOMETRY = """
const texts = "h1, h2, h3, p, dt, dd, th, td, .system, .figure, .chart text, label > span";
const isClipped = (node) => node.closest("thead") && getComputedStyle(node.closest("thead")).position === "absolute";
const seen = [...document.querySelectorAll(texts)]
    .filter((node) => node.checkVisibility() && node.getBoundingClientRect().width > 1 && !isClipped(node));
const boxes = seen.map((node) => node.getBoundingClientRect());
const faults = [], edge = document.documentElement.clientWidth;
const describe = (node) => `${node.tagName} "${node.textContent.slice(0, 40)}"`;
boxes.forEach((a, i) => {
    if (a.left < -0.5 || a.right > edge + 0.5) faults.push(`${describe(seen[i])} leaves the page`);
    for (let j = Math.max(0, i - 40); j < i; j++) {
        const b = boxes[j];
        if (seen[i].contains(seen[j]) || seen[j].contains(seen[i])) continue;
        const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (width > 1 && height > 3) faults.push(`${describe(seen[i])} lies over ${describe(seen[j])}`);
    }
});
if (document.documentElement.scrollWidth > innerWidth) faults.push("the page is wider than its window");
return {faults, count: seen.length};
"""


class Reader:
    """Reads the page with mouse and keyboard."""

    def __init__(self, driver: Chrome, folder: Path) -> None:
        self.driver, self.folder = driver, folder

    def open(self, comparison: Comparison, *, width: int = 1280, script: bool = True) -> None:
        path = self.folder / "compare.html"
        path.write_text(render(comparison), encoding="utf-8")
        screen = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
        self.driver.get(path.as_uri())

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def media(self, **settings: object) -> None:
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [], **settings})

    def press(self, *keys: str) -> None:
        for key in keys:
            ActionChains(self.driver).send_keys(key).perform()

    def focused(self) -> str:
        return str(self.run("const e = document.activeElement; return e.name || e.id || e.className || e.tagName"))

    def screenshot(self, name: str) -> None:
        """The whole page, also what lies below the window."""
        folder = Path(os.environ.get("TFM_ARTEFACTS", self.folder))
        folder.mkdir(parents=True, exist_ok=True)
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})["data"]
        (folder / f"compare-{name}.png").write_bytes(base64.b64decode(picture))


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("browser")
    with chromium(folder) as driver:
        yield Reader(driver, folder)


@pytest.mark.parametrize("width", [1600, 1280, 800, 400, 320])
@pytest.mark.parametrize("text", [None, HOSTILE, "Rindfleischetikettierung" * 5])
def test_no_text_leaves_the_page_or_lies_over_other_text(reader: Reader, text: str | None, width: int) -> None:
    names = {} if text is None else {"names": [text, "b", "c"]}
    reader.driver.get_log("browser")
    reader.open(toy_comparison(text=text, **names), width=width)
    reader.run("for (const details of document.querySelectorAll('details')) details.open = true")
    found = reader.run(GEOMETRY)
    assert found["faults"][:5] == []
    assert found["count"] > 200
    assert reader.run("return window.broken ?? 0") == 0
    assert reader.driver.get_log("browser") == []
    assert reader.run("return performance.getEntriesByType('resource').map(e => e.name)") == []
    reader.screenshot(f"{'plain' if text is None else 'hostile' if text == HOSTILE else 'long'}-{width}")


def test_text_that_lies_over_other_text_is_detected(reader: Reader) -> None:
    reader.open(toy_comparison())
    reader.run("document.querySelector('.kicker').style.setProperty('margin-bottom', '-30px')")
    assert [fault for fault in reader.run(GEOMETRY)["faults"] if "lies over" in fault]


def test_the_policy_refuses_scripts_and_the_network(reader: Reader) -> None:
    reader.open(toy_comparison())
    blocked = reader.driver.execute_async_script(
        "const done = arguments[0], blocked = [];"
        "addEventListener('securitypolicyviolation', e => blocked.push(e.effectiveDirective));"
        "const script = document.createElement('script'); script.textContent = 'window.broken = 1';"
        "document.body.append(script);"
        "fetch('http://127.0.0.1:9/').catch(() => setTimeout(() => done([blocked, window.broken ?? 0]), 50));"
    )
    assert blocked == [["script-src-elem", "connect-src"], 0]
    reader.driver.get_log("browser")  # of the blocked requests


def test_the_keyboard_chooses_system_and_direction_shows_more_and_finds_text(reader: Reader) -> None:
    comparison = toy_comparison(n_sentences=12)
    reader.open(comparison)
    order: list[str] = []
    for _ in range(60):
        reader.press(Keys.TAB)
        if reader.focused() not in order:
            order.append(reader.focused())
        if reader.focused() == "more":
            break
        outline = reader.run(
            "const e = document.activeElement, s = e.type === 'radio' ? e.nextElementSibling : e;"
            "return getComputedStyle(s).outlineStyle"
        )
        assert outline == "solid", reader.focused()
    places = [order.index(name) for name in ("copy", "system", "direction", "find", "more")]
    assert places == sorted(places)
    assert reader.run(SHOWN) == 10
    reader.press(Keys.ENTER)
    assert reader.run(SHOWN) == 12
    assert reader.focused() == "card"  # the button is gone; the first new sentence has its place

    def title() -> str:
        (shown,) = [one.text for one in reader.all(".sentences h3") if one.is_displayed()]
        return str(shown)

    reader.run("document.querySelector('[name=system]:checked').focus()")
    assert title() == "Where deep/1 is better than base/1"
    reader.press(Keys.ARROW_RIGHT)
    assert title() == "Where deep/2 is better than base/1"
    reader.press(Keys.TAB, Keys.ARROW_RIGHT)
    assert title() == "Where deep/2 is worse than base/1"
    wanted = comparison.worse[2][7].translations[2]
    reader.press(Keys.TAB, wanted.upper())  # in any case, and across marks
    assert reader.run(SHOWN) == 1
    assert reader.run("return document.querySelector('#shown').textContent").startswith("1 of 1 ")
    reader.press("zzz")
    assert reader.run(SHOWN) == 0
    assert reader.run("return document.querySelector('#shown').textContent").startswith("No ")


def test_without_its_script_the_page_shows_every_sentence_and_no_control(reader: Reader) -> None:
    reader.open(toy_comparison(n_sentences=12), script=False)
    try:
        assert len([card for card in reader.all(".card") if card.is_displayed()]) == 48
        assert not [one for one in reader.all("#choose, #more, .copy") if one.is_displayed()]
    finally:
        reader.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_signature_can_be_copied(reader: Reader) -> None:
    comparison = toy_comparison()
    reader.open(comparison)
    reader.run(
        "window.copied = []; Object.defineProperty(navigator, 'clipboard',"
        " {value: {writeText: async (text) => { copied.push(text); }}})"
    )
    button = reader.all(".copy")[1]
    button.click()
    assert reader.run("return copied") == [comparison.metrics[1].signature]
    assert button.text == "Copied"
    reader.run("navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed'))")
    reader.all(".copy")[0].click()
    assert reader.run("return getSelection().toString()") == comparison.metrics[0].signature


def test_systems_and_marks_differ_in_shape_too(reader: Reader) -> None:
    reader.open(toy_comparison())
    curves = reader.run(
        "return [...document.querySelector('.chart').querySelectorAll('g[data-colour]')].map(g =>"
        " [g.querySelector('use').getAttribute('href'), g.querySelector('polyline').getAttribute('stroke-dasharray')])"
    )
    assert len({shape for shape, _ in curves}) == len({dash for _, dash in curves}) == 3
    lines = reader.run(
        "return ['.key .hit', '.key .miss'].map(s => getComputedStyle(document.querySelector(s)).textDecorationStyle)"
    )
    assert lines == ["solid", "wavy"]


def test_right_to_left_text_begins_at_the_right(reader: Reader) -> None:
    comparison = dataclasses.replace(toy_comparison(text="مرحبا بالعالم"), target_language="ar")
    reader.open(comparison)
    directions = reader.run("return [...document.querySelectorAll('.card dd')].map(e => getComputedStyle(e).direction)")
    assert {*directions} == {"rtl"}


def test_dark_screens_and_paper(reader: Reader) -> None:
    style = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
    reader.open(toy_comparison())
    try:
        reader.media(**DARK)
        assert reader.run(style)[0] == "rgb(22, 24, 27)"
        reader.screenshot("dark")
        pdf = base64.b64decode(reader.driver.execute_cdp_cmd("Page.printToPDF", {})["data"])
        assert pdf.startswith(b"%PDF")
        assert reader.run("return [...document.querySelectorAll('.card details, .reading')].every(e => e.open)")
        reader.media(media="print", **DARK)
        assert reader.run(style) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
        assert not [one for one in reader.all("#choose, .copy, #more, nav") if one.is_displayed()]
        reader.screenshot("printed")
    finally:
        reader.media()
