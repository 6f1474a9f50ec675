"""Lines in and out of pipes that do not block, of disks that are full, of readers that are slow or gone.

The processes are real; none of them imports torch.
"""

import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands.test_files import files_of_at_most
from tests.support.forked import UNMEASURED, environment
from transformer_cli.standard_streams import BufferedOutput, Messages

ECHO = """
import sys
sys.argv[0] = "tfm"
from transformer_cli import cli
def echo(_):
    from transformer_cli.data.lines import read_chunks
    for chunk in read_chunks(sys.stdin.buffer, "standard input"):
        print(chunk.decode(), end="", flush=True)
    return 0
cli._run = echo
cli.entry_point()
"""
PRINT = """
import sys
sys.argv[0] = "tfm"
from transformer_cli import cli
def show(_):
    for number in range(6000):
        print(f"line {number} of six thousand")
    print("a message", file=sys.stderr)
    return 0
cli._run = show
cli.entry_point()
"""
PRINTED = "".join(f"line {number} of six thousand\n" for number in range(6000)).encode()
UNBUFFERED = pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@contextmanager
def started(program: str, **streams: object) -> Iterator["subprocess.Popen[bytes]"]:
    unbuffered = str(streams.pop("unbuffered", ""))
    command = [sys.executable, "-c", program]
    env = environment({"PYTHONUNBUFFERED": unbuffered, **UNMEASURED})  # files of coverage have a size, too
    with subprocess.Popen(command, env=env, **streams) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


def test_input_that_does_not_block_is_read_to_its_end_and_each_line_answered_as_it_comes() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    with started(ECHO, stdin=ours, stdout=subprocess.PIPE) as process:
        os.close(ours)
        assert process.stdout is not None
        for number in range(6):
            line = b"line %d\n" % number
            os.write(theirs, line)
            assert process.stdout.readline() == line
        os.write(theirs, b"without its end")
        time.sleep(0.05)
        os.close(theirs)
        assert process.stdout.read() == b"without its end"
        assert process.wait() == 0


@UNBUFFERED
def test_output_that_does_not_block_reaches_a_slow_reader_whole_and_once(unbuffered: str) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with started(PRINT, stdout=theirs, stderr=subprocess.PIPE, unbuffered=unbuffered) as process:
        found = b""
        time.sleep(0.3)  # until the pipe is full
        is_blocking = os.get_blocking(theirs)
        os.close(theirs)
        while piece := os.read(ours, 30_000):
            found += piece
            time.sleep(0.01)
        assert found == PRINTED
        assert process.stderr is not None
        assert (process.wait(), process.stderr.read()) == (0, b"a message\n")
    assert not is_blocking, "it is shared with whoever made it"
    os.close(ours)


@UNBUFFERED
def test_B4_a_disk_that_fills_up_is_one_line_and_exit_5(tmp_path: Path, unbuffered: str) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    with (
        (tmp_path / "out").open("wb") as out,
        started(PRINT, stdout=out, stderr=subprocess.PIPE, unbuffered=unbuffered, preexec_fn=limit) as process,
    ):
        assert process.stderr is not None
        messages = process.stderr.read().split(b"\n")
        assert process.wait() == 5
    assert messages[-2:] == [b"tfm: error: standard output: File too large. Check the path and the disk", b""]
    assert (tmp_path / "out").read_bytes() == PRINTED[:30_000]


@NEEDS_FULL
@UNBUFFERED
@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["train", "--help"], ["completion", "bash"]], ids=" ".join
)
def test_B4_no_command_prints_to_a_full_disk_and_ends_well(words: list[str], unbuffered: str) -> None:
    program = "import sys; sys.argv[0] = 'tfm'; from transformer_cli.cli import entry_point; entry_point()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=environment({"PYTHONUNBUFFERED": unbuffered}),
        stdout=os.open("/dev/full", os.O_WRONLY),
        stderr=subprocess.PIPE,
        check=False,
    )
    says = b"tfm: error: standard output: No space left on device. Free some space and run the same command again\n"
    assert (done.returncode, done.stderr) == (5, says)


@NEEDS_FULL
@UNBUFFERED
@pytest.mark.parametrize("where", ["a full disk", "a pipe whose reader has gone", "a pipe that does not block"])
def test_messages_that_nobody_can_take_end_nothing(where: str, unbuffered: str) -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    if where != "a pipe that does not block":
        os.close(ours)
    error = os.open("/dev/full", os.O_WRONLY) if where == "a full disk" else theirs
    with started(PRINT, stdout=subprocess.PIPE, stderr=error, unbuffered=unbuffered) as process:
        assert process.stdout is not None
        assert process.stdout.read() == PRINTED
        assert process.wait() == 0


def test_a_closed_standard_output_is_said() -> None:
    command = [sys.executable, "-c", PRINT.replace("cli._run = show", ""), "--version"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], env=environment(), capture_output=True, check=False
    )
    assert done.returncode == 5
    assert done.stderr.startswith(b"tfm: error: standard output: closed. Open it")


# ---- Parts


def test_what_a_disk_had_no_room_for_is_written_later_and_nothing_twice(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        output = BufferedOutput(file.fileno(), "it")
        with files_of_at_most(1000), pytest.raises(OSError, match="File too large") as caught:
            output.write(PRINTED)
            output.flush()
        assert caught.value.filename == "it"
        output.flush()
    assert (tmp_path / "out").read_bytes() == PRINTED


def test_an_interruption_while_it_waits_for_a_reader_loses_nothing_and_repeats_nothing() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    output = BufferedOutput(theirs, "it")

    class Stop(Exception):
        pass

    def stop(*_: object) -> int:
        raise Stop

    found = bytearray()
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stop):
        patch.setattr("transformer_cli.standard_streams._wait", stop)
        output.write(PRINTED)
    reader = threading.Thread(target=lambda: [found.extend(piece) for piece in iter(lambda: os.read(ours, 4096), b"")])
    reader.start()
    output.flush()
    os.close(theirs)
    reader.join()
    os.close(ours)
    assert found == PRINTED


@NEEDS_FULL
def test_messages_go_on_when_there_is_room_again() -> None:
    ours, theirs = os.pipe()
    target = os.dup(theirs)
    messages = Messages(target, "it")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, target)
    messages.write(b"lost\n")
    messages.flush()
    os.dup2(theirs, target)
    messages.write(b"seen\n")
    messages.flush()
    assert os.read(ours, 100) == b"seen\n"
    for descriptor in (ours, theirs, target, full):
        os.close(descriptor)
