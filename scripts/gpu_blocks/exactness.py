"""(b) Results on the GPU beside those of the CPU in fp32, the effect of the batch, and host syncs.

Shapes: V vocabulary.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_blocks.block import NO_GPU, Block, failure
from gpu_blocks.syncs import counted_syncs, refused_syncs
from gpu_blocks.translating import DTYPES
from transformer_cli.addons.benchmarks.decoders import Rows, TfmEngine
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.reference import gradient_errors
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.tfm_training import TfmTraining
from transformer_cli.addons.benchmarks.workload import random_model
from transformer_cli.config.train import Precision
from transformer_cli.data.batching import Batch
from transformer_cli.decoding.results import Translated
from transformer_cli.models.file import ModelFile
from transformer_cli.training.forward import predict_batch
from transformer_cli.training.loop import check_loss
from transformer_cli.training.precision import set_float32_products

CPU = torch.device("cpu")
TRAINING, TOY_TRAINING = ("fp32", "tf32", "bf16", "fp16"), ("fp32", "bf16")
SMALL = "train.tokens_per_update=1000 train.max_tokens_per_microbatch=1120"  # a batch that a CPU can check
SHARPENING = 2.0  # of the random model: at the usual one no near tie is found
FP16_SCALE = 1024.0  # the first scale is found by updates that overflow, which are skipped
N_LINES, TOY_LINES = 256, 12  # that are translated in other batches; a quarter of them by both devices
LENGTHS = (3, 40)  # tokens of a line, lowest and highest
N_SYNCED = 5  # updates
BEAMS = (1, 4)


def run(block: Block) -> None:
    models: list[ModelFile] = []

    def model() -> ModelFile:
        if not models:
            models.append(random_model(block.config(), sharpening=SHARPENING))
        return models[0]

    for title, work in (
        ("host syncs of updates", lambda: syncs_of_updates(block)),
        ("host syncs of searches", lambda: syncs_of_searches(block, model())),
    ):
        if block.on_gpu:
            block.measure(title, work, needs_s=30)
        else:
            block.leave_out(title, NO_GPU)
    block.measure("training beside the CPU", lambda: training(block), needs_s=30)
    block.measure("batch invariance", lambda: invariance(block, model()), needs_s=30)
    block.measure("translations beside the CPU", lambda: translations(block, model()), needs_s=30)


# ---- Updates


def training(block: Block) -> Measured:
    """Logits, loss, gradient and first update of the same weights and sentences, without dropout."""
    columns = ("", "logits", "loss", "gradient", "of a parameter", "update")
    found = Measured("training", columns)
    base = block.config("base", "model.dropout=0", *([] if block.is_toy else SMALL.split()))
    wanted = outcome(with_precision(base, "fp32", "none"), CPU)
    kinds = [(name, mode) for mode in ("none", "default") for name in precisions(block)]
    for name, mode in [kind for kind in kinds if block.on_gpu or kind[1] == "none"]:
        if mode == "default" and name in ("fp32", "tf32"):
            continue  # what is not compiled today may be tomorrow: then with another kernel of attention
        try:
            one = outcome(with_precision(base, name, mode), block.device)
        except Exception as error:
            found.notes.append(f"{name}, compile={mode} failed: {failure(error)}")
            continue
        errors = compared(one, wanted)
        found.rows.append([f"{name}, compile={mode}", *(f"{error:.1e}" for error in errors.values())])
        found.figures[f"{name}, {mode}"] = errors
        block.keep(found)
    found.notes.insert(
        0,
        "Relative differences from the CPU in fp32: the largest of the logits, to the largest logit; the loss; the norm"
        " of the gradient's difference, of all parameters and of the worst; and of the first update of Adam, in which a"
        " gradient near zero may change its sign.",
    )
    return found


def precisions(block: Block) -> tuple[str, ...]:
    return TRAINING if block.on_gpu else TOY_TRAINING


def with_precision(config: BenchConfig, name: str, mode: str) -> BenchConfig:
    settings = replace(config.train, precision=Precision(name), compile=type(config.train.compile)(mode))
    return replace(config, train=settings)


def outcome(config: BenchConfig, device: torch.device) -> dict[str, Any]:
    """Computes on the CPU logits, loss, gradient and update of the first batch of the workload."""
    worker = TfmTraining(config, device)
    with closing(worker.ahead):
        trainer = worker.run.trainer
        batch: Batch = worker.run.feed.batches(1)[0]
        before = {name: p.detach().cpu().clone() for name, p in trainer.model.named_parameters()}
        with torch.no_grad(), trainer.autocast():
            logits_TV, _ = predict_batch(trainer.whole_model, batch, device)
        if trainer.scaler.is_enabled():
            trainer.scaler.update(FP16_SCALE)
        (ready,) = trainer.ready([batch])
        trainer.gradients.clear()
        loss, _ = trainer.forward_backward(ready, seed=0, n_tokens=batch.n_target_tokens).tolist()
        scale = trainer.scaler.get_scale()
        gradient = {
            name: p.grad.double().cpu() / scale for name, p in trainer.model.named_parameters() if p.grad is not None
        }
        worker.run.trainer.train_step([ready], step=1, lr=1e-3)
        update = {name: p.detach().cpu().double() - before[name] for name, p in trainer.model.named_parameters()}
        return {"logits": logits_TV.float().cpu(), "loss": loss, "gradient": gradient, "update": update}


def compared(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, float]:
    logits, expected = found["logits"], wanted["logits"]
    width = min(logits.size(-1), expected.size(-1))  # a GPU pads the vocabulary
    off = (logits[..., :width] - expected[..., :width]).abs().max() / expected.abs().max()
    gradients, updates = (
        ({name: trimmed(x, wanted[key][name]) for name, x in found[key].items()}, wanted[key])
        for key in ("gradient", "update")
    )
    whole, of_each = gradient_errors(*gradients)
    moved, _ = gradient_errors(*updates)
    return {
        "logits": float(off),
        "loss": abs(found["loss"] / wanted["loss"] - 1),
        "gradient": whole,
        "of a parameter": max(of_each.values()),
        "update": moved,
    }


def trimmed(x: Tensor, like: Tensor) -> Tensor:
    """The tensor without the rows that a GPU adds to the embeddings."""
    return x[tuple(slice(0, n) for n in like.shape)]


def syncs_of_updates(block: Block) -> Measured:
    found = Measured("syncs", ("", "host syncs an update", "places", "with syncs as errors"))
    for mode in ("none", "default"):
        config = replace(with_precision(block.config(), "bf16", mode), n_updates=N_SYNCED)
        worker = TfmTraining(config, block.device)
        with closing(worker.ahead):
            worker.round()
            batches = [worker.ahead.take(worker.run.progress.step + 1 + n) for n in range(3 * N_SYNCED)]

            def updates(worker: TfmTraining = worker, batches: list[list[Batch]] = batches) -> None:
                for _ in range(N_SYNCED):
                    worker.run.train_step(batches.pop(0))
                    check_loss(worker.run, worker.process)

            add_syncs(found, f"compile={mode}", updates, per=N_SYNCED)
    return found


# ---- Searches


def syncs_of_searches(block: Block, model: ModelFile) -> Measured:
    found = Measured("syncs", ("", "host syncs a step", "places", "with syncs as errors"))
    rows = random_rows(model, 32, seed=1)
    for beam_size in BEAMS:
        for graphs in (True, False):
            engine = engine_of(block, model, "bf16", parallel=graphs)
            engine.search(rows, beam_size)  # captures the graphs
            n_steps = max(map(len, rows)) + 1

            def search(engine: TfmEngine = engine, beam_size: int = beam_size) -> None:
                engine.search(rows, beam_size)

            name = f"{'greedy' if beam_size == 1 else f'beam {beam_size}'}, graphs {'on' if graphs else 'off'}"
            add_syncs(found, name, search, per=n_steps)
    found.notes = ["A batch of 32 sentences; a step stands for one more token of the longest."]
    return found


def add_syncs(found: Measured, name: str, work: Callable[[], None], *, per: int) -> None:
    with counted_syncs() as places:
        work()
    try:
        with refused_syncs():
            work()
        strict = "none"
    except RuntimeError as error:
        strict = failure(error)
    listed = ", ".join(f"{where} × {count / per:.2g}" for where, count in places.most_common())
    found.rows.append([name, f"{sum(places.values()) / per:.2f}", listed or "none", strict])
    found.figures[name] = {where: count / per for where, count in places.items()}


def invariance(block: Block, model: ModelFile) -> Measured:
    """The same lines as one text, in small batches, and among other lines in another order."""
    found = Measured("invariance", ("", "texts changed", "largest difference of a score"))
    rows = random_rows(model, TOY_LINES if block.is_toy else N_LINES, seed=1)
    order = np.random.default_rng(2).permutation(len(rows)).tolist()
    for name in precisions(block):
        with products_in(block, name):
            engine = engine_of(block, model, name)
            for beam_size in BEAMS:
                small = engine_of(block, model, name, batch_tokens=8 * LENGTHS[1] * beam_size)
                wanted = engine.search(rows, beam_size)
                half = len(rows) // 2
                parts = [engine.search([rows[i] for i in part], beam_size) for part in (order[:half], order[half:])]
                mixed = dict(zip(order, [one for part in parts for one in part], strict=True))
                others = [*small.search(rows, beam_size), *(mixed[i] for i in range(len(rows)))]
                add_difference(found, f"{name}, {search_name(beam_size)}", others, [*wanted, *wanted])
                block.keep(found)
    found.notes = [
        f"{len(rows)} lines of a random model with many near ties, in batches of about 8, and shuffled in two halves,"
        " beside all of them at once."
    ]
    return found


def translations(block: Block, model: ModelFile) -> Measured:
    """Greedy and beam translations of both devices."""
    found = Measured("translations", ("", "texts changed", "largest difference of a score"))
    rows = random_rows(model, (TOY_LINES if block.is_toy else N_LINES) // 4, seed=1)
    on_cpu = TfmEngine(model, replace(block.config().decode, max_extra_length=0), device=CPU, parallel=False)
    wanted = {beam_size: on_cpu.search(rows, beam_size) for beam_size in BEAMS}
    for name in precisions(block):
        with products_in(block, name):
            engine = engine_of(block, model, name)
            for beam_size in BEAMS:
                add_difference(
                    found, f"{name}, {search_name(beam_size)}", engine.search(rows, beam_size), wanted[beam_size]
                )
    found.notes = [f"{len(rows)} lines, beside the CPU in fp32."]
    return found


def search_name(beam_size: int) -> str:
    return "greedy" if beam_size == 1 else f"beam {beam_size}"


def add_difference(found: Measured, name: str, ones: list[Translated], others: list[Translated]) -> None:
    pairs = [(a.candidates[0], b.candidates[0]) for a, b in zip(ones, others, strict=True)]
    changed = float(np.mean([a.text != b.text for a, b in pairs]))
    off = max(abs(a.score - b.score) for a, b in pairs)
    found.rows.append([name, f"{changed:.1%}", f"{off:.1e}"])
    found.figures[name] = {"texts changed": changed, "largest difference of a score": off}


def engine_of(
    block: Block, model: ModelFile, precision: str, *, batch_tokens: int | None = None, parallel: bool = True
) -> TfmEngine:
    dtype = DTYPES["fp32" if precision == "tf32" else precision]
    settings = {} if batch_tokens is None else {"batch_tokens": batch_tokens}
    decode = replace(block.config().decode, max_extra_length=0, **settings)
    return TfmEngine(model, decode, device=block.device, dtype=dtype, parallel=parallel and block.on_gpu)


@contextmanager
def products_in(block: Block, precision: str) -> Iterator[None]:
    """tf32 is fp32 with other products."""
    set_float32_products(Precision.tf32 if precision == "tf32" else Precision.fp32, block.device)
    try:
        yield
    finally:
        set_float32_products(Precision.fp32, block.device)


def random_rows(model: ModelFile, n: int, *, seed: int) -> Rows:
    random = np.random.default_rng(seed)
    size = len(model.tokenizers.source)
    return [random.integers(4, size, length).tolist() for length in random.integers(*LENGTHS, n)]
