"""Mark-up under any translation: well-formed, every tag once, nested as in the source, and no text lost or added."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.each import each
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.formats import text_formats
from transformer_cli.addons.documents.reading import parse
from transformer_cli.decoding.results import Candidate, Translated
from transformer_cli.errors import DataError

WORDS = ["cat", "dog,", "(milk)", "and", "a", "„chair“", "3.5", "x-y", "sat.", "it's", "—", "!", "été", "b", "b"]


def translated(text: str, alignment: Sequence[tuple[int, int]] | None = None) -> Translated:
    return Translated([Candidate(text, 0.0)], alignment=None if alignment is None else list(alignment))


def texts_of(document: str, format_name: str) -> list[str]:
    return [unit.text for unit in parse(document, format_name).units]


def echo(texts: Sequence[str]) -> list[Translated]:
    return [translated(text, [(i, i) for i in range(len(text.split()))]) for text in texts]


class Scrambler:
    """Drops, repeats, reorders and changes words, with an alignment that may be right, wrong, partial or absent."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.answers: dict[str, str] = {}

    def __call__(self, texts: Sequence[str]) -> list[Translated]:
        return [self.one(text) for text in texts]

    def one(self, text: str) -> Translated:
        draw = self.random
        words = list(enumerate(text.split()))
        words = [word for word in words for _ in range(draw.choice([1, 1, 1, 0, 2]))]
        if draw.random() < 0.6:
            draw.shuffle(words)
        if draw.random() < 0.3:
            words.insert(draw.randint(0, len(words)), (0, "new"))
        changed = [(i, draw.choice([word, word.upper(), f"{word}.", f"«{word}»", "?"])) for i, word in words]
        alignment: list[tuple[int, int]] | None = [(i, j) for j, (i, _) in enumerate(changed)]
        kind = draw.random()
        if kind < 0.2:
            alignment = None
        elif kind < 0.4:
            alignment = [(draw.randint(0, 20), draw.randint(0, 20)) for _ in range(10)]
        elif kind < 0.6:
            alignment = [link for link in alignment or [] if draw.random() < 0.5]
        answer = " ".join(word for _, word in changed)
        self.answers[text] = answer
        return translated(answer, alignment)


@st.composite
def mixed_content(draw: st.DrawFn, *, depth: int = 3) -> str:
    """Text with elements in it, whose numbers `mark` adds; white space anywhere, and elements without text."""
    parts: list[str] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.integers(0, 9))
        if kind < 5 or depth == 0:
            parts.append(draw(st.sampled_from(WORDS)))
        elif kind < 8:
            parts.append(f"<b>{draw(mixed_content(depth=depth - 1))}</b>")
        elif kind == 8:
            parts.append(draw(st.sampled_from(["<b></b>", "<b> </b>", "<i><b></b></i>"])))
        else:
            parts.append("<img/>")
        parts.append(draw(st.sampled_from(["", " ", " ", "\n  "])))
    return "".join(parts)


def numbered(markup: str) -> str:
    """The mark-up with a number for each element, so that two of the same name can be told apart."""
    numbers = iter(range(10_000))
    return re.sub(r"<(\w+)", lambda match: f'<{match[1]} n="{next(numbers)}"', markup)


def parents(xml: str) -> dict[str, str | None]:
    """The number of each element's parent; expat refuses what is not well-formed."""
    root = ElementTree.fromstring(xml)
    return {child.attrib["n"]: parent.get("n") for parent in root.iter() for child in parent}


def letters(text: str) -> Counter[str]:
    return Counter(re.sub(r"\s", "", text))


@pytest.mark.slow
@given(mixed_content(), st.integers(0, 10**6))
@settings(max_examples=400, deadline=None)
@example("<b>a</b> <b>b</b> <b>c</b>", 0)
@example("cat<b>cat<b>cat cat</b> cat<b></b>cat</b> cat cat cat", 6)  # a word that repeats its letters
def test_any_translation_is_well_formed_and_has_each_tag_once_where_it_was_nested(content: str, seed: int) -> None:
    source = numbered(f"<p>cat {content} cat</p>")
    scrambler = Scrambler(seed)
    found = translate_document(source, "xml", scrambler)
    assert parents(found.text) == parents(source)
    text, before = ("".join(ElementTree.fromstring(one).itertext()) for one in (found.text, source))
    answers = " ".join(scrambler.answers[unit.source] or unit.source for unit in found.units)
    untranslated = letters(before) - letters(" ".join(unit.source for unit in found.units))  # `3.5` between two images
    assert letters(text) == letters(answers) + untranslated


