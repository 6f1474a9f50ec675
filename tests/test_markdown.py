"""Markdown: the blocks that are kept, links by reference, and whatever people write, under translators that reorder."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.test_commonmark import Part, parts, render, swapped, swapped_and_reversed, swapped_words, without_order
from tests.test_markup_properties import echo, translated
from transformer_cli.decoding.results import Translated
from transformer_cli.markup.document import parse, translate_document, translate_documents


def texts_of(markdown: str) -> list[str]:
    return [unit.text for unit in parse(markdown, "markdown").units]


def with_tables(markdown: str) -> str:
    return MarkdownIt("commonmark").enable("table").render(markdown)


def reversed_text(markdown: str) -> str:
    return translate_document(markdown, "markdown", swapped_and_reversed).text


# ---- Blocks


@pytest.mark.parametrize(
    ("markdown", "texts"),
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


@pytest.mark.parametrize(
    ("markdown", "expected"),
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


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ('=== "One two"\n\n    Three\n\n===! "C"\n    Four\n', '=== "TWO oNE"\n\n    tHREE\n\n===! "c"\n    fOUR\n'),
        ('??? "One two"\n    Three\n', '??? "TWO oNE"\n    tHREE\n'),
        (":::note One two\nThree\n:::\n", ":::note TWO oNE\ntHREE\n:::\n"),
        (":::info[One *two*]{.a}\nThree\n:::\n", ":::info[*TWO* oNE]{.a}\ntHREE\n:::\n"),
        ("::: details One two {open}\nThree\n:::\n", "::: details TWO oNE {open}\ntHREE\n:::\n"),
        ("::: tip a = b\nThree\n:::\n", "::: tip B = A\ntHREE\n:::\n"),
        ('::: {.a title="no no"}\nOne\n:::\n', '::: {.a title="no no"}\noNE\n:::\n'),
        (':::image source="a.png" alt-text="no":::\n\nOne\n', ':::image source="a.png" alt-text="no":::\n\noNE\n'),
        (":::tabs key:no\nOne\n:::\n", ":::tabs key:no\noNE\n:::\n"),
        ("*[HTML]: One two\n*[CSS]: Three\n", "*[HTML]: TWO oNE\n*[CSS]: tHREE\n"),
        ("*[One]: two* three\n", "THREE *TWO \\[oNE]:*\n"),
        ("[TOC]\n\nOne\n[[_TOC_]]\n", "[TOC]\n\noNE\n[[_TOC_]]\n"),
        ('One\n--8<-- "a/b.md"\n\n--8<--\nc.md\n--8<--\n', 'oNE\n--8<-- "a/b.md"\n\n--8<--\nc.md\n--8<--\n'),
        ("One [[Two three]] four ![[a|b]]\n", "![[a|b]] FOUR [[Two three]] oNE\n"),
        ("One [[two]] three\n\n[two]: u\n", "THREE \\[[TWO][two]\\] oNE\n\n[two]: u\n"),
        ("One ^[two *three*] four\n", "FOUR ^[*THREE* TWO] oNE\n"),
        ("One ^[two] three\n\n[two]: u\n", "THREE ^[TWO][two] oNE\n\n[two]: u\n"),
        ("One $a +\nb$ two\n", "TWO $a +\nb$ oNE\n"),
        ("One $$a\n= b$$ two\n", "TWO $$a\n= b$$ oNE\n"),
        ("$$\na + b\n$$ One two\nthree\n", "$$\na + b\n$$ THREE TWO oNE\n"),
        ("One :rocket: two :+1: at 10:30:15\n", "10:30:15 AT :+1: TWO :rocket: oNE\n"),
        ("import A from './a.js'\nimport {\n  B,\n} from 'b'\n\nOne\n", None),
        ("export const a = {\n  b: 'c (d',\n\n  e: 1,\n}\n\nOne\n", None),
        ("import 'a.css'\nexport default function B() {\n  return 1\n}\n\nOne\n", None),
        ("export * from 'a'\n\nexport { b }\n\nOne\n", None),
        ("export const a = {\n\nOne\n", None),
        ("One\nimport a from 'b'\n", "'B' FROM A IMPORT oNE\n"),
        (
            "import of goods from abroad\n\nexport default values\n",
            "ABROAD FROM GOODS OF IMPORT\n\nVALUES DEFAULT EXPORT\n",
        ),
    ],
)
def test_lines_that_are_no_prose_stay_and_their_titles_are_translated(markdown: str, expected: str | None) -> None:
    assert reversed_text(markdown) == (markdown.replace("One", "oNE") if expected is None else expected)


def test_the_title_of_a_container_does_not_end_its_bracket() -> None:
    found = translate_document(":::tip[One]\n", "markdown", lambda texts: [translated("a] b", [(0, 0)]) for _ in texts])
    assert found.text == ":::tip[a\\] b]\n"


# ---- Links


@pytest.mark.parametrize(
    ("link", "expected"),
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
@pytest.mark.parametrize("around", ["{}", "## {}", "- {}", "> {}", "| {} |\n|---|", "A text with {} in it.", "{}\n==="])
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


# ---- Template tags and attribute lists

TAG = re.compile(r"\{\{<.*?>\}\}|\{\{.*?\}\}|\{%.*?%\}|\{:.*?\}", re.DOTALL)
TEMPLATE_TAGS = [
    "{{ site.url }}",
    "{% link a_b.md %}",
    '{{< ref "c d.md" >}}',
    "{% post_url 2020-01-02-e_f %}",
    "{{ 'g' | t }}",
]


def without_tags(markdown: str) -> str:
    """Each tag as one word without letters, which a parser of Markdown takes for text anywhere."""
    return TAG.sub(lambda match: f"0{TEMPLATE_TAGS.index(match[0])}0", markdown)


@pytest.mark.parametrize("tag", TEMPLATE_TAGS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "markdown",
    [
        "See [the page](TAG) now.\n",
        "See [the page](/TAG/b 'TAG'), *here* and there.\n",
        "## [the page](TAG)\n",
        "- One [two][r]\n  three\n\n[r]: TAG 'TAG'\n",
        "![A cat](TAG) and <a href='TAG'>one dog</a>\n",
        "| [a b](TAG) | c TAG |\n|---|---|\n| d e | TAG |\n",
        "> One *two*TAG _three_TAG TAG**four** [TAG](u)\n> three `TAG` four\n",
    ],
)
def test_a_template_tag_is_one_word_in_links_titles_and_tables(markdown: str, line_end: str, tag: str) -> None:
    markdown = markdown.replace("TAG", tag).replace("\n", line_end)
    for translate, order in ((swapped, list[Part]), (swapped_and_reversed, without_order)):
        found = translate_document(markdown, "markdown", translate)
        pages = [parts(with_tables(without_tags(text))) for text in (markdown, found.text)]
        assert order(pages[1]) == order(swapped_words(pages[0]))
        assert found.flags["kept"] == 0


@pytest.mark.parametrize(
    ("markdown", "texts"),
    [
        ('One two.\n{% include a.html b="c d" %}\nThree four.\n', ["One two.", "Three four."]),
        ('One two.\n{{< figure\n   src="a"\n   alt="b" >}}\n\nThree\n', ["One two.", "Three"]),
        ("One\n{: .note #a }\n\n- two\n{: .b}\n", ["One", "two"]),
        ("{% if a %}\n- One\n- Two\n{% endif %}\nThree\n", ["One", "Two", "Three"]),
        ("{{% notice tip %}}\nOne\n{{% /notice %}}\n", ["One"]),
        ("{% highlight ruby %}\ndef one\n  two\n\nthree\n{% endhighlight %}\nFour\n", ["Four"]),
        ("{{< highlight go >}}\nfunc one\n\ntwo\n{{< /highlight >}}\nFour\n", ["Four"]),
        ("- One\n\n  {% raw %}\n  {{ two three\n  {% endraw %}\n\n  Four\n", ["One", "Four"]),
        ("{% raw %}\nOne\n\nTwo\n{% endraw %}\n", ["One", "Two"]),
        ("{% comment %}\nNo\n\nNo\n{% endcomment %}\nOne\n", ["One"]),
        ("{% comment %}\nIt has no end\n", ["It has no end"]),
        ("| One |\n|---|\n{% for a in b %}\n| {{ a | c }} two |\n{% endfor %}\n", ["One", "{{ a | c }} two"]),
        ("{/* No *no*\nno */}\nOne\n", ["One"]),
        ("Dear\n{{ name }}\nhow are you?\n", ["Dear {{ name }} how are you?"]),
        ("{% a %}\n===\nOne\n", ["One"]),
        ("One \\{{ two }} three\n", ["One \\{{ two }} three"]),
        ("Write `{%` and `%}`, `{{` or `}}`\n", ["Write {% and %}, {{ or }}"]),
        ("Write `{% raw %}` first, `{% endraw %}` last\n", ["Write {% raw %} first, {% endraw %} last"]),
        ("One {{ two\n\nthree }} {% four\n\nfive %}\n", ["One {{ two", "three }} {% four", "five %}"]),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_tags_on_lines_of_their_own_stay_there_and_so_does_code(markdown: str, texts: list[str], line_end: str) -> None:
    markdown = markdown.replace("\n", line_end)
    assert texts_of(markdown) == texts
    lines = [line for line in markdown.split(line_end) if is_whole_tag(line)]
    translation = translate_document(markdown, "markdown", swapped).text.split(line_end)
    assert [line for line in translation if is_whole_tag(line)] == lines


def is_whole_tag(line: str) -> bool:
    """Whether a line is a tag, but not a variable."""
    return re.fullmatch(r"\s*\{(?:[%:/]|\{[<%]).*\}\s*", line) is not None


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("# One two {#a-b}\n", "# TWO oNE {#a-b}\n"),
        ("## One two {: .a } ##\n", "## TWO oNE {: .a } ##\n"),
        ("One two {#a}\n=======\n", "TWO oNE {#a}\n=======\n"),
        ("# One two {/* #a */}\n", "# TWO oNE {/* #a */}\n"),
        ("- {:.a b=c} One two\n", "- {:.a b=c} TWO oNE\n"),
        ('One [two](u){:target="_blank"} three\n', 'THREE [TWO](u){:target="_blank"} oNE\n'),
        ("One **two**{: .a} three\n", "THREE **TWO**{: .a} oNE\n"),
        ("![One two](u){ width=200 } Three\n", "![TWO oNE](u){ width=200 } tHREE\n"),
        ("One `two`{.python} three\n", "THREE `two`{.python} oNE\n"),
        ("One [two]{.a} three\n\n[two]: u\n", "THREE [TWO][two]{.a} oNE\n\n[two]: u\n"),
    ],
)
def test_attributes_stay_behind_what_they_belong_to(markdown: str, expected: str) -> None:
    assert reversed_text(markdown) == expected


def test_private_characters_are_text() -> None:
    markdown = "A \\\\{\U000f0000} `{\U00100000\U00100001}` {{ \U000f0000 }} cat\n"
    assert translate_document(markdown, "markdown", echo).text == markdown
    assert translate_document(markdown, "markdown", swapped).text == markdown.replace("A", "a").replace("cat", "CAT")


@pytest.mark.parametrize("part", ["{{", "{%", "{% raw %}", "{% raw %}\n\n", "{:", "{{< ", "{% highlight a %}\n", "{ "])
def test_long_text_of_tags_without_an_end_is_read(part: str) -> None:
    markdown = part * (20_000 // len(part))
    assert translate_document(markdown, "markdown", echo).text == markdown


# ---- HTML within a text


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ('One <span translate="no">Acme Corp</span> two\n', 'TWO <span translate="no">Acme Corp</span> oNE\n'),
        ('*One <b class="x notranslate">Two</b>* three\n', 'THREE *<b class="x notranslate">Two</b> oNE*\n'),
        ('One <i translate="no">a <i>b</i> c</i> two\n', 'TWO <i translate="no">a <i>b</i> c</i> oNE\n'),
        ("One <ruby>two<rt>Three</rt></ruby> four\n", "FOUR <ruby>TWO<rt>Three</rt></ruby> oNE\n"),
        ('One <span translate="yes">two three</span>\n', '<span translate="yes">THREE TWO</span> oNE\n'),
        ('One *<span translate="no">two* three</span>\n', None),
        ('<img src="a.png" alt="My logo"> Some text\n', '<img src="a.png" alt="LOGO mY"> TEXT sOME\n'),
        ('<a href="x"><img alt="Build status"></a>\n', '<a href="x"><img alt="STATUS bUILD"></a>\n'),
        ('One <abbr title="A tip">two</abbr> three\n', 'THREE <abbr title="TIP a">TWO</abbr> oNE\n'),
        ("One ![two](a) <img alt='x y'> ![z](b)\n", "oNE ![TWO](a) <img alt='Y X'> ![Z](b)\n"),
        ("> One <img\n> alt='x y'> two\n", "> <img\n> alt='Y X'> TWO oNE\n"),
        ("- One <img alt=x> two\n", '- <img alt="X"> TWO oNE\n'),
        ('| <img alt="x y"> one |\n|---|\n', '| <img alt="Y X"> ONE |\n|---|\n'),
    ],
)
def test_html_in_a_text_is_translated_as_in_a_page(markdown: str, expected: str | None) -> None:
    if expected is None:  # the marks are not nested
        assert texts_of(markdown) == ["One two three"]
    else:
        assert reversed_text(markdown) == expected


def test_an_attribute_divides_no_row_and_ends_no_code() -> None:
    found = translate_document(
        '| one ` <img alt="two"> |\n|---|\n', "markdown", lambda texts: [translated("a|b`c", [(0, 0)]) for _ in texts]
    )
    assert 'alt="a&#124;b&#96;c"' in found.text


# ---- Marks beside other characters


@pytest.mark.parametrize(
    ("markdown", "answer", "alignment"),
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


@pytest.mark.parametrize("part", ["[", "![", "^[", "[a](b) ", "*a* ", "<b>a</b> ", "[[a]] ", "`a` ", "a\n"])
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
            "\n",
            "\n",
            "\n\n",
            "\n> ",
            "\n>",
            "\n- ",
            "\n* ",
            "\n1. ",
            "\n2) ",
            "\n    ",
            "\n  ",
            "\n\t",
            "  \n",
            "\\\n",
        ),
        *("\n# ", "\n## ", "\n===\n", "\n---\n", "\n***\n", "\n```\n", "\n~~~\n", "\n<div>\n", "\n</div>\n"),
        *("\n[q]: <v w>\n", "\n> > ", "\n> - ", "\n- > ", "\n   - ", "\n>     ", "\n-     ", "\n1.\n"),
    ]
)
MARKDOWN = st.lists(st.one_of(WORDS, WORDS, INLINE, BLOCK), max_size=14).map(lambda parts: "".join(parts))


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
