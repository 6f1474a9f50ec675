"""Code and directives within a text: each is in the translation as often as in the source, on its own characters."""

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from html import unescape

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.addons.documents.test_markup_properties import translated
from tests.support.each import each
from tests.support.marked import Recorder, in_order, marked, reversed_order, unmarked
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.words import IN_WORD
from transformer_cli.decoding.results import Translated

# Words that hold the texts of code, which are short, so that many are within others.
CODE = ("F", "c", "int", "a", "utf", "an", "foo()", "%s", "--x", ".", "F1")
WORDS = ("For", "call", "can", "an", "int", "int32", "utf", "a", "F1.", "c,", "here", "1", "Fan")
GLUE = ("", "", "", "1", "32", "s", "8")


@st.composite
def words_with_code(draw: st.DrawFn) -> str:
    found = ["The", *draw(st.lists(st.sampled_from(WORDS), max_size=4))]
    for _ in range(draw(st.integers(1, 3))):
        before, after = draw(st.sampled_from(["", "", "2", "in"])), draw(st.sampled_from(GLUE))
        found.append(f"{before}<kbd>{draw(st.sampled_from(CODE))}</kbd>{after}")
        found += draw(st.lists(st.sampled_from(WORDS), max_size=3))
    return " ".join(found)


@given(words_with_code())
@settings(max_examples=100, deadline=None)
@example("For help, press <kbd>F</kbd>1.")
@example("You can call <kbd>c</kbd>1 now")
@example("Use utf or <kbd>utf</kbd>8 files")
@example("An <kbd>int</kbd>32 or an <kbd>int</kbd> type")
def test_a_translation_in_order_has_code_where_the_source_has_it(content: str) -> None:
    source = f"<p>{content}</p>"
    assert unmarked(translate_document(source, "html", in_order).text) == source


@given(words_with_code())
@settings(max_examples=100, deadline=None)
@example("The <kbd>a</kbd> <kbd>%s</kbd>2 and <kbd>%s</kbd>")
def test_a_translation_in_reverse_has_code_in_the_words_in_which_the_source_has_it(content: str) -> None:
    found = translate_document(f"<p>{content}</p>", "html", reversed_order).text
    assert unmarked(found) == f"<p>{' '.join(content.split()[::-1])}</p>"


def test_a_letter_of_code_is_found_between_characters_of_a_script_without_spaces() -> None:
    translations = {"Press F now": "现在按F键", "现在按F键": "Now press F"}

    def translate(texts: Sequence[str]) -> list[Translated]:
        return [translated(translations[text]) for text in texts]

    assert translate_document("<p>Press <kbd>F</kbd> now</p>", "html", translate).text == "<p>现在按<kbd>F</kbd>键</p>"
    found = translate_document("<p>现在按<kbd>F</kbd>键</p>", "html", translate)
    assert (found.text, found.flags) == ("<p>Now press <kbd>F</kbd></p>", Counter())


@pytest.mark.parametrize("other", ["a", "Ab", "xA"])
def test_code_of_one_letter_is_not_found_in_another_word_or_case(other: str) -> None:
    def translate(texts: Sequence[str]) -> list[Translated]:
        return [translated(text.replace("A", other), identity(text.split())) for text in texts]

    found = translate_document("<p>Press <kbd>A</kbd> here</p>", "html", translate).text
    assert found == "<p>Press <kbd>A</kbd> here</p>"  # by a stand-in


# ---- Several words, and white space at the edges


PIECES = ("a ", "quick ", "tag", " iPhone", ", ", " ", "<u>", "</u>", "<a>", "</a>", "<i>dog</i>", "<a>l m</a>")
CODE_OF_WORDS = ("{c d}", "{ make }", "{make }", "{ #1 dog}", "{1 a}", "{x}", "{&nbsp;k }")
ENDS_WITH_CODE = re.compile(r"(?:c|d|make|#1|dog|1|a|x|k|Acme|Corp)\W*\Z")


def in_order_with_code(texts: Sequence[str]) -> list[Translated]:
    """A translator that marks the words that do not end with code, as a model copies it."""
    words = [text.split() for text in texts]
    return [
        translated(" ".join(one if ENDS_WITH_CODE.search(one) else marked(one) for one in of_text), identity(of_text))
        for of_text in words
    ]


def identity(words: Sequence[str]) -> list[tuple[int, int]]:
    return [(i, i) for i in range(len(words))]


@st.composite
def text_with_code(draw: st.DrawFn) -> str:
    pieces = draw(st.lists(st.sampled_from(PIECES) | st.sampled_from(CODE_OF_WORDS), max_size=9))
    is_open = False
    found = ["Now "]
    # Each code once: `make` beside `make make` is the same text as `make make` beside `make`.
    by_text = {piece.strip("{ }") if "{" in piece else i: (i, piece) for i, piece in enumerate(pieces)}
    for _, piece in sorted(by_text.values()):
        if re.fullmatch(r"</?[ua]>", piece):  # a pair at a time
            piece = "</b>" if is_open else "<b>"
            is_open = not is_open
        found.append(piece.replace("{", "<kbd>").replace("}", "</kbd>"))
    return re.sub(" +", " ", "".join([*found, "</b>" * is_open, " end"]))


@given(text_with_code())
@settings(max_examples=150, deadline=None)
@example("Please run<kbd> make </kbd>now and wait")
@example("b <kbd>#1 dog</kbd><u>tag iPhone</u>")
@example("x <kbd>1 a</kbd><i>quick</i> to")
@example("See <kbd>c d</kbd><a>l m</a>")
def test_words_apart_in_the_source_are_apart_for_the_model_and_no_tag_moves(content: str) -> None:
    source = f"<p>{content}</p>"
    found = translate_document(source, "html", in_order_with_code)
    assert unmarked(found.text) == source
    text = unescape(re.sub(r"<[^>]+>", "", source))
    read = " ".join(unit.source for unit in found.units)
    assert ends_of_words(text) <= ends_of_words(read)


