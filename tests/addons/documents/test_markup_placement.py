"""Places of tags in a translation: the parts of the search, by hand and by trying everything."""

import random
from collections.abc import Sequence

import pytest

from tests.support.each import each
from transformer_cli.addons.documents.document import translate_documents
from transformer_cli.addons.documents.placement import (
    _OTHER_COST,
    _Element,
    _free_stretch,
    _innermost,
    _Placed,
    _stretch,
    _Tokens,
    align,
    place,
    word_edges,
)
from transformer_cli.addons.documents.reading import parse
from transformer_cli.addons.documents.units import Unit
from transformer_cli.decoding.results import Candidate, Translated
from transformer_cli.decoding.terminology import Span


@each(
    "word, core",
    [("a", "a"), ("«a»,", "a"), ("_a_b_", "_a_b_"), ("(_x", "_x"), ("__", "__"), ("don't!", "don't"), ("3.", "3")],
)
def test_the_core_of_a_word_is_from_its_first_to_its_last_letter_digit_or_underscore(word: str, core: str) -> None:
    text = f"x {word} y"
    start, first, last, end = word_edges(text, (2, 2 + len(word)))
    assert (start, end, text[first:last]) == (2, 2 + len(word), core)


def test_a_word_of_punctuation_has_an_empty_core_at_its_end() -> None:
    assert word_edges("a -- b", (2, 4)) == (2, 4, 4, 4)


def nested(random_: random.Random, length: int) -> list[_Element]:
    """Elements within each other or apart, in the order of their openings, as tags are in a document."""
    root = _Element(-1, -1, 0, length, 0)
    found = [root]

    def fill(start: int, end: int, depth: int) -> None:
        while start < end and random_.random() < 0.8:
            first = random_.randint(start, end - 1)
            last = random_.randint(first + 1, end)
            found.append(_Element(0, 0, first, last, depth, number=len(found)))
            if depth < 3:
                fill(first, last, depth + 1)
            start = last

    fill(0, length, 1)
    return found


def test_the_innermost_element_is_the_last_to_begin_of_those_around_a_character() -> None:
    for seed in range(300):
        elements = nested(random.Random(seed), 12)
        starts, numbers = _innermost(elements)
        assert starts == sorted(starts)
        for offset in range(12):
            found = max(i for i, start in enumerate(starts) if start <= offset)
            assert numbers[found] == max(one.number for one in elements if one.start <= offset < one.end), seed


def score(stretch: Span, own: Sequence[int]) -> float:
    inside = sum(stretch[0] <= i < stretch[1] for i in own)
    return inside - _OTHER_COST * (stretch[1] - stretch[0] - inside)


def test_a_stretch_holds_most_of_its_own_and_fewest_others_and_meets_no_other_stretch() -> None:
    for seed in range(300):
        random_ = random.Random(seed)
        edges = sorted(random_.sample(range(13), 4))
        taken = [(edges[0], edges[1]), (edges[2], edges[3])][: random_.randint(0, 2)]
        own = sorted(random_.sample(range(12), random_.randint(1, 8)))
        possible = [
            (start, end)
            for start in range(12)
            for end in range(start + 1, 13)
            if start in own and end - 1 in own and not any(start < last and first < end for first, last in taken)
        ]
        found = _stretch(own, taken)
        assert (found is None) == (not possible), seed
        if found is not None:
            assert found in possible, seed
            assert score(found, own) == max(score(one, own) for one in possible), seed


def unit_of(html: str) -> Unit:
    (unit,) = parse(f"<p>{html}</p>", "html", "page").units
    return unit


@each(
    "translation, links, taken, claimed, expected",
    [
        ("x y z", [(0, 0), (2, 2)], [], set(), "y"),
        ("x y z", [(0, 0), (2, 2)], [(1, 2)], set(), "x"),
        ("x y z", [(0, 0), (2, 2)], [(1, 3)], set(), "x"),
        ("x y z", [(0, 0), (2, 2)], [], {1}, "x"),
        ("x y z", [(0, 0), (2, 2)], [], {0, 1}, "z"),
        ("x y z", [(0, 0), (2, 2)], [], {0, 1, 2}, ""),
        ("x - z", [(0, 0), (2, 2)], [], {2}, "x"),  # a word has a letter or a digit
        ("x y z", [(0, 0), (2, 2)], [(0, 3)], set(), ""),
        ("x - -", [(0, 0)], [(0, 1)], set(), ""),
    ],
)
def test_an_element_without_a_word_takes_the_nearest_free_one(
    translation: str, links: list[Span], taken: list[Span], claimed: set[int], expected: str
) -> None:
    unit = unit_of("a <b>b</b> c")
    elements = [_Element(-1, -1, 0, 5, 0), _Element(0, 1, 2, 3, 1, number=1)]
    aligned = align(unit.text, translation, links)
    tokens = _Tokens(unit, aligned, elements)
    start, end = _free_stretch(_Placed(0, 3, elements[0]), elements[1], tokens, taken, claimed)
    assert " ".join(translation.split()[start:end]) == expected


