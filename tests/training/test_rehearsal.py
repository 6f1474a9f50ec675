"""An update and a step of a search never wait for the device, nor mix it with the CPU: rehearsed on the meta device.

Shapes: B sentences, S source, N beams, R = B × N rows.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.addons.classification import toy_classifier
from tests.addons.language_models import toy_text
from tests.conftest import slow, slow_but
from tests.support.each import each
from tests.support.rehearsal import META, Rehearsal, rehearse
from tests.toy import run as toy_run
from tests.toy.translator import (
    GREEDY,
    SAMPLE,
    VARIANTS,
    engine_of,
    random_model,
    sentences,
    toy_tokenizer,
    translator_of,
)
from transformer_cli.addons.language_models.incremental import LanguageModelDecoder
from transformer_cli.config.data import DataConfig
from transformer_cli.config.model import Activation, Autoregression, ModelConfig, Norm, Positions, Tying
from transformer_cli.config.train import OptimizerConfig, Precision, TrainConfig
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.clean import CleaningReport
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.search.request import SYNC_INTERVAL
from transformer_cli.inference.incremental import IncrementalDecoder, incremental_decoder, of_each_row
from transformer_cli.models.ensemble import Ensemble
from transformer_cli.models.kernel_choice import PackedKernel
from transformer_cli.training import trainer as trainer_module
from transformer_cli.training.optimizers import take_step
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.saver import Copies
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.state import TrainingState
from transformer_cli.training.validation import TranslationValidator

MOST_BUCKETS = 8  # lengths that sentences are padded to, where attention cannot take them as they are
LAYERS = 1

# Functions that may wait for the device, and why; see `rehearse`.
SETTING_UP = {"Trainer._placed": "once a run: the weights are drawn on the CPU, so that they are the same everywhere"}
LOGGING = {
    "MetricAccumulator.means": "once a log line",
    "MetricAccumulator.state": "once a checkpoint",
    "NonFiniteTracker.counts": "once a checkpoint, or where training diverges",
    "Trainer.is_sound": "once a checkpoint",
    "Ema.is_sound": "once a checkpoint",
}
EVALUATING = {"Validator._nll": "once an evaluation: its sum"}

SIZES: dict[str, Any] = {
    "n_encoder_layers": LAYERS,
    "n_decoder_layers": LAYERS,
    "d_model": 16,
    "n_heads": 2,
    "d_ff": 32,
    "dropout": 0.1,
}


def corpus(*, task: str, n: int = 160) -> EncodedCorpus:
    """Sentences of all pairs of lengths up to 18, more or less."""
    draw = random.Random(3)

    def drawn() -> list[int]:
        return [draw.randint(5, 20) for _ in range(draw.randint(2, 18))]

    targets = [[draw.randint(0, 2)] if task == "classification" else drawn() for _ in range(n)]
    return EncodedCorpus.of([[] if task == "language_model" else drawn() for _ in targets], targets)


@cache
def prepared(task: str) -> Prepared:
    tokenizers = {
        "translation": toy_run.tokenizers(),
        "language_model": Tokenizers(toy_text.tokenizer(), toy_text.tokenizer()),
        "classification": Tokenizers(
            toy_classifier.toy_tokenizer(), toy_classifier.toy_tokenizer(), toy_classifier.LABELS
        ),
    }[task]
    return Prepared(tokenizers, corpus(task=task), ParallelText([], []), None, "", CleaningReport())


MODEL_NAME = {"translation": "transformer", "language_model": "decoder", "classification": "classifier"}


def config_of(task: str = "translation", *, optimizer: str = "adam", **changes: Any) -> TrainConfig:
    """Updates of several micro-batches; `changes` are of `train` and of `model`."""
    model = {key: value for key, value in changes.items() if hasattr(ModelConfig, key)}
    train = {key: value for key, value in changes.items() if key not in model}
    base = toy_run.config(**{"max_tokens_per_microbatch": 30, "tokens_per_update": 90, "best_metric": "nll", **train})
    return replace(
        base,
        model=ModelConfig(**{**SIZES, "name": MODEL_NAME[task], **model}),
        data=DataConfig(name="toy", task=task, source_lang="en", target_lang="xx", max_length=20),
        optimizer=OptimizerConfig(name=optimizer),
    )


def training(config: TrainConfig) -> TrainingState:
    with rehearse(allowed=SETTING_UP):
        return TrainingState(config, prepared(config.data.task), META, Ranks(StopRequest()))


def update(run: TrainingState, *, allowed: dict[str, str] | None = None, n_batches: int = 3) -> Rehearsal:
    """An update as the training loop makes it: its batches, the step, the metrics, and the check for divergence."""
    with rehearse(allowed=allowed) as seen:
        batches = run.batches(run.progress.step + 1)
        assert len(batches) >= n_batches
        stats = run.train_step(batches)
        run.trainer.nonfinite.poll()
    assert all(x.is_meta for x in (stats.loss, stats.nll, stats.grad_norm, stats.finite))
    assert seen.faults == []
    return seen


@pytest.fixture
def fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computes in fp16, as on a GPU without bf16."""
    monkeypatch.setattr(trainer_module, "choose_dtype", lambda wanted, device: torch.float16)


