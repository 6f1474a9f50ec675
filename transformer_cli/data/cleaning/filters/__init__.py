"""Filters of training text, imported in the order in which they are applied: repairs come first."""

# ruff: noqa: F401
# isort: off
from transformer_cli.data.cleaning.base import FILTERS as FILTERS
from transformer_cli.data.cleaning.filters import mojibake, markup, empty, long_lines, swapped, copies, language, script
from transformer_cli.data.cleaning.filters import boilerplate, length_ratio, other_contents, word_alignment
from transformer_cli.data.cleaning.filters import near_duplicates
# isort: on

VERSION = 3  # to be raised when the same filters would keep other pairs, or auto has other ones
