"""Plain text that is wrapped: paragraphs are translated as a whole and wrapped again; marks and indentation stay."""

import re

from tests.addons.documents.test_markup_properties import echo
from tests.support.each import each
from tests.support.marked import Recorder, in_order, unmarked
from transformer_cli.addons.documents.document import translate_document

LONG = "The cat sat on the mat and looked at\nthe dog, which slept.\n"
TEXTS = [  # a document, and its texts
    (LONG, ["The cat sat on the mat and looked at the dog, which slept."]),
    ("A title\n=======\n\nOne\ntwo\n", ["A title", "One two"]),
    ("- One\n  two\n- Three\n* Four\n1. Five\n   six\n", ["One two", "Three", "Four", "Five six"]),
    ("> One\n> two\n>\n> Three\n>> Four\nFive\n", ["One two", "Three", "Four", "Five"]),
    ("    One\ntwo\n\n  Three\n  four\n", ["One two", "Three four"]),
    ("\ufeffOne\r\ntwo\r\n\r\nThree", ["One two", "Three"]),
    ("One    1\nTwo    2\n", ["One 1", "Two 2"]),
    ("One\n\n---\n\n***\n12\n", ["One"]),
    ("(a) One\n    two\n[x] Three\n", ["One two", "Three"]),
    ("", []),
]


@each("source, texts", TEXTS)
def test_the_lines_of_a_paragraph_are_one_text(source: str, texts: list[str]) -> None:
    recorder = Recorder(in_order)
    found = translate_document(source, "wrapped", recorder).text
    assert recorder.texts == texts
    assert re.sub(r"[\s>]", "", unmarked(found)) == re.sub(r"[\s>]", "", source)
    assert translate_document(source, "wrapped", echo).text == source


def test_a_translation_is_wrapped_to_the_width_of_its_paragraph() -> None:
    source = "".join(f"  > {line}\n" for line in LONG.splitlines())
    assert translate_document(source, "wrapped", in_order).text == (
        "  > Theж catж satж onж theж matж andж\n  > lookedж atж theж dogж, whichж\n  > sleptж.\n"
    )


def test_no_line_begins_with_what_would_be_a_mark() -> None:
    source = "The cat sat on the mats for more than - 5\ndays, in the year - 1999 or so, and not\n"
    found = translate_document(source, "wrapped", in_order).text
    assert all(not line.startswith(("- ", "1. ")) for line in found.split("\n"))


def test_a_single_line_stays_one() -> None:
    source = "word " * 60 + "\n"
    assert translate_document(source, "wrapped", in_order).text.count("\n") == 1
