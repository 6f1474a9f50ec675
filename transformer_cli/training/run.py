"""A run from its config to its result: the model it begins with, its directory, its corpus, and the training."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from transformer_cli.config.compose import to_plain
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.alignments import WORD_ALIGNMENT, with_alignment
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import ConfigError
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device, release_cpu_memory, tune_cpu_memory
from transformer_cli.training.initialisation import (
    initial_tokenizers,
    left_out_for,
    read_initial_model,
    with_initial_sizes,
)
from transformer_cli.training.loop import train
from transformer_cli.training.main_process import MainProcess, Observer
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.result import TrainResult
from transformer_cli.training.run_directory import chosen_before, open_run, with_values
from transformer_cli.training.state import check_components
from transformer_cli.training.worker import Worker


@dataclass(frozen=True)
class Start:
    """A run that may begin: its device is there, its names are known, and the model that it begins with is read."""

    config: TrainConfig
    device: torch.device
    tokenizers: Tokenizers | None
    left_out: Sequence[str]

    @classmethod
    def of(cls, config: TrainConfig) -> "Start":
        """Raises TfmError before the data: a missing GPU or a misspelt name should not cost an hour of preparation."""
        device = choose_device(config.device)
        initial = read_initial_model(config)
        config = with_initial_sizes(config, initial)
        check_components(config, device)
        return cls(config, device, initial_tokenizers(config, initial), left_out_for(initial))


@dataclass(frozen=True)
class Finished:
    """A run that is trained; `config` has all that was chosen when it began."""

    run_dir: Path
    config: TrainConfig
    prepared: Prepared
    result: TrainResult
    device: torch.device


def train_run(
    start: Start, ranks: Ranks, observe: Observer | None = None, *, owns_process: bool = False
) -> Finished | None:
    """Prepare the data and train, in the run directory; None on every rank but the first. Raises TfmError.

    `observe` is called with the step and the dev scores of each evaluation. A command `owns_process`: its progress is
    drawn, and its memory is set up for training.
    """
    config, device = start.config, ranks.local_device(start.device)
    _require_same("config", json.dumps(to_plain(config)), ranks)
    if not ranks.is_first:
        config = with_values(config, json.loads(ranks.publish_and_wait("the run directory is ours", None)))
        train(config, prepare_run(start, config, ranks, owns_process=False), Worker(ranks), device=device)
        return None
    with open_run(config) as run_dir:
        chosen = chosen_before(config, run_dir)
        ranks.publish_and_wait("the run directory is ours", json.dumps(chosen))
        config = with_values(config, chosen)
        prepared = prepare_run(start, config, ranks, owns_process=owns_process)
        result = train(config, prepared, MainProcess(run_dir, ranks, observe), device=device)
        release_cpu_memory()  # the test set is translated by the model as it was written
        assert result is not None  # only a worker has none
        return Finished(run_dir, config, prepared, result, device)


def prepare_run(start: Start, config: TrainConfig, ranks: Ranks, *, owns_process: bool) -> Prepared:
    """The corpus, the same on every rank; the first one logs the warnings."""
    prepared = prepare(config.data, progress=owns_process, tokenizers=start.tokenizers, left_out=start.left_out)
    if owns_process or not ranks.is_first:
        tune_cpu_memory()  # not what preparing took
    for warning in prepared.warnings if ranks.is_first else ():
        LOGGER.warning("%s", warning)
    _require_same("prepared data", prepared.fingerprint, ranks)
    if config.train.guided_alignment:
        prepared = with_alignment(prepared, config.data)
        _require_same(WORD_ALIGNMENT, prepared.inputs[WORD_ALIGNMENT], ranks)
    return prepared


def _require_same(what: str, mine: str, ranks: Ranks) -> None:
    """Raise ConfigError on a rank that has another config or corpus than the first."""
    if ranks.publish_and_wait(what, mine if ranks.is_first else None) != mine:
        raise ConfigError(
            f"rank {ranks.rank}: its {what} differ from those of rank 0. Start all ranks with one command"
        )
