"""ROUGE is that of rouge-score, and says what it cannot score."""

import io
import json
import sys
from pathlib import Path

import pytest

from tests.evaluation.test_metrics import noised
from tests.support.each import each
from transformer_cli.cli import main
from transformer_cli.data.readers.builtin import read_builtin
from transformer_cli.errors import EnvironmentFault
from transformer_cli.evaluation.metrics import METRICS, MetricSettings, MetricUnavailable, Translations, sentence_scores
from transformer_cli.evaluation.test_sets import language_of_file
from transformer_cli.evaluation.translation import prepare_metrics

ENGLISH = MetricSettings(source_lang="en", target_lang="en")
SUMMARIES = [summary for _, summary in read_builtin("demo_summaries", "dev")][:40]

pytest.importorskip("rouge_score", reason="pip extra rouge")


def values(name: str, hypotheses: list[str], *references: list[str], settings: MetricSettings = ENGLISH) -> list[float]:
    return list(sentence_scores(name, Translations(hypotheses, references), settings).values)


def test_the_scores_of_a_sentence_are_those_computed_by_hand() -> None:
    hypothesis, reference = ["The cat sat down."], ["On the mat the cat sat."]
    # 4 words against 6: "the", "cat", "sat" are shared, "the cat" and "cat sat", and "the cat sat" in this order.
    assert values("rouge1", hypothesis, reference) == pytest.approx([100 * 2 * 3 / (4 + 6)])
    assert values("rouge2", hypothesis, reference) == pytest.approx([100 * 2 * 2 / (3 + 5)])
    assert values("rougeL", hypothesis, reference) == pytest.approx([100 * 2 * 3 / (4 + 6)])
    two = ["A cat sat. The dog ran."], ["The dog ran. A cat sat."]
    assert values("rougeL", *two) == pytest.approx([50])  # one of the sentences, in the order of the reference
    assert values("rougeLsum", *two) == pytest.approx([100])  # both, sentence by sentence


@each("name", ["rouge1", "rouge2", "rougeL"])
@each("language", ["en", "de"])
def test_the_mean_is_that_of_the_scores_of_rouge_score(name: str, language: str) -> None:
    from rouge_score.rouge_scorer import RougeScorer

    hypotheses = noised(SUMMARIES, seed=1)
    scorer = RougeScorer([name], use_stemmer=language == "en")
    each = [100 * scorer.score(*pair)[name].fmeasure for pair in zip(SUMMARIES, hypotheses, strict=True)]
    settings = MetricSettings(target_lang=language)
    (score,) = METRICS[name](Translations(hypotheses, [SUMMARIES]), settings)
    assert score.value == pytest.approx(sum(each) / len(each))
    assert values(name, hypotheses, SUMMARIES, settings=settings) == pytest.approx(each)
    stem = "yes" if language == "en" else "no"
    assert score.signature == f"nrefs:1|use_stemmer:{stem}|rouge-score:0.1.2"
    assert score.name == f"ROUGE-{name.removeprefix('rouge')}"


def test_of_several_references_the_best_counts() -> None:
    hypotheses = noised(SUMMARIES, seed=1)
    others = noised(SUMMARIES, seed=2)
    one, other = values("rougeL", hypotheses, SUMMARIES), values("rougeL", hypotheses, others)
    assert values("rougeL", hypotheses, SUMMARIES, others) == pytest.approx(list(map(max, one, other)))


def test_a_script_that_rouge_score_does_not_read_has_no_score() -> None:
    with pytest.raises(MetricUnavailable, match="letters a to z alone"):
        values("rouge1", ["猫坐在垫子上"], ["猫坐在垫子上"])
    assert values("rouge1", ["Die Bären"], ["Die Bären"]) == [100]


def test_a_missing_package_is_named_before_anything_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    message = r"metrics=rouge2: the package rouge_score cannot be imported .*pip install '\.\[rouge\]'"
    with pytest.raises(EnvironmentFault, match=message):
        prepare_metrics(["bleu", "rouge2"], ENGLISH)
    prepare_metrics(["bleu"], ENGLISH)


def test_evaluate_and_compare_know_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    for name, lines in {"ref": SUMMARIES, "a": noised(SUMMARIES, seed=1), "b": SUMMARIES}.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    files = ["--reference", "ref.txt", "--hypotheses", "a.txt"]
    names = "metrics=[rouge1,rouge2,rougeL,rougeLsum]"
    assert main(["evaluate", *files, names, "--sentence-scores", "each.jsonl", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [score["name"] for score in printed["scores"]] == ["ROUGE-1", "ROUGE-2", "ROUGE-L", "ROUGE-Lsum"]
    each = [json.loads(line) for line in (tmp_path / "each.jsonl").read_text().split("\n")[:-1]]
    assert sum(one["scores"]["rouge1"] for one in each) / len(each) == pytest.approx(
        printed["scores"][0]["score"], 1e-3
    )
    assert main(["compare", "a.txt", "b.txt", "--reference", "ref.txt", "--metrics", "rougeL", "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert "rouge-score:0.1.2" in json.dumps(compared)


@each(
    "name, language",
    [
        ("a.txt", ""),
        ("a.ref", ""),
        ("a", ""),
        ("a.de", "de"),
        ("a.pt_BR.gz", "pt_BR"),
        ("a.zh-Hans", "zh-Hans"),
        ("a.v2", ""),
    ],
)
def test_only_an_ending_that_can_be_a_language_is_one(name: str, language: str) -> None:
    """The stemmer is for English, and for text of which the language is unknown."""
    assert language_of_file(name) == language
