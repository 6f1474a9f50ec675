"""`tfm.load_classifier` and `tfm.load_tagger`: the results of `tfm classify` and `tfm tag`, in Python."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import transformer_cli as tfm
from tests.addons.classification import toy_classifier
from tests.addons.classification.toy_pairs import pair_file
from tests.addons.tagging import toy_tagger
from tests.support.contract import run
from tests.toy.run import model_file
from transformer_cli.errors import CheckpointError, ConfigError, DataError
from transformer_cli.models.file import write_model

LINES = ["a HI b", "", "c d MD", " \t", "LO"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(tmp_path / "classes", toy_classifier.random_model())
    write_model(tmp_path / "pairs", replace(pair_file(), data={**pair_file().data, "task": "classification"}))
    write_model(tmp_path / "tags", toy_tagger.random_model("mean"))
    write_model(tmp_path / "translator", model_file())
    return tmp_path


def printed(folder: Path, command: str, name: str, lines: list[str]) -> list[Any]:
    text = "".join(f"{line}\n" for line in lines).encode()
    ran = run([command, "--checkpoint", name, "--output-format", "jsonl", "device=cpu"], folder, stdin=text)
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.split(b"\n")[:-1]]


def test_texts_have_the_classes_and_probabilities_that_the_command_prints(folder: Path) -> None:
    classifier = tfm.load_classifier(folder / "classes", device="cpu")
    found = classifier.classify(LINES)
    records = printed(folder, "classify", "classes", LINES)
    assert [one.label for one in found] == [record["label"] for record in records]
    assert [dict(one.probabilities) for one in found] == [record["probabilities"] or {} for record in records]
    assert (found[1].label, tuple(classifier.labels)) == (None, toy_classifier.LABELS)
    assert classifier.classify([]) == []


def test_pairs_are_two_texts_or_a_line(folder: Path) -> None:
    classifier = tfm.load_classifier(str(folder / "pairs"), device="cpu", batch_tokens=1)
    (one, other) = classifier.classify([("a b", "H c"), "a b\tH c"])
    assert one == other
    assert one.label == printed(folder, "classify", "pairs", ["a b\tH c"])[0]["label"]
    with pytest.raises(DataError, match=r"text 2: has 0 tabs, not one.* Give \(first, second\)"):
        classifier.classify(["a\tb", "c"])
    with pytest.raises(DataError, match="text 1: a pair, and this model classifies single texts"):
        tfm.load_classifier(folder / "classes", device="cpu").classify([("a", "b")])


def test_words_have_the_tags_and_probabilities_that_the_command_prints(folder: Path) -> None:
    tagger = tfm.load_tagger(folder / "tags", device="cpu")
    found = tagger.tag(["a bcd H", "", "ef  g"])
    for one, record in zip(found, printed(folder, "tag", "tags", ["a bcd H", "", "ef  g"]), strict=True):
        assert (one.words, one.tags) == (record["words"], record["tags"])
        assert one.probabilities == record["probabilities"]
    assert tagger.tag([["a", "bcd", "H"]]) == found[:1]
    assert set(found[0].tags) <= set(tagger.labels)


def test_a_text_that_is_no_list_is_refused(folder: Path) -> None:
    with pytest.raises(TypeError, match=r"texts: 'a b' is one text\. Give a list of texts, as \[text\]"):
        tfm.load_classifier(folder / "classes", device="cpu").classify("a b")
    with pytest.raises(TypeError, match="sentences: 'a b' is one text"):
        tfm.load_tagger(folder / "tags", device="cpu").tag("a b")


def test_threads_share_a_model_and_each_call_warns_of_its_own_texts(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    classifier, tagger = (
        tfm.load_classifier(folder / "classes", device="cpu"),
        tfm.load_tagger(folder / "tags", device="cpu"),
    )
    with ThreadPoolExecutor(4) as threads:
        each = list(threads.map(lambda line: classifier.classify([line])[0], LINES * 5))
        tags = list(threads.map(lambda line: tagger.tag([line])[0], ["a b", "c"] * 5))
    assert each == classifier.classify(LINES) * 5
    assert tags == tagger.tag(["a b", "c"]) * 5
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            classifier.classify(["a", "a " * 30])
        (record,) = caplog.records
        assert record.getMessage() == "line 2: longer than the model's 12 tokens; the rest is not read"


def test_another_model_and_another_number_are_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"this is a tagger, which `tfm tag` is for\. Choose a model of `tfm cl"):
        tfm.load_classifier(folder / "tags", device="cpu")
    with pytest.raises(CheckpointError, match=r"this is a translator, which `tfm translate` is for"):
        tfm.load_tagger(folder / "translator", device="cpu")
    with pytest.raises(CheckpointError, match="this is a classifier; use `tfm classify`"):
        tfm.load(folder / "classes", device="cpu")
    with pytest.raises(ConfigError, match="batch_tokens=few: no whole number"):
        tfm.load_classifier(folder / "classes", device="cpu", batch_tokens="few")
