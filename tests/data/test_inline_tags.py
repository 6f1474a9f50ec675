"""data.inline_tags=keep: tags of TMX and XLIFF as numbers, the same on both sides, and what is done with such text."""

import json
import logging
import random
import re
from pathlib import Path

import numpy as np
import pytest

from tests.data.test_tmx import memory
from tests.data.test_tmx import unit as tmx_unit
from tests.data.test_xliff import first, second, segment
from tests.data.test_xliff import unit as xliff_unit
from tests.support.bilingual import contents, rows
from tests.support.each import each
from transformer_cli.cli import main
from transformer_cli.config.data import DataConfig, InlineTags
from transformer_cli.data.cache_key import cache_key
from transformer_cli.data.cleaning.base import FILTERS, Languages, PairTexts
from transformer_cli.data.corpus import load_text
from transformer_cli.data.numbered_tags import counted_tags, highest_number, numbered_from, spaced, without_tags
from transformer_cli.logs import LOGGER


def bold(i: int, text: str, x: int | str = "") -> str:
    named = f' x="{x}"' if x else ""
    return f'<bpt i="{i}"{named}>&lt;b&gt;</bpt>{text}<ept i="{i}">&lt;/b&gt;</ept>'


def kept(source: str, target: str, *, is_exchanged: bool = False) -> tuple[str, str]:
    """The pair of a unit of TMX."""
    codes = ("de", "en") if is_exchanged else ("en", "de")
    [pair] = rows("tmx", memory(tmx_unit(f"en {source}", f"de {target}")), *codes, keeps_tags=True)
    return pair


# ---- TMX


@each(
    "written, text",
    [
        (f"Press {bold(1, 'Save')} now.", "Press <1> Save </1> now."),
        ('Press <bpt i="1"/>Save<ept i="1"/>.', "Press <1> Save </1>."),
        (f"a {bold(1, f'b {bold(2, chr(99))} d')} e", "a <1> b <2> c </2> d </1> e"),
        ('<bpt i="1"/>a<bpt i="2"/>b<ept i="1"/>c<ept i="2"/>', "<1> a<2>b</1>c </2>"),
        (f"{bold(1, 'a')} and {bold(1, 'b')}", "<1> a </1> and <1> b </1>"),
        ("<hi>very <hi>good</hi></hi>", "<1> very <2> good </2> </1>"),
        ("Page <ph>{0}</ph> of  <ph>{1}</ph>.", "Page <1/> of  <2/>."),
        ('<ph x="1"/> and <ph x="1"/>', "<1/> and <1/>"),
        ("un<it pos='begin'>[i]</it>believ<it pos='end'>[/i]</it>able", "un<1/>believ<2/>able"),
        ("one<ph type='lb'/>two", "one<1/>two"),
        ("A note<ph>fn<sub>of the <ph>x</ph> foot</sub></ph>.", "A note<1/>."),
        ("see <ut>{\\b </ut>here<ut>}</ut>!", "see <1/> here<2/>!"),
        ('begins <bpt i="1">&lt;b&gt;</bpt>only', "begins <1/> only"),
        ('ends<ept i="1">&lt;/b&gt;</ept> only', "ends<1/> only"),
        ('out<ept i="1"/> of <bpt i="1"/>order', "out<1/> of <1/> order"),
        ("\n    over <ph/>\n    two lines\n  ", "over <1/> two lines"),
        ("<foreign>a <hi>b</hi></foreign> <sub>c</sub> d", "a <1> b </1> d"),
        ("1 &lt; 2", "1 < 2"),
        ("<ph/>", "<1/>"),
        ("", ""),
    ],
)
def test_tags_of_a_memory_are_numbered_and_stand_apart_from_their_words(written: str, text: str) -> None:
    assert kept(written, "x")[0] == text


