"""`tfm score` as the command line meets it: one line a pair, comparable with what `tfm translate` prints; faults."""

import io
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.conftest import slow
from tests.golden.make import FOLDER
from tests.support.contract import is_text, refused, run
from tests.support.forked import Ran
from tests.toy.run import model_file, packed
from tests.toy.run import sentences as letters
from tests.toy.run import tokenizers as letter_ids
from transformer_cli.commands.score.keys import ScoreConfig
from transformer_cli.commands.score.run import PairScorer
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Positions
from transformer_cli.evaluation.scoring import ScoredTranslation, score_translations
from transformer_cli.models.file import read_model

FILES = ["--source", "en", "--translation", "fr"]
SCORE = ["score", "--checkpoint", "m", "--device", "cpu"]
ANY_BYTES = st.binary(max_size=30).map(lambda data: data.replace(b"\n", b"").replace(b"\t", b""))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, six lines and a translation of each."""
    place = tmp_path_factory.mktemp("score")
    (place / "m").write_bytes(packed(model_file(seed=1)))
    for name, seed in (("en", 5), ("fr", 6)):
        (place / name).write_text("".join(f"{line}\n" for line in letters(6, seed=seed)), encoding="utf-8")
    return place


def score(folder: Path, *arguments: str, stdin: bytes = b"") -> Ran:
    ran = run([*SCORE, *arguments], folder, stdin=stdin)
    assert ran.code == 0, ran.err
    return ran


def records(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.split(b"\n")[:-1]]


def by_hand(folder: Path, source: str, translation: str) -> list[float]:
    """The log-probability of each token, from the model's own forward pass."""
    file = read_model(folder / "m")
    ids = file.tokenizers.source
    ids_S, ids_T = ids.encode([source, translation])
    with torch.no_grad():
        logits_TV = file.build(torch.device("cpu"))(
            torch.tensor([[*ids_S, ids.eos_id]]), torch.tensor([[ids.bos_id, *ids_T]])
        )[0]
    return [float(row_V.log_softmax(-1)[i]) for row_V, i in zip(logits_TV, [*ids_T, ids.eos_id], strict=True)]


def test_each_pair_gets_the_log_probability_that_the_model_gives_it(folder: Path) -> None:
    ran = score(folder, *FILES)
    expected = [by_hand(folder, *pair) for pair in zip(letters(6, seed=5), letters(6, seed=6), strict=True)]
    assert [float(line) for line in ran.out.split()] == pytest.approx([sum(row) for row in expected], abs=1e-4)
    total, n_tokens = sum(map(sum, expected)), sum(map(len, expected))
    assert ran.err.decode() == (
        f"6 pairs, {n_tokens} tokens with their ends: log-probability {total:.2f},"
        f" perplexity {math.exp(-total / n_tokens):.4g} per token\n"
    )


def test_as_json_it_tells_each_token_and_the_score_of_a_search(folder: Path) -> None:
    expected = by_hand(folder, letters(6, seed=5)[2], letters(6, seed=6)[2])
    for alpha in (0.0, 0.6, 2.0):
        record = records(score(folder, *FILES, "--json", f"decode.length_penalty={alpha}"))[2]
        assert list(record) == ["line", "score", "log_prob", "n_tokens", "tokens"]
        assert (record["line"], record["n_tokens"]) == (3, len(expected))
        assert [log_prob for _, log_prob in record["tokens"]] == pytest.approx(expected, abs=1e-4)
        assert record["tokens"][-1][0] == "</s>"
        assert "".join(piece for piece, _ in record["tokens"][:-1]).replace("▁", " ").strip() == letters(6, seed=6)[2]
        assert record["log_prob"] == pytest.approx(sum(expected), abs=1e-4)
        assert record["score"] == pytest.approx(sum(expected) / ((5 + len(expected)) / 6) ** alpha, abs=1e-4)


@pytest.mark.parametrize("names", [["joint-pre"], ["joint-pre", "joint-post"]], ids=["one model", "an ensemble"])
def test_what_translate_prints_as_score_is_what_score_says_of_it(tmp_path: Path, names: list[str]) -> None:
    sources = letters(12, seed=7)
    models = [word for name in names for word in ("--checkpoint", str(FOLDER / f"{name}.safetensors"))]
    options = [*models, "--device", "cpu", "decode.length_penalty=0.7"]
    ran = run(
        ["translate", *options, "--engine", "torch", "--n-best", "4"],
        tmp_path,
        stdin="".join(f"{s}\n" for s in sources).encode(),
    )
    assert ran.code == 0, ran.err
    rows = [line.split(" ||| ") for line in ran.out.decode().split("\n")[:-1]]
    pairs = "".join(f"{sources[int(number) - 1]}\t{text}\n" for number, text, _ in rows)
    found = records(run(["score", *options, "--json"], tmp_path, stdin=pairs.encode()))
    assert len(found) == len(rows) == 48
    scores = [(record["score"], float(printed)) for record, (_, _, printed) in zip(found, rows, strict=True)]
    # A text that the search put together from other pieces than the tokenizer does is another sentence to the model.
    same = [abs(ours - theirs) < 2e-4 for ours, theirs in scores]
    best = same[::4]
    assert all(best), scores
    assert sum(same) > 30


