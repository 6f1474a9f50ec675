"""A line is what `wc -l` counts, whatever bytes are in it."""

import gzip
import io
import os
import random
import subprocess
import time
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.each import each
from transformer_cli.data import compression, lines
from transformer_cli.data.lines import Lines, TextInput, read_chunks, read_lines, read_stream, split_lines
from transformer_cli.errors import DataError, EnvironmentFault

# What Python's own line readers take for line ends, and what they may confuse with one.
TRICKY = "\v\f\x1c\x1d\x1e\x85\u2028\u2029\ufeff\x00\r "


def written(folder: Path, content: bytes, name: str = "corpus.en") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def texts(folder: Path, content: bytes) -> list[str]:
    return read_lines(written(folder, content)).texts


@each(
    "data, expected",
    [(b"", []), (b"\n", [b""]), (b"a", [b"a"]), (b"a\n", [b"a"]), (b"a\n\n", [b"a", b""]), (b"a\r\nb\r", [b"a", b"b"])],
)
def test_split_lines_counts_as_a_byte_reader_does(data: bytes, expected: list[bytes]) -> None:
    assert split_lines(data) == expected


@given(st.binary(max_size=200) | st.text(f"ab\n{TRICKY}", max_size=200).map(str.encode))
def test_split_lines_has_one_line_per_newline_and_one_for_an_unfinished_rest(data: bytes) -> None:
    assert len(split_lines(data)) == data.count(b"\n") + bool(data.rpartition(b"\n")[2])


def test_two_thousand_random_texts_have_as_many_lines_as_wc_counts() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        data = "".join(["b\n", *rng.choices(f"aé\n\n{TRICKY}", k=rng.randrange(1, 30))]).encode()  # two lines or more
        found = read_stream(io.BytesIO(data), "random").texts
        assert len(found) == data.count(b"\n") + (not data.endswith(b"\n"))
        assert found == [line.decode() for line in split_lines(data)]


def test_newstest2009_has_the_lines_that_wc_counts(shared_data: Path) -> None:
    path = shared_data / "wmt14_en_de" / "newstest2009.de"  # has U+0085 eight times
    counted = int(subprocess.run(["wc", "-l", path], capture_output=True, check=True, text=True).stdout.split()[0])
    assert len(read_lines(path)) == counted == 2525


SEPARATORS = "a\u2028b\u2029c\x85d\ve\ff\x1cg\x1dh\x1ei"
CONTROL = "a\x00b\x01c\x7f and enough text around it"


@each(
    "content, expected",
    [
        (f"{SEPARATORS}\nnext\n", [SEPARATORS, "next"]),
        ("o\rne\ntwo\r\r\n", ["o\rne", "two\r"]),  # one carriage return is removed, and only at the end
        ("\ufeffone\n\ufefftwo\nth\ufeffree\n", ["one", "\ufefftwo", "th\ufeffree"]),
        (f"{CONTROL}\n", [CONTROL]),
        ("one\ntwo", ["one", "two"]),
        ("one\ntwo\n", ["one", "two"]),
        ("\none\n\n \n", ["", "one", "", " "]),
    ],
)
def test_C3_C4_C7_C8_C9_C10_lines_end_at_newlines_alone(tmp_path: Path, content: str, expected: list[str]) -> None:
    assert texts(tmp_path, content.encode()) == expected


def test_C3_crlf_reads_as_lf_and_is_counted(tmp_path: Path) -> None:
    found = read_lines(written(tmp_path, b"one\r\ntwo\r\nthree\n"))
    assert found.texts == ["one", "two", "three"]
    assert found.n_crlf == 2


@each(
    "content",
    ["one\rtwo\rthree", "one\rtwo\r", "one\rtwo\rthree\r\n", "\ufeffen\tde\rone\teins\rtwo\tzwei\r"],
)
def test_C3_lines_that_end_as_on_old_macs_are_named_and_not_one_line(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match=r"is one line with [23] carriage returns \(\\r\) in it.* Convert it with `tr"):
        read_lines(written(tmp_path, content.encode()))


@each("content", ["one\rtwo", "one\r\r\n", "one\r \r\r", "one\rtwo\rthree\nfour\n", "\r\r\r"])
def test_C3_other_carriage_returns_are_text(tmp_path: Path, content: str) -> None:
    assert "\r" in "".join(read_lines(written(tmp_path, content.encode())).texts)


