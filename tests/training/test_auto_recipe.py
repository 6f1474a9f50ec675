"""`recipe=auto`: what it chooses for a text, that the user's values win, and that a run keeps what was chosen."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.each import each
from tests.toy.run import CPU, metrics, prepared, run_until, sha256, train
from transformer_cli.addons.interop.firefox import check as check_firefox
from transformer_cli.config.compose import load_config, to_plain
from transformer_cli.config.model import Positions
from transformer_cli.config.train import TrainConfig, seconds_of
from transformer_cli.data.feed import Epoch
from transformer_cli.errors import ConfigError
from transformer_cli.models.runs import read_config
from transformer_cli.training import budget, plan
from transformer_cli.training.auto_recipe import MANY_TOKENS, POINTS, between, epochs_of, recipe_lines
from transformer_cli.training.budget import RDROP_FROM, Pace
from transformer_cli.training.plan import plan_warnings, planned
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.run_directory import chosen_before, flat, open_run, run_name, with_values
from transformer_cli.training.state import check_components

FILES = ["data=files", "data.source_lang=en", "data.target_lang=fr", "data.train=[a.en,a.fr]"]
SIZES = [300, 3000, 20_000, 60_000, 200_000, 700_000, 2_000_000, 10**7, 10**8, 3 * 10**9]
# Small enough for the toy corpus, whose tokenizers have 25 pieces; all else is left open.
TOY = [
    *("model.d_model=16", "model.n_heads=2", "model.d_ff=32", "model.n_encoder_layers=1", "model.n_decoder_layers=1"),
    *("data.max_length=20", "train.tokens_per_update=40", "train.eval_every=4", "train.save_every=2", "decode=greedy"),
    *("data.tokenizer.kind=word", "train.log_every=1", "data.source_lang=en", "data.target_lang=xx", "train.samples=1"),
]


@cache
def files(*overrides: str) -> TrainConfig:
    loaded: TrainConfig = load_config("train", [*FILES, *overrides])
    return loaded


def text_of(n_tokens: int) -> Epoch:
    return Epoch(max(1, n_tokens // 12), n_tokens, 60)


def chosen_for(n_tokens: int, *overrides: str, device: str = "cpu") -> TrainConfig:
    return planned(files(*overrides), text_of(n_tokens), device)[0]


# ---- What suits a text


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_more_text_gets_no_more_regularization_and_no_more_epochs(device: str) -> None:
    configs = [chosen_for(n, device=device) for n in SIZES]
    for values in (
        [one.model.dropout for one in configs],
        [one.train.rdrop for one in configs],
        [epochs_of(n) for n in SIZES],
    ):
        assert values == sorted(values, reverse=True)
    for sizes in ([one.model.d_model for one in configs], [one.train.tokens_per_update for one in configs]):
        assert sizes == sorted(sizes)


def test_a_student_keeps_the_positions_that_its_engine_has() -> None:
    """Rotary ones, which are chosen for other models, are none that an export for Firefox could write."""
    assert chosen_for(200_000, "model=small").model.positions is Positions.rotary
    config = chosen_for(200_000, "model=student_tiny", "norm=post", "data.tokenizer.kind=unigram")
    check_firefox(config.model)


@pytest.mark.parametrize("n_tokens", SIZES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_stays_open_and_no_plan_is_odd(n_tokens: int, device: str) -> None:
    config, chosen = planned(files(), text_of(n_tokens), device)
    assert config.left_open == []
    assert "auto" not in [
        value
        for key, value in flat(to_plain(config)).items()
        if key.startswith(("train.", "sched"))
        and key != "train.best_metric"
        and key not in ("train.precision", "train.compile")
    ]
    warnings = [one.what for one in plan_warnings(config, text_of(n_tokens), chosen) if n_tokens > 3000]
    assert warnings == []


def test_a_measured_text_gets_the_values_that_were_measured() -> None:
    for point in POINTS:
        config = chosen_for(point.tokens)
        assert (config.model.dropout, config.train.rdrop) == (point.dropout, point.rdrop)
        assert config.train.tokens_per_update == min(point.tokens_per_update, point.tokens // 4)
    assert between(POINTS[0].tokens // 10, "epochs") == POINTS[0].epochs  # there is nothing beyond the first
    middle = between(100_000, "epochs")
    assert POINTS[2].epochs < middle < POINTS[1].epochs


def test_a_million_pairs_on_a_gpu_train_the_paper_s_base_model() -> None:
    config = chosen_for(MANY_TOKENS, device="cuda")
    base = load_config("train", ["data=wmt14_en_de", "model=base"])
    assert replace(config.model, preset="base") == base.model
    assert (config.optimizer, config.train.tokens_per_update) == (base.optimizer, base.train.tokens_per_update)
    assert (config.schedule.name, config.schedule.factor, config.schedule.lr) == ("noam", 1.0, None)
    assert 90_000 <= chosen_for(130_000_000, device="cuda").train.max_steps <= 110_000
    assert chosen_for(MANY_TOKENS).model.d_model == 128  # a CPU would take weeks
    assert chosen_for(MANY_TOKENS, "schedule.lr=1e-3", device="cuda").schedule.name == "linear"


# ---- What the user sets


@each(
    "overrides, key, value",
    [
        (["model.dropout=0.05"], "model.dropout", 0.05),
        (["model=big"], "model.d_model", 1024),
        (["norm=post"], "model.norm", "post"),
        (["optimizer=adamw"], "optimizer.weight_decay", 1e-4),
        (["schedule.lr=1e-3"], "schedule.lr", 1e-3),
        (["train.max_steps=77"], "train.max_steps", 77),
        (["train.rdrop=0"], "train.rdrop", 0.0),
        (["train.length_penalties=[]"], "train.length_penalties", []),
        (["train.tokens_per_update=500"], "train.tokens_per_update", 500),
    ],
)
def test_an_override_wins(overrides: list[str], key: str, value: object) -> None:
    for n_tokens in (60_000, 10**8):
        assert flat(to_plain(chosen_for(n_tokens, *overrides, device="cuda")))[key] == value


def test_a_yaml_file_of_the_user_wins(tmp_path: Path) -> None:
    for file, text in (
        ("experiment/mine.yaml", "# @package _global_\nmodel:\n  dropout: 0.05\ntrain:\n  max_steps: 7\n"),
        ("model/mine.yaml", "d_model: 64\n"),
    ):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text, encoding="utf-8")
    config = load_config("train", [*FILES, "experiment=mine", "model=mine"], user_dir=tmp_path)
    config = planned(config, text_of(60_000), "cpu")[0]
    assert (config.model.dropout, config.train.max_steps, config.model.d_model) == (0.05, 7, 64)


def test_a_value_that_is_equal_to_the_fallback_is_the_user_s_too() -> None:
    assert files().model.d_model == 128
    assert chosen_for(10**8, "model.d_model=128", device="cuda").model.d_model == 128


def test_what_the_recipe_leaves_to_the_user_follows_from_what_is_set() -> None:
    """Muon's rate is none for Adam, R-Drop excludes SimCut, and the epochs of the user say how long the run is."""
    assert chosen_for(60_000).schedule.lr == 8e-3
    assert chosen_for(60_000, "optimizer=adam").schedule.lr == 3e-3
    assert chosen_for(60_000, "schedule=cosine").optimizer.name == "adam"
    assert chosen_for(60_000, "train.simcut=1").train.rdrop == 0
    assert chosen_for(60_000, "train.max_epochs=3").train.max_steps == "auto"
    assert chosen_for(60_000, "decode=greedy").train.length_penalties == []
    assert chosen_for(60_000, "train.sharding=full").optimizer.name == "adam"