def test_D1_tab_separated_lines_and_files_are_scored_alike(folder: Path) -> None:
    pairs = zip(letters(6, seed=5), letters(6, seed=6), strict=True)
    stdin = "".join(f"{source}\t{translation}\r\n" for source, translation in pairs).encode()
    by_files = score(folder, *FILES)
    assert score(folder, stdin=stdin) == by_files
    assert score(folder, stdin=stdin.removesuffix(b"\r\n")).out == by_files.out


@pytest.mark.parametrize("n_examples", [20, slow(50), pytest.param(2000, marks=pytest.mark.nightly)])
def test_D1_as_many_scores_come_out_as_pairs_went_in_for_any_bytes(folder: Path, n_examples: int) -> None:
    file, device = read_model(folder / "m"), torch.device("cpu")
    model, options, seen = file.build(device), DecodeConfig(), []

    @settings(max_examples=n_examples, deadline=None, database=None)
    @given(st.lists(st.tuples(ANY_BYTES, ANY_BYTES), max_size=5))
    def check(pairs: list[tuple[bytes, bytes]]) -> None:
        given_lines = b"".join(b"\t".join(pair) + b"\n" for pair in pairs)
        assume(is_text(given_lines))
        scored: list[ScoredTranslation] = []

        def score_chunk(pairs: list[tuple[str, str]], **options_of_chunk: Any) -> list[ScoredTranslation]:
            found = score_translations(model, [file], options, device, pairs, **options_of_chunk)
            scored.extend(found)
            return found

        stream = io.BufferedReader(io.BytesIO(given_lines))  # type: ignore[arg-type]
        PairScorer(score_chunk, ScoreConfig(), unit="pair").process_stream(stream)
        seen.append(len(scored))
        assert len(scored) == len(pairs)
        assert all(len(one.pieces) == len(one.log_probs) for one in scored)

    check()
    assert max(seen) > 2


def test_D2_blank_lines_are_scored_as_translate_makes_them(folder: Path) -> None:
    found = records(score(folder, "--json", stdin="\t\n \u3000\t \na b\t\n\n\ta\n".encode()))
    assert [record["n_tokens"] for record in found] == [0, 0, 1, 0, 2]
    assert [record["log_prob"] for record in found][:2] == [0, 0]
    assert found[2]["tokens"] == [["</s>", pytest.approx(by_hand(folder, "a b", "")[0], abs=1e-4)]]
    assert found[4]["log_prob"] == pytest.approx(sum(by_hand(folder, "", "a")), abs=1e-4)


def test_D4_bad_bytes_are_replaced_and_counted_or_refused_when_strict(folder: Path) -> None:
    bad = b"a\tb\ncaf\xe9\tb\n"
    ran = score(folder, stdin=bad)
    assert ran.out.count(b"\n") == 2
    assert b"warning: 1 of 2 pairs were not UTF-8" in ran.err
    refused([*SCORE, "--strict"], folder, code=3, says=["standard input:2: byte 0xe9 at column 4"], stdin=bad)
    (folder / "bad").write_bytes(b"caf\xe9\n" * 6)
    says = ["bad:1: byte 0xe9 at column 4 is not UTF-8"]
    refused([*SCORE, "--strict", "--source", "en", "--translation", "bad"], folder, code=3, says=says)


def test_D5_long_pairs_are_scored_whole_and_named(folder: Path) -> None:
    long_line = " ".join("abcdefghij" * 3)
    stdin = f"a\tb\na\t{long_line}\n{long_line}\tb\n".encode()
    ran = score(folder, "--json", "decode.max_source_length=20", "decode.batch_tokens=10", stdin=stdin)
    assert b"warning: lines 2, 3: longer than decode.max_source_length=20 tokens, scored whole" in ran.err
    n_long = len(letter_ids().target.encode([long_line])[0]) + 1
    assert [record["n_tokens"] for record in records(ran)] == [2, n_long, 2]
    assert n_long > 30
    expected = [sum(by_hand(folder, *pair)) for pair in (("a", "b"), ("a", long_line), (long_line, "b"))]
    assert [record["log_prob"] for record in records(ran)] == pytest.approx(expected, abs=1e-3)


