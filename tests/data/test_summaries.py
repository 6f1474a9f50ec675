"""Summaries: long sources are truncated and told, never dropped or split; the built-in corpus is what it says."""

import json
import logging
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Run
from transformer_cli.addons.doctor.findings import Finding, Level, Section
from transformer_cli.addons.doctor.text import check_text
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.config.decode import DecodeConfig, LongLines
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.prepare import prepare
from transformer_cli.data.readers.base import Split
from transformer_cli.data.readers.builtin import read_builtin
from transformer_cli.data.sentences import split_sentences
from transformer_cli.decoding.plan import Planner
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.logs import LOGGER
from transformer_cli.training.validation import encode_pairs

PAIRS = read_builtin("demo_summaries", "dev")[:60]
LONGEST = 60  # tokens of a source


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(LOGGER, "propagate", True)
    caplog.set_level(logging.INFO, logger=LOGGER.name)
    return caplog


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    """A table of reports and summaries, of which nearly all reports are longer than `LONGEST`."""
    for split, pairs in {"train": PAIRS[:40], "dev": PAIRS[40:50], "test": PAIRS[50:]}.items():
        (tmp_path / f"{split}.tsv").write_text("".join(f"{report}\t{summary}\n" for report, summary in pairs))
    return DataConfig(
        source_lang="en",
        target_lang="en",
        root=str(tmp_path),
        train="train.tsv",
        dev="dev.tsv",
        test="test.tsv",
        cache=str(tmp_path / "cache"),
        max_length=LONGEST,
        max_ratio=1000,
        truncate_source=True,
        tokenizer=TokenizerConfig(vocab_size=300),
    )


def test_longer_sources_are_truncated_and_counted(config: DataConfig, warnings: pytest.LogCaptureFixture) -> None:
    prepared = prepare(config)
    tokenizer = prepared.tokenizers.source
    whole = tokenizer.encode([report for report, _ in PAIRS[:40]])
    n_long = sum(len(ids) + 1 > LONGEST for ids in whole)
    assert n_long == 40
    bounds, ids = prepared.train.source_offsets, prepared.train.source_ids
    found = [ids[a:b].tolist() for a, b in pairwise(bounds)]
    assert found == [[*one[: LONGEST - 1], tokenizer.eos_id] for one in whole]
    assert prepared.report.n_truncated == n_long
    told = f"{n_long} sources truncated to data.max_length={LONGEST} tokens (data.truncate_source=true)"
    assert told in warnings.messages
    with pytest.raises(DataError, match=f"{n_long} longer than data.max_length={LONGEST} tokens"):
        prepare(replace(config, truncate_source=False))


def test_a_target_that_is_too_long_is_dropped_all_the_same(config: DataConfig, tmp_path: Path) -> None:
    with (tmp_path / "train.tsv").open("a") as table:
        table.write(f"A short report.\t{PAIRS[0][0]}\n")
    prepared = prepare(config)
    assert (prepared.report.n_kept, prepared.report.n_long) == (40, 1)


def test_the_sources_of_dev_are_truncated_as_those_of_training(config: DataConfig) -> None:
    prepared = prepare(config)
    corpus = encode_pairs(prepared.dev, prepared.tokenizers, max_length=LONGEST, truncate_source=True)
    assert len(corpus.source_lengths) == 10
    assert corpus.source_lengths.max() == LONGEST
    ends = corpus.source_ids[corpus.source_offsets[1:] - 1]
    assert (ends == prepared.tokenizers.source.eos_id).all()
    whole = encode_pairs(prepared.dev, prepared.tokenizers, max_length=1000, truncate_source=True)
    plain = encode_pairs(prepared.dev, prepared.tokenizers, max_length=1000)
    assert np.array_equal(whole.source_ids, plain.source_ids)


def planner(config: DataConfig, decode: DecodeConfig, *, truncates: bool) -> Planner:
    text = TrainingText("en", "en", max_length=LONGEST, multi_sentence_share=0.0, truncates=truncates)
    return Planner(prepare(config).tokenizers, text, decode)


def test_a_summarizer_reads_the_beginning_of_a_line_as_one(
    config: DataConfig, warnings: pytest.LogCaptureFixture
) -> None:
    report = max((report for report, _ in PAIRS), key=len)
    plan = planner(config, DecodeConfig(), truncates=True)
    whole = plan.tokenizers.source.encode([report])[0]
    (short, line) = plan.plan(["It rained. Nobody came.", report])
    assert [len(short.segments), len(line.segments), short.too_long, line.too_long] == [1, 1, False, True]
    assert line.segments[0].ids == whole[: LONGEST - 1]
    plan.warn_too_long([short, line], 1)
    told = "the rest is left out, as in training"
    assert f"line 2: longer than the model's {LONGEST - 1} tokens, {told}" in warnings.messages
    (split,) = planner(config, DecodeConfig(long_lines=LongLines.split), truncates=True).plan([report])
    assert len(split.segments) > 1
    (translated,) = planner(config, DecodeConfig(), truncates=False).plan([report])
    assert len(translated.segments) > 1


