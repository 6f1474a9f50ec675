"""Documents: what is translated of each format, where tags and placeholders stand afterwards, and what is kept."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.addons.documents.test_markup_properties import BILINGUAL, echo, texts_of, translated
from tests.support.each import each
from transformer_cli.addons.documents.document import translate_document, translate_documents
from transformer_cli.addons.documents.formats import text_formats
from transformer_cli.addons.documents.placeholders import numbers_lost
from transformer_cli.addons.documents.reading import parse
from transformer_cli.addons.documents.symbols import placeholder_symbols
from transformer_cli.addons.documents.xml import escape_xml
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.data.tokenizer import Tokenizers, train_tokenizer
from transformer_cli.decoding.results import Translated

Translate = Callable[[Sequence[str]], list[Translated]]


def answering(**answers: tuple[str, str]) -> Translate:
    """A translator that knows, by the first word of a text, its translation and the alignment as `i-j`."""

    def translate(texts: Sequence[str]) -> list[Translated]:
        found = []
        for text in texts:
            answer, links = answers[text.split()[0].strip(",.!").lower()]
            pairs = [tuple(map(int, link.split("-"))) for link in links.split()]
            found.append(translated(answer, [(i, j) for i, j in pairs]))
        return found

    return translate


def reversed_words(texts: Sequence[str]) -> list[Translated]:
    words = [text.split() for text in texts]
    return [translated(" ".join(w[::-1]), [(len(w) - 1 - j, j) for j in range(len(w))]) for w in words]


def upper(texts: Sequence[str]) -> list[Translated]:
    """Translates into capitals, without an alignment."""
    return [translated(text.upper()) for text in texts]


# ---- Which texts are translated


@each(
    "html, texts",
    [
        ("<p>A cat<p>A <b>dog</b>\n sat.", ["A cat", "A dog sat."]),
        ("<ul><li>one<li>two <ul><li>three</ul></ul>", ["one", "two", "three"]),
        ("<table><tr><td>a1 b</td><td>c</td></table>", ["a1 b", "c"]),
        ("Share<template><p>Copy <b>it</b></p></template>", ["Share", "Copy it"]),  # which a script shows
        ("<title>A cat</title><script>var a = '<p>no</p>'</script><style>no</style><p>yes", ["A cat", "yes"]),
        ("<pre>no</pre><textarea>no</textarea><p translate='no'>no</p><p class='x notranslate'>no</p>", []),
        ("<!-- no <p>no</p> --><?php no ?><!DOCTYPE no>yes", ["yes"]),
        ("<p><img alt='A dog' title=\"x &amp; y\" src=no><input placeholder=Name></p>", ["A dog", "x & y", "Name"]),
        ("<p>one<br>Two<br>goes on</p>", ["one", "Two goes on"]),
        ("<p>Run <code>a &lt; b</code> now &eacute;&#33; AT&T</p>", ["Run a < b now é! AT&T"]),
        ("<p>12 – 3 &nbsp; </p><p>&nbsp;</p><p>http://x.y</p>", ["http://x.y"]),
        ("<p>Hello <span translate=no>Foo Bar</span>, <svg><text>no</text></svg>bye</p>", ["Hello Foo Bar, bye"]),
        ("<div>a < b and <3 hearts</div>", ["a < b and <3 hearts"]),
    ],
)
def test_the_texts_of_html(html: str, texts: list[str]) -> None:
    assert texts_of(html, "html") == texts


@each(
    "xml, texts",
    [
        ("<a><b>One <i>two</i> three</b><c>four</c></a>", ["One two three", "four"]),
        ("<?xml version='1.0'?><!DOCTYPE a [<!ENTITY e 'no'>]><a x='no'>yes &e; &#x41;&lt;</a>", ["yes &e; A<"]),
        ("<a><![CDATA[no]]><b translate='no'>no</b><b its:translate='no'>no</b></a>", []),
        ("Hello <x>you</x>", ["Hello you"]),
    ],
)
def test_the_texts_of_xml(xml: str, texts: list[str]) -> None:
    assert texts_of(xml, "xml") == texts


@each(
    "markdown, texts",
    [
        ("# A *cat* #\n\nTwo\nlines.\n\nSetext\n===\n", ["A cat", "Two lines.", "Setext"]),
        (
            "- one\n  goes on\n- [x] two\n\n  three\n\n1. four\n> five\n> six\n",
            ["one goes on", "two", "three", "four", "five six"],
        ),
        ("```\nno\n```\n\n    no\n\n~~~~ x\nno\n~~~\nno\n~~~~\nyes", ["yes"]),
        ("---\ntitle: no\n---\nyes\n\n---\n", ["yes"]),
        ("| a | `no | b` |\n|---|:-:|\n| c \\| d | |\n", ["a", "c | d"]),
        (
            "[link *it*](no 'no') ![A dog](no) <https://a.b> [ref][x] [x] [y]\n\n[x]: no\n",
            ["A dog", "link it https://a.b ref x [y]"],
        ),
        ("a_b_c **bold**, 2 * 3 * 4, \\*no\\* &amp; `x * y`", ["a_b_c bold, 2 * 3 * 4, *no* & x * y"]),
        ("***both** one* ~~gone~~", ["both one gone"]),
        ("one  \nTwo\\\nthree", ["one", "Two three"]),
        ("<div class='x'>\n<p>html</p>\n</div>\n\n<!-- no\n\nno -->\ntext", ["html", "text"]),
        ("A note[^1] here.\n\n[^1]: The note.\n", ["A note here.", "The note."]),
    ],
)
def test_the_texts_of_markdown(markdown: str, texts: list[str]) -> None:
    assert texts_of(markdown, "markdown") == texts


def test_the_texts_of_subtitles_are_those_of_their_cues() -> None:
    first = "1\r\n00:00:01,000 --> 00:00:02,500\r\n{\\an8}<i>Hello my\r\nfriend</i>\r\n\r\n"
    srt = first + "2\r\n00:00:03,000 --> 00:00:04,000\r\n- Yes!\r\n- No.\r\n"
    assert texts_of(srt, "srt") == ["Hello my friend", "Yes!", "No."]
    found = translate_document(srt, "srt", upper).text
    assert found == srt.replace("Hello my\r\nfriend", "HELLO MY\r\nFRIEND").replace("Yes!", "YES!").replace(
        "No.", "NO."
    )


PO = """\
# a comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: a.c:1
#, c-format
msgid "Hello %s, \\"you\\"\\n"
msgstr ""

