"""XLIFF 1.2 and 2, of several programs, and TS of Qt: which translations are finished, and their plain text."""

import pytest

from tests.support.bilingual import contents, format_of, rows
from tests.support.each import each
from transformer_cli.errors import DataError

NAMES = 'xmlns="urn:oasis:names:tc:xliff:document:{}"'


def first(*units: str, languages: str = 'source-language="en-US" target-language="de-DE"', names: str = "") -> str:
    """A document of XLIFF 1.2."""
    body = "".join(units)
    head = f'<?xml version="1.0"?>\n<xliff version="1.2" {NAMES.format("1.2")} {names}>'
    return f'{head}\n<file original="a.txt" datatype="plaintext" {languages}><body>\n{body}</body></file></xliff>'


def unit(source: str, target: str, state: str = "", of_unit: str = "", other: str = "") -> str:
    return (
        f'<trans-unit id="1" {of_unit}><source>{source}</source>{other}<target {state}>{target}</target></trans-unit>\n'
    )


def second(*units: str, languages: str = 'srcLang="en" trgLang="de"', of_file: str = "") -> str:
    """A document of XLIFF 2.0."""
    head = f'<xliff version="2.0" {NAMES.format("2.0")} {languages}>'
    return f'{head}<file id="f" {of_file}>{"".join(units)}</file></xliff>'


def segment(source: str, target: str, state: str = "") -> str:
    return f"<segment {state}><source>{source}</source><target>{target}</target></segment>"


# ---- Which translations count


@each(
    "target, is_taken",
    [
        *[(f'state="{state}"', True) for state in ("final", "signed-off", "translated")],
        *[(f'state="needs-{what}"', False) for what in ("translation", "review-translation", "l10n", "adaptation")],
        *[('state="new"', False), ('state="x-unknown"', False), ("", True), ('state-qualifier="exact-match"', True)],
        *[(f'state-qualifier="{one}"', False) for one in ("fuzzy-match", "leveraged-mt", "mt-suggestion")],
        ('state="translated" state-qualifier="leveraged-mt"', True),
    ],
)
def test_states_of_1_2_say_what_is_finished(target: str, is_taken: bool) -> None:
    written = first(unit("one", "eins"), unit("two", "zwei", target))
    assert rows("xliff", written) == [("one", "eins"), *([("two", "zwei")] if is_taken else [])]


@each("state, is_taken", [("translated", 1), ("reviewed", 1), ("final", 1), ("initial", 0), ("", 1)])
def test_states_of_2_say_what_is_finished(state: str, is_taken: int) -> None:
    of_segment = f'state="{state}"' if state else ""
    written = second(f'<unit id="1">{segment("one", "eins")}{segment("two", "zwei", of_segment)}</unit>')
    assert rows("xliff", written) == [("one", "eins"), ("two", "zwei")][: 1 + is_taken]


@each(
    "attributes, is_taken",
    [
        ('approved="yes"', True),
        ('mq:status="ManuallyConfirmed"', True),
        ('mq:status="Proofread"', True),
        ('mq:status="NotStarted"', False),
        ('mq:status="PartiallyEdited"', False),
        ('m:confirmed="1"', True),
        ('m:confirmed="0"', False),
        ('translate="no"', False),
    ],
)
def test_programs_say_it_in_attributes_of_their_own(attributes: str, is_taken: bool) -> None:
    state = 'state="needs-review-translation"' if "approved" in attributes else ""
    written = first(unit("one", "eins"), unit("two", "zwei", state, attributes), names='xmlns:m="m" xmlns:mq="q"')
    assert rows("xliff", written) == [("one", "eins"), *([("two", "zwei")] if is_taken else [])]


def test_segments_of_trados_have_a_status_each() -> None:
    """An .sdlxliff has the segments of a unit in <mrk>, and their states behind them."""
    segments = [("1", "One.", "Eins."), ("2", "Two.", "Zwei."), ("3", "Three.", "Drei."), ("4", "Four.", "Vier.")]
    mark = '<mrk mtype="seg" mid="{}">{}</mrk> '
    sources = "".join(mark.format(number, f'<g id="9">{source}</g>') for number, source, _ in segments)
    targets = "".join(mark.format(number, target) for number, _, target in reversed(segments))
    states = '<sdl:seg id="1" conf="Translated"/><sdl:seg id="2" conf="Draft"/><sdl:seg id="3" conf="ApprovedSignOff"/>'
    written = first(
        f'<trans-unit id="a"><source>One. Two. Three. Four.</source><seg-source>{sources}</seg-source>'
        f'<target>{targets}</target><sdl:seg-defs>{states}<sdl:seg id="4"/></sdl:seg-defs></trans-unit>',
        names='xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"',
    )
    assert sorted(rows("xliff", written)) == [("One.", "Eins."), ("Three.", "Drei.")]
    assert contents("xliff", written).notes == ["Left out: 1 Unspecified, 1 Draft."]


