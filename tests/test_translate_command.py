"""`tfm translate` as a stream: line counts for any bytes, files that are whole or absent, and what is refused."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_cli.commands.translate import check_paths, decode_line, open_output, read_chunks, translate_stream
from transformer_cli.decoding.translator import Translated
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault
from transformer_cli.schema import TranslateConfig


class Echo:
    """A translator that answers each line with itself, and remembers how many lines came together."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def translate(self, lines: list[str], *, first_line: int = 1) -> list[Translated]:
        self.calls.append(len(lines))
        return [Translated(hypotheses=[(line, 0.0)]) for line in lines]


def translated(data: bytes, config: TranslateConfig | None = None) -> bytes:
    sink = io.BytesIO()
    translate_stream(Echo(), io.BufferedReader(io.BytesIO(data)), sink, config or TranslateConfig())  # type: ignore[arg-type]
    return sink.getvalue()


def line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


@settings(max_examples=2000, deadline=None)
@given(
    st.binary(max_size=200)
    | st.lists(
        st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\xff", b"\xef\xbb\xbf"])
    ).map(b"".join)
)
def test_D1_as_many_lines_come_out_as_went_in_for_any_bytes(data: bytes) -> None:
    assert line_count(translated(data)) == line_count(data)


@pytest.mark.parametrize(("data", "lines"), [(b"", 0), (b"\n", 1), (b"a", 1), (b"a\n", 1), (b"a\n\n", 2)])
def test_D1_the_smallest_inputs(data: bytes, lines: int) -> None:
    assert translated(data).count(b"\n") == lines


def test_D1_newstest2009_has_unicode_line_breaks_and_keeps_its_count(shared_data: Path) -> None:
    data = (shared_data / "wmt14_en_de" / "newstest2009.de").read_bytes()
    assert translated(data).count(b"\n") == data.count(b"\n") == 2525


def test_D4_bad_bytes_become_the_replacement_character_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="tfm"):
        assert translated(b"caf\xe9\nfine\n") == "caf\ufffd\nfine\n".encode()
    assert "1 of 2 lines were not UTF-8" in caplog.text


def test_D4_strict_stops_and_names_line_and_column() -> None:
    with pytest.raises(DataError, match=r"in\.txt:2: byte 0xe9 at column 4 is not UTF-8"):
        decode_line(b"caf\xe9", 1, TranslateConfig(input="in.txt", strict=True))


def test_a_byte_order_mark_is_removed_from_the_first_line_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert translated(mark + b"a\n" + mark + b"b\n") == b"a\n" + mark + b"b\n"


def test_D6_empty_input_gives_empty_output() -> None:
    assert translated(b"") == b""


def test_D14_a_line_is_answered_before_the_next_is_sent() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as source:
        chunks = read_chunks(source)
        for line in (b"one\n", b"two\n"):
            os.write(theirs, line)
            assert next(chunks) == line
        os.write(theirs, b"half")
        os.close(theirs)
        assert list(chunks) == [b"half"]


def test_a_large_input_is_read_in_pieces_that_end_with_lines() -> None:
    data = b"".join(b"line %d\n" % i for i in range(400_000))
    chunks = list(read_chunks(io.BufferedReader(io.BytesIO(data))))  # type: ignore[arg-type]
    assert b"".join(chunks) == data
    assert len(chunks) > 1
    assert all(chunk.endswith(b"\n") for chunk in chunks)


def test_n_best_output_names_the_line_of_each_hypothesis() -> None:
    config = TranslateConfig()
    config.decode.n_best = 2
    assert translated(b"a\nb\n", config) == b"0 ||| a ||| 0.0000\n1 ||| b ||| 0.0000\n"


def test_D15_the_output_file_is_whole_or_absent(tmp_path: Path) -> None:
    output = tmp_path / "out"

    def crash() -> None:
        with open_output(str(output)) as sink:
            sink.write(b"half")
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError):
        crash()
    assert list(tmp_path.iterdir()) == []
    with open_output(str(output)) as sink:
        sink.write(b"whole")
        assert not output.exists()
    assert output.read_bytes() == b"whole"


def test_D16_an_output_that_exists_or_is_the_input_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_bytes(b"kept")
    with pytest.raises(ConfigError, match="both --input and --output"):
        check_paths(TranslateConfig(input=str(file), output=str(tmp_path / "." / "text"), overwrite=True))
    with pytest.raises(ConfigError, match="Add --overwrite"):
        check_paths(TranslateConfig(output=str(file)))
    check_paths(TranslateConfig(output=str(file), overwrite=True))
    assert file.read_bytes() == b"kept"


def test_D17_an_output_that_can_not_be_written_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="no such folder"):
        check_paths(TranslateConfig(output=str(tmp_path / "no" / "out")))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_D17_a_full_disk_names_the_line() -> None:
    source = io.BufferedReader(io.BytesIO(b"a\nb\n"))  # type: ignore[arg-type]
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(EnvironmentFault, match=r"output: .* at line 1"):
        translate_stream(Echo(), source, full, TranslateConfig())  # type: ignore[arg-type]


def test_a_missing_input_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "no.txt", "no such file"), (tmp_path, "a folder")):
        with pytest.raises(DataError, match=words):
            check_paths(TranslateConfig(input=str(path)))


def test_D13_a_reader_that_closes_the_pipe_ends_the_command_quietly() -> None:
    program = (
        "import io, sys\n"
        "from transformer_cli import cli\n"
        "def write(_):\n"
        "    for _ in range(100_000): sys.stdout.write('line\\n')\n"
        "    return 0\n"
        "cli._run = write\n"
        "sys.exit(cli.main(['translate']))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    assert process.wait(timeout=10) == 141
    assert process.stderr.read() == b""
    process.stderr.close()
