"""Speakers of a subtitle: each has a text of their own, and what says who it is stays as it is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.each import each
from tests.support.marked import in_order, reversed_order, unmarked
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.reading import parse

TIME = "1\n00:00:01,000 --> 00:00:02,500\n"


@each(
    "cue, texts",
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
        ("I thought you--\n- Never mind.", ["I thought you--", "Never mind."]),
        ("I thought—\n- Never mind.", ["I thought—", "Never mind."]),
        ("- Hot. - Cold.", ["Hot.", "Cold."]),
        ("<i>- Hot!</i> <i>–Is it?</i>", ["Hot!", "Is it?"]),
        ("[JOHN] Hot soup.\n[MARY] Cold cake.", ["Hot soup.", "Cold cake."]),
        ("(JOHN) Hot soup.\n(MARY) Cold cake.", ["Hot soup.", "Cold cake."]),
        (">> JOHN: Hot.", ["Hot."]),
        ("- JOHN: Hot.\n- Ana: Cold.", ["Hot.", "Cold."]),
        # What is heard is no speaker, and a text of its own.
        ("[SIGHS] Hot.\nSoup.", ["[SIGHS]", "Hot. Soup."]),
        ("Hot.\n[door opens] Cold.", ["Hot.", "[door opens]", "Cold."]),
        ("Time: 10:30\nPlace: Rome", ["Time: 10:30", "Place: Rome"]),
        # What is sung is between notes, which are no words.
        ("♪ We are here ♪", ["We are here"]),
        ("♪ We are here,\nmy friend ♪\nHot!", ["We are here, my friend", "Hot!"]),
        ("<i>♪ The soup</i>\n<i>♪ The cake ♪</i>", ["The soup", "The cake"]),
        ("# The soup\n# The cake #", ["The soup", "The cake"]),
        ("Hot.\n♪♪♪", ["Hot."]),
        ("[♪ slow music ♪]", ["[slow music]"]),
        ("♫ The soup ♫ is hot", ["The soup is hot"]),
        ("Room #5 is hot", ["Room #5 is hot"]),
        # One speaker, or none that is named.
        ("I was going—\n—but he came.", ["I was going— —but he came."]),
        ("- Hot. - he said.", ["Hot. - he said."]),
        ("(Some) people say so.", ["(Some) people say so."]),
        ("I want the soup\n[sighs] and cake.", ["I want the soup [sighs] and cake."]),
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
            for name in ("ANA", "TOM:", "DR. FOX:", "Ana:", "Tom Fox:", "安娜：", "[JOHN]", "(MARY)", "JOHN:")
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


@each(
    "time",
    [
        "00:00:03,000 --> 00:00:04,000 X1:10 Y1:20",
        "00:03.000 --> 00:04.000 align:start position:0%",
        "00:00:03:000 --> 00:00:04:000",
        "00:00:03,000 -> 00:00:04,000",
        "00:00:03,000 –> 00:00:04,000",
        "00:00:03,000 -- > 00:00:04,000",
        "00:00:03,000 → 00:00:04,000",
        "00:00:03 --> 00:00:04",
        "0:03-->0:04",
        "00:00:03,0000 --> 00:00:04,0000",
        "00: 00:03, 000 -->  00:00:04 ,000",
        "--> 00:00:04,000",
        "00:00:03,000 -->",
    ],
)
def test_what_is_meant_as_a_time_stays_and_its_subtitle_is_a_text(time: str) -> None:
    source = f"{TIME}Hot soup.\n\n2\n{time}\nCold cake.\n"
    for document, texts in ((source, ["Hot soup.", "Cold cake."]), (f"{time}\nHot soup.", ["Hot soup."])):
        assert [unit.text for unit in parse(document, "srt").units] == texts
        assert unmarked(translate_document(document, "srt", in_order).text) == document


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_only_cues_of_webvtt_are_texts(newline: str) -> None:
    # Sections 4.1 and 4.2 of the recommendation: https://www.w3.org/TR/webvtt1/
    source = newline.join(
        [
            "WEBVTT - A title\nKind: captions\n",
            "STYLE\n::cue(v[voice=Ana]) {\n  color: red;\n}\n",
            "NOTE A remark of\ntwo lines\n",
            "first\n00:01.000 --> 00:02.000 line:0\n<v Ana>Hot <00:01.500>soup\nis <c.loud>here</c>.\n",
            "NOTE\nAnother remark\n",
            "REGION\nid:fred width:40%\n",
            "2 - Cake\n00:00:03.000 --> 00:00:04.000\nNoted: cold cake.\n",
        ]
    ).replace("\n", newline)
    assert [unit.text for unit in parse(source, "srt").units] == ["Hot soup is here.", "Noted: cold cake."]
    found = translate_document(source, "srt", in_order).text
    assert unmarked(found).split() == source.split()
    assert found.count(newline) == source.count(newline)
