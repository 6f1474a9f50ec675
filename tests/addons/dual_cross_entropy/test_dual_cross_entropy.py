"""The filter dual_cross_entropy: its scores are those of `tfm score`, and what it drops follows from them alone."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transformer_cli as tfm
from tests.conftest import ROOT, slow
from tests.data.cleaning.noise import made_up_pairs, sound_pairs, texts
from tests.data.cleaning.test_clean_corpora import config, pairs_of, written
from tests.support.each import each
from tests.toy.models import random_file
from tests.toy.models import written as write_to
from tests.toy.run import MODEL, sentences, tokenizers
from transformer_cli.addons.dual_cross_entropy.scores import all_dual_models, dual_models, unrelated
from transformer_cli.addons.dual_cross_entropy.translators import Translator
from transformer_cli.cli import main
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.config.model import Tying
from transformer_cli.config.shard import Shard
from transformer_cli.data.cache_key import cache_key
from transformer_cli.data.cleaning import clean_corpora
from transformer_cli.data.cleaning.base import FILTERS, Languages
from transformer_cli.data.cleaning.clean_corpora import FilteringReport
from transformer_cli.data.prepare import prepare
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.shards import Incomplete
from transformer_cli.errors import ConfigError

NAME = "dual_cross_entropy"
ENGLISH_FRENCH = Languages("en", "fr")


def model(folder: Path, languages: str, *, seed: int = 1, **data: Any) -> str:
    """A model file with drawn weights over letters."""
    changed = replace(MODEL, tie_embeddings=Tying.three_way)
    return str(write_to(folder, random_file(changed, tokenizers(), languages, seed=seed, gain=2, data=data), languages))


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    return [model(tmp_path, "en-fr"), model(tmp_path, "fr-en", seed=2)]


def letters(n: int) -> list[Pair]:
    return list(zip(sentences(n, seed=1), sentences(n, seed=2), strict=True))


def corpus(models: Sequence[str]) -> DataConfig:
    return DataConfig(source_lang="en", target_lang="fr", clean_models=list(models), clean=[NAME])


# ---- Scores


def test_the_score_is_that_of_the_paper_by_what_tfm_score_prints(models: list[str]) -> None:
    pairs = letters(5)
    there, back = (
        [-one.log_prob / len(one.pieces) for one in tfm.score(asked, path, device="cpu")]
        for asked, path in ((pairs, models[0]), ([pair[::-1] for pair in pairs], models[1]))
    )
    expected = [math.exp(-(abs(a - b) + (a + b) / 2)) for a, b in zip(there, back, strict=True)]
    found = dual_models(corpus(models), ENGLISH_FRENCH).scores(pairs)
    assert found == pytest.approx(expected, rel=1e-4)
    assert len(set(np.round(found, 6))) == 5


def test_models_may_be_named_in_either_order(models: list[str]) -> None:
    for named in (models, models[::-1]):
        found = dual_models(corpus(named), ENGLISH_FRENCH)
        assert [str(found.forward.path), str(found.backward.path)] == models


def test_a_line_that_is_too_long_for_a_model_is_scored_by_its_beginning(tmp_path: Path) -> None:
    models = [model(tmp_path, "en-fr", max_length=5), model(tmp_path, "fr-en", max_length=5)]
    found = dual_models(corpus(models), ENGLISH_FRENCH)
    assert found.scores([("a b c d", "b c d a"), ("a b c d e f", "b c d a j")]).tolist() == pytest.approx(
        [found.scores([("a b c d", "b c d a")])[0]] * 2
    )


def test_unrelated_pairs_have_the_target_of_another_pair_of_nearly_the_same_length() -> None:
    pairs = made_up_pairs(2000)
    target_of = dict(pairs)
    made = unrelated(texts(pairs))
    assert [source for source, _ in made] == [source for source, _ in pairs]
    assert sum(target == target_of[source] for source, target in made) <= 0.01 * len(made)
    apart = [abs(len(target) - len(target_of[source])) for source, target in made]
    assert sorted(apart)[int(0.95 * len(apart))] == 0


# ---- What is dropped


def by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cross-entropy of a target grow with the share of its words that translate no word of its source."""
    known = {
        pair
        for source, target in made_up_pairs(3000)
        for one in zip(source.split(), reversed(target.split()), strict=True)
        for pair in (one, one[::-1])
    }
    of_word: dict[str, set[str]] = {}
    for source, target in known:
        of_word.setdefault(source, set()).add(target)

    def cross_entropies(self: Translator, pairs: Sequence[Pair]) -> Any:
        found = []
        for source, target in pairs:
            translations = set().union(*(of_word.get(word, set()) for word in source.split()))
            words = target.split()
            found.append(0.5 + 4 * sum(word not in translations for word in words) / len(words))
        return np.array(found)

    monkeypatch.setattr(Translator, "cross_entropies", cross_entropies)


