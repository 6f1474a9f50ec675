"""ROUGE (Lin 2004), the metric of summaries, as the package rouge-score computes it: F1 in percent, the mean of lines.

With several references a line has the best of its scores. rougeLsum is the longest common subsequence sentence by
sentence, where rougeL takes a line as one.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from typing import Any

from transformer_cli.data.sentences import split_sentences
from transformer_cli.evaluation.metrics import (
    MetricSettings,
    MetricUnavailable,
    Score,
    SentenceScores,
    Translations,
    check_line_counts,
)
from transformer_cli.extras import imported

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
LATIN_SHARE = 0.5  # of the letters of a reference, those from a to z; all others end a word for rouge-score


def rouge_of_sentences(translations: Translations, settings: MetricSettings, *, name: str) -> SentenceScores:
    """The F1 of each line, in percent.

    Raises EnvironmentFault without rouge-score, MetricUnavailable for references in another script than it reads.
    """
    check_line_counts(translations.hypotheses, translations.references)
    label = name.replace("rouge", "ROUGE-")
    _check_script(label, translations)
    stems = settings.target_lang in ("en", "")  # Porter's stemmer is for English; unknown: as usual for summaries
    scorer = _scorer(name, stem=stems)
    prepared: Callable[[str], str] = str
    if name == "rougeLsum":  # which takes a line feed for the end of a sentence
        prepared = partial(_in_sentences, language=settings.target_lang)
    values = [
        100 * float(scorer.score_multi([prepared(one) for one in references], prepared(hypothesis))[name].fmeasure)
        for hypothesis, *references in zip(translations.hypotheses, *translations.references, strict=True)
    ]
    stem = "yes" if stems else "no"
    split = "|sentences:tfm" if name == "rougeLsum" else ""
    signature = f"nrefs:{len(translations.references)}|use_stemmer:{stem}{split}|rouge-score:{version('rouge-score')}"
    return SentenceScores(label, values, signature)


def rouge_scores(translations: Translations, settings: MetricSettings, *, name: str) -> list[Score]:
    """The mean of the lines. Raises what `rouge_of_sentences` does."""
    scores = rouge_of_sentences(translations, settings, name=name)
    return [Score(scores.name, sum(scores.values) / len(scores.values), scores.signature)]


def require_rouge(name: str) -> None:
    """Raise EnvironmentFault unless rouge-score, which the metric `name` needs, is installed."""
    imported("rouge_score", needs=f"metrics={name}")


@cache
def _scorer(name: str, *, stem: bool) -> Any:
    return imported("rouge_score.rouge_scorer", needs=f"metrics={name}").RougeScorer([name], use_stemmer=stem)


def _in_sentences(line: str, *, language: str) -> str:
    return "\n".join(split_sentences(line, language))


def _check_script(label: str, translations: Translations) -> None:
    letters = [letter for reference in translations.references for line in reference for letter in line.lower()]
    n_letters = sum(letter.isalpha() for letter in letters)
    if sum("a" <= letter <= "z" for letter in letters) < LATIN_SHARE * n_letters:
        raise MetricUnavailable(label, "rouge-score reads the letters a to z alone, and the references have others")
