"""Speakers of a subtitle: each has a text of their own, and what says who it is stays as it is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.marked import in_order, reversed_order, unmarked
from transformer_cli.markup.document import parse, translate_document

TIME = "1\n00:00:01,000 --> 00:00:02,500\n"


@pytest.mark.parametrize(
    ("cue", "texts"),
    [
        ("ANA: The soup is hot.\nTOM: The cake is cold.", ["The soup is hot.", "The cake is cold."]),
        ("Ana: Is it hot?\nTom Fox: No.", ["Is it hot?", "No."]),
        ("ANA: The soup\nis hot.\nTOM: It is cold.", ["The soup is hot.", "It is cold."]),
        ("ANA (laughing): Hot!\nDR. FOX: Cold.", ["Hot!", "Cold."]),
        ("<b>ANA:</b> Hot!\n<i>TOM: Cold.</i>", ["Hot!", "Cold."]),
        ("{\\an8}ANA: Hot!\nTOM:\nCold.", ["Hot!", "Cold."]),
        ("The soup is hot.\nTOM: It is cold.", ["The soup is hot.", "It is cold."]),
        ("安娜：汤热。\n汤姆：蛋糕冷。", ["汤热。", "蛋糕冷。"]),
        ("- The soup is hot.\n- The cake is cold.", ["The soup is hot.", "The cake is cold."]),
        ("- The soup\nis hot.\n- Cold.", ["The soup is hot.", "Cold."]),
        ("The soup is hot.\n- Cold.", ["The soup is hot.", "Cold."]),
        ("<i>- Hot.</i>\n<i>- Cold.</i>", ["Hot.", "Cold."]),
        (">> Hot.\n>> Cold.", ["Hot.", "Cold."]),
        # One speaker, or none that is named.
        ("- The soup\nis hot.", ["The soup is hot."]),
        ("The soup is hot\n- I think.", ["The soup is hot - I think."]),
        ("ANA: The soup\nis hot.", ["The soup is hot."]),
        ("Note: the soup\nis hot.", ["Note: the soup is hot."]),
        ("We say: Hot!\nThey say: Cold!", ["We say: Hot! They say: Cold!"]),
        ("It is 12:30.\nThe page is http://a.b/c", ["It is 12:30. The page is http://a.b/c"]),
    ],
)
def test_each_speaker_has_a_text(cue: str, texts: list[str]) -> None:
    source = f"{TIME}{cue}\n"
    assert [unit.text for unit in parse(source, "srt").units] == texts
    for translate in (in_order, reversed_order):
        found = translate_document(source, "srt", translate).text
        assert found.count("\n") == source.count("\n")
        assert all(
            found.count(name) == source.count(name)
            for name in ("ANA", "TOM:", "DR. FOX:", "Ana:", "Tom Fox:", "安娜：")
        )
    assert unmarked(translate_document(source, "srt", in_order).text).split() == source.split()


LINES = st.lists(
    st.sampled_from(["ANA: ", "Tom: ", "- ", ">> ", "<i>", "{\\an8}", "", ""]).flatmap(
        lambda label: st.sampled_from(["Hot.", "the soup</i>", "a: b", "12:30 is it"]).map(lambda text: label + text)
    ),
    min_size=1,
    max_size=4,
)


@given(LINES, st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=100, deadline=None)
def test_a_cue_keeps_its_lines(lines: list[str], newline: str) -> None:
    source = (TIME + "\n".join(lines) + "\n\n").replace("\n", newline)
    found = translate_document(source, "srt", in_order).text
    assert found.count(newline) == source.count(newline)
    assert unmarked(found).split() == source.split()
