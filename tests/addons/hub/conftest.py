"""A hub with one small model of Hugging Face, and a folder to work in."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.addons.hub.hub_server import NAME, HubServer, files_of, point_to, serving
from tests.addons.interop.toy_huggingface import opus
from tests.toy.translator import sentences
from transformer_cli.addons.hub import opening

CARD = {"license": "cc-by-4.0", "language": ["en", "de"]}
UNUSED = {
    "README.md": b"---\nlicense: cc-by-4.0\n---\n",
    "tf_model.h5": b"x" * 5000,
    "pytorch_model.bin": b"y" * 5000,
    "onnx/model.onnx": b"z" * 5000,
    ".gitattributes": b"",
}


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a model, as transformers writes them."""
    folder = tmp_path_factory.mktemp("opus") / "opus"
    opus(folder)
    return files_of(folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> Iterator[HubServer]:
    monkeypatch.setattr(opening, "_said", set())
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # huggingface_hub waits before it tries again
    with serving() as server:
        server.publish(NAME, {**files, **UNUSED}, card=CARD)
        point_to(server.url, tmp_path, monkeypatch)
        yield server


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder beside the caches, with a text of five lines."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "text").write_text("".join(f"{line}\n" for line in sentences(5, seed=5)), encoding="utf-8")
    return folder