def test_each_choice_is_told_with_its_reason_and_so_is_what_the_user_has_set() -> None:
    lines = recipe_lines(files("model.dropout=0.05"), text_of(60_000), "cpu")
    assert lines[0] == "auto: 5,000 pairs, 60,000 target tokens, on cpu"
    assert any("R-Drop 3" in line and "5,000 pairs" in line for line in lines)
    assert lines[-1] == "yours: model.dropout=0.05 (not 0.3)"
    assert recipe_lines(files("recipe=small"), text_of(60_000), "cpu") == []


def test_the_other_recipes_leave_nothing_to_it() -> None:
    for recipe in ("files", "small"):
        assert files(f"recipe={recipe}").left_open == []
    assert load_config("train").left_open == []  # the built-in corpus has its own
    tuned = files("init.from=a.safetensors")
    assert (tuned.left_open, tuned.schedule.name) == ([], "inverse_sqrt")
    with pytest.raises(ConfigError, match=r"init\.from=a\.safetensors: recipe=auto chooses sizes .* set recipe=files"):
        check_components(files("init.from=a.safetensors", "recipe=auto"), CPU)


# ---- A run keeps what was chosen


def toy(folder: Path, *overrides: str) -> TrainConfig:
    config: TrainConfig = load_config("train", ["data=files", "data.train=[a,b]", *TOY, f"runs={folder}", *overrides])
    return config


