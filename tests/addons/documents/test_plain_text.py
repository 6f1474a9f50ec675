"""Plain text with tags and placeholders: its lines are those of plain text without them."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.marked import in_order, reversed_order, unmarked
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.reading import parse

# "\r\n", and what the tables of Unicode have as mandatory breaks (BK, CR, LF, NL) or as separators of information.
LINE_ENDS = ["\r\n", "\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029", "\x1c", "\x1d", "\x1e"]
LINES = st.sampled_from(["one <b>x</b>", " two", "{name} is here", "", "\t", "10 &amp; 12", "a.b@c.de went "])


@given(st.lists(st.tuples(LINES, st.sampled_from(LINE_ENDS)), min_size=1, max_size=6))
def test_every_line_end_of_a_text_with_mark_up_stays(lines: list[tuple[str, str]]) -> None:
    source = "".join(line + end for line, end in lines)
    texts = [line for line, _ in lines if any(letter.isalpha() for letter in line.replace("&amp;", ""))]
    assert len(parse(source, "text").units) == len(texts)
    assert unmarked(translate_document(source, "text", in_order).text) == source
    ends = [end for _, end in lines]
    found = translate_document(source, "text", reversed_order).text
    for end in ends:
        assert found.count(end) == source.count(end)
