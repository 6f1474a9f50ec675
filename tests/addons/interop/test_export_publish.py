"""Whatever happens while an export replaces another, one of the two is there whole, and nothing else is touched."""

import errno
import json
import os
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.support.contract import tree
from transformer_cli.addons.interop.publish import check_destination, publishing
from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import ConfigError, EnvironmentFault

CALLS = ("mkdir", "fsync", "rename", "unlink", "rmdir")  # of `os`, which end up on the disk


def export(out: Path, text: str, meanwhile: Callable[[], Any] = lambda: None) -> None:
    """An export, in place of an earlier one, that holds `text`; something may happen `meanwhile`."""
    check_destination(out, overwrite=True)
    with publishing(out, {"format": 1}, overwrite=True) as folder:
        for name in ("model.bin", "source.spm"):
            (folder / name).write_text(text)
        meanwhile()


def content(folder: Path) -> str | None:
    """What the export in `folder` holds; None if it is not whole."""
    try:
        facts = json.loads((folder / "export.json").read_bytes())
        assert sorted(facts["files"]) == ["model.bin", "source.spm"]
        whole = all(file_sha256(folder / name) == expected for name, expected in facts["files"].items())
        return (folder / "model.bin").read_text() if whole else None
    except OSError:
        return None


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An export, and things beside it that are the user's."""
    export(tmp_path / "out", "old")
    (tmp_path / "out.old").mkdir()
    (tmp_path / "out.old" / "notes").write_text("mine")
    (tmp_path / ".out.tmp").write_text("mine")
    return tmp_path / "out"


def at_call(k: int, act: Callable[[], Any], *, and_later: bool = False) -> tuple[Any, Callable[[], bool]]:
    """A patch of `os` that does `act` before the k-th call; and whether it came to that."""
    n_calls = count()
    reached = []

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            n = next(n_calls)
            if n == k or (and_later and n > k):
                reached.append(n)
                act()
            return real(*arguments, **options)

        return call

    return mock.patch.multiple(os, **{name: wrap(getattr(os, name)) for name in CALLS}), lambda: bool(reached)


def fail() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupt() -> None:
    raise KeyboardInterrupt


def beside(out: Path) -> dict[str, str]:
    return {name: kind for name, kind in tree(out.parent).items() if name.split("/")[0] in ("out.old", ".out.tmp")}


