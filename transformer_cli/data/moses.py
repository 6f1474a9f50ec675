"""Tokenization of words as in Moses, for models that were trained on such text; by sacremoses."""

import re
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any

# What Moses writes as a token, or at the beginning of one; elsewhere `&quot;` is a rest of HTML.
_TOKEN = re.compile(r"(?:^| )(?:(?:&(?:quot|#91|#93|#124);|@-@)(?: |$)|&apos;)")
_MANY = 0.01  # of the lines
_BY_CHANCE = 2  # lines


class MosesText:
    """Moses's text processing of one language, by its code.

    The library is imported when it is used: it takes a while.
    """

    def __init__(self, language: str) -> None:
        self.language = language

    @cached_property
    def _tokenizer(self) -> Any:
        return import_module("sacremoses").MosesTokenizer(self.language)

    @cached_property
    def _detokenizer(self) -> Any:
        return import_module("sacremoses").MosesDetokenizer(self.language)

    def tokenized(self, text: str) -> str:
        """The tokens that `--tokenizer moses` of fairseq makes: hyphens are split, and XML entities escaped."""
        found: str = self._tokenizer.tokenize(text, aggressive_dash_splits=True, return_str=True, escape=True)
        return found

    def detokenized(self, text: str) -> str:
        found: str = self._detokenizer.detokenize(text.split())
        return found


def tokenized_lines(lines: Sequence[str]) -> int:
    """How many lines have tokens of Moses, if they are more than chance puts into plain text; else 0."""
    n_found = sum(1 for line in lines if _TOKEN.search(line))
    return n_found if n_found > max(_BY_CHANCE, _MANY * len(lines)) else 0
