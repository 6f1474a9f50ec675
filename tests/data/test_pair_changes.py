"""Changes of the training pairs that plugins register: which pairs a run trains on, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.toy import run as toy_run
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.feed import Feed
from transformer_cli.data.pair_changes import PAIR_CHANGES
from transformer_cli.errors import ConfigError
from transformer_cli.training.state import check_components


def config(*changes: str) -> TrainConfig:
    made = toy_run.config()
    return replace(made, data=replace(made.data, changes=list(changes)))


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[..., Any]], None]:
    monkeypatch.setattr(PAIR_CHANGES, "_entries", dict(PAIR_CHANGES._entries))

    def add(name: str, change: Callable[..., Any]) -> None:
        change.__module__ = "mine"
        PAIR_CHANGES.register(name)(lambda config, prepared: change)

    return add


def exchanged(pairs: EncodedCorpus, indices: Any, *, epoch: int) -> EncodedCorpus:
    sides = (pairs.source_ids, pairs.source_offsets, pairs.source_lengths)
    return EncodedCorpus(pairs.target_ids, pairs.target_offsets, pairs.target_lengths, *sides)


def test_changes_are_made_in_the_order_that_the_config_has(register: Callable[..., None]) -> None:
    seen: list[tuple[str, int, int]] = []

    def noted(name: str) -> Callable[..., EncodedCorpus]:
        def change(pairs: EncodedCorpus, indices: Any, *, epoch: int) -> EncodedCorpus:
            seen.append((name, len(indices), epoch))
            return exchanged(pairs, indices, epoch=epoch)

        return change

    for name in ("one", "two"):
        register(name, noted(name))
    plain = Feed(config(), toy_run.prepared()).pairs(1)
    once = Feed(config("one"), toy_run.prepared()).pairs(1)
    assert once.source_ids.tolist() == plain.target_ids.tolist()
    assert once.target_ids.tolist() == plain.source_ids.tolist()
    feed, seen[:] = Feed(config("two", "one"), toy_run.prepared()), []
    assert feed.pairs(1).source_ids.tolist() == plain.source_ids.tolist()
    feed.pairs(1 + feed.plan.updates_per_epoch)
    assert [(name, epoch) for name, _, epoch in seen] == [("two", 0), ("one", 0), ("two", 1), ("one", 1)]
    assert {n for _, n, epoch in seen if epoch == 0} == {len(plain)}


def test_a_change_that_loses_pairs_or_makes_long_ones_is_refused(register: Callable[..., None]) -> None:
    longest = toy_run.config().data.max_length

    def fewer(pairs: EncodedCorpus, indices: Any, *, epoch: int) -> EncodedCorpus:
        return EncodedCorpus.of([[5, 3]], [[5, 3]])

    def longer(pairs: EncodedCorpus, indices: Any, *, epoch: int) -> EncodedCorpus:
        return EncodedCorpus.of([[5] * (longest + 1)] * len(pairs), [[5, 3]] * len(pairs))

    register("fewer", fewer)
    register("longer", longer)
    n = len(Feed(config(), toy_run.prepared()).pairs(1))
    for name, fault in (
        ("fewer", f"returned 1 pairs for {n}"),
        ("longer", f"returned a sentence of {longest + 1} tokens, over data.max_length={longest}"),
    ):
        with pytest.raises(ConfigError, match=rf"^plugin mine .*: {fault}\. Correct it$"):
            Feed(config(name), toy_run.prepared()).pairs(1)


def test_a_change_that_nothing_registers_is_refused_before_the_text_is_read() -> None:
    with pytest.raises(ConfigError, match="no change of training pairs called `copid`"):
        check_components(config("copid"), toy_run.CPU)


def test_augmentation_is_chosen_by_its_shares_alone() -> None:
    with pytest.raises(ConfigError, match=r"data\.changes: augment is chosen by the shares in data\.augment"):
        check_components(config("augment"), toy_run.CPU)
