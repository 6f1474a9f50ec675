"""Placeholders of a text: variables, URLs, e-mail addresses and protected text, which a translation must keep.

A model may lose or change them. What was damaged is restored in place; for what was lost, the text is translated again
with stand-ins that models copy, such as numbers; and what is lost even so is inserted where its place is by alignment.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from transformer_cli.data.placeholders import Placeholder, placeholders_in
from transformer_cli.markup.edits import Edit, Edited
from transformer_cli.markup.placement import Aligned, Span, align, word_edges
from transformer_cli.markup.units import Unit

# No pattern here backtracks far: what is repeated is possessive.
_NUMBER = re.compile(r"[0-9]++(?:[.,'’\u00a0\u202f][0-9]++| (?=[0-9]{3}(?![0-9]))[0-9]++)*+")
_SEPARATOR = re.compile("[.,'’ \u00a0\u202f]")
_CODE = re.compile(rf"(?<![0-9])[0-9]{_SEPARATOR.pattern}?[0-9]{{3}}(?![0-9])")
_LONGEST_TOLERANT = 200  # characters of a placeholder that is searched for with white space within it
_NAMES = ("Tom", "Maria", "Peter", "Anna", "Boston", "John", "Martin", "David", "Thomas", "Laura")


def placeholders_of(unit: Unit) -> list[Placeholder]:
    """The protected text of a unit, and what else has the form of a placeholder, in order."""
    protected = [Placeholder(one.start, one.end, unit.text[one.start : one.end], True) for one in unit.protected]
    within = {i for one in protected for i in range(one.start, one.end)}
    free = [one for one in placeholders_in(unit.text) if not within & set(range(one.start, one.end))]
    return sorted([*protected, *free], key=lambda one: one.start)


def numbers_lost(source: str, target: str) -> list[str]:
    """Numbers of `source`, apart from their separators, that `target` does not have as often."""
    counts = [Counter(re.sub(r"\D", "", number) for number in _NUMBER.findall(text)) for text in (source, target)]
    return sorted((counts[0] - counts[1]).elements())


# ---- Stand-ins


@dataclass(frozen=True)
class Masked:
    """A text with a stand-in for each of its placeholders."""

    text: str
    edits: Edited  # that give the text of the unit again
    stand_ins: tuple[str, ...]


def with_codes(text: str, placeholders: Sequence[Placeholder]) -> Masked | None:
    """Numbers of four digits, which models copy as they do years."""
    numbers = set(_NUMBER.findall(text))
    codes = (str(1000 + (1417 + 2371 * n) % 9000) for n in range(9000))
    free = (code for code in codes if code not in numbers)
    return _masked(text, placeholders, list(islice(free, len(placeholders))))


def with_names(text: str, placeholders: Sequence[Placeholder]) -> Masked | None:
    """First names, which are the same in most languages."""
    return _masked(text, placeholders, [name for name in _NAMES if name not in text])


def with_symbols(text: str, placeholders: Sequence[Placeholder], symbols: Sequence[str]) -> Masked | None:
    """Symbols that the model's vocabulary has for placeholders."""
    return _masked(text, placeholders, [symbol for symbol in symbols if symbol not in text])


def _masked(text: str, placeholders: Sequence[Placeholder], stand_ins: Sequence[str]) -> Masked | None:
    """None where there are not enough stand-ins."""
    if len(placeholders) > len(stand_ins):
        return None
    used = tuple(stand_ins[: len(placeholders)])
    pairs = list(zip(placeholders, used, strict=True))
    masking = Edited(text, [Edit(one.start, one.end, stand_in) for one, stand_in in pairs])
    back = [Edit(*span, one.text) for span, one in zip(masking.spans, placeholders, strict=True)]
    return Masked(masking.text, Edited(masking.text, back), used)


# ---- Checks and repairs


@dataclass(frozen=True)
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
    found, extra, doubtful = _match(text, placeholders, target)
    n_exact = len(found)
    free = [p for p in range(len(placeholders)) if p not in found]
    if free:
        _match_damaged(placeholders, free, target, found)
    base = align(text, target, alignment)
    return _restored(base, Edited(text, []), placeholders, found, extra, len(found) - n_exact + len(extra), doubtful)


def restore_masked(
    masked: Masked, placeholders: Sequence[Placeholder], target: str, alignment: Sequence[Span] | None
) -> Restored:
    """The translation of a text with stand-ins."""
    found: dict[int, Span] = {}
    extra: list[Span] = []
    places: dict[str, list[Span]] = {}
    for match in _pattern_of(masked.stand_ins).finditer(target):
        stand_in = _SEPARATOR.sub("", match[0]) if match[0][0].isdigit() else match[0]
        places.setdefault(stand_in, []).append(match.span())
    for p, stand_in in enumerate(masked.stand_ins):
        if stand_in in places:
            found[p], *more = places[stand_in]
            extra += more
    base = align(masked.text, target, alignment)
    return _restored(base, masked.edits, placeholders, found, extra, len(placeholders), len(extra))


