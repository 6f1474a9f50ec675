"""What bilingual formats with one source and one target language have in common: XLIFF, TS and PO."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from transformer_cli.config.data import DataConfig
from transformer_cli.data.formats.base import Contents
from transformer_cli.data.formats.sides import SOURCE, TARGET, Sides
from transformer_cli.errors import DataError, quoted
from transformer_cli.logs import LOGGER

_MOST_SHOWN = 12  # kinds in a line


@dataclass(frozen=True)
class Unit:
    """A text, its translation and their languages; `left_out` says why it is none that counts, as "fuzzy"."""

    source: str
    target: str
    languages: tuple[str, str]  # empty: the file does not say
    left_out: str = ""


def pairs_of(units: Iterable[Unit], name: str, config: DataConfig) -> Iterator[Sequence[str]]:
    """The pairs of source and target of a corpus, whichever of the two the file translates from.

    Raises DataError where there is none.
    """
    sides = Sides(config, name)
    n_pairs, others, left_out = 0, Counter[str](), Counter[str]()
    for unit in units:
        if unit.left_out:
            left_out[unit.left_out] += 1
        elif (is_straight := _direction(unit.languages, sides)) is None:
            others[" → ".join(unit.languages)] += 1
        else:
            n_pairs += 1
            yield (unit.source, unit.target) if is_straight else (unit.target, unit.source)
    left = f"; left out: {listed(left_out)}" if left_out else ""
    if not n_pairs and others:
        has = ", ".join(f"{_shown(languages)} ({n:,})" for languages, n in others.most_common(_MOST_SHOWN))
        asked = f"data.source_lang={config.source_lang} data.target_lang={config.target_lang}"
        raise DataError(f"{name}: translates {has}, not {asked}{left}. Set these to its languages")
    if not n_pairs:
        raise DataError(f"{name}: has no finished translations{left}. Is it the right file?")
    if left:
        LOGGER.info("%s: %s pairs%s", name, f"{n_pairs:,}", left)


def _direction(languages: tuple[str, str], sides: Sides) -> bool | None:
    """Whether the first language is the source of the corpus; None for other languages."""
    found = [sides[language][0] if language else None for language in languages]
    if found[0] in (SOURCE, None) and found[1] in (TARGET, None):
        return True
    if found[0] in (TARGET, None) and found[1] in (SOURCE, None):
        return False
    return None


def contents_of(units: Iterable[Unit]) -> Contents:
    found, left_out = Contents(is_bilingual=True), Counter[str]()
    for unit in units:
        found.n_rows += 1
        if unit.left_out:
            left_out[unit.left_out] += 1
            continue
        for text, language, side in zip((unit.source, unit.target), unit.languages, ("source", "target"), strict=True):
            key = language or side
            found.columns[key] = found.columns.get(key, 0) + bool(text)
        found.add_sample((unit.source, unit.target))
    if left_out:
        found.notes.append(f"Left out: {listed(left_out)}.")
    return found


def listed(counts: Counter[str]) -> str:
    """The counts in words: 12 fuzzy, 3 untranslated."""
    return ", ".join(f"{n:,} {_shown(what)}" for what, n in counts.most_common(_MOST_SHOWN))


def _shown(text: str) -> str:
    """Names of languages and states, which may be anything."""
    return quoted(text, 60)[1:-1]
