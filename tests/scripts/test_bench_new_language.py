"""scripts/bench_new_language.py: what a way trains on, that none runs twice, and the table."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import bench_new_language as bench

WORDS = {
    "en": "cat dog run see I",
    "de": "Katze Hund renne sehe ich",
    "fr": "chat chien cours vois je",
    "ja": "ね い は み わ",
}


def write(folder: Path, corpus: str, part: str, rows: list[list[str]]) -> None:
    (folder / corpus).mkdir(parents=True, exist_ok=True)
    for side, lines in zip(("en", corpus[-2:]), zip(*rows, strict=True), strict=True):
        (folder / corpus / f"{part}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three corpora of 120 training pairs, 4 for dev and 5 for test, and a training pair with English of the test."""
    named = {code: (f"corpus_{code}", dev) for code, (_, dev) in bench.CORPORA.items()}
    monkeypatch.setattr(bench, "CORPORA", named)
    draw, folder = random.Random(1), tmp_path / "text"
    for code, (corpus, dev) in named.items():
        for part, n in (("train", 120), (dev, 4), ("test", 4)):
            lines = [[draw.randrange(5) for _ in range(draw.randint(6, 14))] for _ in range(n)]
            rows = [[" ".join(WORDS[side].split()[i] for i in line) for side in ("en", code)] for line in lines]
            write(
                folder,
                corpus,
                part,
                rows + {"train": [["do n't see .", "x"]], "test": [["Don't see!", "y"]]}.get(part, []),
            )
    return folder


def test_english_of_a_dev_or_test_set_is_in_no_training_text(corpora: Path, tmp_path: Path) -> None:
    """Tatoeba's sentences are in several corpora, in one of them tokenised and in lower case."""
    text = bench.Text(corpora, tmp_path / "made", 40)
    text.prepare()
    lines = {
        part: text.file(part, ("en", "ja"), 0).read_text("utf-8").splitlines() for part in ("train", "old", "test")
    }
    assert len(lines["train"]) == 120
    assert lines["old"] == lines["train"][:10]
    assert lines["test"][-1] == "Don't see!"
    assert len(text.file("train", ("fr", "en"), 0).read_text("utf-8").splitlines()) == 40


def test_old_text_is_a_fifth_of_a_mixture_and_each_direction_has_a_tag(tmp_path: Path) -> None:
    text = bench.Text(tmp_path, tmp_path, 5000)
    found = dict(one.split("=", 1) for one in text.settings(bench.NEW, with_old=True))
    weights, n_lines = json.loads(found["data.weights"]), [5000] * 2 + [1250] * 4
    seen = [weight * n for weight, n in zip(weights, n_lines, strict=True)]
    assert sum(seen[2:]) / sum(seen) == 0.2
    names, tags = json.loads(found["data.train"]), json.loads(found["data.tags"])
    codes = [name.rpartition(".")[2] for name in names]
    assert tags == [f"<{source}> <2{target}>" for source, target in zip(codes[::2], codes[1::2], strict=True)]
    assert tags[:3] == ["<en> <2fr>", "<fr> <2en>", "<en> <2de>"]
    assert len(json.loads(found["data.dev"])) == 4
    assert "data.weights" not in dict(one.split("=", 1) for one in text.settings(bench.NEW))


def record(way: str, settings: list[str]) -> dict[str, Any]:
    directions = {"base": bench.OLD, "scratch": bench.NEW}.get(way, [*bench.NEW, *bench.OLD])
    scores = {"-".join(one): {"BLEU": 10.25 + n, "chrF": 30.0 + n} for n, one in enumerate(directions)}
    return {"way": way, "settings": settings, "updates": 1200, "scores": scores}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ways that were run, by a stand-in for it."""
    ways: list[str] = []

    def run(way: str, text: object, options: object, settings: list[str]) -> dict[str, Any]:
        ways.append(way)
        return record(way, settings)

    monkeypatch.setattr(bench, "run", run)
    return ways


def test_a_way_with_a_record_is_not_run_again(
    corpora: Path, tmp_path: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(corpora), "--out", str(tmp_path / "out")]
    bench.main([*given, "like"])
    assert ran == ["base", "like"]
    bench.main(given)
    assert ran == ["base", "like", "scratch", *(way for way in bench.WAYS if way != "like")]
    with pytest.raises(SystemExit, match=r"base was run with other settings\. Name another folder by --out"):
        bench.main([*given, "train.precision=bf16"])
    capsys.readouterr()
    bench.main(["table", *given[1:]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].count("|") == lines[1].count("|") == lines[-1].count("|") == 9
    assert lines[2] == "| base | 1,200 |  |  | 10.2 | 11.2 | 12.2 | 13.2 |"
    assert lines[3] == "| scratch | 1,200 | 10.2, 30.0 | 11.2, 31.0 |  |  |  |  |"
    assert [line.split(" | ")[0] for line in lines[4:]] == [f"| {way}" for way in bench.WAYS]


def test_an_unknown_way_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["text", "liek"])
    assert "liek: no way. Ways: base; scratch; mean; like; " in capsys.readouterr().err


SMALL = [
    *("model.d_model=16", "model.d_ff=32", "model.n_heads=2", "model.n_encoder_layers=1", "model.n_decoder_layers=1"),
    *("data.tokenizer.vocab_size=auto", "device=cpu", "--base-minutes=0.02", "--updates=6", "--pieces=3"),
]


@pytest.mark.slow
def test_a_language_is_added_and_scored(corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench.main([str(corpora), "like and floor", "--out", str(tmp_path / "out"), "--pairs=40", *SMALL])
    found = bench.records(tmp_path / "out/results.jsonl")
    assert list(found) == ["base", "like and floor"]
    assert set(found["base"]["scores"]) == {"en-de", "de-en", "en-ja", "ja-en"}
    new = found["like and floor"]["scores"]
    assert set(new) == {"en-fr", "fr-en", *found["base"]["scores"]}
    assert all(0 <= score <= 100 for one in new.values() for score in one.values())
    assert "appended to the vocabulary: <2fr>, <fr>" in (tmp_path / "out/like_and_floor.log").read_text("utf-8")
    assert capsys.readouterr().out.count("\n") == 4