# ---- Training

OPTIONS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-LN": {"norm": Norm.pre},
    "RMS": {"norm_kind": "rms"},
    **{activation.name: {"activation": activation} for activation in Activation},
    **{positions.name: {"positions": positions} for positions in Positions},
    **{f"tied {tying.name}": {"tie_embeddings": tying} for tying in Tying},
    "without biases": {"bias": False, "norm": Norm.pre},
    "heads of two widths": {"d_k": 12, "d_v": 8},
    "attention dropout": {"attention_dropout": 0.1},
    "all dropout": {"attention_dropout": 0.1, "activation_dropout": 0.1},
    "no dropout": {"dropout": 0.0},
    "no smoothing": {"label_smoothing": 0.0},
    "activation checkpointing": {"activation_checkpointing": True},
    "bf16": {"precision": Precision.bf16},
    "bf16, checkpointing": {"precision": Precision.bf16, "activation_checkpointing": True},
    "clipping, moving average": {"clip_norm": 1.0, "ema": 0.9},
    "AdamW": {"optimizer": "adamw"},
    "Muon": {"optimizer": "muon", "clip_norm": 1.0},
    "SSRU": {"decoder": Autoregression.ssru},
    "language model": {"task": "language_model"},
    "language model, rotary, bf16": {
        "task": "language_model",
        "positions": Positions.rotary,
        "precision": Precision.bf16,
    },
    "classifier, first": {"task": "classification", "pooling": "first"},
    "classifier, mean": {"task": "classification", "pooling": "mean"},
    "classifier, max": {"task": "classification", "pooling": "max", "convolution": 3},
}


@pytest.mark.parametrize("name", slow_but(OPTIONS, "bf16, checkpointing"))
def test_an_update_does_not_wait_for_the_device(name: str) -> None:
    run = training(config_of(**OPTIONS[name]))
    for _ in range(2):
        update(run)


@pytest.mark.usefixtures("fp16")
@pytest.mark.parametrize("options", [slow({}), slow({"clip_norm": 1.0, "ema": 0.9}), slow({"optimizer": "muon"})])
def test_an_update_in_fp16_with_its_scaler_does_not_wait(options: dict[str, Any]) -> None:
    run = training(config_of(**options))
    assert run.trainer.scaler.is_enabled()
    for _ in range(2):
        update(run)


def test_an_optimizer_skips_on_the_device() -> None:
    """The tensor `skip` decides, which no host reads."""
    for name in ("adam", "adamw", "muon"):
        run = training(config_of(optimizer=name))
        for parameter in run.trainer.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        with rehearse():
            take_step(run.trainer.optimizer, skip=torch.ones((), dtype=torch.bool, device=META))


def test_a_log_line_waits_and_the_metrics_after_it_begin_without() -> None:
    run = training(config_of())
    update(run)
    with rehearse(allowed=LOGGING) as seen:
        assert run.metrics.means() is None  # what is read is zeros: no tokens
        run.reset_metrics()
    assert set(seen.waits) == {"MetricAccumulator.means"}


