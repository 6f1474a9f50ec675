"""BLEU, chrF and TER as sacrebleu's own command computes them, each with the signature that made it.

References come as streams: `references[k][i]` is the k-th reference translation of line i.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from transformer_cli.errors import DataError
from transformer_cli.evaluation.tokenization import PLAIN, Tokenization
from transformer_cli.logs import LOGGER

TOKENISED_LINES = 100  # sacrebleu, too, calls a text tokenised from this many lines that end in " ."


@dataclass(frozen=True)
class Score:
    """A number in percent, and how it was made."""

    name: str
    value: float
    signature: str


def score(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokens: Tokenization = PLAIN) -> list[Score]:
    """BLEU (cased), chrF2 and TER, with the names, values and signatures of `sacrebleu -m bleu chrf ter`.

    What `tokens` does not have is left out. Raises DataError when a reference has another number of lines, or when
    there is none.
    """
    check_line_counts(hypotheses, references)
    n_tokenised = sum(line.rstrip().endswith(" .") for line in hypotheses)
    if n_tokenised >= TOKENISED_LINES:
        LOGGER.warning(
            "%d of %d translations end in ' .' as tokenised text does, which changes BLEU, chrF and TER."
            " Compare these scores only with scores of text in the same form",
            n_tokenised,
            len(hypotheses),
        )
    metrics: list[Metric] = [] if tokens.missing else [_bleu_metric(tokens)]
    metrics.append(CHRF())
    if tokens.ter:
        # What sacrebleu has for Han characters works on normalised text only.
        is_asian = tokens.ter == "asian"
        metrics.append(TER(normalized=is_asian, asian_support=is_asian))
    return [_score(metric, hypotheses, references) for metric in metrics]


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokens: Tokenization = PLAIN) -> Score:
    """BLEU alone (cased): quick enough to follow a training run with."""
    check_line_counts(hypotheses, references)
    return _score(_bleu_metric(tokens), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    """chrF2 alone, which asks for no tokens."""
    check_line_counts(hypotheses, references)
    return _score(CHRF(), hypotheses, references)


def check_line_counts(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise DataError unless there are lines to score and every reference has as many."""
    if not hypotheses or not references:
        raise DataError(
            f"nothing to score: {len(hypotheses)} translations and {len(references)} references."
            " Name a test set with at least one line"
        )
    for number, reference in enumerate(references, start=1):
        if len(reference) != len(hypotheses):
            raise DataError(
                f"reference {number}: {len(reference)} lines for {len(hypotheses)} translations, so nothing is scored."
                " Make line n of one belong to line n of the other"
            )


def _bleu_metric(tokens: Tokenization) -> BLEU:
    # `force` only silences sacrebleu's advice on tokenised text, which speaks of its own options; ours is in score().
    return BLEU(tokenize=tokens.bleu, force=True)


def _score(metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
    result = metric.corpus_score(hypotheses, references)
    return Score(result.name, float(result.score), metric.get_signature().format())
