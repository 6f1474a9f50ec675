"""A run small enough for a test: sentences of letters to be copied, and a model that can learn it."""

import contextlib
import hashlib
import io
import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.toy.models import random_file, written
from transformer_cli.cli import main
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import ModelConfig, Norm, Tying
from transformer_cli.config.train import OptimizerConfig, ScheduleConfig, TrainConfig, TrainSettings
from transformer_cli.data.cache import Alignment, CorpusWriter, EncodedCorpus
from transformer_cli.data.clean import CleaningReport
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.models.file import ModelFile, model_pieces
from transformer_cli.training import loop
from transformer_cli.training.main_process import MainProcess
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.result import TrainResult
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.trainer import Trainer
from transformer_cli.training.validation import encode_pairs

CPU = torch.device("cpu")
LETTERS = "abcdefghij"
MODEL = ModelConfig(n_encoder_layers=1, n_decoder_layers=1, d_model=16, n_heads=2, d_ff=32, dropout=0.1, norm=Norm.pre)
DATA = DataConfig(source_lang="en", target_lang="xx", max_length=20)


def sentences(n: int, *, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.sample(LETTERS, k=draw.randint(2, 6))) for _ in range(n)]


@cache
def tokenizer(kind: str = "joint") -> Tokenizer:
    letters = LETTERS if kind != "target" else LETTERS.upper()
    return train_tokenizer([letters, " ".join(letters)] * 5, TokenizerConfig(vocab_size=25), seed=1)


@cache
def tokenizers(*, joint: bool = True) -> Tokenizers:
    return Tokenizers(tokenizer(), tokenizer() if joint else tokenizer("target"))


def prepared_of(tokenizers: Tokenizers, train: EncodedCorpus, dev: ParallelText, fingerprint: str = "toy") -> Prepared:
    return Prepared(tokenizers, train, dev, test=None, fingerprint=fingerprint, report=CleaningReport())


@cache
def prepared(n_train: int = 60, n_dev: int = 6) -> Prepared:
    train, dev = sentences(n_train, seed=1), sentences(n_dev, seed=2)
    corpus: EncodedCorpus = encode_pairs(ParallelText(train, train), tokenizers(), max_length=20)
    return prepared_of(tokenizers(), corpus, ParallelText(dev, dev), f"copy {n_train} {n_dev}")


def aligned(prepared: Prepared) -> Prepared:
    """Pairs of which every second word is linked to itself, the first also to the second; short ones have no links."""
    pairs = [
        [(0, 0), (1, 0), *((i, i) for i in range(2, n - 1, 2))] if n > 3 else []
        for n in prepared.train.target_lengths.tolist()
    ]
    links = np.array([link for pair in pairs for link in pair])
    alignment = Alignment(links[:, 0], links[:, 1], np.cumsum([0, *map(len, pairs)]))
    return replace(prepared, train=replace(prepared.train, alignment=alignment))


def config(
    *,
    model: ModelConfig = MODEL,
    data: DataConfig = DATA,
    seed: int = 1,
    schedule: ScheduleConfig | None = None,
    optimizer: str = "adam",
    **train: Any,
) -> TrainConfig:
    """Eight updates to an epoch, each of several micro-batches."""
    settings = {
        **{"tokens_per_update": 40, "max_tokens_per_microbatch": 16, "max_steps": 12, "log_every": 1, "eval_every": 4},
        **{"save_every": 2, "keep_last": 3, "average_last": 2, "samples": 1},
        **train,
    }
    return TrainConfig(
        seed=seed,
        model=model,
        data=data,
        schedule=schedule or ScheduleConfig(name="constant", lr=0.01, warmup_steps=1),
        optimizer=OptimizerConfig(name=optimizer),
        train=TrainSettings(**settings),
        decode=DecodeConfig(search="greedy", beam_size=1, max_extra_length=5),
    )


