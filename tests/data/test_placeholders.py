"""Placeholders in a text: what has the form of one, what has not, where it stands, and that no text takes long."""

import string
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.each import each
from transformer_cli.data.placeholders import placeholders_in

URLS = (
    "https://example.com",
    "http://a.b/c?d=e&f=%20#g",
    "ftp://host/file_(1)",
    "www.example.org/x",
    "https://ex.org/ä",
)
EMAILS = ("first.last@example.com", "a+b@sub.example.co.uk", "x_1@a-b.de")
BRACES = ("{name}", "{}", "{0}", "{n:>5}", "{count, plural}", "{{ user.name }}", "{% if x %}", "${HOME}", "#{city}")
PERCENT = ("%s", "%d", "%5.2f", "%-10s", "%1$s", "%2$d", "%(name)s", "%(n)03d", "%lld", "%@", "%%")
FORMS = (*URLS, *EMAILS, *BRACES, *PERCENT)
# What only resembles one. Of numbers and of tags, this module knows nothing: other places keep them.
WORDS = ("12,345.67", "50%", "5 % des", "<b>", "</item>", "&amp;", "<2de>", "$5", "#3", "user@host", "@name", "a@b@")
OPEN = (
    *("{name", "name}", "{new\nline}", "{don't}", "{größte; Stadt}", "{{\n}}", "%(name)", "%()s", "%z", "100%ig"),
    "%sure",
)

# Each is a sentence that may stand before or after any other text, and has no placeholder itself.
plain = st.text(alphabet=string.ascii_letters + "äßжก中 ,;!?", max_size=20).map(lambda text: f"{text} ")


def found(text: str) -> list[str]:
    return [one.text for one in placeholders_in(text)]


@each("form", FORMS)
def test_each_form_is_found_alone_in_a_sentence_and_in_quotes(form: str) -> None:
    assert found(form) == [form]
    assert found(f"Le chat {form} dort.") == [form]
    assert found(f'Der Hund "{form}".') == [form]


@each("text", [*WORDS, *OPEN, "", " ", "https://", "www", "http:/x", "a.b@c"])
def test_what_only_resembles_one_is_text(text: str) -> None:
    assert found(text) == []
    assert found(f"the {text} is here") == []


@given(pieces=st.lists(st.tuples(plain, st.sampled_from(FORMS)), max_size=6), last=plain)
def test_all_are_found_in_their_order_and_at_their_places(pieces: list[tuple[str, str]], last: str) -> None:
    text, expected = "", []
    for before, form in pieces:
        text += before
        expected.append((len(text), len(text) + len(form), form))
        text += f"{form} "
    assert [(one.start, one.end, one.text) for one in placeholders_in(text + last)] == expected


@given(text=st.text(max_size=80) | st.text(alphabet="{}%$#()@:/.w sdhtp1\n-", max_size=80))
@example("http://...")
@example("{{{}}}%%%s%(%(a)s)s")
def test_of_any_text_they_are_parts_that_do_not_overlap(text: str) -> None:
    last = 0
    for one in placeholders_in(text):
        assert last <= one.start <= one.end <= len(text)
        assert one.text == text[one.start : one.end]
        assert not one.is_protected
        last = one.end


@each("after", [".", ",", "!?", "...", ")", "”", "»", "'", "。", "、", "…", "}", "]"])
def test_punctuation_after_a_url_is_not_part_of_it(after: str) -> None:
    assert found(f"siehe https://example.com/a{after} Und dann") == ["https://example.com/a"]


def test_a_bracket_that_a_url_opens_is_part_of_it_and_one_of_the_text_is_not() -> None:
    assert found("on https://example.com/Cat_(animal).") == ["https://example.com/Cat_(animal)"]
    assert found("(on https://example.com/Cat)") == ["https://example.com/Cat"]
    assert found("(see https://example.com/Cat_(animal)).") == ["https://example.com/Cat_(animal)"]
    assert found("[at https://example.com/a[1]]") == ["https://example.com/a[1]"]
    assert found("https://example.com/{id}, {n}") == ["https://example.com/{id}", "{n}"]
    assert found('<a href="https://example.com/a">here</a>') == ["https://example.com/a"]


@each(
    "text, expected",
    [
        ("请访问https://example.com/page查看详情", "https://example.com/page"),
        ("请访问https://example.com，谢谢", "https://example.com"),
        ("（https://example.com/a）", "https://example.com/a"),
        ("https://example.comをご覧ください", "https://example.com"),
        ("https://example.com/a에서 보세요", "https://example.com/a"),
        ("https://zh.wikipedia.org/wiki/中文_维基 和", "https://zh.wikipedia.org/wiki/中文_维基"),
        ("https://example.com/?q=中文&名前=1", "https://example.com/?q=中文&名前=1"),
        ("见 https://ja.wikipedia.org/wiki/Category:日本。", "https://ja.wikipedia.org/wiki/Category:日本"),
        ("https://ja.wikipedia.org/wiki/東京_(曖昧さ回避) と", "https://ja.wikipedia.org/wiki/東京_(曖昧さ回避)"),
        (
            "https://ja.wikipedia.org/wiki/東京2020オリンピック#歴史、",
            "https://ja.wikipedia.org/wiki/東京2020オリンピック#歴史",
        ),
        ("（https://www.食狮.公司.cn/）", "https://www.食狮.公司.cn/"),
        ("http://例え.jp/a", "http://例え.jp/a"),
    ],
)
def test_a_url_ends_where_a_script_without_spaces_goes_on(text: str, expected: str) -> None:
    assert found(text) == [expected]


def test_what_is_within_a_placeholder_is_not_found_again() -> None:
    assert found("https://example.com/{id}?mail=a@b.de&s=%s") == ["https://example.com/{id}?mail=a@b.de&s=%s"]
    assert found("{https://example.com}") == ["{https://example.com}"]


def test_what_stands_next_to_letters_is_found_where_no_word_goes_on() -> None:
    assert found("Hallo{name}s und%s") == ["{name}", "%s"]
    assert found("%s%d") == ["%s", "%d"]
    assert found("%sand %dx") == []  # of which the letter begins a word, as in 5%deduction


def test_what_is_longer_than_any_placeholder_is_text() -> None:
    assert found("{" + "a" * 100 + "}") == ["{" + "a" * 100 + "}"]
    assert found("{" + "a" * 101 + "}") == []
    assert found("%(" + "a" * 101 + ")s") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        *("{", "}", "%", "%(", "{{", "{%", "${", "{a:", "a@", "a.", "a@a.", "@a.a", "www.", "http://", "http://()"),
        *("/中", "%1$", "%0", ")", "“"),
    ],
)
def test_the_time_grows_with_the_length_of_a_text_whatever_is_in_it(piece: str) -> None:
    """A text of 300,000 characters takes less than a second; where each place is tried against all, it is hours."""
    started = time.process_time()
    placeholders_in(piece * (300_000 // len(piece)))
    assert time.process_time() - started < 20
