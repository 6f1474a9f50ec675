"""What a run will do: how long, in which steps, and what is logged; by the corpus where the config leaves it open."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import slow
from tests.support.each import each
from tests.toy.run import CPU, MODEL, assert_same_run, config, metrics, prepared, run, run_until, sha256, train
from transformer_cli.commands.train.run import _next
from transformer_cli.config.compose import load_config
from transformer_cli.config.train import ScheduleConfig, TrainConfig
from transformer_cli.data.batching import BatchPlan
from transformer_cli.data.feed import Epoch, epoch_of
from transformer_cli.data.shuffling import Part
from transformer_cli.errors import ConfigError
from transformer_cli.models.runs import read_config
from transformer_cli.tasks.translation import Translation
from transformer_cli.training import plan, run_directory, writers
from transformer_cli.training.plan import limited, plan_warnings, planned
from transformer_cli.training.result import TrainResult
from transformer_cli.training.run_directory import chosen_before, open_run, with_values
from transformer_cli.training.writers import Recorder

LINEAR = ScheduleConfig(name="linear", lr=0.01, warmup_steps=1)
OPEN = {
    "tokens_per_update": "auto",
    "max_steps": "auto",
    "log_every": "auto",
    "eval_every": "auto",
    "save_every": "auto",
}


def files(*overrides: str) -> TrainConfig:
    own = ["data=files", "recipe=files", "data.source_lang=en", "data.target_lang=fr", "data.train=[a.en,a.fr]"]
    loaded: TrainConfig = load_config("train", [*own, *overrides])
    return loaded


def plan_of(n_tokens: int, device: str, *overrides: str, longest: int = 60) -> TrainConfig:
    epoch = Epoch(max(1, n_tokens // 12), n_tokens, longest)
    return limited(planned(files(*overrides), epoch, device)[0], epoch)


# ---- What suits a corpus


def test_an_update_and_a_run_suit_the_corpus_and_the_device() -> None:
    """Twenty thousand pairs are learnt in many small updates, the paper's corpus as in the paper, a large one not."""
    small = plan_of(200_000, "cpu").train
    assert 1000 <= small.tokens_per_update <= 2000
    assert 15 <= small.max_steps * small.tokens_per_update / 200_000 <= 40
    assert small.max_steps / small.eval_every > 10
    wmt = plan_of(130_000_000, "cuda", "model=base")
    assert wmt.train.tokens_per_update == 25_000
    assert 90_000 <= wmt.train.max_steps <= 110_000
    assert wmt.schedule.warmup_steps == 4000
    large = plan_of(5_000_000, "cpu").train
    assert large.tokens_per_update <= 4096
    assert large.max_steps * large.tokens_per_update < 1.1e8


