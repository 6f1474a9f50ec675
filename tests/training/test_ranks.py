"""Several processes that train one model: the same data, the same losses, and nothing lost when one of them goes."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT, slow
from tests.support.forked import Forked, run
from tests.toy.run import metrics, prepared, tokenizers
from transformer_cli.data.batching import Batch, micro_batches
from transformer_cli.errors import ConfigError, EnvironmentFault, LostRankError
from transformer_cli.training.ranks import Ranks, join_ranks
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.state import warn_of_uneven_shares

OutcomeOf = Callable[[str], dict[str, Any]]
STEPS = [str(step) for step in range(1, 13)]


@pytest.fixture(scope="module")
def outcome_of(tmp_path_factory: pytest.TempPathFactory) -> OutcomeOf:
    """What the scenarios of a group led to; each group is run once."""
    return cache(lambda group: scenarios(group, tmp_path_factory.mktemp("ranks")))


@pytest.fixture(scope="module")
def outcome(outcome_of: OutcomeOf) -> dict[str, Any]:
    return outcome_of("replicas")


@pytest.fixture(scope="module")
def more(outcome_of: OutcomeOf) -> dict[str, Any]:
    return outcome_of("more_replicas")


def scenarios(group: str, folder: Path) -> dict[str, Any]:
    ran = run([group, str(folder)], ROOT, program="from tests.training import rank_scenarios; rank_scenarios.main()")
    assert ran.code == 0, ran.err.decode()
    logged: dict[str, Any] = json.loads(ran.out.splitlines()[-1])
    return logged


def sentences(run: dict[str, Any], n_ranks: int) -> list[Any]:
    """The micro-batches of all ranks, in the order in which they take them in turn."""
    seen = [rank["seen"] for rank in run["ranks"]]
    assert len(seen) == n_ranks
    return sorted(batch for rank in seen for batch in rank)


def codes(run: dict[str, Any]) -> list[Any]:
    return [rank and rank["code"] for rank in run["ranks"]]


def the_line(run: dict[str, Any]) -> str:
    """The error that the one reporting rank prints."""
    (line,) = (rank["error"] for rank in run["ranks"] if rank and rank.get("is_reporting"))
    return str(line)


@pytest.mark.parametrize(("group", "n_ranks"), [("replicas", 2), slow("more_replicas", 4)])
def test_A18_any_number_of_ranks_learns_from_the_same_batches(outcome_of: OutcomeOf, group: str, n_ranks: int) -> None:
    outcome = outcome_of(group)
    alone, ranked = outcome["1 ranks"], outcome[f"{n_ranks} ranks"]
    assert codes(ranked) == [0] * n_ranks
    assert sentences(ranked, n_ranks) == sentences(alone, 1)
    assert all(rank["seen"] for rank in ranked["ranks"])
    # In an update every rank's batches come in the order that they have for one rank alone.
    for rank in ranked["ranks"]:
        in_order = iter(alone["ranks"][0]["seen"])
        assert all(batch in in_order for batch in rank["seen"])


@pytest.mark.parametrize(
    ("group", "kind", "n_ranks"),
    [
        ("replicas", "", 2),
        slow("more_replicas", "", 4),
        slow("regularized", "rdrop, ", 2),
        slow("regularized", "simcut, ", 2),
        slow("regularized", "guided, ", 2),
        slow("regularized", "full context, ", 2),
    ],
)
def test_A18_the_losses_are_those_of_one_rank_with_noise_of_any_kind(
    outcome_of: OutcomeOf, group: str, kind: str, n_ranks: int
) -> None:
    outcome = outcome_of(group)
    expected = outcome[f"{kind}1 ranks"]["losses"]
    assert list(expected) == STEPS
    assert outcome[f"{kind}{n_ranks} ranks"]["losses"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("group", "n_ranks"), [("replicas", 1), slow("more_replicas", 4)])
def test_A18_a_run_goes_on_with_another_number_of_ranks(outcome_of: OutcomeOf, group: str, n_ranks: int) -> None:
    outcome = outcome_of(group)
    run = outcome[f"moved to {n_ranks}"]["second"]
    assert codes(run) == [0] * n_ranks
    assert run["losses"] == pytest.approx(outcome["1 ranks"]["losses"], rel=1e-5)


@pytest.mark.parametrize(
    ("group", "names"), [("going_back", ["2 ranks"]), slow("more_going_back", ["shards", "resumed"])]
)
def test_all_ranks_go_back_before_a_loss_spike_and_skip_the_same_batches(
    outcome_of: OutcomeOf, group: str, names: list[str]
) -> None:
    outcome = outcome_of(group)
    expected = outcome["1 ranks"]["losses"]
    assert list(expected) == [str(step) for step in range(1, 25)]
    for name in names:
        assert codes(outcome[name]) == [0, 0]
        assert outcome[name]["losses"] == pytest.approx(expected, rel=1e-4), name
    assert outcome["rollbacks"] == [[[14, 19, 15, 5]]] * len(outcome["rollbacks"])


def test_A8_a_signal_to_one_rank_stops_all_at_the_same_step(outcome: dict[str, Any]) -> None:
    first = outcome["moved to 1"]["first"]
    assert codes(first) == [143, 143]
    assert first["saved"] == ["step-00000002", "step-00000004", "step-00000005"]
    assert "step 5 is the newest that is saved" in the_line(first)


@pytest.mark.parametrize(("group", "lost"), [slow("more_replicas", 0), ("replicas", 1)])
def test_A10_the_others_name_the_rank_that_was_killed_and_no_checkpoint_is_half(
    outcome_of: OutcomeOf, group: str, lost: int
) -> None:
    outcome = outcome_of(group)
    first, second = outcome[f"lost {lost}"]["first"], outcome[f"lost {lost}"]["second"]
    assert codes(first) == [None if rank == lost else 5 for rank in range(3)]
    assert re.match(rf"rank {lost} \(process \d+ on \S+\) does not answer, at step 5\. ", the_line(first))
    whole = [name for name in first["saved"] if not name.startswith(".tmp-")]  # rank 0 may have been killed in a save
    assert whole in (["step-00000002"], ["step-00000002", "step-00000004"])  # the fifth update was never made
    assert lost == 0 or whole == first["saved"] == ["step-00000002", "step-00000004"]
    assert codes(second) == [0, 0, 0]
    assert second["losses"] == pytest.approx(outcome["1 ranks"]["losses"], rel=1e-5)


@pytest.mark.slow
def test_all_ranks_lose_patience_at_the_same_step_also_after_a_stop(more: dict[str, Any]) -> None:
    assert codes(more["patience"]["first"]) == [143, 143]
    assert codes(more["patience"]["second"]) == [0, 0]
    assert list(more["patience"]["second"]["losses"])[-1] == "8"  # the second evaluation, worse than the first


def test_all_ranks_evaluate_first_where_earlier_dev_scores_do_not_compare(outcome: dict[str, Any]) -> None:
    anew = outcome["ranked anew"]
    assert codes(anew) == [0, 0]
    assert (anew["evaluated"], anew["best"] >= 12) == ([4, 8, 12, 14], True)
    assert list(anew["losses"]) == [str(step) for step in range(1, 15)]


def test_A11_a_rank_that_hangs_is_named_when_patience_ends(outcome: dict[str, Any]) -> None:
    hanging = outcome["hanging"]
    assert codes(hanging) == [5, None]
    assert re.match(r"rank 1 \(process \d+ on \S+\) has not reached step 5 for \d+ s\. ", the_line(hanging))


def test_a_fault_of_one_rank_ends_all_with_its_code_and_is_said_once(outcome: dict[str, Any]) -> None:
    assert codes(outcome["too small"]) == [5, 5]
    assert the_line(outcome["too small"]).startswith("step 5: out of memory with a single pair of")


def test_B9_one_rank_that_runs_out_of_memory_tries_again_while_the_others_wait(outcome: dict[str, Any]) -> None:
    tight, roomy = outcome["tight"], outcome["roomy"]
    assert codes(tight) == [0, 0]
    assert max(len(batch) for batch in tight["ranks"][1]["seen"][-4:]) == 1
    assert tight["losses"] == pytest.approx(roomy["losses"], rel=1e-5)


def test_B9_a_rank_without_memory_whose_gradient_is_already_being_added_up_lets_all_try_again(
    outcome: dict[str, Any],
) -> None:
    late, roomy = outcome["late"], outcome["roomy"]
    assert codes(late) == [0, 0]
    # Dropout is off in both: the same sentences in the same updates, however they are cut, teach the same.
    assert late["losses"] == pytest.approx(roomy["losses"], rel=1e-5)
    first, second = (rank["seen"] for rank in late["ranks"])
    assert repeated(first) == 1, "the first rank did not compute its share again, once"
    assert not repeated(second), "the second rank did not cut a batch in two"


def test_a_rank_that_has_no_batch_in_an_update_helps_the_others(outcome: dict[str, Any]) -> None:
    alone, ranked = outcome["1 ranks for a batch"], outcome["2 ranks for a batch"]
    assert [len(rank["seen"]) for rank in ranked["ranks"]] == [12, 0]
    assert ranked["losses"] == pytest.approx(alone["losses"], rel=1e-5)


@pytest.mark.parametrize(("n_ranks", "n_even"), [(1, None), (2, None), (4, None), (8, 8), (3, 6)])
def test_ranks_that_would_wait_for_others_are_told_how_to_cut_evenly(
    caplog: pytest.LogCaptureFixture, n_ranks: int, n_even: int | None
) -> None:
    def cut(max_tokens: int) -> list[Batch]:
        corpus = prepared(1000).train
        return micro_batches(corpus, np.arange(len(corpus)), tokenizers(), max_tokens=max_tokens)

    assert len(cut(1700)) == 4
    warn_of_uneven_shares(cut(1700), n_ranks, 1700)
    if n_even is None:
        assert not caplog.messages
    else:
        (advice,) = re.findall(
            r"some of which wait for others\. train\.max_tokens_per_microbatch=(\d+) makes", caplog.text
        )
        assert len(cut(int(advice))) == n_even


def repeated(seen: list[Any]) -> int:
    """Batches that come right after having come once."""
    return sum(seen[i : i + n] == seen[i + n : i + 2 * n] for n in range(1, 9) for i in range(len(seen) - 2 * n + 1))


@pytest.mark.slow
def test_two_ranks_have_the_loss_curve_of_one(more: dict[str, Any], figures: Callable[[str, str], None]) -> None:
    alone, ranked = (more[f"{n} ranks for long"]["losses"] for n in (1, 2))
    assert list(alone) == list(ranked) == [str(step) for step in range(1, 101)]
    differences = [abs(ranked[step] - alone[step]) / alone[step] for step in alone]
    figures("2 ranks against 1", f"the losses of 100 updates differ by at most {max(differences):.1e}")
    assert max(differences) <= 1e-5


@pytest.mark.nightly
def test_two_ranks_have_the_losses_of_one_but_for_rounding_on_the_built_in_model(
    tmp_path: Path, figures: Callable[[str, str], None]
) -> None:
    """Sums of gradients are rounded in another order, and what a rounding changes grows with every update."""
    settings = [
        "train.max_steps=40",
        "train.max_tokens_per_microbatch=1024",
        "train.log_every=1",
        "train.eval_every=40",
    ]
    tfm = [sys.executable, "-c", "from transformer_cli.cli import entry_point; entry_point()", "train", *settings]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--no-python"]
    losses: dict[str, list[float]] = {}
    for name, before, n_threads in (("one", [], "2"), ("two", torchrun, "1")):
        env = {**os.environ, "OMP_NUM_THREADS": n_threads, "PYTHONPATH": str(ROOT)}
        subprocess.run([*before, *tfm, f"name={name}"], cwd=tmp_path, env=env, capture_output=True, check=True)
        losses[name] = [entry["loss"] for entry in metrics(tmp_path / "runs" / name) if entry["kind"] == "train"]
    differences = [abs(two - one) / one for one, two in zip(losses["one"], losses["two"], strict=True)]
    assert len(differences) == 40
    figures("2 ranks against 1, built-in", f"the losses of 40 updates differ by at most {max(differences):.1e}")
    assert max(differences[:5]) <= 1e-6
    assert max(differences) <= 1e-3


@pytest.mark.parametrize(
    ("variables", "what"),
    [
        ({"RANK": "0"}, "MASTER_ADDR"),
        ({"RANK": "zero", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, "zero"),
        ({"RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "taken"}, "port|listen|invalid"),
    ],
)
def test_B16_wrong_variables_and_a_taken_port_are_one_line(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], what: str
) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for name, value in {"WORLD_SIZE": "2", **variables}.items():
            monkeypatch.setenv(name, port if value == "taken" else value)
        with (
            pytest.raises(EnvironmentFault, match=f"cannot meet the other ranks .*({what}).* with torchrun") as refused,
            join_ranks(StopRequest(), device_type="cpu", timeout_s=2),
        ):
            pass
    assert "\n" not in str(refused.value)
    assert os.environ["WORLD_SIZE"] == "2"


LATE = """
import sys, time
from transformer_cli.training.ranks import join_ranks
from transformer_cli.training.signals import StopRequest

