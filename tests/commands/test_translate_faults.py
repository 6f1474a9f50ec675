"""Fault rows D, `tfm translate` and `tfm evaluate`, as the commands meet them. The model copies letters, badly."""

import gzip
import json
import os
import pty
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.golden.make import FOLDER
from tests.support.contract import error_line, refused, run, signed, tree, untouched
from tests.support.each import each
from tests.support.forked import PROGRAM, Forked, Ran, environment
from tests.toy.run import sentences
from transformer_cli.models.file import read_model

OPTIONS = ["--checkpoint", "model.safetensors", "--device", "cpu", "--engine", "torch", "decode=greedy"]
BEAM = ["translate", *OPTIONS[:-1]]
TRANSLATE, EVALUATE = ["translate", *OPTIONS], ["evaluate", *OPTIONS]


MODEL = (FOLDER / "joint-pre.safetensors").read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a model and a text of six lines."""
    (tmp_path / "model.safetensors").write_bytes(MODEL)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in sentences(6, seed=5)), encoding="utf-8")
    return tmp_path


@contextmanager
def started(folder: Path, *arguments: str, **options: Any) -> Iterator[Forked]:
    """A translator in a process of its own, which is killed in the end."""
    with Forked(arguments, folder, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@each("stdin, n_lines", [(b"", 0), (b"\n", 1), (b"a b", 1), (b"\xff\xe2\x80\xa8\x0b\x85\n\r\n\x00", 3)])
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


@each("to", ["stdin", "--input"])
@each("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_C6_a_text_in_another_unicode_encoding_is_named_and_nothing_is_translated(
    folder: Path, encoding: str, to: str
) -> None:
    wide = "a b c\nd e f\n".encode(encoding)
    (folder / "wide").write_bytes(wide)
    given, where = (["--input", "wide"], "wide") if to == "--input" else ([], "standard input")
    says = [f"{where}: is {encoding[:6].upper()}LE, not UTF-8. Convert it with `iconv"]
    refused([*TRANSLATE, *given], folder, code=3, says=says, stdin=b"" if given else wide)


@pytest.mark.parametrize("name", ["/dev/zero", "endless", "prefixes"])
def test_C11_an_endless_line_ends_the_command_at_once(folder: Path, name: str) -> None:
    (folder / "endless").write_bytes(b"a b\n" + bytes(6 << 20))
    (folder / "prefixes").write_bytes(bytes(6 << 20))
    if name == "prefixes":
        command, says = ["--prefix", name], "prefixes:1: a line of more than 4,194,304 bytes"
    else:
        command, says = ["--input", name], "/dev/zero: is not a regular file"
    if name == "endless":
        ran = run([*TRANSLATE, *command], folder)
        assert (ran.code, ran.out.count(b"\n")) == (3, 1), "the lines before it are answered"
        error_line(Ran(3, b"", ran.err), code=3, says=["endless:2: a line of more than 4,194,304 bytes"])
    else:
        refused([*TRANSLATE, *command], folder, code=3, says=[says], stdin=b"a\n")


def test_a_packed_input_is_unpacked_as_a_corpus_is(folder: Path) -> None:
    (folder / "text.gz").write_bytes(gzip.compress((folder / "text").read_bytes()))
    assert run([*TRANSLATE, "--input", "text.gz"], folder) == run([*TRANSLATE, "--input", "text"], folder)


@pytest.mark.slow
def test_D1_streams_that_do_not_block_lose_no_line(folder: Path) -> None:
    lines, (ours, theirs), (out, end) = (folder / "text").read_bytes(), os.pipe(), os.pipe()
    os.set_blocking(ours, False)
    os.set_blocking(end, False)
    command, env = [sys.executable, "-c", PROGRAM, *TRANSLATE], environment({"PYTHONUNBUFFERED": "1"})
    with subprocess.Popen(command, cwd=folder, stdin=ours, stdout=end, env=env) as process:
        os.close(ours)
        os.close(end)
        for line in lines.split(b"\n")[:-1]:
            os.write(theirs, line + b"\n")
            os.read(out, 1 << 16)  # the answer
        os.close(theirs)
        assert os.read(out, 1 << 16) == b""
        assert process.wait(timeout=30) == 0
    os.close(out)


def test_D6_empty_input_is_no_error(folder: Path) -> None:
    assert run(TRANSLATE, folder) == Ran(0, b"", b"")


def test_D13_a_reader_that_has_gone_ends_the_command_quietly_and_at_once(folder: Path) -> None:
    with started(folder, *TRANSLATE) as process:
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


GREETING = (
    b"en \xe2\x86\x92 xx with model.safetensors. Type a line to see its translation; Ctrl-C drops it, Ctrl-D leaves\n"
)


@pytest.mark.parametrize("key", [b"\x04", b"\x03"], ids=["Ctrl-D", "Ctrl-C"])
def test_D14_at_a_terminal_each_line_is_answered_until_a_key_ends_it(folder: Path, key: bytes) -> None:
    ours, theirs = pty.openpty()
    # The engine that is chosen at a terminal is logged; a given one is not.
    with started(folder, *TRANSLATE, "--engine", "torch", stdin=theirs, on_terminal=True) as process:
        os.close(theirs)
        assert process.stdout
        assert process.stderr
        assert process.stderr.readline() == GREETING
        answers = run(TRANSLATE, folder, stdin=b"a b c\nd e f\n").out.split(b"\n")[:2]
        for line, answer in zip((b"a b c\n", b"d e f\n"), answers, strict=True):
            os.write(ours, line)
            assert process.stdout.readline() == answer + b"\n"
            time.sleep(0.3)  # until it waits again: a line that has arrived would be dropped with what is typed
            os.write(ours, b"dropped\x03")
            time.sleep(0.3)
        os.write(ours, key)  # the second Ctrl-C in a row, or the first Ctrl-D
        assert process.wait(timeout=30) == 0
        assert process.stdout.read() == b""
        logged = process.stderr.read().split(b"\n")
        assert [line for line in logged if line and not line.startswith(b"tfm: warning: this translation: ")] == []
    os.close(ours)


@pytest.mark.parametrize("state", ["state", "shut"])
def test_D14_at_a_terminal_lines_are_called_back_from_a_history(folder: Path, state: str) -> None:
    """No history can be kept in `shut`, a file: one warning says so, and all else goes on."""
    (folder / "shut").write_bytes(b"")
    history = folder / "state" / "tfm" / "history"
    (answer,) = run(TRANSLATE, folder, stdin=b"a b c\n").out.decode().split("\n")[:1]
    for n, keys in enumerate((b"a b c\n", b"\x1b[A\n")):  # typed; in the next conversation, called back with Up
        if n and state == "shut":
            break
        ours, theirs = pty.openpty()
        own = {"XDG_STATE_HOME": str(folder / state), "TERM": "dumb" if n == 0 else "xterm"}
        with started(folder, *TRANSLATE, stdin=theirs, stdout=theirs, stderr=theirs, on_terminal=True, env=own):
            os.close(theirs)
            seen = seen_until(ours, "en> ")
            assert ("what is typed is not kept" in seen) is (state == "shut")
            os.write(ours, keys)
            seen = seen_until(ours, "en> ", after=answer)
            assert "a b c" in seen
            os.write(ours, b"\x04")
            seen_until(ours, None)
        os.close(ours)
    assert (history.read_bytes().split(b"\n")[0] == b"a b c") if state == "state" else not history.exists()
    assert state == "shut" or stat.S_IMODE(history.stat().st_mode) == 0o600


def seen_until(terminal: int, text: str | None, *, after: str = "") -> str:
    """What a terminal shows, up to `text` behind `after`; None: up to its end."""
    seen = ""
    while text is None or text not in seen[seen.find(after) :] or after not in seen:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            more = b""
        if not more:
            assert text is None, seen
            break
        seen += more.decode(errors="replace")
    return seen


def test_D15_a_killed_command_leaves_no_output_and_the_same_one_makes_it_whole(folder: Path) -> None:
    os.mkfifo(folder / "slow")
    before = tree(folder)
    with (
        started(folder, *TRANSLATE, "--input", "slow", "--output", "out") as process,
        open(folder / "slow", "wb", buffering=0) as feed,
    ):
        feed.write(b"a b c\n" * 100)
        while not any(path.stat().st_size for path in folder.glob(".tfm-*")):
            assert process.poll() is None
            time.sleep(0.01)
        (theirs,) = folder.glob(".tfm-*")
        assert run([*TRANSLATE, "--input", "text", "--output", "out"], folder).code == 0
        assert theirs.exists(), "somebody is still writing it"
        (folder / "out").unlink()
        process.send_signal(signal.SIGKILL)
        process.wait()
    untouched(before, folder, new=[".tfm-*"])
    assert run([*TRANSLATE, "--input", "text", "--output", "out"], folder).code == 0
    assert (folder / "out").read_bytes() == run([*TRANSLATE, "--input", "text"], folder).out
    untouched(before, folder, new=["out"])


def test_D16_a_file_that_appears_while_a_text_is_translated_is_kept_and_so_is_the_translation(folder: Path) -> None:
    """Two commands may write one file, and the second has worked for an hour, too."""
    os.mkfifo(folder / "slow")

    def feed() -> None:
        with open(folder / "slow", "wb") as pipe:  # opened when the command reads, after its checks
            pipe.write((folder / "text").read_bytes())
            (folder / "out").write_bytes(b"theirs\n")

    thread = threading.Thread(target=feed)
    thread.start()
    ran = run([*TRANSLATE, "--input", "slow", "--output", "out", "--alignments", "links"], folder)
    thread.join()
    says = ["out: has appeared while this command ran", "kept as out.kept-1;"]
    error_line(ran, code=2, says=says, working=True)
    assert (folder / "out").read_bytes() == b"theirs\n"
    assert (folder / "out.kept-1").read_bytes() == run([*TRANSLATE, "--input", "text"], folder).out
    assert (folder / "links").read_bytes().count(b"\n") == 6
    assert list(folder.glob(".*")) == []


def test_D16_overwriting_keeps_a_private_file_private(folder: Path) -> None:
    (folder / "out").write_bytes(b"old\n")
    (folder / "out").chmod(0o600)
    assert run([*TRANSLATE, "--input", "text", "--output", "out", "--overwrite"], folder).code == 0
    assert (folder / "out").read_bytes() != b"old\n"
    assert stat.S_IMODE((folder / "out").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["n" * 250, "d/" + "é" * 127], ids=["letters", "bytes"])
def test_D17_an_output_may_have_as_long_a_name_as_the_disk_allows(folder: Path, name: str) -> None:
    (folder / "d").mkdir()
    assert run([*TRANSLATE, "--input", "text", "--output", name], folder).code == 0
    assert (folder / name).read_bytes().count(b"\n") == 6


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
    own = [*EVALUATE, "--source", "text", "--reference", "text", "--save"]
    refused([*own, "text"], folder, code=2, says=["text: both --source and --save"])
    refused([*own, "fifo"], folder, code=2, says=["fifo: not a plain file"])


@pytest.mark.parametrize("is_there", [True, False])
def test_D16_what_an_output_links_to_is_written_and_the_link_stays(folder: Path, is_there: bool) -> None:
    (folder / "far").mkdir()
    if is_there:
        (folder / "far" / "real").write_bytes(b"old\n")
    (folder / "link").symlink_to("far/real")
    command = [*TRANSLATE, "--input", "text", "--output", "link"]
    assert run([*command, "--overwrite"], folder).code == 0
    assert (folder / "link").is_symlink()
    assert (folder / "far" / "real").read_bytes() == run(TRANSLATE, folder, stdin=(folder / "text").read_bytes()).out
    assert [path.name for path in (folder / "far").iterdir()] == ["real"]
    refused(command, folder, code=2, says=["link: exists already. Add --overwrite"])
    (folder / "nowhere").symlink_to("missing/real")
    refused([*TRANSLATE, "--output", "nowhere"], folder, code=5, says=["missing: no such folder. Create it"])


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
    own = [*EVALUATE, "--source", "text", "--reference", "text", "--save"]
    refused([*own, "no/out"], folder, code=5, says=["no: no such folder"], as_root=False)
    refused([*own, "shut/out"], folder, code=5, says=["shut: ", "written"], as_root=False)


def test_D18_a_model_and_a_tokenizer_that_disagree_are_refused_with_both_hashes(folder: Path) -> None:
    ours, theirs = read_model(FOLDER / "joint-pre.safetensors").tokenizers.source.sha256, "ab" * 32
    (folder / "model.safetensors").write_bytes(signed(MODEL, tokenizers={"tokenizer.source": theirs}))
    says = ["model.safetensors: its tokenizer.source has SHA-256", ours[:12], theirs[:12]]
    refused(TRANSLATE, folder, code=4, says=says, stdin=b"a\n")


@each("command", [TRANSLATE, EVALUATE])
@each(
    "content, says",
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
)
def test_D19_a_model_that_is_not_whole_is_named(
    folder: Path, command: list[str], content: bytes | None, says: str
) -> None:
    (folder / "model.safetensors").unlink(missing_ok=True)
    if content is not None:
        (folder / "model.safetensors").write_bytes(content)
    refused(command, folder, code=4, says=["model.safetensors: ", says], stdin=b"a\n")


def test_D19_a_folder_without_a_model_and_no_run_at_all_are_named(folder: Path) -> None:
    (folder / "empty").mkdir()
    refused(["translate", "--checkpoint", "empty"], folder, code=4, says=["empty: holds no model yet"])
    (folder / "empty" / "notes.txt").touch()
    refused(["translate", "--checkpoint", "empty"], folder, code=4, says=["empty: is no run directory"])
    (folder / "empty" / "tfm.log").touch()
    refused(["translate", "--checkpoint", "empty"], folder, code=4, says=["empty: holds no model yet"])
    for name in ("some/one", "some/two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model.safetensors").touch()
    says = ["some: holds runs or checkpoints, and is none itself. Choose one of them, as some/two"]
    refused(["translate", "--checkpoint", "some"], folder, code=4, says=says)
    refused(["translate"], folder, code=4, says=["runs/latest: no trained model. Train one with `tfm train`"])


def test_D20_texts_of_different_length_get_no_score(folder: Path) -> None:
    (folder / "two").write_bytes(b"a\nb\n")
    says = ["has 2 lines, text 6, so nothing is scored"]
    own = [*EVALUATE, "--source", "text", "--reference"]
    refused([*own, "two"], folder, code=3, says=["two: ", *says])
    refused([*own, "text", "--reference", "two"], folder, code=3, says=["two: ", *says])
    refused([*own, "missing"], folder, code=3, says=["missing: no such file"])


# ---- Prefixes, terms and what a program reads


@each(
    "prefix, stdin, says",
    [
        (b"a\n", b"a b\nc d\n", "prefixes: has 1 lines, standard input 2, so nothing is translated"),
        (b"a\n\nb\n", b"a b\nc d\n", "prefixes: has 3 lines, standard input 2, so nothing is translated"),
        (b"a\n" + b"b a " * 40, b"a b\nc d\n", "prefixes:2: 80 tokens, where the translation of line 2 may have "),
        (b"a\nb\n", b"a b\n \n", "prefixes:2: 'b' begins the translation of a blank line"),
        ("a\n☃\n".encode(), b"a b\nc d\n", "prefixes:2: '☃' cannot be written with the pieces of this model"),
        (b"a\n\xff\n", b"a b\nc d\n", "prefixes:2: "),
        (None, b"a b\n", "prefixes: no such file. Check --prefix"),
    ],
)
def test_a_prefix_that_cannot_begin_its_line_is_named_before_anything_is_translated(
    folder: Path, prefix: bytes | None, stdin: bytes, says: str
) -> None:
    (folder / "prefixes").unlink(missing_ok=True)
    if prefix is not None:
        (folder / "prefixes").write_bytes(prefix)
    command = [*TRANSLATE, "--prefix", "prefixes"]
    refused(command, folder, code=3, says=[says], stdin=stdin)
    refused([*command, "--output", "out"], folder, code=3, says=[says], stdin=stdin)


@each(
    "limits, may_have, key",
    [
        ([], 52, "decode.max_extra_length"),
        (["decode.max_length=54"], 52, "decode.max_extra_length"),
        (["decode.max_length=53"], 52, "decode.max_length"),
        (["decode.max_length=1"], 0, "decode.max_length"),
    ],
)
def test_a_prefix_that_is_too_long_is_told_what_limits_it(
    folder: Path, limits: list[str], may_have: int, key: str
) -> None:
    (folder / "prefixes").write_bytes(b"b a " * 40)
    says = f"prefixes:1: 80 tokens, where the translation of line 1 may have {may_have}. Shorten it, or raise {key}"
    line = refused([*TRANSLATE, "--prefix", "prefixes", *limits], folder, code=3, says=[says], stdin=b"a b\n")
    assert line.endswith(key)


def test_D6_no_lines_need_no_prefixes(folder: Path) -> None:
    (folder / "prefixes").write_bytes(b"")
    command = [*TRANSLATE, "--prefix", "prefixes"]
    ran = run(command, folder)
    assert (ran.code, ran.out, ran.err) == (0, b"", b"")
    refused(command, folder, code=3, says=["prefixes: has 0 lines, standard input 1, so nothing"], stdin=b"a\n")


def test_a_translation_begins_with_its_prefix(folder: Path) -> None:
    (folder / "prefixes").write_bytes(b"a b\n\nc\n\n\nd e\n")
    ran = run([*TRANSLATE, "--prefix", "prefixes", "--input", "text"], folder)
    assert ran.code == 0, ran.err
    plain, forced = run([*TRANSLATE, "--input", "text"], folder).out.split(b"\n"), ran.out.split(b"\n")
    assert [forced[0][:3], forced[2][:1], forced[5][:3]] == [b"a b", b"c", b"d e"]
    assert [forced[n] for n in (1, 3, 4)] == [plain[n] for n in (1, 3, 4)]


@each(
    "terms, says",
    [
        (b"a\tb\nno tab\n", "terms:2: 0 tabs in 'no tab'"),
        (b"a\t\n", "terms:1: no target phrase in 'a\\t'"),
        ("a\tb\nb\t☃\n".encode(), "terms:2: '☃' cannot be written with the pieces of this model"),
        (None, "terms: no such file. Check --terms"),
    ],
)
def test_a_line_of_a_terminology_that_is_wrong_is_named(folder: Path, terms: bytes | None, says: str) -> None:
    (folder / "terms").unlink(missing_ok=True)
    if terms is not None:
        (folder / "terms").write_bytes(terms)
    refused([*BEAM, "--terms", "terms"], folder, code=3, says=[says], stdin=b"a\n")


def test_terms_need_a_beam(folder: Path) -> None:
    (folder / "terms").write_bytes(b"a\tb\n")
    says = ["decode.search=greedy: has no lexical constraints, which --terms needs. Choose decode.search=beam"]
    refused([*TRANSLATE, "--terms", "terms"], folder, code=2, says=says, stdin=b"a\n")
    says = ["decode.diversity_groups=2: has no lexical constraints, which --terms needs"]
    refused([*BEAM, "decode.diversity_groups=2", "--terms", "terms"], folder, code=2, says=says, stdin=b"a\n")


def test_a_term_that_has_no_room_is_told_and_disturbs_nothing(folder: Path) -> None:
    lines = (folder / "text").read_text(encoding="utf-8").split("\n")[:-1]
    plain = run([*BEAM, "--input", "text"], folder)
    word = lines[2].split()[0]
    in_lines = [n for n, line in enumerate(lines, start=1) if word in line.split()]
    (folder / "terms").write_text(f"{word}\t{'a ' * 300}\nnowhere\ta\n", encoding="utf-8")
    command = [*BEAM, "--input", "text", "--terms", "terms"]
    ran = run(command, folder)
    assert (ran.code, ran.out) == (0, plain.out)
    *warnings, summary = [line for line in ran.err.decode().split("\n") if line]
    assert warnings == [line for line in warnings if line.startswith("tfm: warning: line ")]
    assert [int(line.split()[3].rstrip(":")) for line in warnings] == in_lines
    assert all(f"'{word}' has no room or no likely place in its translation as 'a a " in line for line in warnings)
    assert f"{len(in_lines)} unmet_terms" in summary
    records = [json.loads(line) for line in run([*command, "--output-format", "jsonl"], folder).out.split(b"\n")[:-1]]
    assert [record["line"] for record in records if record["unmet_terms"]] == in_lines
    assert [record["translation"] for record in records] == plain.out.decode().split("\n")[:-1]


def test_a_program_reads_one_object_for_each_line(folder: Path) -> None:
    stdin = b"a b c\n\n\xff b\xe2\x80\xa8\n" + b"d " * 300 + b"\n"
    command = [*TRANSLATE[:-1], "--beam", "3", "--n-best", "2", "--output-format", "jsonl", "--token-scores"]
    ran = run(command, folder, stdin=stdin)
    assert ran.code == 0, ran.err
    lines = ran.out.decode().split("\n")[:-1]
    assert b"".join(ran.out.splitlines()) == ran.out.replace(b"\n", b"")
    assert len(ran.out.decode().splitlines()) == 4, "whatever a reader takes for the end of a line"
    records = [json.loads(line) for line in lines]
    assert [record["line"] for record in records] == [1, 2, 3, 4]
    assert [record["source"][:5] for record in records] == ["a b c", "", "\ufffd b\u2028", "d d d"]
    assert [record["bad_bytes"] for record in records] == [False, False, True, False]
    assert [record["split"] for record in records] == [False, False, False, True]
    assert [len(record["alternatives"]) for record in records] == [1, 0, 1, 1]
    text = run([*command[:-3], "--n-best", "2"], folder, stdin=stdin).out.decode().split("\n")
    warnings = [
        f"{record['line']} ||| {one['translation']} ||| {one['score']:.4f}"
        for record in records
        for one in (record, *record["alternatives"])
    ]
    assert warnings == text[:-1]
    for record in records:
        assert sum(log_prob for _, log_prob in record["tokens"]) == pytest.approx(record["log_prob"], abs=0.05)
        assert len(record["tokens"]) == record["n_tokens"]


def test_alignments_are_written_whole_and_beside_the_translation(folder: Path) -> None:
    stdin = b"a b c\n\nd e\n"
    ran = run([*TRANSLATE, "--alignments", "links"], folder, stdin=stdin)
    assert (ran.code, ran.out) == (0, run(TRANSLATE, folder, stdin=stdin).out)
    links = (folder / "links").read_text().split("\n")
    assert len(links) == 4
    assert links[1] == ""
    for line, source, translation in zip(links, stdin.split(b"\n"), ran.out.split(b"\n"), strict=True):
        pairs = [tuple(map(int, link.split("-"))) for link in line.split()]
        assert [j for _, j in pairs] == list(range(len(translation.split())))
        assert all(0 <= i < len(source.split()) for i, _ in pairs)
    refused([*TRANSLATE, "--alignments", "links"], folder, code=2, says=["links: exists already. Add --overwrite"])
    refused([*TRANSLATE, "--input", "text", "--alignments", "text", "--overwrite"], folder, code=2,
            says=["text: both --input and --alignments"])  # fmt: skip
    refused([*TRANSLATE, "--output", "new", "--alignments", "./new"], folder, code=2,
            says=["new: both --output and --alignments"])  # fmt: skip
    refused([*TRANSLATE, "--alignments", "no/links"], folder, code=5, says=["no: no such folder"])


def test_token_scores_need_a_place(folder: Path) -> None:
    refused([*TRANSLATE, "--token-scores"], folder, code=2, says=["token_scores=true: output_format=text"])


def test_a_second_try_is_told(folder: Path) -> None:
    stdin = b"".join(f"{line}\n".encode() for line in sentences(40, seed=9))
    command = [*TRANSLATE, "decode.max_extra_length=0", "--output-format", "jsonl"]
    first = [json.loads(line) for line in run(command, folder, stdin=stdin).out.split(b"\n")[:-1]]
    ran = run([*command, "--on-issue", "retry"], folder, stdin=stdin)
    records = [json.loads(line) for line in ran.out.split(b"\n")[:-1]]
    flags = ("hit_length_limit", "repeats_itself", "copied", "empty")
    assert [record["retried"] for record in records] == [any(record[flag] for flag in flags) for record in first]
    n_retried, n_replaced = (sum(record[key] for record in records) for key in ("retried", "replaced"))
    assert n_retried > 0
    assert f"{n_retried} lines were translated again, {n_replaced} of them better\n".encode() in ran.err
