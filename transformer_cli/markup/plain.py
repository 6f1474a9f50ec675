"""Plain text: each line with letters in it is a unit."""

import re

from transformer_cli.markup.units import Builder, Document, Item, add_run

_LINE = re.compile(r"[^\n]+")


def parse_text(text: str) -> Document:
    builder = Builder(text)
    for match in _LINE.finditer(text):
        add_run(builder, [Item(*match.span(), match[0])], str)
    return builder.document()