def test_a_checkpoint_is_copied_while_the_device_goes_on() -> None:
    run, copies = training(config_of(ema=0.9)), Copies()
    update(run)
    with rehearse():
        found = copies.of(run.trainer.model.state_dict(), "model")
        found |= copies.of(run.trainer.optimizer_state(), "optimizer")
        assert all(copy.is_cpu and copy.is_pinned() for copy in found.values())
    with rehearse(allowed=LOGGING) as seen:
        run.trainer.is_sound()
        run.trainer.nonfinite.counts()
        run.metrics.state()
    assert set(seen.waits) < set(LOGGING)


ONE_LARGE_BATCH = {"tokens_per_update": 1000, "max_tokens_per_microbatch": 2000}


def forward(run: TrainingState) -> Rehearsal:
    """The rehearsal of one batch with more lengths than buckets."""
    with rehearse() as seen:
        (batch,) = run.batches(1)
        assert len(batch.runs) > MOST_BUCKETS
        run.trainer._loss(batch)
    return seen


@each(
    "name, n_attentions",
    [
        ("paper", 3),
        ("bf16", 3),
        ("attention dropout", 3),
        ("heads of two widths", 3),
        ("language model", 1),
        ("classifier, mean", 1),
    ],
)
def test_attention_takes_few_kernels_whatever_the_lengths(name: str, n_attentions: int) -> None:
    seen = forward(training(config_of(**OPTIONS[name], **ONE_LARGE_BATCH)))
    assert LAYERS * n_attentions <= seen.n_sdpa + seen.n_varlen <= LAYERS * n_attentions * MOST_BUCKETS


