"""Tokenization of words as in Moses, for models that were trained on such text; by sacremoses."""

from functools import cached_property
from importlib import import_module
from typing import Any


class MosesText:
    """Of one language, by its code. The library is imported when it is used: it takes a while."""

    def __init__(self, language: str) -> None:
        self.language = language

    @cached_property
    def _tokenizer(self) -> Any:
        return import_module("sacremoses").MosesTokenizer(self.language)

    @cached_property
    def _detokenizer(self) -> Any:
        return import_module("sacremoses").MosesDetokenizer(self.language)

    def tokenized(self, text: str) -> str:
        """As `--tokenizer moses` of fairseq does it: hyphens are split, and XML entities escaped."""
        found: str = self._tokenizer.tokenize(text, aggressive_dash_splits=True, return_str=True, escape=True)
        return found

    def detokenized(self, text: str) -> str:
        found: str = self._detokenizer.detokenize(text.split())
        return found
