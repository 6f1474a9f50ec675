"""F1 of brackets, against values of EVALB's own program and counts by hand."""

import pytest

from tests.support.each import each
from transformer_cli.addons.parsing.bracket_f1 import bracket_f1, bracket_f1_of_sentences
from transformer_cli.addons.parsing.trees import linearize, read_tree
from transformer_cli.errors import DataError
from transformer_cli.evaluation.metrics import MetricSettings, Translations

GOLD = [
    "(S (NP (DT The) (NN cat)) (VP (VBD saw) (NP (DT a) (NN dog)) (PP (IN with) (NP (NNS spots)))) (. .))",
    "(S (NP (NNP Tom)) (VP (VBD gave) (PRT (RP up)) (, ,) (ADVP (RB slowly))) (. .))",
    "(S (NP (NP (DT the) (NN man)) (, ,) (NP (CD 61) (NNS years)) (, ,)) (VP (VBD slept)) (. .))",
    "(S (NP (NP (PRP He))) (VP (VBD knew) (SBAR (IN that) (S (NP (PRP she)) (VP (VBD sang))))) (. .))",
]
TEST = [
    # The phrase belongs to the dog.
    "(S (NP (DT The) (NN cat)) (VP (VBD saw) (NP (NP (DT a) (NN dog)) (PP (IN with) (NP (NNS spots))))) (. .))",
    # ADVP for PRT is no error; the last constituent is missing.
    "(S (NP (NNP Tom)) (VP (VBD gave) (ADVP (RP up)) (, ,) (RB slowly)) (. .))",
    # A comma within a constituent or outside makes no difference.
    "(S (NP (NP (DT the) (NN man) (, ,)) (NP (CD 61) (NNS years))) (, ,) (VP (VBD slept)) (. .))",
    # One of two brackets with one label around the same word; another label.
    "(S (NP (PRP He)) (VP (VBD knew) (SBAR (IN that) (VP (NP (PRP she)) (VP (VBD sang))))) (. .))",
]
# evalb -p COLLINS.prm gold test, each tree within (TOP …)
RECALL, PRECISION, FMEASURE, COMPLETE = 87.50, 91.30, 89.36, 25.00


def translations(hypotheses: list[str], references: list[str]) -> Translations:
    return Translations(
        [linearize(read_tree(one)) for one in hypotheses], [[linearize(read_tree(one)) for one in references]]
    )


def test_scores_are_those_of_evalb() -> None:
    found = {one.name: round(one.value, 2) for one in bracket_f1(translations(TEST, GOLD), MetricSettings())}
    assert found == {
        "bracket F1": FMEASURE,
        "bracket precision": PRECISION,
        "bracket recall": RECALL,
        "exact trees": COMPLETE,
    }


def test_each_sentence_has_its_own_score() -> None:
    found = bracket_f1_of_sentences(translations(TEST, GOLD), MetricSettings())
    # Brackets of both, of the hypothesis and of the reference.
    counts = [(6, 7, 6), (4, 4, 5), (5, 5, 5), (6, 7, 8)]
    assert found.values == pytest.approx([200 * both / (mine + gold) for both, mine, gold in counts])


def test_a_hypothesis_with_another_number_of_words_counts() -> None:
    """EVALB would leave the sentence out."""
    reference = "(S (NP XX XX )NP (VP XX )VP . )S"
    for written, f1 in (
        ("(S (NP XX XX )NP (VP XX )VP )S", 100.0),  # the point is missing, which is no word
        ("(S (NP XX )NP (VP XX XX )VP XX )S", 100 * 2 * 1 / 6),  # as many words, of which the last is the point
        ("(S (NP XX )NP (VP XX )VP )S", 0.0),  # each of the three brackets ends at another word
        ("(S (NP XX XX )NP (VP XX XX )VP . )S", 100 * 2 * 1 / 6),  # of four words, the NP alone stands where it should
        ("", 0.0),
    ):
        found = bracket_f1(Translations([written], [[reference]]), MetricSettings())
        assert found[0].value == pytest.approx(f1), written


@each("reference", ["The cat slept.", "(S (NP XX )NP", "(S XX )S (S XX )S"])
def test_references_that_are_no_trees_are_refused(reference: str) -> None:
    with pytest.raises(DataError, match="line 2: no tree in its linear form"):
        bracket_f1(Translations(["(S XX )S"] * 2, [["(S XX )S", reference]]), MetricSettings())


def test_several_references_are_refused() -> None:
    with pytest.raises(DataError, match="Give one"):
        bracket_f1(Translations(["(S XX )S"], [["(S XX )S"]] * 2), MetricSettings())
