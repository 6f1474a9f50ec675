"""Training: the updates, what a stopped run continues with, and what is exported at the end."""

import hashlib
import json
import logging
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import slow
from tests.toy.run import (
    CPU,
    MODEL,
    Died,
    assert_resumes,
    assert_same_run,
    config,
    metrics,
    prepared,
    run,
    run_until,
    sha256,
    tokenizers,
    train,
)
from transformer_cli.config.model import Tying
from transformer_cli.config.train import OptimizerConfig, Precision, ScheduleConfig
from transformer_cli.data.batching import Batch, BatchPlan, micro_batches
from transformer_cli.decoding.torch_engine import torch_translator
from transformer_cli.errors import CheckpointError, ConfigError, DataError, EnvironmentFault
from transformer_cli.evaluation.metrics import Score, bleu
from transformer_cli.models.file import read_model
from transformer_cli.training import precision, validation, writers
from transformer_cli.training import result as results
from transformer_cli.training.averaging import average
from transformer_cli.training.main_process import MainProcess
from transformer_cli.training.pictures import attention_picture
from transformer_cli.training.trainer import Trainer, stable_seed
from transformer_cli.training.validation import TranslationScores, Validator, make_validator
from transformer_cli.training.writers import forget_after


def score_as(monkeypatch: pytest.MonkeyPatch, *ranks: float) -> None:
    """Let the next evaluations give these BLEU scores instead of their own, and the last one from then on."""
    left = list(ranks)

    def scripted(self: Validator, *args: Any) -> TranslationScores:
        value = left.pop(0) if len(left) > 1 else left[0]
        return TranslationScores(1.0, {"bleu": Score("BLEU", value, "scripted")}, [""] * len(self.text))

    monkeypatch.setattr(Validator, "score", scripted)


# Resuming


@pytest.mark.parametrize("stopped_before", [1, *map(slow, (2, 3, 6)), 7, slow(10), 12])
def test_A16_a_resumed_run_is_the_same_run_to_the_last_bit(tmp_path: Path, unbroken: Path, stopped_before: int) -> None:
    run_until(stopped_before, tmp_path)
    run(tmp_path)
    assert_same_run(tmp_path, unbroken)
    assert [entry["step"] for entry in metrics(tmp_path) if entry["kind"] == "train"] == list(range(1, 13))


def test_the_resumed_runs_were_mid_epoch_with_accumulation_and_dropout() -> None:
    corpus, settings = prepared().train, config()
    plan = BatchPlan(
        corpus.source_lengths, corpus.target_lengths, tokens_per_update=settings.train.tokens_per_update, seed=1
    )
    batches = micro_batches(corpus, plan.update(0), tokenizers(), max_tokens=settings.train.max_tokens_per_microbatch)
    assert 6 < plan.updates_per_epoch < 12
    assert len(batches) > 1
    assert settings.model.dropout > 0


def test_sums_between_two_log_lines_survive_a_stop(tmp_path: Path) -> None:
    assert_resumes(tmp_path, config(log_every=5), stopped_before=8)


