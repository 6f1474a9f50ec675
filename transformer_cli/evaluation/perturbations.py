"""Perturbed source lines: what people type, and what programs put into texts. Each follows from the seed and the line.

The complaints that these stand for are those of users of machine translation: loops, copies and lost placeholders on
input in capitals, without a final stop, with typos, of a single word, or with signs that no training text had.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from transformer_cli.evaluation.verbatim import without_number

_STOPS = ".!?…。｡．！？؟۔।॥։።၊။៕"  # full stops, question and exclamation marks of the scripts that we know of
_CLOSING = "\"'”’»›)]」』） "  # may stand behind them
_WORD = re.compile(r"[^\W\d_]+")
_TYPO_LENGTH = 4  # letters of the words that get typos
TYPO_SHARE = 0.1  # of these words, and one at least

EMOJI = ("😀", "🎉", "👍", "😢", "🚀", "❤️")
URLS = ("https://example.com/start?id=7", "http://www.example.org", "https://docs.example.net/en/page_3.html")
PLACEHOLDERS = ("{name}", "{0}", "{count}", "{user_id}")


@dataclass(frozen=True)
class Perturbed:
    line: str
    inserted: str = ""  # what its translation must contain as it is


Perturb = Callable[[str, Random], Perturbed]


@dataclass(frozen=True)
class Perturbation:
    """What is done to a line, and to its translation and the plain one (or a reference) before they are compared."""

    name: str
    perturb: Perturb
    compared: Callable[[str], str] | None = str  # applied to both; None: lines of another meaning are not compared
    times: int = 1  # that the plain translation is expected
    removed: Callable[[str, str], str] | None = None  # (translation, inserted) → the translation without it


def upper_case(line: str, random: Random) -> Perturbed:
    return Perturbed(line.upper())


def title_case(line: str, random: Random) -> Perturbed:
    """Every word with a capital; `don't` does not become `Don'T`, as with `str.title`."""
    return Perturbed(re.sub(r"(?<!\S)([^\w\s]*)(\w)", lambda found: found[1] + found[2].upper(), line))


def without_final(line: str, random: Random | None = None) -> Perturbed:
    """Also before closing quotes or brackets, which stay."""
    body = line.rstrip(_CLOSING)
    return Perturbed(body.rstrip(_STOPS + " ") + line[len(body) :] if body and body[-1] in _STOPS else line)


def with_typos(line: str, random: Random) -> Perturbed:
    """Two letters swapped, one left out or one doubled, in a tenth of the words of four letters or more, one at least.

    The first letter stays.
    """
    words = [found for found in _WORD.finditer(line) if len(found[0]) >= _TYPO_LENGTH]
    if not words:
        return Perturbed(line)
    chosen = sorted(random.sample(range(len(words)), k=max(1, round(TYPO_SHARE * len(words)))), reverse=True)
    for i in chosen:  # from the right, so that the places of the others stay
        word = words[i]
        line = line[: word.start()] + _mistyped(word[0], random) + line[word.end() :]
    return Perturbed(line)


def _mistyped(word: str, random: Random) -> str:
    place, kind = random.randrange(1, len(word) - 1), random.choice(("swapped", "left out", "doubled"))
    before, letter, after = word[:place], word[place], word[place + 1 :]
    if kind == "swapped" and letter != after[0]:
        return before + after[0] + letter + after[1:]
    return before + after if kind == "left out" else before + letter + letter + after


def doubled(line: str, random: Random) -> Perturbed:
    return Perturbed(f"{line} {line}" if has_blanks(line) else line + line)


def single_word(line: str, random: Random) -> Perturbed:
    """One of the words of two letters or more; of a script without blanks, none, since its words are unknown."""
    words = [word for word in _WORD.findall(line) if len(word) > 1]
    return Perturbed(random.choice(words) if has_blanks(line) and words else line)


def inserting(thing: Callable[[Random], str]) -> Perturb:
    """Between two words, or behind the last; behind a line without blanks."""

    def perturb(line: str, random: Random) -> Perturbed:
        words, inserted = line.split(), thing(random)
        place = random.randint(1, len(words))
        return Perturbed(" ".join([*words[:place], inserted, *words[place:]]), inserted)

    return perturb


def some_number(random: Random) -> str:
    """Of two to six digits."""
    n_digits = random.randint(2, 6)
    return str(random.randrange(10 ** (n_digits - 1), 10**n_digits))


def has_blanks(line: str) -> bool:
    return len(line.split()) > 1


def _without(text: str, inserted: str) -> str:
    return text.replace(inserted, " ", 1)


def _without_emoji(text: str, inserted: str) -> str:
    """With its variation selector or without."""
    return re.sub(re.escape(inserted[0]) + "\ufe0f?", " ", text, count=1)


def _without_final(text: str) -> str:
    return without_final(text).line


# The order is that of the table.
PERTURBATIONS = (
    Perturbation("upper case", upper_case, str.lower),
    Perturbation("title case", title_case, str.lower),
    Perturbation("no final stop", without_final, _without_final),
    Perturbation("typos", with_typos),
    Perturbation("doubled", doubled, times=2),
    Perturbation("single words", single_word, None),
    Perturbation("emoji", inserting(lambda random: random.choice(EMOJI)), removed=_without_emoji),
    Perturbation("URL", inserting(lambda random: random.choice(URLS)), removed=_without),
    Perturbation("number", inserting(some_number), removed=without_number),
    Perturbation("placeholder", inserting(lambda random: random.choice(PLACEHOLDERS)), removed=_without),
)


def perturbed(perturbation: Perturbation, line: str, *, seed: int) -> Perturbed | None:
    """`line`, which has no tags, perturbed; None where that changes nothing."""
    # By the line, not by its number: the same line is perturbed in the same way in another selection.
    found = perturbation.perturb(line, Random(f"{seed} {perturbation.name} {line}"))
    return found if found.line.strip() and found.line != line else None
