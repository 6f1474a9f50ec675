"""What each filter drops and repairs, by hand; expected texts are written out."""

import numpy as np
import pytest

from tests.data.cleaning.noise import KINDS, made_up_pairs, noisy, sound_pairs, texts, trained
from transformer_cli.data.cleaning.base import FILTERS, Languages, PairTexts, chosen_filters
from transformer_cli.data.cleaning.clean_corpora import apply
from transformer_cli.data.cleaning.filters import language
from transformer_cli.errors import ConfigError

SOUND = list(sound_pairs(2000))


def applied(name: str, *pairs: tuple[str, str], threshold: float | None = None) -> list[tuple[str, str] | None]:
    """The pairs after a filter that is trained on sound text; None for one that it drops."""
    one = trained(name, texts(SOUND), threshold)
    verdict = one.apply(texts(pairs))
    return [None if verdict.dropped[index] else verdict.repaired.get(index, pair) for index, pair in enumerate(pairs)]


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ("Il a mangÃ© une pomme.", "Il a mangé une pomme."),
        ("Donâ€™t go there.", "Don’t go there."),
        ("20 â‚¬ par jour", "20 € par jour"),
        ("\x93quoted\x94 text", "“quoted” text"),
        ("Ð\x9fÑ\x80Ð¸Ð²ÐµÑ\x82", "Привет"),
    ],
)
def test_a_wrong_encoding_is_undone(broken: str, whole: str) -> None:
    assert applied("mojibake", ("the text", broken)) == [("the text", whole)]


@pytest.mark.parametrize(
    "line", ["Il a mangé.", "ÇA VA ?", "Ã, ã and Â are letters", "naïve café, 20 °C, 5 € – “ok”", "привет"]
)
def test_letters_with_accents_are_no_wrong_encoding(line: str) -> None:
    assert applied("mojibake", ("the text", line)) == [("the text", line)]


def test_lines_that_lost_characters_are_dropped() -> None:
    assert applied("mojibake", ("the text", "Il a mang\ufffd une pomme."), ("a", "b")) == [None, ("a", "b")]


@pytest.mark.parametrize(
    ("source", "whole"),
    [
        ("<p>The cat sleeps.</p>", "The cat sleeps."),
        ('See <a href="x.html">this</a>.<br/>Now.', "See this. Now."),
        ("Fish &amp; chips &#233;", "Fish & chips é"),
        ("<!-- note -->The cat sleeps.", "The cat sleeps."),
    ],
)
def test_markup_of_one_side_is_removed(source: str, whole: str) -> None:
    assert applied("markup", (source, "Le chat dort.")) == [(whole, "Le chat dort.")]


@pytest.mark.parametrize(
    "pair",
    [
        ("The <b>cat</b> sleeps.", "Le <b>chat</b> dort."),
        ("Use the <br> tag.", "Utilisez la balise <br>."),
        ("a < b and c > d", "a < b et c > d"),
        ("AT&T; R&D", "AT&T; R&D"),
        ("x & y", "x et y"),
    ],
)
def test_markup_of_both_sides_is_text(pair: tuple[str, str]) -> None:
    assert applied("markup", pair) == [pair]


def test_markup_without_text_and_program_text_beside_text_are_dropped() -> None:
    code = "if (x == 1) { y[0] = f_1(x) | 2; } else { y = #3; }"
    assert applied("markup", ("<td></td>", "Le chat"), (code, "Le chat dort."), (code, code)) == [
        None,
        None,
        (code, code),
    ]


def test_the_escapes_of_moses_are_left_where_the_text_is_tokenized() -> None:
    pairs = [("it &apos;s a cat", "c&apos; est un chat")] * 50 + [("it &apos;s his", "c' est le sien")]
    one = trained("markup", texts(pairs))
    assert one.apply(texts(pairs)).repaired == {}


def test_sides_without_letters_are_dropped_where_the_other_is_a_sentence() -> None:
    pairs = [
        ("...", "Je ne sais pas."),
        ("1999", "mille neuf cent quatre-vingt-dix-neuf"),
        ("?", "Quoi"),
        ("@@", "Deux chats dorment."),
    ]
    assert [pair is None for pair in applied("empty", *pairs)] == [True, False, False, True]


