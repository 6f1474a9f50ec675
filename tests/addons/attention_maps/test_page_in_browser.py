"""The HTML page of attention maps in a real browser: its lines, the layout of its labels, mouse and keyboard.

Needs Chromium and its chromedriver, which scripts/browser sets up.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.addons.attention_maps.toy_attention_maps import HOSTILE, toy_explanation, toy_maps, toy_targets, words
from tests.support import browser
from tests.support.browser import COLOURS, DARK, NEEDS_CHROMIUM, geometry, reader_fixture
from transformer_cli.addons.attention_maps.maps import AttentionMaps, merge_subwords
from transformer_cli.addons.attention_maps.page import render

pytestmark = NEEDS_CHROMIUM

OPENINGS = 5  # the fastest counts, because other processes may slow the rest
VIEWS = ["head", "matrix", "token"]

# Labels and texts that overlap, reach over the edge of the page, or are cut without an ellipsis.
GEOMETRY = geometry(
    ".label, .number, .column, .nth, legend, .segments label, #what, #how",
    overlap=(0.5, 0.5),
    narrowest=0,
    also="""
    const vertical = getComputedStyle(node).writingMode !== "horizontal-tb";
    if (a.top + scrollY < 0) faults.push(`${describe(node)} leaves the page`);
    const [length, room, height, space] = vertical
        ? [node.scrollHeight, node.clientHeight, node.scrollWidth, node.clientWidth]
        : [node.scrollWidth, node.clientWidth, node.scrollHeight, node.clientHeight];
    const cut = getComputedStyle(node).overflow === "hidden", ending = getComputedStyle(node).textOverflow;
    if (cut && height > space + 2) faults.push(`${describe(node)} is cut in its height`);
    if (cut && length > room && node.title !== node.textContent) faults.push(`${describe(node)} is cut, no title`);
    if (cut && length > room && ending !== "ellipsis") faults.push(`${describe(node)} is cut off`);
    if (cut && room < 20 && length > room) faults.push(`${describe(node)} has no room`);
    """,
)


class Reader(browser.Reader):
    page = "attention"

    def open(
        self,
        maps: AttentionMaps,
        *,
        width: int = 1280,
        explanation: Mapping[str, Any] | None = None,
        fragment: str = "",
    ) -> None:
        ActionChains(self.driver).reset_actions()  # the pointer may lie outside of a narrower window
        self.driver.set_window_size(width, 1000)
        ActionChains(self.driver).move_by_offset(0, 0).perform()
        self.show(render(maps, explanation), fragment)

    def choose(self, name: str, value: object) -> None:
        self.run("document.querySelector(arguments[0]).click()", f"[name={name}][value='{value}']")

    def choose_all_heads_of(self, layer: int) -> None:
        self.choose("layer", layer)
        self.run("document.querySelector('#all').click()")

    def merge_subwords(self) -> None:
        self.run("document.querySelector('[name=merged]').click()")

    def focused(self) -> str:
        """The focused element: name of a control, side of a token, or class, id or tag."""
        return str(
            self.run(
                "const e = document.activeElement;"
                "return e.name || e.dataset.side || (e.dataset.row ? 'cell' : e.className) || e.id || e.tagName"
            )
        )

    def tab_to(self, what: str) -> None:
        for _ in range(60):
            if self.focused().split(" ")[0] == what:
                return
            self.press(Keys.TAB)
        raise AssertionError(f"Tab does not reach {what}")

    def title(self) -> str:
        return str(self.one("#what").text)

    def lines(self) -> set[tuple[int, int, int]]:
        """(head, row, column) of every line that is drawn."""
        paths = self.run(
            "return [...document.querySelectorAll('#lines path')].map(p => [p.dataset.head, p.getAttribute('d')])"
        )
        return {
            (int(head), int(float(row) // 24), int(float(column) // 24))
            for head, d in paths
            for row, column in re.findall(r"M0 (\S+?)L100 ([\d.]+)", d)
        }


reader = reader_fixture(Reader)


def weights_drawn(weights_HQK: np.ndarray) -> set[tuple[int, int, int]]:
    """(head, row, column) of the weights that are at least 0.01."""
    return {(int(h), int(q), int(k)) for h, q, k in zip(*np.nonzero(weights_HQK >= np.float32(0.01)), strict=True)}


def first_paint(reader: Reader) -> float:
    """Milliseconds from the beginning of the navigation."""
    script = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    return float(WebDriverWait(reader.driver, 10, 0.05).until(lambda _: reader.run(script)))


@pytest.mark.parametrize("width", [1280, 800])
@pytest.mark.parametrize("count", [5, 30, 60])
def test_labels_never_overlap_and_none_is_cut_off(reader: Reader, count: int, width: int) -> None:
    maps = toy_maps(words(count, long=True), words(count, long=True)[::-1], n_layers=2, n_heads=8, text="A text. " * 40)
    reader.open(maps, width=width)
    reader.choose("kind", "cross")
    for view in VIEWS:
        reader.choose("view", view)
        if view == "head":
            reader.run("document.querySelectorAll('#left button')[2].click()")
        found = reader.run(GEOMETRY)
        assert found["faults"] == [], view
        assert found["count"] > 2 * count
        reader.screenshot(f"{view}-{count}-{width}")


def test_overlapping_and_cut_labels_are_detected(reader: Reader) -> None:
    reader.open(toy_maps(words(5, long=True), words(5)))
    assert reader.run(GEOMETRY)["faults"] == []
    reader.run("document.querySelector('.tokens li').style.setProperty('margin-bottom', '-12px')")
    assert [fault for fault in reader.run(GEOMETRY)["faults"] if "lies over" in fault]
    reader.open(toy_maps(words(5, long=True), words(5)))
    reader.run("document.querySelector('.label').style.setProperty('text-overflow', 'clip')")
    assert [fault for fault in reader.run(GEOMETRY)["faults"] if "cut off" in fault]


def test_no_view_writes_to_the_console(reader: Reader) -> None:
    reader.messages()
    reader.open(toy_maps(words(7), words(6)))
    for kind in ["encoder", "decoder", "cross"]:
        reader.choose("kind", kind)
        for view in VIEWS:
            reader.choose("view", view)
            reader.merge_subwords()
    reader.choose("view", "head")
    for button in reader.all("#none, #all"):
        button.click()
    assert reader.messages() == []
    assert reader.loaded() == []


def test_the_policy_refuses_scripts_and_the_network(reader: Reader) -> None:
    reader.open(toy_maps(words(3), words(3)))
    reader.refuses_scripts_and_the_network()


def test_hostile_tokens_are_shown_as_they_are(reader: Reader) -> None:
    reader.messages()
    reader.open(toy_maps(HOSTILE, HOSTILE[::-1], text="</script><script>window.broken=1</script>"))
    reader.choose("kind", "cross")
    for side, expected in [("left", HOSTILE[::-1]), ("right", HOSTILE)]:
        labels = reader.run(
            f"return [...document.querySelectorAll('#{side} .label')].map(e => [e.textContent, e.title])"
        )
        assert labels == [[token, token] for token in expected]
    for view in VIEWS:
        reader.choose("view", view)
        assert reader.run(GEOMETRY)["faults"] == []
        reader.screenshot(f"{view}-hostile-1280")
    assert reader.run("return window.broken ?? 0") == 0
    assert reader.messages() == []


def test_every_weight_of_at_least_a_hundredth_has_a_line(reader: Reader) -> None:
    maps = toy_maps(words(6), words(5))
    reader.open(maps)
    for kind, weights in [("encoder", maps.encoder_YHSS), ("decoder", maps.decoder_YHTT), ("cross", maps.cross_YHTS)]:
        reader.choose("kind", kind)
        for layer in range(2):
            reader.choose_all_heads_of(layer)
            assert reader.lines() == weights_drawn(weights[layer].numpy())
    reader.choose("heads", 1)
    assert {head for head, _, _ in reader.lines()} == {0, 2, 3}
    assert reader.title() == "Cross-attention, layer 2 of 2, heads 1, 3, 4"
    reader.one("#none").click()
    assert reader.lines() == set()


@pytest.mark.parametrize("how", ["mouse", "keyboard"])
def test_a_token_that_is_pointed_at_shows_only_its_own_lines_and_weights(reader: Reader, how: str) -> None:
    maps = toy_maps(words(6), words(5))
    weights = maps.cross_YHTS[1].numpy()
    reader.open(maps)
    reader.choose("kind", "cross")
    reader.choose_all_heads_of(1)
    everything = weights_drawn(weights)
    for side, index in [("left", 2), ("right", 3)]:
        button = reader.all(f"#{side} button")[index]
        if how == "mouse":
            ActionChains(reader.driver).move_to_element(button).perform()
        else:
            reader.run("arguments[0].focus()", button)
        of_token = {line for line in everything if line[1 if side == "left" else 2] == index}
        assert reader.lines() == of_token != everything
        mean = weights.mean(0)[index] if side == "left" else weights.mean(0)[:, index]
        numbers = [e.text for e in reader.all(f"#{'right' if side == 'left' else 'left'} .number")]
        assert numbers == [f"{weight:.2f}" if weight >= 0.005 else "" for weight in mean.astype(np.float64)]
        text = reader.one("#detail").text
        assert text.startswith(f"{(maps.written if side == 'left' else maps.source)[index]}")
        assert f"{(weights[0, index] if side == 'left' else weights[0, :, index]).max():.2f}" in text
    if how == "mouse":
        ActionChains(reader.driver).move_to_element(reader.one("h1")).perform()
    else:
        reader.run("document.activeElement.blur()")
    assert reader.lines() == everything


def test_a_token_that_was_clicked_stays_until_a_second_click_or_escape(reader: Reader) -> None:
    maps = toy_maps(words(6), words(5))
    reader.open(maps)
    reader.choose_all_heads_of(1)
    for rows in [{2}, set(range(6)), {2}]:
        click = ActionChains(reader.driver).click(reader.all("#left button")[2])
        click.move_to_element(reader.one("h1")).perform()
        assert {row for _, row, _ in reader.lines()} == rows
    reader.choose("layer", 0)
    assert reader.lines() == {line for line in weights_drawn(maps.encoder_YHSS[0].numpy()) if line[1] == 2}
    reader.run("document.querySelectorAll('#left button')[2].focus()")
    reader.press(Keys.ESCAPE)
    assert {row for _, row, _ in reader.lines()} == set(range(6))


def test_the_page_opens_at_the_heads_with_the_strongest_links(reader: Reader) -> None:
    maps = toy_maps(words(6), words(5))
    # Layer 1: head 3 gives each word the one that is two behind it, head 2 most of it.
    linked_SS = torch.eye(6)[[2, 3, 4, 0, 1, 5]]
    maps.encoder_YHSS[0, 2], maps.encoder_YHSS[0, 1] = linked_SS, 0.9 * linked_SS + 0.1 / 6
    maps.encoder_YHSS[0, 0] = maps.encoder_YHSS[0, 3] = maps.encoder_YHSS[1] = torch.eye(6)  # each to itself
    maps.encoder_YHSS[1, 3] = torch.eye(6).roll(1, 0)  # each to the one before
    reader.driver.get("about:blank")
    reader.open(maps)
    assert reader.title() == "Encoder self-attention, layer 1 of 2, heads 2, 3"
    reader.choose_all_heads_of(1)
    reader.choose("kind", "cross")
    assert reader.title() == "Cross-attention, layer 2 of 2, all 4 heads"  # what the reader has chosen stays
    reader.choose("kind", "encoder")
    reader.run("document.querySelector('#strongest-heads').click()")
    assert reader.title() == "Encoder self-attention, layer 1 of 2, heads 2, 3"
    assert reader.run("return [...document.querySelectorAll('[name=heads]')].map((one) => one.checked)") == [
        *(False, True, True, False)
    ]


def test_the_address_opens_the_page_at_a_layer_heads_and_a_token(reader: Reader) -> None:
    maps = toy_maps(words(6), words(5))
    token = maps.read[2]
    reader.driver.get("about:blank")  # an address that differs in its fragment alone would not load the page
    reader.open(maps, fragment=f"#kind=decoder&layer=1&heads=2&token={token.removeprefix('▁')}")
    assert reader.one("#what").text == f"Decoder self-attention, layer 1 of {len(maps.decoder_YHTT)}, head 2"
    assert [one.get_attribute("aria-label") for one in reader.all("#left [aria-pressed=true]")] == [
        f"{token}, 3 of {len(maps.read)}"
    ]
    checked = reader.run("return [...document.querySelectorAll('[name=heads]')].map((one) => one.checked)")
    assert checked == [head == 1 for head in range(len(checked))]
    reader.run("location.hash = 'kind=encoder&heads=1&words=1'")  # another link into the open page
    WebDriverWait(reader.driver, 5).until(lambda _: reader.one("#what").text.startswith("Encoder"))
    assert reader.one("#what").text == f"Encoder self-attention, layer 1 of {len(maps.encoder_YHSS)}, head 1"
    assert reader.run("return document.querySelector('[name=merged]').checked")


def test_an_address_that_names_what_is_not_there_opens_the_page_as_ever(reader: Reader) -> None:
    reader.driver.get("about:blank")
    reader.open(toy_maps(words(6), words(5)), fragment="#kind=x%22]&layer=99&heads=0,77&token=nowhere&view=steps")
    named = reader.title()
    reader.open(toy_maps(words(6), words(5)))
    assert reader.title() == named
    assert reader.messages() == []


def test_the_keyboard_alone_reaches_and_changes_everything(reader: Reader) -> None:
    reader.open(toy_maps(words(6), words(5)))
    reader.tab_to("view")
    reader.tab_to("kind")
    reader.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    reader.tab_to("layer")
    reader.press(Keys.ARROW_LEFT)
    assert reader.focused() == "layer"
    shown = reader.title()
    other = {"1": "2", "2": "1"}[shown.partition(", layer ")[2][0]]
    reader.press(Keys.ARROW_RIGHT)
    assert reader.title().startswith(f"Cross-attention, layer {other} of 2, head")
    reader.choose_all_heads_of(0)
    assert reader.title() == "Cross-attention, layer 1 of 2, all 4 heads"
    reader.tab_to("merged")
    reader.tab_to("heads")
    reader.press(Keys.SPACE)
    assert reader.title() == "Cross-attention, layer 1 of 2, heads 2, 3, 4"
    reader.tab_to("none")
    reader.press(Keys.ENTER)
    assert reader.title() == "Cross-attention, layer 1 of 2, no head"
    reader.run("document.body.tabIndex = -1; document.body.focus()")
    reader.tab_to("all")
    reader.press(Keys.ENTER)
    reader.tab_to("left")
    reader.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert {row for _, row, _ in reader.lines()} == {2}
    reader.press(Keys.ARROW_RIGHT, Keys.END)
    assert {column for _, _, column in reader.lines()} == {5}
    outline = reader.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_the_keyboard_moves_through_matrix_and_small_multiples(reader: Reader) -> None:
    maps = toy_maps(words(6), words(5))
    reader.open(maps)
    reader.choose("layer", 1)
    reader.tab_to("view")
    reader.press(Keys.ARROW_RIGHT)
    reader.tab_to("head")
    reader.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert reader.title() == "Encoder self-attention, layer 2 of 2, head 2"
    reader.tab_to("cell")
    reader.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert np.float32(reader.one("#cell-value strong").text) == maps.encoder_YHSS[1, 1, 1, 2].numpy()
    reader.run("document.querySelector('[name=view]:checked').focus()")
    reader.press(Keys.ARROW_RIGHT)
    reader.tab_to("query")
    reader.press(Keys.ARROW_RIGHT)
    assert reader.one("#strongest").text.startswith(maps.source[1])
    reader.tab_to("key")
    reader.press(Keys.ARROW_DOWN)
    best = maps.encoder_YHSS[:, :, 1, 0].numpy().max()
    assert np.float32(reader.one("#strongest strong").text.split(": ")[1]) == best
    reader.tab_to("strip")
    reader.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert reader.one("#strip-value").text.startswith("Layer 2, head 2: ")
    reader.press(Keys.ENTER)
    assert reader.title() == "Encoder self-attention, layer 2 of 2, head 2"
    assert {(head, row) for head, row, _ in reader.lines()} == {(1, 1)}
    assert reader.focused() == "left"


# ---- Output steps


@pytest.mark.parametrize("width", [1280, 400])
def test_every_step_has_its_likeliest_tokens_and_its_hypotheses(reader: Reader, width: int) -> None:
    tokens = words(9, long=True)
    explanation = toy_explanation(tokens, n_beams=3)
    reader.messages()
    reader.open(toy_maps(words(5), tokens), width=width, explanation=explanation)
    reader.choose("view", "steps")
    assert reader.title() == "What comes out, step by step"
    cards = reader.run(
        "return [...document.querySelectorAll('.card')].map(card => "
        "[...card.querySelectorAll('.label')].map(e => e.textContent))"
    )
    assert cards == [[one["token"], *(option["token"] for option in one["likeliest"])] for one in explanation["steps"]]
    boxes = reader.run(
        "return [...document.querySelectorAll('.hypothesis')].map(({dataset, classList: {value}}) => "
        "[Number(dataset.node), /best/.test(value), value.match(/kept|finished|dropped/)[0]])"
    )
    path = [0, *explanation["path"]]
    assert sorted(boxes)[1:] == [[one["id"], one["id"] in path, one["fate"]] for one in explanation["hypotheses"]]
    assert len(reader.all("#tree path")) == len(explanation["hypotheses"])
    ranked = [" ".join(row.text.split()) for row in reader.all("#ranking tbody tr")]
    assert ranked[1].endswith("other … not finished")
    pickers = "['kind-picker', 'token-picker', 'layer-picker']"
    hidden = reader.run(f"return {pickers}.map(id => document.getElementById(id).hidden)")
    assert hidden == [True, True, True]
    assert reader.run("return document.documentElement.scrollWidth <= innerWidth")
    assert [f for f in reader.run(GEOMETRY)["faults"] if "leaves the page" not in f] == []
    reader.screenshot(f"steps-{width}")
    reader.choose("view", "matrix")
    assert reader.one("#matrix-view").is_displayed()
    assert reader.messages() == []


def test_the_keyboard_walks_through_the_tree_of_hypotheses(reader: Reader) -> None:
    tokens = ["▁Ein", "▁Hund", ".", "</s>"]
    explanation = toy_explanation(tokens)
    reader.open(toy_maps(words(5), tokens), explanation=explanation)
    reader.tab_to("view")
    reader.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert reader.title() == "What comes out, step by step"
    reader.tab_to("hypothesis")
    reader.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert reader.one("#node h3").text == "Ein Hund"
    of_id = {one["id"]: one for one in explanation["hypotheses"]}
    node = of_id[int(reader.run("return document.activeElement.dataset.node"))]
    assert (node["step"], node["token"]) == (2, "▁Hund")
    assert f"{node['log_prob']:.3f}" in reader.one("#node").text
    assert f"{node['score']:.3f}" in reader.one("#node").text
    assert len(reader.all("#node .bars li")) == len(explanation["next"]["0"])
    reader.press(Keys.ARROW_DOWN)
    assert reader.one("#node h3").text == "Ein other1"
    reader.press(Keys.ARROW_LEFT)
    assert reader.one("#node h3").text == "Ein"
    reader.press(Keys.END)
    assert "finished" in reader.one("#node").text
    assert reader.run("return document.querySelectorAll('.hypothesis.line').length") == 1 + len(tokens)
    reader.press(Keys.HOME)
    assert reader.one("#node h3").text == "<s>"
    reader.tab_to("ranked")
    reader.press(Keys.ENTER)
    assert reader.focused().split(" ")[0] == "hypothesis"
    assert reader.one("#node h3").text == "Ein Hund."


def test_targets_stand_beside_what_is_predicted(reader: Reader) -> None:
    tokens = ["▁a", "▁b", "</s>"]
    for smoothing in (0.1, None):
        reader.messages()
        reader.open(toy_maps(words(5), tokens), explanation=toy_targets(tokens, smoothing=smoothing))
        reader.choose("view", "steps")
        assert reader.title() == "The given translation, step by step"
        assert not reader.one("#beam").is_displayed()
        widths = reader.run(
            "const share = (e) => e.getBoundingClientRect().width / e.parentNode.clientWidth;"
            "return [...document.querySelectorAll('.card:first-child .track')]"
            ".map(track => [...track.children].map(e => [e.className, share(e)]))"
        )
        other, target = [dict(row) for row in widths]
        assert other["bar"] == pytest.approx(0.7, abs=0.02)
        assert target["bar"] == pytest.approx(0.22, abs=0.02)
        assert ("one-hot" in other, "one-hot" in target) == (False, True)
        if smoothing is None:
            assert "smoothed" not in target
        else:
            assert target["smoothed"] == pytest.approx(0.9125, abs=0.02)
            assert "spread evenly over 8 tokens" in reader.one("#legend").text
        assert reader.messages() == []


def test_a_page_without_steps_does_not_offer_them(reader: Reader) -> None:
    reader.open(toy_maps(words(5), words(4)))
    assert not reader.one("#steps-option").is_displayed()


def test_the_largest_tree_is_drawn_within_a_second(reader: Reader, figures: Callable[[str, str], None]) -> None:
    reader.open(toy_maps(words(60), words(60)), explanation=toy_explanation(words(60), n_beams=10))
    milliseconds = reader.run(
        "const start = performance.now(); document.querySelector('[name=view][value=steps]').click();"
        "document.body.offsetHeight; return performance.now() - start"
    )
    figures("attention page, 1,200 hypotheses", f"{milliseconds:.0f} ms")
    assert milliseconds <= 1000


def matrix_shown(reader: Reader) -> np.ndarray:
    """The weights in the matrix, as float32."""
    labels = reader.run("return [...document.querySelectorAll('#matrix tbody td')].map(cell => cell.ariaLabel)")
    weights = np.array([np.float32(label.rsplit(": ", 1)[1]) for label in labels])
    return weights.reshape(len(reader.all("#matrix tbody tr")), -1)


def test_the_matrix_has_each_weight_to_the_bit_and_the_mean_of_heads(reader: Reader) -> None:
    maps = toy_maps(words(6), words(5), n_heads=3)
    reader.open(maps)
    reader.choose("view", "matrix")
    reader.choose("kind", "cross")
    reader.choose("layer", 1)
    mean = maps.cross_YHTS[1].numpy().astype(np.float64).mean(0)
    np.testing.assert_allclose(matrix_shown(reader), mean, rtol=1e-7)
    for head in range(3):
        reader.choose("head", head)
        weights = maps.cross_YHTS[1, head].numpy()
        assert np.array_equal(matrix_shown(reader), weights)
        printed = reader.run("return [...document.querySelectorAll('#matrix tbody td')].map(cell => cell.innerText)")
        assert printed == [f"{w:.2f}"[1:] if w >= 0.005 else "" for w in weights.astype(np.float64).flatten()]
    cell = reader.all("#matrix tbody td")[9]  # row 2, column 4
    ActionChains(reader.driver).move_to_element(cell).perform()
    assert np.float32(reader.one("#cell-value strong").text) == maps.cross_YHTS[1, 2, 1, 3].numpy()


def test_merged_words_take_the_sum_over_keys_and_the_mean_over_queries(reader: Reader) -> None:
    source, written = ["▁She", "▁sa", "t", ".", "</s>"], ["▁El", "le", "▁s'est", "</s>"]
    maps = toy_maps(source, written)
    reader.open(maps)
    reader.merge_subwords()
    assert [e.text for e in reader.all("#left .label")] == ["She", "sat.", "</s>"]
    reader.choose("kind", "decoder")
    assert [e.text for e in reader.all("#left .label")] == ["<s>", "Elle", "s'est"]
    reader.choose("kind", "cross")
    assert [e.text for e in reader.all("#left .label")] == ["Elle", "s'est", "</s>"]
    assert [e.text for e in reader.all("#right .label")] == ["She", "sat.", "</s>"]
    reader.choose("view", "matrix")
    reader.choose("layer", 1)
    reader.choose("head", 1)
    w = maps.cross_YHTS[1, 1].numpy().astype(np.float64)
    rows = np.stack([(w[0] + w[1]) / 2, w[2], w[3]])
    expected = np.stack([rows[:, 0], rows[:, 1:4].sum(1), rows[:, 4]], axis=1)
    shown = matrix_shown(reader)
    np.testing.assert_allclose(shown, expected, rtol=1e-6)
    np.testing.assert_allclose(shown.sum(1), 1, atol=1e-6)


def test_merged_words_decode_byte_fallback_and_leave_omitted_tokens_apart(reader: Reader) -> None:
    reader.open(toy_maps(["▁5", "<0xE2>", "<0x82>", "<0xAC>", "…", "</s>"], ["▁a", "<0xFF>", "…", "▁b", "</s>"]))
    reader.merge_subwords()
    assert [e.text for e in reader.all("#left .label")] == ["5€", "…", "</s>"]
    reader.choose("kind", "cross")
    assert [e.text for e in reader.all("#left .label")] == ["a\N{REPLACEMENT CHARACTER}", "…", "b", "</s>"]


def test_small_multiples_name_the_strongest_key_of_each_head_and_of_all(reader: Reader) -> None:
    maps = toy_maps(words(6), words(5), n_layers=3)
    reader.open(maps)
    reader.choose("view", "token")
    reader.choose("kind", "cross")
    reader.choose("query", 2)
    weights = maps.cross_YHTS[:, :, 2].numpy()
    assert [e.text for e in reader.all(".strip .label")] == [maps.source[k] for k in weights.argmax(-1).flatten()]
    layer, head, key = np.unravel_index(weights.argmax(), weights.shape)
    assert reader.one("#strongest").text.split() == (
        f"{maps.written[2]} attends most to {maps.source[key]} in layer {layer + 1}, head {head + 1}: "
        f"{reader.one('#strongest strong').text.split(': ')[1]}".split()
    )
    assert np.float32(reader.one("#strongest strong").text.split(": ")[1]) == weights.max()
    best = reader.one(".strip.best")
    assert (best.get_attribute("data-layer"), best.get_attribute("data-head")) == (str(layer), str(head))


def test_more_heads_than_colours_differ_in_their_dashes(reader: Reader) -> None:
    reader.open(toy_maps(words(5), words(5), n_heads=16))
    script = (
        "return [...document.querySelectorAll('#heads .mark path')]"
        ".map(p => getComputedStyle(p).stroke + getComputedStyle(p).strokeDasharray)"
    )
    assert len(set(reader.run(script))) == 16
    reader.screenshot("head-16-heads-1280")


def test_merged_words_on_the_page_are_those_of_heat_maps_and_json(reader: Reader) -> None:
    source = ["▁5", "<0xE2>", "<0x82>", "<0xAC>", "▁a", "b", ".", "▁", "c", "</s>"]
    maps = toy_maps(source, ["x", "y", "▁", "▁z", "'", "q", "</s>"])
    expected = merge_subwords(maps)
    reader.open(maps)
    reader.merge_subwords()
    reader.choose("view", "matrix")
    for kind in ("encoder", "decoder", "cross"):
        reader.choose("kind", kind)
        reader.choose("layer", 1)
        reader.choose("head", 1)
        rows = reader.run("return [...document.querySelectorAll('#matrix tbody th .label')].map(e => e.textContent)")
        weights_shown = reader.run(
            "return [...document.querySelectorAll('#matrix tbody td')].map(c => Number(c.ariaLabel.split(': ').at(-1)))"
        )
        weights = getattr(expected, {"encoder": "encoder_YHSS", "decoder": "decoder_YHTT", "cross": "cross_YHTS"}[kind])
        wanted = {"encoder": expected.source, "decoder": expected.read, "cross": expected.written}[kind]
        assert [row.replace("▁", "") for row in rows] == [row.replace("▁", "") for row in wanted]
        assert np.allclose(np.reshape(weights_shown, weights[-1, 1].shape), weights[-1, 1], atol=1e-6)


@pytest.mark.parametrize("view", VIEWS)
def test_a_page_prints_as_one_sheet_in_black_on_white_without_controls(reader: Reader, view: str) -> None:
    reader.open(toy_maps(words(20), words(20)))
    reader.choose("view", view)
    reader.run("addEventListener('beforeprint', () => { window.printed = true; })")
    reader.media(**DARK)
    screen = reader.run("return getComputedStyle(document.body).backgroundColor")
    pdf = reader.pdf()
    assert reader.run("return window.printed")
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    reader.media(media="print", **DARK)
    assert reader.run(COLOURS) == ["rgb(255, 255, 255)", "rgb(0, 0, 0)"] != [screen]
    assert not [e for e in reader.all("[name=view], [name=kind], #all, [name=query]") if e.is_displayed()]
    assert not [e for e in reader.all(".hint") if e.is_displayed()]
    reader.screenshot(f"{view}-printed-800")
    reader.media()


def test_a_large_page_paints_soon(reader: Reader, figures: Callable[[str, str], None]) -> None:
    maps = toy_maps(words(30), words(30), n_layers=6, n_heads=8)
    milliseconds = []
    for _ in range(OPENINGS):
        reader.open(maps)
        milliseconds.append(first_paint(reader))
    figures(f"attention page, first contentful paint, best of {OPENINGS}", f"{min(milliseconds):.0f} ms")
    assert 0 < min(milliseconds) <= 1000