def test_segments_without_a_partner_leave_the_unit_whole() -> None:
    mark = '<mrk mtype="seg" mid="{}">{}</mrk>'
    sources = f"<seg-source>{mark.format(1, 'One.')} {mark.format(2, 'Two.')}</seg-source>"
    split = f"{mark.format(1, 'Eins.')} {mark.format(3, 'Zwei.')}"
    assert rows("xliff", first(unit("One. Two.", split, other=sources))) == [("One. Two.", "Eins. Zwei.")]
    assert rows("xliff", first(unit("One. Two.", split))) == [("One. Two.", "Eins. Zwei.")]


def test_suggestions_and_notes_are_no_translations() -> None:
    aside = (
        '<alt-trans match-quality="80"><source>won</source><target xml:lang="de">gewonnen</target></alt-trans>'
        '<note>a note</note><context-group><context context-type="x">y</context></context-group>'
    )
    other = f'<trans-unit id="2"><source>two</source>{aside}</trans-unit>'
    bin_unit = (
        "<bin-unit id='b' mime-type='x'><bin-source/><trans-unit id='3'><source>a</source></trans-unit></bin-unit>"
    )
    assert rows("xliff", first(unit("one", "eins").replace("</target>", f"</target>{aside}"), other, bin_unit)) == [
        ("one", "eins")
    ]
    matches = (
        "<mtc:matches xmlns:mtc='m'><mtc:match ref='#1'><source>o</source><target>e</target></mtc:match></mtc:matches>"
    )
    ignorable = "<ignorable><source> </source><target> </target></ignorable>"
    data = "<originalData><data id='d1'>&lt;b></data></originalData><notes><note>no</note></notes>"
    written = second(f'<unit id="1">{matches}{data}{segment("one", "eins")}{ignorable}{segment("two", "zwei")}</unit>')
    assert rows("xliff", written) == [("one", "eins"), ("two", "zwei")]


def test_what_is_not_to_be_translated_is_inherited() -> None:
    inner = f'<unit id="1">{segment("one", "one")}</unit><unit id="2" translate="yes">{segment("two", "zwei")}</unit>'
    assert rows("xliff", second(f'<group id="g" translate="no">{inner}</group>')) == [("two", "zwei")]
    assert rows("xliff", second(inner, of_file='translate="no"')) == [("two", "zwei")]


def test_contents_count_what_is_left_out() -> None:
    units = [unit("one", "eins"), unit("two", ""), "<trans-unit id='3'><source>three</source></trans-unit>"]
    found = contents(
        "xliff", first(*units, unit("four", "vier", 'state="new"'), unit("five", "five", "", 'translate="no"'))
    )
    assert (found.columns, found.n_rows, found.samples) == ({"en-US": 1, "de-DE": 1}, 5, [["one", "eins"]])
    assert found.notes == ["Left out: 2 untranslated, 1 new, 1 not to be translated."]


# ---- Languages


def test_the_direction_is_that_of_the_corpus() -> None:
    assert rows("xliff", first(unit("one", "eins")), "de", "en") == [("eins", "one")]
    assert rows("xliff", second(f"<unit>{segment('one', 'eins')}</unit>"), "de", "en") == [("eins", "one")]


def test_each_file_of_a_document_has_its_languages() -> None:
    other = first(unit("one", "un"), languages='source-language="en" target-language="fr"').partition("?>\n")[2]
    both = first(unit("one", "eins")).replace("</xliff>", other.partition(">")[2])
    assert rows("xliff", both) == [("one", "eins")]
    assert rows("xliff", both, "en", "fr") == [("one", "un")]
    with pytest.raises(DataError) as error:
        rows("xliff", both, "en", "it")
    assert str(error.value) == (
        "file: translates en-US → de-DE (1), en → fr (1), not data.source_lang=en data.target_lang=it. Set these to its"
        " languages"
    )


def test_a_target_may_name_its_language_itself_or_nowhere() -> None:
    of_source = 'source-language="en"'
    assert rows("xliff", first(unit("one", "eins", 'xml:lang="de"'), languages=of_source)) == [("one", "eins")]
    assert rows("xliff", first(unit("one", "eins"), languages=of_source)) == [("one", "eins")]
    with pytest.raises(DataError, match="translates en → fr"):
        rows("xliff", first(unit("one", "un", 'xml:lang="fr"'), languages=of_source))


