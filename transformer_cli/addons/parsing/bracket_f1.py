"""F1 of brackets, as EVALB computes it with the parameters of Collins (COLLINS.prm).

A bracket is a constituent's label with the first and last word that it holds. Tags of words are no brackets, marks of
punctuation no words, and ADVP and PRT one label. Of all brackets of a corpus, precision is the share of those of the
hypotheses that the references have, recall the reverse, and F1 their harmonic mean (Black et al. 1991; Collins 1997).
EVALB leaves out a sentence whose hypothesis has another number of words. Here it counts, with its words numbered as
they are written, and what is no tree counts as the tree that `read_linear` makes of it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from transformer_cli.addons.parsing.trees import PUNCTUATION, Constituent, TaggedWord, read_linear
from transformer_cli.errors import DataError
from transformer_cli.evaluation.metrics import (
    METRICS,
    SENTENCE_METRICS,
    MetricSettings,
    Score,
    SentenceScores,
    Translations,
    check_line_counts,
)

Bracket = tuple[str, int, int]  # label, first word, word after the last
_SIGNATURE = "brackets:labelled|punctuation:no|prm:collins"


def brackets(tree: Constituent) -> Counter[Bracket]:
    found = Counter[Bracket]()
    _collect(tree, 0, found)
    return found


def _collect(tree: Constituent, start: int, found: Counter[Bracket]) -> int:
    """Add the brackets of `tree`, whose first word has the number `start`; returns that of the word behind it."""
    end = start
    for part in tree.parts:
        if isinstance(part, TaggedWord):
            end += part.tag not in PUNCTUATION
        else:
            end = _collect(part, end, found)
    if end > start:  # without punctuation it may hold nothing
        found["ADVP" if tree.label == "PRT" else tree.label, start, end] += 1
    return end


def _counts(hypothesis: str, reference: str, line: int) -> tuple[int, int, int]:
    """Brackets that both have, those of the hypothesis and of the reference. Raises DataError."""
    gold, is_repaired = read_linear(reference)
    if is_repaired:
        raise DataError(
            f"the references: line {line}: no tree in its linear form, as `(S (NP XX )NP (VP XX )VP )S`. Give those of"
            " a treebank"
        )
    found, _ = read_linear(hypothesis)
    tags = [word.tag for word in gold.words()]
    if sum(1 for _ in found.words()) == len(tags):
        found = _retagged(found, iter(tags))
    predicted, wanted = brackets(found), brackets(gold)
    return (predicted & wanted).total(), predicted.total(), wanted.total()


def _retagged(tree: Constituent, tags: Iterator[str]) -> Constituent:
    """The tree with the tags of the reference: which words are punctuation is given, not predicted."""
    parts = [
        TaggedWord(next(tags), part.text) if isinstance(part, TaggedWord) else _retagged(part, tags)
        for part in tree.parts
    ]
    return Constituent(tree.label, tuple(parts))


def _f1(both: int, predicted: int, wanted: int) -> float:
    return 200 * both / (predicted + wanted) if predicted + wanted else 100.0


@METRICS.register("bracket_f1")
def bracket_f1(translations: Translations, settings: MetricSettings) -> list[Score]:
    """F1, precision, recall and the share of trees without an error, in percent. Raises DataError for no trees."""
    of_lines = _of_lines(translations)
    both, predicted, wanted = (sum(column) for column in zip(*of_lines, strict=True))
    exact = sum(counts[0] == counts[1] == counts[2] for counts in of_lines)
    return [
        Score("bracket F1", _f1(both, predicted, wanted), _SIGNATURE),
        Score("bracket precision", 100 * both / predicted if predicted else 0.0, _SIGNATURE),
        Score("bracket recall", 100 * both / wanted if wanted else 0.0, _SIGNATURE),
        Score("exact trees", 100 * exact / len(of_lines), _SIGNATURE),
    ]


@SENTENCE_METRICS.register("bracket_f1")
def bracket_f1_of_sentences(translations: Translations, settings: MetricSettings) -> SentenceScores:
    """F1 of each line by itself. Raises DataError for no trees."""
    return SentenceScores("bracket F1", [_f1(*counts) for counts in _of_lines(translations)], _SIGNATURE)


def _of_lines(translations: Translations) -> Sequence[tuple[int, int, int]]:
    check_line_counts(translations.hypotheses, translations.references)
    if len(translations.references) > 1:
        raise DataError("bracket_f1: a sentence has one tree, and there are several references. Give one")
    pairs = zip(translations.hypotheses, translations.references[0], strict=True)
    return [_counts(hypothesis, reference, line) for line, (hypothesis, reference) in enumerate(pairs, 1)]
