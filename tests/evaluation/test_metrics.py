import json
import logging
import math
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import slow
from transformer_cli.errors import DataError
from transformer_cli.evaluation.metrics import METRICS, MetricSettings, Score, Translations, bleu
from transformer_cli.evaluation.report import as_dict, text_lines
from transformer_cli.evaluation.tokenization import PLAIN as PLAIN_TOKENS
from transformer_cli.evaluation.tokenization import Tokenization
from transformer_cli.evaluation.translation import TOKENISED_LINES, evaluate_translations
from transformer_cli.logs import LOGGER

PLAIN = (
    ["The cat sat on the mat.", "It was very comfortable.", "He didn't buy 1,000 apples."],
    [["The cat is sitting on the mat.", "It was quite comfortable.", "He did not buy 1,000 apples."]],
)
AWKWARD = (
    [
        "  leading and trailing\u00a0 ",
        "",
        "Ein „Zitat“ – und\u2028ein Rest\x85",
        "TAB\there &amp; <b>x</b>\r",
        "日本語。",
    ],
    [["leading and trailing", "not empty", 'Ein "Zitat" - und ein Rest', "Tab here & <b>x</b>", "日本語 です。  "]],
)
TWO_REFERENCES = (PLAIN[0], [*PLAIN[1], ["A cat sat on a mat.", "It was very cosy.", "He bought no apples."]])
NOTHING_RIGHT = (["x y z", "v w"], [["a b c d e", "f g"]])


def score(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokens: Tokenization = PLAIN_TOKENS
) -> list[Score]:
    """BLEU, chrF2 and TER."""
    translations, settings = Translations(hypotheses, references), MetricSettings(tokens)
    return evaluate_translations(translations, settings, ["bleu", "chrf", "ter"], test="test").scores


def sacrebleu_command(
    folder: Path, hypotheses: Sequence[str], references: Sequence[Sequence[str]], *options: str
) -> list[dict[str, Any]]:
    """What the command prints about the saved files, with twelve decimals."""
    paths = []
    for name, lines in (("hypotheses", hypotheses), *((f"reference{k}", lines) for k, lines in enumerate(references))):
        paths.append(folder / name)
        paths[-1].write_bytes("".join(f"{line}\n" for line in lines).encode())
    command = [sys.executable, "-m", "sacrebleu", *paths[1:], "-i", paths[0], "-w", "12", *options]
    environment = {key: value for key, value in os.environ.items() if key != "SACREBLEU_FORMAT"}
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, encoding="utf-8").stdout
    answer = json.loads(printed)
    return answer if isinstance(answer, list) else [answer]


def assert_equal_to_command(scores: Sequence[Score], printed: Sequence[dict[str, Any]]) -> None:
    ours = [(score.name, float(f"{score.value:.12f}"), score.signature) for score in scores]
    assert ours == [(entry["name"], entry["score"], entry["signature"]) for entry in printed]


def noised(lines: Sequence[str], *, seed: int) -> list[str]:
    """The lines with words lost, doubled and moved: hypotheses of middling quality."""
    chance = random.Random(seed)
    out = []
    for line in lines:
        words = [word for word in line.split(" ") for _ in range(chance.choices((0, 1, 2), (10, 85, 5))[0])]
        if len(words) > 2 and chance.random() < 0.5:
            words.insert(chance.randrange(len(words)), words.pop())
        out.append(" ".join(words))
    return out


@pytest.mark.parametrize("corpus", [PLAIN, AWKWARD, TWO_REFERENCES, NOTHING_RIGHT])
def test_scores_equal_sacrebleus_own_command_to_the_last_digit(
    corpus: tuple[list[str], list[list[str]]], tmp_path: Path
) -> None:
    hypotheses, references = corpus
    printed = sacrebleu_command(tmp_path, hypotheses, references, "-m", "bleu", "chrf", "ter")
    assert_equal_to_command(score(hypotheses, references), printed)
    assert_equal_to_command([bleu(hypotheses, references)], printed[:1])


@pytest.mark.parametrize("corpus", [PLAIN, AWKWARD, TWO_REFERENCES])
def test_chrf_with_words_equals_sacrebleus_own_command(
    corpus: tuple[list[str], list[list[str]]], tmp_path: Path
) -> None:
    hypotheses, references = corpus
    printed = sacrebleu_command(tmp_path, hypotheses, references, "-m", "chrf", "--chrf-word-order", "2")
    translations = Translations(hypotheses, references)
    assert_equal_to_command(METRICS["chrf++"](translations, MetricSettings()), printed)


