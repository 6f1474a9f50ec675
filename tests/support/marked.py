"""Stand-in translators that mark each word of a text, and leave the words in order or reverse them."""

import re
from collections.abc import Callable, Sequence

from tests.addons.documents.test_markup_properties import translated
from transformer_cli.decoding.results import Translated

MARK = "ж"  # a letter that no source has


def in_order(texts: Sequence[str]) -> list[Translated]:
    words = [text.split() for text in texts]
    return [translated(" ".join(map(marked, one)), [(i, i) for i in range(len(one))]) for one in words]


def reversed_order(texts: Sequence[str]) -> list[Translated]:
    words = [text.split() for text in texts]
    return [
        translated(" ".join(map(marked, one[::-1])), [(len(one) - 1 - j, j) for j in range(len(one))]) for one in words
    ]


def marked(word: str) -> str:
    """The word with the mark behind its last letter or digit, if it has any."""
    return re.sub(r"(?<=\w)(?=\W*\Z)", MARK, word, count=1)


def unmarked(text: str) -> str:
    return text.replace(MARK, "")


class Recorder:
    """A translator that keeps the texts that it was given."""

    def __init__(self, translate: Callable[[Sequence[str]], list[Translated]]) -> None:
        self.translate = translate
        self.texts: list[str] = []

    def __call__(self, texts: Sequence[str]) -> list[Translated]:
        self.texts += texts
        return self.translate(texts)
