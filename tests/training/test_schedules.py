"""Learning rates at named points, computed by hand."""

import math

import pytest
import torch

from tests.support.each import each
from transformer_cli.config.train import SCHEDULE_HEIGHT, ScheduleConfig
from transformer_cli.errors import ConfigError
from transformer_cli.training.schedules import SCHEDULES, Schedule, build_schedule, ends_at_max_steps


def noam(*, factor: float = 1.0, d_model: int = 512, warmup_steps: int = 4000) -> Schedule:
    config = ScheduleConfig(name="noam", factor=factor, warmup_steps=warmup_steps)
    return build_schedule(config, d_model=d_model, max_steps=100_000)


def peaked(name: str, *, lr: float = 1.0, warmup_steps: int = 100, max_steps: int = 1100) -> Schedule:
    decay = 0.4 if name == "wsd" else None
    config = ScheduleConfig(name=name, lr=lr, warmup_steps=warmup_steps, decay=decay)
    return build_schedule(config, d_model=512, max_steps=max_steps)


@each(
    "step, rate",
    [
        (1, 1 / math.sqrt(512) / math.sqrt(4000) / 4000),  # 1.75e-7
        (2000, 1 / math.sqrt(512) / math.sqrt(4000) / 2),
        (4000, 1 / math.sqrt(512) / math.sqrt(4000)),  # 6.99e-4, the peak
        (4001, 1 / math.sqrt(512) / math.sqrt(4001)),
        (16_000, 1 / math.sqrt(512) / math.sqrt(4000) / 2),
        (100_000, 1 / math.sqrt(512) / math.sqrt(4000) / 5),
    ],
)
def test_noam_is_equation_3_of_the_paper(step: int, rate: float) -> None:
    assert noam()(step) == pytest.approx(rate)


def test_the_papers_peak_rate_is_seven_ten_thousandths() -> None:
    assert noam()(4000) == pytest.approx(6.99e-4, rel=1e-3)
    assert max(range(1, 10_000), key=noam()) == 4000


def test_factor_and_width_scale_noam() -> None:
    assert noam(factor=2)(7) == pytest.approx(2 * noam()(7))
    assert noam(d_model=128)(7) == pytest.approx(2 * noam()(7))


@each("name", ["inverse_sqrt", "cosine", "linear", "wsd", "constant"])
def test_warm_up_rises_in_a_straight_line_to_the_peak(name: str) -> None:
    schedule = peaked(name, lr=0.5)
    assert [schedule(1), schedule(50), schedule(100)] == pytest.approx([0.005, 0.25, 0.5])
    assert max(map(schedule, range(1, 1101))) == 0.5


@each(
    "name, after_a_quarter, half_way, at_the_end",
    [
        ("constant", 1, 1, 1),
        ("linear", 3 / 4, 1 / 2, 1 / 1000),
        ("wsd", 1, 1, 1 / 440.6),
        ("cosine", (1 + math.sqrt(1 / 2)) / 2, 1 / 2, (1 - math.cos(math.pi / 1000)) / 2),
        ("inverse_sqrt", math.sqrt(100 / 350), math.sqrt(100 / 600), math.sqrt(100 / 1099)),
    ],
)
def test_decay_by_hand(name: str, after_a_quarter: float, half_way: float, at_the_end: float) -> None:
    """The warm-up leaves 999 of 1099 updates: the thousandth would have the rate zero."""
    schedule = peaked(name, max_steps=1099)
    expected = [after_a_quarter, half_way, at_the_end]
    assert [schedule(350), schedule(600), schedule(1099)] == pytest.approx(expected, rel=1e-9)


@each(
    "step, rate",
    [(50, 0.25), (100, 0.5), (660, 0.5), (661, 0.5 * 440 / 441), (880, 0.5 * 221 / 441), (1100, 0.5 / 441)],
)
def test_wsd_falls_in_a_straight_line_over_its_last_part(step: int, rate: float) -> None:
    assert peaked("wsd", lr=0.5)(step) == pytest.approx(rate)  # 0.4 of 1100 steps: the 440 after 660


@each("name", ["cosine", "linear", "wsd"])
@each("max_steps", [1, 2, 5, 1100])
def test_the_last_update_has_a_rate_and_the_one_after_it_has_none(name: str, max_steps: int) -> None:
    schedule = peaked(name, warmup_steps=1, max_steps=max_steps)
    assert all(schedule(n) > 0 for n in range(1, max_steps + 1))
    assert schedule(max_steps + 1) == pytest.approx(0 if max_steps > 1 or name == "wsd" else schedule(2), abs=1e-9)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_the_decay_is_that_of_hugging_face(name: str) -> None:
    """Theirs counts from 0: step s is our update s + 1."""
    transformers = pytest.importorskip("transformers")
    model = torch.nn.Linear(1, 1)
    theirs = {"linear": "get_linear_schedule_with_warmup", "cosine": "get_cosine_schedule_with_warmup"}[name]
    scheduler = getattr(transformers, theirs)(torch.optim.SGD(model.parameters(), lr=1.0), 9, 60)
    rate = scheduler.lr_lambdas[0]
    ours = peaked(name, warmup_steps=10, max_steps=60)
    assert [ours(n) for n in range(10, 61)] == pytest.approx([rate(n - 1) for n in range(10, 61)])
    assert rate(59) > 0


def test_a_longer_wsd_run_has_the_same_rates_until_the_shorter_one_decays() -> None:
    shorter, longer = peaked("wsd"), peaked("wsd", max_steps=2200)
    rates = [(shorter(n), longer(n)) for n in range(1, 1101)]
    assert [n for n, (one, other) in enumerate(rates, start=1) if one != other] == list(range(661, 1101))


@pytest.mark.parametrize(("name", "decay"), [("wsd", None), ("linear", 0.1)])
def test_only_wsd_takes_the_length_of_its_decay(name: str, decay: float | None) -> None:
    what = {
        "wsd": "schedule.decay=None: schedule.name=wsd takes a part of all steps. Set schedule.decay=0.1",
        "linear": "schedule.decay=0.1: schedule.name=linear has none. Leave it out",
    }
    with pytest.raises(ConfigError) as refused:
        ScheduleConfig(name=name, lr=1.0, decay=decay)
    assert str(refused.value) == what[name]


def test_a_run_may_not_change_the_end_that_its_rate_leads_to() -> None:
    for name in set(SCHEDULE_HEIGHT) - {"noam"}:
        depends = peaked(name)(1000) != peaked(name, max_steps=9000)(1000)
        assert ends_at_max_steps(name) == depends, name
    assert not ends_at_max_steps("noam")


def test_inverse_sqrt_is_noam_named_by_its_peak() -> None:
    by_peak = peaked("inverse_sqrt", lr=noam(warmup_steps=100)(100))
    assert [by_peak(n) for n in (1, 99, 100, 101, 5000)] == pytest.approx(
        [noam(warmup_steps=100)(n) for n in (1, 99, 100, 101, 5000)]
    )


@each("name", SCHEDULES.names())
def test_a_rate_is_never_negative_even_past_the_end(name: str) -> None:
    schedule = noam() if name == "noam" else peaked(name, warmup_steps=50, max_steps=20)
    assert all(schedule(n) >= 0 for n in range(1, 200))


def test_a_misspelt_schedule_names_the_right_one() -> None:
    with pytest.raises(ConfigError, match="no schedule called `cosin`; did you mean `cosine`"):
        peaked("cosin")
