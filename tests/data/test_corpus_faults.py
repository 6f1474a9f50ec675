"""Fault rows C, training data, as the commands meet them. Test names carry the row of the fault matrix."""

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.contract import refused, run
from tests.toy.run import sentences
from transformer_cli.training import run as training_run

CORPUS = ["data=files", "data.source_lang=en", "data.target_lang=de", "data.tokenizer.vocab_size=20"]
PREPARE = ["prepare", *CORPUS]
TRAIN = [
    *("train", "name=run", *CORPUS, "device=cpu", "decode=greedy", "decode.max_extra_length=5"),
    *("model.d_model=16", "model.d_ff=16", "model.n_heads=2", "model.n_encoder_layers=1", "model.n_decoder_layers=1"),
    *("train.max_steps=4", "train.eval_every=4", "train.save_every=2", "train.log_every=2", "train.average_last=1"),
    "train.tokens_per_update=256",
]
LOCK = ["data", "data/files", "data/files/.prepared-*.lock"]  # what a preparation may leave that came to nothing
BOTH = pytest.mark.parametrize(("command", "new"), [(PREPARE, LOCK), (TRAIN, LOCK)], ids=["prepare", "train"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with sixty pairs."""
    lines = sentences(60, seed=1)
    write(tmp_path / "corpus.en", lines)
    write(tmp_path / "corpus.de", [" ".join(reversed(line.split())) for line in lines])
    return tmp_path


def write(path: Path, lines: list[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


@BOTH
def test_C1_different_line_counts_are_both_named(folder: Path, command: list[str], new: list[str]) -> None:
    write(folder / "corpus.de", ["x"] * 1234)
    says = ["corpus.de: has 1,234 lines, corpus.en 60. Make line i"]
    refused([*command, "data.train=corpus"], folder, code=3, says=says, new=new)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


@BOTH
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (Path.touch, "is empty"),
        (lambda path: path.write_bytes(b"\xef\xbb\xbf"), "is empty"),
        (lambda path: None, "no such file"),
        (Path.mkdir, "is a folder"),
        (_fifo, "not a regular file"),
        (_dangling, "is a link to nothing"),
        (lambda path: path.touch(0), "permission denied"),
    ],
    ids=["empty", "only a mark", "missing", "folder", "FIFO", "broken link", "unreadable"],
)
def test_C2_what_is_no_text_file_is_named(
    folder: Path, command: list[str], new: list[str], spoil: Callable[[Path], Any], says: str
) -> None:
    spoil(folder / "bad.de")
    says_both = ["bad.de: ", says]
    refused([*command, "data.train=[corpus.en,bad.de]"], folder, code=3, says=says_both, new=new, as_root=False)


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf"], ids=["0xff", "surrogate", "overlong"])
def test_C5_a_line_that_is_not_utf8_is_named(folder: Path, bad: bytes) -> None:
    (folder / "bad.de").write_bytes(b"x\n" * 30 + "gr\u00fcn ".encode() + bad + b"\n" + b"x\n" * 29)
    says = [f"bad.de:31: byte 0x{bad[0]:02x} at column 6 is not UTF-8", "data.on_bad=skip"]
    refused([*PREPARE, "data.train=[corpus.en,bad.de]"], folder, code=3, says=says, new=LOCK)


def test_C5_bad_pairs_are_dropped_on_request_and_named(folder: Path) -> None:
    lines = (folder / "corpus.en").read_bytes().split(b"\n")
    (folder / "bad.de").write_bytes(b"\n".join([*lines[:30], b"\xff", *lines[31:]]))
    ran = run([*PREPARE, "data.train=[corpus.en,bad.de]", "data.on_bad=skip"], folder)
    assert (ran.code, ran.out) == (0, b"")
    assert b"1 pairs dropped, their lines cannot be read: bad.de:31: byte 0xff at column 1" in ran.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("gr\u00fcne \u00c4pfel\n".encode("utf-16"), "is UTF-16LE, not UTF-8"),
        ("gr\u00fcne \u00c4pfel\n".encode("latin-1"), "looks like Latin-1"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "looks like binary data"),
        (gzip.compress(b"text\n"), "is gzip data, not text. Add .gz"),
    ],
    ids=["UTF-16", "Latin-1", "binary", "gzip"],
)
def test_C6_another_encoding_is_guessed(folder: Path, content: bytes, says: str) -> None:
    (folder / "bad.de").write_bytes(content)
    refused([*PREPARE, "data.train=[corpus.en,bad.de]"], folder, code=3, says=["bad.de:", says], new=LOCK)


@BOTH
@pytest.mark.parametrize(
    ("spoiled", "override", "says"),
    [
        ([" "] * 60, "data.on_bad=error", "60 blank on one side or both"),
        (sentences(60, seed=4), "data.max_length=2", "longer than data.max_length=2 tokens"),
        ([f"{'a b c d e ' * 9}{line}" for line in sentences(60, seed=4)], "data.max_ratio=2", "over data.max_ratio=2"),
    ],
    ids=["blank", "long", "ratio"],
)
def test_C12_when_no_pair_is_left_the_filter_is_named(
    folder: Path, command: list[str], new: list[str], spoiled: list[str], override: str, says: str
) -> None:
    write(folder / "corpus.de", spoiled)
    refused([*command, "data.train=corpus", override], folder, code=3, says=["data.train: none of ", says], new=new)


@pytest.mark.parametrize(
    "line",
    ["\U0001f600 \U0001f44d\U0001f3fd", "\u05e9\u05dc\u05d5\u05dd", "a\u200bb\u200d", "x\u0301\u0323", "\ufffd\ufffd"],
    ids=["emoji", "right to left", "zero width", "combining", "unknown"],
)
def test_C13_any_script_is_trained_on(folder: Path, line: str) -> None:
    write(folder / "corpus.de", [f"{text} {line}" for text in sentences(60, seed=2)])
    ran = run([*PREPARE, "data.train=corpus"], folder)
    assert ran.code == 0, ran.err


def _tar_cut_short(path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo("corpus.de")
        member.size = 60_000
        tar.addfile(member, io.BytesIO(os.urandom(60_000)))
    path.write_bytes(buffer.getvalue()[:30_000])


PACKED = gzip.compress(b"".join(b"line %d\n" % i for i in range(60)))


def bomb() -> bytes:
    return gzip.compress((b"a" * 1023 + b"\n") * (1 << 17))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (PACKED[:-20], "cut short"),
        (PACKED[:-6] + bytes([PACKED[-6] ^ 1]) + PACKED[-5:], "damaged"),
        (PACKED + b"junk", "damaged"),
        (bomb, "over 100 to 1"),
    ],
    ids=["cut", "checksum", "junk after it", "bomb"],
)
def test_C15_a_broken_gzip_is_refused(folder: Path, content: bytes | Callable[[], bytes], says: str) -> None:
    (folder / "bad.de.gz").write_bytes(content if isinstance(content, bytes) else content())
    refused([*PREPARE, "data.train=[corpus.en,bad.de.gz]"], folder, code=3, says=["bad.de.gz: ", says], new=LOCK)


def test_C15_an_archive_cut_short_is_refused(folder: Path) -> None:
    _tar_cut_short(folder / "c.tgz")
    says = ["c.tgz"]
    refused([*PREPARE, "data.train=[corpus.en,c.tgz::corpus.de]"], folder, code=3, says=says, new=LOCK)


def test_C16_training_does_not_read_a_file_that_changes_and_the_next_start_notices(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [*TRAIN, "data.train=corpus"]
    calm = folder / "calm"
    calm.mkdir()
    for name in ("corpus.en", "corpus.de"):
        (calm / name).write_bytes((folder / name).read_bytes())
    assert run(command, calm).code == 0

    train = training_run.train

    def meanwhile(*args: Any, **options: Any) -> Any:
        write(folder / "corpus.de", sentences(60, seed=3))
        return train(*args, **options)

    monkeypatch.setattr(training_run, "train", meanwhile)
    ran = run(command, folder)
    assert ran.code == 0, ran.err
    weights = [place / "runs/run/checkpoints/step-00000004/model.safetensors" for place in (folder, calm)]
    assert weights[0].read_bytes() == weights[1].read_bytes()

    monkeypatch.undo()
    log = ["runs/run/.owner", "runs/run/tfm.log"]
    refused(command, folder, code=3, says=["runs/run: ", "data"], new=["data/*"], written=log, working=True)


@BOTH
def test_C19_a_vocabulary_too_big_names_the_largest_possible(folder: Path, command: list[str], new: list[str]) -> None:
    says = ["data.tokenizer.vocab_size=9000: ", "the largest possible is ", "Set data.tokenizer.vocab_size=auto"]
    others = [word for word in command if "vocab_size" not in word]
    too_big = [*others, "data.train=corpus", "data.tokenizer.vocab_size=9000"]
    line = refused(too_big, folder, code=2, says=says, new=new)
    size = line.partition("possible is ")[2].partition(",")[0]
    assert run([*others, "data.train=corpus", f"data.tokenizer.vocab_size={size}"], folder).code == 0


def test_C20_a_cache_that_was_damaged_is_built_again_and_said(folder: Path) -> None:
    command = [*PREPARE, "data.train=corpus"]
    assert run(command, folder).code == 0
    (ids,) = folder.glob("data/files/prepared-*/source.ids")
    whole = ids.read_bytes()
    ids.write_bytes(whole[:-1])
    ran = run(command, folder)
    assert (ran.code, ran.out) == (0, b"")
    assert b"tfm: warning: " in ran.err
    assert b"source.ids is not as it was written; it is built again" in ran.err
    assert ids.read_bytes() == whole


@pytest.mark.parametrize("n_pairs", [1, 2, 3])
def test_C21_a_handful_of_pairs_is_trained_on(folder: Path, n_pairs: int) -> None:
    for lang in ("en", "de"):
        write(folder / f"corpus.{lang}", [f"abcdefghij {i}" for i in range(n_pairs)])
    ran = run([*TRAIN, "data.train=corpus", "data.tokenizer.vocab_size=19"], folder)
    assert ran.code == 0, ran.err
    assert b"dev is the training text itself" in ran.err
    assert b"no test set" in ran.err


def test_C18_training_pairs_that_are_in_dev_are_told_at_each_start(folder: Path) -> None:
    for _ in range(2):
        ran = run([*TRAIN, "data.train=corpus", "data.dev=corpus"], folder)
        assert ran.code == 0
        assert b"data.dev: 57 training pairs have a source sentence of it (57 with the same translation)" in ran.err