#| msgid "old"
msgctxt "no"
msgid ""
"one <b>big</b>\\n"
"Two\\n"
msgstr ""

msgid "a file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#, fuzzy
msgid "done"
msgstr "fertig"

msgid "ready"
msgstr "bereit"

#~ msgid "gone"
#~ msgstr ""
"""


def test_messages_without_a_translation_get_one_that_is_fuzzy() -> None:
    found = translate_document(PO, "po", upper).text
    expected = PO.replace("#, c-format\n", "#, fuzzy, c-format\n").replace("#| msgid", "#, fuzzy\n#| msgid")
    expected = expected.replace('msgid "a file"', '#, fuzzy\nmsgid "a file"')
    expected = expected.replace('you\\"\\n"\nmsgstr ""', 'you\\"\\n"\nmsgstr "HELLO %s, \\"YOU\\"\\n"')
    expected = expected.replace('"Two\\n"\nmsgstr ""', '"Two\\n"\nmsgstr ""\n"ONE <b>BIG</b>\\n"\n"TWO\\n"')
    expected = expected.replace('msgstr[0] ""', 'msgstr[0] "A FILE"').replace('msgstr[1] ""', 'msgstr[1] "%d FILES"')
    assert found == expected
    assert translate_document(found, "po", upper).text == found  # nothing is translated twice


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
def test_gettext_accepts_the_messages(tmp_path: Path) -> None:
    (tmp_path / "x.po").write_text(translate_document(PO, "po", reversed_words).text, encoding="utf-8")
    command = ["msgfmt", "--check-format", "--use-fuzzy", "-o", str(tmp_path / "x.mo"), str(tmp_path / "x.po")]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


# ---- Where the tags stand

RED_CAR = answering(the=("la voiture rouge.", "0-0 2-1 1-2"))


@each(
    "source, expected",
    [
        ("The <b>red</b> car.", "la voiture <b>rouge</b>."),
        ("The <b>red</b> <i>car</i>.", "la <i>voiture</i> <b>rouge</b>."),
        ("The <b>red car</b>.", "la <b>voiture rouge</b>."),
        ("The <b>red car.</b>", "la <b>voiture rouge.</b>"),
        ("<b>The red car.</b>", "<b>la voiture rouge.</b>"),
        ("<b>The</b> red car.", "<b>la</b> voiture rouge."),
        ("The<b> red</b> car.", "la voiture<b> rouge</b>."),
        ("The <b>red</b><i> car</i>.", "la<i> voiture</i> <b>rouge</b>."),
        ("The <b><i>red</i></b> car.", "la voiture <b><i>rouge</i></b>."),
        ("The <b><b>red</b> car</b>.", "la <b>voiture <b>rouge</b></b>."),
        ("The <img>red car.", "la voiture <img>rouge."),
        ("The <img> red car.", "la voiture <img> rouge."),
        ("The red<img> car.", "la voiture rouge<img>."),
        ("<img>The red car.<img>", "<img>la voiture rouge.<img>"),
        ("The <b></b>red car.", "la voiture <b></b>rouge."),
        ("The <!-- x -->red car.", "la voiture <!-- x -->rouge."),
    ],
)
def test_tags_follow_the_words_that_are_aligned_to_theirs(source: str, expected: str) -> None:
    assert translate_document(source, "html", RED_CAR).text == expected


def test_an_element_covers_the_words_between_its_own() -> None:
    # `stares` is `starrt … an`, with a word of something else in between.
    translate = answering(he=("er starrt etwas an.", "0-0 1-1 2-2 1-3"))
    assert translate_document("He <b>stares</b> something.", "html", translate).text == "er <b>starrt etwas an</b>."


def test_a_word_far_away_that_is_aligned_by_mistake_is_not_covered() -> None:
    links = "0-0 1-1 2-2 3-3 4-4 5-5 6-6 1-7"
    translate = answering(a=("ein Mann steht auf der Straße mit Hut", links))
    found = translate_document("A <b>man</b> stands on the street with hats", "html", translate).text
    assert found == "ein <b>Mann</b> steht auf der Straße mit Hut"


def test_tags_within_a_word_stay_within_one() -> None:
    translate = answering(press=("Appuyez Strg+C, 1er H2O", "0-0 1-1 2-2 3-3"))
    source = "Press <b>C</b>trl+C, 1<sup>st</sup> H<sub>2</sub>O"
    assert translate_document(source, "html", translate).text == "Appuyez <b>S</b>trg+C, 1<sup>er</sup> H<sub>2</sub>O"


def test_a_sentence_in_a_script_without_spaces_gets_its_tags_by_position() -> None:
    translate = answering(a=("一只红色的猫坐着。", "0-0 1-0 2-0 3-0"))
    found = translate_document("A <b>red</b> cat sat.", "html", translate)
    assert found.text == "一只<b>红色</b>的猫坐着。"
    assert found.flags == {"tags_by_position": 1}


def test_without_an_alignment_tags_stand_as_far_in_the_text_as_in_the_source() -> None:
    found = translate_document("One two <b>three four</b> five six.", "html", upper)
    assert (found.text, dict(found.flags)) == ("ONE TWO <b>THREE FOUR</b> FIVE SIX.", {"tags_by_position": 1})


def test_a_link_without_a_word_of_its_own_gets_one_or_is_flagged() -> None:
    translate = answering(see=("siehe oben", "0-0 0-1"))
    found = translate_document("See <a>the page</a>.", "html", translate)
    assert (found.text, dict(found.flags)) == ("siehe <a>oben</a>", {})
    found = translate_document("See <a>page</a>, <b>part</b> and <i>line</i>.", "html", answering(see=("da", "0-0")))
    assert (found.text, dict(found.flags)) == ("<a>da</a><b></b><i></i>", {"tags_empty": 1})


def test_emphasis_of_markdown_that_would_be_empty_is_left_out() -> None:
    found = translate_document("See *this* and **that**.", "markdown", answering(see=("da", "0-0")))
    assert (found.text, dict(found.flags)) == ("*da*", {"tags_empty": 1})


def test_tags_that_go_on_in_another_text_keep_their_order() -> None:
    html = "<p>Now <b>one <i>two<br>Three</i> four</b> five</p>"
    found = translate_document(html, "html", reversed_words).text
    assert found == "<p><b><i>two one Now<br>four</i> Three</b> five</p>" or found.index("<b>") < found.index("<i>")
    assert found.index("</i>") < found.index("</b>")


@each(
    "format_name, text, expected",
    [
        ("html", "<p title='a'>x", "<p title='\"&#39;&lt;&amp;'>\"'&lt;&amp;"),
        ("html", "<img alt=a>", '<img alt="&quot;\'&lt;&amp;">'),
        ("xml", "<p>x</p>", "<p>\"'&lt;&amp;</p>"),
        ("po", 'msgid "x"\nmsgstr ""\n', '#, fuzzy\nmsgid "x"\nmsgstr "\\"\'<&"\n'),
        ("markdown", "x", "\"'<&"),
        ("text", "x", "\"'<&"),
    ],
)
def test_a_translation_is_escaped(format_name: str, text: str, expected: str) -> None:
    assert translate_document(text, format_name, lambda texts: [translated("\"'<&") for _ in texts]).text == expected


@each("answer", ["*a* [b](c)", "# a", "- a", "1. a", "> a", "a `b` <b> ~~c~~", "_a_ \\* &amp;"])
def test_a_translation_never_becomes_markup_of_markdown(answer: str) -> None:
    found = translate_document("x\n", "markdown", lambda texts: [translated(answer) for _ in texts]).text
    assert texts_of(found, "markdown") == [answer]
    assert parse(found, "markdown").units[0].tags == ()


def test_an_empty_translation_leaves_the_text_as_it_is() -> None:
    found = translate_document("<p>A <b>cat</b></p>", "html", lambda texts: [translated("") for _ in texts])
    assert (found.text, dict(found.flags)) == ("<p>A <b>cat</b></p>", {"kept": 1})


# ---- Placeholders


def damaging(**replacements: str) -> Translate:
    """Changes placeholders as models do, and copies names and numbers."""

    def translate(texts: Sequence[str]) -> list[Translated]:
        found = []
        for text in texts:
            for name, new in replacements.items():
                text = text.replace("{" + name + "}", new)
            found += echo([text])
        return found

    return translate


@each(
    "translate, flags",
    [
        (damaging(), {}),
        (damaging(name="{ name }"), {"placeholders_repaired": 1}),
        (damaging(name="{Name}"), {"placeholders_repaired": 1}),
        (damaging(name="{nom}"), {"placeholders_repaired": 1}),
        (damaging(name="{name} {name}"), {"placeholders_repaired": 1}),
        (damaging(name="nom"), {"placeholders_repaired": 1}),  # by a stand-in
    ],
)
def test_a_damaged_placeholder_is_repaired_and_counted(translate: Translate, flags: dict[str, int]) -> None:
    found = translate_document("Hello {name}, you have mail.", "text", translate)
    assert (found.text, dict(found.flags)) == ("Hello {name}, you have mail.", flags)


def test_what_no_translation_keeps_is_inserted_at_its_place_and_flagged() -> None:
    def losing(texts: Sequence[str]) -> list[Translated]:
        return [translated("salut toi là.", [(0, 0), (2, 1), (3, 2)]) for _ in texts]

    found = translate_document("Hello <b>{name}</b> you there.", "html", losing)
    assert found.text == "salut <b>{name}</b> toi là."
    assert found.flags == {"placeholders_inserted": 1}


def test_repairs_of_all_documents_are_one_call() -> None:
    calls: list[int] = []

    def losing(texts: Sequence[str]) -> list[Translated]:
        calls.append(len(texts))
        return [translated("salut", [(0, 0)]) for _ in texts]

    documents = [f"Hello {{name{n}}} you.\nA cat.\n" for n in range(5)]
    found = translate_documents(documents, "text", losing)
    assert calls == [10, 10]  # two stand-ins for each of five texts
    assert all(document.text == f"salut {{name{n}}}\nsalut\n" for n, document in enumerate(found))


@each(
    "placeholder",
    [
        *("{name}", "{0}", "{}", "{n:>3}", "{{ x.y }}", "{% if a %}", "${x}", "%s", "%d", "%1$s", "%(name)s", "%.2f"),
        *("%5d", "https://a.b/c_d?e=f&g=(h)#i", "www.a.bc", "a.b+c@d-e.fg", "http://x.y/z"),
    ],
)
@each("format_name", ["text", "html", "markdown", "xml"])
def test_a_placeholder_survives_a_model_that_writes_all_in_capitals(placeholder: str, format_name: str) -> None:
    is_html = format_name in ("html", "xml")
    written = placeholder.replace("&", "&amp;").replace(">", "&gt;") if is_html else placeholder
    found = translate_document(
        f"<p>See {written}, please</p>" if is_html else f"See {written}, please", format_name, upper
    )
    assert f"SEE {written}, PLEASE" in found.text


def test_code_within_text_is_kept_with_its_tags() -> None:
    html = "<p>Set <code class='x'>a &lt; <i>b</i></code> or <kbd>a</kbd> as a value</p>"
    found = translate_document(html, "html", reversed_words).text
    assert found == "<p>value a as <kbd>a</kbd> or <code class='x'>a &lt; <i>b</i></code> Set</p>"


@each(
    "source, target, lost",
    [
        ("1,000.5 in 1984", "1984: 1.000,5", []),
        ("1,000 and 12", "1 000 und 12", []),
        ("3 of 10", "drei von 10", ["3"]),
        ("7 and 7", "7", ["7"]),
    ],
)
def test_numbers_are_the_same_apart_from_their_separators(source: str, target: str, lost: list[str]) -> None:
    assert numbers_lost(source, target) == lost


def test_a_text_without_placeholders_is_what_the_translator_says() -> None:
    answer = "Ein { name } %s und 5 %  http://x.y"
    found = translate_document("A cat.", "text", lambda texts: [translated(answer) for _ in texts])
    assert (found.text, found.flags) == (answer, {})


def test_symbols_of_the_vocabulary_stand_for_placeholders() -> None:
    lines = [f"the cat number {n} drank milk with <ph1> and <ph2>" for n in range(50)]
    config = TokenizerConfig(vocab_size=60, user_symbols=["<ph1>", "<ph2>", "word", "<1>", "</1>", "<1/>"])
    tokenizer = train_tokenizer(lines, config, seed=1)
    symbols = placeholder_symbols(Tokenizers(tokenizer, tokenizer))
    assert symbols == ("<ph1>", "<ph2>", "<1/>")
    sent: list[str] = []

    def translate(texts: Sequence[str]) -> list[Translated]:
        sent.extend(texts)
        return reversed_words(texts)

    found = translate_document("See {a} and %s now", "text", translate, symbols=symbols)
    assert sent == ["See <ph1> and <ph2> now"]
    assert found.text == "now %s and {a} See"


# ---- Hostile input


def message_of(text: str) -> str:
    """A message of gettext with that text, which reStructuredText and C are read in."""
    string = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'#: a.rst:1\n#, c-format, icu-format, qt-format, lisp-format\nmsgid "{string}"\nmsgstr ""\n'


def document_of(text: str, format_name: str) -> str:
    """A document with that text, of a format that refuses what is none; of others the text itself."""
    string, content = json.dumps(text), escape_xml(text)
    return {
        "po": message_of(text),
        "json": string,
        "yaml": string,
        "strings": f'"a" = {string};',
        "xcstrings": f'{{"sourceLanguage": "en", "strings": {{{string}: {{}}}}}}',
        "stringsdict": f"<plist><dict><key>a</key><string>{content}</string></dict></plist>",
        "xliff": f"<xliff><trans-unit><source>{content}</source></trans-unit></xliff>",
        "ts": f"<TS><message><source>{content}</source><translation type='unfinished'/></message></TS>",
        "tmx": f"<tmx><header srclang='en'/><tu><tuv xml:lang='en'><seg>{content}</seg></tuv></tu></tmx>",
    }.get(format_name, text)


@pytest.mark.slow
@each("format_name", sorted(text_formats()))
@each(
    "piece",
    [
        *("<b>a ", "<a ", '<a b="', "<", "<!--", "&", "[", "![a](b", "*a ", "`", "> ", "- ", "| a ", "{", "%0", "a@"),
        *(
            *("http://a)", "1,", '<!DOCTYPE a [<!ENTITY a "', "<![CDATA[", "<code>", "<p translate=no>a", "&nbsp;"),
            "\x00 a",
        ),
        *("$$\n", "```\n", "[a]: b\n", "(", "</b>", "{name} "),
    ],
)
def test_time_grows_with_the_length_alone(piece: str, format_name: str) -> None:
    text = document_of(piece * (5_000 // len(piece)), format_name)
    start = time.process_time()
    found = translate_document(text, format_name, echo, languages=("en", "de")).text
    assert time.process_time() - start < 1  # a hundred times what it takes; quadratic time is more than six of these
    assert found == text or format_name in BILINGUAL


def test_five_thousand_elements_within_each_other_are_kept_and_flagged() -> None:
    deep = "<r>x " + "<b>a " * 5_000 + "</b>" * 5_000 + "</r>"
    found = translate_document(deep, "xml", reversed_words)
    assert (found.text, dict(found.flags)) == (deep, {"kept": 1})


def test_entities_are_never_expanded() -> None:
    bomb = '<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><r>One &b; two</r>'
    found = translate_document(bomb, "xml", reversed_words).text
    assert found == bomb.replace("One &b; two", "two &b; One")
    assert ElementTree.fromstring(found).text == "two aaaaaaaa One"


@each(
    "format_name, text, encoding",
    [
        ("html", "<meta charset=latin1>", "latin1"),
        ("html", '<META http-equiv=x content="text/html; charset=UTF-8">', None),
        ("xml", '<?xml version="1.0" encoding="ISO-8859-1"?>', "ISO-8859-1"),
        ("xml", "<?xml version='1.0' encoding='utf-8'?>", None),
        ("po", 'msgstr ""\n"Content-Type: text/plain; charset=CP1252\\n"\n', "CP1252"),
        ("po", '"Content-Type: text/plain; charset=CHARSET\\n"\n', None),
        ("srt", "charset=latin1", None),
    ],
)
def test_a_document_that_says_it_is_not_utf_8_is_recognised(format_name: str, text: str, encoding: str | None) -> None:
    assert text_formats()[format_name].other_encoding(text) == encoding
