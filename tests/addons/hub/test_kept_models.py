"""Models of the hub that are kept: their commits, copies, tokens and processes, and `tfm models`."""

import errno
import json
import os
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.addons.hub.hub_server import NAME, TOKEN, HubServer
from tests.addons.interop.test_export import model_file
from tests.support.contract import refused, run, tree
from tests.support.forked import Forked
from transformer_cli.addons.hub import fetching, opening, run_models
from transformer_cli.addons.hub import kept as kept_models
from transformer_cli.addons.hub.kept import find, hub_folder
from transformer_cli.addons.hub.keys import ModelsConfig
from transformer_cli.addons.hub.names import read_name
from transformer_cli.errors import EnvironmentFault
from transformer_cli.files import temporary_path
from transformer_cli.models.file import model_pieces, read_model
from transformer_cli.models.locate import locate_model

ADDRESS = f"hf:{NAME}"


def commit_of(hub: HubServer) -> str:
    return hub.repositories[NAME].names["main"]


# ---- Commits


def test_a_name_keeps_its_commit_until_it_is_updated(hub: HubServer, files: dict[str, bytes], work: Path) -> None:
    first, before = commit_of(hub), locate_model(ADDRESS, "runs")
    now = hub.publish(NAME, {**files, "tokenizer_config.json": b'{"source_lang": "eng", "target_lang": "nds"}'})
    assert locate_model(ADDRESS, "runs") == before
    assert read_model(locate_model(f"{ADDRESS}@{now}", "runs")).target_lang == "nds"
    ran = run(["models", "update", ADDRESS], work)
    assert ran.out.decode() == f"{ADDRESS}: commit {now[:12]}, before {first[:12]}\n"
    assert not before.exists()
    assert read_model(locate_model(ADDRESS, "runs")).target_lang == "nds"
    hub.requests.clear()
    again = run(["models", "update", ADDRESS], work)
    assert again.out.decode() == f"{ADDRESS}: commit {now[:12]} is the newest\n"
    assert hub.received() == []


def test_an_update_that_fails_leaves_what_was_kept(hub: HubServer, files: dict[str, bytes], work: Path) -> None:
    kept = locate_model(ADDRESS, "runs")
    hub.publish(NAME, {**files, "vocab.json": b"[]"})
    assert run(["models", "update", ADDRESS], work).code == 4
    assert locate_model(ADDRESS, "runs") == kept
    assert kept.is_file()


def test_a_branch_is_kept_under_its_own_name(hub: HubServer, files: dict[str, bytes], work: Path) -> None:
    repository = hub.repositories[NAME]
    branch = repository.commit({**files, "extra.json": b"{}"}, "refs/pr/3")
    path = locate_model(f"{ADDRESS}@refs/pr/3", "runs")
    assert path.parent.name.endswith(branch[:12])
    assert find(read_name(NAME)) is None