PAGES = [
    "<!DOCTYPE html>\n<html lang=en>\n<p>404\n",
    "\ufeff \n<!doctype HTML PUBLIC '-//W3C//DTD HTML 4.01//EN'>\n",
    "<!-- saved -->\n<html>\n<head>\n",
    "<HTML xmlns='x'><Body>",
]


@each("content", PAGES)
def test_C6_a_web_page_is_named(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match=r"is a web page \(HTML\), not text\. Fetch the file again"):
        read_lines(written(tmp_path, content.encode()))


@each(
    "content", ["<html>Click <b>here</b></html>\n", "<p>One\n", "<html> is an element.\n", "<!DOCTYPE> begins XML.\n"]
)
def test_C6_text_with_tags_is_no_web_page(tmp_path: Path, content: str) -> None:
    assert texts(tmp_path, content.encode()) == content.split("\n")[:-1]


@pytest.mark.parametrize("block_bytes", [2, 3, 7, 1 << 22])
def test_lines_do_not_depend_on_how_the_file_is_cut_into_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", block_bytes)
    content = "\ufeffgrün\r\n\n日本語\u2028x\nlast".encode()
    assert texts(tmp_path, content) == ["grün", "", "日本語\u2028x", "last"]
    packed = gzip.compress(content[:9]) + gzip.compress(content[9:])  # two members, as `cat a.gz b.gz` makes them
    assert read_lines(written(tmp_path, packed, "corpus.en.gz")).texts == ["grün", "", "日本語\u2028x", "last"]


@pytest.mark.parametrize(
    ("bad", "byte"),
    [(b"\xff", "0xff"), (b"\xc3(", "0xc3"), (b"\xed\xa0\x80", "0xed"), (b"\xc0\xaf", "0xc0"), (b"\xe4hnlich", "0xe4")],
    ids=["never valid", "cut short", "lone surrogate", "overlong", "Latin-1"],
)
def test_C5_a_byte_that_is_not_utf8_is_named_with_line_and_column(tmp_path: Path, bad: bytes, byte: str) -> None:
    path = written(tmp_path, "one\ngrün ist ".encode() + bad + b" x\n")
    with pytest.raises(DataError, match=rf"corpus.en:2: byte {byte} at column 10 is not UTF-8; ") as caught:
        read_lines(path)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "encoding", "says"),
    [
        ("Le café est prêt, et l'été est fini.", "latin-1", "it looks like Latin-1 or Windows-1252. Convert the file"),
        ("Кошка выпила молоко сегодня.", "cp1251", "another script's encoding, such as WINDOWS-1251"),
        ("猫喝了牛奶今天早上。她走了。", "gb18030", "another script's encoding, such as WINDOWS-1251, GB18030"),
        ("猫が牛乳を飲んだ。彼女は去った。", "shift_jis", "another script's encoding"),
        ("Le café", "utf-16", "is UTF-16LE, not UTF-8. Convert it with `iconv -f UTF-16LE"),
    ],
)
def test_text_in_another_encoding_is_told_by_what_it_is(tmp_path: Path, text: str, encoding: str, says: str) -> None:
    path = written(tmp_path, f"one\n{text}\n".encode(encoding))
    with pytest.raises(DataError) as caught:
        read_lines(path)
    assert says in str(caught.value)


def test_C5_only_who_can_leave_out_bad_lines_is_told_how(tmp_path: Path) -> None:
    path = written(tmp_path, b"one\n\xff\n")
    with pytest.raises(DataError, match=r"Convert the file with `iconv -f WINDOWS-1252 -t UTF-8`$"):
        read_lines(path)
    with pytest.raises(DataError, match=r"-t UTF-8`, or skip it$"):
        read_stream(io.BytesIO(b"one\n\xff\n"), "corpus.en", skip_hint=", or skip it")


def test_C5_bad_lines_can_be_left_to_the_caller() -> None:
    found = read_stream(io.BytesIO(b"one\n\xff\nthree\n\xfe"), "corpus.en", skip_bad=True)
    assert found.texts == ["one", "", "three", ""]
    assert list(found.bad) == [1, 3]
    assert found.bad[3].endswith("corpus.en:4: byte 0xfe at column 1 is not UTF-8")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_C6_other_unicode_encodings_are_named(tmp_path: Path, encoding: str) -> None:
    path = written(tmp_path, "Ein ganz gewöhnlicher Satz.\n".encode(encoding))
    with pytest.raises(DataError, match=r"corpus.en: is UTF-(16|32)[LB]E, not UTF-8\. Convert it with `iconv -f UTF-"):
        read_lines(path)


