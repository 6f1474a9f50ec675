"""All the scores of a translation: sacrebleu's, then those of older papers where they mean something."""

from collections.abc import Sequence
from dataclasses import dataclass

from transformer_cli.evaluation.metrics import Score, score
from transformer_cli.evaluation.paper_bleu import compound_split_bleu, tokenised_bleu
from transformer_cli.evaluation.tokenization import Tokenization, warn_of_script

# Those that Moses has rules for; for others its tokens would be nobody's.
MOSES_LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "hu", "it", "lv", "nl", "pl", "pt", "ro", "ru", "sv")


@dataclass(frozen=True)
class TranslationReport:
    scores: list[Score]
    missing: dict[str, str]  # the scores that there should be and are not, and why


def translation_report(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokens: Tokenization,
    *,
    source_lang: str,
    target_lang: str,
    test: str,
) -> TranslationReport:
    """sacrebleu's three, then the tokenised BLEU of papers; that of the paper itself for English-German.

    `test` is what a warning calls the references. Raises DataError when a reference has another number of lines, or
    when there is none.
    """
    scores, missing = score(hypotheses, references, tokens), {}
    if tokens.missing:
        missing["BLEU"] = tokens.missing
    if not tokens.ter:
        missing["TER"] = f"counts words, and {target_lang} is written without blanks between them"
    is_foreign = warn_of_script(references, tokens, where=test, key="--tokenize ")
    if target_lang in MOSES_LANGUAGES and not is_foreign:
        scores.append(tokenised_bleu(hypotheses, references, language=target_lang))
        if (source_lang, target_lang) == ("en", "de"):
            scores.append(compound_split_bleu(hypotheses, references))
    return TranslationReport(scores, missing)