def test_a_model_that_an_earlier_reader_has_read_is_read_again_without_network(
    hub: HubServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are read from the cache of huggingface_hub."""
    path = locate_model(ADDRESS, "runs")
    before = path.stat().st_mtime_ns
    for module in (opening, fetching):
        monkeypatch.setattr(module, "READING", 99)
    hub.faults.append(("", lambda handler: handler.refuse(500, "")))
    with pytest.raises(EnvironmentFault, match="answers 500"):
        locate_model(ADDRESS, "runs")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert locate_model(ADDRESS, "runs").stat().st_mtime_ns > before


@pytest.mark.parametrize("step", ["download", "import_model", "rename"])
def test_a_command_that_is_stopped_leaves_nothing_half_kept(
    step: str, hub: HubServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetching, step, stop)
        with pytest.raises(KeyboardInterrupt):
            locate_model(ADDRESS, "runs")
    assert [path.name for path in hub_folder().rglob("*") if path.is_file() and path.suffix != ".lock"] == []
    assert locate_model(ADDRESS, "runs").is_file()


def test_what_a_killed_command_has_left_is_removed(hub: HubServer, work: Path) -> None:
    target = hub_folder() / read_name(NAME).folder(commit_of(hub))
    for left in (temporary_path(target), temporary_path(target.with_name(f"{target.name}.files"))):
        (left / "opus-mt-en-de").mkdir(parents=True)
    target.mkdir()  # it was killed before it wrote the record
    (target / "model.safetensors").write_bytes(b"half")
    path = locate_model(ADDRESS, "runs")
    assert path.parent == target
    assert sorted(one.name for one in hub_folder().iterdir() if one.suffix not in (".lock", ".json")) == [target.name]
    read_model(path)


@pytest.mark.parametrize(
    ("mine", "where"),
    [
        ("{folder}", "{folder}"),
        ("{folder}/model.safetensors/notes.txt", "{folder}/model.safetensors"),
        ("{record}/notes.txt", "{record}"),
        ("{folder}/notes/model.safetensors", None),
    ],
)
def test_what_is_in_the_place_of_a_kept_model_is_not_lost(
    mine: str, where: str | None, hub: HubServer, work: Path
) -> None:
    name = read_name(NAME)
    places = {"folder": name.folder(commit_of(hub)), "record": name.record}
    file = hub_folder() / mine.format(**places)
    file.parent.mkdir(parents=True)
    file.write_text("mine", encoding="utf-8")
    if where is None:
        assert locate_model(ADDRESS, "runs").is_file()
    else:
        with pytest.raises(EnvironmentFault) as refusal:
            locate_model(ADDRESS, "runs")
        assert str(refusal.value).startswith(f"{hub_folder() / where.format(**places)}: cannot keep the model: ")
        assert find(name) is None
    assert file.read_text(encoding="utf-8") == "mine"
    assert not list(hub_folder().glob(".tfm-*")), "nothing half-made"


def test_a_kept_model_that_is_damaged_is_made_again(hub: HubServer, work: Path) -> None:
    path = locate_model(ADDRESS, "runs")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    (path.parent / "hypotheses.txt").write_text("mine", encoding="utf-8")
    assert locate_model(ADDRESS, "runs").read_bytes() == whole
    assert (path.parent / "hypotheses.txt").is_file()


def test_what_transformers_has_downloaded_is_used_without_network(
    hub: HubServer,
    files: dict[str, bytes],
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    huggingface_hub.snapshot_download(NAME, allow_patterns=[*files])
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert read_model(locate_model(ADDRESS, "runs")).source_lang == "eng"
    assert f"the hub does not answer, so commit {commit_of(hub)[:12]} of the cache" in caplog.text


def test_what_is_copied_from_another_machine_needs_no_network(
    hub: HubServer, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files are those that the message of a machine without network names."""
    there = locate_model(ADDRESS, "runs")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    hub_folder().mkdir(parents=True)
    for path in there.parent.parent.glob("toy--opus-mt-en-de*"):
        if path.is_dir():
            shutil.copytree(path, hub_folder() / path.name)
        else:
            shutil.copy(path, hub_folder())
    hub.requests.clear()
    assert locate_model(ADDRESS, "runs").is_relative_to(tmp_path / "here")
    assert hub.requests == []


# ---- Tokens


def test_the_token_goes_to_the_hub_and_not_to_its_storage(
    hub: HubServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories[NAME].is_private = True
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    locate_model(ADDRESS, "runs")
    of_storage = [request.token for request in hub.requests if request.path.startswith("/lfs/")]
    assert of_storage
    assert set(of_storage) == {None}
    assert {request.token for request in hub.requests if request.path.startswith("/api/")} == {f"Bearer {TOKEN}"}


# ---- tfm models


def test_the_models_are_listed(hub: HubServer, work: Path) -> None:
    assert run(["models"], work).out == b""
    refused(["models", NAME], work, code=2, says=["nothing is kept under this name"])
    assert json.loads(run(["models", "--json"], work).out) == []
    path = locate_model(ADDRESS, "runs")
    (row,) = json.loads(run(["models", "--json"], work).out)
    assert (row["name"], row["commit"], row["path"]) == (ADDRESS, commit_of(hub), str(path))
    assert row["bytes"] == path.stat().st_size
    assert (row["license"], row["languages"]) == ("cc-by-4.0", ["en", "de"])
    assert json.loads(run(["models", NAME, "--json"], work).out) == [row]
    head, line = run(["models", ADDRESS], work).out.decode().splitlines()
    assert head.split("  ")[0] == "name"
    assert [ADDRESS, commit_of(hub)[:12]] == line.split()[:2]
    assert line.endswith("en, de     cc-by-4.0")


def test_imports_of_folders_that_cannot_be_written_are_listed_and_removed(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kept = tmp_path / "cache" / "tfm" / "imported" / "opus-0123.safetensors"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"12345")
    (row,) = json.loads(run(["models", "--json"], work).out)
    assert (row["name"], row["bytes"], row["path"]) == ("imported/opus-0123.safetensors", 5, str(kept))
    assert run(["models"], work).out.decode().splitlines()[1].split()[0] == "imported/opus-0123.safetensors"
    assert run(["models", "remove", "imported/opus-0123.safetensors"], work).code == 0
    assert not kept.exists()
    refused(["models", "remove", "imported/../x"], work, code=2, says=["no name of a model"])


def test_a_model_is_removed_and_what_others_put_beside_it_stays(hub: HubServer, work: Path) -> None:
    path = locate_model(ADDRESS, "runs")
    (path.parent / "notes.txt").write_text("mine", encoding="utf-8")
    ran = run(["models", "remove", ADDRESS], work)
    assert (ran.code, ran.out.decode()) == (0, f"{ADDRESS}: removed\n")
    assert b"notes.txt: stays" in ran.err
    assert not path.exists()
    assert (path.parent / "notes.txt").is_file()
    assert json.loads(run(["models", "--json"], work).out) == []
    says = [f"{ADDRESS}: nothing is kept", "Choose one that `tfm models` lists"]
    refused(["models", "remove", ADDRESS], work, code=2, says=says)


def test_a_model_that_is_removed_while_it_translates_goes_on(hub: HubServer, work: Path) -> None:
    path = locate_model(ADDRESS, "runs")
    command = ["translate", "--checkpoint", ADDRESS, "--engine", "torch"]
    text = (work / "text").read_bytes()
    expected = run(["translate", "--checkpoint", str(path), "--engine", "torch"], work, stdin=text).out
    with Forked(command, work) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first, _, rest = text.partition(b"\n")
        process.stdin.write(first + b"\n")
        process.stdin.flush()
        begun = process.stdout.readline()
        assert run(["models", "remove", ADDRESS], work).code == 0
        assert not path.exists()
        out, err = process.communicate(rest)
        assert process.wait() == 0, err
    assert begun + out == expected
    assert json.loads(run(["models", "--json"], work).out) == []


@pytest.mark.parametrize("fails", ["model.safetensors", "toy--opus-mt-en-de.json"])
def test_a_removal_that_fails_removes_nothing(
    fails: str, hub: HubServer, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows neither renames nor removes a file that another process has open."""
    locate_model(ADDRESS, "runs")
    before = tree(hub_folder())

    def refuse(path: Path, *rest: Any, **more: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:
        if fails == "model.safetensors":
            patch.setattr(kept_models, "rename", refuse)
        else:
            patch.setattr(Path, "unlink", refuse)
        with pytest.raises(EnvironmentFault, match=f"{fails}: cannot remove the model: Permission denied"):
            run_models.run(ModelsConfig(action="remove", name=ADDRESS))
    assert {name: kind for name, kind in tree(hub_folder()).items() if name in before} == before
    assert not list(hub_folder().glob(".tfm-*"))


def test_a_removal_waits_for_the_process_that_fetches_the_model(hub: HubServer, work: Path) -> None:
    locate_model(ADDRESS, "runs")
    with ExitStack() as stack:
        with opening.locked_name(read_name(NAME)):
            process = stack.enter_context(Forked(["models", "remove", ADDRESS], work))
            assert process.stderr is not None
            assert b"held by another process; waiting for it" in process.stderr.readline()
            assert find(read_name(NAME)) is not None
        assert process.communicate()[0] == f"{ADDRESS}: removed\n".encode()
    assert find(read_name(NAME)) is None


def test_a_commit_with_two_names_stays_while_one_is_left(hub: HubServer, work: Path) -> None:
    path = locate_model(ADDRESS, "runs")
    hub.requests.clear()
    assert locate_model(f"{ADDRESS}@main", "runs") == path
    assert hub.received() == []
    run(["models", "remove", ADDRESS], work)
    assert path.is_file()
    run(["models", "remove", f"{ADDRESS}@main"], work)
    assert not path.parent.exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["models", "remove"], ["no name given"]),
        (["models", "update"], ["no name given"]),
        (["models", "toy/x"], ["hf:toy/x: nothing is kept", "Choose one that `tfm models` lists"]),
        (["models", "remove", "hf:toy/opus-mt-en-d"], ["nothing is kept", f"did you mean `{ADDRESS}`"]),
        (["models", "remove", "../../x"], ["'hf:../../x': no name of a model"]),
        (["models", "update", "hf:toy/x"], ["nothing is kept"]),
        (["models", "forget", ADDRESS], ["forget"]),
    ],
)
def test_what_cannot_be_done_with_a_model_is_one_line(
    arguments: list[str], says: list[str], hub: HubServer, work: Path
) -> None:
    locate_model(ADDRESS, "runs")
    refused(arguments, work, code=2, says=says)
    assert find(read_name(NAME)) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"folder": "../../work"},
        {"files": {"../../../work/text": 1}},
        {"files": {"/etc/hostname": 1}},
        {"name": "other/name"},
        {"version": 99},
        {"files": None},
    ],
)
def test_a_forged_record_removes_nothing_of_others(change: dict[str, Any], hub: HubServer, work: Path) -> None:
    locate_model(ADDRESS, "runs")
    record = hub_folder() / read_name(NAME).record
    record.write_text(json.dumps(json.loads(record.read_text()) | change), encoding="utf-8")
    before = tree(work)
    refused(["models", "remove", ADDRESS], work, code=2, says=["nothing is kept under this name"])
    assert tree(work) == before
    assert locate_model(ADDRESS, "runs").is_file()


@pytest.mark.slow
def test_processes_that_need_a_model_fetch_it_once_as_the_environment_says(hub: HubServer, work: Path) -> None:
    hub.publish("toy/ours", {"model.safetensors": b"".join(model_pieces(model_file()))}, is_private=True)
    env = {"HF_ENDPOINT": hub.url, "HF_HOME": str(work.parent / "home"), "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    with ExitStack() as stack:
        both = [stack.enter_context(Forked(["inspect", "hf:toy/ours"], work, env=env)) for _ in range(2)]
        outputs = [process.communicate() for process in both]
        assert [process.wait() for process in both] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0] != b""
    listings = [request.path for request in hub.requests if request.path.startswith("/api/models/")]
    assert listings == ["/api/models/toy/ours"]
    assert (work.parent / "home" / "hub" / "models--toy--ours").is_dir()