with join_ranks(StopRequest(), device_type="cpu", timeout_s=60) as ranks:
    time.sleep(0 if ranks.is_first else 2)
    print(ranks.publish_and_wait("key", "text" if ranks.is_first else None))
"""


def test_the_rank_that_keeps_the_store_leaves_last() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in (0, 1):
        names = {"WORLD_SIZE": 2, "RANK": rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        env = {name: str(value) for name, value in names.items()}
        processes.append(Forked([], ROOT, env=env, program=LATE))
    assert [process.communicate()[0] for process in processes] == [b"text\n", b"text\n"]
    assert [process.returncode for process in processes] == [0, 0]


def test_ranks_with_different_configs_are_refused() -> None:
    from transformer_cli.training.run import _require_same

    class Second(Ranks):
        def publish_and_wait(self, key: str, text: str | None) -> str:
            return '{"seed": 1}'

    second = Second(StopRequest(), rank=1, world_size=2)
    with pytest.raises(ConfigError, match=r"rank 1: its config differ from those of rank 0\."):
        _require_same("config", '{"seed": 2}', second)


def test_ranks_that_choose_for_themselves_take_what_is_least(outcome: dict[str, Any]) -> None:
    assert codes(outcome["auto"]) == [0, 0]
    sizes = [sum(map(len, batch)) for rank in outcome["auto"]["ranks"] for batch in rank["seen"]]
    assert 8 < max(sizes) <= 12  # 12 on one rank, 20 on the other


class BrokenStore:
    """The store of a rank 0 that is gone."""

    def __init__(self) -> None:
        self.faults = iter([RuntimeError("Connection reset by peer\nat 7f"), AssertionError("asked again")])

    def check(self, keys: list[str]) -> bool:
        raise next(self.faults)

    def set(self, key: str, text: str) -> None:
        """A heartbeat."""


def test_a_rank_that_cannot_reach_the_first_says_so_and_asks_no_more() -> None:
    ranks = Ranks(StopRequest(), rank=1, world_size=2, store=BrokenStore(), timeout_s=5.0)  # type: ignore[arg-type]
    try:
        with pytest.raises(LostRankError, match=r"rank 1: cannot reach the others \(Connection reset by peer\)\. "):
            ranks._await("config", grace_s=1.0)
    finally:
        ranks.stop_heartbeat()
