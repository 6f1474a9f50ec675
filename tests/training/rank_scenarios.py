"""Several ranks as forked processes, so that torch is imported once: each scenario's outcome as JSON on stdout.

Its arguments are a group and a folder; test_ranks.py and test_sharding.py run it. The store through which the ranks
meet is kept by a process of its own, as torchrun's agent keeps it: its server is a thread, and a rank forked beside a
running thread may wait forever for a lock that this thread held at that instant.
"""

import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # the first optimizer imports it: better once than in every fork
import torch.distributed as dist
from torch import Tensor

from tests.toy.run import CPU, MODEL, aligned, config, metrics, model_file, packed, prepared
from transformer_cli.config.train import FrozenPrecision, InitConfig, LoraConfig, OnSpike, Sharding, TrainConfig
from transformer_cli.data.batching import Batch
from transformer_cli.errors import TfmError
from transformer_cli.evaluation.metrics import Score
from transformer_cli.training import batch_size, gradients, rollback, spikes, trainer
from transformer_cli.training.gradients import GradientReducer
from transformer_cli.training.loop import train
from transformer_cli.training.main_process import MainProcess
from transformer_cli.training.ranks import Ranks, join_ranks
from transformer_cli.training.signals import stop_signals
from transformer_cli.training.state import TrainingState
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.validation import TranslationScores, Validator
from transformer_cli.training.worker import Worker

PATIENCE_S = 120
Trouble = Callable[[int, int], None]  # at the beginning of an update, on a rank


def in_trouble(at_step: int, on_rank: int, trouble: Callable[[], None]) -> Trouble:
    def happen(step: int, rank: int) -> None:
        if (step, rank) == (at_step, on_rank):
            trouble()

    return happen


def send(signum: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), signum)


def ever_worse(stopping_at: int | None = None) -> Trouble:
    """Let every evaluation score less than the one before, and rank 1 be asked to stop at a step."""
    now = 0

    def score(self: Validator, *args: Any) -> TranslationScores:
        return TranslationScores(1.0, {"bleu": Score("BLEU", 100.0 - now, "scripted")}, [""] * len(self.text))

    def happen(step: int, rank: int) -> None:
        nonlocal now
        now = step
        Validator.score = score  # type: ignore[method-assign, assignment]
        if (step, rank) == (stopping_at, 1):
            send(signal.SIGTERM)()

    return happen


def forget_memory(n_rows: int, *, on_rank: int) -> None:
    """Let batches of more than `n_rows` pairs be too large for one rank."""
    forward_backward = Trainer.forward_backward

    def small(self: Trainer, batch: Batch, **kwargs: Any) -> Any:
        if batch.n_pairs > n_rows and self.ranks.rank == on_rank:
            raise torch.OutOfMemoryError("no memory left in this test")
        return forward_backward(self, batch, **kwargs)

    Trainer.forward_backward = small  # type: ignore[method-assign]


def out_of_memory_late(*, on_rank: int) -> Trouble:
    """Let one rank run out of memory once in update 5, when others already add what it has computed."""
    now, start = 0, GradientReducer._start

    def failing(self: GradientReducer, tensor: Tensor) -> None:
        nonlocal now
        if self.n_started == 2 and now == 5:
            now = 0
            raise torch.OutOfMemoryError("no memory left in this test")
        start(self, tensor)

    def happen(step: int, rank: int) -> None:
        nonlocal now
        now = step if rank == on_rank else 0
        GradientReducer._start = failing  # type: ignore[method-assign]

    return happen