def opened(config: TrainConfig, stop_at: int | None = None) -> Path:
    with open_run(config) as folder:
        settings = with_values(config, chosen_before(config, folder))
        if stop_at is None:
            train(settings, prepared(), folder, device=CPU)
        else:
            run_until(stop_at, folder, settings)
        return folder


def test_a_resumed_run_is_the_uninterrupted_one_although_the_recipe_has_changed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "epochs_of", lambda n_tokens: 1.0)
    whole = opened(toy(tmp_path / "whole"))
    opened(toy(tmp_path / "parts"), stop_at=3)
    monkeypatch.setattr(plan, "epochs_of", lambda n_tokens: 9.0)
    monkeypatch.setattr(plan, "choices", lambda *_: pytest.fail("is chosen once"))
    parts = opened(toy(tmp_path / "parts"))
    assert metrics(parts) == metrics(whole)
    assert sha256(parts / "model.safetensors") == sha256(whole / "model.safetensors")


def test_the_saved_config_is_explicit_and_alone_makes_the_same_plan(tmp_path: Path) -> None:
    folder = opened(toy(tmp_path, "train.max_steps=3"))
    saved = read_config(folder)
    assert saved.left_open == []
    assert (saved.optimizer.name, saved.train.rdrop, saved.model.dropout) == ("muon", 3.0, 0.3)


def test_the_name_of_a_run_depends_on_what_is_set_and_not_on_the_text() -> None:
    names = {
        run_name(files(*one)) for one in ([], ["model.dropout=0.3"], ["recipe=small"], ["recipe=files"], ["seed=2"])
    }
    assert len(names) == 5
    assert run_name(files()).startswith("files-auto-pre-")


def test_a_run_of_before_goes_on_under_its_name(tmp_path: Path) -> None:
    """A named run of recipe=files, which was the default, keeps its values under recipe=auto."""
    old = toy(tmp_path, "recipe=files", "name=mine", "train.max_steps=8")
    opened(old, stop_at=3)
    now = toy(tmp_path, "name=mine", "train.max_steps=8")
    kept = with_values(now, chosen_before(now, tmp_path / "mine"))
    assert (kept.optimizer, kept.model.dropout, kept.train.rdrop) == (old.optimizer, 0.1, 0.0)


# ---- A budget


@each("text, seconds", [("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5h", 5400), ("1d", 86_400)])
def test_a_budget_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@each("text", ["2", "h", "0m", "2w", "-1h", "2 h", "nan"])
def test_no_other_budget_is_taken(text: str) -> None:
    with pytest.raises(ConfigError, match=r"train\.budget=.*: no time\. Write a number and its unit, as 30m, 2h or 1d"):
        seconds_of(text)


