"""Markdown: the blocks that are kept, links by reference, and whatever people write, under translators that reorder."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.addons.documents.test_commonmark import (
    parts,
    render,
    swapped,
    swapped_and_reversed,
    swapped_words,
    without_order,
)
from tests.addons.documents.test_markup_properties import echo, translated
from tests.support.each import each
from transformer_cli.addons.documents.document import translate_document, translate_documents
from transformer_cli.addons.documents.reading import parse
from transformer_cli.decoding.results import Translated


def texts_of(markdown: str) -> list[str]:
    return [unit.text for unit in parse(markdown, "markdown").units]


def with_tables(markdown: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(markdown)


def reversed_text(markdown: str) -> str:
    return translate_document(markdown, "markdown", swapped_and_reversed).text


# ---- Blocks


@each(
    "markdown, texts",
    [
        ("# Install\n    pip install a\n", ["Install"]),
        ("1.     no code here\n\n   Text\n", ["Text"]),
        (">     no text\n> \n> Text\n", ["Text"]),
        ("> ```\n> no\n\nAfter it\n", ["After it"]),
        ("- a list\n\n      > a quote\n\n  > another\n", ["a list", "another"]),
        ("12. twelve\n\n    > a quote\n    > in it\n\n        no\n", ["twelve", "a quote in it"]),
        ("1. one\n   1. two\n      - three\n\n        > four\n", ["one", "two", "three", "four"]),
        ("> | a b |\n|---|\n", ["| a b | |---|"]),
        ("> $$ a b\n\nc $$\n", ["$$ a b", "c $$"]),
        ("- [ ] not yet\n- [X] done\n", ["not yet", "done"]),
        ("> <p>\n> Some words\n> here</p>\n", ["Some words here"]),
        ("<details>\n<summary>More</summary>\n\n- Text\n\n</details>\n", ["More", "Text"]),
    ],
)
def test_code_lists_quotes_and_html_are_where_commonmark_has_them(markdown: str, texts: list[str]) -> None:
    assert texts_of(markdown) == texts


@each(
    "markdown, expected",
    [
        (":::warning\nThe ice is thin.\n:::\n", ":::warning\nTHIN. IS ICE tHE\n:::\n"),
        ("Text\n::: {.note}\nMore\n:::\nEnd\n", "tEXT\n::: {.note}\nmORE\n:::\neND\n"),
        ('!!! note "Read me"\n    One two\n\n    Three\n', '!!! note "ME rEAD"\n    TWO oNE\n\n    tHREE\n'),
        ("??? tip\n    One two\nThree four\n", "??? tip\n    TWO oNE\nFOUR tHREE\n"),
        ("> [!TIP]\n> One\n> two\n", "> [!TIP]\n> TWO oNE\n"),
        ("> [!info]- A title\n> Text\n", "> [!info]- TITLE a\n> tEXT\n"),
        ("A term\n: One two\n\n    Three four\n", "TERM a\n: TWO oNE\n\n    FOUR tHREE\n"),
        ("A term\n\n:   One\n:   Two\n", "TERM a\n\n:   oNE\n:   tWO\n"),
        ("Text[^n] here\n\n[^n]: One\n    two\n\n    Three\n[^m]: Four\n", None),
        ("One two\n$$\nx = \\text{no}\n$$\n", "TWO oNE\n$$\nx = \\text{no}\n$$\n"),
        ("The sum $a_i + b_i$ is *it*\n", "*IT* IS $a_i + b_i$ SUM tHE\n"),
        ("It costs $5 or $6\n", "$6 OR $5 COSTS iT\n"),
        ("---\ntitle: no\n---\nOne two\n", "---\ntitle: no\n---\nTWO oNE\n"),
        ('+++\ntitle = "no"\n+++\nOne two\n', '+++\ntitle = "no"\n+++\nTWO oNE\n'),
        ("---\n# no\n\nog:title: no\n...\nOne two\n", "---\n# no\n\nog:title: no\n...\nTWO oNE\n"),
        ("---\nOne two\n---\n", "---\nTWO oNE\n---\n"),
        ("---\ntitle: it has no end\n", "---\nEND NO HAS IT TITLE:\n"),
        ("| a b | c |\n|:-|--|\n| d \\| e | `x \\| y` z |\n", "| B A | C |\n|:-|--|\n| E \\| D | Z `x \\| y` |\n"),
        ("- | a b |\n  |-----|\n  | c d | e |\n", "- | B A |\n  |-----|\n  | D C | E |\n"),
    ],
)
def test_blocks_that_others_have_added_to_commonmark_are_kept(markdown: str, expected: str | None) -> None:
    if expected is None:
        expected = "HERE tEXT[^n]\n\n[^n]: TWO oNE\n\n    tHREE\n[^m]: fOUR\n"
    assert reversed_text(markdown) == expected


# ---- Links


@each(
    "link, expected",
    [
        ("[The page]", "[PAGE tHE][The page]"),
        ("[The page][]", "[PAGE tHE][The page]"),
        ("[the PAGE]", "[page THE][the PAGE]"),
        ("[*The* page]", "[PAGE *tHE*][*The* page]"),
        ("![The page]", "![PAGE tHE][The page]"),
        ("![The page][]", "![PAGE tHE][The page]"),
        ("[The link][the page]", "[LINK tHE][the page]"),
        ("[The link](/wiki/Foo_(bar_(baz)))", "[LINK tHE](/wiki/Foo_(bar_(baz)))"),
        ("[![The page]](b)", "[![PAGE tHE][The page]](b)"),
    ],
)
@each("around", ["{}", "## {}", "- {}", "> {}", "| {} |\n|---|", "A text with {} in it.", "{}\n==="])
def test_a_link_keeps_its_target_by_whatever_name(link: str, expected: str, around: str) -> None:
    definitions = "\n\n[the page]: /a\n[*the* page]: /b\n"
    found = reversed_text(around.format(link) + definitions)
    assert expected in found
    assert found.endswith(definitions)


def test_a_link_whose_text_stays_is_written_as_it_was() -> None:
    markdown = "See [the page] and [it][].\n\n[the page]: /a\n[it]: /b\n"
    assert translate_document(markdown, "markdown", echo).text == markdown


@pytest.mark.parametrize("markdown", ["---\n" + "\n" * 5000 + "x", "!!! a" + " " * 20_000 + "!", "$$\n" + "x\n" * 5000])
def test_long_text_that_is_nearly_a_block_is_read(markdown: str) -> None:
    assert translate_document(markdown, "markdown", echo).text == markdown


def test_a_name_without_a_definition_is_text() -> None:
    assert reversed_text("See [the page] now\n") == "NOW PAGE] \\[THE sEE\n"


def test_texts_side_by_side_in_a_paragraph_are_each_checked_within_it() -> None:
    markdown = "*A cat.*<span>A dog.</span> [One two.](a)[Three four.](b)\n"
    expected = "*CAT. a*<span>DOG. a</span> [TWO. oNE](a)[FOUR. tHREE](b)\n"
    found = translate_document(markdown, "markdown", swapped_and_reversed)
    assert found.flags["kept"] == 0
    assert without_order(parts(render(found.text))) == without_order(parts(render(expected)))


def test_punctuation_after_a_link_with_code_of_several_words_stays_after_it() -> None:
    markdown = "See [`open (file)`](/a), and **`a [b]`**.\n"
    assert translate_document(markdown, "markdown", swapped).text == "sEE [`open (file)`](/a), AND **`a [b]`**.\n"


# ---- Marks beside other characters


@each(
    "markdown, answer, alignment",
    [
        ("See **it** now", "«it!»now", [(1, 0)]),
        ("One *two* three", "(two)three", [(1, 0)]),
        ("A *cat* sat", "cat*dog", [(1, 0)]),
        ("A \\* and *cat*", "*cat *", [(3, 0), (1, 1)]),
        ("One<br>two three", "three", [(2, 0)]),
        ("A text <!-- no --> more", "more text a", [(3, 0), (1, 1), (0, 2)]),
        ("One [two] three:\n\n[two]: /a", "two: three", [(1, 0), (2, 1)]),
        ("One [two](/a) (three)", "two(three)", [(1, 0)]),
        ("Wow! [two](/a)", "Wow![two](/a)", [(0, 0)]),
        ("Wow! ![two](/a) more", "Wow! more", [(0, 0), (1, 1)]),
        ("One[^1] two: three\n\n[^1]: x y", ": two", [(1, 0), (2, 1)]),
        ("[a]: /b\nA word", '"word"', [(1, 0)]),
        ("One  \nTwo", "- two", [(0, 0), (0, 1)]),
        ("One\\\ntwo", "one\\ ===", [(0, 0), (1, 1)]),
        ("`a\\\nTwo", "two`", [(0, 0)]),
        ("# One", "one ##", [(0, 0), (0, 1)]),
        ("| a b |\n|---|", "a|b `c|d`", [(0, 0)]),
        ("![A dog](b)", "a] *dog* ](c)", [(0, 0)]),
        ("<b>\nA word here\n</b> more", "more here word a", [(3, 0), (2, 1), (1, 2), (0, 3)]),
    ],
)
def test_a_mark_is_one_beside_any_character_and_no_word_becomes_one(
    markdown: str, answer: str, alignment: list[tuple[int, int]]
) -> None:
    found = translate_document(markdown, "markdown", lambda texts: [translated(answer, alignment) for _ in texts])
    pages = [parts(with_tables(text)) for text in (markdown, found.text)]
    source_tags, found_tags = ([text for kind, text in page if kind in ("tag", "code")] for page in pages)
    assert sorted(re.sub('alt="[^"]*"', "", tag) for tag in source_tags) == sorted(
        re.sub('alt="[^"]*"', "", tag) for tag in found_tags
    )
    assert found.flags["kept"] == 0


# ---- What may end the work


class Ended(Exception):
    pass


@each("part", ["[", "![", "^[", "[a](b) ", "*a* ", "<b>a</b> ", "[[a]] ", "`a` ", "a\n"])
def test_the_deadline_is_checked_within_one_block(part: str) -> None:
    n_calls = 0

    def on_unit(_: int) -> None:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1000:
            raise Ended

    with pytest.raises(Ended):
        translate_documents([part * 2000], "markdown", echo, on_unit=on_unit)


def test_the_deadline_is_checked_while_a_translation_is_written() -> None:
    has_translated = False

    def translate(texts: Sequence[str]) -> list[Translated]:
        nonlocal has_translated
        has_translated = True
        return swapped(texts)

    n_calls = 0

    def on_unit(_: int) -> None:
        nonlocal n_calls
        n_calls += has_translated
        if n_calls == 300:
            raise Ended

    with pytest.raises(Ended):
        translate_documents(["One *two* " * 200], "markdown", translate, on_unit=on_unit)


# ---- Whatever people write

WORDS = st.sampled_from(["cat", "Dog", "milk", "a", "été", "cat. ", "Dog, ", "(milk) ", "“cat” ", "x-y "])
INLINE = st.sampled_from(
    [
        *(" ", " ", " ", "*", "**", "_", "__", "***", "`", "``", "[", "]", "![", "](u)", "](<a b> 't')", "][r]", "[]"),
        *("[r]", "[r][]", "![r]", "<b>", "</b>", "<br>", " <!-- c --> ", "<i class='q'>", "</i>", " `c d` "),
        *(" <http://a.b> ", " http://x.y/z ", " <code>q r</code> ", "&amp;", "&lt;", "&copy;", "\\*", "\\", "\\\\"),
        *("!", "?", "(", ")", '"', "'", "-", "|", "#", "=", "+", "1.", "&", "^", "\t"),
    ]
)
BLOCK = st.sampled_from(
    [
        *(
            *("\n", "\n", "\n\n", "\n> ", "\n>", "\n- ", "\n* ", "\n1. ", "\n2) ", "\n    ", "\n  ", "\n\t", "  \n"),
            "\\\n",
        ),
        *("\n# ", "\n## ", "\n===\n", "\n---\n", "\n***\n", "\n```\n", "\n~~~\n", "\n<div>\n", "\n</div>\n"),
        *("\n[q]: <v w>\n", "\n> > ", "\n> - ", "\n- > ", "\n   - ", "\n>     ", "\n-     ", "\n1.\n"),
    ]
)
MARKDOWN = st.lists(st.one_of(WORDS, WORDS, INLINE, BLOCK), max_size=14).map(lambda parts: "".join(parts))


@pytest.mark.slow
@given(MARKDOWN, st.booleans())
@settings(max_examples=500, deadline=None)
@example("<em>\n  #</em>milk", False)
@example("<i>  \n* milk</i> Dog", False)
@example("][r]\\   \n http://x.y/z ", False)
@example("_<em>__ the ", False)
@example("*\\\n<em>\\ the \n* ", False)
@example("the \n\t<!-- c -->", False)
@example("Dog\\\n<b>\n  a", False)
def test_whatever_is_written_keeps_its_marks_and_each_word_is_translated_once(markdown: str, has_link: bool) -> None:
    assume(not re.search(r"\[\[|\^\[", markdown))  # links of wikis and notes, which the renderer does not know
    assume("<table>" not in with_tables(markdown))  # nor tables
    markdown = ("[r]: /u 'T'\n\n" if has_link else "") + markdown
    expected = swapped_words(parts(render(markdown)))
    assert parts(render(translate_document(markdown, "markdown", swapped).text)) == expected
    found = translate_document(markdown, "markdown", swapped_and_reversed)
    if not found.flags["kept"]:  # a comment at the beginning of a line, for example, is no text: it stays where it was
        assert without_order(parts(render(found.text))) == without_order(expected)


@given(MARKDOWN, st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["", "\n", "  \n\n", "\t", "\\"]))
@settings(max_examples=300, deadline=None)
def test_what_is_not_translated_is_the_same_bytes(markdown: str, line_end: str, end: str) -> None:
    markdown = (markdown + end).replace("\n", line_end)
    assert translate_document(markdown, "markdown", echo).text == markdown