def one_rank(folder: Path, settings: TrainConfig, trouble: Trouble) -> dict[str, Any]:
    """Train as the rank that the environment names, and return the outcome."""
    rank, seen = int(os.environ["RANK"]), []
    reduced: list[bool] = []  # after each pass, whether every gradient, or its part, is there
    has_buckets = False  # whether memory for whole gradients is taken
    update, forward_backward = Trainer.train_step, Trainer.forward_backward

    def updating(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        trouble(kwargs["step"], rank)
        return update(self, *args, **kwargs)

    def noting(self: Trainer, batch: Batch, **kwargs: Any) -> Any:
        nonlocal has_buckets
        seen.append([target for _, target in batch.pairs()])
        sums = forward_backward(self, batch, **kwargs)
        reduced.append(all(parameter.grad is not None for parameter in self.model.parameters()))
        has_buckets = "gradients" in vars(self)
        return sums

    Trainer.train_step = updating  # type: ignore[method-assign]
    Trainer.forward_backward = noting  # type: ignore[method-assign]
    try:
        with (
            stop_signals(is_reporting=False) as request,
            join_ranks(request, device_type="cpu", timeout_s=settings.train.rank_timeout) as ranks,
        ):
            work(folder, settings, ranks)
        return {"code": 0, "seen": seen, "reduced": all(reduced), "has_buckets": has_buckets}
    except TfmError as error:
        is_reporting = rank == 0 if error.is_reporting is None else error.is_reporting
        return {"code": error.exit_code, "error": str(error), "is_reporting": is_reporting, "seen": seen}


def work(folder: Path, settings: TrainConfig, ranks: Ranks) -> None:
    corpus = aligned(prepared()) if settings.train.guided_alignment else prepared()
    if ranks.is_first:
        folder.mkdir(parents=True, exist_ok=True)
        train(settings, corpus, MainProcess(folder, ranks), device=CPU)
    else:
        train(settings, corpus, Worker(ranks), device=CPU)


def together(
    folder: Path,
    n_ranks: int,
    settings: TrainConfig,
    trouble: Trouble = lambda step, rank: None,
    *,
    overlapping: bool = False,
) -> dict[str, Any]:
    """The outcome of each rank, None for one that was killed; the losses by step, and the steps that were saved.

    `overlapping`: add the gradients up while they are being computed, as on GPUs.
    """
    gradients.OVERLAPPING = {"cpu"} if overlapping else {"cuda"}
    with agent() as port:
        outcomes = gather(fork_ranks(folder, n_ranks, settings, trouble, port=port))
    assert (folder / "metrics.jsonl").exists(), [rank and rank.get("error") for rank in outcomes]
    losses = {entry["step"]: entry["loss"] for entry in metrics(folder) if entry["kind"] == "train"}
    saved = sorted(path.name for path in (folder / "checkpoints").iterdir())
    return {"ranks": outcomes, "losses": losses, "saved": saved}


@contextmanager
def agent() -> Iterator[int]:
    """A process that keeps the store for as long as this one, or a rank of it, lives; its port."""
    port_reader, port_writer = os.pipe()
    life_reader, life_writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(life_writer)
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(port_writer, str(store.port).encode())
        os.close(port_writer)
        os.read(life_reader, 1)
        os._exit(0)
    os.close(port_writer)
    os.close(life_reader)
    try:
        with os.fdopen(port_reader) as logged:
            yield int(logged.read())
    finally:
        os.close(life_writer)
        os.waitpid(process, 0)


def fork_ranks(
    folder: Path, n_ranks: int, settings: TrainConfig, trouble: Trouble, *, port: int
) -> dict[int, tuple[int, int]]:
    """The rank of each process, and the end of a pipe that its outcome comes from."""
    environment = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(n_ranks),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    processes = {}
    for rank in range(n_ranks):
        reader, writer = os.pipe()
        process = os.fork()
        if process == 0:
            os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank))
            try:
                with os.fdopen(writer, "w") as logged:
                    json.dump(one_rank(folder, settings, trouble), logged)
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.close(writer)
        processes[process] = (rank, reader)
    return processes


def gather(processes: dict[int, tuple[int, int]]) -> list[Any]:
    outcomes: dict[int, Any] = {}
    deadline = time.monotonic() + PATIENCE_S
    for process, (rank, reader) in processes.items():
        while time.monotonic() < deadline and not os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if len(outcomes) == len(processes) - 1 and stopped(process):
                break
            if stopped(process) and rank < max(rank for rank, _ in processes.values()):
                break
            time.sleep(0.02)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        with os.fdopen(reader) as logged:
            text = logged.read()
        outcomes[rank] = json.loads(text) if text else None
    return [outcomes[rank] for rank in sorted(outcomes)]


def stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


