"""A batch that the memory is too small for."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.addons.language_models.test_generate import going_on
from tests.conftest import ROOT
from tests.support.contract import refused
from tests.support.each import each
from tests.toy.run import CPU, MODEL, config, metrics, prepared, run, tokenizers
from tests.toy.translator import GREEDY, SAMPLE, random_model, sentences, texts, toy_tokenizer, translator_of
from transformer_cli import cli
from transformer_cli.addons.embedding.encode import ask_each
from transformer_cli.addons.language_models.incremental import LanguageModelDecoder
from transformer_cli.data.batching import Batch, BatchPlan, micro_batches
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.errors import EnvironmentFault
from transformer_cli.inference.force_decode import force_decode
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.models import memory
from transformer_cli.models.memory import is_out_of_memory
from transformer_cli.models.transformer import Transformer
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.validation import Validator

PLAIN = config(model=replace(MODEL, dropout=0.0), max_tokens_per_microbatch=100)


def shrink_memory(monkeypatch: pytest.MonkeyPatch, n_rows: int, error: BaseException | None = None) -> list[int]:
    """Let the backward pass of a batch of more pairs fail when it has left half of its gradient; the rows tried."""
    forward_backward, tried = Trainer.forward_backward, []

    def small(self: Trainer, batch: Batch, **kwargs: Any) -> Any:
        tried.append(batch.n_pairs)
        sums = forward_backward(self, batch, **kwargs)
        if batch.n_pairs > n_rows:
            raise error or torch.OutOfMemoryError("CUDA out of memory.")
        return sums

    monkeypatch.setattr(Trainer, "forward_backward", small)
    return tried


def updated(max_cells: int = 100) -> tuple[Trainer, Any]:
    corpus, trainer = prepared().train, Trainer(PLAIN, tokenizers(), CPU)
    trainer.model.double()
    plan = BatchPlan(corpus.source_lengths, corpus.target_lengths, tokens_per_update=40, seed=1)
    batches = micro_batches(corpus, plan.update(0), tokenizers(), max_tokens=max_cells)
    return trainer, trainer.train_step(batches, step=1, lr=0.01)


@pytest.mark.parametrize("n_rows", [1, 2, 4])
def test_B8_a_batch_too_large_is_cut_in_two_until_it_fits_and_teaches_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, n_rows: int
) -> None:
    expected, stats = updated()
    tried = shrink_memory(monkeypatch, n_rows)
    trainer, again = updated()
    assert max(tried) > n_rows >= tried[-1]
    assert trainer.n_splits == len(caplog.messages) > 0
    assert (
        "it is split in two and tried again (1 times so far). Lower train.max_tokens_per_microbatch"
        in caplog.messages[0]
    )
    assert again.loss.item() == pytest.approx(stats.loss.item(), rel=1e-6)
    assert again.grad_norm.item() == pytest.approx(stats.grad_norm.item(), rel=1e-6)
    for name, weight in expected.model.state_dict().items():
        torch.testing.assert_close(trainer.model.state_dict()[name], weight, rtol=1e-6, atol=1e-8)


def test_B8_a_single_pair_that_does_not_fit_names_the_keys_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_memory(monkeypatch, 0)
    with pytest.raises(EnvironmentFault) as refused:
        updated()
    assert str(refused.value).startswith("step 1: out of memory with a single pair of ")
    assert str(refused.value).endswith("Lower data.max_length, or choose a smaller model")


def test_B8_splits_are_counted_in_the_metrics_and_the_run_ends_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shrink_memory(monkeypatch, 2)
    assert run(tmp_path, replace(PLAIN, train=replace(PLAIN.train, max_steps=4))).step == 4
    train = [entry for entry in metrics(tmp_path) if entry["kind"] == "train"]
    assert train[-1]["split"] > train[0]["split"] > 0


def test_B8_the_second_try_is_the_same_in_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_memory(monkeypatch, 2)
    settings = config(max_tokens_per_microbatch=100, max_steps=4)  # dropout on
    for name in ("first", "second"):
        run(tmp_path / name, settings)
    assert metrics(tmp_path / "first") == metrics(tmp_path / "second")


def test_an_error_that_is_not_about_memory_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = shrink_memory(monkeypatch, 1, RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        updated()
    assert len(tried) == 1


REAL = """
import resource, sys, torch
from transformer_cli.models.memory import is_out_of_memory
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    torch.zeros(1 << 33)
except BaseException as error:
    sys.exit(0 if is_out_of_memory(error) else repr(error))
