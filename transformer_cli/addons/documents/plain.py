"""Plain text: each line with letters in it is a unit, in which what looks like a tag or an entity stays as it is."""

import re

from transformer_cli.addons.documents.inline_tags import add_lines
from transformer_cli.addons.documents.units import Builder, Document

# The ends of lines that Unicode has, and those that office programs write within a paragraph.
LINE_END = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")


def parse_text(text: str) -> Document:
    builder = Builder(text)
    start = 0
    for end in builder.watched([*(match.span() for match in LINE_END.finditer(text)), (len(text), len(text))]):
        add_lines(builder, [(start, end[0])], str)
        start = end[1]
    return builder.document()
