"""Whether a required term is the translation of its source phrase, judged by cross-attention.

Shapes: S source tokens and T target tokens, both with their EOS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from transformer_cli.config.decode import TermForms
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.terminology import Span, Term, occurrences, word_spans


@dataclass(frozen=True)
class AlignedTranslation:
    """A translation by its ids without EOS, and the source token that each of its tokens attends to."""

    ids: Sequence[int]
    attention_TS: Tensor | None


class Placement:
    """Compares translations of one source with one that was found without terms."""

    def __init__(
        self,
        source_ids: Sequence[int],
        tokenizers: Tokenizers,
        plain: AlignedTranslation,
        forms: TermForms = TermForms.ending,
    ) -> None:
        self.target, self.forms = tokenizers.target, forms
        self.source_text = tokenizers.source.decode(source_ids)
        self.source_words = [span for span in word_spans(self.source_text) if _has_letters(self.source_text, span)]
        self.source_tokens = token_spans(source_ids, tokenizers.source)
        self.plain = self._attended(plain)

    def misplaced(self, terms: Sequence[Term], found: AlignedTranslation) -> tuple[Term, ...]:
        """The terms that translate another source phrase, or that stand beside another translation of their own.

        A term that is not in the translation is not one of them.
        """
        attended = self._attended(found)
        return tuple(term for term in terms if self._is_misplaced(term, attended))

    def _attended(self, translation: AlignedTranslation) -> "_Attended":
        assert translation.attention_TS is not None
        text, tokens = self.target.decode(translation.ids), token_spans(translation.ids, self.target)
        return _Attended(text, word_spans(text), tokens, translation.attention_TS.tolist())

    def _is_misplaced(self, term: Term, found: "_Attended") -> bool:
        sources = occurrences(self.source_text, term.source, any_case=term.source == term.source.lower())
        places = term.places(found.text, self.forms)
        if not places or not sources:
            return False
        if len(places) > len(sources) and len(places) > len(term.places(self.plain.text, self.forms)):
            return True  # it occurs more often than in the source
        if not all(self._comes_from(place, sources, found) for place in places):
            return True
        usual = self._usual(sources)
        return usual is not None and any(
            found.text[slice(*word)] == usual
            and not any(overlap(word, place) for place in places)
            and self._comes_from(word, sources, found)
            for word in found.words
        )

    def _comes_from(self, span: Span, sources: Sequence[Span], translation: "_Attended") -> bool:
        """Whether the tokens of `span` attend to `sources` more than to any other word."""
        weights_S = translation.attention(span)
        others = (word for word in self.source_words if not any(overlap(word, source) for source in sources))
        return self._most(weights_S, sources) >= max((self._mass(weights_S, word) for word in others), default=0.0)

    def _usual(self, sources: Sequence[Span]) -> str | None:
        """What `sources` become without terms: the word of the plain translation that attends to them most."""
        plain = self.plain
        words = [word for word in plain.words if _has_letters(plain.text, word)]
        if not words:
            return None
        best = max(words, key=lambda word: self._most(plain.attention(word), sources))
        return plain.text[slice(*best)] if self._comes_from(best, sources, plain) else None

    def _most(self, weights_S: Sequence[float], spans: Sequence[Span]) -> float:
        return max(self._mass(weights_S, span) for span in spans)

    def _mass(self, weights_S: Sequence[float], span: Span) -> float:
        # EOS is the last of the source tokens, and no token of the text.
        return sum(x for x, token in zip(weights_S, self.source_tokens, strict=False) if overlap(token, span))


@dataclass(frozen=True)
class _Attended:
    """A translation with its words, tokens and attention."""

    text: str
    words: Sequence[Span]
    tokens: Sequence[Span]
    attention_TS: Sequence[Sequence[float]]

    def attention(self, span: Span) -> list[float]:
        """[S]: what the tokens of `span` attend to, all together."""
        chosen = [row for row, token in zip(self.attention_TS, self.tokens, strict=False) if overlap(token, span)]
        return [sum(column) for column in zip(*chosen, strict=True)]


def token_spans(ids: Sequence[int], tokenizer: Tokenizer) -> list[Span]:
    """The characters of the decoded text that each token writes."""
    ends = [len(tokenizer.decode(ids[:n])) for n in range(len(ids) + 1)]
    return list(pairwise(ends))


def _has_letters(text: str, span: Span) -> bool:
    """Whether a span has not only marks, which attract attention that has no other source."""
    return any(character.isalnum() for character in text[slice(*span)])


def overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]
