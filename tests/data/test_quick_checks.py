"""What `tfm prepare` and `tfm train` say of training text in which many pairs are no translations of each other."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.data.checks.lengths import alignment_slips
from transformer_cli.data.checks.profiles import Profiles, cross_scores
from transformer_cli.data.checks.quick import TrainingPairs
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import prepare
from transformer_cli.data.readers.builtin import read_builtin

N = 4000


@cache
def sound() -> tuple[list[str], list[str]]:
    pairs = list(dict.fromkeys(read_builtin("demo_en_fr", "train")))[:N]
    assert len(pairs) == N
    return [source for source, _ in pairs], [target for _, target in pairs]


def faults(sources: list[str], targets: list[str], **changes: Any) -> list[str]:
    counted = TrainingPairs()
    for source, target in zip(sources, targets, strict=True):
        counted.count(source, target)
    config = DataConfig(**{"source_lang": "en", "target_lang": "fr", **changes})
    return list(counted.faults(ParallelText(sources[::2], targets[::2]), config))


def drawn(share: float) -> list[int]:
    return random.Random(1).sample(range(N), int(share * N))


def test_sound_text_is_no_fault() -> None:
    sources, targets = sound()
    assert faults(sources, targets) == []
    assert faults(targets, sources) == []
    for n in (0, 1, 5, 250):
        assert faults(sources[:n], targets[:n]) == []


@pytest.mark.parametrize(("share", "is_told"), [(0.04, False), (0.06, True), (0.5, True)])
def test_copied_pairs_are_counted(share: float, is_told: bool) -> None:
    sources, targets = list(sound()[0]), sound()[1]
    for i in drawn(share):
        sources[i] = targets[i]
    found = [one for one in faults(sources, targets) if "are equal in" in one]
    assert len(found) == is_told
    assert not is_told or f"({int(share * N):,} of 4,000); is one file named twice?" in found[0]


@pytest.mark.parametrize(("share", "is_told"), [(0.003, False), (0.03, True), (0.3, True)])
def test_exchanged_pairs_are_counted(share: float, is_told: bool) -> None:
    sources, targets = list(sound()[0]), list(sound()[1])
    for i in drawn(share):
        sources[i], targets[i] = targets[i], sources[i]
    found = faults(sources, targets)
    assert len(found) == is_told
    if is_told:
        n = int(found[0].split()[1].replace(",", ""))
        assert abs(n - share * N / 2) < 0.2 * share * N  # of the half that is sampled
        assert "of 2,000 sampled pairs have their sides exchanged" in found[0]


@pytest.mark.parametrize("lag", [1, -2])
def test_shifted_lines_are_counted_with_the_first(lag: int) -> None:
    sources, targets = list(sound()[0]), list(sound()[1])
    targets[2000:] = [*targets[2000 - lag :], *targets[:99]][: N - 2000]
    [found] = faults(sources, targets)
    assert found.startswith(
        "data.train: the sides of about 2,000 of 4,000 pairs are not aligned, first near pair 2,001"
    )
    assert f"targets are {abs(lag)} line{'s late' if lag > 1 else ' late' if lag == 1 else 's early'}" in found
    assert faults(sources, targets, truncate_source=True) == []  # of summaries


def test_lines_that_are_not_translated_are_counted() -> None:
    sources, targets = sound()[0], list(sound()[1])
    for i in drawn(0.1):
        targets[i] = sources[i - 7]
    [found] = faults(sources, targets)
    assert "sampled target lines are in the source language (" in found


def test_one_language_on_both_sides_is_told_but_where_it_is_meant() -> None:
    sources, _ = sound()
    others = [*sources[7:], *sources[:7]]
    assert any("sides are classified as two languages" in one for one in faults(sources, others))
    for changes in ({"target_lang": "en"}, {"tags": ["<2fr>"]}):
        assert not any("languages" in one for one in faults(sources, others, **changes))


def test_a_preparation_says_it_each_time_and_drops_nothing(tmp_path: Path) -> None:
    sources, targets = (side[:900] for side in sound())
    targets = [*targets[:200], *targets[199:-1]]
    for name, lines in (("a.en", sources), ("a.fr", targets)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    config = DataConfig(
        source_lang="en",
        target_lang="fr",
        train=str(tmp_path / "a"),
        cache=str(tmp_path / "cache"),
        tokenizer=TokenizerConfig(vocab_size=100),
    )
    for _ in ("prepared", "opened"):
        prepared = prepare(config)
        assert ["1 line late" in one for one in prepared.warnings] == [True]
    assert prepared.report.n_kept == prepared.report.n_read


# ---- Their parts


def test_profiles_tell_languages_apart_that_they_have_not_seen() -> None:
    english, french = sound()
    profiles = Profiles(english[:1000], french[:1000])
    english, french = english[1000:], french[1000:]
    assert (profiles.scores(english) > 0).all()
    assert (profiles.scores(french) < 0).all()
    assert profiles.scores(["", " "]).tolist() == [0, 0]


def test_a_line_is_never_scored_by_a_profile_that_has_seen_it() -> None:
    # No trigram of a line is in any other, so its own half alone could tell where it belongs.
    sources, targets = ["aaaa", "bbbb", "cccc", "dddd"], ["eeee", "ffff", "gggg", "hhhh"]
    for scores in cross_scores(sources, targets):
        np.testing.assert_allclose(scores, 0, atol=1e-6)


@given(st.integers(1, 3), st.sampled_from([-1, 1]), st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_a_slip_of_some_lines_is_found_with_its_place_and_direction(lag: int, sign: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    source = draw.integers(10, 200, 3000)
    target = (source * draw.normal(1.1, 0.1, 3000)).astype(int)
    assert alignment_slips(source, target) == []
    slipped = np.concatenate([target[:1500], np.roll(target[1500:], sign * lag)])
    assert alignment_slips(source, slipped) == [(1500, sign * lag), (2000, sign * lag), (2500, sign * lag)]


def test_sides_that_have_nothing_to_do_with_each_other_are_found() -> None:
    draw = np.random.default_rng(1)
    source, target = draw.integers(10, 200, 1000), draw.integers(10, 200, 1000)
    assert alignment_slips(source, target) == [(0, 0), (500, 0)]


def test_lines_of_one_length_are_not_called_misaligned() -> None:
    lengths = np.full(1000, 60)
    assert alignment_slips(lengths, lengths + 5) == []
