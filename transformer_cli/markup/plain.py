"""Plain text: each line with letters in it is a unit, in which what looks like a tag or an entity stays as it is."""

import re

from transformer_cli.markup.inline_tags import add_lines
from transformer_cli.markup.units import Builder, Document

_LINE = re.compile(r"[^\n]+")


def parse_text(text: str) -> Document:
    builder = Builder(text)
    for match in _LINE.finditer(text):
        add_lines(builder, [match.span()], str)
    return builder.document()