@pytest.mark.parametrize("doomed", ["save", slow("_tidy"), "export_best", slow("evaluate")])
def test_a_run_that_dies_outside_an_update_resumes_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unbroken: Path, doomed: str
) -> None:
    original, calls = getattr(MainProcess, doomed), 0

    def dying(self: MainProcess, *args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2 or doomed == "export_best":
            raise Died
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(MainProcess, doomed, dying)
        with pytest.raises(Died):
            run(tmp_path)
    run(tmp_path)
    assert_same_run(tmp_path, unbroken)


def test_a_damaged_newest_checkpoint_costs_two_steps_and_no_bit(tmp_path: Path, unbroken: Path) -> None:
    run_until(8, tmp_path)
    (tmp_path / "checkpoints/step-00000006/state.json").write_bytes(b"{}")
    run(tmp_path)
    assert_same_run(tmp_path, unbroken)


def test_A17_bf16_resumes_to_the_last_bit_too(tmp_path: Path) -> None:
    assert_resumes(tmp_path, config(precision=Precision.bf16, max_steps=6), stopped_before=4)


def test_a_finished_run_whose_schedule_ends_with_it_is_not_said_to_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """More steps would give every step before another rate, and are refused."""
    settings = config(max_steps=4)
    settings = replace(settings, schedule=ScheduleConfig(name="linear", lr=1e-3, warmup_steps=1))
    with caplog.at_level(logging.INFO, logger="tfm"):
        run(tmp_path, settings)
        run(tmp_path, settings)
    assert "already finished at step 4; schedule=linear ends there; a longer run is a new one" in caplog.text
    assert "to go on" not in caplog.text


def test_other_data_than_before_are_refused(unbroken: Path) -> None:
    settings = config(max_steps=14)
    with pytest.raises(DataError, match=r"was trained on other data: all of it had SHA-256 copy 60 6, and now other\."):
        train(settings, replace(prepared(), fingerprint="other"), unbroken, device=CPU)


def test_A22_a_finished_run_says_so_and_goes_on_when_there_is_more_to_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="tfm"):
        first = run(tmp_path, config(max_steps=4))
        before = sha256(tmp_path / "model.safetensors")
        again = run(tmp_path, config(max_steps=4))
    assert f"{tmp_path}: starting a new run" in caplog.messages
    assert f"{tmp_path}: already finished at step 4; raise train.max_steps to go on" in caplog.messages
    assert again == replace(first, is_new=False)
    assert sha256(tmp_path / "model.safetensors") == before
    assert run(tmp_path, config(max_steps=6)).step == 6
    steps = [entry["step"] for entry in metrics(tmp_path) if entry["kind"] == "train"]
    assert steps == [1, 2, 3, 4, 5, 6]


# Updates


def losses(max_tokens_per_microbatch: int, *, n_updates: int = 8) -> list[float]:
    settings = config(model=replace(MODEL, dropout=0.0), max_tokens_per_microbatch=max_tokens_per_microbatch)
    corpus = prepared().train
    learning = Trainer(settings, tokenizers(), CPU)
    learning.model.double()
    plan = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=40, seed=1)
    batches = (
        micro_batches(corpus, plan.update(n), tokenizers(), max_tokens=max_tokens_per_microbatch)
        for n in range(n_updates)
    )
    return [learning.train_step(batch, step=n + 1, lr=0.01).loss.item() for n, batch in enumerate(batches)]


def test_micro_batches_change_nothing() -> None:
    expected = losses(10_000)
    assert expected[-1] < expected[0]
    for max_tokens_per_microbatch in (1, 7, 20):
        assert losses(max_tokens_per_microbatch) == pytest.approx(expected, abs=1e-6)


def test_gradients_are_summed_over_ranks_during_the_last_batch_of_an_update_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer, events = Trainer(config(), tokenizers(), CPU), list[str]()
    forward_backward = trainer.forward_backward

    @contextmanager
    def overlapping(step: int) -> Iterator[None]:
        events.append("begin")
        yield
        events.append("end")

    def recorded(batch: Batch, **kwargs: Any) -> Any:
        events.append("batch")
        return forward_backward(batch, **kwargs)

    monkeypatch.setattr(trainer.gradients, "overlapped", overlapping)
    monkeypatch.setattr(trainer, "forward_backward", recorded)
    batches = micro_batches(prepared().train, np.arange(8), tokenizers(), max_tokens=16)
    trainer.train_step(batches, step=1, lr=0.01)
    assert len(batches) > 2
    assert events == [*["batch"] * (len(batches) - 1), "begin", "batch", "end"]


def moved(clip_norm: float | None) -> tuple[float, float]:
    """The gradient norm that an update reports, and how far plain gradient descent at rate 1 then goes."""
    learning = Trainer(config(model=replace(MODEL, dropout=0.0), clip_norm=clip_norm), tokenizers(), CPU)
    learning.model.double()
    learning.optimizer = torch.optim.SGD(learning.model.parameters(), lr=1.0, fused=True)
    before = torch.cat([parameter.detach().flatten() for parameter in learning.model.parameters()])
    batches = micro_batches(prepared().train, np.arange(5), tokenizers(), max_tokens=16)
    stats = learning.train_step(batches, step=1, lr=1.0)
    after = torch.cat([parameter.detach().flatten() for parameter in learning.model.parameters()])
    return stats.grad_norm.item(), (after - before).norm().item()