def test_a_summary_that_is_a_copy_is_no_flaw_and_a_translation_is() -> None:
    assert TrainingText("en", "en").is_monolingual
    assert not TrainingText("en", "de").is_monolingual


@pytest.mark.parametrize("task", ["classification", "language_model"])
def test_other_tasks_refuse_the_key(task: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.truncate_source=true: data\.task={task} has no targets"):
        DataConfig(source_lang="en", target_lang="en", task=task, truncate_source=True)


def test_the_recipe_is_for_files_and_for_the_built_in_corpus() -> None:
    own = ["data=files", "data.source_lang=en", "data.target_lang=en", "data.train=x.tsv", "recipe=summarization"]
    for overrides in (own, ["data=demo_summaries"]):
        config: TrainConfig = load_config("train", overrides)
        assert config.data.truncate_source
        assert (config.data.max_length, config.data.max_ratio, config.data.source_lang) == (512, 1000, "en")
    assert not load_config("train", own[:-1]).data.truncate_source
    assert load_config("train", [*own, "data.max_length=300"]).data.max_length == 300


def test_truncated_and_dropped_sources_have_caches_of_their_own(config: DataConfig, tmp_path: Path) -> None:
    prepare(config)
    prepare(replace(config, truncate_source=False, max_length=500))
    assert len(list((tmp_path / "cache" / "files").glob("prepared-*"))) == 2


def test_the_built_in_corpus_needs_selecting() -> None:
    sizes: dict[Split, int] = {"train": 6000, "dev": 200, "test": 300}
    splits = {split: read_builtin("demo_summaries", split) for split in sizes}
    assert {split: len(pairs) for split, pairs in splits.items()} == sizes
    reports = [report for pairs in splits.values() for report, _ in pairs]
    assert len(set(reports)) == len(reports)
    for report, summary in splits["test"]:
        sentences = split_sentences(report, "en")
        assert 5 <= len(sentences) <= 10
        assert not any(fact_of(summary) <= fact_of(sentence) for sentence in sentences)  # none of them is enough
        assert fact_of(summary) - {"A", "Firefighter"} <= fact_of(report)
        assert "\t" not in report + summary


def fact_of(text: str) -> set[str]:
    """Names and numbers."""
    return set(re.findall(r"[A-Z]\w+|\d+(?::\d+)?", text))


@pytest.mark.slow
def test_own_files_are_trained_on_and_summarized(tfm: Run, config: DataConfig, tmp_path: Path) -> None:
    files = [f"data.{split}={tmp_path / split}.tsv" for split in ("train", "dev", "test")]
    languages = ["data.source_lang=en", "data.target_lang=en"]
    sizes = ["data.tokenizer.vocab_size=300", f"data.max_length={LONGEST}", "model.d_model=16", "model.d_ff=32"]
    short = ["model.n_heads=2", "train.max_steps=2", "train.eval_every=2", "train.save_every=2", "train.log_every=1"]
    size = ["train.tokens_per_update=200", "train.max_tokens_per_microbatch=400", "schedule.warmup_steps=1"]
    size += ["decode=greedy", "decode.max_length=4"]
    status, _, err = tfm("train", "data=files", "recipe=summarization", *files, *languages, *sizes, *short, *size)
    assert status == 0
    assert re.search(rf"\d+ sources truncated to data\.max_length={LONGEST} tokens", err)
    report = PAIRS[0][0]
    status, out, err = tfm("translate", "--output-format", "jsonl", *size[-2:], stdin=report.encode() + b"\n")
    assert status == 0
    found = json.loads(out)
    assert f"line 1: longer than the model's {LONGEST - 1} tokens, the rest is left out" in err
    assert found.get("parts", 1) == 1
    assert "copy" not in json.dumps(found.get("issues", []))
    status, out, _ = tfm("evaluate", "metrics=[bleu]", *size[-2:], "--json")
    assert (status, "BLEU" in out) == (0, True)


def test_neither_one_language_nor_unlike_lengths_are_a_fault(config: DataConfig, tmp_path: Path) -> None:
    pairs = read_builtin("demo_summaries", "test")[:250]
    (tmp_path / "train.tsv").write_text("".join(f"{report}\t{summary}\n" for report, summary in pairs))
    prepared = prepare(config)
    assert list(prepared.warnings) == []
    findings: list[Finding] = []
    check_text(config, prepared, Section(findings, {}))
    assert findings
    assert all(finding.level is not Level.error for finding in findings)
    findings.clear()
    check_text(replace(config, truncate_source=False), prepared, Section(findings, {}))
    assert any("the sides are not aligned" in finding.what for finding in findings)