def test_copies_of_sentences_are_dropped_and_names_are_not() -> None:
    pairs = [
        ("The cat is on the mat.", "the cat is on the mat"),
        ("Tom Jackson", "Tom Jackson"),
        ("New York, 11 September 2001", "New York, 11 September 2001"),
        ("pizza margherita", "pizza margherita"),
        ("今日はいい天気ですね", "今日はいい天気ですね"),
        ("The cat is here.", "Le chat est ici."),
    ]
    assert [pair is None for pair in applied("copies", *pairs)] == [True, False, False, False, True, False]


def test_exchanged_sides_are_put_right() -> None:
    text = noisy(sound_pairs(3000), kinds=["swapped"])
    verdict = trained("swapped", text.text).apply(text.text)
    assert not verdict.dropped.any()
    assert set(verdict.repaired) == set(text.of("swapped"))
    assert all(verdict.repaired[index] == text.sound[index] for index in verdict.repaired)


def test_scripts_are_those_of_the_text() -> None:
    pairs = [("the cat sleeps", "кошка спит дома")] * 100
    one = FILTERS["script"](Languages("en", "ru"), FILTERS["script"].threshold)
    one.learn(texts(pairs))
    others = texts(
        [
            ("кошка спит", "кошка спит"),
            ("the cat", "the cat sleeps here"),
            ("Windows", "Windows 11 Pro"),
            ("I use it", "Я использую Windows дома"),
        ]
    )
    assert one.apply(others).dropped.tolist() == [True, True, True, False]


def test_lines_in_the_language_of_the_other_side_or_in_a_third_are_dropped() -> None:
    text = noisy(sound_pairs(3000), kinds=["foreign"])
    dropped = trained("language", text.text).apply(text.text).dropped
    assert dropped[text.of("foreign")].all()
    assert not dropped[text.of("")].any()
    french = "Il a mangé toutes les pommes qui étaient sur la table."
    assert applied("language", (french, french)) == [None]


def test_a_language_that_is_declared_wrongly_drops_nothing() -> None:
    pairs = texts(sound_pairs(1000))
    one = FILTERS["language"](Languages("fr", "en"), FILTERS["language"].threshold)
    one.learn(pairs)
    assert not one.apply(pairs).dropped.any()


@pytest.mark.parametrize("name", ["Barcelona", "Giuseppe Verdi", "González Márquez", "Tokyo 2020"])
def test_short_lines_are_not_identified(name: str) -> None:
    assert applied("language", (name, name)) == [(name, name)]


def test_every_group_of_languages_is_known_to_the_identification() -> None:
    labels = set(language.identifier().labels)
    assert {one for group in language._ALIKE for one in group} <= labels


def test_lines_beside_many_unrelated_ones_are_dropped() -> None:
    words, answers = [f"word{number}" for number in range(4000)], ["je", "vous", "prie", "de", "rien", "il", "a", "y"]
    pairs = [(" ".join(words[i : i + 4]), " ".join(words[i + 1 : i + 5])) for i in range(0, 400, 4)]
    variants = [("you are welcome", f"{answer} à vous") for answer in answers]
    beside = [("see all pages of this site", " ".join(words[i : i + 5])) for i in range(1000, 1060, 6)]
    text = texts([*pairs, *variants, *beside, *[("see all pages of this site", "voir toutes les pages")] * 5])
    dropped = trained("boilerplate", text).apply(text).dropped
    assert np.flatnonzero(dropped).tolist() == list(range(len(pairs) + len(variants), len(text) - 5))


def test_unlikely_lengths_are_dropped() -> None:
    long = "Le chat dort sur la chaise, et le chien le regarde depuis la porte du jardin, où il pleut."
    assert applied("length_ratio", ("The cat sleeps on the chair.", long * 2), *SOUND[:50]) == [None, *SOUND[:50]]


