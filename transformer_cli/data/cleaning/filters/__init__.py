"""Filters of training text, one module each, imported in the order in which they are applied: repairs come first."""

from transformer_cli.data.cleaning.base import FILTERS  # isort: split

from transformer_cli.data.cleaning.filters import mojibake  # isort: split

from transformer_cli.data.cleaning.filters import markup  # isort: split

from transformer_cli.data.cleaning.filters import empty, long_lines  # isort: split

from transformer_cli.data.cleaning.filters import swapped  # isort: split

from transformer_cli.data.cleaning.filters import copies, language, script  # isort: split

from transformer_cli.data.cleaning.filters import boilerplate, length_ratio  # isort: split

from transformer_cli.data.cleaning.filters import inline_tags, numbers, urls  # isort: split

from transformer_cli.data.cleaning.filters import word_alignment  # isort: split

from transformer_cli.data.cleaning.filters import near_duplicates

VERSION = 3  # to be raised when the same filters would keep other pairs, or auto has other ones

__all__ = [
    "FILTERS",
    "VERSION",
    "boilerplate",
    "copies",
    "empty",
    "inline_tags",
    "language",
    "length_ratio",
    "long_lines",
    "markup",
    "mojibake",
    "near_duplicates",
    "numbers",
    "script",
    "swapped",
    "urls",
    "word_alignment",
]