def test_gradients_are_clipped_to_the_norm_and_reported_as_they_were() -> None:
    norm, distance = moved(None)
    assert distance == pytest.approx(norm)
    assert moved(norm / 2) == pytest.approx((norm, norm / 2), rel=1e-4)
    assert moved(norm * 2) == pytest.approx((norm, norm))


def test_the_same_numbers_give_the_same_seed_on_every_machine() -> None:
    digest = hashlib.sha256(b"(1, 2, 3)").digest()
    assert stable_seed(1, 2, 3) == int.from_bytes(digest[:8], "little")
    assert len({stable_seed(seed, step, batch) for seed in (1, 2) for step in range(30) for batch in range(30)}) == 1800


def test_the_seed_decides_the_weights_and_the_dropout(tmp_path: Path) -> None:
    short = {"max_steps": 2, "eval_every": 2}
    results = [run(tmp_path / str(i), config(seed=seed, **short)) for i, seed in enumerate((1, 1, 2))]
    first, second, other = (sha256(result.model_path) for result in results)
    assert first == second != other


def test_dropout_is_drawn_anew_for_every_seed_update_and_batch() -> None:
    """The weights stay what they are at rate 0, so that the loss differs by the dropout alone."""
    one, other = (Trainer(config(seed=seed), tokenizers(), CPU) for seed in (1, 2))
    other.model.load_state_dict(one.model.state_dict())
    (batch,) = micro_batches(prepared().train, np.arange(5), tokenizers(), max_tokens=1000)

    def loss(learning: Trainer, batches: list[Batch], step: int) -> float:
        return learning.train_step(batches, step=step, lr=0.0).loss.item()

    alone = loss(one, [batch], 1)
    assert loss(one, [batch], 1) == alone, "the same update again"
    assert len({alone, loss(one, [batch], 2), loss(one, [batch], 3), loss(other, [batch], 1)}) == 4
    assert loss(one, [batch, batch], 1) != pytest.approx(alone, rel=1e-6), "the second batch has a dropout of its own"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": ScheduleConfig(name="nome", lr=1.0)}, "no schedule called `nome`; did you mean `noam`"),
        ({"optimizer": OptimizerConfig(name="adan")}, "no optimizer called `adan`; did you mean `adam`"),
    ],
)
def test_an_unknown_name_is_refused_before_training(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(tmp_path, replace(config(), **changes))


def test_a_precision_that_the_device_lacks_names_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert precision.choose_dtype(Precision.auto, CPU) is torch.float32
    with pytest.raises(EnvironmentFault, match=r"train\.precision=fp16: needs a GPU\. Use train\.precision=fp32"):
        precision.choose_dtype(Precision.fp16, CPU)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert precision.choose_dtype(Precision.auto, torch.device("cuda")) is torch.float16
    with pytest.raises(EnvironmentFault, match=r"train\.precision=bf16: .* Use train\.precision=fp16"):
        precision.choose_dtype(Precision.bf16, torch.device("cuda"))


# Evaluating, keeping the best, stopping early


def test_dev_bleu_is_that_of_the_shipped_model_under_tfm_translate(unbroken: Path) -> None:
    shipped, dev = read_model(unbroken / "model.safetensors"), prepared().dev
    assert shipped.multi_sentence_share == 0, "of lines of letters"
    translator = torch_translator(shipped.build(CPU), shipped.tokenizers, config().decode, device=CPU)
    expected = bleu([translated.text for translated in translator.translate(dev.sources)], [dev.targets])
    assert shipped.scores["dev_bleu"] == expected.value
    assert shipped.scores["bleu_signature"] == expected.signature
    assert json.loads((unbroken / "result.json").read_bytes())["dev_score"] == expected.value


def test_dev_nll_is_the_mean_over_all_dev_tokens_one_sentence_at_a_time() -> None:
    learning = Trainer(config(), tokenizers(), CPU)
    nll = make_validator(config(), prepared(), CPU).score(learning.model, learning.autocast).nll
    model, total, n_tokens = learning.model.eval(), 0.0, 0
    ids = tokenizers().source
    for line in prepared().dev.sources:
        target = [*ids.encode([line])[0], ids.eos_id]
        log_probs_TV = model(torch.tensor([target]), torch.tensor([[ids.bos_id, *target[:-1]]]))[0].log_softmax(-1)
        total -= sum(log_probs_TV[t, token].item() for t, token in enumerate(target))
        n_tokens += len(target)
    assert nll == pytest.approx(total / n_tokens, rel=1e-5)


def test_an_evaluation_is_of_the_weights_of_its_moment() -> None:
    learning, validator = Trainer(config(), tokenizers(), CPU), make_validator(config(), prepared(), CPU)
    before = validator.score(learning.model, learning.autocast).translations
    with torch.no_grad():
        for weight in learning.model.parameters():
            weight.mul_(-1.5)
    after = validator.score(learning.model, learning.autocast).translations
    assert after == make_validator(config(), prepared(), CPU).score(learning.model, learning.autocast).translations
    assert after != before


def test_evaluating_does_not_disturb_training(tmp_path: Path, unbroken: Path) -> None:
    run(tmp_path, config(eval_every=12))
    assert [e for e in metrics(tmp_path) if e["kind"] == "train"] == [
        e for e in metrics(unbroken) if e["kind"] == "train"
    ]


def test_only_the_best_and_the_last_checkpoints_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score_as(monkeypatch, 5.0, 40.0, 30.0, 10.0)
    run(tmp_path, config(max_steps=20, eval_every=5, save_every=2, keep_last=2, keep_best=2, average_last=1))
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        f"step-{step:08d}" for step in (10, 15, 18, 20)
    ]
    assert (tmp_path / "best").readlink() == Path("checkpoints/step-00000010")
    assert read_model(tmp_path / "model.safetensors").step == 10
    assert (tmp_path.parent / "latest").resolve() == tmp_path


