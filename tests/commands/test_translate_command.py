"""`tfm translate` as a stream: line counts for any bytes, files that are whole or absent, and what is refused."""

import csv
import gc
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT, slow
from tests.support.contract import is_text, refused, run
from tests.toy.translator import GREEDY, sentences, toy_tokenizer, translator_of
from transformer_cli.cli import main
from transformer_cli.commands.translate.keys import TranslateConfig
from transformer_cli.commands.translate.run import TranslationFilter, check_paths
from transformer_cli.config.shared import OutputFormat
from transformer_cli.data.lines import read_chunks, split_lines
from transformer_cli.decoding.postprocess import written_ids
from transformer_cli.decoding.results import Candidate, Translated, TranslateOptions
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.decoding.training_text import UNKNOWN_TEXT
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import DataError
from transformer_cli.text_io import BOM, decode_line, open_output


class Echo:
    """A translator that answers each line with itself, and remembers how many lines came together."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    text = UNKNOWN_TEXT

    def translate(
        self, lines: list[str], *, first_line: int = 1, prefixes: None = None, contexts: None = None
    ) -> list[Translated]:
        self.calls.append(len(lines))
        return [Translated([Candidate(line, 0.0)]) for line in lines]


def translated(data: bytes, config: TranslateConfig | None = None, *, translator: Translator | None = None) -> bytes:
    sink = io.BytesIO()
    stream(data, sink, config or TranslateConfig(), translator=translator)
    return sink.getvalue()


def stream(data: bytes, sink: BinaryIO, config: TranslateConfig, *, translator: Translator | None = None) -> None:
    source = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
    lines = TranslationFilter(translator or Echo(), sink, config)  # type: ignore[arg-type]
    lines.process_stream(source)


def line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


PIECES = [b"a", b"\n", b"\r", b"\r\n", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0b", b"\xff", b"\xef\xbb\xbf", b" ", b"\x00"]
ANY_BYTES = (st.binary(max_size=200) | st.lists(st.sampled_from(PIECES)).map(b"".join)).filter(is_text)
# A line that begins with a byte order mark is another one in the first place, and so has no order to keep.
ANY_LINE = ANY_BYTES.map(lambda data: data.replace(b"\n", b"")).filter(lambda line: not line.startswith(BOM))
FEW_AND_MANY = pytest.mark.parametrize("n_examples", [100, slow(300), pytest.param(10_000, marks=pytest.mark.nightly)])


def joined(lines: list[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def out_lines(data: bytes, translator: Translator | None = None) -> list[bytes]:
    out = translated(data, translator=translator)
    assert not out or out.endswith(b"\n")
    return out.split(b"\n")[:-1]


@pytest.fixture(params=[1 << 20, 5], ids=["in one read", "read by five bytes"])
def any_reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_cli.data.lines.READ_BYTES", request.param)


@FEW_AND_MANY
@pytest.mark.usefixtures("any_reads")
def test_D1_as_many_lines_come_out_as_went_in_for_any_bytes(
    n_examples: int, figures: Callable[[str, str], None]
) -> None:
    seen, miscounted = [], []

    @settings(max_examples=n_examples, deadline=None, database=None)
    @given(ANY_BYTES)
    def check(data: bytes) -> None:
        seen.append(line_count(data))
        if line_count(translated(data)) != line_count(data):
            miscounted.append(data)

    check()
    assert len(seen) >= 0.9 * n_examples
    assert max(seen) > 1  # of few examples, more is luck
    figures("line counts", f"{len(seen):,} random byte inputs, {len(miscounted)} miscounts")
    assert miscounted == []


@FEW_AND_MANY
@pytest.mark.usefixtures("any_reads")
def test_D7_lines_in_another_order_come_out_in_that_order(n_examples: int) -> None:
    @settings(max_examples=n_examples, deadline=None, database=None)
    @given(st.lists(ANY_LINE), st.randoms(use_true_random=False))
    def check(lines: list[bytes], chooser: random.Random) -> None:
        order = chooser.sample(range(len(lines)), k=len(lines))
        shuffled = joined([lines[i] for i in order])
        assume(is_text(joined(lines)) and is_text(shuffled))
        found = out_lines(joined(lines))
        assert out_lines(shuffled) == [found[i] for i in order]

    check()


@FEW_AND_MANY
@pytest.mark.usefixtures("any_reads")
def test_D7_two_inputs_behind_each_other_give_both_outputs(n_examples: int) -> None:
    @settings(max_examples=n_examples, deadline=None, database=None)
    @given(st.lists(ANY_LINE), st.lists(ANY_LINE))
    def check(first: list[bytes], second: list[bytes]) -> None:
        assume(is_text(joined(first + second)) and is_text(joined(first)) and is_text(joined(second)))
        both = translated(joined(first) + joined(second))
        assert both == translated(joined(first)) + translated(joined(second))

    check()


@pytest.mark.parametrize("n_examples", [6, slow(20), pytest.param(500, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("options", [GREEDY, {"beam_size": 2}], ids=["greedy", "beam"])
def test_D7_and_so_does_a_model(n_examples: int, options: dict[str, Any]) -> None:
    translator = translator_of(toy_tokenizer(), max_source_length=20, **options)
    text = st.sampled_from([line.encode() for line in sentences(50, seed=1)])

    @settings(max_examples=n_examples, deadline=None, database=None)
    @given(st.lists(ANY_LINE | text, max_size=6), st.randoms(use_true_random=False))
    def check(lines: list[bytes], chooser: random.Random) -> None:
        order = chooser.sample(range(len(lines)), k=len(lines))
        half = len(lines) // 2
        shuffled, *parts = map(joined, ([lines[i] for i in order], lines[:half], lines[half:]))
        assume(all(map(is_text, (joined(lines), shuffled, *parts))))
        found = out_lines(joined(lines), translator)
        assert len(found) == len(lines)
        assert out_lines(shuffled, translator) == [found[i] for i in order]
        assert [line for part in parts for line in out_lines(part, translator)] == found

    check()


@pytest.mark.parametrize("n_examples", [6, slow(20), pytest.param(500, marks=pytest.mark.nightly)])
def test_D7_and_so_does_all_that_can_be_asked_for(n_examples: int) -> None:
    """JSON lines with prefixes, terms and second tries: a line for a line, in order, whatever stands beside it."""
    terms = [Term("cat", ("milk",), 1), Term("her chair", ("it was",), 2), Term("woman", ("a " * 60 + "a",), 3)]
    options = TranslateOptions(
        terminology=Terminology(terms, name="terms"), retry=True, alignments=True, token_scores=True
    )
    config = TranslateConfig(output_format=OutputFormat.jsonl)
    translator = translator_of(toy_tokenizer(), max_source_length=20, beam_size=2, n_best=2, options=options)
    text = st.sampled_from([line.encode() for line in sentences(50, seed=1)])
    beginning = st.sampled_from(["", "the cat", "prett", "it"])

    def records(lines: list[bytes], prefixes_given: list[str]) -> list[dict[str, Any]]:
        sink, data = io.BytesIO(), joined(lines)
        texts = [
            decode_line(line, n, name=None, strict=False).text for n, line in enumerate(split_lines(data), start=1)
        ]
        prefixes = [
            written_ids(text if room else "", toy_tokenizer()) or ()
            for text, room in zip(prefixes_given, translator.room(texts), strict=True)
        ]
        row_filter = TranslationFilter(translator, sink, config, prefixes=prefixes)
        source = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]
        row_filter.process_stream(source)
        found = [json.loads(line) for line in sink.getvalue().split(b"\n")[:-1]]
        assert [record.pop("line") for record in found] == list(range(1, len(lines) + 1))
        for record, text, prefix in zip(found, texts, prefixes, strict=True):
            assert record["source"] == text
            assert record["translation"].startswith(toy_tokenizer().decode(prefix))
        return found

    def discrete(record: dict[str, Any]) -> dict[str, Any]:
        """The record without numbers, which rounding moves."""
        return {key: value for key, value in record.items() if isinstance(value, str | bool)}

    @settings(max_examples=n_examples, deadline=None, database=None)
    @given(st.lists(st.tuples(ANY_LINE | text, beginning), max_size=6), st.randoms(use_true_random=False))
    def check(pairs: list[tuple[bytes, str]], chooser: random.Random) -> None:
        order = chooser.sample(range(len(pairs)), k=len(pairs))
        lines, prefixes_given = [line for line, _ in pairs], [prefix for _, prefix in pairs]
        lines_shuffled = [lines[i] for i in order]
        assume(is_text(joined(lines)) and is_text(joined(lines_shuffled)))
        found = records(lines, prefixes_given)
        shuffled = records(lines_shuffled, [prefixes_given[i] for i in order])
        assert list(map(discrete, shuffled)) == [discrete(found[i]) for i in order]
        for record, other in zip(shuffled, (found[i] for i in order), strict=True):
            assert record["score"] == pytest.approx(other["score"], abs=2e-4)
            assert record["unmet_terms"] == other["unmet_terms"]

    check()


def test_D1_newstest2009_has_unicode_line_breaks_and_keeps_its_count(shared_data: Path) -> None:
    data = (shared_data / "wmt14_en_de" / "newstest2009.de").read_bytes()
    assert translated(data).count(b"\n") == data.count(b"\n") == 2525


def test_D4_bad_bytes_become_the_replacement_character_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="tfm"):
        assert translated(b"caf\xe9\nfine\n") == "caf\ufffd\nfine\n".encode()
    assert "1 of 2 lines were not UTF-8" in caplog.text


def test_cells_in_quotes_as_a_spreadsheet_saves_them_are_translated_as_they_are_and_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cells = io.StringIO()
    csv.writer(cells, delimiter="\t", lineterminator="\n").writerows([["plain"], ['he said "no"'], ["a", 'the "b"']])
    text = cells.getvalue().encode() + b'"To be or not to be"\nthe empty string ""\n"" a ""\n'
    with caplog.at_level("WARNING", logger="tfm"):
        assert translated(text) == text
    assert "2 of 6 lines have text in quotes with doubled quotes in it" in caplog.text
    assert "the first is line 2: the quotes were read as text" in caplog.text


def test_a_byte_order_mark_is_removed_from_the_first_line_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert translated(mark + b"a\n" + mark + b"b\n") == b"a\n" + mark + b"b\n"


def test_D14_a_line_is_answered_before_the_next_is_sent() -> None:
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as source:
        chunks = read_chunks(source, "it")
        for line in (b"one\n", b"two\n"):
            os.write(theirs, line)
            assert next(chunks) == line
        os.write(theirs, b"half")
        os.close(theirs)
        assert list(chunks) == [b"half"]


def test_a_large_input_is_read_in_pieces_that_end_with_lines() -> None:
    data = b"".join(b"line %d\n" % i for i in range(400_000))
    chunks = list(read_chunks(io.BufferedReader(io.BytesIO(data)), "it"))  # type: ignore[arg-type]
    assert b"".join(chunks) == data
    assert len(chunks) > 1
    assert all(chunk.endswith(b"\n") for chunk in chunks)


def test_n_best_output_names_the_line_of_each_hypothesis() -> None:
    config = TranslateConfig()
    config.decode.n_best = 2
    assert translated(b"a\nb\n", config) == b"1 ||| a ||| 0.0000\n2 ||| b ||| 0.0000\n"


def test_the_n_best_lists_of_moses_count_from_0_and_name_the_feature() -> None:
    # Its manual: sentence number ||| output ||| feature scores, each after its name and = ||| total.
    config = TranslateConfig(output_format=OutputFormat.moses)
    assert translated(b"a\nb\n", config) == (
        b"0 ||| a ||| log_prob= 0.0000 ||| 0.0000\n1 ||| b ||| log_prob= 0.0000 ||| 0.0000\n"
    )


def test_a_text_on_the_command_line_is_a_line_to_translate(tmp_path: Path) -> None:
    model = str(ROOT / "tests" / "golden" / "format-1" / "joint-post.safetensors")
    command = ["translate", "--checkpoint", model, "engine=torch", "device=cpu"]
    given = run([*command, "a b"], tmp_path)
    assert (given.code, given.out) == (0, run(command, tmp_path, stdin=b"a b\n").out)
    (tmp_path / "news").write_text("a b\n")
    refused([*command, "news"], tmp_path, code=2, says=["news: a file has this name", "--input"])
    refused([*command, "a", "b"], tmp_path, code=2, says=["'b': a second text after 'a'", "in quotes"])
    refused([*command, "a b", "--input", "news"], tmp_path, code=2, says=["--input news", "Leave one"])


def test_what_no_engine_does_is_refused_once(tmp_path: Path) -> None:
    model = str(ROOT / "tests" / "golden" / "format-1" / "joint-post.safetensors")
    command = ["translate", "--checkpoint", model, "device=cpu", "decode.precision=bf16", "a b"]
    refused(command, tmp_path, code=5, says=["decode.precision=bf16: needs a GPU"])


def test_garbage_is_not_looked_for_in_the_model_while_lines_are_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, translate = [], Translator.translate

    def watched(*args: Any, **options: Any) -> list[Translated]:
        frozen.append(gc.get_freeze_count())
        return translate(*args, **options)

    monkeypatch.setattr(Translator, "translate", watched)
    model = str(ROOT / "tests" / "golden" / "format-1" / "joint-post.safetensors")
    command = ["translate", "--checkpoint", model, "engine=torch", "device=cpu", "decode=greedy"]
    assert main([*command, "--output", str(tmp_path / "out"), "a b"]) == 0
    assert len(frozen) == 1
    assert frozen[0] > 10_000
    assert gc.get_freeze_count() == 0


def test_D15_the_output_file_is_whole_or_absent(tmp_path: Path) -> None:
    output = tmp_path / "out"

    def crash() -> None:
        with open_output(str(output), replace=False) as sink:
            sink.write(b"half")
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError):
        crash()
    assert list(tmp_path.iterdir()) == []
    with open_output(str(output), replace=False) as sink:
        sink.write(b"whole")
        assert not output.exists()
    assert output.read_bytes() == b"whole"


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


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"a\tb\nc\td\ne\n", "has tabs in its lines, as a table has; all columns of a line are translated as one text"),
        (b"a\tb", "has tabs in its lines"),
        (b"a\tb\nc\nd\n", None),
        (b"a b\n\n", None),
        (b"a\rb\rc\r\n", "is one line with 2 carriage returns (\\r) in it, which end the lines of old Macs"),
        (b"a\rb\n", None),
        (b"a\rb\rc\nd\n", None),
    ],
)
def test_text_that_is_not_one_text_a_line_is_translated_with_a_warning(
    data: bytes, says: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", logger="tfm"):
        assert translated(data).count(b"\n") == data.count(b"\n") + (not data.endswith(b"\n"))
    said = [record.getMessage() for record in caplog.records if "standard input: " in record.getMessage()]
    assert said == [] if says is None else said[0].startswith(f"standard input: {says}")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"<!DOCTYPE html>\n<p>a</p>\n", "html"),
        (b'\xef\xbb\xbf  <html lang="en">\n', "html"),
        (b'<?xml version="1.0"?>\n<xliff>\n', "xml"),
        (b"<htmlx>\n", None),
        (b"a <html>\n", None),
        (b"a\n<html>\n", None),
        (b"<b>a</b>\n", None),
    ],
)
def test_a_document_translated_line_by_line_is_warned_of(
    data: bytes, name: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING", logger="tfm"):
        assert translated(data).count(b"\n") == data.count(b"\n")
    said = [record.getMessage() for record in caplog.records]
    assert said == (
        []
        if name is None
        else [
            f"standard input: begins as {name.upper()} does; line by line its tags are"
            f" translated, too. --format {name} leaves them as they are"
        ]
    )
