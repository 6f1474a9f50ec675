"""Characters that are not in the vocabulary: the model reads <unk> for each, or its UTF-8 bytes."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from transformer_cli.data.normalization import canonical
from transformer_cli.data.substitutes import QUOTES
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.logs import LOGGER

_N_SHOWN = 10  # characters in a message; the rest are counted

_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"  # of a glyph's variant
_MARKS = f"\u0300-\u036f\u20d0-\u20ff{_SELECTORS}\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
# What a reader takes for one character: a flag, a letter with its marks, an emoji of several that ZWJ joins.
_CHARACTER = re.compile(rf"[\U0001f1e6-\U0001f1ff]{{2}}|.[{_MARKS}]*(?:\u200d\S[{_MARKS}]*)*", re.DOTALL)
_SELECTOR = re.compile(f"[{_SELECTORS}]")
_JOINS = "\u200d\ufe0e\ufe0f"  # not printable by themselves, and needed within an emoji


def unknown_characters(line: str, ids: Sequence[int], tokenizer: Tokenizer) -> tuple[str, ...]:
    """The characters of `line`, which was encoded as `ids`, that are no pieces of the vocabulary: each once, in order.

    White space, control characters, what only formats (joiners, soft hyphens, variation selectors) and U+FFFD, which
    stands for text that was lost before, are ignored: a translation loses nothing by them. An emoji of
    several code points is one character. A vocabulary of whole words is meant to lack rare ones: nothing is reported.
    """
    unread = QUOTES.difference(tokenizer.alphabet)
    are_known = tokenizer.unknown_ids.isdisjoint(ids) and (not unread or unread.isdisjoint(line))
    if tokenizer.has_words_only or are_known:
        return ()
    characters = dict.fromkeys(_CHARACTER.findall(split_tags(canonical(line), tokenizer.tags)[1]))
    return tuple(character for character in characters if _is_unknown(character, tokenizer))


@lru_cache(maxsize=10_000)  # a text has few characters, and each many times
def _is_unknown(character: str, tokenizer: Tokenizer) -> bool:
    (ids,) = tokenizer.encode([_visible(character)], n_threads=1)
    return not tokenizer.unknown_ids.isdisjoint(ids) or (character in QUOTES and not ids)


def _visible(character: str) -> str:
    text = _SELECTOR.sub("", character)
    return "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Zs") and c != "\ufffd")


class UnknownCounter:
    """Counts lines with unknown characters, and collects these characters."""

    def __init__(self) -> None:
        self.n_lines = 0
        self.first_line = 0
        self.characters: dict[str, None] = {}  # in the order in which they came

    def add(self, line: int, characters: Iterable[str]) -> None:
        """Count the unknown characters of a line, by its number."""
        found = dict.fromkeys(characters)
        if found:
            self.first_line = self.first_line or line
            self.n_lines += 1
            self.characters |= found

    def warn(self, unit: str = "line", *, where: str = "") -> None:
        """One warning, if any line had one; `unit` is what a line holds."""
        if self.n_lines:
            what = "characters that the model's vocabulary does not have"
            LOGGER.warning("%s%s", where, self._counted(what, unit))

    def note(self, what: str) -> None:
        """One line of the log, if any line had `what`."""
        if self.n_lines:
            LOGGER.info("%s", self._counted(what, "line"))

    def _counted(self, what: str, unit: str) -> str:
        n = f"{self.n_lines:,} {unit}{'s' * (self.n_lines > 1)}"
        return f"{n} with {what}, the first is {unit} {self.first_line}: {shown_characters(list(self.characters))}"


def shown_characters(characters: Sequence[str]) -> str:
    """The first few, with what cannot be printed escaped."""
    more = f" and {len(characters) - _N_SHOWN:,} more" if len(characters) > _N_SHOWN else ""
    return " ".join(map(_shown, characters[:_N_SHOWN])) + more


def _shown(character: str) -> str:
    return "".join(c if c.isprintable() or c in _JOINS else f"U+{ord(c):04X}" for c in character)
