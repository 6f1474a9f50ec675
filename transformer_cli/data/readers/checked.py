"""The pairs of a plugin's reader, each of which is checked: what it gives may be anything."""

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from transformer_cli.data.lines import NO_SURROGATES, Lines, is_encodable
from transformer_cli.data.readers.base import Corpus, Pair
from transformer_cli.errors import DataError, TfmError
from transformer_cli.plugins import RAISED, plugin_fault
from transformer_cli.registry import format_place, is_ours, place_of


def checked_pairs(
    corpus: Corpus, files: Sequence[Lines], on_fault: Callable[[str], None] = lambda fault: None
) -> Iterator[Pair]:
    """The pairs of a corpus, without what a plugin's reader gives that is no pair: `on_fault` gets what it is.

    Raises DataError for what the reader raises, and TfmErrors as they are.
    """
    if is_ours(corpus.pairs):
        return corpus.pairs(files)
    return _checked(corpus, files, on_fault)


class PairHash:
    """The number of pairs so far, and a hash of them in their order."""

    def __init__(self) -> None:
        self.n, self._hash = 0, hashlib.blake2b(digest_size=16)

    def add(self, pair: Pair) -> None:
        self.n += 1
        self._hash.update("\n".join([*pair, ""]).encode())  # neither text has a line break

    @property
    def value(self) -> tuple[int, str]:
        return self.n, self._hash.hexdigest()


def same_pairs(corpus: Corpus, files: Sequence[Lines], first: tuple[int, str]) -> Iterator[Pair]:
    """The pairs of another pass over a corpus of which the first had the hash `first`.

    Raises DataError where a plugin's reader gives other pairs than then: what was counted, held out and left out of
    the first ones would not hold for these.
    """
    if is_ours(corpus.pairs):
        yield from corpus.pairs(files)
        return
    found = PairHash()
    for pair in checked_pairs(corpus, files):
        found.add(pair)
        if found.n > first[0]:
            break
        yield pair
    if found.value != first:
        raise DataError(
            f"{_name(corpus, files)}: the reader gives other pairs at another pass over the text"
            f" ({place_of(corpus.pairs)}). Make `pairs` give the same pairs each time, in the same order"
        )


def _name(corpus: Corpus, files: Sequence[Lines]) -> str:
    return corpus.name or ", ".join(lines.name for lines in files) or "data"


def _checked(corpus: Corpus, files: Sequence[Lines], on_fault: Callable[[str], None]) -> Iterator[Pair]:
    name, n = _name(corpus, files), 0
    try:
        pairs: Any = corpus.pairs(files)
        if not isinstance(pairs, Iterable):
            raise DataError(f"{place_of(corpus.pairs)}: returned {pairs!r:.80}, not the pairs of {name}. Yield them")
        for n, pair in enumerate(pairs, start=1):
            if fault := _fault_of(pair):
                on_fault(f"{name}: pair {n:,} {fault} ({_place(corpus, pairs)})")
            else:
                yield pair
    except (TfmError, OSError):
        raise
    except RAISED as error:
        if (fault_of_plugin := plugin_fault(error)) is None:
            raise
        raise DataError(f"{name}: after {n:,} pairs: {fault_of_plugin}") from error


def _place(corpus: Corpus, pairs: object) -> str:
    """The place where the reader gave the newest pair: the line of its `yield`, if it is a generator."""
    frame = pairs.gi_frame if inspect.isgenerator(pairs) else None
    if frame is None:
        return place_of(corpus.pairs)
    return format_place(corpus.pairs.__module__, frame.f_code.co_filename, frame.f_lineno)


def _fault_of(pair: object) -> str | None:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return f"is {pair!r:.80}, not a tuple of two texts"
    for text in pair:
        if not isinstance(text, str):
            return f"has {text!r:.80}, a {type(text).__name__}, where a text belongs"
        if "\n" in text:
            return f"has a line break within a text: {text!r:.80}"
        if not is_encodable(text):
            return f"{NO_SURROGATES}: {text!r:.80}"
    return None