def ends_of_words(text: str) -> set[int]:
    """How many characters that are no white space are before the end of each word."""
    ends, n = set(), 0
    for word in text.split():
        n += len(word)
        ends.add(n)
    return ends


@each(
    "format_name, source, read",
    [
        ("html", "<p>Please run<code> make </code>now</p>", "Please run make now"),
        ("html", '<p>Ask <span class="notranslate">Acme Corp </span>people</p>', "Ask Acme Corp people"),
        ("html", "<p>See <code>c d</code><a>l m</a></p>", "See c d l m"),
        ("html", "<p>the <var>x</var><sub>i</sub> of it</p>", "the xi of it"),
        ("markdown", "Run `make `now", "Run make now"),
    ],
)
def test_the_model_reads_the_white_space_in_code(format_name: str, source: str, read: str) -> None:
    recorder = Recorder(in_order_with_code)
    found = translate_document(source, format_name, recorder)
    assert recorder.texts == [read]
    assert unmarked(found.text) == source


def test_a_word_behind_code_of_several_words_is_not_cut() -> None:
    found = translate_document("<p>x <kbd>1 a</kbd><u>quick</u>ly to</p>", "html", in_order).text
    assert re.search(r"<u>quick\w*</u>", found)


@each("translate", [in_order, reversed_order])
@each(
    "code",
    [
        *("<kbd>Ctrl</kbd><kbd>C</kbd>", "`print()`{.python}", "`x`<code>y</code>", "`a`{{ b }}", "`a`$x$"),
        "`a`<kbd>x</kbd>`c`",
    ],
)
def test_text_with_code_beside_other_code_is_translated(
    code: str, translate: Callable[[Sequence[str]], list[Translated]]
) -> None:
    found = translate_document(f"Press {code} now", "markdown", translate)
    assert "kept" not in found.flags
    words = ["Press", code, "now"]
    assert unmarked(found.text) == " ".join(words if translate is in_order else words[::-1])


# ---- Stand-ins


class Forgetful:
    """A translator that leaves out variables, and copies, damages, doubles or leaves out long numbers and names."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __call__(self, texts: Sequence[str]) -> list[Translated]:
        return [self.one(re.sub(r"%s|%d|\{\w*\}", self.variable, text)) for text in texts]

    def variable(self, match: re.Match[str]) -> str:
        return self.random.choice(["", "", match[0]])

    def one(self, text: str) -> Translated:
        words = [self.word(word) for word in text.upper().replace("%S", "%s").split()]
        return translated(" ".join(filter(None, words)), [(i, i) for i in range(len(words))])

    def word(self, word: str) -> str:
        if not re.search(r"\d{4}", word):
            return word
        return self.random.choice(
            [word, word, word, word[::-1], f"{word[0]},{word[1:]}", f"{word} {word}", word[:-1], ""]
        )


@given(
    st.lists(st.sampled_from(["%s", "{x}", "%s%s", "{x}2", "1{c}", "word", "to", "3"]), min_size=2, max_size=7),
    st.integers(0, 10**6),
)
@settings(max_examples=150, deadline=None)
@example(["%s%s", "to", "%s"], 0)
@example(["1{c}", "word", "{x}", "to", "{x}"], 3)
def test_no_number_is_in_a_translation_that_is_in_no_source(words: list[str], seed: int) -> None:
    source = " ".join(["Copied", *words, "now"])
    found = translate_document(f"<p>{source}</p>", "html", Forgetful(seed)).text
    assert set(re.findall(r"\d+", found)) <= set(re.findall(r"\d+", source))
    for variable in ("%s", "{x}", "{c}"):
        if not re.search(rf"{re.escape(variable)}{IN_WORD}", source) or variable[0] == "{":
            assert found.count(variable) == source.count(variable)


# ---- Messages of gettext


def upper(directive: str) -> str:
    return directive.upper()


def spaced(directive: str) -> str:
    return f"{directive[0]} {directive[1:]}"


def suffixed(directive: str) -> str:
    return f"{directive}n"


def left_out(directive: str) -> str:
    return ""


@each("damage", [str, upper, spaced, suffixed, left_out])
@each("which", [0, 1, -1])
@each(
    "flag, message",
    [
        ("c", "Take %s2 and %s"),
        ("c", "Take %s and %s2 and %d"),
        ("c", "%s%s is not %s"),
        ("java-printf", "It is %1$d2 of %1$d"),
        ("python-brace", "See chapter 1{c} of {d} and {c}"),
    ],
)
def test_a_message_has_each_directive_as_often_as_its_source(
    flag: str, message: str, which: int, damage: Callable[[str], str]
) -> None:
    pattern = re.compile(r"%1\$d|%[sd]|\{\w\}")

    def translate(texts: Sequence[str]) -> list[Translated]:
        found = []
        for text in texts:
            directives = list(pattern.finditer(text))
            if directives:
                start, end = directives[which].span()
                text = text[:start] + damage(text[start:end]) + text[end:]
            found.append(translated(f"«{text}»", [(i, i) for i in range(len(text.split()))]))
        return found

    found = translate_document(f'#, {flag}-format\nmsgid "{message}"\nmsgstr ""\n', "po", translate).text
    message_string = found.partition("msgstr ")[2]
    assert Counter(re.findall(r"%1\$d|%[sdSD]|\{ ?\w\}", message_string)) == Counter(pattern.findall(message))
    assert set(re.findall(r"\d+", message_string)) == set(re.findall(r"\d+", message))
