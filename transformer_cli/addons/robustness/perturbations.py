"""Perturbed source lines. Each follows from the seed, the line and its language.

The complaints that these stand for are those of users of machine translation: loops, copies and lost placeholders on
input in capitals, without a final stop, with typos, of a single word, or with signs that no training text had.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from transformer_cli.addons.augmentation.noise import (
    doubled,
    lower_case,
    single_word,
    some_number,
    title_case,
    upper_case,
    with_typos,
    without_final_stop,
    word_ends,
)
from transformer_cli.data.placeholders import spans_to_keep
from transformer_cli.evaluation.verbatim import without_number

EMOJI = ("😀", "🎉", "👍", "😢", "🚀", "❤️")
URLS = ("https://example.com/start?id=7", "http://www.example.org", "https://docs.example.net/en/page_3.html")
PLACEHOLDERS = ("{name}", "{0}", "{count}", "{user_id}")


@dataclass(frozen=True)
class Perturbed:
    line: str
    inserted: str = ""  # what its translation must contain as it is


Perturb = Callable[[str, str, Random], Perturbed]  # of a line and the code of its language
Change = Callable[[str, str], str]  # of a text and the code of its language


@dataclass(frozen=True)
class Perturbation:
    """A change of a line, and the change of its translation and the plain one (or a reference) before a comparison."""

    name: str
    perturb: Perturb
    compared: Change | None = lambda text, _: text  # applied to both; None: lines of another meaning are not compared
    times: int = 1  # that the plain translation is expected
    removed: Callable[[str, str], str] | None = None  # (translation, inserted) → the translation without it


def in_any_language(change: Callable[[str], str]) -> Change:
    return lambda text, _: change(text)


def perturbing(change: Change) -> Perturb:
    return lambda line, language, _: Perturbed(change(line, language))


def perturbing_randomly(change: Callable[[str, Random], str]) -> Perturb:
    return lambda line, _, random: Perturbed(change(line, random))


def inserting(thing: Callable[[Random], str]) -> Perturb:
    """Inserts a thing between two words, or after the last; after a line without blanks.

    No placeholder or tag is taken apart.
    """

    def perturb(line: str, _: str, random: Random) -> Perturbed:
        ends, inserted = word_ends(line, spans_to_keep(line)), thing(random)
        end = random.choice(ends)
        return Perturbed(f"{line[:end]} {inserted}{line[end:]}", inserted)

    return perturb


def _without(text: str, inserted: str) -> str:
    return text.replace(inserted, " ", 1)


def _without_emoji(text: str, inserted: str) -> str:
    """The text without an emoji, with or without its variation selector."""
    return re.sub(re.escape(inserted[0]) + "\ufe0f?", " ", text, count=1)


WITHOUT_FINAL_STOP = in_any_language(without_final_stop)
# The order is that of the table.
PERTURBATIONS = (
    Perturbation("upper case", perturbing(upper_case), lower_case),
    Perturbation("title case", perturbing(title_case), lower_case),
    Perturbation("no final stop", perturbing(WITHOUT_FINAL_STOP), WITHOUT_FINAL_STOP),
    Perturbation("typos", perturbing_randomly(with_typos)),
    Perturbation("doubled", perturbing(in_any_language(doubled)), times=2),
    Perturbation("single words", perturbing_randomly(single_word), None),
    Perturbation("emoji", inserting(lambda random: random.choice(EMOJI)), removed=_without_emoji),
    Perturbation("URL", inserting(lambda random: random.choice(URLS)), removed=_without),
    Perturbation("number", inserting(some_number), removed=without_number),
    Perturbation("placeholder", inserting(lambda random: random.choice(PLACEHOLDERS)), removed=_without),
)


def perturbed(perturbation: Perturbation, line: str, language: str = "", *, seed: int) -> Perturbed | None:
    """`line`, which has no tags, perturbed; None where that changes nothing."""
    # By the line, not by its number: the same line is perturbed in the same way in another selection.
    found = perturbation.perturb(line, language, Random(f"{seed} {perturbation.name} {line}"))
    return found if found.line.strip() and found.line != line else None