def model_file(*, seed: int = 1, joint: bool = True, step: int = 7, **changes: Any) -> ModelFile:
    """A model with drawn weights."""
    config = replace(MODEL, **{"tie_embeddings": Tying.three_way if joint else Tying.decoder, **changes})
    meta: dict[str, Any] = {"step": step, "data": {"name": "copy"}, "scores": {"dev_nll": 1.5}}
    return random_file(config, tokenizers(joint=joint), seed=seed, **meta)


def written_model(folder: Path, *, name: str = "toy", **changes: Any) -> Path:
    """The path of a new model file of `model_file`, which translates `en` to `fr` and writes letters."""
    return written(folder, model_file(**{"seed": 3, **changes}), f"{name}.safetensors")


def packed(model: ModelFile) -> bytes:
    """The content of its model file."""
    return b"".join(model_pieces(model))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Died(BaseException):
    """What no code catches."""


def train(
    config: TrainConfig, prepared: Prepared, run_dir: Path, *, device: torch.device, ranks: Ranks | None = None
) -> TrainResult:
    """Train as the first rank, or the only one."""
    process = MainProcess(run_dir, ranks or Ranks(StopRequest()))
    result = loop.train(config, prepared, process, device=device)
    assert result is not None
    return result


def train_command(folder: Path, *overrides: str, max_steps: int, every: int) -> None:
    """`tfm train` of the run runs/a in `folder`; what it prints is in the file `printed` there."""
    names = ["name=a", f"data.cache={folder / 'cache'}", f"runs={folder / 'runs'}"]
    steps = [f"train.max_steps={max_steps}", f"train.eval_every={every}", f"train.save_every={every}"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["train", *overrides, *names, *steps]) == 0
    (folder / "printed").write_text(printed.getvalue())


def run(
    folder: Path, settings: TrainConfig | None = None, ranks: Ranks | None = None, corpus: Prepared | None = None
) -> TrainResult:
    folder.mkdir(parents=True, exist_ok=True)
    return train(settings or config(), corpus or prepared(), folder, device=CPU, ranks=ranks)


@contextmanager
def dying_at(step: int) -> Iterator[None]:
    """The run in the block is interrupted as it begins update `step`."""
    update = Trainer.train_step

    def dying(self: Trainer, *args: Any, **kwargs: Any) -> Any:
        if kwargs["step"] == step:
            raise Died
        return update(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "train_step", dying)
        with pytest.raises(Died):
            yield


def run_until(step: int, folder: Path, settings: TrainConfig | None = None, corpus: Prepared | None = None) -> None:
    """A run that is interrupted as it begins update `step`."""
    with dying_at(step):
        run(folder, settings, corpus=corpus)


def assert_resumes(
    folder: Path,
    settings: TrainConfig | None = None,
    *,
    stopped_before: int,
    corpus: Prepared | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Assert that a run that is stopped before an update, and resumed, is to the last bit the run that was not."""
    run(folder / "whole", settings, corpus=corpus)
    run_until(stopped_before, folder / "stopped", settings, corpus)
    assert not (folder / "stopped/model.safetensors").exists()
    meanwhile()
    run(folder / "stopped", settings, corpus=corpus)
    assert_same_run(folder / "stopped", folder / "whole")


def assert_same_run(one: Path, other: Path) -> None:
    assert metrics(one) == metrics(other)
    newest = max((other / "checkpoints").glob("step-*")).relative_to(other)
    for file in ("model.safetensors", newest / "manifest.json"):  # which has the hashes of the other files
        assert sha256(one / file) == sha256(other / file), file


def metrics(folder: Path) -> list[dict[str, Any]]:
    """All that was written down, without how fast it was."""
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]]
    return [{key: value for key, value in entry.items() if not key.endswith("_per_second")} for entry in entries]


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def append(writer: CorpusWriter, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> None:
    """Write one list of ids for each sentence of a side."""
    pairs = EncodedCorpus.of(sources, targets)
    writer.write((pairs.source_ids, pairs.source_lengths), (pairs.target_ids, pairs.target_lengths))
