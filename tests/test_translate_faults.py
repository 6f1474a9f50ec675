"""Fault rows D, `tfm translate` and `tfm evaluate`, as the commands meet them. The model copies letters, badly."""

import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract import PROGRAM, Ran, environment, error_line, refused, run, signed, tree, untouched
from tests.golden.make import FOLDER
from tests.toy_run import sentences
from transformer_cli.models.file import read_model

OPTIONS = ["--checkpoint", "model.safetensors", "--device", "cpu", "decode=greedy"]
TRANSLATE, EVALUATE = ["translate", *OPTIONS], ["evaluate", *OPTIONS]


MODEL = (FOLDER / "joint-pre.safetensors").read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a model and a text of six lines."""
    (tmp_path / "model.safetensors").write_bytes(MODEL)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in sentences(6, seed=5)), encoding="utf-8")
    return tmp_path


@contextmanager
def started(folder: Path, *arguments: str, **streams: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A translator in a process of its own, which is killed in the end."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    if streams.pop("on_terminal", False):
        command = ["setsid", "--ctty", *command]
    with subprocess.Popen(command, cwd=folder, env=environment(), **streams) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("stdin", "n_lines"), [(b"", 0), (b"\n", 1), (b"a b", 1), (b"\xff\xe2\x80\xa8\x0b\x85\n\r\n\x00", 3)], ids=repr
)
def test_D1_the_command_gives_a_line_for_a_line(folder: Path, stdin: bytes, n_lines: int) -> None:
    ran = run(TRANSLATE, folder, stdin=stdin)
    assert ran.code == 0, ran.err
    assert ran.out.count(b"\n") == n_lines


def test_D4_strict_names_the_line_on_either_input(folder: Path) -> None:
    bad = b"a b\ncaf\xe9\n"
    (folder / "bad").write_bytes(bad)
    fault = "2: byte 0xe9 at column 4 is not UTF-8"
    refused([*TRANSLATE, "--strict"], folder, code=3, says=[f"standard input:{fault}"], stdin=bad)
    refused([*TRANSLATE, "--strict", "--input", "bad"], folder, code=3, says=[f"bad:{fault}"])
    ran = run(TRANSLATE, folder, stdin=bad)
    assert (ran.code, ran.out.count(b"\n")) == (0, 2)
    assert ran.err.startswith(b"tfm: warning: 1 of 2 lines were not UTF-8")
    assert ran.err.count(b"\n") == 1


def test_D6_empty_input_is_no_error(folder: Path) -> None:
    assert run(TRANSLATE, folder) == Ran(0, b"", b"")


def test_D13_a_reader_that_has_gone_ends_the_command_quietly_and_at_once(folder: Path) -> None:
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(folder, *TRANSLATE, **pipe) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write(b"a b\n")
        process.stdin.flush()
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        process.stdin.write(b"a b\n")
        process.stdin.flush()
        start = time.perf_counter()
        assert process.wait(timeout=10) == 141
        assert time.perf_counter() - start < 5  # 1 s on a quiet machine
        assert process.stderr.read() == b""


@pytest.mark.skipif(shutil.which("setsid") is None, reason="needs setsid")
@pytest.mark.parametrize(("key", "code"), [(b"\x04", 0), (b"\x03", 130)], ids=["Ctrl-D", "Ctrl-C"])
def test_D14_at_a_terminal_each_line_is_answered_until_a_key_ends_it(folder: Path, key: bytes, code: int) -> None:
    ours, theirs = pty.openpty()
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(folder, *TRANSLATE, stdin=theirs, on_terminal=True, **pipe) as process:
        os.close(theirs)
        assert process.stdout
        assert process.stderr
        assert process.stderr.readline() == b"en \xe2\x86\x92 xx: type a line, Ctrl-D ends\n"
        for line in (b"a b c\n", b"d e f\n"):
            os.write(ours, line)
            answer = process.stdout.readline()
            assert answer == run(TRANSLATE, folder, stdin=line).out
        os.write(ours, key)
        assert process.wait(timeout=10) == code
        assert process.stdout.read() == b""
        said = process.stderr.read()
        assert said == b"" if code == 0 else said.startswith(b"tfm: error: interrupted")
        assert said.count(b"\n") == (code != 0)
    os.close(ours)


def test_D15_a_killed_command_leaves_no_output_and_the_same_one_makes_it_whole(folder: Path) -> None:
    os.mkfifo(folder / "slow")
    before = tree(folder)
    with (
        started(folder, *TRANSLATE, "--input", "slow", "--output", "out") as process,
        open(folder / "slow", "wb", buffering=0) as feed,
    ):
        feed.write(b"a b c\n" * 100)
        while not any(path.stat().st_size for path in folder.glob(".out.*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    untouched(before, folder, new=[".out.*"])
    assert run([*TRANSLATE, "--input", "text", "--output", "out"], folder).code == 0
    assert (folder / "out").read_bytes() == run([*TRANSLATE, "--input", "text"], folder).out


def test_D16_no_file_is_written_over_unasked(folder: Path) -> None:
    (folder / "there").write_text("kept\n", encoding="utf-8")
    (folder / "link").symlink_to("text")
    os.mkfifo(folder / "fifo")
    for output, says in {
        "there": "there: exists already. Add --overwrite",
        "text": "text: both --input and --output",
        "link": "link: both --input and --output",
        "fifo": "fifo: not a plain file",
        ".": ".: not a plain file",
    }.items():
        refused([*TRANSLATE, "--input", "text", "--output", output, "--overwrite"][: -1 if output == "there" else None],
                folder, code=2, says=[says])  # fmt: skip
    own = [*EVALUATE, "--source", "text", "--reference", "text", "--hypotheses"]
    refused([*own, "text"], folder, code=2, says=["text: both an input and --hypotheses"])
    refused([*own, "fifo"], folder, code=2, says=["fifo: not a plain file"])


def test_D17_an_output_that_cannot_be_written_is_said_before_the_model_is_read(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "shut").mkdir(mode=0o500)
    (folder / "shut" / "there").touch()
    to = [*TRANSLATE, "--output"]
    refused([*to, "no/out"], folder, code=5, says=["no: no such folder"], as_root=False)
    refused([*to, "shut/out"], folder, code=5, says=["shut: ", "written"], as_root=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_D17_a_full_disk_names_the_line(folder: Path) -> None:
    (folder / "long").write_text("".join(f"{line}\n" for line in sentences(2000, seed=6)), encoding="utf-8")
    before = tree(folder)
    ran = run([*TRANSLATE, "--input", "text"], folder, stdout="/dev/full")
    error_line(ran, code=5, says=["standard output: No space left on device at line 6"])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        ran = run([*TRANSLATE, "--input", "long", "--output", "out"], folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    error_line(ran, code=5, says=["out: File too large at line "])
    untouched(before, folder)


def test_D17_translations_that_cannot_be_saved_are_said_before_any_is_made(folder: Path) -> None:
    (folder / "shut").mkdir(mode=0o500)
    own = [*EVALUATE, "--source", "text", "--reference", "text", "--hypotheses"]
    refused([*own, "no/out"], folder, code=5, says=["no: no such folder"], as_root=False)
    refused([*own, "shut/out"], folder, code=5, says=["shut: ", "written"], as_root=False)


def test_D18_a_model_and_a_tokenizer_that_disagree_are_refused_with_both_hashes(folder: Path) -> None:
    ours, theirs = read_model(FOLDER / "joint-pre.safetensors").tokenizers.source.sha256, "ab" * 32
    (folder / "model.safetensors").write_bytes(signed(MODEL, tokenizers={"tokenizer.source": theirs}))
    says = ["model.safetensors: its tokenizer.source has SHA-256", ours[:12], theirs[:12]]
    refused(TRANSLATE, folder, code=4, says=says, stdin=b"a\n")


@pytest.mark.parametrize("command", [TRANSLATE, EVALUATE], ids=["translate", "evaluate"])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        (b"", "cut short or not a safetensors file"),
        (b"PK\x03\x04zip archive ", "zip archive or pickle"),
        (b"\x80\x04a pickle, maybe ", "zip archive or pickle"),
        (b"\x08\0\0\0\0\0\0\0{}      ", "without what tfm writes"),
        (MODEL[:-100], "damaged"),
        (MODEL[:500], "cut short"),
        (MODEL + b"x", "damaged"),
    ],
    ids=["missing", "empty", "zip", "pickle", "foreign", "half", "header", "longer"],
)
def test_D19_a_model_that_is_not_whole_is_named(
    folder: Path, command: list[str], content: bytes | None, says: str
) -> None:
    (folder / "model.safetensors").unlink()
    if content is not None:
        (folder / "model.safetensors").write_bytes(content)
    refused(command, folder, code=4, says=["model.safetensors: ", says], stdin=b"a\n")


def test_D19_a_folder_without_a_model_and_no_run_at_all_are_named(folder: Path) -> None:
    (folder / "empty").mkdir()
    refused(["translate", "--checkpoint", "empty"], folder, code=4, says=["empty: holds no model yet"])
    refused(["translate"], folder, code=4, says=["runs/latest: no trained model. Train one with `tfm train`"])


def test_D20_texts_of_different_length_get_no_score(folder: Path) -> None:
    (folder / "two").write_bytes(b"a\nb\n")
    says = ["has 2 lines, text 6, so nothing is scored"]
    own = [*EVALUATE, "--source", "text", "--reference"]
    refused([*own, "two"], folder, code=3, says=["two: ", *says])
    refused([*own, "text", "--reference", "two"], folder, code=3, says=["two: ", *says])
    refused([*own, "missing"], folder, code=3, says=["missing: no such file"])