def placed(html: str, translation: str, links: Sequence[Span]) -> list[tuple[str, int]]:
    """Each tag, with the number of words of the translation before it."""
    unit = unit_of(html)
    aligned = align(unit.text, translation, links)
    return [("".join(unit.tags[i].parts).strip(), boundary) for boundary, i in place(unit, aligned).marks]


@each(
    "html, links, expected",
    [
        ("a <img> b", [(0, 0), (1, 1)], [("<img>", 1)]),
        ("a <i></i><img> b", [(0, 1), (1, 0)], [("<i>", 0), ("</i>", 0), ("<img>", 0)]),
        ("<b>a</b> <i>b</i>", [(0, 1), (1, 0)], [("<i>", 0), ("</i>", 1), ("<b>", 1), ("</b>", 2)]),
        ("<b><i>a</i> b</b> c", [(0, 1), (1, 0), (2, 2)], [("<b>", 0), ("<i>", 1), ("</i>", 2), ("</b>", 2)]),
        ("<b>a <img></b> b", [(0, 0), (1, 1)], [("<b>", 0), ("<img>", 1), ("</b>", 1)]),
    ],
)
def test_tags_move_with_their_words(html: str, links: list[Span], expected: list[tuple[str, int]]) -> None:
    assert placed(html, " ".join("xyz"[: len(links)]), links) == expected


# ---- Tags that continue into another unit

SPANNING_PIECES = ("<b>", "</b>", "<i>", "</i>", "<u>", "</u>", "<a>x</a>", "<s>x y</s>", "x", "x", "y")


def relation(tag: int, pair: Span, order: Sequence[int]) -> int:
    """Whether a tag is before a pair, within it or after it."""
    at = order.index(tag)
    return (at > order.index(pair[0])) + (at > order.index(pair[1]))


def test_a_pair_with_text_stays_on_its_side_of_each_tag_without_a_partner_whatever_the_alignment() -> None:
    n_moved = 0
    for seed in range(1000):
        random_ = random.Random(seed)
        unit = unit_of(" ".join(["w", *random_.choices(SPANNING_PIECES, k=random_.randint(2, 12)), "w"]))
        n = len(unit.text.split())
        links = [(i, j) for j, i in enumerate(random_.sample(range(n), n)) if random_.random() < 0.9]
        aligned = align(unit.text, " ".join(f"t{j}" for j in range(n)), links)
        order = [tag for _, tag in place(unit, aligned).marks]
        assert sorted(order) == list(range(len(unit.tags))), seed
        alone = [i for i, tag in enumerate(unit.tags) if tag.spans]
        assert [i for i in order if i in alone] == alone, seed
        pairs = [(i, tag.partner) for i, tag in enumerate(unit.tags) if tag.partner is not None and tag.partner > i]
        with_text = [(i, j) for i, j in pairs if unit.text[unit.tags[i].offset : unit.tags[j].offset].strip()]
        for tag in alone:
            for pair in with_text:
                n_moved += order.index(pair[0]) != pair[0]
                assert relation(tag, pair, order) == relation(tag, pair, range(len(unit.tags))), seed
    assert n_moved > 100  # the tags do move


@pytest.mark.parametrize(
    ("html", "links", "expected"),
    [
        # A link that goes on after the line does not take in the one before it, which now stands behind its words.
        ("<a>a b</a> c <u>d e", [(4, 0), (3, 1), (2, 2), (1, 3), (0, 4)], [("<a>", 3), ("</a>", 5), ("<u>", 5)]),
        # The end of a tag that began within a pair does not get before its beginning.
        (
            "a <b>b <i>c</b> d</i> e",
            [(4, 0), (3, 1), (2, 2), (1, 3), (0, 4)],
            [("<b>", 2), ("<i>", 2), ("</b>", 4), ("</i>", 4)],
        ),
    ],
)
def test_the_order_of_tags_without_partners_is_kept(
    html: str, links: list[Span], expected: list[tuple[str, int]]
) -> None:
    assert placed(html, "v w x y z", links) == expected


def marked(source: str, target: str, links: Sequence[Span]) -> str:
    """The translation of a paragraph with its tags, by links of words."""
    result = Translated([Candidate(target, 0.0)], alignment=list(links))
    (written,) = translate_documents([f"<p>{source}</p>"], "html", lambda texts: [result] * len(texts))
    return written.text.removeprefix("<p>").removesuffix("</p>")