@pytest.mark.parametrize("name", ["bf16", "language model, rotary, bf16", "bf16, checkpointing"])
def test_variable_length_attention_takes_one_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta device stands for GPUs from Ampere on here, and for other GPUs elsewhere."""
    monkeypatch.setattr(trainer_module, "choose_kernel", lambda *args: PackedKernel.varlen)
    run = training(config_of(**OPTIONS[name], **ONE_LARGE_BATCH))
    seen = forward(run)
    n_attentions = 1 if "task" in OPTIONS[name] else 3
    assert (seen.n_sdpa, seen.n_varlen) == (0, n_attentions * LAYERS)
    update(run, n_batches=1)


def test_an_evaluation_waits_once_and_takes_few_kernels() -> None:
    config = config_of(**ONE_LARGE_BATCH)
    run, validator = training(config), TranslationValidator(config, toy_run.prepared(), META)
    validator.batches = [*run.feed.batches(1), *run.feed.batches(2)]
    with rehearse(allowed=EVALUATING) as seen:
        validator.nll(run.trainer.model, run.trainer.autocast)
    assert seen.waits["Validator._nll"] == 1
    assert seen.n_sdpa + seen.n_varlen <= 2 * LAYERS * 3 * MOST_BUCKETS


# ---- Decoding


def decoders() -> dict[str, Callable[[], IncrementalDecoder]]:
    def model(name: str, seed: int = 1) -> Any:
        return random_model(toy_tokenizer(), config=VARIANTS[name], seed=seed).to(META)

    found: dict[str, Callable[[], IncrementalDecoder]] = {
        name: lambda name=name: incremental_decoder(model(name))
        for name in VARIANTS  # type: ignore[misc]
    }
    return {**found, "ensemble": lambda: incremental_decoder(Ensemble([model("paper"), model("odd", seed=2)]))}


def ids(*shape: int) -> Tensor:
    return torch.zeros(*shape, dtype=torch.long, device=META)


# Alone, a group that shares its keys, too many for one.
EACH_BEAM = pytest.mark.parametrize("beam_size", [slow(1), 4, slow(17)])


@EACH_BEAM
@pytest.mark.parametrize("name", decoders())
def test_a_step_of_decoding_does_not_wait(name: str, beam_size: int) -> None:
    decoder = decoders()[name]()
    with rehearse() as seen:
        cache: Any = decoder.start(ids(3, 7), beam_size=beam_size, max_length=9, keeps_attention=True)
        for _ in range(3):
            logits_RV = of_each_row(decoder.step(ids(3 * beam_size), cache), 3 * beam_size)
            assert logits_RV.shape == (3 * beam_size, len(toy_tokenizer()))
        assert cache.attention_BNS.shape == (3, beam_size, 7)
    assert seen.n_sdpa > 0


@EACH_BEAM
@pytest.mark.parametrize("name", ["paper", "ensemble"])
def test_beams_that_change_places_and_sentences_that_leave_do_not_wait(name: str, beam_size: int) -> None:
    decoder = decoders()[name]()
    for n_left, leave in ((3, []), (2, [ids(2)])):
        with rehearse():
            cache: Any = decoder.start(ids(3, 7), beam_size=beam_size, max_length=9)
            decoder.step(ids(3 * beam_size), cache)
            cache.reorder(ids(n_left * beam_size), *leave)
            assert len(decoder.step(ids(n_left * beam_size), cache)) == n_left * beam_size


@EACH_BEAM
@pytest.mark.parametrize("name", [slow("paper"), slow("concat"), "modern", "ensemble"])
def test_a_static_cache_does_not_wait(name: str, beam_size: int) -> None:
    decoder = decoders()[name]()
    with rehearse():
        cache: Any = decoder.static_cache(ids(3, 7), 3, 7, beam_size=beam_size, max_length=9, keeps_attention=True)
        for sentences_B in (ids(3, 7), ids(2, 7)):
            decoder.restart(sentences_B, cache)
            for position in range(2):
                cache.advance(position, 8)
                decoder.step(ids(3 * beam_size), cache)
                cache.reorder(ids(3 * beam_size), ids(3))
        cache.front(2).advance(2, 8)
        assert len(decoder.step(ids(2 * beam_size), cache.front(2))) == 2 * beam_size


@EACH_BEAM
@pytest.mark.parametrize("positions", Positions)
def test_a_language_model_is_decoded_without_a_wait(positions: Positions, beam_size: int) -> None:
    decoder = LanguageModelDecoder(toy_text.language_model(ModelConfig(**toy_text.SIZES, positions=positions)).to(META))
    with rehearse():
        logits_BV, cache = decoder.start(ids(3, 4), beam_size=beam_size, max_length=9)
        for _ in range(3):
            assert len(decoder.step(ids(3 * beam_size), cache)) == 3 * beam_size
    assert logits_BV.is_meta
    if beam_size == 4:
        with rehearse():
            cache.reorder(ids(12))
            decoder.step(ids(12), cache)


SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": GREEDY,
    "beam": {"beam_size": 4},
    "n-best": {"beam_size": 4, "n_best": 4},
    "groups": {"beam_size": 4, "diversity_groups": 2},
    "coverage": {"beam_size": 4, "coverage_penalty": 0.4},
    "sampling": SAMPLE,
    "top k": {**SAMPLE, "top_k": 5},
    "top p": {**SAMPLE, "top_p": 0.9},
}


LONG = dict.fromkeys(("run", "sample", "Scoring.__init__"), 100)  # what they read is how long translations may be


class Enough(BaseException):
    """What no code catches."""


def waits_of_steps(name: str, *, n_steps: int) -> list[int]:
    """How often a search has waited before each of its steps; it reads that nothing is done and everything is long."""
    model = random_model(toy_tokenizer(), config=VARIANTS["paper"]).to(META)
    found: list[int] = []
    with rehearse(collects=True, integers=LONG) as seen, pytest.raises(Enough):
        translator = translator_of(toy_tokenizer(), model=model, device="meta", **SEARCHES[name])
        decoder, engine = incremental_decoder(model), engine_of(translator)

        class Counting:
            start = decoder.start

            def step(self, ids_R: Tensor, cache: Any) -> Tensor:
                if len(found) == n_steps:
                    raise Enough
                found.append(len(seen.faults))
                return decoder.step(ids_R, cache)

        engine.decoder = Counting()
        translator.translate(sentences(5, seed=1))
    return found


@pytest.mark.parametrize("name", slow_but(SEARCHES, "groups", "top p"))
def test_a_step_of_a_search_does_not_wait(name: str) -> None:
    """The search reads which sentences are done once, before the last steps counted here."""
    waits = waits_of_steps(name, n_steps=SYNC_INTERVAL + 3)
    assert waits[SYNC_INTERVAL - 1] == waits[1]
    assert waits[-1] == waits[SYNC_INTERVAL] == waits[1] + 1