def test_training_stops_when_patience_runs_out_also_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(max_steps=100, eval_every=2, patience=2, average_last=1)
    score_as(monkeypatch, 1.0, 3.0, 2.0)
    run_until(7, tmp_path, settings)
    score_as(monkeypatch, 3.0)  # equal is not better
    assert run(tmp_path, settings).step == 8
    assert (tmp_path / "best").readlink() == Path("checkpoints/step-00000004")


def test_a_score_that_is_no_number_is_never_best_and_uses_up_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_as(monkeypatch, math.nan, 2.0, math.nan)
    assert run(tmp_path, config(max_steps=100, eval_every=1, patience=3, average_last=1)).step == 5
    assert (tmp_path / "best").readlink() == Path("checkpoints/step-00000002")


def test_nll_can_be_the_metric(tmp_path: Path) -> None:
    result = run(tmp_path, config(best_metric="nll", eval_every=3))
    evaluations = {e["step"]: e["dev_nll"] for e in metrics(tmp_path) if e["kind"] == "dev"}
    best = min(evaluations, key=lambda step: evaluations[step])
    assert (tmp_path / "best").readlink() == Path(f"checkpoints/step-{best:08d}")
    assert result.dev_score <= evaluations[best]


@pytest.mark.parametrize(("metric", "best"), [("chrf++", max), ("ter", min)])
def test_any_metric_of_translations_can_choose_the_best_checkpoint(
    tmp_path: Path, metric: str, best: Callable[..., int]
) -> None:
    result = run(tmp_path, config(metrics=["bleu", "chrf"], best_metric=metric, eval_every=3, average_last=1))
    dev = [entry for entry in metrics(tmp_path) if entry["kind"] == "dev"]
    assert all({"dev_bleu", "dev_chrf", f"dev_{metric}", f"{metric}_signature"} <= entry.keys() for entry in dev)
    values = {entry["step"]: entry[f"dev_{metric}"] for entry in dev}
    chosen = int((tmp_path / "best").readlink().name.removeprefix("step-"))
    assert values[chosen] == best(values.values()) == result.dev_score
    assert result.metric == metric


def test_a_dev_metric_that_says_nothing_of_the_languages_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train.metrics=paper_bleu: says nothing about en → xx. Leave it out"):
        run(tmp_path, config(metrics=["paper_bleu"]))
    assert not (tmp_path / "config.yaml").exists()


# Averaging and shipping


