"""scripts/bench_cleaning.py: faults that are put into the built-in corpus, and what is counted of them."""

import itertools
import json
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.data.cleaning.noise import sound_pairs
from tests.support.judges import judge

sys.path.insert(0, str(ROOT / "scripts"))
import bench_cleaning

FOREIGN = ["El señor no ha comprado nunca un coche nuevo.", "Mañana vamos todos juntos a la playa."]


def test_each_kind_of_fault_is_in_its_share_of_the_pairs() -> None:
    sound = list(sound_pairs(2000))
    text = bench_cleaning.broken(sound, FOREIGN, ("en", "fr"), seed=1)
    counts = {kind: text.kinds.count(kind) for kind in set(text.kinds)}
    assert counts.pop("") == 2000 - sum(counts.values())
    assert set(counts.values()) == {100}
    assert len(counts) == 8
    for pair, was, kind in zip(text.pairs, text.sound, text.kinds, strict=True):
        assert (pair == was) == (kind == "")
    again = bench_cleaning.broken(sound, FOREIGN, ("en", "fr"), seed=1)
    assert again.pairs == text.pairs
    assert bench_cleaning.broken(sound, FOREIGN, ("en", "fr"), seed=2).pairs != text.pairs


def write_corpora(folder: Path) -> None:
    for name, other in (("multi30k", "de"), ("tatoeba_en_de", "de"), ("tatoeba_en_fr", "fr")):
        (folder / name).mkdir()
        for side, language in enumerate(("en", "fr", other)):
            lines = [pair[min(side, 1)] for pair in sound_pairs(1500)]
            (folder / name / f"train.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_filters_are_counted_by_what_they_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpora(tmp_path)
    monkeypatch.setitem(bench_cleaning.BOILERPLATE, "de", bench_cleaning.BOILERPLATE["fr"])
    printed = list(bench_cleaning.noise(tmp_path, bench_cleaning.CORPORA, [1], ["auto"]))
    copied = [line for line in printed if line.startswith("| copied")]
    assert copied == ["| copied | 75 | 75 | 0 | 0 | 1.000 |"] * 2
    assert sum(line.startswith("| word_alignment") for line in printed) == 2
    for total in ("all kinds", "all filters"):
        [first, _] = [at for at, line in enumerate(printed) if line.startswith(f"| {total} |")]
        parts = itertools.takewhile(lambda line: line.startswith("| "), reversed(printed[:first]))
        counts = [int(line.split("|")[2].replace(",", "")) for line in parts]
        assert int(printed[first].split("|")[2].replace(",", "")) == sum(counts)


@pytest.mark.slow
def test_opusfilter_is_asked_which_pairs_it_rejects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is one of another program, which skips this where it is absent."""
    python = judge("opusfilter")
    monkeypatch.setenv("TFM_JUDGES", str(python.parents[2]))
    sound = list(sound_pairs(300))
    pairs = [*sound, (sound[0][0], f"<p>{sound[0][1]}</p>"), ("word " * 120, "mot " * 120)]
    done = bench_cleaning.by_opusfilter("defaults")(pairs, ("en", "fr"))
    assert (done.by[-2], done.dropped[-2]) == ("HtmlTagFilter", True)
    assert (done.by[-1], done.dropped[-1]) == ("LengthFilter", True)
    assert done.dropped.count(True) < 100
    assert done.left == pairs


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `tfm` that trains nothing and leaves a result, and the folder of the texts."""

    def tfm(arguments: list[str], **_: object) -> bytes:
        if arguments[0] == "train":
            given = dict(argument.split("=", 1) for argument in arguments[1:])
            assert given["data.clean"] == "[]"
            run = Path(given["runs"]) / given["name"]
            run.mkdir()
            (run / "result.json").write_text('{"step": 7}', encoding="utf-8")
        return b'{"scores": [{"name": "BLEU", "score": 12.5}]}'

    monkeypatch.setattr(bench_cleaning, "tfm", tfm)
    write_corpora(tmp_path)
    for stem in ("val", "test_2016_flickr"):
        for language in ("en", "fr"):
            (tmp_path / "multi30k" / f"{stem}.{language}").write_text("A line.\n", encoding="utf-8")
    return tmp_path


def test_each_model_has_its_text(trained: Path) -> None:
    """Clean and noisy have all pairs, sound has those without a fault, and auto leaves few others."""
    (trained / "out").mkdir()
    found = {
        text: bench_cleaning.model(trained, trained / "out", "multi30k_fr", 1, text, 1500, [])
        for text in ("clean", "sound", "noisy", "auto")
    }
    assert (found["clean"]["pairs"], found["clean"]["faults"]) == (1500, 0)
    assert (found["noisy"]["pairs"], found["noisy"]["faults"]) == (1500, 8 * 75)
    assert (found["sound"]["pairs"], found["sound"]["faults"]) == (900, 0)
    assert found["auto"]["faults"] < 8 * 75 / 2
    assert 900 - 30 < found["auto"]["pairs"] - found["auto"]["faults"] <= 1500
    lines = {text: (trained / "out" / f"multi30k_fr-1-{text}.en").read_text(encoding="utf-8") for text in found}
    assert {text: content.count("\n") for text, content in lines.items()} == {
        text: record["pairs"] for text, record in found.items()
    }
    assert lines["clean"].split("\n")[:-1] == [pair[0] for pair in sound_pairs(1500)]
    assert lines["clean"] != lines["noisy"]


def test_results_of_models_are_kept_and_printed(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["models", str(trained), "--corpus", "multi30k_fr", "--seeds", "1", "--out", str(trained / "out")]
    for only in (["--only", "noisy"], ["--only", "clean"], []):
        monkeypatch.setattr(sys, "argv", ["bench", *given, *only])
        bench_cleaning.main()
    rows = capsys.readouterr().out.split("\n")[-3:-1]
    assert rows == [
        "| Multi30k en-fr | 1 | noisy | 1,500 | 600 | 7 | 12.50 |",
        "| Multi30k en-fr | 1 | clean | 1,500 | 0 | 7 | 12.50 |",
    ]


@pytest.mark.slow
def test_preparation_is_timed_with_and_without_cleaning(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    [printed] = bench_cleaning.speed(tmp_path, 2000, 1)
    found = json.loads(printed)
    assert found["pairs"] == 2000
    assert len(found["ratios"]) == 1


@pytest.mark.slow
def test_a_preparation_and_near_duplicates_are_measured(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    for name, stems in (("europarl_de_en_20k", ["train"]), ("wmt14_en_de", ["newstest2012", "newstest2013"])):
        (tmp_path / name).mkdir()
        for stem, language in itertools.product(stems, ("en", "de")):
            (tmp_path / name / f"{stem}.{language}").write_text("A line.\n" * 3, encoding="utf-8")
    _, *rows = list(bench_cleaning.near(tmp_path))
    assert rows[2].startswith("| europarl_de_en_20k, de-en | 3 | 2 | 2 | 2 |")
    [measured] = map(json.loads, bench_cleaning.scale(tmp_path, 4600))
    assert measured["pairs"] == 4600
    assert measured["processor s"] > 0.1
    assert measured["peak MiB"] > 50
    assert measured["prepared GB"] > 0
