"""`tfm push`, to a hub on this machine."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.addons.hub.hub_server import TOKEN, HubServer, files_of
from tests.addons.interop.test_export import model_file
from tests.support.contract import refused, run
from transformer_cli.addons.hub import run_push
from transformer_cli.addons.hub.keys import PushConfig
from transformer_cli.addons.interop.conversions import conversion_of
from transformer_cli.data.hashes import file_sha256
from transformer_cli.models.file import model_pieces

# Of httpx2, for how huggingface_hub sends a large file where its own storage is not used.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
PUSH = ["push", "hf:me/model", "--yes", "--checkpoint"]


@pytest.fixture
def folder(hub: HubServer, work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of ours, and an export of it, and a token for the hub."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    (work / "m.safetensors").write_bytes(b"".join(model_pieces(model_file())))
    return work


def export(folder: Path, *, license: str | None = "mit", card: bytes | None = b"# A card\n") -> Path:
    """An export for CTranslate2, whose facts and card are as `tfm export` writes them."""
    pytest.importorskip("ctranslate2")
    place = conversion_of(folder / "m.safetensors").directory
    facts = json.loads((place / "export.json").read_bytes()) | {"license": license}
    if card is not None:
        (place / "README.md").write_bytes(card)
        facts["files"]["README.md"] = file_sha256(place / "README.md")
    (place / "export.json").write_text(json.dumps(facts), encoding="utf-8")
    return place


def newest(hub: HubServer) -> dict[str, bytes]:
    repository = hub.repositories["me/model"]
    return repository.commits[repository.names["main"]]


def writes(hub: HubServer) -> list[str]:
    return [request.path for request in hub.requests if request.method in ("POST", "PUT")]


def test_a_model_is_pushed_with_a_card_and_opens_from_there(hub: HubServer, folder: Path) -> None:
    ran = run([*PUSH, "m.safetensors", "--license", "cc-by-4.0"], folder)
    assert ran.code == 0, ran.err
    commit = hub.repositories["me/model"].names["main"]
    assert ran.out.decode().startswith(f"hf:me/model: commit {commit[:12]}, {hub.url}/")
    assert newest(hub).keys() == {"model.safetensors", "README.md"}
    assert newest(hub)["model.safetensors"] == (folder / "m.safetensors").read_bytes()
    header = yaml.safe_load(newest(hub)["README.md"].decode().split("---\n")[1])
    assert (header["license"], header["library_name"]) == ("cc-by-4.0", "transformer-cli")
    assert b"tfm translate --checkpoint hf:me/model" in newest(hub)["README.md"]
    there = run(["translate", "--checkpoint", "hf:me/model", "--input", "text"], folder)
    assert there.code == 0, there.err
    assert there.out == run(["translate", "--checkpoint", "m.safetensors", "--input", "text"], folder).out
    assert not hub.repositories["me/model"].is_private


def test_an_export_is_pushed_and_runs_from_there(hub: HubServer, folder: Path) -> None:
    place = export(folder)
    before = files_of(place)
    ran = run([*PUSH, str(place), "--private"], folder)
    assert ran.code == 0, ran.err
    assert hub.repositories["me/model"].is_private
    assert newest(hub).keys() == before.keys()
    header = yaml.safe_load(newest(hub)["README.md"].decode().split("---\n")[1])
    assert (header["license"], header["library_name"]) == ("mit", "ctranslate2")
    assert newest(hub)["README.md"].endswith(b"# A card\n")
    assert files_of(place) == before
    there = run(["translate", "--checkpoint", "hf:me/model", "--input", "text"], folder)
    assert there.code == 0, there.err
    assert run(["inspect", "hf:me/model"], folder).code == 0, "its files have the hashes that it lists"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["push"], 2, ["no address given", "Name the repository"]),
        (["push", "me/model"], 2, ["tfm push me/model: no address of the hub. Write hf:OWNER/NAME"]),
        (["push", "hf:model", "--yes"], 2, ["names no repository"]),
        (["push", "hf:me/model@v1", "--yes"], 2, ["or a revision of one"]),
        (["push", "hf:../x", "--yes"], 2, ["'hf:../x': no name of a model"]),
        ([*PUSH, "m.safetensors"], 2, ["m.safetensors: states no licence", "Add --license, as cc-by-4.0"]),
        ([*PUSH, "nowhere", "--license", "mit"], 4, ["nowhere: no such file or folder"]),
        ([*PUSH, "text", "--license", "mit"], 2, ["text: is no model of tfm"]),
        (
            ["push", "hf:me/model", "--checkpoint", "m.safetensors", "--license", "mit"],
            2,
            ["asks before it uploads, and standard input is no terminal. Add --yes"],
        ),
    ],
)
def test_what_is_not_pushed_is_one_line(
    arguments: list[str], code: int, says: list[str], hub: HubServer, folder: Path
) -> None:
    refused(arguments, folder, code=code, says=says, working="Add --yes" in says[-1])
    assert hub.requests == []


def test_an_export_without_a_card_a_licence_or_its_files_is_not_pushed(hub: HubServer, folder: Path) -> None:
    place = export(folder, card=None)
    refused([*PUSH, str(place)], folder, code=2, says=["has no card (README.md)", "Write it again with `tfm export"])
    place = export(folder, license=None)
    refused([*PUSH, str(place)], folder, code=2, says=["states no licence", "`tfm export ctranslate2 --license NAME`"])
    place = export(folder)
    refused([*PUSH, str(place), "--license", "mit"], folder, code=2, says=["has a card of its own"])
    (place / "model.bin").write_bytes(b"other")
    refused([*PUSH, str(place)], folder, code=4, says=["is not the file that was exported"])
    assert hub.requests == []


@pytest.mark.parametrize(
    ("token", "pattern", "status", "says"),
    [
        (None, "", 0, ["there is no token that may write there. Set HF_TOKEN, or run `hf auth login`"]),
        ("hf_other", "", 0, ["the token may not write there (401)"]),
        (TOKEN, "/api/repos/create", 403, ["the token may not write there (403)"]),
        (TOKEN, "/commit/", 403, ["the token may not write there (403)"]),
        (TOKEN, "/api/repos/create", 429, ["too many requests (429)"]),
        (TOKEN, "/upload/", 500, ["the hub answers 500"]),
    ],
)
def test_a_refusal_of_the_hub_is_one_line(
    token: str | None,
    pattern: str,
    status: int,
    says: list[str],
    hub: HubServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    if pattern:
        hub.faults.append((pattern, lambda handler: handler.refuse(status, "no")))
    refused([*PUSH, "m.safetensors", "--license", "mit"], folder, code=5, says=says, working=True)
    assert not any(repository.names for name, repository in hub.repositories.items() if name == "me/model")


def test_a_push_without_network_says_so(hub: HubServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    line = refused([*PUSH, "m.safetensors", "--license", "mit"], folder, code=5, says=["HF_HUB_OFFLINE"], working=True)
    assert "copy" not in line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "is_pushed"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_a_terminal_is_asked(
    answer: str,
    is_pushed: bool,
    hub: HubServer,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    run_push.run(PushConfig("hf:me/model", checkpoint=str(folder / "m.safetensors"), license="mit"))
    printed = capsys.readouterr()
    assert "Upload to hf:me/model? [y/N]" in printed.err
    assert bool(printed.out) == is_pushed
    assert bool(writes(hub)) == is_pushed


def test_a_model_of_the_hub_keeps_its_licence_when_it_is_pushed(
    hub: HubServer, folder: Path, files: dict[str, bytes]
) -> None:
    ran = run([*PUSH, "hf:toy/opus-mt-en-de"], folder)
    assert ran.code == 0, ran.err
    header = yaml.safe_load(newest(hub)["README.md"].decode().split("---\n")[1])
    assert (header["license"], header["base_model"]) == ("cc-by-4.0", "toy/opus-mt-en-de")


def test_what_is_shown_of_a_corpus_cannot_break_the_header(hub: HubServer, folder: Path) -> None:
    odd = replace(model_file(), target_lang="x: [", data={"name": "a\n---\nb", "task": "translation"})
    (folder / "m.safetensors").write_bytes(b"".join(model_pieces(odd)))
    ran = run([*PUSH, "m.safetensors", "--license", "my: own"], folder)
    if ran.code == 0:
        header = yaml.safe_load(newest(hub)["README.md"].decode().split("---\n")[1])
        assert (header["license"], header["license_name"]) == ("other", "my: own")