@each(
    "source, target, pair",
    [
        (f"{bold(1, 'a')} {bold(2, 'b')}", f"{bold(2, 'B')} {bold(1, 'A')}",
         ("<1> a </1> <2> b </2>", "<2> B </2> <1> A </1>")),
        # The attribute x pairs what the numbers i, which are of one text, do not.
        (f"{bold(1, 'a', 7)} {bold(2, 'b', 8)}", f"{bold(1, 'B', 8)} {bold(2, 'A', 7)}",
         ("<1> a </1> <2> b </2>", "<2> B </2> <1> A </1>")),
        ('<ph x="1"/>a<ph x="2"/>', '<ph x="2"/>A<ph x="1"/>', ("<1/> a<2/>", "<2/> A<1/>")),
        ("a<ph/>b<ph/>", "A<ph/><ph/>B", ("a<1/>b<2/>", "A<1/><2/> B")),
        ("<ph/><hi>a</hi><it pos='end'/>", "<it pos='end'/><hi>A</hi><ph/>",
         ("<1/> <2> a </2><3/>", "<3/> <2> A </2><1/>")),
        ("a", f"<ph/>A{bold(1, 'B')}", ("a", "<1/> A<2>B </2>")),
        ("a<ph x='4'/>", "<ph x='9'/>A", ("a<1/>", "<2/> A")),
        (f"a {bold(1, 'b')} <ph/>", "A", ("a <1> b </1> <2/>", "A")),
        (f"{bold(1, 'a')}", '<bpt i="1"/>A', ("<1> a </1>", "<1/> A")),
    ],
)  # fmt: skip
def test_a_tag_has_its_number_on_both_sides(source: str, target: str, pair: tuple[str, str]) -> None:
    assert kept(source, target) == pair


def test_numbers_follow_the_source_of_the_corpus_whichever_language_comes_first() -> None:
    source, target = '<ph x="1"/>a<ph x="2"/>', '<ph x="2"/>A<ph x="1"/>'
    assert kept(source, target, is_exchanged=True) == ("<1/> A<2/>", "<2/> a<1/>")


def test_pairs_with_tags_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER.name)
    units = [tmx_unit("en a<ph/>", "de A<ph/>"), tmx_unit("en a<ph/>", "de A"), tmx_unit("en a", "de A")]
    rows("tmx", memory(*units), keeps_tags=True)
    assert "file: 2 pairs have inline tags, 1 of these not the same ones on both sides" in caplog.text


# ---- XLIFF


@each(
    "written, text",
    [
        ('Press <g id="1">Save</g> now.', "Press <1> Save </1> now."),
        ('<g id="8">a <g id="9">b</g></g>', "<1> a <2> b </2> </1>"),
        ('a <x id="5"/> b', "a <1/> b"),
        ('one<x id="1" ctype="lb"/>two', "one<1/>two"),
        ('<bpt id="1">[b]</bpt>a<ept id="1">[/b]</ept>', "<1> a </1>"),
        ('<bpt id="1" rid="1">[b]</bpt>a<ept id="2" rid="1">[/b]</ept>', "<1> a </1>"),
        ('<bx id="1" rid="1"/>a<ex id="2" rid="1"/> <x id="1"/>', "<1> a </1> <2/>"),
        ('<bx id="1"/>a', "<1/> a"),
        ('a<ph id="1">{0}</ph><it id="2" pos="open">[i]</it>', "a<1/><2/>"),
        ('a<ph id="1">fn<sub>note</sub></ph>', "a<1/>"),
        ('<mrk mtype="term">a</mrk> <mrk mtype="x-sdl-deleted">b <x id="1"/></mrk>c', "a c"),
        ('<mrk mtype="x-comment">a <g id="1">b</g></mrk>', "a <1> b </1>"),
    ],
)
def test_tags_of_xliff_1_are_numbered(written: str, text: str) -> None:
    assert rows("xliff", first(xliff_unit(written, "x")), keeps_tags=True) == [(text, "x")]


@each(
    "written, text",
    [
        ('Press <pc id="1">Save</pc> now.', "Press <1> Save </1> now."),
        ('<sc id="1"/>a<ec startRef="1"/> <ph id="2"/>', "<1> a </1> <2/>"),
        ('a<ec id="3" isolated="yes"/>b<sc id="4" isolated="yes"/>', "a<1/>b<2/>"),
        ('<sm id="1"/>a<em startRef="1"/> <mrk id="m">b</mrk>', "a b"),
        ('a<cp hex="0001"/>b <pc id="1">c</pc>', "a b <1> c </1>"),
    ],
)
def test_tags_of_xliff_2_are_numbered(written: str, text: str) -> None:
    document = second(f'<unit id="1">{segment(written, "x")}</unit>')
    assert rows("xliff", document, keeps_tags=True) == [(text, "x")]


def test_a_tag_of_xliff_has_its_number_on_both_sides_in_either_direction() -> None:
    document = first(xliff_unit('<g id="1">a</g> <x id="2"/>', '<x id="2"/> <g id="1">A</g>'))
    assert rows("xliff", document, keeps_tags=True) == [("<1> a </1> <2/>", "<2/> <1> A </1>")]
    assert rows("xliff", document, "de", "en", keeps_tags=True) == [("<1/> <2> A </2>", "<2> a </2> <1/>")]


