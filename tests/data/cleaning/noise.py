"""Pairs of the built-in corpus with known faults put into some of them, each of one kind."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from transformer_cli.data.cleaning.base import FILTERS, Filter, Languages, PairTexts
from transformer_cli.data.readers.builtin import read_builtin

ENGLISH_FRENCH = Languages("en", "fr")
BOILERPLATE = "Click here to see all pages of this site."
SPANISH = "El señor que vive en la casa de al lado no ha comprado nunca un coche nuevo."


@dataclass(frozen=True)
class Noisy:
    """Text with faults; `kinds` has the kind of each pair, empty for a sound one."""

    text: PairTexts
    sound: list[tuple[str, str]]  # each pair as it was
    kinds: list[str]

    def of(self, kind: str) -> list[int]:
        return [index for index, found in enumerate(self.kinds) if found == kind]


@cache
def sound_pairs(n: int) -> tuple[tuple[str, str], ...]:
    return tuple(read_builtin("demo_en_fr", "train")[:n])


def texts(pairs: Sequence[tuple[str, str]]) -> PairTexts:
    return PairTexts([source for source, _ in pairs], [target for _, target in pairs], np.arange(len(pairs)))


@cache
def made_up_pairs(n: int) -> tuple[tuple[str, str], ...]:
    """Pairs of a made-up language and a word-for-word translation of it in the reverse order, of 4 to 10 words."""
    draw = random.Random(1)
    syllables = [first + vowel for first in "bdfgklmnprst" for vowel in "aeiou"]
    words = ["".join(draw.choices(syllables, k=3)) for _ in range(500)]
    translations = dict(zip(words, ["".join(draw.choices(syllables, k=2)) + "x" for _ in words], strict=True))
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    sentences = [draw.choices(words, weights, k=draw.randint(4, 10)) for _ in range(n)]
    return tuple((" ".join(line), " ".join(translations[word] for word in reversed(line))) for line in sentences)


KINDS: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "swapped": lambda source, target: (target, source),
    "copied": lambda source, target: (source, source),
    "foreign": lambda source, target: (source, SPANISH),
    "boilerplate": lambda source, target: (BOILERPLATE, target),
    "markup": lambda source, target: (f'<p class="x">{source}</p>', target),
    "mojibake": lambda source, target: (source, target.encode().decode("cp1252", "ignore")),
}


def noisy(
    pairs: Sequence[tuple[str, str]], each: int = 40, *, seed: int = 0, kinds: Sequence[str] = tuple(KINDS)
) -> Noisy:
    """`each` pairs of each kind, a fifth as many blocks of 20 lines whose targets come one late, and unrelated ones."""
    draw = random.Random(seed)
    sound, n = list(pairs), len(pairs)
    pairs, found = list(sound), [""] * n
    for start in range(100, 100 + 200 * (each // 20), 200):
        block = range(start, start + 20)
        for index in block:
            pairs[index] = sound[index][0], sound[index - 1 if index > start else start + 19][1]
            found[index] = "shifted"
    free = [index for index, kind in enumerate(found) if not kind]
    draw.shuffle(free)
    unrelated = free[:each]
    for index, other in zip(unrelated, unrelated[1:] + unrelated[:1], strict=True):
        pairs[index], found[index] = (sound[index][0], sound[other][1]), "unrelated"
    for number, kind in enumerate(kinds, 1):
        for index in free[number * each : (number + 1) * each]:
            if kind == "mojibake":  # needs letters that are no ASCII
                sound[index] = (sound[index][0], f"« {sound[index][1]} » même")
            pairs[index], found[index] = KINDS[kind](*sound[index]), kind
    return Noisy(texts(pairs), sound, found)


def trained(name: str, text: PairTexts, threshold: float | None = None) -> Filter:
    """The filter `name`, trained on a text."""
    one = FILTERS[name](ENGLISH_FRENCH, FILTERS[name].threshold if threshold is None else threshold)
    one.learn(text)
    return one
