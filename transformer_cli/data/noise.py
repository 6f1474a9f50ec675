"""What people type, and what programs put into texts: perturbations of a line, which follow from a random generator.

Training augments its text with these (`data.augment`), and the robustness suite perturbs a test set with them.
"""

import re
from random import Random

_STOPS = ".!?…。｡．！？؟۔।॥։።၊။៕"  # full stops, question and exclamation marks of the scripts that we know of
_CLOSING = "\"'”’»›)]」』） "  # may stand behind them
_WORD = re.compile(r"[^\W\d_]+")
_TYPO_LENGTH = 4  # letters of the words that get typos
TYPO_SHARE = 0.1  # of these words, and one at least


def upper_case(line: str) -> str:
    return line.upper()


def title_case(line: str) -> str:
    """Every word with a capital; `don't` does not become `Don'T`, as with `str.title`."""
    return re.sub(r"(?<!\S)([^\w\s]*)(\w)", lambda found: found[1] + found[2].upper(), line)


def without_final_stop(line: str) -> str:
    """Also before closing quotes or brackets, which stay."""
    body = line.rstrip(_CLOSING)
    return body.rstrip(_STOPS + " ") + line[len(body) :] if body and body[-1] in _STOPS else line


def with_typos(line: str, random: Random) -> str:
    """Two letters swapped, one left out or one doubled, in a tenth of the words of four letters or more, one at least.

    The first letter stays.
    """
    words = [found for found in _WORD.finditer(line) if len(found[0]) >= _TYPO_LENGTH]
    if not words:
        return line
    chosen = sorted(random.sample(range(len(words)), k=max(1, round(TYPO_SHARE * len(words)))), reverse=True)
    for i in chosen:  # from the right, so that the places of the others stay
        word = words[i]
        line = line[: word.start()] + _mistyped(word[0], random) + line[word.end() :]
    return line


def _mistyped(word: str, random: Random) -> str:
    place, kind = random.randrange(1, len(word) - 1), random.choice(("swapped", "left out", "doubled"))
    before, letter, after = word[:place], word[place], word[place + 1 :]
    if kind == "swapped" and letter != after[0]:
        return before + after[0] + letter + after[1:]
    return before + after if kind == "left out" else before + letter + letter + after


def doubled(line: str) -> str:
    return f"{line} {line}" if has_blanks(line) else line + line


def single_word(line: str, random: Random) -> str:
    """One of the words of two letters or more; of a script without blanks, none, since its words are unknown."""
    words = [word for word in _WORD.findall(line) if len(word) > 1]
    return random.choice(words) if has_blanks(line) and words else line


def inserted_at(line: str, thing: str, place: float) -> str:
    """`thing` between two words, as far from the first as `place` says (1: behind the last); or behind a lone word."""
    words = line.split()
    index = 1 + round(place * (len(words) - 1))
    return " ".join([*words[:index], thing, *words[index:]])


def some_number(random: Random) -> str:
    """Of two to six digits."""
    n_digits = random.randint(2, 6)
    return str(random.randrange(10 ** (n_digits - 1), 10**n_digits))


def has_blanks(line: str) -> bool:
    return len(line.split()) > 1
