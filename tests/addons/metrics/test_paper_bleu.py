import math
import random
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.support.each import each
from transformer_cli.addons.metrics.paper_bleu import (
    compound_split_bleu,
    lowercased_tokens,
    split_compounds,
    tokenised_bleu,
)
from transformer_cli.errors import DataError
from transformer_cli.evaluation.metrics import bleu

FIVE_TOKENS_ONE_WRONG = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)


def multi_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """What multi-bleu.perl computes, written from its definition: clipped n-grams, nearest reference length."""
    matches, totals = [0] * 4, [0] * 4
    hypothesis_length = reference_length = 0
    for words, *others in zip(*([line.split() for line in lines] for lines in (hypotheses, *references)), strict=True):
        hypothesis_length += len(words)
        reference_length += min((abs(len(other) - len(words)), len(other)) for other in others)[1]
        for n in range(1, 5):
            grams, *allowed = (
                Counter(tuple(line[i : i + n]) for i in range(len(line) - n + 1)) for line in (words, *others)
            )
            matches[n - 1] += sum(min(count, max(a[gram] for a in allowed)) for gram, count in grams.items())
            totals[n - 1] += sum(grams.values())
    if 0 in matches:
        return 0.0
    brevity = min(1.0, math.exp(1 - reference_length / hypothesis_length))
    return 100 * brevity * math.prod(m / t for m, t in zip(matches, totals, strict=True)) ** 0.25


@each(
    "tokens, split",
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),  # the example of get_ende_bleu.sh
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # b is used up by the first match
        ("Ein- und Ausgang - oder", "Ein- und Ausgang - oder"),
        ("-1 --", "-1 --"),
        ("x---y", "x ##AT##-##AT## --y"),
        ("&quot;-Ruf", "&quot; ##AT##-##AT## Ruf"),
    ],
)
def test_hyphens_between_characters_become_tokens(tokens: str, split: str) -> None:
    assert split_compounds(tokens) == split


def test_a_compound_counts_as_three_tokens() -> None:
    assert compound_split_bleu(["das U-Boot da"], [["das U-Boot hier"]]).value == pytest.approx(FIVE_TOKENS_ONE_WRONG)


def test_punctuation_is_set_apart_before_counting() -> None:
    assert compound_split_bleu(["Wir gehen nun, ja"], [["Wir gehen nun, nein"]]).value == pytest.approx(
        FIVE_TOKENS_ONE_WRONG
    )


def test_case_counts_in_the_papers_measure() -> None:
    assert compound_split_bleu(["das ist ein Test"], [["Das Ist Ein TEST"]]).value == 0


def test_a_text_without_a_matching_four_gram_scores_zero_where_sacrebleu_smooths() -> None:
    hypotheses, references = ["eins zwei drei fünf sechs"], [["eins zwei drei vier sechs"]]
    assert compound_split_bleu(hypotheses, references).value == 0
    assert bleu(hypotheses, references).value > 1


def test_an_empty_translation_scores_zero() -> None:
    assert compound_split_bleu([""], [["Das ist ein Test"]]).value == 0
    assert tokenised_bleu([""], [["Das ist ein Test"]], language="de").value == 0


def test_quotation_marks_are_made_plain_as_the_script_and_its_reference_have_them() -> None:
    plain = ['Er sagte: "Gut, gehen wir."']
    assert compound_split_bleu(plain, [["Er sagte: „Gut, gehen wir.“"]]).value == pytest.approx(100)
    assert compound_split_bleu(["Er sagte: ”Gut, gehen wir.“"], [plain]).value == pytest.approx(100)
    # the script leaves a low quotation mark in a translation: one of nine tokens is wrong
    wrong_third = (8 / 9 * 6 / 8 * 4 / 7 * 3 / 6) ** (1 / 4)
    assert compound_split_bleu(["Er sagt „Gut, gehen wir.“"], [['Er sagt "Gut, gehen wir."']]).value == pytest.approx(
        100 * wrong_third
    )


