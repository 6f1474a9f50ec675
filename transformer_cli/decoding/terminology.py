"""A terminology: phrases of the source that have to be translated in a given way."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from operator import eq
from pathlib import Path

from transformer_cli.config.decode import TermForms
from transformer_cli.data.lines import read_lines, shown
from transformer_cli.data.normalization import canonical, normalize
from transformer_cli.errors import DataError, quoted

# Scripts that put no space between words: each of their characters is a word here.
_RUNS_ON = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Accents and vowel signs belong to the word that they are written in, and are no letters to `re`.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(rf"[{_RUNS_ON}]|(?:[^\W{_RUNS_ON}]|[{_MARKS}])+|\S")


Span = tuple[int, int]  # characters of a text: the first, and the one behind the last


@dataclass(frozen=True)
class Term:
    """A source phrase and its translations: any of them satisfies it, a constrained search requires the first."""

    source: str
    targets: tuple[str, ...]
    line: int  # of the terminology, where it occurs first

    def is_kept_by(self, target: str) -> bool:
        """Whether this translation is the source phrase itself, which is to be kept as it is."""
        return canonical(target) == canonical(self.source)

    def places(self, text: str, forms: TermForms = TermForms.ending) -> list[Span]:
        """The places of its translations in `text`, as they are written, from the beginning of a word.

        The last word may have an ending, so that `Hundes` satisfies the term `Hund`, and other `forms` may; but not
        where the translation is the source phrase itself.
        """
        found: list[Span] = []
        for target in self.targets:
            is_kept = self.is_kept_by(target)
            is_inflected = forms is TermForms.inflected and not is_kept
            found += occurrences(text, target, has_ending=not is_kept, is_inflected=is_inflected)
        return found


class Terminology:
    """Finds terms in lines."""

    def __init__(self, terms: Iterable[Term], *, name: str) -> None:
        self.name, self.terms = name, list(terms)
        self._first_words = _Node()
        for term in self.terms:
            node = self._first_words
            for word in words_of(canonical(term.source)):
                node = node.next_words.setdefault(word, _Node())
            node.term = term

    def find(self, text: str) -> list[Term]:
        """The terms in `text`, each once. Where they overlap, the one that begins first, and of those the longest.

        A phrase stands for whole words, however their letters are composed. One in lower case is found in any case,
        another only as it is written.
        """
        text = canonical(text)
        words, lower = words_of(text), words_of(text.lower())
        found: dict[Term, None] = {}
        i = 0
        while i < len(words):
            # Of phrases that are equally long, the one that is as it is written.
            n_words, term = max(self._longest(words, i), self._longest(lower, i), key=lambda one: one[0])
            if term is not None:
                found[term] = None
            i += max(1, n_words)
        return list(found)

    def within(self, texts: Iterable[str]) -> "Terminology":
        """The terms that stand in the texts, also where they overlap: any part of these has the terms it had in all."""
        found: dict[Term, None] = {}
        for text in map(canonical, texts):
            for words in {words_of(text), words_of(text.lower())}:
                found |= dict.fromkeys(term for i in range(len(words)) for _, term in self._from(words, i))
        return Terminology(found, name=self.name)

    def _longest(self, words: Sequence[str], first: int) -> tuple[int, Term | None]:
        """The longest term that `words` have from `first` on, and its number of words."""
        *_, longest = ((0, None), *self._from(words, first))
        return longest

    def _from(self, words: Sequence[str], first: int) -> Iterator[tuple[int, Term]]:
        """The terms that `words` have from `first` on, each with its number of words, shortest first."""
        node = self._first_words
        for n, word in enumerate(islice(words, first, None), start=1):
            if (following := node.next_words.get(word)) is None:
                return
            node = following
            if node.term is not None:
                yield n, node.term


class _Node:
    """A node of the trie of terms: the words that follow, and the term that ends here, if any."""

    def __init__(self) -> None:
        self.next_words: dict[str, _Node] = {}
        self.term: Term | None = None


def words_of(text: str) -> tuple[str, ...]:
    """Words and marks."""
    return tuple(_WORD.findall(text))


def word_spans(text: str) -> list[Span]:
    """The spans of its words and marks."""
    return [match.span() for match in _WORD.finditer(text)]


def occurrences(
    text: str, phrase: str, *, any_case: bool = False, has_ending: bool = False, is_inflected: bool = False
) -> list[Span]:
    """Occurrences of `phrase` in `text` as whole words; with `has_ending` its last word may have an ending.

    With `is_inflected` each word may be another form of its own.
    """
    wanted, lower = words_of(canonical(phrase)), text.lower()
    text = lower if any_case and len(lower) == len(text) else text
    spans = word_spans(text)
    words = [canonical(text[slice(*span)]) for span in spans]
    found = []
    for i in range(len(words) - len(wanted) + 1):
        *first, last = words[i : i + len(wanted)]
        meets = last.startswith(wanted[-1]) if has_ending else last == wanted[-1]
        is_found = meets and tuple(first) == wanted[:-1]
        if is_found or (is_inflected and all(map(are_forms, wanted, (*first, last)))):
            found.append((spans[i][0], spans[i + len(first)][1]))
    return found


def are_forms(one: str, other: str) -> bool:
    """Whether two words have the same stem, judged by their letters in any language that inflects by endings.

    That is: a common beginning of at least four letters and 70 % of each, before endings of up to three letters.
    """
    n = sum(1 for _ in takewhile(bool, map(eq, one, other)))
    longest = max(len(one), len(other))
    return one == other or (n >= 4 and 10 * n >= 7 * longest and longest - n <= 3)


def read_terms(path: Path) -> Terminology:
    """The phrases of a file with `source<TAB>target` on each line; blank lines are left out. Raises DataError.

    An empty file is a terminology without terms.
    """
    terms: dict[tuple[str, ...], Term] = {}
    is_empty = path.is_file() and path.stat().st_size == 0
    for number, line in enumerate([] if is_empty else read_lines(path).each(), start=1):
        if not line.strip():
            continue
        where = f"{shown(path)}:{number}"
        fields = [normalize(field) for field in line.split("\t")]
        if len(fields) != 2:
            raise DataError(f"{where}: {len(fields) - 1} tabs in {quoted(line)}. Write source phrase, one tab, target")
        source, target = fields
        if not source or not target:
            side = "target" if source else "source"
            raise DataError(f"{where}: no {side} phrase in {quoted(line)}. Add it, or remove the line")
        key = words_of(canonical(source))
        term = terms.setdefault(key, Term(source, (), number))
        if target not in term.targets:
            terms[key] = replace(term, targets=(*term.targets, target))
    return Terminology(terms.values(), name=shown(path))