@each(
    "source, target, links, expected",
    [
        # "on" has no link, and "Monday" two words beside each other.
        ("on <b>Monday</b>", "le lundi", [(1, 0), (1, 1)], "le <b>lundi</b>"),
        ("that <b>day</b> of", "ce jour de", [(0, 0), (1, 1), (1, 2)], "ce <b>jour</b> de"),
        ("in the <b>box</b>", "dans la caisse", [(2, 0), (2, 1), (2, 2)], "dans la <b>caisse</b>"),
        # Every source word has a link, or the words are apart: all stays.
        (
            "my <b>password</b> is",
            "mon mot de passe est",
            [(0, 0), (1, 1), (1, 2), (1, 3), (2, 4)],
            "mon <b>mot de passe</b> est",
        ),
        ("on <b>Monday</b>", "le x lundi", [(1, 0), (1, 2)], "<b>le x lundi</b>"),
        # A word that begins an element keeps at least one word of its own.
        ("I do <b>swim</b>", "Je nage", [(0, 0), (2, 1)], "Je <b>nage</b>"),
    ],
)
def test_a_word_without_a_link_has_a_word_of_a_neighbour_that_has_several(
    source: str, target: str, links: list[Span], expected: str
) -> None:
    assert marked(source, target, links) == expected


@each(
    "source, target, links, expected",
    [
        ("the <b>article</b> here", "l'article ici", [(0, 0), (1, 0), (2, 1)], "l'<b>article</b> ici"),
        ("the <b>whole article</b>", "l’article entier", [(0, 0), (1, 1), (2, 0)], "l’<b>article entier</b>"),
        ("not the <b>water</b>", "pas l'eau", [(0, 0), (2, 1)], "pas l'<b>eau</b>"),  # "the" has no link
        ("<b>the article</b> here", "l'article ici", [(0, 0), (1, 0), (2, 1)], "<b>l'article</b> ici"),
        ("drink <b>water</b>", "boire l'eau", [(0, 0), (1, 1)], "boire <b>l'eau</b>"),
        ("je <b>sais</b> bien", "I've known", [(0, 0), (1, 0), (2, 1)], "<b>I've</b> known"),  # a contraction
    ],
)
def test_an_elided_word_may_be_outside_the_element_of_the_word_that_it_is_written_with(
    source: str, target: str, links: list[Span], expected: str
) -> None:
    assert marked(source, target, links) == expected


def test_of_several_source_words_the_longest_is_the_source() -> None:
    assert marked("to <b>buy</b> bread", "acheter pain", [(0, 0), (1, 0), (2, 1)]) == "<b>acheter</b> pain"


@each(
    "source, links, expected",
    [
        # "hour" is linked to its translation and to the verb behind it, whose only translation this is.
        ("save it every <b>hour</b>", [(0, 3), (1, 0), (2, 1), (3, 2), (3, 3)], "es jede <b>Stunde</b> speichern"),
        ("<b>save</b> it every hour", [(0, 3), (1, 0), (2, 1), (3, 2), (3, 3)], "es jede Stunde <b>speichern</b>"),
        # Both have two translations: the longest.
        ("do it <b>hourly</b>", [(0, 0), (1, 1), (2, 2), (0, 3), (2, 3)], "es jede <b>Stunde speichern</b>"),
    ],
)
def test_of_several_source_words_the_source_is_the_one_with_fewest_translations(
    source: str, links: list[Span], expected: str
) -> None:
    assert marked(source, "es jede Stunde speichern", links) == expected


@each(
    "source, target, links, expected",
    [
        # The word behind the tag has a translation, which stands before that of the word in front of it.
        ("land <img> and choose", "und Land wählen", [(0, 1), (1, 0), (2, 2)], "<img> und Land wählen"),
        # It has none, and the word in front of the tag has.
        ("land <img> and choose", "Land und wählen", [(0, 0), (2, 2)], "Land <img> und wählen"),
        # Neither has one: the nearest, and of equally near ones the word behind the tag.
        ("a big land <img> and choose", "ein Land und wählen", [(0, 0), (4, 3)], "ein Land und <img> wählen"),
        ("a land <img> and then choose", "ein Land und wählen", [(0, 0), (4, 3)], "ein <img> Land und wählen"),
        ("a land <img> and choose", "ein Land und wählen", [(0, 0), (3, 3)], "ein Land und <img> wählen"),
        ("land <img> and", "das Land", [(1, 0)], "<img> das Land"),
    ],
)
def test_a_tag_between_words_stays_beside_the_nearest_one_that_has_a_translation(
    source: str, target: str, links: list[Span], expected: str
) -> None:
    assert marked(source, target, links) == expected


@each(
    "source, target, links, expected",
    [
        ("land <img> and", "das Land", [(0, 1)], "das Land <img>"),
        ("land <img> and.", "das Land.", [(0, 1)], "das Land <img>."),
        ("land <img> and", "das „Land“", [(0, 1)], "das „Land“ <img>"),
        ("land <img><img> and", "das Land", [(0, 1)], "das Land <img><img>"),
        ("a <b>x</b> <img> c", "x c", [(1, 1)], "x <b>c</b> <img>"),
        ("land <img> and", "das Land", [(0, 0)], "das <img> Land"),
        ("land<img> and", "das Land", [(0, 1)], "das Land<img>"),
    ],
)
def test_a_tag_between_spaces_has_one_before_it_at_the_end_of_words(
    source: str, target: str, links: list[Span], expected: str
) -> None:
    assert marked(source, target, links) == expected
