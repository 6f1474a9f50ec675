"""The checkpoint store: a save is whole or absent, and damage is found before it is used."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.toy.run import model_file, tree
from transformer_cli.errors import CheckpointError, EnvironmentFault
from transformer_cli.training.checkpoints import Checkpoint, CheckpointStore, Damage


def checkpoint(step: int) -> Checkpoint:
    optimizer = {"exp_avg/x": torch.full((2, 3), step / 3), "step/x": torch.tensor(float(step))}
    return Checkpoint(step, model_file(step=step), optimizer, {"rate": 0.1 + step})


def store_with(run_dir: Path, *steps: int) -> CheckpointStore:
    store = CheckpointStore(run_dir)
    store.sweep()
    for step in steps:
        store.save(checkpoint(step))
    return store


def newest_step(store: CheckpointStore) -> int | None:
    newest = store.newest()
    return None if newest is None else newest.step


def test_what_is_saved_is_what_is_read(tmp_path: Path) -> None:
    saved, read = checkpoint(5), store_with(tmp_path, 5).newest()
    assert read is not None
    assert (read.step, read.state) == (5, {"rate": 5.1})
    assert all(torch.equal(read.optimizer[name], tensor) for name, tensor in saved.optimizer.items())
    assert all(torch.equal(read.model.weights[name], tensor) for name, tensor in saved.model.weights.items())


def test_a_checkpoint_is_four_files_under_one_name(tmp_path: Path) -> None:
    store_with(tmp_path, 1000)
    assert list(tree(tmp_path)) == [
        f"checkpoints/step-00001000/{name}"
        for name in ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json")
    ]


def test_a_new_run_has_no_checkpoint(tmp_path: Path) -> None:
    assert store_with(tmp_path).newest() is None


def test_A27_order_is_by_step_whatever_the_clock_says(tmp_path: Path) -> None:
    store = store_with(tmp_path, 9, 10, 100)
    os.utime(store.path(9), (2e9, 2e9))
    assert store.steps() == [9, 10, 100]
    assert newest_step(store) == 100


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def extend(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0")


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def replace_by_link(file: Path) -> None:
    elsewhere = file.rename(file.parent.parent.parent / file.name)
    file.symlink_to(elsewhere)


def replace_by_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def relist(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        manifest = json.loads(file.read_bytes())
        change(manifest)
        file.write_text(json.dumps(manifest, indent=1))

    return damage


def signed(change: dict[str, Any]) -> Callable[[Path], None]:
    """Change state.json, and its sum in the manifest, as somebody would who knows how."""

    def forge(file: Path) -> None:
        content = json.dumps({**json.loads(file.read_bytes()), **change}, indent=1).encode()
        file.write_bytes(content)
        entry = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        relist(lambda m: m["files"].update({file.name: entry}))(file.with_name("manifest.json"))

    return forge


@pytest.mark.parametrize(
    ("file", "damage", "reason"),
    [
        *((name, truncate, f"{name} has [0-9,]+ bytes, not") for name in ("model.safetensors", "state.json")),
        *((name, flip, f"{name} has another SHA-256") for name in ("optimizer.safetensors", "state.json")),
        ("model.safetensors", flip, "model.safetensors has another SHA-256"),
        ("optimizer.safetensors", extend, r"optimizer.safetensors has [0-9,]+ bytes, not"),
        ("model.safetensors", Path.unlink, "model.safetensors is missing"),
        ("model.safetensors", replace_by_link, "model.safetensors is not a plain file"),
        ("state.json", replace_by_pipe, "state.json has 0 bytes|state.json is not a plain file"),
        ("manifest.json", Path.unlink, "manifest.json is missing"),
        ("manifest.json", truncate, "manifest.json is damaged"),
        ("manifest.json", relist(lambda m: m["files"].pop("state.json")), "manifest.json lists"),
        ("manifest.json", relist(lambda m: m["files"].update({"../../x": {"size": 1, "sha256": ""}})), "lists"),
        ("manifest.json", relist(lambda m: m.update(files=3)), "manifest.json is damaged"),
        ("manifest.json", relist(lambda m: m.update(step=3)), "manifest.json belongs to step 3"),
        ("manifest.json", relist(lambda m: m.update(format=2)), "manifest.json has format 2, state.json 1"),
        *(
            ("manifest.json", relist(lambda m, change=change: m.update(change)), "manifest.json is damaged")
            for change in ({"format": True}, {"format": 1.0}, {"format": -1}, {"step": "2"}, {"step": 2.0})
        ),
        *(
            ("state.json", signed(change), "state.json has no format number")
            for change in ({"format": True}, {"format": 0})
        ),
        ("state.json", signed({"step": 2.0}), "state.json is not that of step 2"),
        ("manifest.json", relist(lambda m: m.update(note="")), "manifest.json is damaged"),
        ("manifest.json", extend, "manifest.json is damaged"),
        (".", lambda folder: [file.unlink() for file in folder.iterdir()], "manifest.json is missing"),
    ],
)
def test_A13_damage_is_named_set_aside_and_the_checkpoint_before_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str, damage: Callable[[Path], None], reason: str
) -> None:
    store = store_with(tmp_path, 1, 2)
    damage(store.path(2) / file)
    with caplog.at_level(logging.WARNING, logger="tfm"):
        assert newest_step(store) == 1
    (warning,) = caplog.messages
    assert warning.startswith(f"{store.path(2)}: ")
    assert "Set aside as .bad-step-00000002; going back to step 1" in warning
    assert re.search(reason, warning)
    assert store.steps() == [1]
    assert (store.folder / ".bad-step-00000002").is_dir()


def test_the_same_step_can_be_set_aside_again(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1, 2)
    for _ in range(3):
        truncate(store.path(2) / "state.json")
        assert newest_step(store) == 1
        store.save(checkpoint(2))
    assert newest_step(store) == 2
    aside = sorted(path.name for path in store.folder.glob(".bad-*"))
    assert aside == [".bad-step-00000002", ".bad-step-00000002-2", ".bad-step-00000002-3"]


def test_A14_when_all_are_damaged_each_is_named_and_nothing_starts_from_zero(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1, 2)
    truncate(store.path(1) / "state.json")
    (store.path(2) / "manifest.json").unlink()
    for _ in range(2):  # the second start finds what the first one found
        with pytest.raises(CheckpointError) as refused:
            store.newest()
        assert "step-00000002: manifest.json is missing" in str(refused.value)
        assert "step-00000001: state.json has" in str(refused.value)


def test_checkpoints_that_were_all_set_aside_are_no_new_run(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    store.path(1).rename(store.folder / ".bad-step-00000001")
    with pytest.raises(CheckpointError, match="bad-step-00000001: set aside as damaged"):
        store.newest()


def test_leftovers_of_a_killed_process_are_swept(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    for name in (".tmp-step-00000002", ".del-step-00000000"):
        (store.folder / name).mkdir()
        (store.folder / name / "model.safetensors").write_bytes(b"half")
    store.sweep()
    assert [path.name for path in store.folder.iterdir()] == ["step-00000001"]


def test_pruning_keeps_what_it_is_told_to_keep(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1, 2, 3, 4)
    store.prune({2, 4})
    assert store.steps() == [2, 4]
    assert len(list(store.folder.iterdir())) == 2


def test_best_is_a_relative_link_that_survives_moving_the_run(tmp_path: Path) -> None:
    store = store_with(tmp_path / "run", 1, 2)
    store.mark_best(1)
    store.mark_best(2)
    store.mark_best(2)
    assert os.readlink(tmp_path / "run" / "best") == "checkpoints/step-00000002"
    moved = (tmp_path / "run").rename(tmp_path / "moved")
    assert (moved / "best" / "model.safetensors").is_file()


def test_best_can_be_taken_back_and_need_not_have_been_there(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    store.unmark_best()
    store.mark_best(1)
    store.unmark_best()
    assert not os.path.lexists(tmp_path / "best")
    assert newest_step(store) == 1


def test_latest_names_the_run(tmp_path: Path) -> None:
    for name in ("first", "second"):
        store_with(tmp_path / name, 1).mark_latest()
        assert os.readlink(tmp_path / "latest") == name


@pytest.mark.parametrize("at_file", [1, 2, 3, 4])
def test_a_failed_save_names_the_path_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_file: int
) -> None:
    store = store_with(tmp_path, 1)
    before, calls, fsync = tree(tmp_path), 0, os.fsync

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == at_file:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(
        EnvironmentFault,
        match=r"step-00000002: cannot save [0-9,]+ bytes \([0-9,]+ are free\): No space left on device",
    ):
        store.save(checkpoint(2))
    assert tree(tmp_path) == before
    assert newest_step(store) == 1
    store.save(checkpoint(2))  # room again
    assert newest_step(store) == 2


def test_a_save_that_cannot_even_begin_has_the_cause_in_its_message(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    store.folder.rename(tmp_path / "moved")
    store.folder.mkdir()
    (store.folder / ".tmp-step-00000002").write_bytes(b"in the way")
    with pytest.raises(EnvironmentFault, match=r"step-00000002: cannot save .*: File exists"):
        store.save(checkpoint(2))


def test_a_read_error_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_with(tmp_path, 1, 2)

    def broken(path: Path, flags: int) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr("os.open", broken)
        with pytest.raises(EnvironmentFault, match=r"manifest\.json: cannot read: Permission denied"):
            store.newest()
    assert store.steps() == [1, 2]


def test_a_checkpoint_of_a_newer_format_asks_for_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_cli.training.checkpoints.CHECKPOINT_FORMAT", 2)
    store = store_with(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match=r"needs tfm >= 0\.1\.0"):
        store.newest()
    assert store.steps() == [1]


def test_a_damaged_checkpoint_is_not_averaged(tmp_path: Path) -> None:
    store = store_with(tmp_path, 1)
    flip(store.path(1) / "model.safetensors")
    with pytest.raises(Damage):
        store.load(1)
    with pytest.raises(CheckpointError, match="another SHA-256"):
        store.load_model(1)
