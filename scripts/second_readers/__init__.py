"""Odd files of each format, and a program of another library that reads their pairs; one module a format.

A module has CASES, a function of a folder and a random generator that writes the files, and PROGRAM, the body of a
Python function of `case` that returns the pairs of one, or raises. What PROGRAM needs is in `scripts/judges readers`.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

WORDS = [
    "one",
    "two",
    "apples,",
    "pears;",
    "1.5",
    "«oui»",
    "naïve",
    "☂",
    "—",
    '"so"',
    "'it'",
    "don't",
    "a/b",
    "#4",
    "the",
]


@dataclass(frozen=True)
class Case:
    """A file of pairs from English to French."""

    name: str
    path: str  # of a file or folder
    columns: tuple[str, str] = ("en", "fr")
    settings: tuple[str, ...] = ()  # overrides that tfm gets beside data.train
    options: dict[str, Any] = field(default_factory=dict)  # for PROGRAM


def sentence(random: Random, breaks: str = "") -> str:
    """Words, with marks that formats must escape; among them those of `breaks`."""
    words = random.choices([*WORDS, *breaks], k=random.randint(1, 12))
    return " ".join(words).strip() or "x"


def pairs(random: Random, n: int, breaks: str = "") -> list[tuple[str, str]]:
    return [(sentence(random, breaks), sentence(random, breaks)) for _ in range(n)]
