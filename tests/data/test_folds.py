"""Folds of the training text: what is in them, what is trained on beside them, and what is scored."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.evaluation.test_hints import TRAIN, classified, tagged, translated
from tests.support.contract import refused
from tests.support.forked import run
from tests.toy.run import sentences
from transformer_cli.config.compose import load_config
from transformer_cli.config.data import DataConfig
from transformer_cli.data.cache_key import cache_key
from transformer_cli.data.clean import clean
from transformer_cli.data.cleaning.clean_corpora import held_out_by_hash
from transformer_cli.data.corpus import ParallelText, sentence_key
from transformer_cli.data.folds import Fold
from transformer_cli.data.splits import Splits, load_splits
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.evaluation.held_out import HELD_OUT_FILE

N = 4
LANGUAGES = {"source_lang": "en", "target_lang": "xx"}
LABELS = {"source_lang": "text", "target_lang": "label"}
TASKS: dict[str, tuple[Callable[[Path], None], dict[str, Any]]] = {
    "translation": (translated, LANGUAGES),
    "classes": (classified, {**LABELS, "task": "classification"}),
    "tags": (tagged, {**LABELS, "task": "token_classification"}),
}
Pairs = set[tuple[str, str]]


def configs(root: Path, n: int = N, **settings: Any) -> Iterator[DataConfig]:
    config = DataConfig(train=["train.tsv"], root=str(root), **{**LANGUAGES, **settings})
    return (replace(config, fold=f"{number}/{n}") for number in range(1, n + 1))


def trained_on(splits: Splits, config: DataConfig) -> Pairs:
    text, _ = clean(
        splits.train, drop_duplicates=True, held_out=splits.held_out, tags=config.all_tags, key_of=sentence_key(config)
    )
    return set(text.each())


def parts_of(config: DataConfig, folder: Path) -> tuple[Pairs, Pairs, Pairs]:
    """The pairs of the training text that are trained on, held out as dev, and tested."""
    with TemporaryDirectory(dir=folder) as spool:
        splits = load_splits(config, Path(spool))
        assert splits.test is not None
        return trained_on(splits, config), set(splits.dev.each()), set(splits.test.each())


def fold_text(config: DataConfig, folder: Path) -> ParallelText:
    """The test set of a fold."""
    with TemporaryDirectory(dir=folder) as spool:
        test = load_splits(config, Path(spool)).test
    assert test is not None
    return test


def write(root: Path, lines: list[str]) -> None:
    (root / "train.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.parametrize("task", TASKS)
def test_folds_are_disjoint_and_all_but_a_fold_is_trained_on_or_dev(tmp_path: Path, task: str) -> None:
    write_files, settings = TASKS[task]
    write_files(tmp_path)
    folds = [parts_of(config, tmp_path) for config in configs(tmp_path, **settings)]
    every = set[tuple[str, str]]().union(*(test for _, _, test in folds))
    assert sum(len(test) for _, _, test in folds) == len(every) >= 25
    for train, dev, test in folds:
        assert train | dev == every - test
        assert train.isdisjoint(dev)
        assert dev


def test_all_targets_of_a_sentence_are_in_one_fold_and_each_pair_is_tested_once(tmp_path: Path) -> None:
    lines = [f"{source}\t{target}" for source in sentences(40, seed=1) for target in ("x", "y")]
    spaced = [f"  {line.replace(' ', '  ')}" for line in lines]  # the same sentences
    write(tmp_path, [*lines, *spaced, "\tz", "a b\t"])
    tested: list[tuple[str, str]] = []
    for config in configs(tmp_path):
        train, _, test = parts_of(config, tmp_path)
        assert {" ".join(source.split()) for source, _ in train}.isdisjoint(source for source, _ in test)
        tested += test
    assert len(tested) == len(set(lines))
    assert {f"{source}\t{target}" for source, target in tested} == set(lines)
    n_tested = sum(len(fold_text(config, tmp_path)) for config in configs(tmp_path, drop_duplicates=False))
    assert n_tested == len(lines + spaced)


def test_a_sentence_stays_in_its_fold_when_lines_are_added_or_shuffled(tmp_path: Path) -> None:
    def folds() -> dict[str, int]:
        tests = [parts_of(config, tmp_path)[2] for config in configs(tmp_path)]
        return {source: number for number, test in enumerate(tests) for source, _ in test}

    lines = [f"{line}\t{line}" for line in sentences(60, seed=1)]
    write(tmp_path, lines)
    before = folds()
    more = [*lines, *(f"{line} k\tz" for line in sentences(30, seed=2))]
    random.Random(1).shuffle(more)
    write(tmp_path, more)
    after = folds()
    assert before.items() < after.items()
    assert set(before.values()) == set(range(N))


def test_a_fold_is_that_of_the_hash_of_seed_and_sentence() -> None:
    # The digest that `printf '1 fold\na b' | b2sum` prints ends in the digit 6, that of the seed 2 in c, which is 12.
    for seed, remainder in ((1, 6), (2, 12)):
        assert [number for number in range(1, 17) if Fold(number, 16, seed).has("a b")] == [remainder + 1]


def test_folds_are_about_equally_large() -> None:
    sizes = [sum(Fold(number, 5, 1).has(f"sentence {i}") for i in range(5000)) for number in range(1, 6)]
    assert sum(sizes) == 5000
    assert max(abs(size - 1000) for size in sizes) < 100  # more than three standard deviations, of 28


def test_tags_are_no_part_of_a_sentence(tmp_path: Path) -> None:
    write(tmp_path, [f"{line}\t{line}" for line in dict.fromkeys(sentences(40, seed=1))])
    settings: dict[str, Any] = {"train": ["train.tsv", "train.tsv"], "target_lang": "de+fr", "tags": ["<2de>", "<2fr>"]}
    for config in configs(tmp_path):
        config = replace(config, **settings)
        test = fold_text(config, tmp_path)
        german = {line.removeprefix("<2de> ") for line in test.sources if line.startswith("<2de>")}
        assert german == {line.removeprefix("<2fr> ") for line in test.sources if line.startswith("<2fr>")}
        assert [(part.name, part.n) for part in test.parts] == [("<2de>", len(german)), ("<2fr>", len(german))]


def test_without_enough_sentences_for_a_dev_set_it_is_the_text_that_is_trained_on(tmp_path: Path) -> None:
    write(tmp_path, [f"{word}\tx" for word in "abcde"])
    for config in configs(tmp_path, 2):
        train, dev, test = parts_of(config, tmp_path)
        assert dev.isdisjoint(test)
        assert train | dev | test == {(word, "x") for word in "abcde"}


def test_filters_learn_from_no_sentence_of_the_fold(tmp_path: Path) -> None:
    translated(tmp_path)
    for config in configs(tmp_path):
        _, _, test = parts_of(config, tmp_path)
        may_be_held = held_out_by_hash(config)
        assert all(may_be_held(source) for source, _ in test)
        assert not all(may_be_held(line) for line in sentences(60, seed=1))


def test_the_fold_is_part_of_the_key_of_the_cache(tmp_path: Path) -> None:
    found = [*configs(tmp_path), replace(next(configs(tmp_path)), fold=None), next(configs(tmp_path, seed=2))]
    assert len({cache_key(config, {}) for config in found}) == len(found)


# ---- The test set of the corpus itself


def test_a_fold_takes_the_place_of_the_test_set_of_a_corpus() -> None:
    plain, folded = (load_config("prepare", ["data=multi30k_en_de_fr", *more]).data for more in ([], ["data.fold=1/5"]))
    assert (len(plain.test), len(plain.test_tags), plain.has_own_test) == (4, 2, True)
    assert (folded.test, folded.test_tags, folded.has_own_test) == (None, [], False)
    assert folded.test_name == "multi30k_en_de_fr.fold-1-of-5"
    assert load_config("prepare", ["data=multi30k_en_de", "data.fold=null"]).data.test is not None


def test_a_fold_of_a_built_in_corpus_is_of_its_training_text(tmp_path: Path) -> None:
    config = load_config("train", ["data=demo_en_fr", "data.fold=7/20"]).data
    splits = load_splits(config, tmp_path)
    assert splits.test is not None
    assert not config.has_own_test
    assert 900 < len(splits.test) < 1100  # of 20,000
    assert set(splits.test.each()) <= set(splits.train.each())
    assert len(splits.dev) == 500  # its own
    assert list(splits.notes(20_000 - len(splits.test))) == [
        f"{len(splits.test):,} pairs held out of the training text as test (data.fold=7/20, in place of a test set of"
        " the corpus); 0 others of the same source sentences left out"
    ]


# ---- What is refused


@pytest.mark.parametrize("fold", ["6/5", "0/5", "x", "5", "1/1", "-1/5", "1/5/2", "1.0/5", "01/5"])
def test_what_is_no_fold_is_refused(fold: str) -> None:
    with pytest.raises(ConfigError, match=rf"^data\.fold={fold}: must be I/N with I from 1 to N"):
        load_config("train", [f"data.fold={fold}"])


def test_a_test_set_beside_a_fold_is_refused(tmp_path: Path) -> None:
    says = ["data.fold=1/5: the fold is the test set, and data.test=test.tsv is another", "data.test=null"]
    translated(tmp_path)
    files = ["data=files", *(f"data.{key}={value}" for key, value in LANGUAGES.items())]
    refused(
        ["train", *files, "data.train=train.tsv", "data.test=test.tsv", "data.fold=1/5"], tmp_path, code=2, says=says
    )


def test_an_empty_fold_and_one_of_all_text_are_refused(tmp_path: Path) -> None:
    write(tmp_path, ["a\tx", "a\ty", "b\t"])
    faults = []
    for config in configs(tmp_path, 2):
        with pytest.raises(DataError) as fault:
            fold_text(config, tmp_path)
        faults.append(str(fault.value))
    assert sorted(fault.partition(": ")[2] for fault in faults) == [
        "all 2 pairs of data.train are in this fold, so none is left to train on. Use more folds, or more text",
        "none of the 2 pairs of data.train is in this fold. Use fewer folds, or more text",
    ]


# ---- Commands

SEARCH = ["decode=greedy", "decode.max_extra_length=3"]
TINY = [*SEARCH, "train.max_steps=2", "train.eval_every=2", "train.save_every=2", "data.cache=cache", "data.seed=2"]
COMMANDS = {
    "translation": ["data=files", "recipe=files", *(f"data.{key}={value}" for key, value in LANGUAGES.items())],
    "classes": ["data=labels"],
    "tags": ["data=tags"],
}


@pytest.mark.parametrize(
    "task", ["classes", *(pytest.param(one, marks=pytest.mark.slow) for one in ("translation", "tags"))]
)
def test_evaluate_scores_the_fold(tmp_path: Path, task: str) -> None:
    TASKS[task][0](tmp_path)
    ran = run([*TRAIN, *COMMANDS[task], *TINY, "data.train=train.tsv", "data.fold=2/3"], tmp_path)
    assert ran.code == 0, ran.err.decode()
    kept = json.loads((tmp_path / "runs" / "run" / HELD_OUT_FILE).read_bytes())
    assert "test" in kept["held"]
    [_, config, _] = configs(tmp_path, 3, seed=2, **TASKS[task][1])
    test = parts_of(config, tmp_path)[2]
    assert set(zip(kept["test"]["sources"], kept["test"]["targets"], strict=True)) == test
    search = SEARCH if task == "translation" else []
    scored = run(["evaluate", "--checkpoint", "runs/run", "--device", "cpu", *search], tmp_path)
    assert scored.code == 0, scored.err.decode()
    assert f".fold-2-of-3, {len(test)} " in scored.out.decode()


@pytest.mark.slow
def test_a_sweep_over_folds_of_the_built_in_corpus_is_cross_validation(tmp_path: Path) -> None:
    tiny = ["model.d_model=16", "model.d_ff=16", "model.n_heads=2", "model.n_encoder_layers=1"]
    settings = [*tiny, "model.n_decoder_layers=1", "data.tokenizer.vocab_size=300", "device=cpu", *TINY]
    ran = run(["train", "-m", "--name", "k", "data.fold=1/40,2/40,3/40", *settings], tmp_path)
    assert ran.code == 0, ran.err.decode()
    newest = next((tmp_path / "multirun").glob("*/results.json"))
    results = json.loads(newest.read_bytes())
    assert [one["changes"] for one in results["runs"]] == [{"data.fold": f"{number}/40"} for number in (1, 2, 3)]
    [mean] = results["over_folds"]
    scores = [one["scores"]["test chrF"] for one in results["runs"]]
    assert mean["mean"]["test chrF"] == pytest.approx(sum(scores) / 3)
    assert "mean ± standard deviation (n - 1) over folds" in ran.out.decode()
    tests = [
        set(json.loads((tmp_path / one["run_dir"] / HELD_OUT_FILE).read_bytes())["test"]["sources"])
        for one in results["runs"]
    ]
    assert sum(map(len, tests)) == len(tests[0] | tests[1] | tests[2])
    assert all(400 < len(test) < 600 for test in tests)  # a fortieth of 20,000