"""


def test_B8_what_torch_raises_on_a_cpu_without_memory_is_recognised() -> None:
    result = subprocess.run([sys.executable, "-c", REAL], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))


# Searching, scoring and encoding

SAID = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    MemoryError(),
]


@each("error", SAID)
def test_B8_whatever_library_says_it_a_memory_that_is_too_small_is_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize("message", ["CUDA error: device-side assert triggered", "CUBLAS_STATUS_NOT_INITIALIZED"])
def test_B8_another_fault_of_a_gpu_is_not_one_of_memory(message: str) -> None:
    assert not is_out_of_memory(RuntimeError(message))


@pytest.fixture
def lines() -> list[str]:
    memory._warned.cache_clear()
    return sentences(12, seed=5)


def shrink_search(patch: pytest.MonkeyPatch, n_rows: int, error: BaseException = SAID[0]) -> list[int]:
    """Let the beginning of a search fail for more sentences than these; how many were tried."""
    start, tried = TransformerDecoder.start, []

    def small(self: TransformerDecoder, source_BS: Tensor, *args: Any, **kwargs: Any) -> Any:
        tried.append(len(source_BS))
        if len(source_BS) > n_rows:
            raise error
        return start(self, source_BS, *args, **kwargs)

    patch.setattr(TransformerDecoder, "start", small)
    return tried


SEARCHES: dict[str, dict[str, Any]] = {
    "beam": {"n_best": 4},
    "greedy": GREEDY,
    "sample": SAMPLE,
    "mbr": {"search": "mbr", "beam_size": 1, "n_samples": 3},
}


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("n_rows", [1, 5])
def test_B8_a_batch_too_large_to_search_is_cut_in_two_and_says_the_same(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], caplog: pytest.LogCaptureFixture, search: str, n_rows: int
) -> None:
    expected = texts(translator_of(toy_tokenizer(), **SEARCHES[search]).translate(lines))
    tried = shrink_search(monkeypatch, n_rows)
    assert texts(translator_of(toy_tokenizer(), **SEARCHES[search]).translate(lines)) == expected
    assert max(tried) > n_rows
    (logged,) = caplog.messages  # once, however often it happens
    assert "sentences; it is cut in two and tried again" in logged
    assert "Lower decode.batch_tokens" in logged


@pytest.mark.parametrize("error", SAID[::5], ids=["gpu", "cpu"])
def test_B8_a_single_sentence_too_large_to_search_names_the_keys_to_lower(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], error: Exception
) -> None:
    shrink_search(monkeypatch, 0, error)
    with pytest.raises(EnvironmentFault) as refused:
        translator_of(toy_tokenizer()).translate(lines)
    assert str(refused.value) == (
        f"out of memory with a single sentence ({type(error).__name__})."
        " Lower decode.beam_size or decode.max_source_length, or choose another device="
    )


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
@pytest.mark.parametrize("n_rows", [3, 0])
def test_B8_a_process_without_memory_translates_fewer_at_a_time(
    monkeypatch: pytest.MonkeyPatch, lines: list[str], n_rows: int
) -> None:
    expected = texts(translator_of(toy_tokenizer(), **GREEDY).translate(lines))
    translator = translator_of(toy_tokenizer(), **GREEDY, batch_tokens=60, parallel=True)
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    assert engine.pool is not None
    engine.pool.n_workers = 2
    shrink_search(monkeypatch, n_rows, MemoryError())
    try:
        if n_rows:
            assert texts(translator.translate(lines)) == expected
        else:
            with pytest.raises(EnvironmentFault, match="single sentence"):
                translator.translate(lines)
    finally:
        if engine.pool.executor is not None:
            engine.pool.executor.shutdown()


def test_an_error_of_a_search_that_is_not_about_memory_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    tried = shrink_search(monkeypatch, 1, RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        translator_of(toy_tokenizer()).translate(lines)
    assert len(tried) == 1


def test_B8_a_batch_too_large_to_score_is_cut_in_two(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    ids, predict = toy_tokenizer(), Transformer.predict_in_parts
    model, pairs = random_model(ids), [(one, one) for one in ids.encode(lines)]

    def score() -> list[float]:
        read = force_decode(model, pairs, Tokenizers(ids, ids), device=CPU, batch_tokens=4096)
        return [one.log_prob for one in read]

    def small(self: TransformerDecoder, source_BS: Tensor, *args: Any, **kwargs: Any) -> Any:
        if len(source_BS) > 2:
            raise SAID[2]
        return predict(self, source_BS, *args, **kwargs)

    expected = score()
    monkeypatch.setattr(Transformer, "predict_in_parts", small)
    assert score() == pytest.approx(expected, rel=1e-6)


def test_B8_a_batch_too_large_to_encode_is_cut_in_two(lines: list[str]) -> None:
    def ask(source_BS: Tensor) -> Tensor:
        if len(source_BS) > 2:
            raise MemoryError
        return source_BS.sum(dim=1, keepdim=True)  # PAD is 0

    ids = toy_tokenizer().encode(lines)
    found = ask_each(ask, ids, pad_id=0, device=CPU, batch_tokens=4096)
    assert [int(one) for one in found] == [sum(one) for one in ids]


def test_B8_a_prompt_too_large_to_go_on_from_names_the_keys_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise SAID[1]

    monkeypatch.setattr(LanguageModelDecoder, "step", fail)
    with pytest.raises(EnvironmentFault, match=r"\(RuntimeError\)\. Lower decode\.beam_size, decode\.n_best or"):
        going_on("the cat")


def test_B8_an_average_that_does_not_fit_into_memory_is_no_bug_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score, n_calls = Validator.score, 0

    def failing(self: Validator, *args: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls > 2:
            raise SAID[0]
        return score(self, *args)

    monkeypatch.setattr(Validator, "score", failing)
    with pytest.raises(EnvironmentFault, match=r"step 4: out of memory while evaluating\. Lower decode\.batch_tokens"):
        run(tmp_path, config(max_steps=4, eval_every=2))


@pytest.mark.parametrize("error", SAID[:1] + SAID[-1:], ids=["gpu", "cpu"])
def test_B8_wherever_memory_ends_it_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_: list[str]) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    says = [f"out of memory ({type(error).__name__}). Free some, choose another device=, or lower decode.batch_tokens"]
    refused(["attention"], tmp_path, code=5, says=says)
