"""Detects which loaded language a text is in, with py3langid: naive Bayes over bytes (Lui and Baldwin 2012)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformer_cli.data.checks.languages import SCRIPTS
from transformer_cli.data.language_identification import identifier
from transformer_cli.languages import Code

MOST = 2000  # characters that are looked at: more say no more
FIRST_HAN = "\u4e00"
# Characters that one of two encodings has, and the other lacks, are of one script alone.
_ENCODINGS = {"hans": ("gb2312", "big5"), "hant": ("big5", "gb2312")}
_NAMED = {"latn": "Latin", "cyrl": "Cyrillic", "arab": "Arabic", "deva": "Devanagari"}
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
    codes = {label: [language for language, its in labels.items() if its == label] for label in shares}
    scripts = {label: _script_shares(text[:MOST], of_label) for label, of_label in codes.items()}
    found = [
        Detected(language, scripts[label][language] * shares[label] / total)
        for language, label in labels.items()
        if label in shares
    ]
    return sorted(found, key=lambda one: -one.confidence)


def _script_shares(text: str, languages: Sequence[str]) -> dict[str, float]:
    """How likely each code of one language is by its script, which the identifier does not tell apart.

    The first has all where no letter decides.
    """
    counts = [_n_letters(text, Code.of(language).usual_script) if len(languages) > 1 else 0 for language in languages]
    if not (total := sum(counts)):
        return {language: float(n == 0) for n, language in enumerate(languages)}
    return {language: count / total for language, count in zip(languages, counts, strict=True)}


def _n_letters(text: str, script: str | None) -> int:
    """How many letters of a text are of a script and of no other; of no script that is not listed."""
    if script in _ENCODINGS:
        own, other = _ENCODINGS[script]
        return sum(one >= FIRST_HAN and _encodes(one, own) and not _encodes(one, other) for one in text)
    return len(re.findall(f"[{SCRIPTS[_NAMED[script]]}]", text)) if script in _NAMED else 0


def _encodes(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
