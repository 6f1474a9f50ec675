"""An output is whole or absent, replaces nothing unasked, and is blamed by its own name."""

import errno
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from transformer_cli import files
from transformer_cli.errors import TakenError
from transformer_cli.files import (
    atomic_symlink,
    make_folder,
    move_to_free,
    remove_leftovers,
    temporary_path,
    write_new,
    write_whole,
    writing_whole,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


# ---- Nothing is replaced unasked


def no_links(*_: object, **__: object) -> None:
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.parametrize("disk", ["hard links", "a rename that asks", "neither"])
def test_of_two_that_write_one_file_the_second_keeps_its_work_under_a_name_that_it_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    if disk != "hard links":
        monkeypatch.setattr("os.link", no_links)
    if disk == "neither":
        monkeypatch.setattr(files, "_rename_to_free", lambda *_: False)
    same = tmp_path / "same.fr"
    (tmp_path / "same.kept-1.fr").write_bytes(b"of an earlier day")
    says = r"same\.fr: has appeared while this command ran, .* kept as .*same\.kept-2\.fr; compare the two and remove"
    with pytest.raises(TakenError, match=says) as caught, writing_whole(same, replace=False) as second:
        second.write(b"second")
        write_whole(same, b"first", replace=False)
    assert caught.value.exit_code == 2
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == {
        "same.fr": b"first",
        "same.kept-1.fr": b"of an earlier day",
        "same.kept-2.fr": b"second",
    }


@pytest.mark.parametrize("disk", ["a rename that asks", "neither"])
@pytest.mark.parametrize("is_absolute", [True, False])
def test_a_disk_without_links_moves_to_a_free_name_and_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str, is_absolute: bool
) -> None:
    monkeypatch.setattr("os.link", no_links)
    if disk == "neither":
        monkeypatch.setattr(files, "_rename_to_free", lambda *_: False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path if is_absolute else Path()
    (folder / "new").write_bytes(b"new")
    move_to_free(folder / "new", folder / "free")
    with pytest.raises(FileExistsError):
        move_to_free(folder / "free", folder / "free")
    assert (names(tmp_path), (folder / "free").read_bytes()) == (["free"], b"new")


def test_a_file_that_has_appeared_keeps_no_other_output_of_the_command_from_its_place(tmp_path: Path) -> None:
    text, links = tmp_path / "text", tmp_path / "links"
    with (
        pytest.raises(TakenError, match=r"links: has appeared"),
        writing_whole(text, replace=False) as one,
        writing_whole(links, replace=False) as other,
    ):
        one.write(b"text")
        other.write(b"links")
        links.write_bytes(b"theirs")
    assert names(tmp_path) == ["links", "links.kept-1", "text"]
    assert (text.read_bytes(), links.read_bytes()) == (b"text", b"theirs")


# ---- Permissions


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o666])
def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(mode)
    with writing_whole(file) as output:
        (temporary,) = tmp_path.glob(".tfm-*")
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600, "meanwhile, for this user only"
        output.write(b"new")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", mode)


def test_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for replace in (True, False):
            write_whole(tmp_path / f"{replace}", b"new", replace=replace)
            assert stat.S_IMODE((tmp_path / f"{replace}").stat().st_mode) == 0o640
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_file_that_root_replaces_stays_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    os.chown(file, 1234, 2345)
    file.chmod(0o640)
    write_whole(file, b"new")
    status = file.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1234, 2345, 0o640)


