"""Translation memories: their languages, inline tags, encodings, and what is refused in one line."""

import logging

import pytest

from tests.support.bilingual import contents, format_of, rows, source_file
from tests.support.each import each
from transformer_cli.config.data import DataConfig
from transformer_cli.data.lines import MAX_LINE_BYTES
from transformer_cli.errors import DataError
from transformer_cli.logs import LOGGER

HEADER = '<header creationtool="made" creationtoolversion="1" segtype="sentence" srclang="{}" datatype="plaintext"/>'


def memory(*units: str, declaration: str = '<?xml version="1.0" encoding="utf-8"?>', srclang: str = "en") -> str:
    return f'{declaration}\n<tmx version="1.4">{HEADER.format(srclang)}<body>\n{"".join(units)}\n</body></tmx>\n'


def unit(*texts: str, key: str = "xml:lang") -> str:
    """A unit of texts such as "en Good morning."."""
    pairs = [text.partition(" ") for text in texts]
    return "<tu>" + "".join(f'<tuv {key}="{code}"><seg>{text}</seg></tuv>\n' for code, _, text in pairs) + "</tu>\n"


def of_text(text: str) -> str:
    """The plain text of a <seg>."""
    [(source, target)] = rows("tmx", memory(unit(f"en {text}", "de ja")))
    assert target == "ja"
    return source


# ---- Languages

THREE = memory(
    unit("de Die Katze schläft.", "en-US The cat sleeps.", "fr Le chat dort."),
    unit("en-US The dog barks.", "fr Le chien aboie."),
    unit("fr Il pleut.", "de Es regnet.", "en-US It rains."),
    unit("en-US Snow.", "de "),
)


def test_any_pair_of_the_languages_is_read_in_the_direction_of_the_corpus(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER.name)
    english_german = [("The cat sleeps.", "Die Katze schläft."), ("It rains.", "Es regnet."), ("Snow.", "")]
    assert rows("tmx", THREE, "en", "de") == english_german
    assert "file: 3 of 4 units have both languages" in caplog.text
    assert rows("tmx", THREE, "de", "en") == [(german, english) for english, german in english_german]
    assert rows("tmx", THREE, "fr", "de") == [("Le chat dort.", "Die Katze schläft."), ("Il pleut.", "Es regnet.")]


@each(
    "asked, written",
    [
        *[("en", code) for code in ("en", "EN", "en-US", "EN_gb", "eng", "en-Latn-US")],
        *[("en-GB", code) for code in ("en-GB", "EN-gb", "en_GB")],
        *[("zh", code) for code in ("zh", "zh-CN", "zh-Hans", "ZH")],
        *[("pt-BR", "pt-br"), ("deu", "de-DE"), ("no", "nb-NO"), ("x-klingon", "x-klingon")],
    ],
)
def test_a_language_stands_for_its_variants(asked: str, written: str) -> None:
    assert rows("tmx", memory(unit(f"{written} one", "fr un")), asked, "fr") == [("one", "un")]


@each(
    "asked, written",
    [
        *[("en-GB", "en-US"), ("en-GB", "en"), ("zh", "zh-TW"), ("zh", "zh-Hant"), ("sr", "sr-Latn"), ("en", "enm")],
        *[("pt-BR", "pt-PT"), ("nn", "nb"), ("en", "")],
    ],
)
def test_another_variant_is_another_language(asked: str, written: str) -> None:
    with pytest.raises(DataError, match=rf"has no texts in data.source_lang={asked}, but .*fr \(1\)"):
        rows("tmx", memory(unit(f"{written} one", "fr un")), asked, "fr")


def test_of_several_variants_the_exact_one_is_taken_and_else_the_first() -> None:
    several = memory(
        unit("en-US color", "en-GB colour", "de Farbe", "de Kolorit"), unit("en-GB lift", "en lifts", "de x")
    )
    assert rows("tmx", several, "en", "de") == [("color", "Farbe"), ("lifts", "x")]
    assert rows("tmx", several, "en-GB", "de") == [("colour", "Farbe"), ("lift", "x")]


def test_a_variant_that_is_one_side_is_not_the_other_too() -> None:
    several = memory(unit("en-GB colour", "en-US color"))
    assert rows("tmx", several, "en", "en-GB") == [("color", "colour")]
    assert rows("tmx", several, "en-GB", "en-US") == [("colour", "color")]


def test_the_older_attribute_and_all_source_languages_are_read() -> None:
    old = memory(unit("EN one", "DE eins", key="lang"), declaration="", srclang="*all*")
    assert rows("tmx", old.replace("1.4", "1.1")) == [("one", "eins")]


def test_a_language_that_is_absent_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(DataError) as error:
        rows("tmx", THREE, "en", "it")
    assert str(error.value) == (
        "file: has no texts in data.target_lang=it, but en-US (4), de (3), fr (3). Set data.target_lang to one of its"
        " languages"
    )


def test_languages_that_no_unit_has_together_are_refused() -> None:
    with pytest.raises(DataError, match="no unit has texts in both languages, of fr"):
        rows("tmx", memory(unit("en one", "fr un"), unit("de eins", "fr un")))