def test_states_and_languages_of_any_length_are_shown_in_a_short_line() -> None:
    units = [unit("one", "eins", f'state="x-{number}{"y" * 10_000}"') for number in range(100)]
    with pytest.raises(DataError, match="has no finished translations; left out: 1 x-0yyyy") as error:
        rows("xliff", first(*units))
    assert len(str(error.value)) < 1_000


def test_a_document_without_finished_translations_is_refused() -> None:
    with pytest.raises(DataError) as error:
        rows("xliff", first(unit("one", "eins", 'state="new"'), unit("two", "")))
    message = "file: has no finished translations; left out: 1 new, 1 untranslated. Is it the right file?"
    assert str(error.value) == message


# ---- Inline elements


@each(
    "written, text",
    [
        ('Press <g id="1">Save</g>.', "Press Save."),
        ('un<bx id="1"/>believ<ex id="1"/>able', "unbelievable"),
        ('one<x id="1"/>two <x id="2"/> three', "one two three"),
        ('one<x id="1" ctype="lb"/>two', "one two"),
        ('one<x id="1" equiv-text="&lt;br/>"/>, two', "one , two"),
        ('<bpt id="1">&lt;b></bpt>bold<ept id="1">&lt;/b></ept> <ph id="2">{0}</ph>', "bold"),
        ('a <mrk mtype="term">term</mrk> of <mrk mtype="x-sdl-deleted">old</mrk> two', "a term of two"),
        ('note<ph id="1">fn<sub>of the foot</sub></ph>', "note"),
        ("\n   over\n   lines\n", "over lines"),
    ],
)
def test_inline_elements_of_1_2_leave_plain_text(written: str, text: str) -> None:
    assert rows("xliff", first(unit(written, "x"))) == [(text, "x")]


@each(
    "written, text",
    [
        ('Press <pc id="1" dataRefStart="d">Save</pc>.', "Press Save."),
        ('un<sc id="1"/>believ<ec startRef="1"/>able', "unbelievable"),
        ('one<ph id="1"/>two', "one two"),
        ('one<ph id="1" subType="xlf:lb"/>.', "one ."),
        ('a <mrk id="m1" type="term">term</mrk>', "a term"),
        ('a<sm id="m"/>b<em startRef="m"/> c<cp hex="001a"/>d', "ab c d"),
    ],
)
def test_inline_elements_of_2_leave_plain_text(written: str, text: str) -> None:
    assert rows("xliff", second(f"<unit>{segment(written, 'x')}</unit>")) == [(text, "x")]


def test_broken_documents_are_one_line() -> None:
    for data, message in (
        (first(unit("one", "eins"))[:-10], "file:5: the file ends here, within an element"),
        ("<tmx/>", "file:1: is not XLIFF: its root element is <tmx>"),
        ('<!DOCTYPE xliff [<!ENTITY a "b">]><xliff/>', "file:1: declares the entity 'a'"),
    ):
        with pytest.raises(DataError, match=message):
            rows("xliff", data)


def test_documents_are_recognised_by_their_root() -> None:
    assert format_of("xliff").recognises(first().encode("utf-16"))
    assert format_of("xliff").recognises(b"<xlf:xliff xmlns:xlf='urn:oasis:names:tc:xliff:document:1.2'>")
    assert not format_of("xliff").recognises(b"<TS>")


# ---- TS of Qt

QT = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1" language="de_DE" sourcelanguage="en">
<context><name>Dialog</name>
<message><location filename="a.cpp" line="1"/><source>&amp;Save</source><comment>no</comment>
  <extracomment>no</extracomment><translation>&amp;Speichern</translation></message>
<message><source>Open</source><translation type="unfinished">Öffnen</translation></message>
<message><source>Old</source><translation type="vanished">Alt</translation></message>
<message><source>New</source><translation type="unfinished"></translation></message>
<message numerus="yes"><source>%n file(s)</source><translation><numerusform>%n Datei</numerusform>
  <numerusform>%n Dateien</numerusform></translation></message>
<message><source>Wide</source><translation variants="yes"><lengthvariant>Sehr breit</lengthvariant>
  <lengthvariant>Breit</lengthvariant></translation></message>
<message><source>a<byte value="x7"/>b</source><translation>c</translation></message>
</context></TS>
"""


def test_finished_messages_of_qt_are_pairs() -> None:
    pairs = [("&Save", "&Speichern"), ("%n file(s)", "%n Dateien"), ("Wide", "Sehr breit"), ("a b", "c")]
    assert rows("qt", QT) == pairs
    assert rows("qt", QT, "de", "en") == [(target, source) for source, target in pairs]
    assert contents("qt", QT).notes == ["Left out: 2 unfinished, 1 vanished."]
    assert format_of("qt").recognises(QT.encode())
    with pytest.raises(DataError, match=r"translates en → de_DE \(4\)"):
        rows("qt", QT, "en", "fr")