def test_a_group_that_cannot_be_kept_gets_no_more_than_everybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members of another group could otherwise read what only the old group might."""
    file = tmp_path / "file"
    file.write_bytes(b"old")
    file.chmod(0o664)
    own = os.stat(file)
    of_others = os.stat_result((*own[:5], own.st_gid + 1, *own[6:10]))
    monkeypatch.setattr(files, "_status", lambda _: of_others)
    monkeypatch.setattr("os.fchown", no_links)
    write_whole(file, b"new")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


# ---- Names


def test_a_name_of_as_many_bytes_as_a_file_system_allows_is_written_and_kept(tmp_path: Path) -> None:
    long = tmp_path / ("é" * 126 + ".fr")
    write_whole(long, b"whole")
    write_whole(long, b"again")
    assert long.read_bytes() == b"again"
    with pytest.raises(TakenError):
        write_whole(long, b"kept", replace=False)
    (kept,) = (path for path in tmp_path.iterdir() if path != long)
    assert (kept.name.startswith("ééé"), kept.name.endswith(".kept-1.fr")) == (True, True)
    atomic_symlink(tmp_path / "latest", "r" * 250)
    assert os.readlink(tmp_path / "latest") == "r" * 250


def test_where_links_are_not_permitted_a_file_of_one_line_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    for name in ("runs/a", "runs/b"):
        (tmp_path / name).mkdir(parents=True)
        atomic_symlink(tmp_path / "runs" / "latest", Path(name).name)
        assert (tmp_path / "runs" / "latest").is_file()
        assert files.follow(tmp_path / "runs/latest") == tmp_path / name
        assert files.follow(tmp_path / "runs/latest/model.safetensors") == tmp_path / name / "model.safetensors"


@pytest.mark.parametrize("target", ["../elsewhere", "a/../../elsewhere", "/etc", "missing", "", "a" * 2000])
def test_a_file_leads_to_no_folder_above_it_or_elsewhere(tmp_path: Path, target: str) -> None:
    for name in ("runs", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "runs" / "a").mkdir()
    link = tmp_path / "runs" / "latest"
    link.write_text(f"tfm-link: {target}\n")
    followed = files.follow(link)
    assert followed == link or followed == tmp_path / "runs"  # an empty one is the folder itself


# ---- The order of what is done to the disk


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that sync, rename, link and make files, in order. Temporary names are `.tmp`."""
    calls: list[str] = []

    def shown(path: object) -> str:
        name = (
            Path(os.fsdecode(path)).name if not isinstance(path, int) else Path(f"/proc/self/fd/{path}").readlink().name
        )
        return ".tmp" if name.endswith(".tmp") else name

    def recorded(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*paths: object, **options: object) -> object:
            calls.append(" ".join([name, *map(shown, paths[: 1 if name in ("fsync", "mkdir") else 2])]))
            return real(*paths, **options)

        return call

    for name in ("fsync", "rename", "replace", "link", "symlink", "mkdir"):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name)))
    return calls


def test_a_file_is_synced_before_it_is_named_and_its_folder_after(tmp_path: Path, done: list[str]) -> None:
    file = tmp_path / "file"
    replaced = ["fsync .tmp", "replace .tmp file", f"fsync {tmp_path.name}"]
    write_whole(file, b"new")
    assert done == replaced
    write_whole(file, b"newer")
    assert done == 2 * replaced
    done.clear()
    write_whole(tmp_path / "other", b"new", replace=False)
    assert done == ["fsync .tmp", "link .tmp other", f"fsync {tmp_path.name}"]
    done.clear()
    with pytest.raises(TakenError):
        write_whole(tmp_path / "other", b"newer", replace=False)
    assert done == ["fsync .tmp", "link .tmp other", "link .tmp other.kept-1", f"fsync {tmp_path.name}"]


def test_a_new_file_a_link_and_a_folder_survive_a_power_cut(tmp_path: Path, done: list[str]) -> None:
    write_new(tmp_path / "file", [b"one", b"two"])
    assert done == ["fsync file"]
    assert (tmp_path / "file").read_bytes() == b"onetwo"
    done.clear()
    atomic_symlink(tmp_path / "link", "file")
    assert done == ["symlink file .tmp", "replace .tmp link", f"fsync {tmp_path.name}"]
    done.clear()
    atomic_symlink(tmp_path / "link", "file")
    assert done == []  # it leads there already
    make_folder(tmp_path / "a" / "b")
    assert done == ["mkdir a", f"fsync {tmp_path.name}", "mkdir b", "fsync a"]


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    file, other = tmp_path / "file", tmp_path / "file2"
    ours, theirs = os.pipe()
    go, ends = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException), writing_whole(file) as output:
            output.write(b"half")
            os.write(theirs, b"!")
            os.read(go, 1)
        os._exit(0)
    os.read(ours, 1)
    for left in (temporary_path(file), temporary_path(other)):
        left.write_bytes(b"of a killed one")
    temporary_path(file).symlink_to("nowhere")
    remove_leftovers(file)
    living, left = sorted(tmp_path.iterdir(), key=lambda path: path.read_bytes() == b"of a killed one")
    assert left.name.startswith(temporary_path(other).name[:17])
    os.write(ends, b"!")
    os.waitpid(child, 0)
    assert not living.exists()
    assert file.read_bytes() == b"half"
    for descriptor in (ours, theirs, go, ends):
        os.close(descriptor)


# ---- Errors


def test_a_disk_that_is_full_is_blamed_on_the_file_that_was_to_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for n_bytes in (10, 1 << 20):  # from the buffer, at the end; or at once
        with (
            files_of_at_most(5),
            pytest.raises(OSError, match="File too large") as caught,
            writing_whole(file) as output,
        ):
            output.write(bytes(n_bytes))
        assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(file))
    with pytest.raises(OSError, match="No such file") as caught:
        write_whole(tmp_path / "no" / "file", b"")
    assert caught.value.filename == str(tmp_path / "no" / "file")
    assert names(tmp_path) == []


def test_an_error_of_something_else_in_the_block_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="else") as caught, writing_whole(tmp_path / "file"):
        raise OSError(errno.EIO, "something else")
    assert caught.value.filename is None
