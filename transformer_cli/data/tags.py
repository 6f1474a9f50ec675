"""Tags at the beginning of source lines: found, put there, and taken off."""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from transformer_cli.config.tags import tags_in
from transformer_cli.data.normalization import visible


def split_tags(line: str, known: Sequence[str]) -> tuple[list[str], str]:
    """The tags of `known` that a line begins with, and the rest of it; of two that fit, the longer one.

    White space behind a tag may be missing, unless the tag ends as a word does; format characters do not count.
    """
    found: list[str] = []
    rest = visible(line).lstrip() if known else ""
    plain, lengths, others = _by_length(tuple(known))
    while rest:
        fits = [rest[:n] for n in lengths if rest[:n] in plain]
        tag = max((tag for tag in (*fits, *others) if _begins(rest, tag)), key=len, default="")
        if not tag:
            break
        found.append(tag)
        rest = rest[_length(rest, tag) :].lstrip()
    return (found, rest) if found else ([], line)


def with_tags(line: str, entry: str, known: Sequence[str]) -> str:
    """The line behind the tags of `entry`; as it is if it is blank, or begins with one of `known` by itself."""
    if not entry or not line.strip() or split_tags(line, known)[0]:
        return line
    return " ".join([*tags_in(entry), line])


@lru_cache(maxsize=64)
def _by_length(known: tuple[str, ...]) -> tuple[frozenset[str], list[int], list[str]]:
    """The tags that are looked up as they are, how long they are, and the others: a model may have hundreds."""
    plain = frozenset(tag for tag in known if tag.isascii())
    return plain, sorted({len(tag) for tag in plain}), [tag for tag in known if tag not in plain]


def _begins(line: str, tag: str) -> bool:
    n = _length(line, tag)
    return n > 0 and not (tag[-1].isalnum() and line[n : n + 1].strip())


def _length(line: str, tag: str) -> int:
    """How many characters of the line are the tag: more than it has where letters are typed apart from their marks."""
    if line.startswith(tag) or tag.isascii():
        return len(tag) * line.startswith(tag)
    lengths = range(len(tag) + 1, min(len(line), _LONGEST * len(tag)) + 1)
    return next((n for n in lengths if unicodedata.normalize("NFC", line[:n]) == tag), 0)


_LONGEST = 4  # code points that a composed letter can be written with
