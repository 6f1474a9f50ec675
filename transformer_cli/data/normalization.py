"""Normalises a line before it is cut into pieces, and decides when two lines are the same sentence.

White space of every kind and number becomes one plain space. Format characters, which a reader does not see, are left
out, but for the joiners that a script needs. Letters stay as they are written: Unicode's normal form NFC would replace
over a thousand of them (য় of Bengali by two code points, the ideographs of some Japanese names by others), and a model
that is trained on what NFC leaves can never write them. NFC only says what equals what: `canonical`.

`Spelling` is the rest of the rule. It needs the characters of a vocabulary: a text that is spelled in another of the
ways that Unicode holds equal is read as the one that the vocabulary has.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import permutations

from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.data.substitutes import substitutes

_MOST_FOUND = 100_000  # spellings that are kept
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# Scripts whose letters are joined, or kept from it, by U+200C and U+200D: from Arabic to Myanmar, Khmer and Mongolian.
_JOINED = "\u0600-\u109f\u1700-\u1cff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff\U0001e900-\U0001e95f"
_RUNS_ON = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # scripts in which U+200B divides words
_EMOJI = "\u00a9\u00ae\u203c-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_EMOJI_ENDS = f"{_EMOJI}\ufe0e\ufe0f\U000e007f"
_TAGS = "\U000e0020-\U000e007f"  # of a flag, as that of Scotland
_NEVER_READ = "\u00ad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0001"
_FORMAT_CHARACTERS = re.compile(
    f"[{_NEVER_READ}]"
    f"|(?<![{_RUNS_ON}])\u200b|\u200b(?![{_RUNS_ON}])"
    f"|(?<![{_JOINED}{_EMOJI_ENDS}])[\u200c\u200d]|(?<=[{_EMOJI_ENDS}])(?:\u200c|\u200d(?![{_EMOJI}]))"
    f"|(?<![{_EMOJI}{_TAGS}])[{_TAGS}]+"
)
_MAY_BE_FORMAT = re.compile(f"[{_NEVER_READ}\u200b-\u200d{_TAGS}]")  # few lines have any: this is the faster search


def normalize(line: str) -> str:
    """The line with single plain spaces, and without format characters and what UTF-8 cannot hold."""
    if not line.isascii():
        line = _LONE_SURROGATE.sub("\ufffd", visible(line)).replace(SPACE, " ")
    return " ".join(line.split())


def visible(line: str) -> str:
    """The line without format characters."""
    return line if line.isascii() or _MAY_BE_FORMAT.search(line) is None else _FORMAT_CHARACTERS.sub("", line)


def canonical(line: str) -> str:
    """The key of a sentence: two lines with the same one are the same, however they are spaced or composed.

    Capitals and punctuation count.
    """
    return unicodedata.normalize("NFC", normalize(line))


def canonical_fields(line: str) -> str:
    """The key of several texts, or words, with a tab between two."""
    return "\t".join(map(canonical, line.split("\t"))).strip()


def format_characters(line: str) -> list[str]:
    """The format characters that `normalize` leaves out of a line."""
    return [] if _MAY_BE_FORMAT.search(line) is None else _FORMAT_CHARACTERS.findall(line)


def has_letters(text: str) -> bool:
    """Whether a text has anything to translate.

    Digits are translated too where they are not the usual ones: those of Arabic and Hindi, and the wide ones of
    Chinese.
    """
    return any(sign.isalpha() or (sign.isdecimal() and not sign.isascii()) for sign in text)


class Spelling:
    """Rewrites normalised text into the characters of an `alphabet`, where Unicode has equal ways to write it.

    A letter with marks (e and U+0301) becomes one code point (é) where the alphabet has that. A letter of one code
    point stays if the alphabet has it, although NFC would replace it. Marks keep their order.

    With `respells` what the alphabet lacks is written in any other canonically equal way that it has. With `reads`
    typographic marks and compatibility forms that it lacks become the plainer ones that it has: ’ is read as '.
    """

    def __init__(self, alphabet: Iterable[str], *, respells: bool = True, reads: bool = False) -> None:
        self._alphabet = frozenset(alphabet) | {" "}
        self._respells, self._reads = respells, reads
        kept = sorted(c for c in self._alphabet if not c.isascii() and unicodedata.normalize("NFC", c) != c)
        self._kept = re.compile(f"([{re.escape(''.join(kept))}])") if kept else None
        self._kept_of = {unicodedata.normalize("NFC", letter): letter for letter in kept}
        self._found: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        return text if self._is_plain(text) else self._each_letter(text, self._spelled)

    def composed(self, text: str) -> str:
        """Every letter in one code point, if there is one for it."""
        return text if unicodedata.is_normalized("NFC", text) else self._each_letter(text, _composed)

    def _each_letter(self, text: str, spell: Callable[[str], str]) -> str:
        parts = [text] if self._kept is None else self._kept.split(text)
        return "".join(
            part if n % 2 or self._is_plain(part) else letters().sub(lambda match: spell(match[0]), part)
            for n, part in enumerate(parts)
        )

    def _is_plain(self, text: str) -> bool:
        return unicodedata.is_normalized("NFC", text) and (not self._respells or self._alphabet.issuperset(text))

    def _spelled(self, letter: str) -> str:
        found = self._found.get(letter)
        if found is None:
            found = self._choose(letter)
            if len(self._found) < _MOST_FOUND:  # a text of letters with many marks each has no end of them
                self._found[letter] = found
        return found

    def _choose(self, letter: str) -> str:
        """The spelling of a letter with its marks, or of a sign."""
        nfc, composed = unicodedata.normalize("NFC", letter), _composed(letter)
        for one in (composed, letter):
            if self._alphabet.issuperset(one):
                return one
        if not self._respells:
            return letter
        other = "".join(map(self._respelled, nfc))
        if not self._alphabet.issuperset(other):
            for sequence, kept in self._kept_of.items():
                other = other.replace(sequence, kept)
        if self._alphabet.issuperset(other):
            return other
        read = "".join(map(self._read, other)) if self._reads else other
        return read if read != nfc or len(letter) == 1 else composed

    def _respelled(self, character: str) -> str:
        if character in self._alphabet:
            return character
        ways = [self._kept_of.get(character, character), *spellings(character)]
        return next((way for way in ways if self._alphabet.issuperset(way)), character)

    def _read(self, character: str) -> str:
        if character in self._alphabet:
            return character
        ways = substitutes(character)
        return next((way for way in ways if self._alphabet.issuperset(way)), character)


def _composed(letter: str) -> str:
    nfc = unicodedata.normalize("NFC", letter)
    return nfc if len(nfc) < len(letter) else letter


def spelling_of(lines: Sequence[str], known: frozenset[str] = frozenset()) -> Spelling:
    """The spelling that a text has itself, with which a vocabulary is trained on it.

    A letter that the text has in one code point and in several is written in the way that is more frequent. `known` is
    the alphabet of a vocabulary to which the text adds.
    """
    characters: set[str] = set()
    odd: list[str] = []
    for line in lines:
        text = normalize(line)
        characters.update(text)
        if not unicodedata.is_normalized("NFC", text):
            odd.append(text)
    if known:
        characters = {c for c in characters if not any(map(known.issuperset, spellings(c)))}
    return Spelling(characters - _mostly_apart(lines, odd, characters) | known)


def _mostly_apart(lines: Iterable[str], odd: Iterable[str], characters: Iterable[str]) -> set[str]:
    """The letters that stand more often in several code points than in one; `odd` are the lines that have any."""
    spelling = Spelling(characters)
    apart: Counter[str] = Counter()
    for text in odd:
        apart += Counter(spelling.composed(text)) - Counter(text)
    if not apart:
        return set()
    whole = Counter(character for line in lines for character in normalize(line) if character in apart)
    return {letter for letter, n in apart.items() if n > whole[letter]}


def spellings(letter: str) -> list[str]:
    """The canonically equal ways to write a letter: composed, with the last marks apart (ḗ as ē + ´), with all.

    Marks above and below a letter may come in any order.
    """
    composed, apart = (unicodedata.normalize(form, letter) for form in ("NFC", "NFD"))
    orders = ["".join((apart[0], *marks)) for marks in permutations(apart[1:])] if len(apart) < 5 else [apart]
    ways = {composed: None}
    for n in range(len(apart), 0, -1):  # of the code points that are one
        for order in orders:
            start = unicodedata.normalize("NFC", order[:n])
            if len(start) == 1 and unicodedata.normalize("NFC", start + order[n:]) == composed:
                ways[start + order[n:]] = None
    return [*ways, apart] if apart not in ways else list(ways)


@cache
def letters() -> re.Pattern[str]:
    """A character with the marks behind it that Unicode may compose with it, or put in another order."""
    found = set("".join(map(chr, (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)))))  # of Hangul
    for character in map(chr, range(_MARKS_END)):
        if unicodedata.combining(character):
            found.add(character)
        apart = unicodedata.decomposition(character).split()
        if len(apart) == 2 and not apart[0].startswith("<"):
            found.add(chr(int(apart[1], 16)))
    return re.compile(f"(?s:.)[{re.escape(''.join(sorted(found)))}]*")


_MARKS_END = 0x1F000  # no mark has a higher number
