"""A corpus whose pairs were changed once, as by cleaning, with the lines of its two sides in place of its files."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from transformer_cli.data.lines import Lines
from transformer_cli.data.readers import Corpus
from transformer_cli.data.readers.base import Pair

_PAIRS_AT_A_TIME = 100_000  # in memory, where there is a folder to spool to


def both_sides(pairs: Iterator[Pair], stem: Path | None) -> tuple[Lines, Lines]:
    """The lines of both sides of `pairs`, in files that begin with `stem` where there are many."""
    sides = Lines(""), Lines("")
    for n_pairs, pair in enumerate(pairs, 1):
        for lines, text in zip(sides, pair, strict=True):
            lines.texts.append(text)
        if stem is not None and n_pairs % _PAIRS_AT_A_TIME == 0:
            for side, lines in enumerate(sides):
                lines.spool_to(stem.with_suffix(f".{side}"))
    return sides


def of_both_sides(
    corpus: Corpus, files: Sequence[Lines], sides: tuple[Lines, Lines]
) -> tuple[Corpus, tuple[Lines, Lines]]:
    """The corpus with one file for each side; its warnings are still of the files that it was read from."""
    for side, lines in zip(sides, (files[0], files[-1]) if files else (), strict=False):
        side.name = lines.name
    sides[0].bad = {index: fault for lines in files for index, fault in lines.bad.items()}

    def pairs(sides: Sequence[Lines]) -> Iterator[Pair]:
        return zip(sides[0].each(), sides[1].each(), strict=True)

    return replace(corpus, pairs=pairs, warnings=lambda _: corpus.warnings(files)), sides