def test_the_average_is_summed_in_double_precision() -> None:
    # In float32 the ones would be lost beside 2^24.
    values = [2.0**24, 1.0, 1.0, -(2.0**24)]
    mean = average([{"x": torch.tensor([value])} for value in values])["x"]
    assert mean.dtype is torch.float32
    assert mean.item() == 0.5


def test_a_worse_average_is_not_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def noise(checkpoints: Any) -> dict[str, torch.Tensor]:
        return {name: torch.randn_like(weight) for name, weight in next(iter(checkpoints)).items()}

    monkeypatch.setattr(results, "average", noise)
    run(tmp_path, config(best_metric="nll"))
    outcome = json.loads((tmp_path / "result.json").read_bytes())
    assert outcome["average"]["dev_nll"] > outcome["best"]["dev_nll"]
    assert outcome["shipped"] == f"the checkpoint of step {outcome['best']['step']}"
    best = read_model(tmp_path / "best" / "model.safetensors")
    shipped = read_model(tmp_path / "model.safetensors")
    assert all(torch.equal(shipped.weights[name], best.weights[name]) for name in best.weights)


def test_a_better_average_is_shipped_with_its_own_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score_as(monkeypatch, 1.0, 1.0, 1.0, 9.0)
    result = run(tmp_path)
    outcome = json.loads((tmp_path / "result.json").read_bytes())
    assert outcome["shipped"] == "the average of 2 checkpoints, steps 10, 12"
    assert (result.dev_score, outcome["average"]["dev_bleu"], outcome["best"]["dev_bleu"]) == (9.0, 9.0, 1.0)
    shipped = read_model(result.model_path)
    assert shipped.scores["dev_bleu"] == 9.0
    parts = [read_model(tmp_path / f"checkpoints/step-000000{step}/model.safetensors").weights for step in (10, 12)]
    expected = {name: ((parts[0][name].double() + parts[1][name].double()) / 2).float() for name in parts[0]}
    assert all(torch.equal(shipped.weights[name], expected[name]) for name in expected)


def test_a_damaged_checkpoint_is_not_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(results, "average", lambda checkpoints: {})  # no model can be loaded from nothing
        with pytest.raises(RuntimeError):
            run(tmp_path)
    (tmp_path / "checkpoints/step-00000010/model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"step-00000010: model\.safetensors has 0 bytes"):
        run(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()


# What a run logs


def test_metrics_are_strict_json_with_each_step_once(unbroken: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    lines = (unbroken / "metrics.jsonl").read_bytes().split(b"\n")
    assert lines.pop() == b""
    entries = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [e["step"] for e in entries if e["kind"] == "train"] == list(range(1, 13))
    assert [e["step"] for e in entries if e["kind"] == "dev"] == [4, 8, 12]
    keys = {"loss", "nll", "ppl", "grad_norm", "fill", "lr", "epoch", "tokens", "tokens_per_second"}
    assert entries[0].keys() == {"step", "kind"} | keys
    assert entries[0]["ppl"] == pytest.approx(math.exp(entries[0]["nll"]))
    assert 0 < entries[0]["fill"] <= 1


@pytest.mark.parametrize(
    ("content", "kept"),
    [
        (b'{"step": 1, "kind": "train"}\n{"step": 3, "kind": "train"}\n', 1),
        (b'{"step": 1, "kind": "train"}\n{"step": 1, "kind": "dev"}\n{"step": 2, "ki', 2),
        (b'{"step": 2, "kind": "train"}\n{"step": 2, "kind": "final"}\n', 1),
        (b"", 0),
        (b'\0\0\0\0\n[]\n{"step": "x", "kind": 1}\n', 0),
    ],
)
def test_metrics_that_will_be_written_again_are_forgotten(tmp_path: Path, content: bytes, kept: int) -> None:
    file = tmp_path / "metrics.jsonl"
    file.write_bytes(content)
    forget_after(file, 2, evaluated=1)
    assert file.read_bytes() == b"".join(line + b"\n" for line in content.split(b"\n")[:kept])


def test_tensorboard_shows_scalars_samples_and_attention(tmp_path: Path) -> None:
    settings = config(max_steps=8)
    run_until(8, tmp_path, settings)
    run(tmp_path, settings)
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"scalars": 0, "images": 0})
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 9))
    assert [event.step for event in events.Scalars("dev/dev_bleu")] == [4, 8]
    logged = [entry["loss"] for entry in metrics(tmp_path) if entry["kind"] == "train"]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(logged, rel=1e-6)
    assert {"attention/encoder", "attention/cross"} <= set(events.Tags()["images"])
    assert any(tag.startswith("sample/1") for tag in events.Tags()["tensors"])


