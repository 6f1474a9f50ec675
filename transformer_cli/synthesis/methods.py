"""What is made of a block of lines: synthetic sources of target text, or a teacher's translations of source text."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.translator import Translator
from transformer_cli.evaluation.metrics import MetricSettings, Translations, sentence_scores
from transformer_cli.synthesis.filters import PairFilters, best_by
from transformer_cli.synthesis.work import Made, Pair

LogProbs = Callable[[Sequence[Pair]], list[float]]  # per token, of each (source, target)


@dataclass(frozen=True)
class BackTranslation:
    """Each line is a target, and its translation by the reverse model the source (Sennrich et al. 2016).

    `forward` gives the log-probability per token of the line, given the synthetic source; pairs below `min_score` are
    dropped.
    """

    translator: Translator
    filters: PairFilters
    forward: LogProbs | None = None
    min_score: float = 0.0

    def __call__(self, lines: Sequence[str], first_line: int, references: Sequence[str] | None = None) -> Made:
        assert references is None, "lines are their own references"
        results = self.translator.translate(lines, first_line=first_line)
        translated, dropped = _filtered(lines, [result.text for result in results], results, self)
        pairs = [(translation, line) for line, translation in translated]
        if self.forward is not None and pairs:
            scores = self.forward(pairs)
            kept = [pair for pair, score in zip(pairs, scores, strict=True) if score >= self.min_score]
            dropped += Counter({"forward score": len(pairs) - len(kept)})
            pairs = kept
        return Made(pairs, dropped)


@dataclass(frozen=True)
class Distillation:
    """Each line is a source, and its translation by the teacher the target (Kim and Rush 2016, sections 3.2 and 3.3).

    With references, that of the n-best list which is most similar to its reference by chrF.
    """

    translator: Translator
    filters: PairFilters

    def __call__(self, lines: Sequence[str], first_line: int, references: Sequence[str] | None = None) -> Made:
        results = self.translator.translate(lines, first_line=first_line)
        texts = [result.text for result in results]
        if references is not None:
            texts = [_nearest(result, one) for result, one in zip(results, references, strict=True)]
        return Made(*_filtered(lines, texts, results, self))


def _nearest(result: Translated, reference: str) -> str:
    texts = [text for text, _ in result.hypotheses]
    given = Translations(hypotheses=texts, references=[[reference] * len(texts)])
    return texts[best_by(sentence_scores("chrf", given, MetricSettings()).values)]


def _filtered(
    lines: Sequence[str],
    texts: Sequence[str],
    results: Sequence[Translated],
    method: BackTranslation | Distillation,
) -> tuple[list[Pair], Counter[str]]:
    """The pairs of a line and its translation that are kept, and how many are not."""
    tokenizers = method.translator.tokenizers
    lengths = [map(len, tokenizers.source.encode(lines)), map(len, tokenizers.target.encode(texts))]
    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    for line, text, result, *n_tokens in zip(lines, texts, results, *lengths, strict=True):
        is_unfinished = result.hit_limit or result.cut
        reason = method.filters.reason(line, text, (n_tokens[0], n_tokens[1]), is_unfinished=is_unfinished)
        if reason is None:
            pairs.append((line, text))
        else:
            dropped[reason] += 1
    return pairs, dropped
