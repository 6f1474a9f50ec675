"""What goes wrong between a hub and here: one line each, nothing executed, nothing half-kept, downloads that go on."""

import errno
import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from tests.addons.hub.hub_server import LARGE, NAME, TOKEN, Handler, HubServer, Repository, files_of, git_sha1
from tests.addons.interop.toy_huggingface import opus
from tests.support.contract import refused
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.models.locate import locate_model

TRANSLATE = ["translate", "--input", "text", "--checkpoint"]
WEIGHTS = "model.safetensors"


class Bomb:
    def __reduce__(self) -> object:
        return os.system, ("touch exploded",)


def pickled() -> bytes:
    content = io.BytesIO()
    torch.save({"model.shared.weight": Bomb()}, content)
    return content.getvalue()


def changed(hub: HubServer, **files: bytes | None) -> None:
    """Another commit of the model. None takes a file away; `__` stands for a dot."""
    repository = hub.repositories[NAME]
    before = repository.commits[repository.names["main"]]
    changes = {name.replace("__", "."): content for name, content in files.items()}
    now: dict[str, Any] = {**before, **changes}
    repository.commit({name: content for name, content in now.items() if content is not None})


def answers(pattern: str, status: int, message: str = "", code: str = "", **headers: str) -> Callable[..., None]:
    def add(hub: HubServer, *_: object) -> None:
        hub.faults.append((pattern, lambda handler: handler.refuse(status, message, code, **headers)))

    return add


