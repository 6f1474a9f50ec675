"""Catalogues of gettext: read as polib and gettext read them, with all that a message keeps, byte for byte."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.each import each
from tests.support.marked import MARK, in_order, marked, reversed_order, unmarked
from transformer_cli.addons.documents.document import translate_document
from transformer_cli.addons.documents.reading import parse
from transformer_cli.decoding.results import Translated
from transformer_cli.errors import DataError

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n{}\n'
FORMS = {  # by the number of forms: that of ja, de, ru and ar
    1: "nplurals=1; plural=0;",
    2: "nplurals=2; plural=n != 1;",
    3: "nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2;",
    6: "nplurals=6; plural=n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5;",
}


@pytest.fixture(scope="module")
def polib() -> ModuleType:
    return pytest.importorskip("polib")


def catalogue(*messages: str, plural: str = "", header: str = "") -> str:
    lines = (f'"Plural-Forms: {plural}\\n"\n' if plural else "") + header
    return HEADER.format(lines) + "\n".join(messages)


def translated(message: str, header: str = "", *, plural: str = "") -> str:
    """The message alone, with the words in order, and marked."""
    text = catalogue(message, plural=plural, header=header)
    before = len(text) - len(message)
    found = translate_document(text, "po", in_order).text
    assert found[:before] == text[:before]
    return found[before:]


def strings(message: str) -> list[str]:
    return re.findall(r'^msgstr(?:\[\d\])? "(.*)"$', message, re.MULTILINE)


# ---- Reading


LAYOUTS = {
    "a string on the next line": ('msgid\n"A cat"\nmsgstr\n""\n', 'msgid\n"A cat"\nmsgstr\n"Aж catж"\n'),
    "two strings on a line": ('msgid "A " "cat"\nmsgstr "" ""\n', 'msgid "A " "cat"\nmsgstr "Aж catж" ""\n'),
    "a comment after a string": ('msgid "A cat"\nmsgstr "" # x "\n', 'msgid "A cat"\nmsgstr "Aж catж" # x "\n'),
    "a comment in a message": ('msgid "A cat"\n# x\nmsgstr ""\n', 'msgid "A cat"\n# x\nmsgstr "Aж catж"\n'),
    "no space": ('msgid"A cat"\nmsgstr""\n', 'msgid"A cat"\nmsgstr"Aж catж"\n'),
    "indented": ('  msgid "A cat"\n\tmsgstr ""\n', '  msgid "A cat"\n\tmsgstr "Aж catж"\n'),
    "a blank line": ('msgid "A"\n\n" cat"\nmsgstr ""\n', 'msgid "A"\n\n" cat"\nmsgstr "Aж catж"\n'),
    "no line end": ('msgid "A cat"\nmsgstr ""', 'msgid "A cat"\nmsgstr "Aж catж"'),
    "CRLF": ('msgid "A cat"\r\nmsgstr ""\r\n', 'msgid "A cat"\r\nmsgstr "Aж catж"\r\n'),
    "a number with spaces": (
        'msgid "A"\nmsgid_plural "B"\nmsgstr[ 0 ] ""\nmsgstr [1] ""\n',
        'msgid "A"\nmsgid_plural "B"\nmsgstr[ 0 ] "Aж"\nmsgstr [1] "Bж"\n',
    ),
    "two messages on a line": (
        'msgid "A" msgstr "" msgid "B" msgstr "b"\n',
        'msgid "A" msgstr "Aж" msgid "B" msgstr "b"\n',
    ),
    "escapes": (
        'msgid "a\\\\new \\"b\\"\\tc\\a"\nmsgstr ""\n',
        'msgid "a\\\\new \\"b\\"\\tc\\a"\nmsgstr "a\\\\newж \\"bж\\"\\tcж\\a"\n',
    ),
}


@each("source, expected", list(LAYOUTS.values()))
def test_strings_may_stand_anywhere_and_nothing_else_changes(source: str, expected: str) -> None:
    newline = "\r\n" if "\r" in source else "\n"
    assert translated(source) == f"#, fuzzy{newline}{expected}"


KEPT = [
    '#, fuzzy\nmsgid "A cat"\nmsgstr "x"\n',
    'msgctxt "c"\nmsgid "A cat"\nmsgstr "" "x"\n',
    '#~ msgid "A cat"\n#~ msgstr ""\n',
    '#~| msgid "x"\n#~ msgctxt "c"\n#~ msgid "A cat"\n#~ msgid_plural "B"\n#~ msgstr[0] ""\n',
    'msgid "A cat"\nmsgid_plural "Cats"\nmsgstr[0] ""\nmsgstr[1] "x"\n',
    'msgid "123 %"\nmsgstr ""\n',
    'domain "x"\n',
]


@each("message", KEPT)
def test_what_is_translated_or_obsolete_stays(message: str) -> None:
    assert translated(message) == message


def test_the_fuzzy_mark_stands_with_the_flags_and_before_the_older_text() -> None:
    assert translated('#: a.c\n#, c-format\n#| msgid "B"\nmsgid "A"\nmsgstr ""\n').startswith(
        "#: a.c\n#, fuzzy, c-format\n#| "
    )
    assert translated('# x\n#| msgid "B"\nmsgid "A"\nmsgstr ""\n').startswith('# x\n#, fuzzy\n#| msgid "B"\nmsgid')
    assert translated('#, fuzzy\nmsgid "A"\nmsgstr ""\n').count("fuzzy") == 1


WRONG = [
    ('msgid "A"\nmsgstr "b\n', 2, "is neither a keyword nor a string"),
    ('msgid "A"\n', 1, "a message without msgstr"),
    ('\nmsgid "A"\nmsgid "B"\nmsgstr ""\n', 2, "a message without msgstr"),
    ('msgid "A"\nmsgstr\n\nmsgid "B"\nmsgstr ""\n', 2, "msgstr without a string"),
    ('"A"\n', 1, "'A' follows no keyword"),
    ('msgid "A"\nmsgstr ""\nmsgstr ""\n', 3, "msgstr stands twice in a message"),
    ('msgstr ""\n', 1, "msgstr without msgid"),
    ('msgid "A"\nmsgstr[0] ""\n', 2, "msgstr[0] without msgid_plural"),
    ('msgid "A"\nmsgid_plural "B"\nmsgstr ""\n', 3, "msgstr in a message with a plural, which needs msgstr[0]"),
    ("<<<<<<< HEAD\n", 1, "'<<<<<<< HEAD' is neither a keyword nor a string"),
    ("Hello\r\n", 1, "'Hello' is neither a keyword nor a string"),
]


@each("text, line, says", WRONG)
def test_what_is_no_catalogue_is_refused_with_its_line(text: str, line: int, says: str) -> None:
    with pytest.raises(DataError) as caught:
        parse(text, "po", "fr.po")
    assert str(caught.value).startswith(f"fr.po:{line}: ")
    assert f"{says}. Correct the catalogue" in str(caught.value)


# ---- Judges


@st.composite
def random_message(draw: st.DrawFn) -> str:
    def string(text: str) -> str:
        parts = [part for part in re.split(r"(?<= )", text) if part] if text and draw(st.booleans()) else [text]
        breaks = draw(st.sampled_from(["\n", "\n\n", "\n  "]))
        return breaks.join(f'"{part}"' for part in parts)

    words = st.lists(
        st.sampled_from(["cat", "%s", "<b>dog</b>", '\\"', "\\n", "{x}", "Sat.", "été"]), min_size=1, max_size=5
    )
    text = " ".join(["word", *draw(words)])
    lines = draw(st.lists(st.sampled_from(["# note", "#. said", "#: a.c:1", "#, c-format"]), max_size=3, unique=True))
    if draw(st.booleans()):
        lines.append(f'msgctxt "{draw(st.integers())}"')
    lines.append(f"msgid {string(text)}")
    value = draw(st.sampled_from(["", "", "done"]))
    if draw(st.booleans()):
        lines += [
            f'msgid_plural "{text}"',
            *(f'msgstr[{n}] "{value}"' for n in range(draw(st.sampled_from([1, 2, 3, 6])))),
        ]
    else:
        lines.append(f"msgstr {string(value)}")
    return "\n".join(lines) + "\n"


@given(st.lists(random_message(), max_size=4), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=100, deadline=None)
def test_polib_reads_the_same_messages_with_their_translations(
    polib: ModuleType, messages: list[str], newline: str
) -> None:
    # Two messages with the same text and context are one.
    numbered = [message.replace("word", f"word{n}") for n, message in enumerate(messages)]
    source = catalogue(*numbered).replace("\n", newline)
    found = translate_document(source, "po", in_order).text
    before, after = (list(polib.pofile(text)) for text in (source, found))
    assert len(before) == len(after) == len(messages)
    for one, other in zip(before, after, strict=True):
        same = ("msgctxt", "msgid", "msgid_plural", "comment", "tcomment", "occurrences")
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
        values = [[entry.msgstr, *entry.msgstr_plural.values()] for entry in (one, other)]
        if any(values[0]):
            assert values[0] == values[1]
            assert one.flags == other.flags
            continue
        assert set(other.flags) == {*one.flags, "fuzzy"}
        for value in filter(None, values[1]):
            assert unmarked(value).split() == one.msgid.split()
            assert MARK in value
    # Each line of the source is still there, in order, unless it is an empty translation or was given a flag.
    rest = iter(found.split(newline))
    for line in source.split(newline):
        assert line.startswith(("msgstr", "#, ")) or any(line == other for other in rest)


@pytest.mark.skipif(shutil.which("msgcat") is None, reason="needs gettext")
def test_gettext_reads_the_same_messages(polib: ModuleType) -> None:
    layouts = [source for name, (source, _) in LAYOUTS.items() if "in a message" not in name and "plural" not in source]
    text = "\n".join(source.replace('"A', f'"{n}A', 1).replace("\r", "") for n, source in enumerate(layouts))
    for document in (catalogue(text), translate_document(catalogue(text), "po", in_order).text):
        done = subprocess.run(["msgcat", "-"], input=document.encode(), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        found = [entry.msgid for entry in polib.pofile(done.stdout.decode())]
        assert len(found) == len(re.findall("msgid", text))


# ---- Plural forms


@each(
    "forms, singular, expected",
    [
        (1, "%d cat", ["Cats"]),
        (2, "%d cat", ["cat", "Cats"]),
        (2, "a cat", ["cat", "Cats"]),
        (3, "%d cat", ["cat", "Cats", "Cats"]),
        (3, "a cat", ["Cats", "Cats", "Cats"]),  # 21 of them have the first form, too
        (6, "a cat", ["Cats", "cat", "Cats", "Cats", "Cats", "Cats"]),  # the first is that of none
    ],
)
def test_the_singular_is_the_form_of_one(forms: int, singular: str, expected: list[str]) -> None:
    values = "".join(f'msgstr[{n}] ""\n' for n in range(forms))
    found = translated(f'#, c-format\nmsgid "{singular}"\nmsgid_plural "%d Cats"\n{values}', plural=FORMS[forms])
    assert [string.split()[-1] for string in strings(found)] == [word + MARK for word in expected]


@pytest.mark.parametrize("rule", ["", "nplurals=2; plural=n +;", "nplurals=2; plural=__import__('os');"])
def test_a_header_without_a_rule_is_read_as_english(rule: str) -> None:
    found = translated('msgid "a cat"\nmsgid_plural "Cats"\nmsgstr[0] ""\nmsgstr[1] ""\n', plural=rule)
    assert strings(found) == ["aж catж", "Catsж"]


# ---- What messages keep


def lossy(texts: Sequence[str]) -> list[Translated]:
    """Translates as a model that has never seen a placeholder: it keeps letters and numbers, and drops the rest."""
    return in_order([re.sub(r"[^\w\s]", "", text) or "x" for text in texts])


PLACEHOLDERS = [
    ("qt-format", "The king sold %L1 and %n of %1.", ["%L1", "%n", "%1"]),
    ("kde-format", "<filename>%1</filename> is %2", ["%1", "%2"]),
    (
        "c-format",
        "Of %-5.2lf in %1$s with %*d, %<PRIu64> and %dx%d %%",
        ["%-5.2lf", "%1$s", "%*d", "%<PRIu64>", "%d", "%%"],
    ),
    ("python-format", "Of %(name)s and %(n)05d", ["%(name)s", "%(n)05d"]),
    ("python-brace-format", "Of {name!r:>10} and {}", ["{name!r:>10}", "{}"]),
    ("java-format", "The dog saw {0} and {1,number,#.##}", ["{0}", "{1,number,#.##}"]),
    (
        "icu-format",
        "Of {n, plural, one {# cat} other {# {x} cats}} now",
        ["{n, plural, one {# cat} other {# {x} cats}}"],
    ),
    ("", "Of {n, select, a {# cat} other {}} now", ["{n, select, a {# cat} other {}}"]),
    ("php-format", "Of %1$s and %'05d", ["%1$s", "%'05d"]),
    ("ruby-format", "Of %{name} and %<n>d", ["%{name}", "%<n>"]),
    ("sh-format", "Of $name and ${other}", ["$name", "${other}"]),
    ("perl-brace-format", "Of {name}", ["{name}"]),
    ("boost-format", "Of %1% and %|2$5|", ["%1%", "%|2$5|"]),
    ("lisp-format", "Of ~a and ~5,2f", ["~a", "~5,2f"]),
    ("", "Of %s and {name} and %(x)s", ["%s", "{name}", "%(x)s"]),
]


@each("flag, text, kept", PLACEHOLDERS)
def test_variables_are_kept_by_the_flags_of_a_message(flag: str, text: str, kept: list[str]) -> None:
    source = catalogue((f"#, {flag}\n" if flag else "") + f'msgid "{text}"\nmsgstr ""\n')
    for translate in (in_order, reversed_order, lossy):
        (string,) = strings(translate_document(source, "po", translate).text)[1:]
        for one in kept:
            assert string.count(one) == text.count(one), string


@pytest.mark.parametrize("header", ['"X-Qt-Contexts: true\\n"\n', '"X-Generator: Lokalize 23.04\\n"\n'])
def test_the_origin_of_a_catalogue_stands_for_flags(header: str) -> None:
    message = 'msgid "The cat saw %1 in %2."\nmsgstr ""\n'
    source = catalogue(message, header=header)
    (string,) = strings(translate_document(source, "po", lossy).text)[1:]
    assert "%1" in string
    assert "%2" in string


@each("flag", ["", "#, c-format\n", "#, python-format\n", "#, no-c-format\n"])
def test_a_percentage_is_text(flag: str) -> None:
    assert strings(translated(f'{flag}msgid "We are 100 % sure of 50 % of it"\nmsgstr ""\n')) == [
        " ".join(map(marked, ["We", "are", "100", "%", "sure", "of", "50", "%", "of", "it"]))
    ]


RST = [
    (":ref:`the first garden <first-garden>`", "theж firstж gardenж", ":ref:`{} <first-garden>`"),
    ("`the boat <https://example.org/boat>`_", "theж boatж", "`{} <https://example.org/boat>`_"),
    ("`here`_", "hereж", "`{} <here_>`_"),  # the reference still has its name
    ("**very hot**", "veryж hotж", "**{}**"),
    ("*hot*", "hotж", "*{}*"),
    (":guilabel:`Save as`", "Saveж asж", ":guilabel:`{}`"),
    ("``garden.yaml``", None, "``garden.yaml``"),
    (":class:`~garden.Plan`", None, ":class:`~garden.Plan`"),
    (":py:func:`garden.plan()`", None, ":py:func:`garden.plan()`"),
    ("|version|", None, "|version|"),
    ("[1]_", None, "[1]_"),
    ("Python_", None, "Python_"),
    ("`x`", None, "`x`"),
]


@each("markup, text, written", RST)
@each("place", ["Cats {} sat.", "{} Sat cats", "See ({})."])
def test_restructured_text_keeps_its_mark_up(markup: str, text: str | None, written: str, place: str) -> None:
    message = f'#: ../guide/first.rst:14\nmsgid "{place.format(markup)}"\nmsgstr ""\n'
    (string,) = strings(translated(message))
    if text is None:
        assert written in string
        assert string.count(MARK) >= len(re.findall(r"[a-zA-Z]+", place))
    else:
        assert written.format(text) in string
    (other,) = strings(translate_document(catalogue(message), "po", reversed_order).text)[1:]
    kept = re.findall(r":\w+:`|<[^>]*>`_?|\*+|``|\|", written.format(""))
    assert all(other.count(one) == written.count(one) for one in kept)


def test_stars_and_bars_are_text_where_the_catalogue_is_of_no_documentation() -> None:
    assert strings(translated('msgid "a *star* and a |bar| and snake_"\nmsgstr ""\n')) == [
        "aж *starж* andж aж |barж| andж snake_ж"
    ]
    assert ":ref:`aж bж <x>`" in translated('msgid "see :ref:`a b <x>` now"\nmsgstr ""\n'), "a role is one anywhere"


GAPS = [" ", "  ", "   ", "\t", " \t ", "\n", "\n  ", "\r\n", "  \n\n\t", "\v"]
WORDS = st.sampled_from(["--help", "Show", "This", "%s", "<b>file</b>", "Ctrl+O", "-v"])


@settings(max_examples=60)
@given(st.lists(st.tuples(WORDS, st.sampled_from(GAPS)), min_size=1, max_size=8))
def test_white_space_that_aligns_a_message_stays(polib: ModuleType, parts: list[tuple[str, str]]) -> None:
    source = "".join(word + gap for word, gap in [*parts, ("Show", "")])
    quoted = source.translate(str.maketrans({"\n": "\\n", "\t": "\\t", "\r": "\\r", "\v": "\\v"}))
    found = translated(f'#, c-format\nmsgid "{quoted}"\nmsgstr ""\n')
    (entry,) = polib.pofile(catalogue(found))
    assert unmarked(entry.msgstr) == entry.msgid


def test_columns_of_a_message_are_texts_and_lines_of_a_sentence_are_one() -> None:
    def texts(message: str) -> list[str]:
        return [unit.text for unit in parse(catalogue(f'msgid "{message}"\nmsgstr ""\n'), "po").units]

    assert texts(r"Open\tCtrl+O") == ["Open", "Ctrl+O"]
    assert texts(r"  --help     show this help\n") == ["--help", "show this help"]
    assert texts(r"a cat  in\nthe sun") == ["a cat", "in the sun"]
    assert texts(r"a cat\r\nin the sun") == ["a cat in the sun"]
    assert texts("see <a  href='x  y'>the page</a>") == ["see the page"]
