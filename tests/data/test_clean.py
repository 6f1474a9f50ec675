"""Cleaning of the training pairs: each reason for which a pair is dropped, and its count."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_cli.config.tasks import TASKS
from transformer_cli.data import repetitions
from transformer_cli.data.clean import CleaningReport, clean, keep_mask
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.normalization import canonical, canonical_fields
from transformer_cli.data.splits import hold_out
from transformer_cli.errors import DataError


def text(*pairs: tuple[str, str], n_bad: int = 0) -> ParallelText:
    return ParallelText([source for source, _ in pairs], [target for _, target in pairs], n_bad)


def test_C10_pairs_blank_on_a_side_are_dropped_and_counted() -> None:
    blanks = [("", "x"), ("x", " "), ("\t", "\u00a0"), ("\u3000", "x")]
    kept, report = clean(text(("a", "b"), *blanks, ("c", "d")), drop_duplicates=True)
    assert list(kept.each()) == [("a", "b"), ("c", "d")]
    assert report.lines() == ["2 of 6 training pairs kept", "4 dropped: blank on one side or both"]


def test_repeated_pairs_are_dropped_but_not_other_translations_of_a_sentence() -> None:
    pairs = text(("a", "b"), ("a", "c"), ("a", "b"), ("d", "b"), ("a", "b"))
    kept, report = clean(pairs, drop_duplicates=True)
    assert list(kept.each()) == [("a", "b"), ("a", "c"), ("d", "b")]
    assert (report.n_duplicate, report.n_kept) == (2, 3)
    assert len(clean(pairs, drop_duplicates=False)[0]) == 5


def test_pairs_that_differ_in_where_a_side_ends_are_different() -> None:
    kept, report = clean(
        text(("ab", "c"), ("a", "bc"), ("a b", "c"), ("a", "b c"), ("b", "a"), ("a", "b")), drop_duplicates=True
    )
    assert len(kept) == 6
    assert report.n_duplicate == 0


@given(st.lists(st.tuples(st.sampled_from("ab c"), st.sampled_from("xy z"))), st.integers(1, 5))
def test_what_is_kept_is_the_first_of_each_pair_however_they_are_parted(
    pairs: list[tuple[str, str]], at_a_time: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repetitions, "_HASHES_AT_A_TIME", at_a_time)
        kept, report = clean(text(*pairs), drop_duplicates=True)
    filled = [pair for pair in pairs if " " not in pair]
    assert list(kept.each()) == list(dict.fromkeys(filled))
    assert report.n_duplicate == len(filled) - len(set(filled))


SAME = [
    "un café à Nîmes",
    "un\u00a0café à Nîmes",
    " un  café à\tNîmes",
    "un cafe\u0301 a\u0300 Ni\u0302mes",
    "un ca\u00adfé à\u200b Nîmes\u200e",
]
OTHER = ["Un café à Nîmes", "un café à Nîmes.", "un cafe a Nimes", "un café à Nî mes"]


def test_the_same_sentence_is_one_however_it_is_spaced_or_composed() -> None:
    assert len({canonical(line) for line in SAME}) == 1
    assert len({canonical(line) for line in SAME + OTHER}) == 1 + len(OTHER)
    others = [(line, "a cafe\u0301  ") for line in OTHER]
    pairs = text(*((line, "a café") for line in SAME), *others, *others)
    kept, _ = clean(pairs, drop_duplicates=True)
    assert list(kept.each()) == [(SAME[0], "a café"), *others]
    kept, _ = clean(pairs, drop_duplicates=True, held_out=frozenset([canonical(SAME[-1])]))
    assert list(kept.each()) == others


def test_no_copy_of_a_held_out_sentence_stays_in_the_training_text() -> None:
    lines = [f"é {n} ça" for n in range(60)]
    copies = [line.replace(" ", "\u00a0") for line in lines]
    copies += [f"{unicodedata.normalize('NFD', line)}\u200b " for line in lines]
    pairs = text(*((line, "x") for line in [*lines, *copies]))
    held = hold_out(pairs, 9, 1)
    kept, _ = clean(pairs, drop_duplicates=True, held_out=held.sources)
    assert len(kept) == 60 - 9
    assert held.sources.isdisjoint(canonical(source) for source, _ in kept.each())


def test_two_texts_are_divided_where_they_are() -> None:
    pairs = text(("a b\tc", "x"), ("a\tb c", "x"), ("a\u00a0b\tc ", "x"))
    kept, _ = clean(pairs, drop_duplicates=True, key_of=canonical_fields)
    assert list(kept.each()) == [("a b\tc", "x"), ("a\tb c", "x")]


def test_format_characters_are_counted() -> None:
    pairs = text(("so\u00adup", "b"), ("c", "d\ufeff"), ("می\u200cخواهم", "d"), ("\u200b", "d"))
    _, report = clean(pairs, drop_duplicates=True)
    assert report.lines() == [
        "3 of 4 training pairs kept",
        "1 dropped: blank on one side or both",
        "2 kept without their format characters (soft hyphens, zero-width spaces, …)",
    ]


def test_pairs_of_held_out_sources_are_left_out_and_not_counted() -> None:
    pairs = text(("a", "x"), (" a ", "y"), ("a", ""), ("b", ""), ("c", "z"))
    kept, report = clean(pairs, drop_duplicates=True, held_out=frozenset("a"))
    assert list(kept.each()) == [("c", "z")]
    assert (report.n_read, report.n_blank, report.n_kept) == (2, 1, 1)


def test_C5_pairs_that_were_not_utf8_are_in_the_report() -> None:
    _, report = clean(text(("a", "b"), n_bad=3), drop_duplicates=True)
    assert report.lines() == [
        "1 of 4 training pairs kept",
        "3 dropped: with lines that cannot be read (data.on_bad=skip)",
    ]


def test_C7_pairs_with_control_characters_are_kept_and_counted() -> None:
    kept, report = clean(text(("a\x00", "b"), ("c", "d\x1b"), ("tab\t", "fine")), drop_duplicates=True)
    assert len(kept) == 3
    assert report.lines() == ["3 of 3 training pairs kept", "2 kept with control characters in them"]


def test_C11_long_and_uneven_pairs_are_dropped_and_counted() -> None:
    report = CleaningReport(n_read=7)
    sources = np.array([1, 5, 6, 2, 0, 1_000_000, 4])
    targets = np.array([1, 1, 5, 5, 3, 1_000_000, 1])
    mask = keep_mask(sources, targets, 5, 4.0, report=report)
    assert mask.tolist() == [True, False, False, True, False, False, True]
    assert report.lines() == [
        "3 of 7 training pairs kept",
        "1 dropped: blank on one side or both",
        "2 dropped: longer than data.max_length=5 tokens",
        "1 dropped: with a length ratio over data.max_ratio=4",
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))), st.integers(2, 20), st.floats(1, 5))
def test_the_mask_agrees_with_its_definition_pair_by_pair(
    pairs: list[tuple[int, int]], max_length: int, max_ratio: float
) -> None:
    lengths = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    report = CleaningReport(n_read=len(pairs))
    expected = [min(pair) >= 1 and max(pair) <= max_length and max(pair) <= max_ratio * min(pair) for pair in pairs]
    assert keep_mask(lengths[:, 0], lengths[:, 1], max_length, max_ratio, report=report).tolist() == expected
    assert report.n_kept == sum(expected)


def test_C12_when_nothing_is_left_the_filters_that_did_it_are_named() -> None:
    _, report = clean(text(("", "a"), ("b", "")), drop_duplicates=True)
    with pytest.raises(DataError, match=r"data\.train: none of 2 pairs is left: 2 blank on one side or both\. "):
        report.require_pairs(TASKS["translation"])
    report = CleaningReport(n_read=3)
    keep_mask(np.array([9, 9, 1]), np.array([9, 9, 5]), 8, 2.0, report=report)
    with pytest.raises(
        DataError, match=r"2 longer than data\.max_length=8 tokens, 1 with a length ratio over data\.max_ratio=2"
    ):
        report.require_pairs(TASKS["translation"])


def test_a_report_with_pairs_left_is_no_error() -> None:
    report = CleaningReport(n_read=2, n_blank=1)
    report.require_pairs(TASKS["translation"])
    assert report.n_kept == 1
