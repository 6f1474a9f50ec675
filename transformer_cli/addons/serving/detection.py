"""Detects which loaded language a text is in, with py3langid: naive Bayes over bytes (Lui and Baldwin 2012)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from transformer_cli.data.language_identification import identifier
from transformer_cli.languages import Code

MOST = 2000  # characters that are looked at: more say no more
_TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True)
class Detected:
    """A language, and how sure it is: from 0, where nothing in the text says so, to 1."""

    language: str
    confidence: float


def detect(text: str, languages: Iterable[str]) -> list[Detected]:
    """The detectable ones of `languages`, likeliest first; in the given order if nothing decides."""
    labels = {language: Code.of(language).language for language in languages}
    wanted = set(labels.values())
    shares = {label: share for label, share in identifier().rank(_TAG.sub(" ", text[:MOST])) if label in wanted}
    if len(shares) > 1 and len(set(shares.values())) == 1:
        shares = dict.fromkeys(shares, 0.0)  # as for digits: the text has nothing that it looks for
    total = sum(shares.values()) or 1.0
    found = [Detected(language, shares[label] / total) for language, label in labels.items() if label in shares]
    return sorted(found, key=lambda one: -one.confidence)
