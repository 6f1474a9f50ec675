"""All the scores of a translation: sacrebleu's, then those of older papers where they mean something."""

from collections.abc import Sequence

from transformer_cli.evaluation.metrics import Score, score
from transformer_cli.evaluation.paper_bleu import compound_split_bleu, tokenised_bleu

# Those that Moses has rules for; for others its tokens would be nobody's.
MOSES_LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "hu", "it", "lv", "nl", "pl", "pt", "ro", "ru", "sv")


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, source_lang: str, target_lang: str
) -> list[Score]:
    """sacrebleu's three, then the tokenised BLEU of papers; that of the paper itself for English-German.

    Raises DataError when a reference has another number of lines, or when there is none.
    """
    scores = score(hypotheses, references)
    if target_lang in MOSES_LANGUAGES:
        scores.append(tokenised_bleu(hypotheses, references, language=target_lang))
    if (source_lang, target_lang) == ("en", "de"):
        scores.append(compound_split_bleu(hypotheses, references))
    return scores