def test_segments_of_a_unit_are_numbered_each() -> None:
    parts = '<mrk mtype="seg" mid="{}">{}<g id="{}">{}</g></mrk>'
    sides = [
        "".join(parts.format(mid, word, 5 + mid, word) for mid, word in enumerate(words, 1)) for words in ("ab", "AB")
    ]
    document = first(xliff_unit("a", sides[1], other=f"<seg-source>{sides[0]}</seg-source>"))
    assert rows("xliff", document, keeps_tags=True) == [("a<1>a </1>", "A<1>A </1>"), ("b<1>b </1>", "B<1>B </1>")]


# ---- The corpus

TAGGED = memory(*[tmx_unit(f"en {bold(1, 'Red')} house {n}.", f"de {bold(1, 'Rotes')} Haus {n}.") for n in range(60)])
LANGUAGES = ["data.source_lang=en", "data.target_lang=de"]


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("memory.tmx").write_text(TAGGED, encoding="utf-8")
    Path("text.en").write_text("one\n" * 30, encoding="utf-8")
    Path("text.de").write_text("eins\n" * 30, encoding="utf-8")
    return tmp_path


def test_the_key_decides_and_removing_is_the_default(in_folder: Path) -> None:
    config = {"source_lang": "en", "target_lang": "de", "train": ["memory.tmx", "text.en", "text.de"]}
    for how, source in (({}, "Red house 0."), ({"inline_tags": InlineTags.keep}, "<1> Red </1> house 0.")):
        text = load_text(DataConfig(**config, **how), "train")
        assert text is not None
        assert text.sources[0] == source
        assert text.sources[-1] == "one"


def test_each_choice_has_a_prepared_corpus_of_its_own() -> None:
    keys = {cache_key(DataConfig(train="memory.tmx", inline_tags=choice), {}) for choice in InlineTags}
    assert len(keys) == 2
    assert cache_key(DataConfig(train="memory.tmx"), {}) in keys


@each("train", ["[text.en,text.de]", "table.tsv"])
def test_the_key_is_refused_where_no_file_has_tags(
    in_folder: Path, capsys: pytest.CaptureFixture[str], train: str
) -> None:
    Path("table.tsv").write_text("one\teins\n" * 30, encoding="utf-8")
    assert main(["prepare", "data=files", *LANGUAGES, f"data.train={train}", "data.inline_tags=keep"]) == 2
    message = "data.inline_tags=keep: no file of TMX or XLIFF is named, but other text. Leave it out"
    assert message in capsys.readouterr().err


def test_a_list_of_contents_shows_what_is_read(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "--list", "memory.tmx", "data.inline_tags=keep"]) == 0
    assert "<1> Rotes </1> Haus 0." in capsys.readouterr().out
    assert main(["prepare", "--list", "memory.tmx"]) == 0
    assert "Rotes Haus 0." in capsys.readouterr().out
    document = first(xliff_unit('<g id="1">a</g>', '<x id="2"/><g id="1">A</g>'))
    assert contents("xliff", document, keeps_tags=True).samples == [["<1> a </1>", "<2/> <1> A </1>"]]


def test_detokenization_leaves_tags_as_they_are(in_folder: Path) -> None:
    written = memory(tmx_unit(f"en It &amp;apos;s {bold(1, 'well')} <ph/> , {bold(2, 'known')} .", "de Ja <ph/> ."))
    Path("moses.tmx").write_text(written, encoding="utf-8")
    config = DataConfig(
        source_lang="en", target_lang="de", train="moses.tmx", detokenize=True, inline_tags=InlineTags.keep
    )
    text = load_text(config, "train")
    assert text is not None
    assert list(text.each()) == [("It's <1> well </1> <2/>, <3> known </3>.", "Ja <2/>.")]


# ---- Filters


def texts(pairs: list[tuple[str, str]]) -> PairTexts:
    return PairTexts([source for source, _ in pairs], [target for _, target in pairs], np.arange(len(pairs)))


def tagged(pair: tuple[str, str], draw: random.Random) -> tuple[str, str]:
    """The pair with up to three tags around or beside words at about the same places of both sides."""
    sides = [side.split() for side in pair]
    for number in range(1, draw.randint(1, 3) + 1):
        place, is_pair = draw.random(), draw.random() < 0.7
        for words in sides:
            at = int(place * len(words))
            words[at] = f"<{number}>{words[at]}</{number}>" if is_pair else f"<{number}/>{words[at]}"
    return " ".join(sides[0]), " ".join(sides[1])