SETTINGS = config(max_tokens_per_microbatch=8)
WITHOUT_DROPOUT = config(max_tokens_per_microbatch=8, model=replace(MODEL, dropout=0.0))


def replicas(folder: Path) -> dict[str, Any]:
    """Every rank holds the whole model."""
    impatient = config(max_tokens_per_microbatch=8, rank_timeout=1.5)
    gradients.BUCKET_BYTES = 4000  # as many pieces as a large model has
    whole = config(max_tokens_per_microbatch=100)
    outcome: dict[str, Any] = {}
    for n_ranks in (1, 2):
        outcome[f"{n_ranks} ranks for a batch"] = together(folder / f"batch{n_ranks}", n_ranks, whole, overlapping=True)
        outcome[f"{n_ranks} ranks"] = together(folder / str(n_ranks), n_ranks, SETTINGS)
    other_dev = config(max_tokens_per_microbatch=8, max_steps=14, eval_lines=3)
    anew = together(folder / "2", 2, other_dev)
    evaluated = [entry["step"] for entry in metrics(folder / "2") if entry["kind"] == "dev"]
    best = json.loads((folder / "2" / "result.json").read_bytes())["best"]["step"]
    outcome["ranked anew"] = {**anew, "evaluated": evaluated, "best": best}
    outcome["moved to 1"] = moved_to(folder, 1)
    outcome["lost 1"] = lost(folder, 1)
    outcome["hanging"] = together(folder / "hanging", 2, impatient, in_trouble(5, 1, send(signal.SIGSTOP)))
    small = in_trouble(5, 1, lambda: forget_memory(0, on_rank=1))
    outcome["too small"] = together(folder / "small", 2, SETTINGS, small)
    tight = in_trouble(5, 1, lambda: forget_memory(1, on_rank=1))
    outcome["tight"] = together(folder / "tight", 2, WITHOUT_DROPOUT, tight)
    wide = config(max_tokens_per_microbatch=20, model=replace(MODEL, dropout=0.0))
    outcome["late"] = together(folder / "late", 2, wide, out_of_memory_late(on_rank=1), overlapping=True)
    outcome["roomy"] = together(folder / "roomy", 1, WITHOUT_DROPOUT)
    batch_size.fitting_batch_size = lambda *_: 12 + 8 * int(os.environ["RANK"])  # a device of each rank's own
    outcome["auto"] = together(folder / "auto", 2, config(max_tokens_per_microbatch="auto", max_steps=4))
    return outcome


def more_replicas(folder: Path) -> dict[str, Any]:
    """More ranks, and more updates."""
    gradients.BUCKET_BYTES = 4000
    long = config(max_tokens_per_microbatch=8, max_steps=100, eval_every=50, save_every=50)
    outcome: dict[str, Any] = {}
    for n_ranks in (1, 2):
        outcome[f"{n_ranks} ranks for long"] = together(folder / f"long{n_ranks}", n_ranks, long, overlapping=True)
    for n_ranks in (1, 4):
        outcome[f"{n_ranks} ranks"] = together(folder / str(n_ranks), n_ranks, SETTINGS)
    outcome["moved to 4"] = moved_to(folder, 4)
    outcome["lost 0"] = lost(folder, 0)
    lasting = config(max_tokens_per_microbatch=8, max_steps=40, patience=1)
    first = together(folder / "patience", 2, lasting, ever_worse(stopping_at=5))
    second = together(folder / "patience", 2, lasting, ever_worse())
    outcome["patience"] = {"first": first, "second": second}
    return outcome


def moved_to(folder: Path, n_ranks: int) -> dict[str, Any]:
    """Two ranks of which one is asked to stop, and another number that goes on."""
    folder = folder / f"moved{n_ranks}"
    first = together(folder, 2, SETTINGS, in_trouble(5, 1, send(signal.SIGTERM)))
    return {"first": first, "second": together(folder, n_ranks, SETTINGS)}


def lost(folder: Path, rank: int) -> dict[str, Any]:
    """Three ranks of which one is killed, and three that go on."""
    folder = folder / f"lost{rank}"
    first = together(folder, 3, SETTINGS, in_trouble(5, rank, send(signal.SIGKILL)))
    return {"first": first, "second": together(folder, 3, SETTINGS)}


