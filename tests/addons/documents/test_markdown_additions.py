"""Markdown beyond CommonMark: template tags, attribute lists, what other programs add, and HTML within a text."""

import re

from tests.addons.documents.test_commonmark import (
    Part,
    parts,
    swapped,
    swapped_and_reversed,
    swapped_words,
    without_order,
)
from tests.addons.documents.test_markdown import reversed_text, texts_of, with_tables
from tests.addons.documents.test_markup_properties import echo, translated
from tests.support.each import each
from transformer_cli.addons.documents.document import translate_document

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
    """Each tag as one word in braces, without letters, which a parser of Markdown takes for text anywhere."""
    return TAG.sub(lambda match: f"{{{TEMPLATE_TAGS.index(match[0])}}}", markdown)


@each("tag", TEMPLATE_TAGS)
@each("line_end", ["\n", "\r\n"])
@each(
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


@each(
    "markdown, texts",
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
@each("line_end", ["\n", "\r\n"])
def test_tags_on_lines_of_their_own_stay_there_and_so_does_code(markdown: str, texts: list[str], line_end: str) -> None:
    markdown = markdown.replace("\n", line_end)
    assert texts_of(markdown) == texts
    lines = [line for line in markdown.split(line_end) if is_whole_tag(line)]
    translation = translate_document(markdown, "markdown", swapped).text.split(line_end)
    assert [line for line in translation if is_whole_tag(line)] == lines


def is_whole_tag(line: str) -> bool:
    """Whether a line is a tag, but not a variable."""
    return re.fullmatch(r"\s*\{(?:[%:/]|\{[<%]).*\}\s*", line) is not None


@each(
    "markdown, expected",
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


@each("part", ["{{", "{%", "{% raw %}", "{% raw %}\n\n", "{:", "{{< ", "{% highlight a %}\n", "{ "])
def test_long_text_of_tags_without_an_end_is_read(part: str) -> None:
    markdown = part * (20_000 // len(part))
    assert translate_document(markdown, "markdown", echo).text == markdown


# ---- Blocks and words that others have added


@each(
    "markdown, expected",
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


# ---- HTML within a text


@each(
    "markdown, expected",
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
