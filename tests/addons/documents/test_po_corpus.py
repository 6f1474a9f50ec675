"""Catalogues of gettext as corpora: finished translations, as polib reads them, and the languages of the header."""

import pytest

from tests.support.bilingual import contents, format_of, rows
from tests.support.each import each
from transformer_cli.errors import DataError

HEAD = 'msgid ""\nmsgstr ""\n"Language: {}\\n"\n"Content-Type: text/plain; charset={}\\n"\n"{}\\n"\n\n'
ENGLISH = "Plural-Forms: nplurals=2; plural=n != 1;"
RUSSIAN = (
    "Plural-Forms: nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20) ? 1 : 2;"
)


def catalogue(*messages: str, language: str = "de", charset: str = "UTF-8", plurals: str = ENGLISH) -> str:
    return HEAD.format(language, charset, plurals) + "\n".join(messages)


def message(source: str, target: str, before: str = "") -> str:
    return f'{before}msgid "{source}"\nmsgstr "{target}"\n'


def plural(*forms: str, source: str = "%d file", other: str = "%d files") -> str:
    texts = "\n".join(f'msgstr[{number}] "{form}"' for number, form in enumerate(forms))
    return f'msgid "{source}"\nmsgid_plural "{other}"\n{texts}\n'


SEVERAL = catalogue(
    message("one", "eins"),
    message("two", "zwei", "#, fuzzy, c-format\n"),
    message("three", ""),
    message("&Save\\n", "&Speichern\\n", 'msgctxt "menu"\n'),
    'msgid ""\n"a \\"long\\" "\n"text\\n"\n"of lines"\nmsgstr "ein Text"\n',
    '#~ msgid "old"\n#~ msgstr "alt"\n#~ msgid "older"\n#~ msgstr "älter"\n',
)


def test_finished_messages_are_pairs() -> None:
    pairs = [("one", "eins"), ("&Save", "&Speichern"), ('a "long" text of lines', "ein Text")]
    assert rows("po", SEVERAL) == pairs
    assert rows("po", SEVERAL, "de", "en") == [(target, source) for source, target in pairs]


def test_contents_count_what_is_left_out() -> None:
    found = contents("po", SEVERAL)
    assert found.columns == {"source": 3, "de": 3}
    assert found.notes == ["Left out: 2 obsolete, 1 fuzzy, 1 untranslated."]
    assert found.samples[0] == ["one", "eins"]


@each(
    "rule, forms, pairs",
    [
        (ENGLISH, ("%d Datei", "%d Dateien"), [("%d file", "%d Datei"), ("%d files", "%d Dateien")]),
        (RUSSIAN, ("%d файл", "%d файла", "%d файлов"), [("%d file", "%d файл"), ("%d files", "%d файлов")]),
        ("Plural-Forms: nplurals=1; plural=0;", ("%d 個",), [("%d files", "%d 個")]),
        ("X: y", ("%d Datei", "%d Dateien"), [("%d file", "%d Datei"), ("%d files", "%d Dateien")]),
        (ENGLISH, ("", ""), []),
    ],
)
def test_plurals_stand_beside_the_forms_of_one_and_of_five(rule: str, forms: tuple[str, ...], pairs: object) -> None:
    written = catalogue(message("x", "y"), plural(*forms), plurals=rule)
    assert rows("po", written)[1:] == pairs


def test_a_singular_without_its_number_is_no_pair_where_the_form_has_one() -> None:
    written = catalogue(plural("%d файл", "%d файла", "%d файлов", source="One file"), language="ru", plurals=RUSSIAN)
    assert rows("po", written, "en", "ru") == [("%d files", "%d файлов")]


def test_the_language_of_the_header_is_that_of_the_translations() -> None:
    assert rows("po", catalogue(message("one", "uno"), language="es_MX"), "en", "es") == [("one", "uno")]
    assert rows("po", catalogue(message("one", "eins"), language="de_AT.UTF-8@euro")) == [("one", "eins")]
    assert rows("po", catalogue(message("one", "eins"), language="")) == [("one", "eins")]
    with pytest.raises(DataError, match=r"file: translates  → de \(3\), not data.source_lang=en data.target_lang=fr"):
        rows("po", SEVERAL, "en", "fr")
    other = catalogue(message("eins", "one"), language="en", plurals="X-Source-Language: de")
    assert rows("po", other, "de", "en") == [("eins", "one")]
    assert rows("po", other) == [("one", "eins")]


@each(
    "written, text",
    [("caf\\303\\251", "café"), ("a\\x41\\101", "aAA"), ("\\351", "é"), ("C:\\\\303", "C:\\303"), ("\\\\x41", "\\x41")],
)
def test_bytes_that_are_escaped_are_characters(written: str, text: str) -> None:
    assert rows("po", catalogue(message(written, "x"))) == [(text, "x")]


@each("charset, text", [("UTF-8", "é日"), ("ISO-8859-1", "é"), ("EUC-JP", "日本"), ("KOI8-R", "да"), ("CHARSET", "é")])
def test_the_charset_of_the_header_decodes_the_file(charset: str, text: str) -> None:
    written = catalogue(message("one", text), charset=charset)
    assert rows("po", written.encode("utf-8" if charset == "CHARSET" else charset)) == [("one", text)]


@pytest.mark.slow
def test_a_catalogue_of_several_blocks_is_read_whole() -> None:
    pairs = [(f"message {number}", f"Nachricht {number} ä") for number in range(60_000)]
    text = catalogue(*[message(source, target) for source, target in pairs]).replace("\n", "\r\n")
    assert len(text) > 3 << 20
    assert rows("po", f"\ufeff{text}") == pairs
    with pytest.raises(DataError, match=r"file:180006: 'msgtext \"x\"' is neither a keyword nor a string"):
        rows("po", f'{text}msgtext "x"\n')


@each(
    "data, error",
    [
        ("", "file: is empty"),
        (catalogue('msgid "one"\n'), r"file:7: a message without msgstr"),
        (catalogue(message("one", "eins")).encode() + b'msgid "\xff"\n', r"file:1: bytes that are not UTF-8 follow"),
        (catalogue(message("one", ""), charset="x-none"), "has charset=x-none in its header, which is not known"),
        (catalogue(message("one", "")), "file: has no finished translations; left out: 1 untranslated"),
    ],
)
def test_what_cannot_be_read_is_one_line(data: str | bytes, error: str) -> None:
    with pytest.raises(DataError, match=error) as raised:
        rows("po", data)
    assert "\n" not in str(raised.value)


def test_catalogues_are_recognised_by_their_lines() -> None:
    assert format_of("po").recognises(SEVERAL.encode())
    assert format_of("po").recognises(b"# comment\n\n" + SEVERAL.encode())
    for other in (b"", b"# only\n", b"plain\ntext\n", b'msgid "a"\nmsgstr "b"\nother text\n', b"msgid\tmsgstr\n"):
        assert not format_of("po").recognises(other)


def test_finished_messages_are_those_of_polib() -> None:
    polib = pytest.importorskip("polib")
    entries = polib.pofile(SEVERAL).translated_entries()
    expected = [(" ".join(one.msgid.split()), " ".join(one.msgstr.split())) for one in entries]
    assert rows("po", SEVERAL) == expected