@pytest.mark.parametrize("language", ["de", slow("fr")])
def test_scores_of_a_real_test_set_equal_sacrebleus_own_command(
    language: str, shared_data: Path, tmp_path: Path
) -> None:
    text = (shared_data / "multi30k" / f"test_2016_flickr.{language}").read_bytes().decode()
    reference = text.removesuffix("\n").split("\n")
    hypotheses = noised(reference, seed=1)
    printed = sacrebleu_command(tmp_path, hypotheses, [reference], "-m", "bleu", "chrf", "ter")
    assert_equal_to_command(score(hypotheses, [reference]), printed)


def test_bleu_of_one_wrong_word_is_the_hand_computed_mean() -> None:
    by_hand = (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)  # matching 1-, 2-, 3- and 4-grams
    assert bleu(["a b c d x"], [["a b c d e"]]).value == pytest.approx(100 * by_hand)


def test_bleu_of_a_short_translation_is_the_brevity_penalty() -> None:
    assert bleu(["a b c d"], [["a b c d e"]]).value == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_chrf_and_ter_of_small_lines_are_the_hand_computed_ones() -> None:
    _, chrf, _ = score(["ab"], [["ac"]])
    assert chrf.value == pytest.approx(100 * (1 / 2 + 0 / 1) / 2)  # half of the letters, none of the letter pairs
    _, _, ter = score(["a b c d x"], [["a b c d e"]])
    assert ter.value == pytest.approx(100 * 1 / 5)  # one substitution in five reference words


def test_case_counts() -> None:
    assert bleu(["DAS IST EIN TEST"], [["das ist ein Test"]]).value < 1


@pytest.mark.parametrize("measure", [score, bleu])
def test_unequal_line_counts_are_refused_with_both_counts(measure: Any) -> None:
    with pytest.raises(DataError) as caught:
        measure(["a", "b", "c"], [["a", "b", "c"], ["a", "b"]])
    assert str(caught.value) == (
        "reference 2: 2 lines for 3 translations, so nothing is scored."
        " Make line n of one belong to line n of the other"
    )
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), ([], [[]]), (["a"], [])])
def test_an_empty_test_set_is_refused(hypotheses: list[str], references: list[list[str]]) -> None:
    with pytest.raises(DataError, match=r"nothing to score: \d translations and \d references. Name a test set"):
        score(hypotheses, references)


def test_tokenised_text_is_warned_about_in_our_own_words(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    LOGGER.addHandler(caplog.handler)  # the logger does not hand on what the command line shows itself
    try:
        with caplog.at_level(logging.WARNING):
            score(["fine ."] * TOKENISED_LINES, [["fine ."] * TOKENISED_LINES])
    finally:
        LOGGER.removeHandler(caplog.handler)
    assert {record.getMessage() for record in caplog.records} == {
        "100 of 100 translations end in ' .' as tokenised text does, which changes BLEU, chrF and TER."
        " Compare these scores only with scores of text in the same form"
    }
    assert capfd.readouterr().out == ""


def test_plain_text_is_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    LOGGER.addHandler(caplog.handler)
    try:
        score(["fine."] * TOKENISED_LINES, [["fine."] * TOKENISED_LINES])
    finally:
        LOGGER.removeHandler(caplog.handler)
    assert caplog.records == []


def test_the_text_report_stands_in_columns_with_every_signature() -> None:
    lines = text_lines([Score("BLEU", 41.2345, "nrefs:1|case:mixed"), Score("chrF2", 100.0, "nrefs:1|nc:6")])
    assert lines == ["BLEU    41.23  nrefs:1|case:mixed", "chrF2  100.00  nrefs:1|nc:6"]
    assert text_lines([]) == []


def test_the_json_report_keeps_every_digit_and_the_facts_it_was_given() -> None:
    scores = score(*PLAIN)
    report = json.loads(json.dumps(as_dict(scores, test="multi30k", lines=3)))
    assert (report["test"], report["lines"]) == ("multi30k", 3)
    assert [
        Score(entry["name"], entry["score"], entry["signature"], entry["higher_is_better"])
        for entry in report["scores"]
    ] == scores


def test_following_a_training_run_never_loads_the_moses_tables() -> None:
    code = "import sys, transformer_cli.evaluation.metrics; sys.exit('sacremoses' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
