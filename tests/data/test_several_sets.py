"""Dev and test of more than one corpus without tags, and test sets that are part of the training text."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.data.test_tags import GERMAN, SOURCES, write
from tests.support.contract import run
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.data.checks import overlap
from transformer_cli.data.checks.overlap import warn_of_overlap
from transformer_cli.data.corpus import TextPart, load_text
from transformer_cli.data.prepare import prepare, prepared_of


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    """40 training pairs, the first 3 of which are `talks`; `news` has 2 others."""
    for language, lines in {"en": SOURCES, "de": GERMAN}.items():
        write(tmp_path, f"train.{language}", lines)
        write(tmp_path, f"talks.{language}", lines[:3])
        write(tmp_path, f"news.{language}", [f"{lines[0]} x{n}" for n in range(2)])
    both = ["talks.en", "talks.de", "news.en", "news.de"]
    return DataConfig(
        source_lang="en",
        target_lang="de",
        root=str(tmp_path),
        train=["train.en", "train.de"],
        dev=both,
        test=both,
        cache=str(tmp_path / "cache"),
        tokenizer=TokenizerConfig(vocab_size=70),
    )


PARTS = [TextPart("talks", 3, "de"), TextPart("news", 2, "de")]


def test_each_corpus_without_tags_is_a_part_named_by_its_file(config: DataConfig, tmp_path: Path) -> None:
    prepared = prepare(config)
    assert prepared.test is not None
    assert prepared.dev.parts == prepared.test.parts == PARTS
    assert prepare(config).dev == prepared.dev  # from the cache
    assert [part.n for part in prepared.dev.first(3).parts] == [1, 1]
    (tmp_path / "other").mkdir()
    for language in ("en", "de"):
        write(tmp_path, f"other/talks.{language}", ["x"])
    names = ["talks.en", "talks.de", "other/talks.en", "other/talks.de", "talks.en", "talks.de"]
    again = load_text(replace(config, dev=names), "dev")
    assert again is not None
    assert [part.name for part in again.parts] == ["talks", "talks (2)", "talks (3)"]
    one = load_text(replace(config, dev=["news.en", "news.de"]), "dev")
    assert one is not None
    assert one.parts == []


def test_the_prepared_corpus_of_a_fingerprint_is_found(config: DataConfig) -> None:
    prepared = prepare(config)
    found = prepared_of(config, prepared.fingerprint)
    assert found is not None
    assert found.fingerprint == prepared.fingerprint
    assert prepared_of(config, "0" * 64) is None


def test_pairs_and_sources_that_were_trained_on_are_counted(
    config: DataConfig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = prepare(config)
    caplog.clear()
    sources = [*SOURCES[:4], "a sentence of nobody"]
    references = [[*GERMAN[:2], "x", "y", "z"], ["x", "y", GERMAN[2], "y", "z"]]
    warn_of_overlap("t", sources, references, prepared)
    says = "t: 3 of 5 test pairs are in the training text (source and target), and 4 by their source, so its scores"
    assert says in caplog.text
    caplog.clear()
    warn_of_overlap("t", ["nobody's"], [["niemands"]], prepared)
    monkeypatch.setattr(overlap, "MAX_TOKENS", 10)
    warn_of_overlap("t", sources, references, prepared)
    assert caplog.text == ""


def test_a_run_scores_each_corpus_and_tells_what_it_was_trained_on(config: DataConfig, tmp_path: Path) -> None:
    files = "[talks.en,talks.de,news.en,news.de]"
    ran = run(
        [
            *("train", "data=files", "data.source_lang=en", "data.target_lang=de", f"data.root={tmp_path}"),
            *("data.train=[train.en,train.de]", f"data.dev={files}", f"data.test={files}", "name=both"),
            *("data.tokenizer.vocab_size=70", "model=tiny", "model.d_model=16", "model.d_ff=16", "model.n_heads=2"),
            *("train.max_steps=2", "train.eval_every=2", "train.samples=0", "--device", "cpu"),
            *("decode.search=greedy", "decode.beam_size=1", "decode.max_length=4"),
        ],
        tmp_path,
    )
    assert ran.code == 0, ran.err
    rows = [line.split("  ")[0] for line in ran.out.decode().split("\n")]
    assert rows[1:5] == ["test set", "files.test talks", "files.test news", "files.test"]
    says = b"files.test: 3 of 5 test pairs are in the training text (source and target), and 3 by their source"
    assert says in ran.err
    entries = [json.loads(line) for line in (tmp_path / "runs/both/metrics.jsonl").read_text().split("\n")[:-1]]
    dev = next(entry for entry in entries if "dev_bleu" in entry)
    assert {"dev_bleu talks", "dev_bleu news"} <= dev.keys()
    command = ["evaluate", "--checkpoint", "runs/both", "--beam", "1", "--device", "cpu", "--json"]
    found = run(command, tmp_path)
    assert says in found.err
    assert [part["test_set"] for part in json.loads(found.out)["parts"]] == ["files.test talks", "files.test news"]
    own = run([*command, "--source", "talks.en", "--reference", "talks.de"], tmp_path)
    assert b"talks.en: 3 of 3 test pairs are in the training text" in own.err
    (tmp_path / "alone").mkdir()
    (tmp_path / "runs/both/model.safetensors").rename(tmp_path / "alone/model.safetensors")
    command[2] = "alone/model.safetensors"
    assert b"training text" not in run([*command, "--source", "talks.en", "--reference", "talks.de"], tmp_path).err
