"""The web page of `tfm serve` as text, and its routes; test_serve_page_in_browser.py opens it in a browser."""

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.addons.attention_maps.test_page import Elements
from tests.addons.interop.test_export import model_file
from tests.support.each import each
from transformer_cli.addons.attention_maps import page as attention_page
from transformer_cli.addons.serving.app import create_app
from transformer_cli.addons.serving.keys import ServeConfig
from transformer_cli.addons.serving.models import ModelTable
from transformer_cli.addons.serving.page.page import render
from transformer_cli.addons.serving.server import Server
from transformer_cli.addons.serving.service import Service
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.train import Device
from transformer_cli.data.hashes import file_sha256
from transformer_cli.models.file import write_model

SCRIPT = (files("transformer_cli.addons.serving.page") / "page.js").read_text(encoding="utf-8")


def client_of(*checkpoints: Path, **changes: Any) -> TestClient:
    names = [str(path) for path in checkpoints]
    config = ServeConfig(
        checkpoint=names, engine="torch", device=Device.cpu, decode=DecodeConfig(beam_size=2), **changes
    )
    app = create_app(Server(config, Service(config, ModelTable(config))))
    return TestClient(app, base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    paths = [folder / "de-en.safetensors", folder / "en-fr.safetensors"]
    for seed, (path, pair) in enumerate(zip(paths, [("de", "en"), ("en", "fr")], strict=True)):
        write_model(path, replace(model_file(seed=seed), source_lang=pair[0], target_lang=pair[1]))
    return paths


@pytest.fixture(scope="module")
def client(models: list[Path]) -> Iterator[TestClient]:
    with client_of(*models, pivot="en") as client:
        yield client


# ---- The page


def test_the_page_loads_nothing_and_names_no_other_place() -> None:
    page = render()
    assert not re.search(r"https?:|@import|url\(|\bimport\b|XMLHttp", page)
    attributes = [(name, value) for _, attrs in Elements(page).tags for name, value in attrs.items()]
    assert [value for name, value in attributes if name in ("src", "href", "action", "srcset")] == ["data:,"]
    assert not [name for name, _ in attributes if name.startswith("on") or name == "style"]


def test_the_policy_allows_its_own_server_and_the_script_of_the_attention_page() -> None:
    elements = Elements(render())
    (policy,) = [attrs["content"] for _, attrs in elements.tags if attrs.get("http-equiv")]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    common = (files("transformer_cli.addons.pages") / "common.css").read_text(encoding="utf-8")
    framed = files(attention_page.__package__)
    texts = {
        "script": [elements.texts["script"], (framed / "page.js").read_text(encoding="utf-8")],
        "style": [elements.texts["style"], common + (framed / "page.css").read_text(encoding="utf-8")],
    }
    for kind, allowed in texts.items():
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in allowed]
        assert rules[f"{kind}-src"].split() == [f"'sha256-{one}'" for one in hashes]


def test_the_script_sets_text_and_never_html() -> None:
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|setAttribute", SCRIPT
    )
    assert SCRIPT.count("srcdoc") == 1
    assert re.findall(r"sandbox\.add\(([^)]*)\)", SCRIPT) == ['"allow-scripts"']


def test_the_script_finds_every_element_that_it_names() -> None:
    ids = {attrs["id"] for _, attrs in Elements(render()).tags if attrs.get("id")}
    assert {name for name in re.findall(r'byId\("([\w-]+)"\)', SCRIPT)} <= ids


def test_every_control_has_a_label() -> None:
    tags = Elements(render()).tags
    labelled = {attrs["for"] for tag, attrs in tags if tag == "label"}
    for tag, attrs in tags:
        if tag in ("select", "textarea") or (tag == "input" and attrs["type"] != "file"):
            assert attrs["id"] in labelled


# ---- Its routes


def test_the_page_is_served_where_no_other_site_can_frame_it(client: TestClient, models: list[Path]) -> None:
    answer = client.get("/")
    assert (answer.status_code, answer.text) == (200, render())
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
    with client_of(models[0], page=False) as without:
        assert without.get("/").status_code == 404


def test_attention_is_the_page_of_the_given_translation_or_of_the_models_own(
    client: TestClient, models: list[Path]
) -> None:
    request = {"text": "the cat sat", "source": "de", "target": "en"}
    own = client.post("/api/translate", json=request).json()["translations"][0]["text"]
    for translation in ("a woman drank", None):
        answer = client.post(
            "/api/attention", json={**request, **({"translation": translation} if translation else {})}
        )
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"] == "sandbox allow-scripts"
        texts = re.findall(r"<bdi>(.*?)</bdi>", answer.text)
        assert texts == ["the cat sat", translation or own]


@each(
    "changes, message",
    [
        ({"text": ""}, "text: 0 tokens, and attention is shown of 1 to "),
        ({"text": "the cat " * 200}, "Give one sentence"),
        ({"text": "the cat\nsat"}, "text: several lines, and attention is shown of one"),
        ({"target": "fr"}, "attention: two models translate one after the other"),
        ({"target": "xx"}, "de → xx: no model"),
        ({"translations": "a"}, "'translations': no key of this request"),
        ({"translation": 1}, "translation: 1 is no text"),
    ],
)
def test_attention_that_cannot_be_shown_is_refused(client: TestClient, changes: dict[str, Any], message: str) -> None:
    request = {"text": "the cat sat", "source": "de", "target": "en", "translation": "a woman", **changes}
    answer = client.post("/api/attention", json=request)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_attention_is_never_that_of_another_model_file(models: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(models[0].read_bytes())
    with client_of(path) as client:
        path.write_bytes(models[1].read_bytes())
        assert file_sha256(path) != file_sha256(models[0])
        answer = client.post("/api/attention", json={"text": "the cat", "translation": "a"})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert "is being replaced" in answer.json()["error"]
