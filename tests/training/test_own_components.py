"""An optimizer and a schedule that are registered from outside the package: they train, stop and resume bit-equal."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from tests.toy.run import CPU, assert_resumes, config, metrics, run, tokenizers
from transformer_cli.config.train import OptimizerConfig, ScheduleConfig, Sharding, TrainConfig
from transformer_cli.errors import ConfigError
from transformer_cli.models.runs import read_config
from transformer_cli.training.optimizers import OPTIMIZERS, OptimizerKind, build_optimizer
from transformer_cli.training.run_directory import open_run, write_config
from transformer_cli.training.schedules import SCHEDULES, Schedule, ScheduleKind, build_schedule
from transformer_cli.training.state import check_components
from transformer_cli.training.trainer import Trainer


class Lion(Optimizer):
    """Lion (Chen et al. 2023), whose momentum is damped by a count of its groups and a plain number of each tensor."""

    def __init__(self, parameters: Any, *, beta: float) -> None:
        super().__init__(parameters, {"lr": 0.0, "n_steps": 0})
        self.beta = beta

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["n_steps"] += 1
            beta = self.beta * (1 - 1 / (1 + group["n_steps"]))
            for parameter in group["params"]:
                state = self.state[parameter]
                momentum = state.setdefault("exp_avg", torch.zeros_like(parameter))
                state["scale"] = 0.9 * state.get("scale", 1.0) + 0.1 * float(parameter.grad.abs().mean())
                momentum.lerp_(parameter.grad / state["scale"], 1 - beta)
                parameter.sub_(momentum.sign(), alpha=group["lr"])


@dataclass
class LionOptions:
    beta: float = 0.9


@dataclass
class TriangleOptions:
    top: float = 0.5


def lion(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    return Lion(model.parameters(), beta=config.options["beta"])


def triangle(config: ScheduleConfig, d_model: int, max_steps: int) -> Schedule:
    """A schedule that rises to the peak at half the run, or at `options.top` of it, and falls again."""
    assert config.lr is not None
    peak, top = config.lr, config.options["top"] * max_steps
    return lambda n: peak * min(n / top, (max_steps + 1 - n) / (max_steps + 1 - top))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (OPTIMIZERS, SCHEDULES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_options", {})
    of_lion = OptimizerKind(lion, group_state=("n_steps",), needs_whole_model=True)
    OPTIMIZERS.register("lion", options=LionOptions)(of_lion)
    SCHEDULES.register("triangle", options=TriangleOptions)(ScheduleKind(triangle, ends_at_max_steps=True))


def settings(**train: Any) -> TrainConfig:
    schedule = ScheduleConfig(name="triangle", lr=0.005, warmup_steps=1, options={"top": 0.25})
    return replace(config(schedule=schedule, **train), optimizer=OptimizerConfig(name="lion", options={"beta": 0.8}))


@pytest.mark.slow
def test_a_run_stopped_and_resumed_is_equal_to_one_without_a_break(tmp_path: Path) -> None:
    assert_resumes(tmp_path, settings(), stopped_before=8)
    rates = [entry["lr"] for entry in metrics(tmp_path / "whole") if entry["kind"] == "train"]
    assert rates == [build_schedule(settings().schedule, d_model=16, max_steps=12)(n) for n in range(1, 13)]
    assert rates[2] == max(rates)


def test_its_whole_state_is_saved() -> None:
    trainer = Trainer(settings(), tokenizers(), CPU)
    trainer.optimizer_kind.allocate(trainer.optimizer)
    names = {name for name, _ in trainer.model.named_parameters()}
    expected = {f"{key}/{name}" for key in ("exp_avg", "scale") for name in names} | {"param_groups/0.n_steps"}
    assert trainer.optimizer_state().keys() == expected


def test_the_end_of_its_curve_cannot_be_moved(tmp_path: Path) -> None:
    first = replace(settings(), name="run", runs=str(tmp_path))
    with open_run(first) as folder:
        run(folder, first)
        write_config(first, folder)
    longer = replace(first, train=replace(first.train, max_steps=20))
    with pytest.raises(ConfigError, match=r"holds another run: train\.max_steps was 12, is 20"), open_run(longer):
        pass
    other = replace(longer, schedule=replace(first.schedule, options={"top": 0.5}))
    with pytest.raises(ConfigError, match=r"schedule\.options\.top was 0\.25, is 0\.5"), open_run(other):
        pass


def test_what_an_entry_does_not_take_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"^schedule\.lr: schedule\.name=triangle takes schedule\.lr, not schedule\.fac"
    ):
        build_schedule(ScheduleConfig(name="triangle", factor=1.0), d_model=16, max_steps=12)
    with pytest.raises(ConfigError, match=r"^schedule\.options\.top: schedule `noam` has no such option\. Leave"):
        build_schedule(ScheduleConfig(factor=1.0, options={"top": 0.5}), d_model=16, max_steps=12)
    with pytest.raises(ConfigError, match=r"^optimizer\.options\.beta: optimizer `adam` has no such option\. Lea"):
        build_optimizer(nn.Linear(2, 2), OptimizerConfig(options={"beta": 0.5}))
    with pytest.raises(
        ConfigError, match=r"^optimizer=lion: needs the whole model, which train\.sharding=full divides"
    ):
        check_components(settings(sharding=Sharding.full), CPU)


def test_options_survive_the_config_file_of_a_run(tmp_path: Path) -> None:
    write_config(settings(), tmp_path)
    assert read_config(tmp_path) == settings()
