"""train.max_tokens_per_microbatch=auto: a size that fits, found once, and kept when the run is resumed."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import slow
from tests.toy.run import CPU, config, metrics, prepared, run, run_until, sha256
from transformer_cli.config.compose import load_config
from transformer_cli.config.train import Compile, TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.data.fixed_size import size_for
from transformer_cli.data.prepare import Prepared
from transformer_cli.errors import ConfigError, EnvironmentFault
from transformer_cli.training import batch_size, resuming
from transformer_cli.training.batch_size import (
    ON_CPU,
    ROOM,
    SMALLEST,
    fits,
    fitting_batch_size,
    fitting_compiled,
    largest_fitting,
    useful,
)
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.dry_run import DryRun
from transformer_cli.training.trainer import Trainer


@pytest.fixture(scope="module")
def trial() -> DryRun:
    return DryRun(config(), prepared(), CPU)


def limit_memory(
    monkeypatch: pytest.MonkeyPatch, limit: int, *, gradients: int = 0, error: BaseException | None = None
) -> list[int]:
    """Let memory be large enough for `limit` target tokens, or fewer by `gradients` beside those; what was tried."""
    tried = []

    def limited(self: Trainer, batch: Batch, **kwargs: Any) -> torch.Tensor:
        tried.append(batch.n_target_tokens)
        has_gradients = any(parameter.grad is not None for parameter in self.model.parameters())
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        if batch.n_target_tokens > limit - gradients * has_gradients:
            raise error or torch.OutOfMemoryError("CUDA out of memory.")
        return torch.zeros(2)

    monkeypatch.setattr(Trainer, "forward_backward", limited)
    return tried


@pytest.mark.parametrize("limit", [slow(700), slow(3333), 5000, slow(60_000), slow(100_000)])
def test_the_largest_that_fits_with_room_is_found_in_a_few_trials(
    monkeypatch: pytest.MonkeyPatch, trial: DryRun, limit: int
) -> None:
    tried = limit_memory(monkeypatch, limit)
    found = largest_fitting(trial, 1_000_000)
    assert found <= limit / ROOM
    assert found >= limit / ROOM * 15 / 16 - 20  # tokens of the longest sentence, by which batches grow
    assert len(tried) <= 2 * 2 * 16
    assert all(parameter.grad is None for parameter in trial.trainer.model.parameters())


def test_no_more_than_there_is_use_for(monkeypatch: pytest.MonkeyPatch, trial: DryRun) -> None:
    tried = limit_memory(monkeypatch, 10**9)
    assert largest_fitting(trial, 3000) == 3000
    assert max(tried) <= ROOM * 3000
    assert largest_fitting(trial, 40) == 40


@pytest.mark.slow
def test_where_nothing_fits_the_smallest_is_left_to_be_cut(monkeypatch: pytest.MonkeyPatch, trial: DryRun) -> None:
    limit_memory(monkeypatch, 0)
    assert largest_fitting(trial, 10_000) == SMALLEST


@pytest.mark.slow
def test_a_batch_has_to_fit_beside_the_gradients_of_another(monkeypatch: pytest.MonkeyPatch, trial: DryRun) -> None:
    limit_memory(monkeypatch, 5000, gradients=2000)
    assert 3000 / ROOM * 15 / 16 - 20 <= largest_fitting(trial, 10_000) <= 3000 / ROOM


def test_an_error_of_another_kind_is_not_taken_for_a_full_memory(
    monkeypatch: pytest.MonkeyPatch, trial: DryRun
) -> None:
    limit_memory(monkeypatch, 0, error=RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        fits(trial, 300)


def test_a_real_batch_of_that_size_is_computed(trial: DryRun) -> None:
    assert fits(trial, 300)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "expected"), [slow(10**9, 3000), (3000, 3000 - 2 * 375), slow(0, SMALLEST)])
def test_the_number_is_tried_as_the_program_that_will_run(
    monkeypatch: pytest.MonkeyPatch, limit: int, expected: int
) -> None:
    """A compiled update may take more memory than a plain one: here it fits up to `limit` tokens with their room."""
    monkeypatch.setattr(torch, "compile", lambda function, **kwargs: function)
    one = DryRun(config(compile=Compile.default), prepared(), CPU)
    assert one.trainer.compiled is not None
    tried: list[tuple[int, bool]] = []

    def limited(self: Trainer, batch: Batch, **kwargs: Any) -> torch.Tensor:
        is_compiled = size_for(batch, self.compiled_sizes) in self.compiled_sizes
        tried.append((batch.n_target_tokens, is_compiled))
        if batch.n_target_tokens > limit:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return torch.zeros(2)

    monkeypatch.setattr(Trainer, "forward_backward", limited)
    assert fitting_compiled(one, 3000) == expected
    assert all(is_compiled for _, is_compiled in tried)
    assert max(n_tokens for n_tokens, _ in tried) > 3000


@pytest.mark.parametrize("world_size", [1, 3])
def test_there_is_use_for_a_ranks_share_of_the_largest_update(trial: DryRun, world_size: int) -> None:
    corpus, plan = prepared().train, trial.feed.plan
    sums = [max(np.sum(s[plan.update(n)]) for s in (corpus.source_lengths, corpus.target_lengths)) for n in range(8)]
    assert useful(trial, world_size) == int(np.ceil(max(sums) / world_size))


@pytest.mark.parametrize(
    ("available", "tokens_per_update", "world_size", "expected"),
    [
        (10**12, 25_000, 1, ON_CPU),
        (10**12, 1024, 1, 1024),
        (10**12, 1024, 4, 256),
        (8 * 500 * 8 * 25, 25_000, 1, 500),  # an eighth of the memory, 4 bytes for a logit and 4 for its gradient
        (1, 25_000, 1, SMALLEST),
    ],
)
def test_on_a_cpu_it_is_a_constant_unless_memory_or_update_are_small(
    monkeypatch: pytest.MonkeyPatch, available: int, tokens_per_update: int, world_size: int, expected: int
) -> None:
    monkeypatch.setattr(batch_size, "available_memory", lambda: available)
    assert len(prepared().tokenizers.target) == 25
    settings = config(max_tokens_per_microbatch="auto", tokens_per_update=tokens_per_update)
    assert fitting_batch_size(settings, prepared(), CPU, world_size) == expected


def answering(number: int) -> Callable[..., int]:
    """Stands for a search, and holds what it is given to what a run on one CPU has."""

    def found(settings: TrainConfig, corpus: Prepared, device: torch.device, world_size: int) -> int:
        assert settings.train.max_tokens_per_microbatch == "auto"
        assert corpus.fingerprint == prepared().fingerprint
        assert (device, world_size) == (CPU, 1)
        return number

    return found


def test_A16_a_run_keeps_the_number_that_was_found_and_resumes_to_the_last_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    auto = config(max_tokens_per_microbatch="auto", max_steps=6)
    run(tmp_path / "sixteen", config(max_tokens_per_microbatch=16, max_steps=6))
    monkeypatch.setattr(batch_size, "fitting_batch_size", answering(16))
    with caplog.at_level(logging.INFO, logger="tfm"):
        run_until(4, tmp_path / "auto", auto)
    assert "train.max_tokens_per_microbatch=auto: 16, found in 0.0 s" in caplog.messages
    assert CheckpointStore(tmp_path / "auto").load(2).state["environment"]["tokens_per_batch"] == 16
    monkeypatch.setattr(batch_size, "fitting_batch_size", answering(24))  # the memory is not as empty as it was
    with caplog.at_level(logging.INFO, logger="tfm"):
        run(tmp_path / "auto", auto)
    assert "train.max_tokens_per_microbatch=auto: 16, as before" in caplog.messages
    assert metrics(tmp_path / "auto") == metrics(tmp_path / "sixteen")
    assert sha256(tmp_path / "auto/model.safetensors") == sha256(tmp_path / "sixteen/model.safetensors")


def test_A19_on_another_device_it_is_found_again_and_the_change_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    auto = config(max_tokens_per_microbatch="auto", max_steps=6)
    monkeypatch.setattr(batch_size, "fitting_batch_size", answering(16))
    run_until(4, tmp_path, auto)
    monkeypatch.setattr(batch_size, "fitting_batch_size", answering(24))
    monkeypatch.setattr(resuming.platform, "machine", lambda: "abacus")
    run(tmp_path, auto)
    assert "; tokens_per_batch was 16, is 24: the last bits may differ" in caplog.text
    assert CheckpointStore(tmp_path).load(6).state["environment"]["tokens_per_batch"] == 24


def test_the_word_is_a_value_of_the_key_and_no_other_word_is() -> None:
    assert load_config("train", ["train.max_tokens_per_microbatch=auto"]).train.max_tokens_per_microbatch == "auto"
    assert load_config("train", ["train.max_tokens_per_microbatch=512"]).train.max_tokens_per_microbatch == 512
    for value in ("lots", "1.5", "true", "null"):
        with pytest.raises(
            ConfigError, match=r"train\.max_tokens_per_microbatch=.*: no whole number\. Give one, or auto"
        ):
            load_config("train", [f"train.max_tokens_per_microbatch={value}"])
    with pytest.raises(ConfigError, match=r"train\.max_tokens_per_microbatch=0: out of range"):
        load_config("train", ["train.max_tokens_per_microbatch=0"])


def test_a_model_that_does_not_fit_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(batch_size, "DryRun", forget)
    with pytest.raises(
        EnvironmentFault, match=r"^train\.max_tokens_per_microbatch=auto: the model and its optimizer do not fit"
    ):
        fitting_batch_size(config(), prepared(), torch.device("cuda"), 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # torch, of itself
def test_a_gpu_is_filled_and_nothing_is_cut() -> None:
    device = torch.device("cuda")
    settings = config(max_tokens_per_microbatch="auto", tokens_per_update=200)
    found = fitting_batch_size(settings, prepared(), device, 1)
    assert 0 < found <= 400
    assert torch.cuda.memory_reserved(device) < torch.cuda.get_device_properties(device).total_memory / ROOM