def test_a_side_of_several_languages_is_refused_only_where_the_file_has_more_than_one() -> None:
    assert rows("tmx", memory(unit("en one", "fr un")), "en", "de+fr") == [("one", "un")]
    with pytest.raises(DataError, match=r"has de and fr, both of data.target_lang=de\+fr. Export one file for each"):
        rows("tmx", memory(unit("en one", "de eins", "fr un")), "en", "de+fr")


def test_one_language_twice_is_refused() -> None:
    with pytest.raises(DataError, match=r"data.source_lang=en data.target_lang=eng name one language"):
        rows("tmx", THREE, "en", "eng")


# ---- Inline tags


@each(
    "written, text",
    [
        ("plain &amp; simple", "plain & simple"),
        ('Press <bpt i="1">&lt;b&gt;</bpt>Save<ept i="1">&lt;/b&gt;</ept> now.', "Press Save now."),
        ('Press <bpt i="1"/>Save<ept i="1"/>.', "Press Save."),
        ("un<it pos='begin'>[i]</it>believ<it pos='end'>[/i]</it>able", "unbelievable"),
        ("<hi>very <hi>good</hi></hi>", "very good"),
        ("Page <ph>{0}</ph> of <ph>{1}</ph>.", "Page of ."),
        ("one<ph type='lb'/>two", "one two"),
        ("one<ph>&lt;br/&gt;</ph>two", "one two"),
        ("one <ph>\\line </ph> two", "one two"),
        ("one<ph>{0}</ph>two", "one two"),
        ("<ph>*</ph> first", "first"),
        ("last <ph>*</ph>", "last"),
        ("点击<ph>{0}</ph>按钮", "点击按钮"),
        ("A note<ph>fn<sub>of the foot</sub></ph>.", "A note."),
        ("see <ut>{\\b </ut>here<ut>}</ut>!", "see here!"),
        ("\n    over\n    two lines  and two spaces\n  ", "over two lines  and two spaces"),
        ("<![CDATA[a < b]]>", "a < b"),
        ("a<!-- no text -->b", "ab"),
        ("", ""),
        ("a\u00a0b", "a\u00a0b"),
        ("&#x1F600; &#233;", "😀 é"),
    ],
)
def test_tags_leave_plain_text_with_the_spaces_of_words(written: str, text: str) -> None:
    assert of_text(written) == text


def test_only_segments_are_text() -> None:
    noted = "<tu><note>no</note><prop type='x'>no</prop>{}</tu>"
    texts = "<tuv xml:lang='{}'><note>no</note><prop type='x'>no</prop><seg>{}</seg></tuv>"
    both = texts.format("en", "one") + texts.format("de", "eins")
    assert rows("tmx", memory(noted.format(both))) == [("one", "eins")]


# ---- Bytes

PAIR = memory(unit("en It costs £5.", "de Für 5 £ — „ja“."), declaration="")


@each(
    "encoding, mark",
    [("utf-8", ""), ("utf-8", "\ufeff"), ("utf-16-le", "\ufeff"), ("utf-16-be", "\ufeff"), ("utf-16-le", "")],
)
def test_unicode_is_recognised_whatever_the_declaration_says(encoding: str, mark: str) -> None:
    for declared in ("", *(f'<?xml version="1.0" encoding="{name}"?>' for name in ("UTF-8", "UTF-16", "utf-16"))):
        if encoding == "utf-16-le" and not mark and not declared:
            continue  # is not XML: it needs a declaration or a mark
        data = f"{mark}{declared}{PAIR.strip()}".encode(encoding)
        assert format_of("tmx").recognises(data)
        assert rows("tmx", data) == [("It costs £5.", "Für 5 £ — „ja“.")]


@each("encoding, text", [("ISO-8859-1", "é£"), ("windows-1252", "é“€"), ("windows-1251", "да"), ("Shift_JIS", "日本")])
def test_a_declared_encoding_is_decoded(encoding: str, text: str) -> None:
    written = memory(unit(f"en {text}", "de x"), declaration=f'<?xml version="1.0" encoding="{encoding}"?>')
    assert rows("tmx", written.encode(encoding)) == [(text, "x")]


def test_latin_1_is_read_as_browsers_read_it() -> None:
    """Programs that declare ISO-8859-1 write the quotes of Windows-1252."""
    declared = '<?xml version="1.0" encoding="ISO-8859-1"?>'
    written = memory(unit("en “Yes” — €5", "de x"), declaration=declared).encode("windows-1252")
    assert rows("tmx", written) == [("“Yes” — €5", "x")]


def test_a_text_across_the_blocks_of_reading_is_whole() -> None:
    """Blocks of 1 MiB end within characters, references and tags."""
    text = "ä&amp;&#x1;<hi>ö</hi>" * 4_000
    units = [unit(f"en {text}{number}", f"de {number}") for number in range(40)]
    assert rows("tmx", memory(*units)) == [(f"{'ä& ö' * 4_000}{number}", str(number)) for number in range(40)]