def test_C6_binary_data_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    with pytest.raises(DataError, match="it looks like binary data"):
        read_lines(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (gzip.compress(b"text\n"), "gzip data, not text. Add .gz"),
        (b"PK\x03\x04" + bytes(30), "a zip archive"),
        (b"\xfd7zXZ\x00" + bytes(30), "xz data"),
        (b"member".ljust(257, b"\0") + b"ustar\x0000" + bytes(249), "a tar archive"),
    ],
    ids=["gzip", "zip", "xz", "tar"],
)
def test_C6_packed_data_without_its_suffix_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    with pytest.raises(DataError, match=f"corpus.en: is {what}"):
        read_lines(written(tmp_path, content))


def test_C6_plain_text_called_gz_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"corpus.en.gz: is not gzip data, but is called .gz"):
        read_lines(written(tmp_path, b"plain\n", "corpus.en.gz"))


@pytest.mark.parametrize(
    ("error", "kind"), [(PermissionError(13, "denied"), DataError), (OSError(5, "I/O"), EnvironmentFault)]
)
def test_C2_a_failing_read_is_one_line_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, kind: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    path = written(tmp_path, b"text\n")
    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(kind, match=str(path)):
        read_lines(path)


def test_C15_a_gzip_cut_anywhere_gives_no_line(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"line %d\n" % i for i in range(2000)))
    for length in range(1, len(whole), 97):
        with pytest.raises(DataError, match=r"corpus.en.gz: the gzip data is cut short"):
            read_lines(written(tmp_path, whole[:length], "corpus.en.gz"))


def test_C15_a_flipped_bit_or_a_wrong_checksum_gives_no_line(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"line %d\n" % i for i in range(2000)))
    for position in (len(whole) // 2, len(whole) - 8, len(whole) - 4):  # in the data, the CRC and the length
        damaged = bytearray(whole)
        damaged[position] ^= 1
        with pytest.raises(DataError, match=r"corpus.en.gz: the gzip data is damaged"):
            read_lines(written(tmp_path, bytes(damaged), "corpus.en.gz"))


def test_C15_junk_after_a_gzip_is_an_error_and_zero_padding_is_not(tmp_path: Path) -> None:
    packed = gzip.compress(b"one\n")
    with pytest.raises(DataError, match="damaged"):
        read_lines(written(tmp_path, packed + b"junk", "corpus.en.gz"))
    assert read_lines(written(tmp_path, packed + bytes(512), "corpus.en.gz")).texts == ["one"]


def test_C15_a_gzip_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_FREE_BYTES", 1 << 16)
    path = written(tmp_path, gzip.compress(b"\n" * (1 << 24)), "corpus.en.gz")
    with pytest.raises(DataError, match=r"over 100 to 1\. Text never packs so well"):
        read_lines(path)


def test_C15_a_gzip_is_no_bomb_until_it_is_over_both_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, random_lines = b"a\n" * 500, random.Random(1).randbytes(3000).hex().encode()
    small = written(tmp_path, gzip.compress(text), "small.gz")  # 1,000 bytes of some 30: 33 to 1
    large = written(tmp_path, gzip.compress(random_lines), "large.gz")  # 6,000 bytes of some 3,400: below 2 to 1
    for n_free, ratio, path, is_read in [
        (1000, 1, small, True),
        (999, 1, small, False),
        (10, 2, large, True),
        (10, 1, large, False),
        (10, 100, small, True),
        (6000, 1, large, True),
    ]:
        monkeypatch.setattr(compression, "MAX_FREE_BYTES", n_free)
        monkeypatch.setattr(compression, "MAX_RATIO", ratio)
        if is_read:
            assert len(read_lines(path)) == (500 if path == small else 1)
        else:
            with pytest.raises(DataError, match=f"over {ratio} to 1"):
                read_lines(path)


def test_C11_a_line_of_a_million_characters_is_one_line(tmp_path: Path) -> None:
    assert [len(text) for text in texts(tmp_path, b"x" * 1_000_000 + b"\nshort\n")] == [1_000_000, 5]


def test_C11_a_file_that_is_one_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 500)
    with pytest.raises(DataError, match=r"corpus.en:1: a line of more than 1,000 bytes"):
        texts(tmp_path, b"x" * 2000)
    with pytest.raises(DataError, match=r"corpus.en:3: a line of more than 1,000 bytes"):
        texts(tmp_path, b"a\nb\n" + b"x" * 1001 + b"\nc\n")
    assert texts(tmp_path, b"a\n" + b"x" * 1000 + b"\n") == ["a", "x" * 1000]