@pytest.mark.parametrize("and_later", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("act", [fail, interrupt], ids=["disk", "Ctrl-C"])
def test_a_failure_at_any_moment_loses_neither_export(out: Path, act: Callable[[], None], and_later: bool) -> None:
    theirs, raised = beside(out), 0
    for k in count():
        patch, reached = at_call(k, act, and_later=and_later)
        message = ""
        with patch:
            try:
                export(out, "new")
            except (EnvironmentFault, KeyboardInterrupt) as error:
                message = str(error)
        assert beside(out) == theirs
        if content(out) != "new":
            place = out
            if content(out) != "old":
                (name,) = re.findall(r"^(.*): holds the earlier export", message) or [
                    str(next(out.parent.glob("out.old-*")))
                ]
                place, raised = Path(name), raised + 1
            assert content(place) == "old", f"call {k}: {message}"
            if place != out:
                place.rename(out)
        if not reached():
            break
        restore(out)
    assert k > 10
    assert raised > 0 or not and_later, "nothing was left under another name"


def restore(out: Path) -> None:
    """The old export in its place, and no leftovers."""
    for leftover in [*out.parent.glob("out.old-*"), *out.parent.glob(".tfm-*")]:
        for file in leftover.iterdir():
            file.unlink()
        leftover.rmdir()
    if content(out) != "old":
        export(out, "old")


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # the child only touches files
def test_a_kill_at_any_moment_loses_neither_export(out: Path) -> None:
    theirs, n_between = beside(out), 0
    for k in count():
        child = os.fork()
        if child == 0:
            patch, _ = at_call(k, lambda: os._exit(9))
            try:
                with patch:
                    export(out, "new")
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert beside(out) == theirs
        if not out.exists():
            (old,) = out.parent.glob("out.old-*")
            assert content(old) == "old"
            old.rename(out)
            n_between += 1
        assert content(out) in ("old", "new")
        if code == 0:
            break
        assert code == 9
        export(out, "newest")  # as if nothing had been
        assert content(out) == "newest"
        restore(out)
    assert content(out) == "new"
    assert k > 10
    assert n_between == 1, "between the two renames"


def test_what_cannot_be_put_back_is_told_with_its_name(out: Path) -> None:
    real = os.rename
    n_calls = count()

    def rename(source: Any, target: Any) -> None:
        if next(n_calls) > 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(source, target)

    says = r"^(.*out\.old-\d+): holds the earlier export, which cannot be put back: .*\. Rename it to .*out$"
    with mock.patch("os.rename", rename), pytest.raises(EnvironmentFault, match=says) as raised:
        export(out, "new")
    assert content(Path(str(raised.value).split(": holds")[0])) == "old"


def test_what_a_killed_process_of_the_same_number_left_stays(out: Path) -> None:
    left = out.with_name(f"out.old-{os.getpid()}")
    out.rename(left)
    export(out, "new")
    assert (content(out), content(left)) == ("new", "old")
    export(out, "newest")
    assert (content(out), content(left)) == ("newest", "old")


def test_a_folder_that_comes_between_the_renames_stays_and_the_earlier_export_beside_it(out: Path) -> None:
    real = os.rename

    def rename(source: Any, target: Any) -> None:
        if Path(target) == out:
            out.mkdir()
            (out / "thesis.tex").write_text("mine")
        real(source, target)

    says = r"^(.*out\.old-\d+): holds the earlier export, .*: .*out is there again\. Rename it to .*out$"
    with mock.patch("os.rename", rename), pytest.raises(EnvironmentFault, match=says) as raised:
        export(out, "new")
    assert content(Path(str(raised.value).split(": holds")[0])) == "old"
    assert (out / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("kind", ["a folder", "a link", "a file", "a change"])
def test_what_is_not_ours_is_never_replaced(out: Path, kind: str) -> None:
    """A file of the user's may have the name of one that we wrote."""
    mine = out / ("mine" if kind == "a file" else "model.bin")
    mine.unlink(missing_ok=True)
    if kind == "a link":
        mine.symlink_to("source.spm")
    else:
        mine.mkdir() if kind == "a folder" else mine.write_text("mine")
    if kind == "a folder":
        (mine / "thesis.tex").write_text("mine")
    before = tree(out.parent)
    with pytest.raises(ConfigError, match=rf"out: is there, and holds {mine.name}, which no export of ours wrote"):
        export(out, "new")
    assert tree(out.parent) == before


def test_what_appears_while_a_model_is_exported_is_not_replaced(out: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds thesis\.tex, .*; this export is kept as .*/out\.kept-1"):
        export(out, "new", meanwhile=(out / "thesis.tex").touch)
    assert content(out) == "old"
    fresh = out.with_name("fresh")

    def come() -> None:
        fresh.mkdir()
        (fresh / "thesis.tex").write_text("mine")

    with pytest.raises(ConfigError, match=r"fresh: is there, and holds thesis\.tex"):
        export(fresh, "new", meanwhile=come)
    assert (fresh / "thesis.tex").read_text() == "mine"
    other, theirs = out.with_name("other"), out.with_name("theirs")
    export(theirs, "of another process")
    with pytest.raises(ConfigError, match=r"other: exists already\. Add --overwrite"), publishing(other, {}) as folder:
        (folder / "model.bin").touch()
        theirs.rename(other)
    assert content(other) == "of another process"
    kept = ["fresh.kept-1", "other.kept-1", "out.kept-1"]
    assert sorted(path.name for path in out.parent.iterdir()) == sorted(
        [".out.tmp", "fresh", "other", "out", "out.old", *kept]
    )
    assert [content(out.with_name(name)) for name in kept[::2]] == ["new", "new"]


def test_what_appears_at_the_last_moment_stays_beside(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    real = os.rename

    def rename(source: Any, target: Any) -> None:
        if Path(source) == out:
            (out / "thesis.tex").write_text("mine")
        real(source, target)

    with mock.patch("os.rename", rename):
        export(out, "new")
    assert content(out) == "new"
    (kept,) = out.parent.glob("out.old-*")
    assert (kept / "thesis.tex").read_text() == "mine"
    assert f"{kept}: kept, as it holds thesis.tex" in caplog.text