def test_numbers_and_addresses_that_differ_are_dropped_on_request() -> None:
    pairs = [
        ("in 1999 and 2001", "en 1998 et 2002"),
        ("1,500 euros", "1 500 euros"),
        ("two cats", "2 chats"),
        ("5 and 7", "5 et 7"),
    ]
    assert [pair is None for pair in applied("numbers", *pairs)] == [True, False, False, False]
    pairs = [("see http://a.org/x.", "voir http://a.org/x"), ("see www.a.org", "voir le site"), ("a@b.org", "a@b.org")]
    assert [pair is None for pair in applied("urls", *pairs)] == [False, True, False]
    assert applied("long_lines", ("a" * 101, "b"), ("a" * 100, "b"), threshold=100) == [None, ("a" * 100, "b")]


def test_unrelated_lines_are_dropped_and_shifted_blocks_paired_again() -> None:
    text = noisy(made_up_pairs(5000), kinds=[])
    verdict = trained("word_alignment", text.text).apply(text.text)
    unrelated, shifted = text.of("unrelated"), text.of("shifted")
    assert verdict.dropped[unrelated].mean() >= 0.7
    right = [index for index, pair in verdict.repaired.items() if pair == text.sound[index]]
    assert len(right) == len(verdict.repaired) >= 0.45 * len(shifted)
    assert np.mean([verdict.dropped[i] or i in verdict.repaired for i in shifted]) >= 0.7
    assert verdict.dropped[text.of("")].mean() <= 0.002


def test_nothing_of_sound_text_is_dropped() -> None:
    for name in chosen_filters(["auto"]):
        verdict = trained(name, texts(sound_pairs(3000))).apply(texts(sound_pairs(3000)))
        assert (verdict.dropped.sum(), verdict.repaired) == (0, {}), name


def test_filters_of_too_little_text_drop_nothing_by_what_they_learn_from_it() -> None:
    pairs = [("a b c", "x"), ("d e f g h i", "y z"), ("k", "l m n o p q r s t u")]
    for name in ("word_alignment", "length_ratio", "boilerplate", "swapped"):
        assert not trained(name, texts(pairs)).apply(texts(pairs)).dropped.any()


def test_the_kinds_of_faults_are_found_one_after_the_other() -> None:
    """Sentences of the built-in corpus have few words, so that many unrelated ones are half right."""
    text = noisy(sound_pairs(3000), seed=3)
    found = np.zeros(len(text.text), bool)
    rest = text.text
    for name in chosen_filters(["auto"]):
        before, (rest, verdict) = rest, apply(trained(name, rest), rest)
        found[before.numbers[verdict.dropped]] = True
        found[before.numbers[list(verdict.repaired)]] = True
    for kind in KINDS:
        assert found[text.of(kind)].mean() >= 0.9, kind
    for kind in ("unrelated", "shifted"):
        assert found[text.of(kind)].mean() >= 0.6, kind
    assert found[text.of("")].mean() <= 0.005


# ---- data.clean


def test_entries_choose_filters_in_the_order_in_which_they_are_applied() -> None:
    auto = [name for name, kind in FILTERS.items() if kind.is_auto]
    assert list(chosen_filters(["auto"])) == auto
    assert list(chosen_filters(["length_ratio:4", "copies"])) == ["copies", "length_ratio"]
    assert chosen_filters(["length_ratio:4"]) == {"length_ratio": 4.0}
    assert list(chosen_filters(["auto", "-language", "urls"])) == [
        *(name for name in auto if name not in ("language", "word_alignment")),
        "urls",
        "word_alignment",
    ]
    assert chosen_filters(["copies:5", "auto"])["copies"] == 5.0
    assert chosen_filters([]) == {}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["lenght_ratio"], "did you mean `length_ratio`"),
        (["auto", "-numbers"], "numbers is not among the filters"),
        (["empty:3"], "empty has no threshold"),
        (["length_ratio:x"], "the threshold is no number"),
        (["length_ratio:0"], "must be at least 1"),
        (["numbers:2"], "and at most 1"),
    ],
)
def test_entries_that_name_no_filter_or_no_threshold_are_refused(entries: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen_filters(entries)


def test_a_filter_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="a filter is a subclass of Filter"):
        FILTERS.register("mine")(PairTexts)