def test_the_filters_of_auto_judge_text_with_tags_as_text_without(tmp_path: Path) -> None:
    plain = load_text(DataConfig(builtin="demo_en_fr", source_lang="en", target_lang="fr"), "train")
    assert plain is not None
    draw = random.Random(3)
    pairs = list(plain.each())[:1500]
    pairs = [*pairs, ("Save", "Enregistrer"), ("Click here", "Cliquez ici"), *(draw.sample(pairs, 1)[0] for _ in "abc")]
    pairs[100:400:30] = [
        (source, other[1]) for (source, _), other in zip(pairs[100:400:30], pairs[1000:], strict=False)
    ]
    with_tags = [tagged(pair, draw) for pair in pairs]
    config = DataConfig(source_lang="en", target_lang="fr", inline_tags=InlineTags.keep)
    for name, kind in FILTERS.items():
        if kind.is_auto or name == "numbers":
            verdicts = []
            for text in (texts(pairs), texts(with_tags)):
                one = kind(Languages("en", "fr"), kind.threshold)
                one.configure(config)
                one.learn(text)
                verdicts.append(one.apply(text))
            assert np.array_equal(verdicts[0].dropped, verdicts[1].dropped), name
            assert verdicts[0].repaired.keys() == verdicts[1].repaired.keys(), name


def test_markup_leaves_inline_tags_and_drops_no_short_text_for_them() -> None:
    pairs = [("<1>Save</1>", "<1>Änderungen jetzt speichern</1>"), ("<1/><2>Go</2> <b>on</b>", "<1/><2>Weiter</2>")]
    one = FILTERS["markup"](Languages("en", "de"), None)
    one.configure(DataConfig(inline_tags=InlineTags.keep))
    one.learn(texts(pairs))
    verdict = one.apply(texts(pairs))
    assert not verdict.dropped.any()
    assert verdict.repaired == {1: ("<1/><2>Go</2> on", "<1/><2>Weiter</2>")}


def test_pairs_with_other_tags_on_the_two_sides_are_dropped_where_it_is_asked_for(in_folder: Path) -> None:
    units = [
        tmx_unit(f"en House {n} <ph/> {bold(1, 'red')}.", f"de Haus {n} {'<ph/>' if n % 4 else ''} {bold(1, 'rot')}.")
        for n in range(200)
    ]
    Path("half.tmx").write_text(memory(*units), encoding="utf-8")
    command = ["prepare", "data=files", *LANGUAGES, "data.train=half.tmx", "data.tokenizer.vocab_size=60"]
    assert main([*command, "data.inline_tags=keep", "data.clean=[inline_tags]"]) == 0
    [report] = Path("data/files").glob("prepared-*/filtering.json")
    figures = json.loads(report.read_bytes())
    assert (figures["n_read"], figures["n_kept"]) == (200, 150)


# ---- Text with numbered tags


@each(
    "text, apart",
    [
        ("<1>a</1>, (<2>b</2>)", "<1> a </1>, (<2> b </2>)"),
        ("<1><2>a</2> b</1>", "<1> <2> a </2> b </1>"),
        ("un<1>believ</1>able <2>file</2>s", "un<1>believ</1>able <2> file</2>s"),
        ("l'<1>eau</1> <2/>a <3/>.", "l'<1> eau </1> <2/> a <3/>."),
        ("\u6309<1>\u4fdd\u5b58</1>\u952e", "\u6309<1>\u4fdd\u5b58</1>\u952e"),
        ("1 < 2 <b>c</b>", "1 < 2 <b>c</b>"),
    ],
)
def test_a_tag_stands_apart_from_its_words_where_it_does_not_cut_one(text: str, apart: str) -> None:
    assert spaced(text) == spaced(apart) == apart
    assert without_tags(apart).split() == without_tags(text).replace("<2/>a", "a").split()


def test_what_is_a_numbered_tag() -> None:
    text = "<1>a</1><12/> <b>c</b> <0/> <1 /> </1/> <01> <12345> 1 < 2 > 1"
    assert counted_tags(text) == {"<1>": 1, "</1>": 1, "<12/>": 1}
    assert without_tags(text) == "a <b>c</b> <0/> <1 /> </1/> <01> <12345> 1 < 2 > 1"
    assert (highest_number(text), highest_number("a")) == (12, 0)
    assert numbered_from("<1>a</1> 1 <2/>", 12) == "<13>a</13> 1 <14/>"
    assert not re.search("[\x01-\x07]", kept(bold(1, "a"), "<ph/>")[0])