class Tags(HTMLParser):
    """What Python's own parser finds: the tags, in order, and whether each closing one closes the innermost."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.stack: list[str] = []
        self.is_nested, self.text = True, ""
        self.feed(html)
        self.close()
        self.is_nested &= not self.stack

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(f"{tag} {attrs}")
        if tag not in ("img", "br", "wbr"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")
        self.is_nested &= bool(self.stack) and self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@given(mixed_content(), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_html_keeps_its_tags(content: str, seed: int) -> None:
    source = "<div><p>cat " + numbered(content).replace("/>", ">").replace("<img", "<img alt='a dog'") + "</p></div>"
    source = source.replace("sat.", "sat.<br>Then")
    found = Tags(translate_document(source, "html", Scrambler(seed)).text)
    before = Tags(source)
    assert found.is_nested

    def without_alt(tags: list[str]) -> Counter[str]:
        return Counter(re.sub(r"\('alt', .*?\)", "", tag) for tag in tags)

    assert without_alt(found.tags) == without_alt(before.tags)


@given(mixed_content(), st.sampled_from(["html", "xml", "text", "markdown", "srt"]))
@settings(max_examples=200, deadline=None)
def test_the_same_text_is_the_same_document(content: str, format_name: str) -> None:
    source = f"<p>cat {content}</p>\n"
    assert translate_document(source, format_name, echo).text == source


NOISE = st.text(st.sampled_from(list("<>/&;ab \n\t\r\"'=!-[](){}*_`~#|>\\1.$%:@\x00\ufeff中é—")), max_size=60)
PIECES = st.sampled_from(
    [
        *("<p>", "</p>", "<b", "<b>", "</b>", "<!--", "-->", "<br>", "<code>", "</code>", "<pre>", "</pre>", "&amp;"),
        *("&nbsp;", "&#0;", "&bogus;", "<script>", "</script>", "<![CDATA[", "]]>", "<!DOCTYPE x [", "]>", "<?x"),
        *("**", "_a_", "[a](b)", "![a](b)", "```", "    ", "- ", "1. ", "> ", "# ", "| a | b |\n|---|---|\n", "\n\n"),
        *(
            *("msgid ", 'msgstr ""\n', '"a b"\n', "1\n00:00:01,000 --> 00:00:02,000\n", "{name}", "%s"),
            *("http://x.y/z", "a@b.cd"),
        ),
        *("title", 'alt="a dog"', "  \n", "\\\n", "<p translate=no>", "<span class=notranslate>", "word words", "  "),
    ]
)
SOUP = st.lists(st.one_of(NOISE, PIECES), max_size=15).map("".join)


# Formats of which a translation that equals its source is written, too; those, and others of which some text is none.
BILINGUAL = ("po", "tmx", "ts", "xcstrings", "xliff")
STRICT = (*BILINGUAL, "json", "strings", "stringsdict", "yaml")


@given(SOUP, st.sampled_from(sorted(text_formats())))
@settings(max_examples=600, deadline=None)
def test_whatever_is_not_text_is_kept_byte_for_byte(soup: str, format_name: str) -> None:
    if format_name in BILINGUAL:
        return
    try:
        assert translate_document(soup, format_name, echo).text == soup
    except DataError:
        assert format_name in STRICT


@given(SOUP, st.sampled_from(sorted(text_formats())), st.integers(0, 10**6))
@settings(max_examples=400, deadline=None)
def test_no_document_and_no_translation_is_an_error(soup: str, format_name: str, seed: int) -> None:
    refusal = ""
    try:
        translate_document(soup, format_name, Scrambler(seed))
    except DataError as error:
        refusal = str(error)
    assert not refusal or (format_name in STRICT and re.fullmatch(r"the document:\d+: .*[.?] .*|.*[.?]", refusal))


@each("format_name", sorted(text_formats()))
def test_the_translator_is_called_with_all_texts_at_once(format_name: str) -> None:
    calls = []

    def counting(texts: Sequence[str]) -> list[Translated]:
        calls.append(list(texts))
        return echo(texts)

    texts = {
        "po": 'msgid "A cat."\nmsgstr ""\nmsgid "A dog."\nmsgstr ""\n',
        "json": '["A cat.", "A dog."]',
        "strings": '"a" = "A cat."; "b" = "A dog.";',
        "stringsdict": "<plist><dict><key>a</key><string>A cat.</string></dict></plist>",
        "tmx": "<tmx><header srclang='en'/><tu><tuv xml:lang='en'><seg>A cat.</seg></tuv></tu></tmx>",
        "ts": "<TS><message><source>A cat.</source><translation type='unfinished'/></message></TS>",
        "xcstrings": '{"sourceLanguage": "en", "strings": {"A cat.": {}, "A dog.": {}}}',
        "xliff": "<xliff><trans-unit><source>A cat.</source></trans-unit></xliff>",
        "yaml": "- A cat.\n- A dog.\n",
    }
    translate_document(texts.get(format_name, "A cat.\n\nA dog.\n"), format_name, counting, languages=("en", "de"))
    assert len(calls) <= 1
