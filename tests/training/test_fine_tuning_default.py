"""The schedule of fine-tuning where the command line sets none: which runs have it, its rate, and how it is said."""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.each import each
from tests.toy.run import CPU, MODEL, metrics, prepared, run, run_until
from tests.toy.run import config as toy_config
from transformer_cli.config.compose import load_config
from transformer_cli.config.train import InitConfig, LoraConfig, ScheduleConfig, TrainConfig
from transformer_cli.data.feed import epoch_of
from transformer_cli.errors import ConfigError
from transformer_cli.models.runs import read_config
from transformer_cli.training import plan
from transformer_cli.training.plan import plan_run, plan_warnings

FILES = ["data=files", "data.source_lang=en", "data.target_lang=de", "data.train=[a.en,a.de]"]
NOAM = ("noam", None, "auto", 10)  # of recipe/files.yaml: name, rate, warm-up, patience
AUTO = ("linear", 3e-3, "auto", None)  # of recipe/auto.yaml, until the text is counted
DEFAULT = ("inverse_sqrt", "auto", "auto", 5)


@each(
    "overrides, expected",
    [
        ([], AUTO),
        (["init.from=null"], AUTO),
        (["init.from=runs/a"], DEFAULT),
        (["init.from=runs/a", "init.freeze=[encoder]", "lora.rank=8"], DEFAULT),
        (["init.from=runs/a", "train.patience=7"], (*DEFAULT[:3], 7)),
        (["init.from=runs/a", "train.patience=null"], (*DEFAULT[:3], None)),
        (["init.from=runs/a", "schedule=linear", "schedule.lr=1e-4"], ("linear", 1e-4, "auto", 10)),
        (["init.from=runs/a", "schedule.factor=0.1"], NOAM),
        (["init.from=runs/a", "schedule.warmup_steps=50"], ("noam", None, 50, 10)),
        (["init.from=runs/a", "fine_tuning=null"], NOAM),
        (["init.from=runs/a", "recipe=small"], ("linear", 8e-3, "auto", None)),
        (["init.from=runs/a", "optimizer=muon"], NOAM),
        (["init.from=runs/a", "optimizer=adafactor"], DEFAULT),
    ],
)
def test_a_run_that_begins_with_a_model_has_the_default_unless_rates_are_set(
    overrides: list[str], expected: tuple[Any, ...]
) -> None:
    for command in ("train", *(["doctor"] if len(overrides) < 2 else [])):  # which is composed of the same files
        config = load_config(command, [*FILES, *overrides])
        schedule = config.schedule
        assert (schedule.name, schedule.lr, schedule.warmup_steps, config.train.patience) == expected


def test_a_language_model_has_it_and_a_classifier_that_takes_an_encoder_keeps_its_recipe() -> None:
    text = load_config("train", ["data=text", "data.train=a", "init.from=runs/a"])
    labels = load_config("train", ["data=labels", "data.train=a.tsv", "init.from=runs/a"])
    assert (text.schedule.name, labels.schedule.name) == ("inverse_sqrt", "noam")


def begun(source: Path, **changes: Any) -> TrainConfig:
    """A small run with the default of fine-tuning."""
    plain = toy_config(max_steps=6, eval_every=3, average_last=1)
    schedule = ScheduleConfig(name="inverse_sqrt", lr="auto", warmup_steps="auto")
    return replace(plain, init=InitConfig(from_=str(source)), schedule=schedule, **changes)


@each("width, rank, rate", [(128, 0, 1e-3), (512, 0, 2.5e-4), (1024, 0, 1.3e-4), (128, 8, 1e-2), (512, 4, 2.5e-3)])
def test_the_rate_falls_with_the_width_and_is_ten_times_that_with_lora(width: int, rank: int, rate: float) -> None:
    config = begun(Path("m"), model=replace(MODEL, d_model=width), lora=LoraConfig(rank=rank))
    assert plan_run(config, prepared(), CPU).config.schedule.lr == rate


def test_it_is_said_when_the_run_begins_and_kept_when_it_goes_on(
    source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="tfm"):
        run(tmp_path / "whole", begun(source))
    said = [line.strip() for line in caplog.messages if "fine-tuning:" in line]
    assert said == [
        "fine-tuning: schedule=inverse_sqrt schedule.lr=0.008 schedule.warmup_steps=1 train.patience=None,"
        " where nothing else is set"
    ]
    kept = read_config(tmp_path / "whole").schedule
    assert (kept.name, kept.lr) == ("inverse_sqrt", 0.008)  # 0.128 / 16
    assert {entry["lr"] for entry in metrics(tmp_path / "whole") if entry["step"] == 1 and "lr" in entry} == {0.008}

    run_until(4, tmp_path / "stopped", begun(source))
    run(tmp_path / "stopped", begun(source))
    whole, stopped = (tmp_path / name / "model.safetensors" for name in ("whole", "stopped"))
    assert whole.read_bytes() == stopped.read_bytes()


def test_with_frozen_parts_too(source: Path, tmp_path: Path) -> None:
    config = begun(source)
    run(tmp_path / "frozen", replace(config, init=replace(config.init, freeze=["encoder", "embeddings"])))
    assert json.loads((tmp_path / "frozen" / "result.json").read_bytes())["step"] == 6


@each(
    "schedule, warns",
    [
        (ScheduleConfig(name="noam", factor=1.0, warmup_steps=2), True),  # 16^-0.5 · 2^-0.5 = 0.18
        (ScheduleConfig(name="noam", factor=0.1, warmup_steps=2), False),  # 0.018
        (ScheduleConfig(name="linear", lr=0.025, warmup_steps=2), True),  # three times 0.008 are 0.024
        (ScheduleConfig(name="linear", lr=0.023, warmup_steps=2), False),
    ],
)
def test_a_rate_for_drawn_weights_is_warned_of(schedule: ScheduleConfig, warns: bool) -> None:
    config = replace(begun(Path("m")), schedule=schedule)
    for start, expected in ((config.init, warns), (InitConfig(), False)):
        found = list(plan_warnings(replace(config, init=start), epoch_of(config, prepared())))
        assert [one.check for one in found if one.check == "rate"] == ["rate"] * expected


def test_a_rate_that_is_no_number_is_refused() -> None:
    for value, what in (("fast", "no number"), ("true", "no number"), ("11", "out of range")):
        with pytest.raises(ConfigError, match=rf"schedule\.lr=.*: {what}"):
            load_config("train", ["schedule=linear", f"schedule.lr={value}"])
    assert plan.FINE_TUNING_RATE / 128 == 1e-3
