"""Shards: every line is in one shard, whole and in its order, whatever the bytes and however many shards."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from transformer_cli.errors import ConfigError
from transformer_cli.synthesis.shards import Shard, lines_before, range_of, read_range


def lines_of(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(st.sampled_from([b"a", b"\n", b"\xff", b"longer line", b"\r\n"]), max_size=30), n=st.integers(1, 9)
)
def test_the_shards_hold_each_line_once_in_order(tmp_path: Path, data: list[bytes], n: int) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"".join(data))
    ranges = [range_of(path, Shard(number, n)) for number in range(1, n + 1)]
    found = [line for bounds in ranges for line in read_range(path, bounds)]
    assert found == lines_of(b"".join(data))
    for i, bounds in enumerate(ranges):
        if bounds.start < bounds.end:
            assert lines_before(path, bounds.start) == sum(len(list(read_range(path, one))) for one in ranges[:i])


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2", ""])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be I/N with I from 1 to N"):
        Shard.parse(text)


def test_a_shard_is_read_and_written_the_same() -> None:
    assert str(Shard.parse("2/8")) == "2/8"
