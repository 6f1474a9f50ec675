"""The HTML page of attention maps as text; test_page_in_browser.py opens it in a browser."""

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
import torch

from tests.addons.attention_maps.toy_attention_maps import HOSTILE, toy_explanation, toy_maps, words
from transformer_cli.addons.attention_maps.maps import AttentionMaps
from transformer_cli.addons.attention_maps.page import render

TEXT = "</title></style><script>window.broken=1</script> & \"q\" 'a' <b> مرحبا 👩‍👩‍👧‍👦 $script <!-- \\u003c"


class Elements(HTMLParser):
    """Start tags of a page, and text by the id, the class or the name of its element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self.current = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.current = dict(attrs).get("id") or dict(attrs).get("class") or tag

    def handle_endtag(self, tag: str) -> None:
        self.current = ""

    def handle_data(self, data: str) -> None:
        self.texts[self.current] = self.texts.get(self.current, "") + data


@pytest.fixture
def maps() -> AttentionMaps:
    return toy_maps(words(5), words(4))


def test_the_page_loads_nothing_from_elsewhere(maps: AttentionMaps) -> None:
    page = render(maps)
    assert not re.search(r"https?:|//[a-z]|@import|url\(|\bfetch\b|XMLHttp|\bimport\b", without_data(page))
    attributes = [(name, value) for _, attrs in Elements(page).tags for name, value in attrs.items()]
    assert [value for name, value in attributes if name in ("src", "href", "action", "srcset")] == ["data:,"]
    assert not [name for name, _ in attributes if name.startswith("on") or name == "style"]


def without_data(page: str) -> str:
    """The page less its weights, whose base64 may spell anything."""
    return re.sub(r'(<script type="text/plain" id="\w+">)[^<]*', r"\1", page)


def test_the_policy_allows_only_the_style_and_the_script_of_the_page(maps: AttentionMaps) -> None:
    elements = Elements(render(maps))
    (policy,) = [attrs["content"] for tag, attrs in elements.tags if attrs.get("http-equiv")]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for kind in ("script", "style"):
        sha256 = base64.b64encode(hashlib.sha256(elements.texts[kind].encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{sha256}'"
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}


@pytest.mark.parametrize("name", ["encoder_YHSS", "decoder_YHTT", "cross_YHTS"])
def test_weights_come_back_as_they_were_to_the_bit(maps: AttentionMaps, name: str) -> None:
    elements = Elements(render(maps))
    weights = getattr(maps, name)
    kind = name.split("_")[0]
    content = base64.b64decode(elements.texts[kind], validate=True)
    back = torch.frombuffer(bytearray(content), dtype=torch.float32)
    shape = json.loads(elements.texts["maps"])["shapes"][kind]
    assert torch.equal(back.view(shape), weights)


def test_a_transposed_tensor_is_written_in_the_order_of_its_dimensions(maps: AttentionMaps) -> None:
    turned = maps.encoder_YHSS.mT
    page = render(dataclasses.replace(maps, encoder_YHSS=turned))
    assert base64.b64decode(Elements(page).texts["encoder"]) == turned.contiguous().numpy().tobytes()


def test_hostile_tokens_are_unchanged_and_inject_no_element(maps: AttentionMaps) -> None:
    page = render(toy_maps(HOSTILE, HOSTILE[::-1], text=TEXT))
    elements = Elements(page)
    data = json.loads(elements.texts["maps"])
    assert data["source"] == HOSTILE
    assert data["written"] == HOSTILE[::-1]
    assert data["read"] == ["<s>", *HOSTILE[:0:-1]]
    assert elements.tags == [(tag, attrs) for tag, attrs in Elements(render(maps)).tags]


def test_steps_with_hostile_tokens_are_unchanged_and_inject_no_element(maps: AttentionMaps) -> None:
    explanation = toy_explanation(HOSTILE)
    elements = Elements(render(maps, explanation))
    assert json.loads(elements.texts["explanation"]) == explanation
    assert elements.tags == [(tag, attrs) for tag, attrs in Elements(render(maps)).tags]
    assert json.loads(Elements(render(maps)).texts["explanation"]) is None


def test_texts_are_shown_as_they_are() -> None:
    elements = Elements(render(toy_maps(words(3), words(3), text=TEXT)))
    assert elements.texts["title"] == f"Attention: {TEXT}"
    assert elements.texts["model"] == TEXT
    assert elements.texts["note"] == TEXT
    assert elements.texts["bdi"] == TEXT + TEXT


def test_equal_maps_give_equal_pages(maps: AttentionMaps) -> None:
    again = toy_maps(words(5), words(4))
    assert render(maps) == render(again)
    assert render(maps) != render(toy_maps(words(5), words(4), seed=2))


def test_thirty_and_thirty_tokens_six_layers_and_eight_heads_fit_in_three_megabytes(
    figures: Callable[[str, str], None],
) -> None:
    size = len(render(toy_maps(words(30), words(30), n_layers=6, n_heads=8)).encode())
    figures("attention page, 30 + 30 tokens, 6 layers, 8 heads", f"{size / 1e6:.2f} MB")
    assert size <= 3e6
