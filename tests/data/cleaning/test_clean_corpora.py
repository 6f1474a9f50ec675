"""Cleaning as a part of preparation: what is kept, counted, held out and never touched."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.cleaning.noise import BOILERPLATE, noisy, sound_pairs
from transformer_cli.cli import main
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.data.cache_key import cache_key
from transformer_cli.data.cleaning import clean_corpora
from transformer_cli.data.cleaning.base import FILTERS, Filter, PairTexts, Verdict, chosen_filters
from transformer_cli.data.cleaning.clean_corpora import held_out_by_hash
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.splits import load_splits
from transformer_cli.errors import ConfigError, DataError


def written(folder: Path, name: str, pairs: list[tuple[str, str]]) -> list[str]:
    for side, ending in enumerate(("en", "fr")):
        lines = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{ending}").write_bytes(lines.encode())
    return [f"{name}.en", f"{name}.fr"]


def config(folder: Path, train: list[str], **settings: Any) -> DataConfig:
    made: dict[str, Any] = {
        "source_lang": "en",
        "target_lang": "fr",
        "root": str(folder),
        "train": train,
        "cache": str(folder / "cache"),
        "clean": ["auto"],
        "holdout": 20,
        "tokenizer": TokenizerConfig(vocab_size=300, byte_fallback=False),
    }
    return DataConfig(**made | settings)


def pairs_of(prepared: Prepared) -> list[tuple[str, str]]:
    corpus, tokenizers = prepared.train, prepared.tokenizers
    sources, targets = corpus.source_offsets, corpus.target_offsets
    return [
        (
            tokenizers.source.decode(corpus.source_ids[sources[i] : sources[i + 1]].tolist()),
            tokenizers.target.decode(corpus.target_ids[targets[i] : targets[i + 1]].tolist()),
        )
        for i in range(len(corpus))
    ]


def test_what_is_dropped_is_counted_and_shown_and_the_rest_is_trained_on(tmp_path: Path) -> None:
    text = noisy(sound_pairs(3000))
    prepared = prepare(config(tmp_path, written(tmp_path, "train", list(text.text.each()))))
    report = prepared.filtering
    assert report is not None
    assert report.n_read == 3000
    assert report.n_kept == 3000 - sum(one.n_dropped for one in report.filters)
    by_name = {one.name: one for one in report.filters}
    assert by_name["copies"].n_dropped == 40 == by_name["boilerplate"].n_dropped
    assert by_name["markup"].n_repaired == 40 == by_name["swapped"].n_repaired
    assert len(by_name["copies"].dropped) == clean_corpora.SHOWN
    first = by_name["copies"].dropped[0]
    assert first["pair"] == text.of("copied")[0] + 1
    assert (first["source"], first["target"]) == (text.sound[first["pair"] - 1][0],) * 2
    kept = {source for source, _ in pairs_of(prepared)}
    assert BOILERPLATE not in kept
    assert not any("<p" in source for source in kept)


def test_dev_and_test_that_are_named_are_never_cleaned(tmp_path: Path) -> None:
    train = written(tmp_path, "train", list(sound_pairs(600)))
    odd = [("the cat is here", "the cat is here"), ("<p>one</p>", "une"), ("", "rien"), ("Ã©tÃ©", "été")]
    dev = written(tmp_path, "dev", odd)
    prepared = prepare(config(tmp_path, train, dev=dev, test=dev))
    assert list(prepared.dev.each()) == odd
    assert prepared.test is not None
    assert list(prepared.test.each()) == odd


def test_what_is_held_out_is_clean_and_no_filter_was_trained_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    learn = FILTERS["word_alignment"].learn
    monkeypatch.setattr(
        FILTERS["word_alignment"], "learn", lambda self, text: (seen.extend(text.sources), learn(self, text))
    )
    text = noisy(sound_pairs(3000))
    made = config(tmp_path, written(tmp_path, "train", list(text.text.each())), holdout=100)
    prepared = prepare(made)
    assert prepared.test is not None
    held = [*prepared.dev.sources, *prepared.test.sources]
    assert len(held) == 200
    assert not set(held) & set(seen)
    assert len(seen) > 2000
    assert set(prepared.dev.each()) <= set(text.sound) | set(text.text.each())
    assert not any(source in (target, BOILERPLATE) or "<p" in source for source, target in prepared.dev.each())


@pytest.mark.parametrize("n", [100, 3000])
def test_every_source_that_is_held_out_is_one_that_may_be(tmp_path: Path, n: int) -> None:
    """At most a twentieth of the sources is held out for each split, those with the lowest hashes."""
    made = config(tmp_path, written(tmp_path, "train", list(sound_pairs(n))), clean=[], holdout=1000)
    splits = load_splits(made, tmp_path)
    may_be = held_out_by_hash(made)
    for held in splits.held.values():
        assert len(held.sources) > 0
        assert all(map(may_be, held.sources))
    every = {source for source, _ in sound_pairs(3000)}
    assert sum(map(may_be, every)) < 0.2 * len(every)


def test_text_is_cleaned_alike_in_one_process_and_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean_corpora, "PART", 700)
    made = config(tmp_path, written(tmp_path, "train", list(noisy(sound_pairs(3000)).text.each())))
    one = load_splits(made, tmp_path)
    monkeypatch.setattr(clean_corpora, "_PAIRS_PER_PROCESS", 1000)
    monkeypatch.setattr(clean_corpora, "n_processors", lambda: 2)
    (tmp_path / "spool").mkdir()
    two = load_splits(made, tmp_path / "spool")
    assert list(one.train.each()) == list(two.train.each())
    assert one.filtering == two.filtering


def test_tags_are_no_part_of_the_text_that_is_cleaned(tmp_path: Path) -> None:
    text = noisy(sound_pairs(1500), 20)
    files = written(tmp_path, "train", list(text.text.each()))
    tagged = [(f"<a> {source}", target) for source, target in text.text.each()]
    other = written(tmp_path, "tagged", tagged)
    plain = load_splits(config(tmp_path, files), tmp_path).train
    (tmp_path / "spool").mkdir()
    made = config(tmp_path, other, line_tags=["<a>"])
    assert [pair for pair in load_splits(made, tmp_path / "spool").train.each()] == [
        (f"<a> {source}", target) for source, target in plain.each()
    ]


def test_a_filter_of_auto_that_would_drop_most_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copies = [(source, source) for source, _ in sound_pairs(500)]
    made = config(tmp_path, written(tmp_path, "train", copies), target_lang="fr")
    prepared = prepare(made)
    assert prepared.filtering is not None
    left_out = {one.name: one.left_out for one in prepared.filtering.filters if one.left_out}
    assert left_out["copies"] == 1.0
    assert "copies was not applied, as it would have dropped 100% of the pairs" in caplog.text
    with pytest.raises(DataError, match=r"the filters of data\.clean dropped all of 500 pairs: 500 with the same"):
        prepare(replace(made, clean=["copies"]))


def test_a_cache_is_of_its_filters_and_without_any_the_one_of_before(tmp_path: Path) -> None:
    made = config(tmp_path, ["train.en", "train.fr"], clean=[])
    key = cache_key(made, {})
    assert cache_key(replace(made, clean=["auto"]), {}) != key
    assert cache_key(replace(made, clean=["copies:4"]), {}) != cache_key(replace(made, clean=["copies"]), {})
    classified = replace(made, task="classification", target_lang="label", columns=[])
    assert cache_key(replace(classified, clean=["auto"]), {}) == cache_key(classified, {})


def test_filters_are_for_translations() -> None:
    with pytest.raises(ConfigError, match="the filters are for translations"):
        DataConfig(source_lang="text", target_lang="label", task="classification", clean=["copies"])
    with pytest.raises(ConfigError, match="must be a list of filters"):
        DataConfig(source_lang="en", target_lang="fr", clean=3)


def test_a_filter_of_a_plugin_is_one_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FILTERS, "_entries", dict(FILTERS._entries))

    @FILTERS.register("no_cats")
    class NoCats(Filter):
        what = "about cats"

        def apply(self, text: PairTexts) -> Verdict:
            return Verdict(np.array(["cat" in source for source in text.sources]))

    made = config(tmp_path, written(tmp_path, "train", list(sound_pairs(600))), clean=["no_cats"])
    assert not any("cat" in source for source, _ in load_splits(made, tmp_path).train.each())


def test_a_filter_of_a_plugin_is_applied_last_also_if_it_is_imported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = dict(FILTERS.items())
    monkeypatch.setattr(FILTERS, "_entries", {})

    @FILTERS.register("no_cats")
    class NoCats(Filter):
        what = "about cats"

    FILTERS._entries.update(ours)
    assert [*chosen_filters(["no_cats", "auto"])] == [*chosen_filters(["auto"]), "no_cats"]


def test_the_settings_and_the_version_of_a_filter_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FILTERS, "_entries", dict(FILTERS._entries))
    asked: list[int] = []

    @FILTERS.register("longest")
    class Longest(Filter):
        what = "of more words than data.max_length"

        @classmethod
        def version(cls, config: DataConfig) -> int:
            return 1

        def configure(self, config: DataConfig) -> None:
            self.most = config.max_length

        def apply(self, text: PairTexts) -> Verdict:
            asked.append(len(text))
            return Verdict(np.array([len(source.split()) > self.most for source in text.sources]))

    made = config(tmp_path, written(tmp_path, "train", list(sound_pairs(600))), clean=["longest"], max_length=6)
    kept = [source for source, _ in load_splits(made, tmp_path).train.each()]
    assert kept == [source for source, _ in sound_pairs(600) if len(source.split()) <= 6]
    assert asked == [600]  # and not of the sample: no filter after it learns from what it leaves
    key = cache_key(made, {})
    monkeypatch.setattr(Longest, "version", lambda config: 2)
    assert cache_key(made, {}) != key
    with pytest.raises(ConfigError, match=r"no filter of data\.clean uses models"):
        cache_key(replace(made, clean_models=["a"]), {})


def test_the_command_cleans_its_files_by_default_and_says_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "train", list(noisy(sound_pairs(3000)).text.each()))
    command = ["prepare", "data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=train"]
    assert main([*command, "data.tokenizer.vocab_size=300"]) == 0
    err = capsys.readouterr().err
    assert "40 dropped: with the same sentence on both sides (copies)" in err
    assert "40 kept, without markup that only one side had (markup)" in err
    assert main([*command, "data.tokenizer.vocab_size=300", "data.clean=[]"]) == 0
    assert "dropped: with the same sentence" not in capsys.readouterr().err
    [cleaned] = [path for path in Path("data/files").glob("prepared-*/filtering.json")]
    assert json.loads(cleaned.read_bytes())["n_read"] == 3000
    assert main([*command, "data.clean=[auto,-copys]"]) == 2
    assert "did you mean `copies`" in capsys.readouterr().err