def test_the_picture_has_a_square_for_each_head_and_layer() -> None:
    one, other = torch.zeros(1, 3, 2, 4), torch.zeros(1, 3, 2, 4)
    one[0, :, 0, 1] = 1
    other[0, 1, 1, 3] = 0.5
    picture = attention_picture([one, other])
    cell, frame = 10, 4
    height, width = 2 * cell + 2 * frame, 4 * cell + 2 * frame
    assert picture.shape == (2 * height, 3 * width)
    black = [picture[frame + 5, head * width + frame + cell + 5] for head in range(3)]
    grey = picture[height + frame + cell + 5, width + frame + 3 * cell + 5]
    assert (black, grey) == ([0, 0, 0], 128)


def test_a_full_disk_under_the_metrics_is_told_once_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(file: Path, line: str) -> None:
        raise OSError(28, "No space left on device", str(file))

    monkeypatch.setattr("transformer_cli.training.writers.append", full)
    with caplog.at_level(logging.WARNING, logger="tfm"):
        assert run(tmp_path, config(max_steps=4)).model_path.is_file()
    warnings = [message for message in caplog.messages if "No space left" in message]
    assert warnings == [f"{tmp_path}/metrics.jsonl: No space left on device. Training goes on without it"]


def test_the_log_file_has_what_was_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="tfm"):
        run(tmp_path, config(max_steps=4))
    text = (tmp_path / "tfm.log").read_text(encoding="utf-8")
    assert re.search(r"step 4/4, epoch \d+\.\d+/\d+\.\d+: loss", text)
    assert "dev nll" in text
    assert "nrefs:1|case:mixed|eff:no|tok:13a" in text


def test_B3_a_full_disk_under_the_log_file_is_told_once_and_training_goes_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(file: Path) -> IO[str]:
        return open("/dev/full" if file.name == "tfm.log" else file, "a", encoding="utf-8")

    monkeypatch.setattr(writers, "open_own", full)
    with caplog.at_level(logging.INFO, logger="tfm"):
        assert run(tmp_path, config(max_steps=4)).step == 4
    logged = [message for message in caplog.messages if "Training goes on without it" in message]
    assert len(logged) == 1
    assert "No space left on device" in logged[0]
    assert "Traceback" not in capsys.readouterr().err


def test_dev_pairs_too_long_for_training_are_left_out_of_dev_nll_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    text = prepared().dev
    with caplog.at_level(logging.WARNING, logger="tfm"):
        corpus = validation.encode_pairs(text, tokenizers(), max_length=5)
    assert 0 < len(corpus) < len(text)
    assert f"{len(text) - len(corpus)} dev pairs exceed data.max_length=5 tokens" in caplog.text
    with pytest.raises(DataError, match=r"data\.dev: none of 6 pairs is within data\.max_length=2"):
        validation.encode_pairs(text, tokenizers(), max_length=2)


# Learning


def test_copying_is_learnt_to_perfection(tmp_path: Path) -> None:
    settings = config(
        model=replace(MODEL, d_model=64, d_ff=64, dropout=0.0, tie_embeddings=Tying.none),
        schedule=ScheduleConfig(name="linear", lr=0.005, warmup_steps=40),
        max_steps=400,
        tokens_per_update=400,
        max_tokens_per_microbatch=800,
        eval_every=400,
        save_every=400,
        log_every=100,
        average_last=1,
    )
    corpus = prepared(3000, 100)
    result = train(settings, corpus, tmp_path, device=CPU)
    shipped = read_model(result.model_path)
    translator = torch_translator(shipped.build(CPU), shipped.tokenizers, settings.decode, device=CPU)
    assert [translated.text for translated in translator.translate(corpus.dev.sources)] == corpus.dev.targets
    assert result.dev_score == pytest.approx(100)