def misaligned(n: int, n_wrong: int) -> tuple[list[Pair], list[int]]:
    """Pairs, in which `n_wrong` targets have moved on by one place among these."""
    pairs = list(made_up_pairs(n))
    rows = list(range(5, n, n // n_wrong))[:n_wrong]
    targets = [pairs[row][1] for row in rows]
    for row, target in zip(rows, targets[1:] + targets[:1], strict=True):
        pairs[row] = pairs[row][0], target
    return pairs, rows


def report_of(made: DataConfig) -> FilteringReport:
    report = prepare(made).filtering
    assert report is not None
    return report


def test_unrelated_pairs_are_dropped_counted_and_shown_and_translations_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: list[str]
) -> None:
    by_words(monkeypatch)
    pairs, rows = misaligned(2000, 40)
    made = config(tmp_path, written(tmp_path, "train", pairs), clean=[f"{NAME}:0.9"], clean_models=models)
    [report] = report_of(made).filters
    assert report.n_dropped >= 0.8 * len(rows)
    shown = [one["pair"] - 1 for one in report.dropped]
    assert len(shown) == clean_corpora.SHOWN
    assert set(shown) <= set(rows)
    assert report.n_dropped <= len(rows)


def test_a_higher_threshold_drops_more_of_the_same(monkeypatch: pytest.MonkeyPatch, models: list[str]) -> None:
    by_words(monkeypatch)
    pairs, _ = misaligned(1500, 150)
    found = []
    for threshold in (0.2, 0.5, 0.9):
        one = FILTERS[NAME](ENGLISH_FRENCH, threshold)
        one.configure(corpus(models))
        one.learn(texts(pairs))
        verdict = one.apply(texts(pairs))
        certain = one.suspicion(texts(pairs).pick(verdict.dropped))
        assert ((certain >= 0.5) & (certain < 1)).all()
        found.append(set(np.flatnonzero(verdict.dropped).tolist()))
    assert found[0] < found[1] < found[2]


def test_a_text_without_pairs_to_learn_from_loses_none(models: list[str]) -> None:
    one = FILTERS[NAME](ENGLISH_FRENCH, 0.9)
    one.configure(corpus(models))
    one.learn(texts([]))
    assert not one.apply(texts(letters(5))).dropped.any()


def test_a_corpus_of_several_source_languages_is_refused(models: list[str]) -> None:
    made = replace(corpus(models), source_lang="en+de")
    with pytest.raises(ConfigError, match=r"data\.source_lang=en\+de are several"):
        cache_key(made, {})


def test_each_target_language_of_a_corpus_has_its_own_models(tmp_path: Path, models: list[str]) -> None:
    german = [model(tmp_path, "en-de", seed=3), model(tmp_path, "de-en", seed=4)]
    made = replace(corpus([*german, *models]), target_lang="de+fr", tags=["<2de>", "<2fr>"])
    assert [str(one.forward.path) for one in all_dual_models(made)] == [german[0], models[0]]
    with pytest.raises(ConfigError, match="none translates de → en"):
        cache_key(replace(made, clean_models=[german[0], *models]), {})


# ---- Preparation


@pytest.mark.parametrize("n_processes", [1, slow(2)])
def test_shards_and_processes_keep_the_same_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: list[str], n_processes: int
) -> None:
    monkeypatch.setattr(clean_corpora, "PART", 150)
    names = written(tmp_path, "train", letters(600))
    made = config(tmp_path, names, clean=[NAME], clean_models=models, tokenizer=TokenizerConfig())
    whole = prepare(made)
    assert whole.filtering is not None
    assert 100 < whole.filtering.n_kept < 500
    monkeypatch.setattr(clean_corpora, "n_workers", lambda n: n_processes)
    divided = replace(made, cache=str(tmp_path / "divided"))
    for number in (1, 2):
        with pytest.raises(Incomplete):
            prepare(divided, shard=Shard(number, 2))
    found = prepare(divided, shard=Shard(1, 2))
    assert found.fingerprint == whole.fingerprint
    assert found.filtering == whole.filtering
    assert pairs_of(found) == pairs_of(whole)


