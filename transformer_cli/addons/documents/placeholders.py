"""Placeholders of a text: variables, URLs, e-mail addresses and protected text, which a translation must keep.

A model may lose or change them. What was damaged is restored in place; for what was lost, the text is translated again
with stand-ins that models copy, such as numbers; and what is lost even so is inserted where its place is by alignment.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from transformer_cli.addons.documents.edits import Edit, Edited
from transformer_cli.addons.documents.placement import Aligned, align, word_edges
from transformer_cli.addons.documents.stand_ins import NUMBER, Masked, digits_of
from transformer_cli.addons.documents.units import Unit
from transformer_cli.addons.documents.words import bounds, is_in_word, places, word_end, word_start
from transformer_cli.data.placeholders import Placeholder, placeholders_in
from transformer_cli.decoding.terminology import Span

_LONGEST_TOLERANT = 200  # characters of a placeholder that is searched for with white space within it
_SHORT = 3  # letters or digits of a placeholder that may be a part of any word


def placeholders_of(unit: Unit) -> list[Placeholder]:
    """The protected text of a unit, and what else has the form of a placeholder, in order."""
    protected = [Placeholder(one.start, one.end, unit.text[one.start : one.end], True) for one in unit.protected]
    within = {i for one in protected for i in range(one.start, one.end)}
    free = [one for one in placeholders_in(unit.text) if not within & set(range(one.start, one.end))]
    return sorted([*protected, *free], key=lambda one: one.start)


def numbers_lost(source: str, target: str) -> list[str]:
    """Numbers of `source`, apart from their separators, that `target` does not have as often."""
    counts = [Counter(map(digits_of, NUMBER.findall(text))) for text in (source, target)]
    return sorted((counts[0] - counts[1]).elements())


# ---- Checks and repairs


@dataclass(frozen=True, slots=True)
class Restored:
    """A translation with the placeholders of its source, each as often as there."""

    aligned: Aligned
    n_repaired: int = 0
    n_inserted: int = 0
    n_doubtful: int = 0  # that may be in the wrong place, as another translation may show

    @property
    def n_problems(self) -> int:
        return self.n_inserted + self.n_doubtful


def restore(text: str, placeholders: Sequence[Placeholder], target: str, alignment: Sequence[Span] | None) -> Restored:
    """The translation of a text without stand-ins."""
    base = align(text, target, alignment)
    matching = _Matching(placeholders, base)
    if target == text.strip():
        matching.found = {p: (one.start, one.end) for p, one in enumerate(placeholders)}
        return _restored(base, Edited(text, []), placeholders, placeholders, matching.found, (), 0, 0)
    matching.match_exact()
    matching.match_damaged()
    found = matching.found
    extra, doubtful = matching.extra()
    n_repaired = len(extra) + sum(target[start:end] != placeholders[p].text for p, (start, end) in found.items())
    source = Edited(text, [])
    return _restored(base, source, placeholders, placeholders, found, extra, n_repaired, doubtful + len(extra))


def restore_masked(
    masked: Masked, placeholders: Sequence[Placeholder], target: str, alignment: Sequence[Span] | None
) -> Restored | None:
    """The translation of a text with stand-ins; None if a part of one would be left in it."""
    found, extra = masked.find(target)
    if masked.leaves_any(target, found, extra):
        return None
    base = align(masked.text, target, alignment)
    n_repaired = len(placeholders)
    return _restored(base, masked.edits, placeholders, masked.replaced, found, extra, n_repaired, len(extra))


@dataclass(frozen=True)
class _Word:
    """A placeholder with the letters and digits beside it: `F1`, of which `F` is code; or several in one word."""

    start: int  # in the source
    end: int
    members: tuple[int, ...]  # indices of placeholders


def _words(text: str, placeholders: Sequence[Placeholder]) -> list[_Word]:
    found: list[_Word] = []
    for p, one in enumerate(placeholders):
        last = found[-1] if found else _Word(0, 0, ())
        if not one.is_protected:  # its form says where it ends
            found.append(_Word(one.start, one.end, (p,)))
        elif one.start < last.end:
            end = last.end if one.end < last.end else word_end(text, one.end)
            found[-1] = _Word(last.start, end, (*last.members, p))
        else:
            start = word_start(text, one.start, last.end)
            found.append(_Word(start, word_end(text, one.end), (p,)))
    return found


class _Matching:
    """Matches the placeholders of a text with stretches of its translation."""

    def __init__(self, placeholders: Sequence[Placeholder], base: Aligned) -> None:
        self.placeholders, self.base = placeholders, base
        self.found: dict[int, Span] = {}
        self.words: dict[str, list[_Word]] = {}  # by their text
        for word in _words(base.source, placeholders):
            self.words.setdefault(base.source[word.start : word.end], []).append(word)
        self.protected = [of_text[0] for of_text in self.words.values() if self._is_protected(of_text[0])]
        self.in_target = self._occurrences(base.target)
        own = sorted((one.start, one.end) for one in placeholders)
        self.outside = {
            text: free
            for text, spans in (self._occurrences(base.source) if self.protected else {}).items()
            if (free := [span for span in spans if not _overlaps(span, own)])
        }
        self._links = _Links(base)
        self._places: dict[tuple[str, tuple[str, str]], list[Span]] = {}

    def _is_protected(self, word: _Word) -> bool:
        return self.placeholders[word.members[0]].is_protected

    def _occurrences(self, text: str) -> dict[str, list[Span]]:
        """The spans of the words of protected text, and of whatever has the form of a placeholder."""
        source = self.base.source
        spans = [span for one in self.protected for span in places(text, source, (one.start, one.end))]
        spans.sort(key=lambda span: (span[0], -span[1]))  # of those that begin in one place, the longest
        found: dict[str, list[Span]] = {}
        taken: list[Span] = []
        for start, end in spans:
            if not taken or start >= taken[-1][1]:
                taken.append((start, end))
                found.setdefault(text[start:end], []).append((start, end))
        for one in placeholders_in(text):
            if not _overlaps((one.start, one.end), taken):
                found.setdefault(one.text, []).append((one.start, one.end))
        return found

    def match_exact(self) -> None:
        """Match words that are in the translation as they are in the source."""
        for text, words in self.words.items():
            in_source = [(word.start, word) for word in words]
            in_source += [(start, _OUTSIDE) for start, _ in self.outside.get(text, ())]
            in_source.sort(key=lambda item: item[0])
            for word, (start, _) in self._pairs(in_source, self.in_target.get(text, [])):
                for p in word.members:
                    one, shift = self.placeholders[p], start - word.start
                    self.found[p] = (one.start + shift, one.end + shift)

    def _pairs(self, in_source: Sequence[tuple[int, _Word]], spans: Sequence[Span]) -> list[tuple[_Word, Span]]:
        """The stretch of each word: one that is aligned to it, or else one that is free, in order."""
        if len(in_source) == 1 == len(spans):
            return [(in_source[0][1], spans[0])]
        used: set[Span] = set()
        found: list[tuple[_Word, Span]] = []
        rest: list[_Word] = []
        for start, word in in_source:
            linked = self._links.first(start, spans, used)
            if linked is None:
                rest.append(word)
            else:
                used.add(linked)
                found.append((word, linked))
        free = [span for span in spans if span not in used]
        if len(rest) > len(free):
            rest = [word for word in rest if word.members]
        return [(word, span) for word, span in (*found, *zip(rest, free, strict=False)) if word.members]

    def match_damaged(self) -> None:
        """Match those left without the letters beside them, with white space in them, in other case, or renamed."""
        missing = [p for p in range(len(self.placeholders)) if p not in self.found]
        if not missing:
            return
        taken = sorted(self.found.values())
        for p in missing:
            for span in self._damaged(p):
                if not _overlaps(span, taken):
                    self.found[p] = span
                    insort(taken, span)
                    break
        # One that is left, and one of its form that the source does not have, are the same with another name.
        left = [p for p in missing if p not in self.found and not self.placeholders[p].is_protected]
        known = {one.text for one in self.placeholders}
        renamed = [one for one in placeholders_in(self.base.target) if one.text not in known]
        renamed = [one for one in renamed if not _overlaps((one.start, one.end), taken)]
        if len(left) == len(renamed) == 1 and _form(self.placeholders[left[0]].text) == _form(renamed[0].text):
            self.found[left[0]] = (renamed[0].start, renamed[0].end)

    def _damaged(self, p: int) -> Iterator[Span]:
        """The spans where a damaged placeholder may be, the likeliest first."""
        one, target = self.placeholders[p], self.base.target
        if len(one.text) > _LONGEST_TOLERANT:
            return
        is_word = one.text.isalnum()
        whole, as_in_source = bounds(one.text, 0, len(one.text)), bounds(self.base.source, one.start, one.end)
        if one.is_protected:
            yield from self._exact(one.text, whole, one.text, (0, len(one.text)))
            spans = self._exact(one.text, as_in_source, self.base.source, (one.start, one.end))
            yield from (span for span in spans if not is_word or self._goes_on_alike(one, span))
        if not is_word and len(one.text) > 1:
            tolerant = r"\s{0,2}".join(re.escape(letter) for letter in one.text if not letter.isspace())
            yield from _spans(tolerant.join(as_in_source), target)
            if one.is_protected and not is_in_word(one.text, 0):  # `%s`, which is one whatever follows it
                yield from _spans(tolerant, target)

    def _exact(self, text: str, ends: tuple[str, str], source: str, span: Span) -> list[Span]:
        """The places of a text in the translation, found once for each way in which it ends words."""
        if (text, ends) not in self._places:
            self._places[text, ends] = list(places(self.base.target, source, span))
        return self._places[text, ends]

    def _goes_on_alike(self, one: Placeholder, span: Span) -> bool:
        """Whether letters at a place in the translation are those of a part of a word of the source.

        Short ones may be in any word: they are only if the same letter follows, or is before them.
        """
        if self._links.first(one.start, [span]) is None:
            return False
        source, target = self.base.source, self.base.target
        pairs = [(source[one.start - 1 : one.start], target[span[0] - 1 : span[0]])] if span[0] and one.start else []
        pairs += [(source[one.end : one.end + 1], target[span[1] : span[1] + 1])]
        return len(one.text) > _SHORT or any(a == b and a.isalnum() for a, b in pairs)

    def extra(self) -> tuple[list[Span], int]:
        """What the translation has more often than the source, and how many texts the source has outside, too."""
        taken = sorted(self.found.values())
        found: list[Span] = []
        doubtful = 0
        for text in self.words:
            if text in self.outside:
                doubtful += 1  # which one a translation has is not known
            else:
                found += [span for span in self.in_target.get(text, ()) if not _overlaps(span, taken)]
        return found, doubtful


_OUTSIDE = _Word(0, 0, ())


def _spans(pattern: str, text: str) -> Iterator[Span]:
    return (match.span() for match in re.finditer(pattern, text, re.IGNORECASE))


class _Links:
    """The stretches of a translation that are aligned to a word of its source."""

    def __init__(self, base: Aligned) -> None:
        self.base = base
        self.starts = [start for start, _ in base.source_words]
        self.targets: dict[int, list[Span]] = {}
        for i, j in () if base.is_guessed else base.links:
            if i < len(base.source_words) and j < len(base.target_words):
                self.targets.setdefault(i, []).append(base.target_words[j])

    def first(self, offset: int, spans: Sequence[Span], used: Container[Span] = ()) -> Span | None:
        """The first of `spans`, in order, in a word that is aligned to that of a character of the source."""
        for start, end in self.targets.get(bisect_right(self.starts, offset) - 1, ()):
            at = bisect_right(spans, start, key=lambda span: span[1])
            while at < len(spans) and spans[at][0] < end:
                if spans[at] not in used:
                    return spans[at]
                at += 1
        return None


def _form(text: str) -> str:
    return re.sub(r"[\w .-]+", "", text)


def _overlaps(span: Span, taken: Sequence[Span]) -> bool:
    at = bisect_right(taken, (span[0], 1 << 62)) - 1
    return (at >= 0 and taken[at][1] > span[0]) or (at + 1 < len(taken) and taken[at + 1][0] < span[1])


def _restored(
    base: Aligned,
    source: Edited,
    members: Sequence[Placeholder],
    placeholders: Sequence[Placeholder],
    found: dict[int, Span],
    extra: Sequence[Span],
    n_repaired: int,
    n_doubtful: int,
) -> Restored:
    """Write the placeholders where they were found, remove those that are too many, and insert what is lost.

    `members` are parts of them that are copied, or the same.
    """
    edits = [(Edit(start, end, placeholders[p].text), p) for p, (start, end) in found.items()]
    edits += [(Edit(start - (base.target[start - 1 : start] == " "), end, ""), -1) for start, end in extra]
    lost = [p for p in range(len(placeholders)) if p not in found]
    taken = sorted((edit.start, edit.end) for edit, _ in edits)
    ends = list(_insertions(base, source, [placeholders[p] for p in lost])) if lost else []
    for p, offset in zip(lost, ends, strict=True):
        at = bisect_right(taken, (offset, -1)) - 1
        place = taken[at][1] if at >= 0 and taken[at][1] > offset else offset
        edits.append((Edit(place, place, placeholders[p].text), p))
    edits.sort(key=lambda item: (item[0].start, item[0].end, item[1]))
    spaced = [_spaced(edit, base.target) if edit.start == edit.end else edit for edit, _ in edits]
    target = Edited(base.target, spaced)
    copies = []
    for (edit, p), (start, end) in zip(edits, target.spans, strict=True):
        if p >= 0:
            start += target.text[start:end].index(edit.new)
            shift = start - placeholders[p].start
            for one in _within(placeholders[p], members):
                copies.append(((one.start, one.end), (one.start + shift, one.end + shift)))
    aligned = Aligned(
        source.text,
        target.text,
        _outside_copies([source.span(word) for word in base.source_words], members),
        _apart([target.span(word) for word in base.target_words]),
        base.links,
        copies,
        base.is_guessed,
    )
    return Restored(aligned, n_repaired, len(lost), n_doubtful)


def _within(whole: Placeholder, members: Sequence[Placeholder]) -> Sequence[Placeholder]:
    first = bisect_left(members, whole.start, key=lambda one: one.start)
    return members[first : bisect_left(members, whole.end, key=lambda one: one.start)]


def _outside_copies(words: Sequence[Span], placeholders: Sequence[Placeholder]) -> list[Span]:
    """Words without the end or the beginning of a placeholder of several words, as those of a translation are."""
    found: list[Span] = []
    starts = [one.start for one in placeholders]
    for start, end in words:
        first = bisect_right(starts, start) - 1
        if first >= 0 and placeholders[first].start < start < placeholders[first].end < end:
            start = placeholders[first].end
        last = bisect_left(starts, end) - 1
        if last >= 0 and start < placeholders[last].start < end < placeholders[last].end:
            end = placeholders[last].start
        found.append((start, end))
    return found


def _apart(words: Sequence[Span]) -> list[Span]:
    """Words that are no longer apart, because white space between them is gone, without what they share."""
    found: list[Span] = []
    position = 0
    for start, end in words:
        found.append((max(start, position), max(end, position)))
        position = found[-1][1]
    return found


def _spaced(edit: Edit, target: str) -> Edit:
    """An insertion with white space around it."""
    before = "" if edit.start == 0 or target[edit.start - 1].isspace() else " "
    follows = target[edit.start : edit.start + 1]
    needs_space = follows.isalnum() or (edit.start == 0 and follows != "" and not follows.isspace())
    return Edit(edit.start, edit.end, before + edit.new + (" " if needs_space else ""))


def _insertions(base: Aligned, source: Edited, lost: Sequence[Placeholder]) -> Iterator[int]:
    """Yields for each lost placeholder the end of the translation of its word, or of the last aligned one before."""
    ends: dict[int, int] = {}
    for i, j in base.links:
        if i < len(base.source_words) and j < len(base.target_words):
            _, _, core_end, end = word_edges(base.target, base.target_words[j])
            ends[i] = max(ends.get(i, 0), core_end or end)
    aligned = sorted(ends)
    starts = [source.span(word)[0] for word in base.source_words]
    for one in lost:
        word = bisect_right(starts, one.start) - 1
        at = bisect_right(aligned, word) - 1
        yield ends[aligned[at]] if at >= 0 else 0