def with_token(token: str, change: Callable[..., object] = lambda *_: None) -> Callable[..., None]:
    def add(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", token)
        change(hub)

    return add


def not_there(hub: HubServer, *_: object) -> None:
    hub.repositories.clear()


def private(hub: HubServer, *_: object) -> None:
    hub.repositories[NAME].is_private = True


def lists(**entry: object) -> Callable[..., None]:
    """What the list says of the weights."""

    def change(hub: HubServer, *_: object) -> None:
        hub.repositories[NAME].lists[WEIGHTS] = entry

    return change


def sends(change: Callable[[bytes], bytes]) -> Callable[..., None]:
    """Other bytes are sent in place of the weights."""

    def add(hub: HubServer, *_: object) -> None:
        content = weights_of(hub)
        sha256 = hashlib.sha256(content).hexdigest()
        hub.faults.append((f"GET /lfs/{sha256}", lambda handler: handler.send_content(change(content), '"x"')))

    return add


def weights_of(hub: HubServer) -> bytes:
    return hub.repositories[NAME].commits[hub.repositories[NAME].names["main"]][WEIGHTS]


def listed(name: str) -> Callable[..., None]:
    def change(hub: HubServer, *_: object) -> None:
        repository = hub.repositories[NAME]
        repository.commits[repository.names["main"]][name] = b"x"

    return change


def offline(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def nobody(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")


def login_page(hub: HubServer, *_: object) -> None:
    hub.faults.append(("/api/", lambda handler: handler.send(b"<html>Log in</html>", Content_Type="text/html")))


def link_out_of_the_cache(hub: HubServer, *_: object) -> None:
    """A file of the cache that leads to another one of the user's."""
    import huggingface_hub.constants

    cache = Path(huggingface_hub.constants.HF_HUB_CACHE)
    (cache.parent / "precious").write_text("precious", encoding="utf-8")
    folder = cache / f"models--{NAME.replace('/', '--')}" / "snapshots" / hub.repositories[NAME].names["main"]
    folder.mkdir(parents=True)
    (folder / "vocab.json").symlink_to(cache.parent / "precious")


def full_disk(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


NO_MODEL = "the hub has no such model"
COPY = ["is not kept here", "Connect to the network", "copy toy--opus-mt-en-de*"]
# What is changed, the exit code, and what the line says.
FAULTS: dict[str, tuple[Callable[..., object], int, list[str]]] = {
    "no such model": (
        not_there,
        4,
        [f"hf:{NAME}: {NO_MODEL} (401)", "Check the name; for a private one, set HF_TOKEN"],
    ),
    "no such model, with a token": (with_token(TOKEN, not_there), 4, [f"{NO_MODEL} (404). Check the name"]),
    "a private one": (private, 4, [f"{NO_MODEL} (401)", "set HF_TOKEN"]),
    "a wrong token": (with_token("hf_other"), 5, ["the hub does not take the token (401)", "hf auth login"]),
    "gated": (
        answers("/resolve/", 403, "Access to model is restricted", "GatedRepo"),
        5,
        ["its owner gives it to those who ask (403)", f"/{NAME}, and set HF_TOKEN"],
    ),
    "gated, without a token": (answers("/resolve/", 401, "Restricted", "GatedRepo"), 5, ["to those who ask (401)"]),
    "too many requests": (
        answers("/api/models", 429, "Slow down", Retry_After="17"),
        5,
        ["too many requests (429). Run again in 17 seconds"],
    ),
    "too many downloads": (answers("GET /lfs/", 429, "Slow down"), 5, ["too many requests (429). Run again later"]),
    "a hub that fails": (answers("/api/models", 500), 5, ["the hub answers 500. Run again later"]),
    "storage that fails": (answers("GET /lfs/", 503), 5, ["the hub answers 503"]),
    "a login page": (login_page, 5, ["does not answer as a hub does", "Check HF_ENDPOINT"]),
    "a full disk": (
        lambda _, monkeypatch: monkeypatch.setattr("huggingface_hub.file_download.http_get", full_disk),
        5,
        ["No space left on device", "Make room or repair it"],
    ),
    "no network": (nobody, 5, ["http://127.0.0.1:9 cannot be reached", *COPY]),
    "offline mode": (offline, 5, ["HF_HUB_OFFLINE is set", *COPY]),
    "another hash": (sends(lambda content: content[:-1] + b"x"), 5, [f"{WEIGHTS} has another hash", "Run again"]),
    "another size": (lists(lfs={"sha256": "0" * 64, "size": 9999, "pointerSize": 130}), 5, [WEIGHTS, "Run again"]),
    "a small file with another hash": (
        lambda hub, *_: hub.repositories[NAME].lists.update({"config.json": {"blobId": git_sha1(b"other")}}),
        5,
        ["config.json has another hash than the hub lists"],
    ),
    "a file beside the folder": (listed("../evil"), 4, ["lists '../evil', no file of a folder"]),
    "a file anywhere": (listed("/etc/evil"), 4, ["lists '/etc/evil'"]),
    "a file of Windows": (listed("a\\..\\evil"), 4, ["no file of a folder"]),
    "a name with an escape": (listed("a\x1b[2J"), 4, ["no file of a folder"]),
    "code in a pickle": (
        lambda hub, *_: changed(hub, model__safetensors=None, pytorch_model__bin=pickled()),
        4,
        [f"hf:{NAME}/pytorch_model.bin: holds code", "which is not run"],
    ),
    "a link in place of weights": (
        lambda hub, *_: changed(hub, model__safetensors=b"../../precious"),
        4,
        [f"hf:{NAME}/{WEIGHTS}: damaged, or not of safetensors"],
    ),
    "a link out of the cache": (link_out_of_the_cache, 5, ["vocab.json has another size than the hub lists"]),
    "a shard that is missing": (
        lambda hub, *_: changed(
            hub,
            model__safetensors=None,
            pytorch_model__bin=None,
            **{
                "model__safetensors__index__json": json.dumps(
                    {"weight_map": {"a": "model-1-of-2.safetensors"}}
                ).encode()
            },
        ),
        4,
        ["model-1-of-2.safetensors: no such file, and the model needs it"],
    ),
    "another architecture": (
        lambda hub, *_: changed(hub, config__json=b'{"model_type": "mamba"}'),
        4,
        [f"hf:{NAME}: model_type=mamba: not one that tfm computes"],
    ),
    "no model at all": (
        lambda hub, *_: hub.repositories.update({NAME: Repository()}) or hub.publish(NAME, {"README.md": b""}),
        4,
        [f"hf:{NAME}: holds no model of a format that tfm reads (README.md)"],
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_and_keeps_nothing(
    name: str, hub: HubServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, code, says = FAULTS[name]
    change(hub, monkeypatch)
    refused([*TRANSLATE, f"hf:{NAME}"], work, code=code, says=says, working=True)
    kept = work.parent / "cache" / "tfm" / "hub"
    assert [path.name for path in kept.iterdir() if path.suffix != ".lock"] == []
    assert not list(work.parent.rglob("exploded"))
    assert all(path.read_text() == "precious" for path in work.parent.glob("precious"))


@pytest.fixture(scope="session")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a model in ten shards."""
    folder = tmp_path_factory.mktemp("shards") / "opus"
    opus(folder, shards=True)
    return files_of(folder)


FOURTH = "model-00004-of-00010.safetensors"
# What is sent in place of the fourth shard, None: nothing, and what the line says.
SHARDS: dict[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "shorter than its header says": (lambda content: content[:-100], "damaged, or not of safetensors"),
    "cut in its header": (lambda content: content[:50], "damaged, or not of safetensors"),
    "a header of 4 EB": (lambda content: (1 << 62).to_bytes(8, "little") + b"{}", "damaged, or not of safetensors"),
    "a pointer of git": (lambda _: b"version https://git-lfs.github.com/spec/v1\n", "damaged, or not of safetensors"),
    "missing": (lambda _: None, "no such file, and the model needs it"),
    "of another revision": (
        lambda content: save({name: tensor[:3].contiguous() for name, tensor in load(content).items()}),
        "but config.json asks for",
    ),
    "not numbers": (
        lambda content: save({name: tensor * torch.nan for name, tensor in load(content).items()}),
        "are not numbers",
    ),
}


@pytest.mark.parametrize("name", SHARDS)
def test_a_damaged_shard_is_one_line_and_goes_on_with_the_whole_ones(
    name: str, hub: HubServer, work: Path, parts: dict[str, bytes]
) -> None:
    """The hub has it that way: its hash is that of the list. What was received is not fetched again."""
    change, says = SHARDS[name]
    hub.repositories.clear()
    damaged = {**parts, FOURTH: change(parts[FOURTH])}
    hub.publish(NAME, {file: content for file, content in damaged.items() if content is not None})
    refused([*TRANSLATE, f"hf:{NAME}"], work, code=4, says=[says], working=True)
    assert [path.name for path in (work.parent / "cache/tfm/hub").iterdir() if path.suffix != ".lock"] == []
    hub.publish(NAME, parts)
    hub.requests.clear()
    assert locate_model(f"hf:{NAME}", "runs").is_file()
    sent = {request.path for request in hub.requests if request.path.startswith("/lfs/")}
    assert sent == {f"/lfs/{hashlib.sha256(parts[FOURTH]).hexdigest()}"}


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("../../../work/text", "names no files of the folder"),
        ("/etc/passwd", "names no files of the folder"),
        ("sub/model.safetensors", "names no files of the folder"),
        (5, "names no files of the folder"),
        ("config.json", "names 'config.json', no file .safetensors"),
        ("pytorch_model.bin", "names 'pytorch_model.bin', no file .safetensors"),
        ("model-00011-of-00010.safetensors", "no such file, and the model needs it"),
        (None, "is missing, but config.json asks for"),
    ],
)
def test_an_index_of_other_files_is_refused(
    file: object, says: str, hub: HubServer, work: Path, parts: dict[str, bytes]
) -> None:
    """None: the index leaves a shard out."""
    index = json.loads(parts["model.safetensors.index.json"])
    of_shards = index["weight_map"]
    index["weight_map"] = (
        {tensor: shard for tensor, shard in of_shards.items() if shard != FOURTH}
        if file is None
        else of_shards | {"a": file}
    )
    hub.repositories.clear()
    changes = {"model.safetensors.index.json": json.dumps(index).encode(), "pytorch_model.bin": pickled()}
    hub.publish(NAME, parts | changes)
    refused([*TRANSLATE, f"hf:{NAME}"], work, code=4, says=[says], working=True)
    assert [path.name for path in (work.parent / "cache/tfm/hub").iterdir() if path.suffix != ".lock"] == []
    assert not list(work.parent.rglob("exploded"))


@pytest.mark.parametrize(
    "name",
    ["../../x", "/etc/x", "a/../b", "a/b/c", "a--b/c", "a/b.git", "", "a/b@", "a/b@../c", "a b/c", "-a/b", "a/b@x y"],
)
def test_a_name_that_is_none_is_refused_before_anything_is_asked(name: str, hub: HubServer, work: Path) -> None:
    with pytest.raises(ConfigError, match="no name of a model on the hub"):
        locate_model(f"hf:{name}", "runs")
    assert hub.requests == []
    assert not (work.parent / "cache").exists()


def test_a_revision_that_is_not_there(hub: HubServer, work: Path) -> None:
    says = [f"hf:{NAME}@v9: the hub has no revision v9 of it (404)", "Check the name behind the @"]
    refused([*TRANSLATE, f"hf:{NAME}@v9"], work, code=4, says=says)


def test_a_package_that_is_not_installed_is_named(hub: HubServer, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    says = ["the package huggingface_hub cannot be imported", "`pip install '.[hub]'`"]
    refused([*TRANSLATE, f"hf:{NAME}"], work, code=5, says=says)


# ---- Cut connections


def cut_at(hub: HubServer, *places: int) -> None:
    """The connections are cut at these bytes of the weights, one after another."""
    content, left = weights_of(hub), list(places)
    sha256 = hashlib.sha256(content).hexdigest()

    def send(handler: Handler) -> None:
        start = int((handler.headers.get("Range") or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        stop = left.pop(0) - start if left else None
        handler.send_content(content, f'"{sha256}"', stop_after=stop)

    hub.faults.append((f"GET /lfs/{sha256}", send))


def ranges(hub: HubServer) -> list[str | None]:
    """The ranges of the weights that were asked for."""
    sha256 = hashlib.sha256(weights_of(hub)).hexdigest()
    return [request.range for request in hub.requests if request.path == f"/lfs/{sha256}"]


def test_a_connection_that_is_cut_at_each_tenth_goes_on_where_it_was(hub: HubServer, work: Path) -> None:
    size = len(weights_of(hub))
    assert size > 10 * LARGE
    tenths = [size * n // 10 for n in range(1, 10)]
    cut_at(hub, *tenths)
    assert locate_model(f"hf:{NAME}", "runs").is_file()
    assert ranges(hub) == [None, *(f"bytes={tenth}-" for tenth in tenths)]


def test_a_command_that_was_ended_goes_on_with_the_next_one(hub: HubServer, work: Path) -> None:
    half = len(weights_of(hub)) // 2
    cut_at(hub, *[half] * 6)  # the library tries again five times
    says = [f"the connection was cut at byte {half:,} of", WEIGHTS, "Run again to go on from there"]
    refused([*TRANSLATE, f"hf:{NAME}"], work, code=5, says=says, working=True)
    hub.requests.clear()
    model = locate_model(f"hf:{NAME}", "runs")
    assert ranges(hub) == [f"bytes={half}-"]
    assert WEIGHTS in hub.received()
    assert "config.json" not in hub.received(), "what is whole is not asked for again"
    assert model.is_file()
    assert not list(work.parent.rglob("*.incomplete"))


@pytest.mark.parametrize("left", [b"other bytes", b"x" * 10_000_000])
def test_what_another_program_has_left_of_a_file_is_not_trusted(left: bytes, hub: HubServer, work: Path) -> None:
    content = weights_of(hub)
    blobs = work.parent / "huggingface" / f"models--{NAME.replace('/', '--')}" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{hashlib.sha256(content).hexdigest()}.tfm.incomplete").write_bytes(left)
    if len(left) < len(content):
        with pytest.raises(EnvironmentFault, match="has another hash than the hub lists, and was removed"):
            locate_model(f"hf:{NAME}", "runs")
    assert locate_model(f"hf:{NAME}", "runs").is_file()