@each(
    "overrides, says",
    [
        (
            ["train.max_steps=5"],
            "train.budget=1h: train.max_steps=5 says how long the run is. Set train.max_steps=auto",
        ),
        (["train.max_epochs=5"], "train.budget=1h: train.max_epochs=5.0 says how long"),
    ],
)
def test_a_budget_beside_a_length_is_refused(overrides: Sequence[str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_components(files("train.budget=1h", *overrides), CPU)
    assert says in str(refused.value)


def timed(n_tokens: int, per_update: float, *overrides: str) -> TrainConfig:
    def pace(config: Any) -> Pace:
        assert config.left_open == []
        return Pace(per_update * (2.0 if config.train.rdrop else 1.0), 5 * per_update)

    return planned(files(*overrides), text_of(n_tokens), "cpu", pace)[0]


@each("budget_of, recipe", [("20m", "auto"), ("1h", "files"), ("5h", "small"), ("5h", "auto")])
def test_updates_and_evaluations_fill_the_budget_and_no_more(budget_of: str, recipe: str) -> None:
    config = timed(3_000_000, 0.5, f"train.budget={budget_of}", f"recipe={recipe}")
    update = 0.5 * (2.0 if config.train.rdrop else 1.0)
    spent = config.train.max_steps * update + config.train.max_steps // config.train.eval_every * 2.5
    assert 0.97 * seconds_of(budget_of) <= spent <= 1.03 * seconds_of(budget_of)


def test_more_time_makes_a_longer_run_up_to_what_was_measured() -> None:
    lengths = [timed(60_000, 0.5, f"train.budget={n}").train.max_steps for n in ("5m", "10m", "30m", "3h", "1d")]
    assert lengths == sorted(lengths)
    assert lengths[-1] == lengths[-2] == 100 * text_of(60_000).updates(2048)


def test_rdrop_is_left_out_where_too_few_epochs_would_fit_unless_it_is_set() -> None:
    per_epoch = text_of(400_000).updates(2048)
    long, short = (timed(400_000, 0.5, f"train.budget={n}").train for n in ("3h", "20m"))
    assert (long.rdrop, short.rdrop) == (3.0, 0.0)
    assert long.max_steps >= RDROP_FROM * per_epoch > short.max_steps / 2
    assert timed(400_000, 0.5, "train.budget=20m", "train.rdrop=3").train.rdrop == 3


def test_a_run_of_a_budget_is_measured_once_and_keeps_its_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy(tmp_path / "timed", "train.budget=1h", "train.max_steps=auto")
    monkeypatch.setattr(budget, "MOST_EPOCHS", 0.5)
    monkeypatch.setattr(budget, "TIMED", 1)  # with those before it fewer than the updates of the run
    monkeypatch.setattr(budget, "WARM_UP", 1)
    timed_run = opened(config, stop_at=3)
    n_updates = read_config(timed_run).train.max_steps
    monkeypatch.setattr(plan, "measured_pace", lambda *_: pytest.fail("is measured once"))
    opened(config)
    given = opened(toy(tmp_path / "given", f"train.max_steps={n_updates}"))
    assert metrics(timed_run) == metrics(given)  # the dry run leaves no trace


class Sharing:
    """Ranks that share a store, in which a name keeps its first text."""

    world_size = 2

    def __init__(self, store: dict[str, str], *, is_first: bool) -> None:
        self.store, self.is_first = store, is_first

    def publish_and_wait(self, key: str, text: str | None) -> str:
        return self.store.setdefault(key, text) if text is not None else self.store[key]


def test_all_ranks_have_the_plan_of_the_first_also_where_rdrop_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_seconds_of_update", lambda config, *_: 40.0 if config.train.rdrop else 20.0)
    monkeypatch.setattr(budget, "MOST_EPOCHS", 1e6)
    config, store = toy(Path("runs"), "train.budget=1h", "train.max_steps=auto"), dict[str, str]()
    first, second = (
        plan.plan_run(config, prepared(), CPU, cast(Ranks, Sharing(store, is_first=is_first)))
        for is_first in (True, False)
    )
    assert first == second
    assert first.config.train.rdrop == 0
    assert 150 < first.config.train.max_steps < 3600 / 10
