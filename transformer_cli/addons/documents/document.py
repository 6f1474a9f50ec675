"""Documents to translated documents: parse, translate all texts at once, repair placeholders, place the tags.

`translate` stands for any translator, and is called once with the texts of all documents, and once more with those in
which placeholders were lost or damaged.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from transformer_cli.addons.documents.placeholders import (
    Restored,
    numbers_lost,
    placeholders_of,
    restore,
    restore_masked,
)
from transformer_cli.addons.documents.placement import Aligned, TooManyTagsError, place, prefers_space_before
from transformer_cli.addons.documents.reading import parse
from transformer_cli.addons.documents.stand_ins import Masked, with_codes, with_names, with_symbols
from transformer_cli.addons.documents.units import (
    ON_UNIT,
    Document,
    MarkupChangedError,
    Parts,
    Piece,
    Protected,
    Unit,
    accept_units,
)
from transformer_cli.data.normalization import has_letters
from transformer_cli.data.placeholders import Placeholder
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.terminology import Span

_T = TypeVar("_T")
Translate = Callable[[Sequence[str]], Sequence[Translated]]
MAX_PLACEHOLDERS = 500  # of a unit: more is a list or a table, and no text

# What can be said of the translation of a unit, beside the quality flags of its text.
REPAIRED = "placeholders_repaired"  # some were damaged or lost, and are where they belong
INSERTED = "placeholders_inserted"  # some were lost, and are written beside the words that are aligned to theirs
NUMBERS = "numbers_changed"  # a number of the source is not in the translation
BY_POSITION = "tags_by_position"  # there is no alignment: its tags are about as far in the text as in the source
TAGS_EMPTY = "tags_empty"  # a pair of tags for whose text the translation has no word; of Markdown, ** is left out
_KEPT = "kept"  # is not translated: it has too many tags or placeholders, or its translation is empty
_FLAGS = (REPAIRED, INSERTED, NUMBERS, BY_POSITION, TAGS_EMPTY, _KEPT)


@dataclass(frozen=True, slots=True)
class TranslatedUnit:
    """A unit of a document, in its order."""

    source: str  # as it was translated, without mark-up
    text: str
    result: Translated
    flags: tuple[str, ...]  # of FLAGS


@dataclass(frozen=True)
class TranslatedDocument:
    text: str
    units: tuple[TranslatedUnit, ...]

    @property
    def flags(self) -> Counter[str]:
        """How many units have each of FLAGS."""
        return Counter(flag for unit in self.units for flag in unit.flags)


def translate_document(
    text: str,
    format_name: str,
    translate: Translate,
    *,
    symbols: Sequence[str] = (),
    languages: tuple[str, str] = ("", ""),
) -> TranslatedDocument:
    """One document; see `translate_documents`."""
    return translate_documents([text], format_name, translate, symbols=symbols, languages=languages)[0]


def translate_documents(
    texts: Sequence[str],
    format_name: str,
    translate: Translate,
    *,
    symbols: Sequence[str] = (),
    on_unit: Callable[[int], object] = accept_units,
    languages: tuple[str, str] = ("", ""),
) -> list[TranslatedDocument]:
    """Translate the text of documents of a format and keep everything else as it is, byte for byte.

    `translate` fills in `Translated.alignment` if it can. `symbols` are pieces of the model's vocabulary that stand for
    placeholders. `on_unit` is called often, with the number of units found so far; what it raises ends everything.
    `languages` are the codes of source and target, each empty if it is not known.
    Raises DataError for a document that `parse` refuses.
    """
    documents = _parsed(texts, format_name, on_unit, languages)
    return translate_parsed(documents, translate, symbols=symbols, on_unit=on_unit)


def translate_parsed(
    documents: Sequence[Document],
    translate: Translate,
    *,
    symbols: Sequence[str] = (),
    on_unit: Callable[[int], object] = accept_units,
) -> list[TranslatedDocument]:
    """Documents that have been read; see `translate_documents`."""
    n_units = sum(len(document.units) for document in documents)

    def watched(items: Iterable[_T]) -> Iterator[_T]:
        for item in items:
            on_unit(n_units)
            yield item

    work = [_Work(unit) for document in documents for unit in watched(document.units)]
    active = [one for one in watched(work) if one.is_active]
    for one in active:
        one.masked = with_symbols(one.unit.text, one.placeholders, symbols) if one.placeholders and symbols else None
    texts = [one.unit.text.strip() if one.masked is None else one.masked.text.strip() for one in active]
    for one, result in zip(watched(active), translate(texts) if texts else (), strict=True):
        one.take(result)
    _repair([one for one in active if one.best is not None and one.best.n_problems], translate)
    results = watched(work)
    return [_written(document, islice(results, len(document.units))) for document in documents]


def _parsed(
    texts: Sequence[str], format_name: str, on_unit: Callable[[int], object], languages: tuple[str, str]
) -> list[Document]:
    documents: list[Document] = []
    n_units = 0
    was = ON_UNIT.set(lambda n: on_unit(n_units + n))
    try:
        for text in texts:
            on_unit(n_units)
            documents.append(parse(text, format_name, languages=languages))
            n_units += len(documents[-1].units)
    finally:
        ON_UNIT.reset(was)
    return documents


@dataclass(slots=True)
class _Work:
    """The translation of a unit, as far as it is done."""

    unit: Unit
    placeholders: list[Placeholder] = field(init=False)
    masked: Masked | None = None
    result: Translated | None = None
    best: Restored | None = None

    def __post_init__(self) -> None:
        self.placeholders = placeholders_of(self.unit)

    @property
    def is_active(self) -> bool:
        return len(self.placeholders) <= MAX_PLACEHOLDERS and self.has_words

    @property
    def has_words(self) -> bool:
        """Whether there is anything to translate beside placeholders."""
        position, rest = 0, []
        for one in self.placeholders:
            rest.append(self.unit.text[position : one.start])
            position = one.end
        return has_letters("".join([*rest, self.unit.text[position:]]))

    def take(self, result: Translated) -> None:
        self.result = result
        if result.text.strip():
            self.best = self.restored(result, self.masked)

    def restored(self, result: Translated, masked: Masked | None) -> Restored | None:
        if not self.placeholders and _is_plain(self.unit):
            return Restored(Aligned(self.unit.text, result.text, (), (), ()))  # nothing is placed by its words
        if masked is not None:
            return restore_masked(masked, self.placeholders, result.text, result.alignment)
        return restore(self.unit.text, self.placeholders, result.text, result.alignment)


def _repair(work: Sequence[_Work], translate: Translate) -> None:
    """Translate texts again, with stand-ins for their placeholders, and keep what has the fewest problems."""
    requests: list[tuple[_Work, Masked]] = []
    for one in work:
        variants = [with_mask(one.unit.text, one.placeholders) for with_mask in (with_codes, with_names)]
        requests += [(one, masked) for masked in variants if masked is not None]
    if not requests:
        return
    results = translate([masked.text.strip() for _, masked in requests])
    for (one, masked), result in zip(requests, results, strict=True):
        if not result.text.strip():
            continue
        restored = one.restored(result, masked)
        if restored is None:
            continue
        assert one.best is not None
        assert one.result is not None
        quality = (restored.n_problems, result.n_quality_issues)
        if quality < (one.best.n_problems, one.result.n_quality_issues) and restored.n_problems < one.best.n_problems:
            one.best, one.result = restored, result


# ---- Writing


def _written(document: Document, work: Iterable[_Work]) -> TranslatedDocument:
    parts: list[Parts] = []
    units: list[TranslatedUnit] = []
    for one in work:
        written, unit = _written_unit(one)
        parts.append(written)
        units.append(unit)
    return TranslatedDocument(_joined(document.parts, parts), tuple(units))


def _joined(document: Parts, of_units: Sequence[Parts]) -> str:
    """The text of a document. Units within mark-up have none within theirs, so there are two levels."""
    found: list[str] = []
    stack = [iter(document)]
    while stack:
        for part in stack[-1]:
            if isinstance(part, str):
                found.append(part)
            else:
                stack.append(iter(of_units[part]))
                break
        else:
            stack.pop()
    return "".join(found)


def _written_unit(work: _Work) -> tuple[Parts, TranslatedUnit]:
    unit = work.unit
    flags: set[str] = set()
    written, text = unit.raw, unit.text
    if work.result is None or work.best is None:
        if work.result is not None or work.has_words:
            flags.add(_KEPT)
    else:
        aligned, n_empty = work.best.aligned, 0
        is_same = aligned.target == unit.text.strip()
        try:
            if not is_same:
                written, n_empty = _marked_up(unit, aligned)
                text = aligned.target
        except (TooManyTagsError, MarkupChangedError):
            flags.add(_KEPT)
        else:
            conditions = {
                REPAIRED: work.best.n_repaired > 0,
                INSERTED: work.best.n_inserted > 0,
                NUMBERS: bool(numbers_lost(unit.text, text)),
                BY_POSITION: aligned.is_guessed and len(unit.tags) > 0 and not is_same,
                TAGS_EMPTY: n_empty > 0,
            }
            flags |= {flag for flag, is_set in conditions.items() if is_set}
    result = work.result or _NOT_TRANSLATED
    return written, TranslatedUnit(unit.text, text, result, tuple(flag for flag in _FLAGS if flag in flags))


_NOT_TRANSLATED = Translated([])


def _marked_up(unit: Unit, aligned: Aligned) -> tuple[Parts, int]:
    """The translation with its tags, escaped, and how many pairs of tags are empty. Raises TooManyTagsError."""
    target = _in_lines(aligned, unit.n_lines)
    if unit.text.endswith(" "):
        target += " "
    if _is_plain(unit):
        return _composed(unit, [Piece(target, is_text=True)]), 0
    placement = place(unit, aligned)
    tokens, marks = placement.tokens, placement.marks
    raw_at = _raw_copies(unit, aligned)
    within = _spaces_within(raw_at)
    found: list[Piece] = []
    pending: list[str] = []  # text without mark-up, which is escaped as a whole

    def flush() -> None:
        if text := "".join(pending):
            found.append(Piece(text, is_text=True))
        pending.clear()

    position, next_mark = 0, 0
    for boundary in range(len(tokens) + 1):
        start, end = tokens[boundary] if boundary < len(tokens) else (len(target), len(target))
        space = target[position:start]
        if space == " " and (boundary in placement.joints or position in within):
            space = ""
        first_mark = next_mark
        while next_mark < len(marks) and marks[next_mark][0] == boundary:
            next_mark += 1
        here = [tag for _, tag in marks[first_mark:next_mark]]
        moved = _space_to_move(unit, here, target, position, start)
        for n, tag in enumerate(here):
            if space and prefers_space_before(unit, tag):
                pending.append(space)
                space = ""
            flush()
            if moved is not None and n == moved[0]:
                found.append(Piece(unit.tags[here[moved[1]]].space, tag=tag))
            found += (Piece(part, tag=tag) for part in unit.tags[tag].parts)
            if unit.tags[tag].space and (moved is None or n != moved[1]):
                found.append(Piece(unit.tags[tag].space, tag=tag))
        pending.append(space)
        if (start, end) in raw_at:
            flush()
            found.append(Piece(raw_at[start, end].raw))
        else:
            pending.append(target[start:end])
        position = end
    flush()
    return _composed(unit, found), placement.n_empty


def _space_to_move(unit: Unit, tags: Sequence[int], target: str, end: int, start: int) -> tuple[int, int] | None:
    """The place among `tags` for the space behind one of them, and that one: it goes before the single tags beside it.

    `tags` are between a word of the translation that ends at `end` and a mark behind it, or the end, at `start`.
    """
    if not 0 < end == start or target[end - 1].isspace() or target[start : start + 1].isalnum():
        return None
    single = [unit.tags[tag].partner is None for tag in tags]
    last = next((n for n, tag in enumerate(tags) if unit.tags[tag].space and single[n]), None)
    if last is None:
        return None
    first = last
    while first and single[first - 1]:
        first -= 1
    return first, last


def _is_plain(unit: Unit) -> bool:
    """Whether a unit is text alone, as most are in spreadsheets and subtitles."""
    return not (unit.tags or unit.joints or unit.protected)


def _composed(unit: Unit, pieces: Sequence[Piece]) -> Parts:
    if unit.write is not None:
        return unit.write(unit, pieces)
    parts = (unit.escape(str(one.content)) if one.is_text else one.content for one in pieces)
    return tuple(part for part in parts if part != "")


def _raw_copies(unit: Unit, aligned: Aligned) -> dict[Span, Protected]:
    protected = {one.start: one for one in unit.protected}
    return {target: protected[source[0]] for source, target in aligned.copies if source[0] in protected}


def _spaces_within(copies: dict[Span, Protected]) -> set[int]:
    """The offsets of spaces that the mark-up of protected text has within it."""
    before = {start - 1 for (start, _), one in copies.items() if one.begins_with_space}
    return before | {end for (_, end), one in copies.items() if one.ends_with_space}


def _in_lines(aligned: Aligned, n_lines: int) -> str:
    """The translation broken into at most so many lines of about the same length, as the source was."""
    text = aligned.target
    if n_lines < 2:
        return text
    inside = {i for _, (start, end) in aligned.copies for i in range(start, end)}
    spaces = [i for i, character in enumerate(text) if character == " " and i not in inside]
    letters = list(text)
    free = 0  # index of the first space after the last break
    for n in range(1, n_lines):
        ideal = len(text) * n // n_lines
        at = max(bisect_left(spaces, ideal), free)
        if at > free and (at == len(spaces) or ideal - spaces[at - 1] <= spaces[at] - ideal):
            at -= 1
        if at < len(spaces):
            letters[spaces[at]] = "\n"
            free = at + 1
    return "".join(letters)
