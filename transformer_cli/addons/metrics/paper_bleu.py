"""BLEU of tokenised text, as papers before sacrebleu report it: not comparable with the scores in metrics.py.

Two recipes, both ending in Moses' multi-bleu.perl (corpus BLEU of the tokens between blanks, no smoothing: a text
without a single matching 4-gram scores 0). The Moses steps are those of sacremoses, whose version is in the signature.

`compound_split_bleu` follows tensor2tensor's tensor2tensor/utils/get_ende_bleu.sh, the measure behind the paper's
English-German numbers: replace-unicode-punctuation.perl, tokenizer.perl -l de (which also escapes quotes and brackets)
and, on both sides, a split at hyphens inside words. The script takes its reference ready-made. The published one had
every double quotation mark, also „, turned into " (M. Popel in tensor2tensor's issue 317), while the script leaves a „
in a translation alone. So does this module: a system that writes „ loses by it, as it did there.

`tokenised_bleu` follows scripts/task1-tokenize.sh of the Multi30k corpus (lowercase.perl, normalize-punctuation.perl,
tokenizer.perl), the form of its text that most papers train on and score.
"""

import re
from collections.abc import Callable, Sequence
from importlib.metadata import version

from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from transformer_cli.evaluation.metrics import MetricSettings, Score, Translations, check_line_counts
from transformer_cli.evaluation.tokenization import suited_tokenizer

HYPHEN_IN_WORD = re.compile(r"(\S)-(\S)")
SPLIT_HYPHEN = r"\1 ##AT##-##AT## \2"
# Those that Moses has rules for; its tokens of other languages are in no paper.
MOSES_LANGUAGES = ("cs", "de", "en", "es", "fi", "fr", "hu", "it", "lv", "nl", "pl", "pt", "ro", "ru", "sv")


def tokenised_bleu_metric(translations: Translations, settings: MetricSettings) -> list[Score]:
    """Computes tokenised BLEU for languages of Moses, in a script that their tokenizer separates into words."""
    if not has_moses_tokens(translations, settings):
        return []
    return [tokenised_bleu(translations.hypotheses, translations.references, language=settings.target_lang)]


def paper_bleu_metric(translations: Translations, settings: MetricSettings) -> list[Score]:
    """Computes the paper's BLEU, for English-German."""
    is_en_de = (settings.source_lang, settings.target_lang) == ("en", "de")
    if not is_en_de or not has_moses_tokens(translations, settings):
        return []
    return [compound_split_bleu(translations.hypotheses, translations.references)]


def has_moses_tokens(translations: Translations, settings: MetricSettings) -> bool:
    is_foreign_script = suited_tokenizer(translations.references, settings.tokens) is not None
    return settings.target_lang in MOSES_LANGUAGES and not is_foreign_script


def compound_split_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """The paper's BLEU for translations into German: cased, tokenised, split at hyphens.

    Raises DataError when a reference has another number of lines, or when there is none.
    """
    tokenizer, normalizer = MosesTokenizer("de"), MosesPunctNormalizer("de")

    def prepare(line: str) -> str:
        tokens = tokenizer.tokenize(normalizer.replace_unicode_punct(line), return_str=True)
        return split_compounds(tokens)

    def prepare_reference(line: str) -> str:
        return prepare(line.replace("„", '"'))

    signature = "case:mixed|tok:moses-de|compounds:split|smooth:none|recipe:get_ende_bleu.sh"
    return _multi_bleu("paper BLEU", signature, hypotheses, references, prepare, prepare_reference)


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, language: str) -> Score:
    """BLEU as Multi30k papers report it: lower-cased, punctuation normalised, tokenised for `language`.

    Raises DataError when a reference has another number of lines, or when there is none.
    """
    prepare = lowercased_tokens(language)
    signature = f"case:lc|tok:moses-{language}|punct:normalised|smooth:none|recipe:task1-tokenize.sh"
    return _multi_bleu("tokenised BLEU", signature, hypotheses, references, prepare, prepare)


def lowercased_tokens(language: str, *, escape: bool = True) -> Callable[[str], str]:
    """Multi30k's own preparation of a line: lower case, plain punctuation, tokens between blanks.

    `escape` writes quotes, brackets and & as Moses does (`&quot;`).
    """
    tokenizer, normalizer = MosesTokenizer(language), MosesPunctNormalizer(language, perl_parity=True)

    def prepare(line: str) -> str:
        tokens: str = tokenizer.tokenize(normalizer.normalize(line.lower()), return_str=True, escape=escape)
        return tokens

    return prepare


def split_compounds(tokens: str) -> str:
    """Make three tokens of `rich-text`; matches do not overlap, so `a-b-c` splits at its first hyphen only."""
    return HYPHEN_IN_WORD.sub(SPLIT_HYPHEN, tokens)


def _multi_bleu(
    name: str,
    signature: str,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    prepare: Callable[[str], str],
    prepare_reference: Callable[[str], str],
) -> Score:
    check_line_counts(hypotheses, references)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    result = metric.corpus_score(
        [prepare(line) for line in hypotheses],
        [[prepare_reference(line) for line in reference] for reference in references],
    )
    made_by = f"nrefs:{len(references)}|{signature}|sacremoses:{version('sacremoses')}|comparable-with-sacrebleu:no"
    return Score(name, float(result.score), made_by)
