"""Near duplicates against the Jaccard similarity of the pairs, which is computed here set by set."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tests.data.cleaning.noise import made_up_pairs, sound_pairs, texts
from tests.data.cleaning.test_clean_corpora import config, written
from transformer_cli.data.cleaning import clean_corpora
from transformer_cli.data.cleaning.base import Languages
from transformer_cli.data.cleaning.filters.near_duplicates import NearDuplicates, signatures
from transformer_cli.data.readers.base import Pair
from transformer_cli.data.splits import load_splits

SENTENCE = (
    "The committee of the town met on Monday evening and spoke for two hours about the new bridge over the river.",
    "Le comité de la ville s'est réuni lundi soir et a parlé pendant deux heures du nouveau pont sur la rivière.",
)
NEARLY = (SENTENCE[0].replace("Monday", "Tuesday"), SENTENCE[1].replace("lundi", "mardi"))
CAPITALS = (SENTENCE[0].upper(), f"  {SENTENCE[1]} ")
OTHER_TARGET = (SENTENCE[0], "Lundi, les élus ont passé deux heures à discuter de l'ouvrage qui franchira le fleuve.")


def jaccard(one: Pair, other: Pair) -> float:
    sets = [{text[i : i + 4] for i in range(len(text) - 3)} for text in map("\n".join, (one, other))]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def kept(tmp_path: Path, pairs: list[Pair], threshold: float = 0.8) -> list[bool]:
    one = NearDuplicates(Languages("en", "fr"), threshold)
    one.add(texts(pairs), tmp_path)
    return [not dropped for dropped in one.dropped(tmp_path).tolist()]


def test_all_but_the_first_of_pairs_that_nearly_repeat_each_other_are_dropped(tmp_path: Path) -> None:
    pairs = [("Hello.", "Bonjour."), SENTENCE, ("", ""), NEARLY, OTHER_TARGET, CAPITALS, SENTENCE]
    assert jaccard(SENTENCE, NEARLY) > 0.85
    assert jaccard(SENTENCE, OTHER_TARGET) < 0.6
    assert kept(tmp_path, pairs) == [True, True, True, False, True, False, False]


def test_the_share_of_equal_values_is_the_similarity() -> None:
    """The standard deviation is at most 1/16 with 64 values; four of these are allowed for each of 780 pairs."""
    words = [" ".join(["one two three four five six seven eight nine ten"[i:], "x" * i]) for i in range(0, 40)]
    pairs = [(line.strip(), line[::-1].strip()) for line in words]
    values = signatures(texts(pairs))
    errors = [
        float(np.mean(values[i] == values[j])) - jaccard(pairs[i], pairs[j]) for i, j in combinations(range(40), 2)
    ]
    assert max(map(abs, errors)) < 0.25
    assert abs(sum(errors) / len(errors)) < 0.03


@pytest.mark.parametrize("part", [1, 7, 1000])
def test_signatures_do_not_depend_on_the_pairs_around(part: int) -> None:
    pairs = [*sound_pairs(60), ("", ""), ("é", "中文"), *made_up_pairs(30)]
    parts = [signatures(texts(pairs[first : first + part])) for first in range(0, len(pairs), part)]
    assert np.array_equal(np.concatenate(parts), signatures(texts(pairs)))


def test_different_sentences_that_are_alike_in_part_all_stay(tmp_path: Path) -> None:
    pairs = list(dict.fromkeys(made_up_pairs(2000)))
    assert all(kept(tmp_path, pairs))


def test_repetitions_across_corpora_are_dropped_and_shown_with_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clean_corpora, "PART", 50)
    copy = ("untranslated words of a long sentence", "untranslated words of a long sentence")
    first = [copy, *made_up_pairs(120), SENTENCE]
    second = [NEARLY, copy, *made_up_pairs(150)[120:], CAPITALS]
    names = [*written(tmp_path, "a", first), *written(tmp_path, "b", second)]
    splits = load_splits(config(tmp_path, names, clean=["copies", "near_duplicates"], dev=names, test=names), tmp_path)
    expected = [*made_up_pairs(120), SENTENCE, *made_up_pairs(150)[120:]]
    assert list(splits.train.each()) == expected
    report = splits.filtering
    assert report is not None
    assert (report.n_read, report.n_kept) == (len(first) + len(second), len(expected))
    found = report.filters[-1]
    assert (found.name, found.n_dropped) == ("near_duplicates", 2)
    assert [(one["pair"], one["source"]) for one in found.dropped] == [(1, NEARLY[0]), (33, CAPITALS[0])]
    assert splits.train.sizes == [121, 30]
