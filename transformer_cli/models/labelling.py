"""Labels of texts and words, and the models that predict them, as `load_classifier` and `load_tagger` return them.

The add-ons of the tasks have the models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class TextLabel:
    """The class of a text; None of a blank one, which has no probabilities either."""

    label: str | None
    probabilities: Mapping[str, float]  # of every class


@dataclass(frozen=True)
class WordLabels:
    """The words of a sentence, and for each its label and the probability of that."""

    words: Sequence[str]
    tags: Sequence[str]
    probabilities: Sequence[float]


class TextClassifier(Protocol):
    """A classifier; any number of threads may share it."""

    @property
    def labels(self) -> Sequence[str]:
        """The classes."""

    def classify(self, texts: "Sequence[str | tuple[str, str]]") -> list[TextLabel]:
        """The class of each text, in order. A model of pairs takes pairs, or first<TAB>second.

        Raises DataError for what is no pair.
        """


class SentenceTagger(Protocol):
    """A tagger; any number of threads may share it."""

    @property
    def labels(self) -> Sequence[str]:
        """The labels of words."""

    def tag(self, sentences: "Sequence[str | Sequence[str]]") -> list[WordLabels]:
        """The labels of each sentence: its words, or a text in which spaces divide them."""
