"""Names of the hub wherever a model is named, against a hub on this machine that serves small models."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.addons.hub.hub_server import HubServer, files_of, point_to, serving
from tests.addons.interop.toy_huggingface import opus
from tests.support.contract import run
from tests.toy.translator import sentences

NAME = "toy/opus-mt-en-de"
CARD = {"license": "cc-by-4.0", "language": ["en", "de"]}
UNUSED = {
    "README.md": b"---\nlicense: cc-by-4.0\n---\n",
    "tf_model.h5": b"x" * 5000,
    "pytorch_model.bin": b"y" * 5000,
    "onnx/model.onnx": b"z" * 5000,
    ".gitattributes": b"",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("opus") / "opus"
    opus(folder)
    return files_of(folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> Iterator[HubServer]:
    """A hub with one model of Hugging Face, and a text of five lines in the working folder."""
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in sentences(5, seed=5)), encoding="utf-8")
    with serving() as server:
        server.publish(NAME, {**files, **UNUSED}, card=CARD)
        point_to(server.url, tmp_path, monkeypatch)
        yield server


def kept_folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "tfm" / "hub"


def test_a_name_translates_and_later_uses_need_no_network(hub: HubServer, tmp_path: Path) -> None:
    first = run(["translate", "--checkpoint", f"hf:{NAME}", "--input", "text"], tmp_path)
    assert first.code == 0, first.err
    assert b"imported once" in first.err
    hub.requests.clear()
    again = run(["translate", "--checkpoint", f"hf:{NAME}", "--input", "text"], tmp_path)
    assert (again.code, again.out) == (0, first.out)
    assert hub.requests == []
    commit = hub.repositories[NAME].names["main"]
    assert f"hf:{NAME}: commit {commit[:12]}, kept since".encode() in again.err
