"""Ranks that hold a part of the model each: the losses of one rank, and checkpoints as any others."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.each import each
from tests.toy.run import CPU, MODEL, config, tokenizers
from tests.training.test_ranks import codes, scenarios, the_line
from transformer_cli.config.train import Sharding
from transformer_cli.errors import ConfigError
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.state import check_components, make_trainer


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return scenarios("shards", tmp_path_factory.mktemp("shards"))


def test_shards_need_several_ranks() -> None:
    with pytest.raises(ConfigError, match=r"^train\.sharding=full: needs several ranks\. Start them with torchrun"):
        make_trainer(config(sharding=Sharding.full), tokenizers(), CPU, Ranks(StopRequest()))


@each(
    "what, settings",
    [
        (r"train\.ema=0\.99", {"ema": 0.99}),
        (r"model\.layer_drop=0\.2", {"model": replace(MODEL, layer_drop=0.2)}),
        (r"train\.max_tokens_per_microbatch=auto", {"max_tokens_per_microbatch": "auto"}),
    ],
)
def test_what_needs_the_whole_model_is_refused_with_shards(what: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{what}: needs the whole model, which train.sharding=full divides. Set "):
        config(sharding=Sharding.full, **settings)


def test_an_optimizer_that_needs_the_whole_model_is_refused_with_shards() -> None:
    with pytest.raises(
        ConfigError, match=r"^optimizer=muon: needs the whole model, which train\.sharding=full divides"
    ):
        check_components(config(sharding=Sharding.full, optimizer="muon"), CPU)
    check_components(config(sharding=Sharding.full, optimizer="adamw"), CPU)


@pytest.mark.slow
@pytest.mark.parametrize("activation_checkpointing", [False, True])
def test_shards_learn_what_one_rank_learns(outcome: dict[str, Any], activation_checkpointing: bool) -> None:
    sharded, alone = outcome[f"sharded, activation_checkpointing={activation_checkpointing}"], outcome["1 ranks"]
    assert codes(sharded) == [0, 0]
    assert sharded["losses"] == pytest.approx(alone["losses"], rel=1e-5)
    assert sharded["saved"] == alone["saved"]


@pytest.mark.slow
def test_no_rank_holds_whole_gradients_until_the_last_pass(outcome: dict[str, Any]) -> None:
    """Each pass leaves the rank's part, where torch would otherwise keep the whole gradient aside."""
    ranks = outcome["sharded, activation_checkpointing=False"]["ranks"]
    assert [rank["reduced"] for rank in ranks] == [True, True]
    assert [rank["has_buckets"] for rank in ranks] == [False, False]  # nor an evaluation, which drops the last one


@pytest.mark.slow
def test_the_gradient_of_all_shards_together_is_clipped(outcome: dict[str, Any]) -> None:
    assert outcome["sharded and clipped"]["losses"] == pytest.approx(outcome["clipped"]["losses"], rel=1e-5)
    assert outcome["clipped"]["losses"] != pytest.approx(outcome["1 ranks"]["losses"], rel=1e-5)


@pytest.mark.slow
def test_shards_are_taught_what_one_rank_is(outcome: dict[str, Any]) -> None:
    assert outcome["sharded and guided"]["losses"] == pytest.approx(outcome["guided"]["losses"], rel=1e-5)
    assert outcome["guided"]["losses"] != pytest.approx(outcome["1 ranks"]["losses"], rel=1e-5)
    assert outcome["sharded, full context"]["losses"] == pytest.approx(outcome["full context"]["losses"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sharded to whole", "whole to sharded", "2 shards to 3"])
def test_a_checkpoint_of_shards_is_as_any_other(outcome: dict[str, Any], name: str) -> None:
    first, second = outcome[name]["first"], outcome[name]["second"]
    assert set(codes(first)) == {143}
    assert first["saved"][-1] == "step-00000005"
    assert set(codes(second)) == {0}
    assert second["losses"] == pytest.approx(outcome["1 ranks"]["losses"], rel=1e-5)


@pytest.mark.slow
def test_a_lost_shard_is_named(outcome: dict[str, Any]) -> None:
    lost = outcome["lost shard"]
    assert codes(lost) == [5, None, 5]
    assert re.match(r"rank 1 \(process \d+ on \S+\) does not answer, at step 5\. ", the_line(lost))


@pytest.mark.slow
def test_shards_without_memory_end_all_ranks_and_name_the_key(outcome: dict[str, Any]) -> None:
    assert codes(outcome["small shard"]) == [5, 5]
    assert re.fullmatch(
        r"step 5: out of memory with a batch of 1 pairs \([\d,]+ tokens\), which is not split with"
        r" train\.sharding=full\. Lower train\.max_tokens_per_microbatch, or set train\.activation_checkpointing=true",
        the_line(outcome["small shard"]),
    )