def test_control_characters_that_xml_forbids_are_spaces(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER.name)
    written = memory(unit("en one\x0btwo&#x1F;three&#1;", "de eins"))
    assert rows("tmx", written) == [("one two three", "eins")]
    assert "file: 3 control characters were read as spaces" in caplog.text
    assert "Control characters that XML forbids, read as spaces: 3." in contents("tmx", written).notes


def test_a_document_type_is_not_fetched() -> None:
    declared = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    assert rows("tmx", memory(unit("en one", "de eins"), declaration=declared)) == [("one", "eins")]


# ---- What is refused

BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>\n'
OUTSIDE = '<!DOCTYPE tmx [<!ENTITY a SYSTEM "file:///etc/hostname">]>\n'
SYSTEM = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
ONE = unit("en one", "de eins")


@each(
    "data, message",
    [
        (memory(unit("en &b;", "de x"), declaration=BOMB), r"file:1: declares the entity 'a', and entities are not"),
        (memory(unit("en &a;", "de x"), declaration=OUTSIDE), r"file:1: declares the entity 'a'"),
        (memory(unit("en a&nbsp;b", "de x"), declaration=SYSTEM), r"has '&nbsp;', which the file does not define"),
        (memory(unit("en a&nbsp;b", "de x")), r"file:3: has an entity that the file does not define"),
        (memory(ONE, ONE)[:-40], r"file:\d: the file ends here, within an element. Fetch or export it again"),
        (memory(ONE).partition("</body>")[0], r"the file ends here"),
        ("", r"file: is empty"),
        ("<tmx", r"the file ends here"),
        ("plain text", r"file:1: is not well-formed XML: syntax error"),
        ("<html><body/></html>", r"file:1: is not a translation memory \(TMX\): its root element is <html>"),
        (memory(unit("en a < b", "de x")), r"file:3: is not well-formed XML: not well-formed"),
        (memory("<tu></body>"), r"file:3: is not well-formed XML: mismatched tag"),
        (memory(unit("en café", "de x")).encode("latin-1"), r"file:3: byte 0xe9 is not UTF-8"),
        *[
            (memory(ONE, declaration=f'<?xml version="1.0" encoding="{name}"?>'), r"an encoding that is not known")
            for name in ("x-none", "hex", "rot13")
        ],
        (b"\xff\xfe<\0t\0m\0x\0>\0\0\xd8<\0", r"bytes that are not utf-16-le follow"),
        (memory(), r"file: has no texts. Is it the right file?"),
    ],
)
def test_what_cannot_be_read_is_one_line(data: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        rows("tmx", data)
    assert "\n" not in str(error.value)


def test_what_would_fill_the_memory_is_refused() -> None:
    long = "x" * (MAX_LINE_BYTES + (2 << 20))
    with pytest.raises(DataError, match=r"file:3: a text of more than 4,194,304 characters"):
        rows("tmx", memory(unit(f"en {long}", "de x")))
    with pytest.raises(DataError, match=r"file:1: a tag or comment of more than 16,777,216 bytes"):
        rows("tmx", f"<tmx><!--{3 * long}--></tmx>")


def test_rows_before_a_fault_are_given_as_they_are_read() -> None:
    """Memory is bounded: the first rows come before the end of the file is read."""
    file = source_file(memory(*[ONE] * 40_000)[:-40].encode())
    found = format_of("tmx").table(file, DataConfig(source_lang="en", target_lang="de")).rows
    assert next(found) == ("one", "eins")
    with pytest.raises(DataError, match=r"file:1\d{5}: the file ends here"):
        list(found)


# ---- Contents


def test_contents_have_each_language_with_its_texts() -> None:
    found = contents("tmx", memory(*[unit("en-US a", "de b")] * 6, unit("EN-us c", "fr d", "fr e"), unit("de f")))
    assert (found.columns, found.n_rows) == ({"en-US": 7, "de": 7, "fr": 2}, 8)
    assert found.samples == [["a", "b", ""]] * 5
    assert found.notes == [
        "Units with one language only: 1.",
        "Texts that follow another of their unit and language, and are not used: 1.",
    ]


@each(
    "head, is_tmx",
    [
        (memory(ONE), True),
        (f"<?xml version='1.0'?>\n<!-- > -->\n{SYSTEM}<tmx version='1.4'>", True),
        ("<!DOCTYPE tmx [<!ELEMENT x (#PCDATA)>]><tmx:tmx xmlns:tmx='x'>", True),
        ("<xliff/>", False),
        ("<!-- <tmx> --><html>", False),
        ("text with <tmx>", False),
        ("", False),
    ],
)
def test_a_memory_is_recognised_by_its_root(head: str, is_tmx: bool) -> None:
    assert format_of("tmx").recognises(head.encode()) is is_tmx


def test_a_prefix_of_names_does_not_matter() -> None:
    plain = memory(unit("en a<hi>b</hi>", "de x"), declaration="")
    prefixed = (
        plain.replace("</", "</t:")
        .replace("<", "<t:")
        .replace("<t:/t:", "</t:")
        .replace("<t:tmx", "<t:tmx xmlns:t='x'")
    )
    assert rows("tmx", prefixed) == [("ab", "x")]
