"""The HTML page of a comparison in a real browser: its script, keyboard, widths, print, and without its script.

Needs Chromium and its chromedriver, which scripts/browser sets up.
"""

import dataclasses

import pytest
from selenium.webdriver import Keys

from tests.addons.comparison.toy_comparison import toy_comparison
from tests.support import browser
from tests.support.browser import COLOURS, COPIED, DARK, NEEDS_CHROMIUM, geometry, reader_fixture
from transformer_cli.addons.comparison.page import render
from transformer_cli.addons.comparison.results import Comparison

pytestmark = NEEDS_CHROMIUM

HOSTILE = "</title></style></script><script>window.broken=1</script> & <b> مرحبا بالعالم 👩‍👩‍👧‍👦 $script <!-- \\u003c"
SHOWN = "return [...document.querySelectorAll('.card')].filter(card => card.checkVisibility()).length"

# Text that reaches over the edge of the page, or lies over other text. A narrow page has no heads of tables.
GEOMETRY = geometry(
    "h1, h2, h3, p, dt, dd, th, td, .system, .figure, .chart text, label > span",
    left_out='node.closest("thead") && getComputedStyle(node.closest("thead")).position === "absolute"',
)


class Reader(browser.Reader):
    page = "compare"

    def open(self, comparison: Comparison, *, width: int = 1280, script: bool = True) -> None:
        self.resize(width)
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
        self.show(render(comparison))

    def focused(self) -> str:
        return str(self.run("const e = document.activeElement; return e.name || e.id || e.className || e.tagName"))


reader = reader_fixture(Reader)


@pytest.mark.parametrize("width", [1600, 1280, 800, 400, 320])
@pytest.mark.parametrize("text", [None, HOSTILE, "Rindfleischetikettierung" * 5])
def test_no_text_leaves_the_page_or_lies_over_other_text(reader: Reader, text: str | None, width: int) -> None:
    names = {} if text is None else {"names": [text, "b", "c"]}
    reader.messages()
    reader.open(toy_comparison(text=text, **names), width=width)
    reader.run("for (const details of document.querySelectorAll('details')) details.open = true")
    found = reader.run(GEOMETRY)
    assert found["faults"][:5] == []
    assert found["count"] > 200
    assert reader.run("return window.broken ?? 0") == 0
    assert reader.messages() == []
    assert reader.loaded() == []
    reader.screenshot(f"{'plain' if text is None else 'hostile' if text == HOSTILE else 'long'}-{width}")


def test_text_that_lies_over_other_text_is_detected(reader: Reader) -> None:
    reader.open(toy_comparison())
    reader.run("document.querySelector('.kicker').style.setProperty('margin-bottom', '-30px')")
    assert [fault for fault in reader.run(GEOMETRY)["faults"] if "lies over" in fault]


def test_the_policy_refuses_scripts_and_the_network(reader: Reader) -> None:
    reader.open(toy_comparison())
    reader.refuses_scripts_and_the_network()


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
    reader.run(COPIED)
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
    reader.open(toy_comparison())
    try:
        reader.media(**DARK)
        assert reader.run(COLOURS)[0] == "rgb(22, 24, 27)"
        reader.screenshot("dark")
        pdf = reader.pdf()
        assert pdf.startswith(b"%PDF")
        assert reader.run("return [...document.querySelectorAll('.card details, .reading')].every(e => e.open)")
        reader.media(media="print", **DARK)
        assert reader.run(COLOURS) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"]
        assert not [one for one in reader.all("#choose, .copy, #more, nav") if one.is_displayed()]
        reader.screenshot("printed")
    finally:
        reader.media()
