"""Preparation in shards: the corpus is that of one process to the bit, whatever the shards and their order."""

import hashlib
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.data.cleaning.noise import noisy, sound_pairs
from tests.data.cleaning.test_clean_corpora import config, written
from transformer_cli.cli import main
from transformer_cli.config.data import DataConfig
from transformer_cli.config.shard import Shard
from transformer_cli.data import encoding
from transformer_cli.data.cleaning import clean_corpora
from transformer_cli.data.prepare import prepare
from transformer_cli.data.shards import Incomplete
from transformer_cli.errors import ConfigError


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataConfig:
    """A corpus of two pairs of files with faults, in five parts."""
    monkeypatch.setattr(clean_corpora, "PART", 200)
    monkeypatch.setattr(encoding, "_CHUNK", 150)
    text = list(noisy(sound_pairs(1000), 5).text.each())
    names = [*written(tmp_path, "a", text[:600]), *written(tmp_path, "b", text[600:])]
    clean = ["auto", "near_duplicates"]
    return config(tmp_path, names, tags=["<a>", "<b>"], holdout=10, clean=clean)


def prepared_bytes(made: DataConfig) -> dict[str, str]:
    [folder] = (Path(made.cache) / made.name).glob("prepared-*")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def in_shards(made: DataConfig, shards: list[Shard]) -> int:
    """The number of shards that were run, again and again, until one has prepared the corpus."""
    for n in range(1, 3 * len(shards) + 1):
        try:
            prepare(made, shard=shards[(n - 1) % len(shards)])
        except Incomplete:
            continue
        return n
    raise AssertionError("the shards never came to an end")


@pytest.mark.parametrize("n", [2, pytest.param(7, marks=pytest.mark.slow)])
def test_shards_prepare_what_one_process_does(corpus: DataConfig, n: int) -> None:
    prepare(corpus)
    made = replace(corpus, cache=f"{corpus.cache}-{n}")
    shards = [Shard(number, n) for number in range(1, n + 1)]
    random.Random(n).shuffle(shards)
    assert in_shards(made, shards) <= 2 * n
    assert prepared_bytes(made) == prepared_bytes(corpus)
    left = {path.name for path in (Path(made.cache) / made.name).iterdir()}
    assert not any(name.endswith(".parts") or name.startswith(".shard") for name in left)


@pytest.mark.slow
def test_a_shard_that_runs_twice_and_other_divisions_change_nothing(corpus: DataConfig) -> None:
    prepare(corpus)
    made = replace(corpus, cache=f"{corpus.cache}-mixed")
    for shard in (Shard(1, 2), Shard(1, 2), Shard(2, 3)):
        with pytest.raises(Incomplete, match="parts are missing"):
            prepare(made, shard=shard)
    in_shards(made, [Shard(1, 3), Shard(3, 3), Shard(2, 3)])
    assert prepared_bytes(made) == prepared_bytes(corpus)
    assert prepare(made, shard=Shard(1, 2)).fingerprint == prepare(corpus).fingerprint


def test_text_that_is_not_cleaned_is_encoded_in_shards(corpus: DataConfig) -> None:
    plain = replace(corpus, clean=[])
    prepare(plain)
    made = replace(plain, cache=f"{corpus.cache}-shards")
    assert in_shards(made, [Shard(1, 2), Shard(2, 2)]) == 2
    assert prepared_bytes(made) == prepared_bytes(plain)


def test_a_shard_that_was_killed_leaves_nothing_half_written(
    corpus: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(corpus)
    made = replace(corpus, cache=f"{corpus.cache}-killed")
    save = clean_corpora._AsJson.save
    n_saved = 0

    def dies(self: Any, path: Path, part: Any) -> None:
        nonlocal n_saved
        n_saved += 1
        if n_saved == 3:
            path.write_bytes(b"[[[")
            raise KeyboardInterrupt
        save(self, path, part)

    monkeypatch.setattr(clean_corpora._AsJson, "save", dies)
    with pytest.raises(KeyboardInterrupt):
        prepare(made, shard=Shard(1, 2))
    monkeypatch.setattr(clean_corpora._AsJson, "save", save)
    in_shards(made, [Shard(1, 2), Shard(2, 2)])
    assert prepared_bytes(made) == prepared_bytes(corpus)


def test_what_has_labels_is_prepared_in_one_piece(tmp_path: Path) -> None:
    (tmp_path / "train.tsv").write_text("a\tthe cat\nb\tthe dog\n" * 20)
    made = DataConfig(
        source_lang="text",
        target_lang="label",
        task="classification",
        train="train.tsv",
        root=str(tmp_path),
        cache=str(tmp_path / "cache"),
    )
    with pytest.raises(ConfigError, match="is prepared in one piece"):
        prepare(made, shard=Shard(1, 2))


@pytest.mark.slow
def test_a_sweep_over_shards_prepares_a_corpus_in_two_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clean_corpora, "PART", 200)
    monkeypatch.setattr(encoding, "_CHUNK", 150)
    written(tmp_path, "train", list(sound_pairs(900)))
    command = ["prepare", "data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=train"]
    command += ["data.tokenizer.vocab_size=300", "-m", "shard=1/2,2/2"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "shard=1/2: its parts are cleaned; 2 of 5 parts are missing, of other shards" in printed.err
    assert main(command) == 0
    printed = capsys.readouterr()
    assert "test pairs, vocabulary of 300" in printed.err
    assert main([*command[:5], "shard=3/2"]) == 2
    assert "must be I/N with I from 1 to N" in capsys.readouterr().err