def going_back(folder: Path) -> dict[str, Any]:
    settings = spiking()
    found = {f"{n_ranks} ranks": together(folder / str(n_ranks), n_ranks, settings) for n_ranks in (1, 2)}
    return {**found, "rollbacks": [_rollbacks(folder / str(n_ranks)) for n_ranks in (1, 2)]}


def more_going_back(folder: Path) -> dict[str, Any]:
    """Shards, and two ranks that are stopped after they have gone back."""
    importlib.import_module("torch.distributed.fsdp")
    settings = spiking()
    sharded = replace(settings, train=replace(settings.train, sharding=Sharding.full))
    found = {
        "1 ranks": together(folder / "1", 1, settings),
        "shards": together(folder / "shards", 2, sharded),
        "stopped": together(folder / "stopped", 2, settings, in_trouble(21, 1, send(signal.SIGTERM))),
        "resumed": together(folder / "stopped", 2, settings),
    }
    return {**found, "rollbacks": [_rollbacks(folder / name) for name in ("1", "shards", "stopped")]}


def _rollbacks(folder: Path) -> list[list[int]]:
    found = [one for one in metrics(folder) if one["kind"] == "rollback"]
    return [[one[key] for key in ("to", "reached", "skipped_from", "skipped")] for one in found]


def spiking() -> TrainConfig:
    """A loss that is ten times too high in three updates, and a run that goes back because of them."""
    spikes.LEAST_UPDATES, spikes.BEFORE, rollback.BEFORE, spikes.SKIPPED = 8, 2, 2, 4
    update, now = TrainingState.train_step, 0
    smoothed_nll = trainer.smoothed_nll

    def updating(self: TrainingState, *args: Any) -> Any:
        nonlocal now
        now = spikes.batch_number(self.progress.step + 1, self.progress.skips)
        return update(self, *args)

    def spoilt(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        loss, nll = smoothed_nll(*args, **kwargs)
        return (loss * 10 if now in (17, 18, 19) else loss), nll

    TrainingState.train_step, trainer.smoothed_nll = updating, spoilt  # type: ignore[method-assign]
    return config(max_tokens_per_microbatch=8, max_steps=24, on_spike=OnSpike.rollback)


def shards(folder: Path) -> dict[str, Any]:
    """Each rank holds a part of it."""
    importlib.import_module("torch.distributed.fsdp")  # takes a second: once, and not in every fork
    settings = config(max_tokens_per_microbatch=8)
    outcome: dict[str, Any] = {"1 ranks": together(folder / "1", 1, settings)}
    for activation_checkpointing in (False, True):
        sharded = config(
            max_tokens_per_microbatch=8, sharding=Sharding.full, activation_checkpointing=activation_checkpointing
        )
        outcome[f"sharded, activation_checkpointing={activation_checkpointing}"] = together(
            folder / f"sharded{activation_checkpointing}", 2, sharded
        )
    sharded = config(max_tokens_per_microbatch=8, sharding=Sharding.full, clip_norm=0.5)
    clipped = config(max_tokens_per_microbatch=8, clip_norm=0.5)
    outcome["clipped"] = together(folder / "clipped", 1, clipped)
    outcome["sharded and clipped"] = together(folder / "sharded and clipped", 2, sharded)
    guided = config(max_tokens_per_microbatch=8, guided_alignment=1.0)
    outcome["guided"] = together(folder / "guided", 1, guided)
    sharded = replace(guided, train=replace(guided.train, sharding=Sharding.full, activation_checkpointing=True))
    outcome["sharded and guided"] = together(folder / "sharded and guided", 2, sharded)
    deep = replace(MODEL, n_decoder_layers=3)
    guided = config(max_tokens_per_microbatch=8, model=deep, guided_alignment=1.0, full_context_alignment=True)
    outcome["full context"] = together(folder / "full context", 1, guided)
    sharded = replace(guided, train=replace(guided.train, sharding=Sharding.full))
    outcome["sharded, full context"] = together(folder / "sharded, full context", 2, sharded)
    sharded = config(max_tokens_per_microbatch=8, sharding=Sharding.full)
    for name, before, n_before, after, n_after in (
        ("sharded to whole", sharded, 2, settings, 1),
        ("whole to sharded", settings, 1, sharded, 2),
        ("2 shards to 3", sharded, 2, sharded, 3),
    ):
        asked = in_trouble(5, n_before - 1, send(signal.SIGTERM))
        first = together(folder / name, n_before, before, asked)
        second = together(folder / name, n_after, after)
        outcome[name] = {"first": first, "second": second}
    outcome["lost shard"] = together(folder / "lost shard", 3, sharded, in_trouble(5, 1, send(signal.SIGKILL)))
    small = in_trouble(5, 1, lambda: forget_memory(0, on_rank=1))
    outcome["small shard"] = together(folder / "small shard", 2, sharded, small)
    return outcome


def fine_tuning(folder: Path) -> dict[str, Any]:
    """A part of a model that is trained further, or LoRA: by one rank, by two, and by two whose run was stopped."""
    gradients.BUCKET_BYTES = 4000
    outcome: dict[str, Any] = {}
    for name, changes in _fine_tuning(folder):
        settings = replace(SETTINGS, **changes)
        for n_ranks in (1, 2):
            ended = together(folder / f"{name}{n_ranks}", n_ranks, settings, overlapping=n_ranks == 2)
            outcome[f"{name}, {n_ranks} ranks"] = ended
        together(folder / f"{name} stopped", 2, settings, in_trouble(5, 1, send(signal.SIGTERM)))
        outcome[f"{name}, resumed"] = together(folder / f"{name} stopped", 2, settings)
    return outcome


def fine_tuning_shards(folder: Path) -> dict[str, Any]:
    importlib.import_module("torch.distributed.fsdp")
    (_, changes), *_ = _fine_tuning(folder)
    sharded = replace(config(max_tokens_per_microbatch=8, sharding=Sharding.full), **changes)
    return {
        "1 ranks": together(folder / "1", 1, replace(SETTINGS, **changes)),
        "shards": together(folder / "2", 2, sharded),
    }


def regularized(folder: Path) -> dict[str, Any]:
    """Noise of each kind, by one rank and by two."""
    gradients.BUCKET_BYTES = 4000
    deep = replace(MODEL, n_decoder_layers=2, layer_drop=0.5)
    words = {"source_word_dropout": 0.2, "target_word_dropout": 0.2}
    outcome: dict[str, Any] = {}
    for name, settings in (
        ("rdrop", config(max_tokens_per_microbatch=8, model=deep, rdrop=5.0, **words)),
        ("simcut", config(max_tokens_per_microbatch=8, simcut=3.0, token_cutoff=0.2)),
        ("guided", config(max_tokens_per_microbatch=8, model=deep, guided_alignment=1.0)),
        (
            "full context",
            config(max_tokens_per_microbatch=8, model=deep, guided_alignment=1.0, full_context_alignment=True),
        ),
    ):
        for n_ranks in (1, 2):
            ended = together(folder / f"{name}{n_ranks}", n_ranks, settings, overlapping=n_ranks == 2)
            outcome[f"{name}, {n_ranks} ranks"] = ended
    return outcome


def _fine_tuning(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    source = folder / "source.safetensors"
    source.write_bytes(packed(model_file(seed=5, norm=MODEL.norm)))
    frozen = InitConfig(from_=str(source), freeze=["encoder", "embeddings"])
    lora = {"init": InitConfig(from_=str(source)), "lora": LoraConfig(rank=3, dropout=0.1)}
    narrow = {**lora, "train": replace(SETTINGS.train, frozen_precision=FrozenPrecision.bf16)}
    return [("frozen", {"init": frozen}), ("lora", lora), ("16 bits", narrow)]


def main() -> None:
    groups = {
        "replicas": replicas,
        "more_replicas": more_replicas,
        "going_back": going_back,
        "more_going_back": more_going_back,
        "shards": shards,
        "fine_tuning": fine_tuning,
        "fine_tuning_shards": fine_tuning_shards,
        "regularized": regularized,
    }
    print(json.dumps(groups[sys.argv[1]](Path(sys.argv[2]))))
