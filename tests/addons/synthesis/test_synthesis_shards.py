"""Shards: every line is in one shard, whole and in its order, whatever the bytes and however many shards."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.each import each
from transformer_cli.addons.synthesis.keys import Shard
from transformer_cli.addons.synthesis.shards import Range, n_lines, range_of, read_range, refuse_other_formats
from transformer_cli.errors import ConfigError, DataError


def lines_of(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines if lines[-1] else lines[:-1])]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(st.sampled_from([b"a", b"\n", b"\xff", b"longer line", b"\r\n"]), max_size=30), n=st.integers(1, 9)
)
def test_the_shards_hold_each_line_once_in_order(tmp_path: Path, data: list[bytes], n: int) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"".join(data))
    ranges = [range_of(path, Shard(number, n)) for number in range(1, n + 1)]
    found = [list(read_range(path, bounds)) for bounds in ranges]
    assert [line for lines in found for line in lines] == lines_of(b"".join(data))
    assert [n_lines(path, bounds) for bounds in ranges] == list(map(len, found))
    for i, bounds in enumerate(ranges):
        assert n_lines(path, Range(0, bounds.start)) == sum(map(len, found[:i]))


def test_a_line_without_an_end_and_what_is_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\n" + b"x" * (1 << 23))
    with pytest.raises(DataError, match=r"'xxx\S* begins a line of more than 4,194,304 bytes\. Put one sentence"):
        list(read_range(path))
    path.write_text("some lines\nof text\n" * 9, encoding="utf-16")
    with pytest.raises(DataError, match=r"text: is UTF-16LE, not UTF-8\. Convert it with `iconv"):
        refuse_other_formats(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"<!DOCTYPE html>\n<p>404</p>\n", "is a web page"), (b"one\rtwo\rthree\r", "is one line with 3 carriage ret")],
)
def test_a_page_and_lines_of_old_macs_are_no_text_to_translate(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(DataError, match=rf"text: {says}"):
        refuse_other_formats(tmp_path / "text")


def test_a_table_is_translated_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "text").write_bytes(b"one\teins\ntwo\tzwei\n")
    refuse_other_formats(tmp_path / "text")
    assert "text: has tabs in its lines, as a table has" in caplog.text


@each("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", "01/4", "1/2,2/2", ""])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be I/N with I from 1 to N"):
        Shard.parse(text)


def test_a_shard_is_read_and_written_the_same() -> None:
    assert str(Shard.parse("2/8")) == "2/8"
