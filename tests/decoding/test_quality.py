"""Suspicious translations: loops and copies, and nothing of what people wrote."""

import gzip
import random
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from tests.support.each import each
from transformer_cli.decoding.quality import copied, repeats_itself


@each(
    "text, expected",
    [
        ("very very very good", False),
        ("very very very very good", True),
        ("a man in a man in a man", False),
        ("a man in a man in a man in it", True),
        ("ein Mann, ein Mann, Ein Mann.", True),
        ("no way, no way out", False),
        ("3 000 000 000 000 000 Pesos", False),
        ("- - - - - - - -", False),
        ("ein Schlittenlittenlittenlitten fährt", True),
        ("hm hm hm", False),
        ("मेरे दादा दादी घर आए।", False),  # letters with their vowel signs
        ("घर घर घर घर आए", True),
        ("", False),
    ],
)
def test_a_loop_is_words_said_three_times_in_a_row(text: str, expected: bool) -> None:
    assert repeats_itself(text, "") is expected


def test_what_its_source_repeats_a_translation_may_repeat() -> None:
    assert not repeats_itself("ha ha ha ha ha", "hi hi hi hi hi")


@each(
    "source, text, expected",
    [
        ("A man in a hat sleeps.", "A man in a hat sleeps.", True),
        ("A man in a hat sleeps.", "a man in a hat Sleeps.", True),
        ("A man in a hat sleeps.", "A Mann in a hat sleeps.", True),
        ("A man in a hat sleeps.", "Ein Mann in a hat sleeps.", False),
        ("Barack Hussein Obama", "Barack Hussein Obama", False),
        ("A man in a hat sleeps.", "A man.", False),
        ("", "", False),
    ],
)
def test_a_copy_has_four_words_in_five_of_its_source(source: str, text: str, expected: bool) -> None:
    assert copied(text, source) is expected


def any_loop(words: list[str]) -> bool:
    """Whether a run of any length occurs three times in a row, or a word four times: every place is looked at."""
    spans = [(begin, n) for n in range(1, len(words) // 3 + 1) for begin in range(len(words))]
    return any(
        words[begin : begin + n] * times == words[begin : begin + times * n]
        for begin, n in spans
        for times in (4 if n == 1 else 3,)
    )


def test_bounds_leave_lines_of_normal_length_as_they_were() -> None:
    generator = random.Random(1)
    seen = set()
    for _ in range(300):
        words = [generator.choice("abcdefgh") for _ in range(generator.randrange(60))]
        loop = generator.choices("abcdefgh", k=generator.randrange(1, 20))
        words += loop * generator.randrange(1, 5)
        text = " ".join(words)
        assert repeats_itself(text, "") is any_loop(words)

        kept = [word if generator.random() < 0.8 else "x" for word in words]
        whole = SequenceMatcher(None, words, kept, autojunk=False).ratio()
        is_copy = copied(" ".join(kept), text)
        assert is_copy is (len(words) >= 4 and whole >= 0.8)
        seen.add((any_loop(words), is_copy))
    assert len(seen) == 4  # each answer was asked for

    longest = [f"{a}{b}" for a in "abcdefghijklmnopqrst" for b in "abcdefghij"]  # 200 words, the longest loop
    assert repeats_itself(" ".join(longest * 3), "")
    assert not repeats_itself(" ".join(longest * 2), "")


def test_a_line_of_very_many_words_ends() -> None:
    """It takes about a second; a comparison of every pair of words would take hours."""
    generator = random.Random(1)
    words = [generator.choice("abcdefghij") + generator.choice("klmnopqrst") for _ in range(50_000)]
    text = " ".join(words)
    shuffled = " ".join(sorted(words, key=lambda _: generator.random()))
    assert copied(text, text)
    assert not copied(shuffled, text)
    assert not copied(text[: len(text) // 50], text)  # the beginning alone is no copy
    assert not repeats_itself(text, "")
    assert repeats_itself(f"{text} no way out no way out no way out", "")  # at the end too


def written_by_people(shared_data: Path) -> Iterator[tuple[str, str, str]]:
    """Name of a set, source and reference of each pair."""
    multi30k, wmt = shared_data / "multi30k", shared_data / "wmt14_en_de" / "newstest2013"
    for name, source, target in (
        ("newstest2013", wmt.with_suffix(".en"), wmt.with_suffix(".de")),
        *(
            (
                f"Multi30k {name.split('.')[0]} {language}",
                multi30k / name.format("en"),
                multi30k / name.format(language),
            )
            for name in ("test_2016_flickr.{}", "val.{}", "train.{}.gz")
            for language in ("de", "fr")
        ),
    ):
        texts = [(gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes()) for p in (source, target)]
        yield from ((name, *pair) for pair in zip(*(text.decode().split("\n")[:-1] for text in texts), strict=True))


@pytest.mark.slow
def test_nothing_that_people_wrote_is_suspicious(shared_data: Path, figures: Callable[[str, str], None]) -> None:
    pairs = list(written_by_people(shared_data))
    assert len(pairs) == 3000 + 2 * (1000 + 1014 + 29000)
    flagged = [pair for pair in pairs if repeats_itself(pair[2], pair[1]) or copied(pair[2], pair[1])]
    figures("false alarms", f"{len(flagged)} of {len(pairs):,} reference translations repeat themselves or copy")
    assert flagged == []
