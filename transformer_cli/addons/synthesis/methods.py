"""The outputs for a block of lines: synthetic sources of target text, or a teacher's translations of source text."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformer_cli.addons.synthesis.filters import PairFilters
from transformer_cli.addons.synthesis.keys import Choose
from transformer_cli.addons.synthesis.work import Made
from transformer_cli.config.tags import language_of
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.tags import split_tags
from transformer_cli.decoding.results import Candidate, Translated
from transformer_cli.decoding.translator import Translator
from transformer_cli.evaluation.metrics import MetricSettings, Translations, sentence_scores

REPEATED = "repeated"
OTHER_LANGUAGE = "tag of another language"

LogProbs = Callable[[Sequence[Pair]], list[float]]  # per token, of each (source, target)


@dataclass(frozen=True)
class Synthesis:
    """Back-translation or sequence-level knowledge distillation.

    With `is_reverse` each line is a target, and its translation by the reverse model the source (Sennrich et al. 2016);
    otherwise each line is a source, and its translation by the teacher the target (Kim and Rush 2016, sections 3.2
    and 3.3). A tag at the beginning of a line stays on a source, and is left out of a target. `forward` gives the
    log-probability per token of the target, given the source; pairs below `min_score` are dropped.
    """

    translator: Translator
    filters: PairFilters
    is_reverse: bool
    language: str  # of the translations
    choose: Choose = Choose.score
    forward: LogProbs | None = None
    min_score: float = 0.0

    def __call__(self, lines: Sequence[str], first_line: int, references: Sequence[str] | None = None) -> Made:
        """Every translation that is chosen is a pair, or is counted under the reason for which it is dropped."""
        results = self.translator.translate(lines, first_line=first_line)
        chosen = [self._chosen(result, i, references) for i, result in enumerate(results)]
        rows = [
            (line, candidate, result.cut)
            for line, result, candidates in zip(lines, results, chosen, strict=True)
            for candidate in candidates
        ]
        n_repeated = sum(len(result.candidates) for result in results) - len(rows) if self.choose is Choose.all else 0
        pairs, dropped = self._filtered(rows)
        dropped += Counter({REPEATED: n_repeated})
        if self.forward is not None and pairs:
            scores = self.forward(pairs)
            kept = [pair for pair, score in zip(pairs, scores, strict=True) if score >= self.min_score]
            dropped += Counter({"forward score": len(pairs) - len(kept)})
            pairs = kept
        return Made(len(lines), pairs, dropped)

    def _chosen(self, result: Translated, index: int, references: Sequence[str] | None) -> list[Candidate]:
        """The candidates of a line's n-best list, best first, duplicates removed."""
        if self.choose is Choose.score:
            return result.candidates[:1]
        if self.choose is Choose.all:
            distinct: dict[str, Candidate] = {}
            for candidate in result.candidates:  # other tokens may be the same text
                distinct.setdefault(candidate.text, candidate)
            return list(distinct.values())
        assert references is not None
        texts = [candidate.text for candidate in result.candidates]
        given = Translations(hypotheses=texts, references=[[references[index]] * len(texts)])
        scores = sentence_scores("chrf", given, MetricSettings()).values
        return [result.candidates[max(range(len(scores)), key=lambda i: scores[i])]]  # the first of equal ones

    def _filtered(self, rows: Sequence[tuple[str, Candidate, bool]]) -> tuple[list[Pair], Counter[str]]:
        """The pairs that are kept, and how many are not."""
        tokenizers, target_lang = self.translator.tokenizers, self.translator.engine.text.target_lang
        split = [split_tags(line, tokenizers.source.tags) for line, _, _ in rows]
        bodies, texts = [body for _, body in split], [candidate.text for _, candidate, _ in rows]
        lengths = [map(len, tokenizers.source.encode(bodies)), map(len, tokenizers.target.encode(texts))]
        pairs: list[Pair] = []
        dropped: Counter[str] = Counter()
        for (line, candidate, is_cut), (tags, body), *n_tokens in zip(rows, split, *lengths, strict=True):
            is_unfinished = candidate.hit_limit or is_cut
            reason = self.filters.reason(body, candidate.text, (n_tokens[0], n_tokens[1]), is_unfinished=is_unfinished)
            if tags and language_of(tags, target_lang) != self.language:
                reason = OTHER_LANGUAGE
            if reason is None:
                pairs.append((candidate.text, body) if self.is_reverse else (line, candidate.text))
            else:
                dropped[reason] += 1
        return pairs, dropped
