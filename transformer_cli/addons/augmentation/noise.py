"""What people type, and what programs put into texts: perturbations of a line, which follow from a random generator.

`augment` changes training text with these, and the robustness suite perturbs a test set with them.
"""

import re
import unicodedata
from collections.abc import Sequence
from random import Random

_STOPS = ".!?\u037e…。｡．！？؟۔।॥։።၊။៕"  # full stops, question and exclamation marks of the scripts that we know of
_CLOSING = "\"'”“’‘»«›‹)]」』）】］ \u00a0\u202f"  # may stand behind them, as “ and « in German
_CHARACTER = re.compile(r"[!-~]+|\S")  # or what is written with spaces, as a whole
_WORD = re.compile(r"\S+")
_JOINERS = "\u200c\u200d"
_BOUND_TO_THE_LEFT = _JOINERS + "ำຳ"
_BOUND_TO_THE_RIGHT = "\u200dเแโใไເແໂໃໄ"  # vowels of Thai and Lao that are written before their consonant
_VIRAMA = 9  # combining class of what stacks the next consonant, as in Khmer and Burmese
_TYPO_LENGTH = 4  # letters and marks of the words that get typos, which have three letters at least
TYPO_SHARE = 0.1  # of these words, and one at least
_DOTTED_I = re.compile(r"(?:az|aze|azj|tr|tur)(?:[-_].*)?", re.IGNORECASE)  # languages with i → İ and ı → I

Spans = Sequence[tuple[int, int]]  # where parts of a line begin and end


def upper_case(line: str, language: str = "") -> str:
    """The line in capitals; `language` is a code, as tr or tur_Latn."""
    return (line.replace("i", "İ") if _DOTTED_I.fullmatch(language) else line).upper()


def lower_case(line: str, language: str = "") -> str:
    """The line in small letters; `language` is a code, as for `upper_case`."""
    return (line.replace("İ", "i").replace("I", "ı") if _DOTTED_I.fullmatch(language) else line).lower()


def title_case(line: str, language: str = "") -> str:
    """Every word with a capital; `don't` does not become `Don'T`, as with `str.title`."""
    return re.sub(r"(?<!\S)([^\w\s]*)(\w)", lambda found: found[1] + _title(found[2], language), line)


def _title(letter: str, language: str) -> str:
    """The letter as the first of a word, which in some cases differs from its capital."""
    return upper_case(letter, language) if letter == "i" else letter.title()


def without_final_stop(line: str) -> str:
    """The line without its final stop, also one before closing quotes or brackets, which stay."""
    body = line.rstrip(_CLOSING)
    return body.rstrip(_STOPS + " ") + line[len(body) :] if body and body[-1] in _STOPS else line


def with_typos(line: str, random: Random) -> str:
    """Two letters swapped, one left out or one doubled, in a tenth of the words of four letters or more, one at least.

    The first letter stays. A letter keeps its marks, as vowel signs, which count as letters of the word.
    """
    words = [(at, word) for at, word in _words(line) if len(word) > 2 and sum(map(len, word)) >= _TYPO_LENGTH]
    if not words:
        return line
    chosen = sorted(random.sample(range(len(words)), k=max(1, round(TYPO_SHARE * len(words)))), reverse=True)
    for i in chosen:  # from the right, so that the places of the others stay
        at, word = words[i]
        line = line[:at] + "".join(_mistyped(word, random)) + line[at + sum(map(len, word)) :]
    return line


def _words(line: str) -> list[tuple[int, list[str]]]:
    """The start of each word, and its letters with their marks."""
    words: list[tuple[int, list[str]]] = []
    goes_on = False
    for at, character in enumerate(line):
        if goes_on and (character in _JOINERS or unicodedata.category(character)[0] == "M"):
            words[-1][1][-1] += character
        elif character.isalpha():
            if not goes_on:
                words.append((at, []))
            words[-1][1].append(character)
            goes_on = True
        else:
            goes_on = False
    return words


def _mistyped(word: list[str], random: Random) -> list[str]:
    place, kind = random.randrange(1, len(word) - 1), random.choice(("swapped", "left out", "doubled"))
    before, letter, after = word[:place], word[place], word[place + 1 :]
    if kind == "swapped" and letter != after[0]:
        return [*before, after[0], letter, *after[1:]]
    return before + after if kind == "left out" else [*before, letter, letter, *after]


def doubled(line: str) -> str:
    return f"{line} {line}" if has_blanks(line) else line + line


def single_word(line: str, random: Random) -> str:
    """One of the words of two letters or more; of a script without blanks, none, since its words are unknown."""
    words = ["".join(word) for _, word in _words(line) if len(word) > 1]
    return random.choice(words) if has_blanks(line) and words else line


def inserted_at(line: str, thing: str, place: float, kept: Spans = (), *, has_spaces: bool = True) -> str:
    """`thing` between two words, as far from the first as `place` says (1: behind the last); or behind a lone word.

    In languages without spaces it stands between two characters, or behind the last. Within the spans `kept`, as those
    of placeholders that are in the line, it never stands.
    """
    if has_spaces:
        ends = word_ends(line, kept)
    else:
        ends = [end for end in _ends(_CHARACTER, line, kept) if _may_part(line, end)]
    end = ends[round(place * (len(ends) - 1))] if ends else 0
    before, after = line[:end], line[end:]
    return f"{before} {thing}{after}".strip() if has_spaces else _in_between(before, thing, after)


def word_ends(line: str, kept: Spans = ()) -> list[int]:
    """The ends of the words, but for those that end within the spans `kept`."""
    return _ends(_WORD, line, kept)


def _ends(pattern: re.Pattern[str], line: str, kept: Spans) -> list[int]:
    ends = [match.end() for match in pattern.finditer(line)]
    return [place for place in ends if not any(start < place < end for start, end in kept)]


def _in_between(before: str, thing: str, after: str) -> str:
    """The three texts joined, with a space only where `thing` would run into ASCII, or where there is one.

    No syllable is taken apart.
    """
    gap = " " if _runs_into(before[-1:]) or after[:1].isspace() else ""
    return f"{before}{gap}{thing}{' ' if _runs_into(after[:1]) else ''}{after}"


def _may_part(line: str, at: int) -> bool:
    """Whether what is before and behind `at` are characters of their own."""
    if at == len(line):
        return True
    is_mark = unicodedata.category(line[at]).startswith("M") or line[at] in _BOUND_TO_THE_LEFT
    is_joined = unicodedata.combining(line[at - 1]) == _VIRAMA or line[at - 1] in _BOUND_TO_THE_RIGHT
    return not (is_mark or is_joined)


def _runs_into(character: str) -> bool:
    return character.isascii() and not character.isspace() and character != ""


def some_number(random: Random) -> str:
    """A number of two to six digits."""
    n_digits = random.randint(2, 6)
    return str(random.randrange(10 ** (n_digits - 1), 10**n_digits))


def has_blanks(line: str) -> bool:
    return len(line.split()) > 1