def _pattern_of(stand_ins: Sequence[str]) -> re.Pattern[str]:
    """Numbers may have a separator of thousands; names and symbols are as they are."""
    if not stand_ins or stand_ins[0].isdigit():
        return _CODE
    bounded = (rf"(?<!\w){one}(?!\w)" if one.isalpha() else re.escape(one) for one in stand_ins)
    return re.compile("|".join(bounded))


def _match(text: str, placeholders: Sequence[Placeholder], target: str) -> tuple[dict[int, Span], list[Span], int]:
    """Where each placeholder is in the translation, what else is there as often as not in the source, and doubts.

    Protected text is in doubt where the source has it outside, too: which one a translation has is not known.
    """
    if target == text.strip():
        return {p: (one.start, one.end) for p, one in enumerate(placeholders)}, [], 0
    protected = {one.text: _bounded(text, one) for one in placeholders if one.is_protected}
    in_source, in_target = (_occurrences(one, protected) for one in (text, target))
    found: dict[int, Span] = {}
    extra: list[Span] = []
    doubtful = 0
    by_text: dict[str, list[int]] = {}
    for p, one in enumerate(placeholders):
        by_text.setdefault(one.text, []).append(p)
    for one_text, numbers in by_text.items():
        spans = in_target.get(one_text, [])
        found |= dict(zip(numbers, spans, strict=False))
        n_outside = len(in_source.get(one_text, [])) - len(numbers)
        if n_outside > 0:
            doubtful += 1
        else:
            extra += spans[len(numbers) :]
    return found, extra, doubtful + len(extra)


def _occurrences(text: str, protected: dict[str, str]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    position = 0
    if protected:
        longest_first = sorted(protected, key=len, reverse=True)
        pattern = re.compile("|".join(protected[one] for one in longest_first))
        for match in pattern.finditer(text):
            found.setdefault(match[0], []).append(match.span())
    taken = sorted(span for spans in found.values() for span in spans)
    position = 0
    for one in placeholders_in(text):
        while position < len(taken) and taken[position][1] <= one.start:
            position += 1
        if position == len(taken) or taken[position][0] >= one.end:
            found.setdefault(one.text, []).append((one.start, one.end))
    return found


def _bounded(text: str, one: Placeholder) -> str:
    """A pattern of a placeholder as whole words, if it is one of its text."""
    begins_word = one.text[0].isalnum() and not text[max(0, one.start - 1) : one.start].isalnum()
    ends_word = one.text[-1].isalnum() and not text[one.end : one.end + 1].isalnum()
    return (r"(?<!\w)" if begins_word else "") + re.escape(one.text) + (r"(?!\w)" if ends_word else "")


def _match_damaged(
    placeholders: Sequence[Placeholder], missing: Sequence[int], target: str, found: dict[int, Span]
) -> None:
    """Find those of `missing` with white space within them or in other case, or renamed, and add them to `found`."""
    taken = sorted(found.values())
    for p in missing:
        text = placeholders[p].text
        if len(text) > _LONGEST_TOLERANT or len(text) < 2 or text.isalnum():
            continue
        letters = [re.escape(letter) for letter in text if not letter.isspace()]
        pattern = r"\s{0,2}".join(letters) + (r"(?!\w)" if text[-1].isalnum() else "")
        before = r"(?<!\w)" if text[0].isalnum() else ""
        for match in re.finditer(before + pattern, target, re.IGNORECASE):
            if not _overlaps(match.span(), taken):
                found[p] = match.span()
                taken = sorted([*taken, match.span()])
                break
    # One that is left, and one of its form that the source does not have, are the same with another name.
    left = [p for p in missing if p not in found and not placeholders[p].is_protected]
    known = {one.text for one in placeholders}
    renamed = [one for one in placeholders_in(target) if one.text not in known]
    renamed = [one for one in renamed if not _overlaps((one.start, one.end), taken)]
    if len(left) == len(renamed) == 1 and _form(placeholders[left[0]].text) == _form(renamed[0].text):
        found[left[0]] = (renamed[0].start, renamed[0].end)


def _form(text: str) -> str:
    return re.sub(r"[\w .-]+", "", text)


def _overlaps(span: Span, taken: Sequence[Span]) -> bool:
    at = bisect_right(taken, (span[0], 1 << 62)) - 1
    return (at >= 0 and taken[at][1] > span[0]) or (at + 1 < len(taken) and taken[at + 1][0] < span[1])


def _restored(
    base: Aligned,
    source: Edited,
    placeholders: Sequence[Placeholder],
    found: dict[int, Span],
    extra: Sequence[Span],
    n_repaired: int,
    n_doubtful: int,
) -> Restored:
    """Write the placeholders where they were found, remove those that are too many, and insert what is lost."""
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
            one = placeholders[p]
            copies.append(((one.start, one.end), (start, start + len(edit.new))))
    aligned = Aligned(
        source.text,
        target.text,
        [source.span(word) for word in base.source_words],
        _apart([target.span(word) for word in base.target_words]),
        base.links,
        copies,
        base.is_guessed,
    )
    return Restored(aligned, n_repaired, len(lost), n_doubtful)


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
    """For each, the end of the last word of the translation that is aligned to its source word, or to one before."""
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