# ---- Lines as they arrive


def chunks(content: bytes, *, at_a_time: int = 1 << 20) -> list[bytes]:
    source = io.BufferedReader(io.BytesIO(content), at_a_time)  # type: ignore[arg-type]
    return list(read_chunks(source, "standard input"))


@each("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@each(
    "text",
    [
        "Hi.\n",
        "Ein ganz gewöhnlicher Satz.\n" * 300,
        "猫は牛乳を飲んだ。\n彼女は椅子に座った。\n" * 40,
        "Кошка пила.\nДа.\n" * 9,
    ],
)
def test_C6_other_unicode_encodings_are_named_before_a_line_is_handed_out(encoding: str, text: str) -> None:
    says = rf"standard input: is {encoding[:6].upper()}.E, not UTF-8\. Convert it with `iconv -f UTF-"
    with pytest.raises(DataError, match=says):
        chunks(text.encode(encoding))
    if len(text) > 1000:
        with pytest.raises(DataError, match=says):
            next(iter(read_chunks(TwoBytes(text.encode(encoding)), "standard input")))


class TwoBytes(io.BytesIO):
    """Hands out little at a time, as a slow program does; all of it is there already."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(min(2, size or 2))


@each(
    "content",
    [
        "日本語の文です。\n".encode() * 600,
        "é".encode() * 4096,
        b"one\0two\nthree\n",
        b"a\0b\0c\n",
        "für Ähnliches\n".encode("latin-1") * 200 + b"\0\n",
        b"\n" * 5000,
        b"\0" * 5000,
        b"PK is not an archive\n",
        b"BZh, he said\n"[4:],
        b"7 zips\n%PDF\n",
    ],
)
def test_C7_what_only_looks_like_another_encoding_is_text(content: bytes) -> None:
    assert b"".join(chunks(content)) == content


# Bytes that are UTF-8 and have a newline in step with a zero byte: text, unless a fifth of it is control characters.
UNIT = b"\n\0\x01\x02abcdefghijkl"


@each(
    "content, encoding",
    [
        ("a plane with a number of its own: \U0010fffd\n".encode("utf-32-le"), "UTF-32LE"),
        ("a plane with a number of its own: \U0010fffd\n".encode("utf-32-be"), "UTF-32BE"),
        ("ab\ncd\nef\ngh\n".encode("utf-16-le"), "UTF-16LE"),  # a newline in the place of a plane
        ("ab\ncd\nef\ngh\n".encode("utf-16-be"), "UTF-16BE"),
        (("кошка пила молоко" + "\n").encode("utf-16-le") * 2, "UTF-16LE"),
        (("кошка пила молоко" + "\n").encode("utf-16-be") * 2, "UTF-16BE"),
        ("кошка пила молоко и ещё молоко, да\n".encode("utf-16-le"), None),  # one newline may be a letter's byte
        (UNIT * 5, None),  # 3 of 16
        ((UNIT + UNIT.replace(b"a", b"\x03")) * 3, "UTF-16LE"),  # 7 of 32
        (UNIT.replace(b"l", b"") * 10, None),  # 3 of 15, a fifth, but the newlines are out of step
        ("a short wкоротко".encode("utf-16-le"), "UTF-16LE"),  # 32 bytes are enough to judge by a share
        ((b"a\0" * 3 + b"ab" * 7) * 4, None),  # 3 of 10 in the odd places
    ],
)
def test_C6_what_gives_another_encoding_away(content: bytes, encoding: str | None) -> None:
    message = None if encoding is None else f"is {encoding}, not UTF-8. Convert it with `iconv -f {encoding} -t UTF-8`"
    assert lines.other_format(content) == message


def workbook(member: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("[Content_Types].xml", "_rels/.rels", member):
            archive.writestr(name, "<xml/>")
    return packed.getvalue()


@each(
    "content, what",
    [
        (gzip.compress(b"text\n"), "gzip data, not text. Add .gz to its name, or unpack it first"),
        (workbook("notes.txt"), "a zip archive, not text. Unpack it first"),
        (workbook("xl/workbook.xml"), "an Excel workbook"),
        (workbook("word/document.xml"), "a Word document"),
        (b"%PDF-1.7\n%\xe2\xe3\n", "a PDF document, not text. Save its text as a plain text file in UTF-8"),
    ],
)
def test_C6_documents_and_archives_are_named_before_a_line_is_handed_out(content: bytes, what: str) -> None:
    with pytest.raises(DataError, match=f"^standard input: is {what}"):
        chunks(content)


def test_C11_an_endless_line_is_named_as_soon_as_it_is_too_long() -> None:
    class Zeros(io.RawIOBase):
        n_read = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
            buffer[:] = bytes(len(buffer))
            self.n_read += len(buffer)
            return len(buffer)

    zeros = Zeros()
    with pytest.raises(DataError, match=r"^standard input:1: a line of more than 4,194,304 bytes\. Put one sentence"):
        list(read_chunks(io.BufferedReader(zeros), "standard input"))
    assert zeros.n_read <= lines.MAX_LINE_BYTES + (2 << 20)


def test_C11_lines_before_a_line_that_is_too_long_are_handed_out_and_it_is_named_by_its_number() -> None:
    source = io.BufferedReader(io.BytesIO(b"one\n" * 600_000 + bytes(5 << 20) + b"\nlast\n"))  # type: ignore[arg-type]
    found = b""
    with pytest.raises(DataError, match=r"^it:600001: a line of more than 4,194,304 bytes"):
        for chunk in read_chunks(source, "it"):
            found += chunk
    assert found == b"one\n" * 600_000


def test_lines_that_wait_already_come_together_and_a_line_alone_at_once() -> None:
    class Pipe:
        def __init__(self, descriptor: int) -> None:
            self.fileno = lambda: descriptor

        def read1(self, size: int) -> bytes:
            return os.read(self.fileno(), min(2, size))

    ours, theirs = os.pipe()
    found = read_chunks(Pipe(ours), "it")  # type: ignore[arg-type]
    for written_bytes in (b"a\n", b"b\nc\nd\n"):
        os.write(theirs, written_bytes)
        assert next(found) == written_bytes
    os.close(theirs)
    assert list(found) == []
    os.close(ours)


def test_C11_a_long_line_that_comes_in_small_pieces_is_not_copied_for_each() -> None:
    """Copies would let time and memory grow with the square of its length."""
    ours, theirs = io.BytesIO(b"x" * 4_000_000 + b"\n"), io.BytesIO()
    source = io.BufferedReader(ours, 512)  # type: ignore[arg-type]
    source.read1 = lambda size=-1, /: ours.read(512)  # type: ignore[method-assign]
    tracemalloc.start()
    start = time.process_time()  # others may have the machine
    for chunk in read_chunks(source, "it"):
        theirs.write(chunk)
    seconds, (_, peak) = time.process_time() - start, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(theirs.getvalue()) == 4_000_001
    assert seconds < 1.5  # 7,800 pieces; copied each time, they would be 16 GB
    assert peak < 30_000_000


def test_an_input_is_a_file_a_pipe_or_packed_and_no_device(tmp_path: Path) -> None:
    def read(path: Path) -> bytes:
        with TextInput(path) as source:
            return b"".join(read_chunks(source, str(path)))

    assert read(written(tmp_path, b"one\ntwo")) == b"one\ntwo"
    assert read(written(tmp_path, gzip.compress(b"one\ntwo\n"), "corpus.en.gz")) == b"one\ntwo\n"
    for path, says in ((Path("/dev/zero"), "is not a regular file"), (tmp_path, "is a folder")):
        with pytest.raises(DataError, match=f"{path}: {says}. Name a text file"):
            read(path)


def test_F11_escapes_in_a_file_name_are_not_shown_to_the_terminal(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_lines(tmp_path / "a\x1b[2Jb\nc")
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_multi30k_is_read_soon(shared_data: Path) -> None:
    start = time.process_time()
    sides: list[Lines] = [read_lines(shared_data / "multi30k" / f"train.{lang}.gz") for lang in ("en", "de")]
    assert [len(side) for side in sides] == [29000, 29000]
    assert time.process_time() - start < 5
