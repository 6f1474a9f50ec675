"""Sentence segmentation by punctuation.

A punctuation mark ends a sentence if a new one can begin after it. A full stop after an abbreviation does not:
abbreviations are the non-breaking prefixes of Moses, from the package sacremoses (English for other languages).
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path

import numpy as np

from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.context import break_id
from transformer_cli.data.normalization import has_letters
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.languages import iso_639_1

# The marks, with the quotes and brackets that close behind them. Most need white space, so that 3.14 and a URL stay
# whole; those of scripts that put none between sentences do not. No pattern here backtracks.
_CLOSING = "\"'”’“»›)\\]」』）］】"
_END = re.compile(
    rf"(?<![.!?…؟۔։])(?P<marks>[.!?…؟۔։]++)[{_CLOSING}]*+(?=\s)(?:\s[»›](?=\s|$))?"
    rf"|[。！？｡][{_CLOSING}]*+(?![。！？｡]|と|って)|[।॥።။]++[{_CLOSING}]*+"
)
_NEXT = re.compile(r"[^\W_]")  # the first letter or digit
_NEAR = 16  # characters in which a sentence comes to its first letter or digit
_OPENING = "\"'“”„‘’«‹([{¿¡—–-"
_BEGIN = re.compile(rf"[^\s{re.escape(_OPENING)}]")  # of the first word of a sentence
_LONGEST_WORD = 40  # characters that an abbreviation can have
_ACRONYM = re.compile(r"\.[^\W\d_a-z]+$")  # U.S, of which the last full stop was cut off
_NO_SPACES = re.compile("bo|dz|ja|km|lo|lzh|my|th|wuu|yue|zh")
_SAMPLE = 5000  # lines: the share is known to a percent
_MEANT = 0.02  # of the lines: those of a text that translates numbers
_NUMERIC_ONLY = "#NUMERIC_ONLY#"
# Languages that write 3rd as 3., where it is in the middle of a sentence.
_ORDINALS = re.compile("bs|cs|da|de|dsb|et|eu|fi|fo|hr|hsb|hu|is|lb|lv|nb|nn|no|pl|se|sk|sl|sr|tr")


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a line; together they hold all of it but white space between them."""
    starts = [0, *_ends(text, language), len(text)]
    parts = (text[start:end].strip() for start, end in pairwise(starts))
    return [part for part in parts if part]


def has_several(text: str, language: str) -> bool:
    """Whether a line holds more than one sentence."""
    return any(text[:end].strip() and text[end:].strip() for end in _ends(text, language))


def share_of_several(corpus: EncodedCorpus, tokenizer: Tokenizer, language: str) -> float:
    """The share of source lines that hold several sentences, of a sample from all over the corpus."""
    chosen = _sample(corpus, tokenizer)
    lines = (tokenizer.decode(corpus.source_ids[start:end].tolist()) for start, end in chosen.values())
    return sum(has_several(line, language) for line in lines) / len(chosen)


def translates_letterless(corpus: EncodedCorpus, tokenizers: Tokenizers) -> bool:
    """Whether most lines without a letter differ from their translations, and so many that it is meant.

    A few do in any text, as ... and …, or 1,000 and 1.000.
    """
    chosen, tags = _sample(corpus, tokenizers.source), tokenizers.source.tag_ids
    n_same = n_other = 0
    for number, (start, end) in chosen.items():
        source = tokenizers.source.decode([i for i in corpus.source_ids[start:end].tolist() if i not in tags])
        if source and not has_letters(source):
            start, end = corpus.target_offsets[number : number + 2]
            is_same = tokenizers.target.decode(corpus.target_ids[start:end].tolist()) == source
            n_same, n_other = n_same + is_same, n_other + (not is_same)
    return n_other > n_same and n_other >= _MEANT * len(chosen)


def _sample(corpus: EncodedCorpus, tokenizer: Tokenizer) -> dict[int, tuple[int, int]]:
    """Source lines from all over the corpus by their numbers: where their ids begin, behind a context, and end."""
    chosen = np.unique(np.linspace(0, len(corpus) - 1, min(len(corpus), _SAMPLE)).astype(np.int64))
    starts, lengths = corpus.source_offsets[chosen], corpus.source_lengths[chosen]
    ends = starts + lengths
    if (divider := break_id(tokenizer)) is not None:
        breaks = (np.flatnonzero(corpus.source_ids[a:b] == divider) for a, b in zip(starts, ends, strict=True))
        starts = starts + np.array([found[-1] + 1 if len(found) else 0 for found in breaks], starts.dtype)
    return dict(zip(chosen.tolist(), zip(starts.tolist(), ends.tolist(), strict=True), strict=True))


def has_no_spaces(language: str) -> bool:
    """Whether a language puts no space between sentences."""
    return _NO_SPACES.fullmatch(iso_639_1(language)) is not None


def _ends(text: str, language: str) -> Iterable[int]:
    has_capitals = text != text.lower()  # a line without any may begin its sentences without one
    language = iso_639_1(language)
    begin = _begin(text, 0)
    for match in _END.finditer(text):
        if match["marks"] is None or _ends_here(text, match, begin, language, has_capitals=has_capitals):
            begin = _begin(text, match.end())
            yield match.end()


def _begin(text: str, start: int) -> int:
    """The start of the first word of the sentence that begins at `start`."""
    match = _BEGIN.search(text, start)
    return match.start() if match else len(text)


def _ends_here(text: str, match: re.Match[str], begin: int, language: str, *, has_capitals: bool) -> bool:
    following = _NEXT.search(text, match.end(), match.end() + _NEAR)
    next_letter = following[0] if following else ""
    if has_capitals and next_letter.islower():
        return False
    if match["marks"] != ".":
        return True
    head = text[max(begin, match.start() - _LONGEST_WORD) : match.start()]
    word = head.rsplit(None, 1)[-1].lstrip(_OPENING) if head and not head[-1].isspace() else ""
    if not word:
        return True
    if word.isdecimal():
        is_first = begin == match.start() - len(word)  # 1. as in a list
        return not is_first and not (len(word) <= 2 and _ORDINALS.fullmatch(language))
    always, before_numbers = _prefixes(language)
    if word in always or (word in before_numbers and next_letter.isdecimal()):
        return False
    is_initial = len(word) == 1 and word.isupper()
    return not is_initial and _ACRONYM.search(word) is None


@cache
def _prefixes(language: str) -> tuple[frozenset[str], frozenset[str]]:
    """Words after which a full stop does not end a sentence: always, and before a number."""
    lines = [line.strip() for line in _prefix_lines(language)]
    words = [line for line in lines if line and not line.startswith("#")]
    numeric = {word.removesuffix(_NUMERIC_ONLY).strip() for word in words if word.endswith(_NUMERIC_ONLY)}
    return frozenset(words), frozenset(numeric)


def _prefix_lines(language: str) -> list[str]:
    """The lines of the file of Moses for a language, or for English.

    They are read from the module that has them alone: to import sacremoses takes half a second, in which it compiles
    patterns that only its tokenizers need.
    """
    package = find_spec("sacremoses")
    place = Path((package and package.origin) or "").parent / "_data_nonbreaking_prefixes.py"
    spec = spec_from_file_location("nonbreaking_prefixes", place) if place.is_file() else None
    if spec is None or spec.loader is None:  # another version than those that are known
        corpus = import_module("sacremoses.corpus")
        return list(corpus.NonbreakingPrefixes().words(language))
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    files: dict[str, str] = module.NONBREAKING_PREFIXES
    return (files.get(f"nonbreaking_prefix.{language}") or files["nonbreaking_prefix.en"]).split("\n")