def test_escaped_characters_change_nothing() -> None:
    line = ["A & B | [C] <D> 'E' \"F\" – #G"]
    assert compound_split_bleu(line, [line]).value == pytest.approx(100)


def test_the_nearest_reference_length_counts_and_the_shorter_of_two() -> None:
    line = ["a b c d"]
    near, far = ["a b c d e"], ["a b c d e f g h"]
    assert compound_split_bleu(line, [far, near]).value == pytest.approx(100 * math.exp(1 - 5 / 4))
    longer_by_two, shorter_by_two = ["a b c d e f"], ["a b"]
    assert compound_split_bleu(line, [longer_by_two, shorter_by_two]).value == pytest.approx(100)


@each("n_references", [1, 3])
@each("seed", range(5))
def test_both_measures_agree_with_multi_bleu_written_from_its_definition(seed: int, n_references: int) -> None:
    chance = random.Random(seed)
    streams = [
        [" ".join(chance.choices("abc", k=chance.randint(1, 12))) for _ in range(20)] for _ in range(1 + n_references)
    ]
    expected = multi_bleu(streams[0], streams[1:])
    assert expected > 0
    assert compound_split_bleu(streams[0], streams[1:]).value == pytest.approx(expected)
    assert tokenised_bleu(streams[0], streams[1:], language="en").value == pytest.approx(expected)


def test_tokenised_bleu_ignores_case_and_kinds_of_quotation_marks() -> None:
    hypothesis, reference = ["EIN MANN SAGT „ÄH“ ZU IHR."], [['Ein Mann sagt "äh" zu ihr.']]
    assert tokenised_bleu(hypothesis, reference, language="de").value == pytest.approx(100)


@pytest.mark.parametrize(
    ("language", "n_tokens"),
    [("fr", 5), ("de", 6)],  # oui l' homme est ici; oui l ' homme est ici
)
def test_tokenised_bleu_knows_the_languages_apostrophe(language: str, n_tokens: int) -> None:
    value = tokenised_bleu(["oui l'homme est ici"], [["oui l'homme est là"]], language=language).value
    by_hand = math.prod((n_tokens - n) / (n_tokens - n + 1) for n in range(1, 5)) ** (1 / 4)
    assert value == pytest.approx(100 * by_hand)


def test_multi30k_references_have_as_many_tokens_as_published_scores_print(shared_data: Path) -> None:
    text = (shared_data / "multi30k" / "test_2016_flickr.de").read_bytes().decode()
    prepare = lowercased_tokens("de")
    # "syslen=12096, reflen=12103" beside BLEU4 = 41.02 in README-baseline.md of LividWo/Revisit-MMT
    assert sum(len(prepare(line).split()) for line in text.removesuffix("\n").split("\n")) == 12103


def test_names_and_signatures_keep_these_scores_apart_from_sacrebleus() -> None:
    line = ["Das ist ein Test"]
    paper, tokenised = compound_split_bleu(line, [line, line]), tokenised_bleu(line, [line], language="de")
    moses = version("sacremoses")
    assert (paper.name, paper.signature) == (
        "paper BLEU",
        "nrefs:2|case:mixed|tok:moses-de|compounds:split|smooth:none|recipe:get_ende_bleu.sh"
        f"|sacremoses:{moses}|comparable-with-sacrebleu:no",
    )
    assert (tokenised.name, tokenised.signature) == (
        "tokenised BLEU",
        "nrefs:1|case:lc|tok:moses-de|punct:normalised|smooth:none|recipe:task1-tokenize.sh"
        f"|sacremoses:{moses}|comparable-with-sacrebleu:no",
    )


def test_unequal_line_counts_are_refused_here_too() -> None:
    with pytest.raises(DataError, match="reference 1: 1 lines for 2 translations"):
        compound_split_bleu(["a", "b"], [["a"]])
    with pytest.raises(DataError, match="reference 1: 3 lines for 2 translations"):
        tokenised_bleu(["a", "b"], [["a", "b", "c"]], language="de")