@pytest.mark.parametrize(
    ("model", "device"), [("tiny", "cpu"), ("big", "cuda"), slow("tiny", "cuda"), slow("big", "cpu")]
)
@pytest.mark.parametrize("n_tokens", [300, slow(3000), 50_000, slow(10**6), slow(10**8), 3 * 10**9])
def test_what_is_chosen_is_never_odd(n_tokens: int, device: str, model: str) -> None:
    chosen = plan_of(n_tokens, device, f"model={model}")
    if n_tokens > 3000 and model == "tiny":  # an update is at least data.max_length; wide models warm up longer
        assert list(plan_warnings(chosen, Epoch(n_tokens // 12, n_tokens, 60))) == []
    assert chosen.train.tokens_per_update >= chosen.data.max_length
    peak = (chosen.model.d_model * chosen.schedule.warmup_steps) ** -0.5  # of noam
    assert peak <= 0.5 / chosen.model.d_model * (1.1 if model == "big" else 1.0)


def test_a_number_that_is_given_stays_and_the_others_follow_from_it() -> None:
    given = plan_of(200_000, "cpu", "train.tokens_per_update=2000", "train.max_epochs=5", "train.log_every=7")
    assert (given.train.tokens_per_update, given.train.max_steps, given.train.log_every) == (2000, 500, 7)
    assert given.schedule.warmup_steps == 512  # 4 · model.d_model: a tenth of the run would make the rate too high
    linear = plan_of(200_000, "cpu", "train.max_steps=500", "schedule=linear")
    assert linear.schedule.warmup_steps == 50  # its highest rate is schedule.lr
    assert given.train.eval_every == 25
    assert plan_of(200_000, "cpu", "train.max_steps=77").train.max_steps == 77
    assert plan_of(200_000, "cpu", "train.max_steps=77", "train.max_epochs=5").train.max_steps == 77


def test_labels_are_learnt_as_long_as_a_few_thousand_of_them_were_measured_to_need() -> None:
    """trec has 5,452 questions, some 60,000 tokens, and a recipe of 350 updates."""
    epoch = Epoch(5452, 60_000, 40)
    labels = load_config("train", ["data=labels", "data.train=a.tsv"])
    assert 300 <= planned(labels, epoch, "cpu")[0].train.max_steps <= 400
    assert planned(labels, replace(epoch, n_tokens=20_000_000), "cpu")[0].train.max_steps > 3 * 20_000_000 / 2100


def test_the_bounds_are_told_with_what_is_chosen() -> None:
    _, chosen = planned(files(), Epoch(20_000, 200_000, 60), "cpu")
    assert str(chosen[0]) == "train.tokens_per_update=1024 (1,024 to 4,096)"
    assert str(chosen[1]).endswith("(3 to 30 epochs)")
    assert planned(config(), Epoch(20_000, 200_000, 60), "cpu")[1] == []


# ---- Epochs


def test_an_epoch_has_as_many_updates_as_the_feed_makes_of_it() -> None:
    settings = config()
    corpus = prepared().train
    parts = [Part(20, 2.0), Part(len(corpus) - 20, 0.5)]
    for mixture in ([], parts):
        feed = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=40, seed=1, parts=mixture)
        assert epoch_of(settings, replace(prepared(), parts=mixture)).updates(40) == feed.updates_per_epoch


def per_epoch() -> int:
    return epoch_of(config(), prepared()).updates(40)


@pytest.mark.parametrize(("max_steps", "epochs", "expected"), [(100, 1.0, 1.0), (100, 0.5, 0.5), (3, 1.0, None)])
def test_training_ends_after_max_epochs_or_max_steps_whichever_comes_first(
    tmp_path: Path, max_steps: int, epochs: float, expected: float | None
) -> None:
    result = run(tmp_path, config(max_steps=max_steps, max_epochs=epochs))
    assert result.step == (3 if expected is None else -(-expected * per_epoch() // 1))


def test_a_schedule_that_ends_with_the_run_ends_with_its_epochs_also_after_a_stop(tmp_path: Path) -> None:
    by_steps, by_epochs = config(schedule=LINEAR, max_steps=per_epoch()), config(schedule=LINEAR, max_epochs=1.0)
    run(tmp_path / "steps", by_steps)
    run_until(5, tmp_path / "epochs", by_epochs)
    run(tmp_path / "epochs", by_epochs)
    assert metrics(tmp_path / "epochs") == metrics(tmp_path / "steps")
    assert sha256(tmp_path / "epochs/model.safetensors") == sha256(tmp_path / "steps/model.safetensors")


def test_steps_that_end_a_run_before_its_epochs_are_told() -> None:
    """The steps may be those of a recipe, of which the user does not know."""
    epoch = Epoch(20_000, 200_000, 60)
    demo: TrainConfig = load_config("train", ["data=demo_fr_en", "train.max_epochs=10"])
    (warning,) = plan_warnings(limited(demo, epoch), epoch)
    steps, per_epoch = demo.train.max_steps, epoch.updates(demo.train.tokens_per_update)
    assert (
        warning.what
        == f"train.max_epochs=10: train.max_steps={steps} ends the run before, after {steps / per_epoch:.3g} epochs"
    )
    alone: TrainConfig = load_config("train", ["data=demo_fr_en", "train.max_epochs=10", "train.max_steps=auto"])
    assert list(plan_warnings(limited(alone, epoch), epoch)) == []
    assert limited(alone, epoch).train.max_steps == 10 * per_epoch


@each(
    "overrides, warned",
    [
        (["train.max_steps=4"], ["the run ends after 4 updates, while the learning rate rises until update 512"]),
        (["train.max_steps=4", "schedule.warmup_steps=9"], ["schedule.warmup_steps=9: the run ends after 4 updates"]),
        ([], []),
        (["train.patience=30"], ["train.patience=30: never ends this run"]),
        (["train.eval_every=1000"], ["train.patience=10: never ends this run"]),
        (["train.eval_every=9000"], ["train.eval_every=9000: the run ends after", "train.patience=10: never"]),
    ],
)
def test_a_warning_names_what_the_user_has_set_and_not_what_was_chosen(overrides: list[str], warned: list[str]) -> None:
    epoch = Epoch(20_000, 200_000, 60)
    config, chosen = planned(files(*overrides), epoch, "cpu")
    found = [one.what for one in plan_warnings(limited(config, epoch), epoch, chosen) if one.check != "epochs"]
    assert len(found) == len(warned), found
    assert all(what.startswith(begins) for what, begins in zip(found, warned, strict=True)), found


@each(
    "overrides, is_told",
    [
        (["train.rdrop=5"], False),
        (["train.rdrop=5", "model.dropout=0"], True),
        (["train.rdrop=5", "model.dropout=0", "model.layer_drop=0.1", "data.subword_dropout=0.1"], True),
        *(
            (["train.rdrop=5", "model.dropout=0", f"{key}=0.1"], False)
            for key in ("model.attention_dropout", "model.activation_dropout", "train.target_word_dropout")
        ),
        (["train.rdrop=5", "model.dropout=0", "lora.dropout=0.1"], True),
        (["train.rdrop=5", "model.dropout=0", "lora.dropout=0.1", "lora.rank=2", "init.from=base"], False),
        (["train.simcut=3", "model.dropout=0"], False),
        (["train.simcut=3", "model.dropout=0", "train.token_cutoff=0"], True),
        (["model.dropout=0"], False),
    ],
)
def test_two_passes_that_are_the_same_are_told(overrides: list[str], is_told: bool) -> None:
    """Layer drop and subwords are drawn once for both."""
    epoch = Epoch(20_000, 200_000, 60)
    chosen = limited(planned(files(*overrides), epoch, "cpu")[0], epoch)
    told = [warning.what for warning in plan_warnings(chosen, epoch)]
    assert bool(told) == is_told
    assert all("without dropout both passes of a batch are the same" in what for what in told)


def test_epochs_stand_beside_steps_in_the_log_the_metrics_and_the_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="tfm"):
        run(tmp_path, config(max_steps=6, log_every=3))
    n = per_epoch()
    assert f"step 3/6, epoch {3 / n:.2f}/{6 / n:.2f}: loss" in caplog.text
    assert all(entry["epoch"] == round(entry["step"] / n, 4) for entry in metrics(tmp_path))
    assert json.loads((tmp_path / "result.json").read_bytes())["epochs"] == round(6 / n, 4)


def opened(runs: Path, settings: TrainConfig) -> TrainResult:
    with open_run(replace(settings, runs=str(runs))) as folder:
        settings = with_values(settings, chosen_before(settings, folder))
        return train(settings, prepared(), folder, device=CPU)


@pytest.mark.slow
def test_more_epochs_go_on_unless_the_schedule_ends_with_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = replace(config(max_steps=100, max_epochs=0.5), name="constant")
    first = opened(tmp_path, short)
    with caplog.at_level(logging.INFO, logger="tfm"):
        assert opened(tmp_path, short).to_raise == "train.max_epochs"
    assert f"already finished at step {first.step}; raise train.max_epochs to go on" in caplog.text
    assert opened(tmp_path, replace(short, train=replace(short.train, max_epochs=1.0))).step == per_epoch()
    linear = replace(short, name="linear", schedule=LINEAR)
    opened(tmp_path, linear)
    with pytest.raises(ConfigError, match=r"train\.max_epochs was 0\.5, is 1\.0"):
        opened(tmp_path, replace(linear, train=replace(linear.train, max_epochs=1.0)))


def test_a_run_that_patience_has_ended_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = config(eval_every=1, patience=1, schedule=ScheduleConfig(name="constant", lr=1e-9, warmup_steps=1))
    first = run(tmp_path, settings)
    assert first.step < settings.train.max_steps
    with caplog.at_level(logging.INFO, logger="tfm"):
        run(tmp_path, settings)
    assert f"already finished at step {first.step}; raise train.patience to go on" in caplog.text


# ---- Settings that are left open, in the run directory


@pytest.mark.slow
def test_a_run_keeps_the_numbers_that_were_chosen_when_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_config = replace(config(**OPEN), schedule=ScheduleConfig(name="constant", lr=0.01, warmup_steps="auto"))
    monkeypatch.setattr(plan, "CPU_BUDGET", plan.Budget(plan.Bounds(40, 40), plan.Bounds(1, 1), 1.0))
    monkeypatch.setattr(Translation, "fewest_updates", 1)
    first = opened(tmp_path, open_config)
    (folder,) = (path for path in tmp_path.iterdir() if path.name != "latest")
    assert folder.name == run_directory.run_name(open_config)
    kept = read_config(folder)
    assert (kept.train.tokens_per_update, kept.train.max_steps, kept.train.eval_every) == (40, first.step, 1)
    assert first.step == per_epoch()
    monkeypatch.setattr(plan, "CPU_BUDGET", plan.GPU)  # what another device would choose
    assert opened(tmp_path, open_config).step == first.step
    longer = replace(open_config, train=replace(open_config.train, max_steps=first.step + 2))
    assert opened(tmp_path, longer).step == first.step + 2
    assert read_config(folder).train.tokens_per_update == 40


# ---- What is logged


def test_a_run_says_at_its_start_what_it_will_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tfm"):
        run(tmp_path, config(max_steps=8))
    lines = {message.split()[0]: message for message in caplog.messages if "  " in message and message[0] != " "}
    corpus = prepared().train
    assert (
        f"{len(corpus):,} training pairs, {len(corpus.source_ids)} + {len(corpus.target_ids)} tokens" in lines["corpus"]
    )
    assert "25 pieces" in lines["vocabulary"]
    assert f"1 + 1 layers, width {MODEL.d_model}" in lines["model"]
    assert "cpu, float32, 1 threads" in lines["device"]
    assert "8 updates of 40 tokens" in lines["plan"]
    assert str(tmp_path / "model.safetensors") in lines["results"]
    assert "auto" not in lines


def test_a_warm_up_beyond_the_end_is_told_before_the_first_update(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, config(max_steps=2, schedule=ScheduleConfig(name="constant", lr=0.01, warmup_steps=5)))
    assert "schedule.warmup_steps=5: the run ends after 2 updates, while the learning rate rises" in caplog.text


def test_the_first_line_comes_within_seconds_and_others_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    monkeypatch.setattr(writers.time, "perf_counter", lambda: now)
    with Recorder(tmp_path, 0, 0, max_steps=400, updates_per_epoch=160, log_seconds=30.0) as recorder:
        for step in range(1, 101):
            now += 1.0
            recorder.advance(500)
            if recorder.is_silent():
                with caplog.at_level(logging.INFO, logger="tfm"):
                    recorder.report_progress(step, 8.25)
    assert [message.split(":")[0] for message in caplog.messages] == [
        f"step {n}/400, epoch {n / 160:.2f}/2.50" for n in (3, 33, 63, 93)
    ]
    assert caplog.messages[0] == "step 3/400, epoch 0.02/2.50: loss 8.250, 500 tokens/s, about 06:37 left"
    assert not (tmp_path / "metrics.jsonl").exists()


def test_lines_by_the_clock_change_no_metrics_and_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sparse = config(max_steps=6, log_every=4)
    run(tmp_path / "quiet", sparse)
    monkeypatch.setattr(Recorder, "is_silent", lambda self: True)
    run_until(4, tmp_path / "lines", sparse)
    run(tmp_path / "lines", sparse)
    assert_same_run(tmp_path / "lines", tmp_path / "quiet")


def test_the_commands_to_use_next_name_a_run_that_is_not_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("older", "newer"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs/latest").symlink_to("newer")
    newest, older = (
        "\n".join(_next(config(), TrainResult(Path("runs") / name / "model.safetensors", 1.0, 5, "chrf"), ""))
        for name in ("newer", "older")
    )
    assert "tfm translate < text.en > text.xx" in newest
    assert "--checkpoint" not in newest
    assert "tfm translate --checkpoint runs/older < text.en > text.xx" in older
    assert "a larger train.max_steps goes on" in newest
    assert "goes on" not in "\n".join(
        _next(config(schedule=LINEAR), TrainResult(Path("runs/newer/m"), 1.0, 5, "chrf"), "")
    )