def test_a_cache_is_of_its_models(tmp_path: Path, models: list[str]) -> None:
    made = corpus(models)
    key = cache_key(made, {})
    assert cache_key(replace(made, clean_models=models[::-1]), {}) == key
    moved = Path(models[0]).rename(tmp_path / "moved")
    assert cache_key(replace(made, clean_models=[str(moved), models[1]]), {}) == key
    other = model(tmp_path, "en-fr", seed=5)
    assert cache_key(replace(made, clean_models=[other, models[1]]), {}) != key
    assert cache_key(replace(made, clean=[f"{NAME}:0.9"], clean_models=[str(moved), models[1]]), {}) != key


def test_no_other_command_line_is_asked_for_models(tmp_path: Path) -> None:
    names = written(tmp_path, "train", list(made_up_pairs(600)))
    assert NAME not in [one.name for one in report_of(config(tmp_path, names)).filters]


PREPARE = ["prepare", "data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=train"]
WITH_FILTER = f"data.clean=[{NAME}]"


@pytest.mark.slow
def test_the_recipe_of_the_page_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = (
        f"<tu><tuv xml:lang='en'><seg>{s}</seg></tuv><tuv xml:lang='de'><seg>{t}</seg></tuv></tu>"
        for s, t in sound_pairs(500)
    )
    Path("download.tmx").write_text(f"<tmx version='1.4'><body>{''.join(pairs)}</body></tmx>", encoding="utf-8")
    section = (ROOT / "docs/cleaning.md").read_text(encoding="utf-8").partition("## A second stage by models\n")[2]
    lines = section.split("```")[1].strip().split("\n")
    small = [
        "model.d_model=16",
        "model.n_heads=2",
        "model.d_ff=16",
        "train.max_steps=4",
        "device=cpu",
        "decode.beam_size=1",
    ]
    for line in lines:
        _, command, *words = shlex.split(line, comments=True)
        words = [word for word in words if not word.startswith("train.budget")]
        assert main([command, *words, *(small if command == "train" else [])]) == 0
    assert "dual_cross_entropy" in Path("cleaning.html").read_text(encoding="utf-8")


@each(
    "words,code,message",
    [
        ([WITH_FILTER], 2, "dual_cross_entropy needs two models"),
        ([WITH_FILTER, "data.clean_models=[en-fr,gone]"], 4, "gone: no such file or folder. Check data.clean_models"),
        ([WITH_FILTER, "data.clean_models=[en-fr]"], 2, "none translates fr → en; en-fr translates en → fr"),
        ([WITH_FILTER, "data.clean_models=[en-fr,en-de]"], 2, "none translates fr → en"),
        ([WITH_FILTER, "data.clean_models=[en-fr,fr-en,en-fr]"], 2, "en-fr and en-fr both translate en → fr"),
        ([WITH_FILTER, "data.clean_models=[en-fr,broken]"], 4, "broken: "),
        (["data.clean_models=[en-fr,fr-en]"], 2, "no filter of data.clean uses models. Add dual_cross_entropy"),
        (["data.clean=[dual_cross_entropy:2]"], 2, "must be at least 0.01 and at most 0.999"),
    ],
)
def test_models_that_do_not_suit_the_corpus_are_refused_in_one_line(
    words: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    models: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model(tmp_path, "en-de")
    Path("broken").write_bytes(Path("en-fr").read_bytes()[:-5])
    written(tmp_path, "train", letters(50))
    assert main([*PREPARE, *words]) == code
    err = capsys.readouterr().err
    assert err.startswith("tfm: error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not list(Path("data").glob("files/prepared-*"))


def test_the_commands_work_and_doctor_names_what_the_filter_finds(
    tmp_path: Path, models: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "train", letters(400))
    words = [*PREPARE[1:], WITH_FILTER, "data.clean_models=[en-fr,fr-en]"]
    assert main(["prepare", *words, "--report", "cleaning.html"]) == 0
    err = capsys.readouterr().err
    assert "dual_cross_entropy: en-fr and fr-en score 334 unrelated pairs" in err
    assert f"dropped: that models of both directions find as unlikely as unrelated lines ({NAME})" in err
    assert f'id="filter-{NAME}"' in Path("cleaning.html").read_text(encoding="utf-8")
    assert main(["prepare", *words]) == 0
    assert "unrelated pairs" not in capsys.readouterr().err
    assert main(["doctor", *words, "--suspects", "3"]) == 0
    assert f"({NAME}, 0." in capsys.readouterr().out