def test_D5_a_pair_of_exactly_the_learned_positions_is_scored_and_one_beyond_them_named(folder: Path) -> None:
    (folder / "learned").write_bytes(packed(model_file(positions=Positions.learned, max_positions=4)))
    learned = ["score", "--checkpoint", "learned", "--device", "cpu"]
    ran = run([*learned, "--json"], folder, stdin=b"a b c\tb c d\n")
    assert (ran.code, records(ran)[0]["n_tokens"]) == (0, 4), ran.err
    says = ["line 2: 5 tokens with its end, but the model has model.max_positions=4"]
    refused(learned, folder, code=3, says=says, stdin=b"a\tb c d\na\tb c d e\n")


def test_every_chunk_of_pairs_has_the_number_of_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    firsts = []

    def score_chunk(pairs: list[tuple[str, str]], *, first_line: int, unknown: object) -> list[ScoredTranslation]:
        firsts.append(first_line)
        return [ScoredTranslation(["a"], [-1.0]) for _ in pairs]

    scorer = PairScorer(score_chunk, ScoreConfig(json=True), unit="line")
    for n_lines in (2, 3, 1):
        scorer.process_block(b"a\tb\n" * n_lines)
    assert firsts == [1, 3, 6]
    assert [json.loads(line)["line"] for line in capsys.readouterr().out.split("\n")[:-1]] == [1, 2, 3, 4, 5, 6]


def test_D6_nothing_in_is_nothing_out(folder: Path) -> None:
    assert run(SCORE, folder) == Ran(0, b"", b"")


def test_a_line_that_is_no_pair_is_named(folder: Path) -> None:
    for line, n in ((b"no translation", 0), (b"a\tb\tc", 2)):
        says = [f"standard input:1: has {n} tabs, not one. Write source<TAB>translation"]
        refused(SCORE, folder, code=3, says=says, stdin=line + b"\n")


def test_D20_files_of_different_length_get_no_score(folder: Path) -> None:
    (folder / "two").write_bytes(b"a\nb\n")
    command = [*SCORE, "--source", "en", "--translation"]
    refused([*command, "two"], folder, code=3, says=["two: has 2 lines, en 6, so nothing is scored"])


@pytest.mark.parametrize("key", ["beam_size=8", "n_best=2", "coverage_penalty=1", "batch_invariant=true", "search=mbr"])
def test_keys_of_a_search_are_refused_where_nothing_is_searched(folder: Path, key: str) -> None:
    says = [f"decode.{key.split('=')[0]}: of the search for translations", "It reads decode.length_penalty, "]
    refused([*SCORE, *FILES, f"decode.{key}"], folder, code=2, says=says)


def test_files_that_are_no_lines_of_text_are_refused_and_tables_warned_of(folder: Path) -> None:
    (folder / "page").write_bytes(b"<!doctype html>\n" * 6)
    refused([*SCORE, "--source", "en", "--translation", "page"], folder, code=3, says=["page: is a web page (HTML)"])
    (folder / "table").write_bytes(b"a\tb\n" * 6)
    ran = score(folder, "--source", "table", "--translation", "fr")
    assert b"warning: table: has tabs in its lines, as a table has; all columns of a line are scored" in ran.err


def test_C2_files_that_cannot_be_read_are_named(folder: Path) -> None:
    if not (folder / "fifo").exists():
        os.mkfifo(folder / "fifo")
    for name, words in (("missing", "no such file"), (".", "is a folder"), ("fifo", "not a regular file")):
        refused([*SCORE, "--source", "en", "--translation", name], folder, code=3, says=[f"{name}: ", words])
        refused([*SCORE, "--source", name, "--translation", "fr"], folder, code=3, says=[f"{name}: ", words])


def test_half_of_the_files_or_a_missing_model_is_refused(folder: Path) -> None:
    refused([*SCORE, "--source", "en"], folder, code=2, says=["--translation: not given, but --source is"])
    refused([*SCORE, "--translation", "en"], folder, code=2, says=["--source: not given, but --translation is"])
    refused(["score", "--checkpoint", "none"], folder, code=4, says=["none: no such file"], stdin=b"a\tb\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_D17_a_full_disk_is_said(folder: Path) -> None:
    ran = run([*SCORE, *FILES], folder, stdout="/dev/full")
    assert ran.code == 5
    assert ran.err.decode().endswith(
        "tfm: error: standard output: No space left on device. Free some space and run the same command again\n"
    )
