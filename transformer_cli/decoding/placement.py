"""Whether a demanded term stands where its source phrase is translated, as far as the decoder's attention tells.

Shapes: S source tokens and T target tokens, both with their EOS.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.terminology import Span, Term, occurrences, word_spans


@dataclass(frozen=True)
class Translation:
    """A translation by its ids without EOS, and the source token that each of its tokens attends to."""

    ids: Sequence[int]
    attention_TS: Tensor | None


class Placement:
    """Judges translations of one source by one that was found without terms."""

    def __init__(self, source_ids: Sequence[int], tokenizers: Tokenizers, plain: Translation) -> None:
        self.target = tokenizers.target
        self.source_text = tokenizers.source.decode(source_ids)
        spans = [span for span in word_spans(self.source_text) if says_something(self.source_text, span)]
        self.source_words = spans
        self.source_tokens = token_spans(source_ids, tokenizers.source)
        self.plain = plain

    def misplaced(self, terms: Sequence[Term], found: Translation) -> tuple[Term, ...]:
        """The terms that another phrase of the source has become, or that stand beside another translation of theirs.

        A term that is not in the translation is not one of them.
        """
        return tuple(term for term in terms if self._is_misplaced(term, found))

    def _is_misplaced(self, term: Term, found: Translation) -> bool:
        sources = occurrences(self.source_text, term.source, any_case=term.source == term.source.lower())
        text = self.target.decode(found.ids)
        places = [span for target in term.targets for span in occurrences(text, target, has_ending=True)]
        if not places or not sources:
            return False
        if len(places) > len(sources) and len(places) > self._n_in_plain(term):
            return True  # said once more than the source does
        tokens = token_spans(found.ids, self.target)
        if not all(self._comes_from(span, sources, tokens, found) for span in places):
            return True
        return self._is_said_otherwise(sources, places, text, tokens, found)

    def _n_in_plain(self, term: Term) -> int:
        text = self.target.decode(self.plain.ids)
        return sum(len(occurrences(text, target, has_ending=True)) for target in term.targets)

    def _comes_from(
        self, span: Span, sources: Sequence[Span], tokens: Sequence[Span], translation: Translation
    ) -> bool:
        """Whether the tokens of `span` attend to `sources` more than to any other word."""
        share_S = self._attention(span, tokens, translation)
        wanted = max(self._mass(share_S, source) for source in sources)
        others = (word for word in self.source_words if not any(overlap(word, source) for source in sources))
        return wanted >= max((self._mass(share_S, word) for word in others), default=0.0)

    def _is_said_otherwise(
        self,
        sources: Sequence[Span],
        places: Sequence[Span],
        text: str,
        tokens: Sequence[Span],
        found: Translation,
    ) -> bool:
        """Whether what translates `sources` without the term is still said beside it, and still comes from there."""
        usual = self._usual(sources)
        return usual is not None and any(
            text[slice(*word)] == usual
            and not any(overlap(word, place) for place in places)
            and self._comes_from(word, sources, tokens, found)
            for word in word_spans(text)
        )

    def _usual(self, sources: Sequence[Span]) -> str | None:
        """The word of the plain translation that attends to `sources` most."""
        text, tokens = self.target.decode(self.plain.ids), token_spans(self.plain.ids, self.target)
        words = [word for word in word_spans(text) if says_something(text, word)]
        masses = []
        for word in words:
            share_S = self._attention(word, tokens, self.plain)
            masses.append(max(self._mass(share_S, source) for source in sources))
        if not words:
            return None
        best = words[max(range(len(words)), key=masses.__getitem__)]
        return text[slice(*best)] if self._comes_from(best, sources, tokens, self.plain) else None

    def _attention(self, span: Span, tokens: Sequence[Span], translation: Translation) -> Tensor:
        """[S]: what the tokens of `span` attend to, on average."""
        assert translation.attention_TS is not None
        chosen = [t for t, token in enumerate(tokens) if overlap(token, span)]
        return translation.attention_TS[chosen].double().mean(dim=0) if chosen else torch.zeros(len(self.source_tokens))

    def _mass(self, share_S: Tensor, span: Span) -> float:
        return sum(float(share_S[s]) for s, token in enumerate(self.source_tokens) if overlap(token, span))


def token_spans(ids: Sequence[int], tokenizer: Tokenizer) -> list[Span]:
    """Of each token, the characters of the decoded text that it writes."""
    ends = [len(tokenizer.decode(ids[:n])) for n in range(len(ids) + 1)]
    return list(pairwise(ends))


def says_something(text: str, span: Span) -> bool:
    """Not a mark, to which attention goes that has nowhere else to go."""
    return any(character.isalnum() for character in text[slice(*span)])


def overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]
