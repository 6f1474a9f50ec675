"""The HTML page of a comparison as text; test_compare_page_in_browser.py opens it in a browser."""

import dataclasses
import math
import random
import re
from functools import cache
from html.parser import HTMLParser
from itertools import combinations

import pytest

from tests.addons.comparison.toy_comparison import NAMES, toy_comparison
from tests.support.each import each
from transformer_cli.addons.comparison.charts import line_chart, ticks
from transformer_cli.addons.comparison.page import render
from transformer_cli.addons.comparison.results import Comparison, Curve, GroupComparison, Sentence
from transformer_cli.addons.comparison.verdicts import VerdictKind, system_verdict
from transformer_cli.addons.comparison.word_diff import Mark, mark_differences, words_and_blanks
from transformer_cli.evaluation.significance import PairedResult

HOSTILE = (
    "</title></style></script><script>window.broken=1</script> & \"q\" 'a' <b> مرحبا 👩‍👩‍👧‍👦 $script <!-- \\u003c"
)
VOID = {"meta", "link", "input", "br", "line", "path", "rect", "use", "polyline"}


class Page(HTMLParser):
    """Tags, text, and the text of each section, by the id of its heading."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag  # every element is closed, in order

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self.open}:
            self.text += data


def headings(page: str) -> list[str]:
    return re.findall(r'<h2 id="(\w+)">', page)


def headline(comparison: Comparison) -> str:
    (found,) = re.findall(r"<h1>(.*?)</h1>", render(comparison))
    return str(found)


# ---- The page


def test_the_page_loads_nothing_from_elsewhere_and_has_no_inline_style() -> None:
    page = Page(render(toy_comparison()))
    links = [value for name, value in page.attributes if name in ("src", "href", "action", "srcset")]
    assert {value for value in links if not (value or "").startswith("#")} == {"data:,"}
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
    assert not re.search(r"https?:|@import|url\(|\bfetch\b|XMLHttp", render(toy_comparison()))


def test_every_text_is_escaped() -> None:
    plain, hostile = toy_comparison(text="x"), toy_comparison(names=[HOSTILE, "b", "c"], text=HOSTILE)
    page = Page(render(hostile))
    # Marks depend on the words; every other element is the same with any text.
    tags, expected = ([tag for tag in one.tags if tag != "mark"] for one in (page, Page(render(plain))))
    assert tags == expected
    assert page.text.count(HOSTILE) > 100


def test_odd_characters_do_not_break_the_page() -> None:
    comparison = toy_comparison(text="a\0b\rc\udcff\u2028\u202e")
    render(comparison).encode()


def test_every_number_and_text_of_a_comparison_is_there() -> None:
    comparison = toy_comparison()
    text = Page(render(comparison)).text.replace("\N{MINUS SIGN}", "-")
    wanted = [comparison.test_set, "1,234", *comparison.notes, *NAMES]
    wanted += [part for one in comparison.systems for part in (one.path, one.search, one.model_hash) if part]
    for metric in comparison.metrics:
        wanted += [metric.name, metric.signature]
        wanted += [f"{number:.2f}" for one in metric.scores for number in (one.score, one.mean, one.half_width)]
        for result in metric.against_baseline[1:]:
            assert result is not None
            wanted += [f"{result.difference:+.2f}", f"{result.p_bootstrap:.4f}", f"{result.p_randomization:.4f}"]
    for group in comparison.groups:
        wanted += [group.group, f"{group.mean:.2f}", f"{group.lowest:.2f} to {group.highest:.2f}"]
    wanted += [f"{group.deviation:.2f}" for group in comparison.groups if group.n_runs > 1]
    wanted += [f"{one.difference:+.2f}" for one in comparison.group_comparisons]
    for sentences in (*comparison.better.values(), *comparison.worse.values()):
        for one in sentences:
            wanted += [f"Line {one.line:,}", one.source or "", *one.references, *one.translations]
            wanted += [f"{score:.1f}" for score in one.scores]
    for breakdown in comparison.breakdowns:
        wanted.append(breakdown.title)
        for bucket in breakdown.buckets:
            wanted += [bucket.label, str(bucket.n), *(f"{score:.2f}" for score in bucket.scores if score is not None)]
    wanted += [f"{score:.2f}" for curve in comparison.curves for _, score in curve.points if score >= 10]
    wanted += [f"{update:,}" for curve in comparison.curves for update, _ in curve.points]
    wanted += [one.key for one in comparison.config_differences]
    wanted += [value for one in comparison.config_differences for value in one.values if value]
    wanted += ["Length: words", "0.980", "2,000", "Lines with unknown signs"]
    assert [one for one in wanted if one not in text] == []


@pytest.mark.slow
@each(
    "field, heading",
    [
        ("metrics", "scores"),
        ("groups", "seeds"),
        ("breakdowns", "breakdowns"),
        ("curves", "curves"),
        ("config_differences", "configs"),
        ("statistics", "statistics"),
    ],
)
def test_a_section_without_data_is_left_out(field: str, heading: str) -> None:
    whole, less = toy_comparison(), dataclasses.replace(toy_comparison(), **{field: ()})
    assert [name for name in headings(render(whole)) if name not in headings(render(less))] == [heading]
    assert f'href="#{heading}"' not in render(less)


def test_two_files_alone_have_the_systems_and_their_scores() -> None:
    whole = toy_comparison(names=NAMES[:2])
    few = Comparison("test", 5, 1, whole.systems, whole.metrics, "chrF2")
    assert headings(render(few)) == ["systems", "scores"]
    assert "<h1>deep/1 is better than base/1 by 1.24 BLEU</h1>" in render(few)
    assert headings(render(dataclasses.replace(few, metrics=()))) == ["systems"]


def test_equal_comparisons_give_equal_pages() -> None:
    assert render(toy_comparison()) == render(toy_comparison())
    assert render(toy_comparison()) != render(toy_comparison(seed=2))


def test_three_systems_with_fifty_sentences_each_way_fit_in_a_megabyte() -> None:
    line = " ".join(["Rindfleischetikettierung"] * 10)
    comparison = toy_comparison(n_sentences=50)
    wide = {
        i: [dataclasses.replace(one, source=line, references=[line]) for one in sentences]
        for i, sentences in comparison.better.items()
    }
    assert len(render(dataclasses.replace(comparison, better=wide)).encode()) < 1e6


@each("code, attribute", [("de", 'lang="de"'), ("zho_Hans", 'lang="zho-Hans"'), ('"><b>', ""), ("de+fr", "")])
def test_translations_say_their_language_and_take_their_direction_from_their_text(code: str, attribute: str) -> None:
    page = render(dataclasses.replace(toy_comparison(), target_language=code, source_language=None))
    sentences = re.findall(r"<dd dir=\"auto\"([^>]*)>", page)
    assert {sentence.strip() for sentence in sentences} == {attribute, ""}
    assert len(sentences) == page.count('<dd dir="auto"')


def test_an_empty_translation_is_said_to_be_empty() -> None:
    sentence = Sentence(1, "a", ["b"], ["", "b", "c"], [0.0, 100.0, 1.0])
    assert '<span class="empty">empty</span>' in render(dataclasses.replace(toy_comparison(), better={1: [sentence]}))


# ---- The finding in words


def with_result(result: PairedResult, *, higher_is_better: bool = True) -> Comparison:
    comparison = toy_comparison(names=NAMES[:2])
    metric = dataclasses.replace(
        comparison.metrics[0], higher_is_better=higher_is_better, against_baseline=[None, result]
    )
    return dataclasses.replace(comparison, metrics=[metric], group_comparisons=())


@each(
    "result, expected, evidence",
    [
        (PairedResult(1.2, 0.003, 0.002), "deep/1 is better than base/1 by 1.20 BLEU", "fewer than 1 of 100 "),
        (PairedResult(-1.2, 0.0001, None), "deep/1 is worse than base/1 by 1.20 BLEU", "fewer than 1 of 1,000 "),
        (PairedResult(0.3, 0.003, 0.25), "No difference is shown between deep/1 and base/1", "about 25 of 100 "),
        (PairedResult(0.3, 0.003, 0.003, 0.5), "No difference is shown between deep/1 and base/1", "about 50 of 100 "),
        (PairedResult(0.3, 1.0, 1.0), "No difference is shown between deep/1 and base/1", "nearly all comparisons"),
        (PairedResult(9, 1 / 10001, None), "deep/1 is better than base/1 by 9.00 BLEU", "(p\xa0=\xa00.0001)"),
        (PairedResult(0.3, 0.05, None), "No difference is shown between deep/1 and base/1", "about 5 of 100 "),
        (PairedResult(0.3, None, None), "deep/1 has 0.30 BLEU more than base/1", "No significance test was made"),
    ],
)
def test_the_headline_says_who_is_better_and_whether_by_chance(
    result: PairedResult, expected: str, evidence: str
) -> None:
    comparison = with_result(result)
    assert headline(comparison) == expected
    assert evidence in system_verdict(comparison, comparison.metrics[0], 1).evidence


def test_less_is_better_of_an_error_rate() -> None:
    comparison = with_result(PairedResult(-1.2, 0.01, 0.01), higher_is_better=False)
    assert headline(comparison) == "deep/1 is better than base/1 by 1.20 BLEU"


def test_equal_translations_are_not_called_a_difference() -> None:
    comparison = with_result(PairedResult(0.0, 0.001, 0.001))
    same = [dataclasses.replace(one, translations=["a", "b"]) for one in comparison.systems]
    comparison = dataclasses.replace(comparison, systems=same)
    assert headline(comparison) == "deep/1 and base/1 gave the same translations"
    assert system_verdict(comparison, comparison.metrics[0], 1).finding is VerdictKind.same


def test_several_systems_are_counted() -> None:
    assert headline(dataclasses.replace(toy_comparison(), group_comparisons=())) == (
        "Of 2 other systems, 1 is better than base/1"
    )


def test_groups_of_runs_come_before_single_runs_where_they_are_tested() -> None:
    tested = [GroupComparison("BLEU", "base", "deep", 0.55, 0.02)]
    comparison = dataclasses.replace(toy_comparison(), group_comparisons=tested)
    assert headline(comparison) == "deep is better than base by 0.55 BLEU on average"


def test_the_runs_of_one_config_differ_by_their_seed() -> None:
    comparison = with_result(PairedResult(1.2, 0.003, 0.002))
    systems = [dataclasses.replace(one, group="a") for one in comparison.systems]
    assert "this is what another seed changes" in render(dataclasses.replace(comparison, systems=systems))


# ---- Words that differ

TEXTS = [
    *("", " ", "a", "a man in a a a hat .", "a man  in a hat.", "the hat", "  a b ", "l'homme n'est pas là", "x\r\ny"),
    *(
        "我喜歡你們的狗。",
        "我喜你狗",
        "สวัสดีครับ",
        "สวัสดคะ",
        "शुभ प्रभात",
        "👩‍👩‍👧‍👦 👍🏽 ok",
        "👍🏽 no",
        "مرحبا بالعالم",
        "\u0301a",
        HOSTILE,
    ),
]


@each("text", TEXTS)
@each("other", TEXTS)
def test_both_sides_without_marks_are_the_inputs_and_share_what_is_unmarked(text: str, other: str) -> None:
    stretches = mark_differences(text, other, ["a hat"])
    assert ["".join(one.text for one in side) for side in stretches] == [text, other]
    common = ["".join("".join(one.text for one in side if one.mark is Mark.same).split()) for side in stretches]
    assert common[0] == common[1]
    if text == other:
        assert common[0] == "".join(text.split())


def test_as_few_words_as_possible_are_marked() -> None:
    @cache
    def longest(a: str, b: str) -> int:  # by trying all subsequences
        return max(n for n in range(min(len(a), len(b)) + 1) if {*combinations(a, n)} & {*combinations(b, n)})

    draw = random.Random(1)
    for _ in range(200):
        a, b = ("".join(draw.choices("abc", k=draw.randint(0, 7))) for _ in range(2))
        for stretches in mark_differences(" ".join(a), " ".join(b), []):
            kept = sum(len(one.text.replace(" ", "")) for one in stretches if one.mark is Mark.same)
            assert kept == longest(a, b), (a, b)


def test_words_in_a_reference_are_told_from_others_as_often_as_it_has_them() -> None:
    found, _ = mark_differences("cat and cat and dog sat", "dog", ["the cat and dog sat"])
    assert [(one.text, one.mark) for one in found] == [
        ("cat and", Mark.in_reference),
        (" ", Mark.same),
        ("cat and", Mark.not_in_reference),
        (" dog ", Mark.same),
        ("sat", Mark.in_reference),
    ]


@each(
    "text, words",
    [
        ("don't, 1,5", ["don", "'", "t", ",", " ", "1", ",", "5"]),
        ("東京タワーABC", [*"東京タワー", "ABC"]),
        ("ครับ", ["ค", "รั", "บ"]),  # vowel signs stay with their consonant
        ("한국어 e\u0301a", ["한국어", " ", "e\u0301a"]),
        ("👩‍👩‍👧‍👦👍🏽", ["👩‍👩‍👧‍👦", "👍🏽"]),
    ],
)
def test_words_are_cut_as_the_script_writes_them(text: str, words: list[str]) -> None:
    assert words_and_blanks(text) == words


@each("low, high", [(0, 4000), (1.9, 3.6), (33.1, 33.1), (0, 0), (-5, 7), (0.81, 0.8104)])
def test_axes_have_a_few_round_numbers_around_the_data(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low <= high <= found[-1] + 1e-9
    assert 2 <= len(found) <= 9


def test_a_bar_of_each_system_is_as_long_as_its_score() -> None:
    comparison = toy_comparison()
    bars = re.findall(r'<svg class="bar" data-colour="(\d)"[^>]*><rect x="(.*?)%" width="(.*?)%"', render(comparison))
    expected = []
    for breakdown in comparison.breakdowns:
        highest = max(score or 0 for bucket in breakdown.buckets for score in bucket.scores)
        for bucket in breakdown.buckets:
            expected += [(i, 0, 100 * score / highest) for i, score in enumerate(bucket.scores) if score is not None]
    assert len(bars) == len(expected) > 5
    for (colour, start, width), (i, *numbers) in zip(bars, expected, strict=True):
        assert int(colour) == i
        assert [float(start), float(width)] == pytest.approx(numbers, rel=1e-3)


def test_references_are_numbered_where_there_are_several() -> None:
    comparison = toy_comparison()
    page = Page(render(comparison))
    assert "Reference 1" in page.text
    assert "Reference 2" in page.text

    def with_one(sentences: dict[int, list[Sentence]]) -> dict[int, list[Sentence]]:
        return {
            i: [dataclasses.replace(one, references=one.references[:1]) for one in of_one]
            for i, of_one in sentences.items()
        }

    single = dataclasses.replace(comparison, better=with_one(comparison.better), worse=with_one(comparison.worse))
    text = Page(render(single)).text
    assert "Reference" in text
    assert "Reference 1" not in text


def test_a_line_goes_from_the_first_to_the_last_score_of_each_system() -> None:
    curves = [Curve(0, "dev_bleu", [(0, 10.0), (50, 20.0), (100, 30.0)]), Curve(1, "dev_bleu", [(100, math.nan)])]
    chart = line_chart(curves, ["a", "b"], label="scores")
    assert re.findall(r'points="([^"]*)"', chart) == ["0,1000 500,500 1000,0", ""]
    assert re.findall(r"<title>(.*?)</title>", chart) == ["a, update 0: 10", "a, update 50: 20", "a, update 100: 30"]
    assert line_chart(curves[1:], ["a", "b"], label="scores") == ""
