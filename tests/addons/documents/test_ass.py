"""Subtitles of SubStation Alpha: what is said is translated, and all else stays."""

from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import in_order
from transformer_cli.addons.documents.document import translate_document

HEAD = (
    "[Script Info]\r\n; A comment\r\nTitle: A film\r\n"
    "\r\n[V4+ Styles]\r\nFormat: Name, Fontname\r\nStyle: Big one,Arial\r\n"
    "\r\n[Events]\r\nFormat: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\r\n"
)
LINE = "Dialogue: 0,0:00:01.00,0:00:02.00,Big one,Ann,0,0,0,,{}\r\n"
TEXTS = [
    ("One cat, two", "Oneж catж, twoж"),
    (r"{\an8}One {\i1}cat{\i0}\Nsat.", r"{\an8}Oneж {\i1}catж{\i0}\Nsatж."),
    (r"- One!\N- Two.", r"- Oneж!\N- Twoж."),
    ("{A note}One{another}", "{A note}Oneж{another}"),
    (r"{\p1}m 0 0 l 1 0{\p0}One", r"{\p1}m 0 0 l 1 0{\p0}Oneж"),
    (r"{\pos(1,2)\p2}m 0 0 l 1 b 0", r"{\pos(1,2)\p2}m 0 0 l 1 b 0"),
    (r"{\k20}O{\k20}ne {\k20}two", r"{\k20}O{\k20}neж {\k20}twoж"),
    (r"One\hcat", "Oneж catж"),
    (r"\NOne\N", r"\NOneж\N"),
    ("", ""),
    ("12", "12"),
    ("{", "{"),
]


@each("source, expected", TEXTS)
def test_a_dialogue_is_translated(source: str, expected: str) -> None:
    assert translate_document(HEAD + LINE.format(source), "ass", in_order).text == HEAD + LINE.format(expected)
    assert translate_document(HEAD + LINE.format(source), "ass", echo).text == HEAD + LINE.format(source)


@each(
    "line",
    [LINE.format("One").replace("Dialogue", "Comment"), "Dialogue: too short\r\n", "[Fonts]\r\n" + LINE.format("One")],
)
def test_other_lines_stay(line: str) -> None:
    assert translate_document(HEAD + line, "ass", in_order).text == HEAD + line


def test_the_format_says_which_field_is_the_text() -> None:
    source = "[Events]\nFormat: Start, Text\nDialogue: 0:00,One, two\n"
    assert translate_document(source, "ass", in_order).text == source.replace("One, two", "Oneж, twoж")
