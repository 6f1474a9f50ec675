"""`tfm train`: prepare, train or resume, and report dev and test scores."""

import json
from importlib import import_module

import torch

from transformer_cli.commands.evaluate import OTHER_KINDS, report_test_set
from transformer_cli.config import to_plain
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.errors import ConfigError
from transformer_cli.logs import LOGGER, is_first_rank
from transformer_cli.models.device import choose_device, keep_freed_memory
from transformer_cli.schema import MODEL_OF, TrainConfig
from transformer_cli.training.encoder import fitted, read_start
from transformer_cli.training.learner import check_parts
from transformer_cli.training.loop import TrainResult, assist, train
from transformer_cli.training.ranks import Ranks, join_ranks
from transformer_cli.training.run_directory import chosen_before, open_run, with_values
from transformer_cli.training.signals import stop_signals


def run(config: TrainConfig) -> float | None:
    """Train `config` in its run directory; return the dev score, which a sweeper optimises.

    Under torchrun every rank runs this, and all but the first return None.
    """
    # Before the data: a missing GPU or a misspelt name should not cost an hour of preparation.
    device = choose_device(config.device)
    start = read_start(config)
    config = fitted(config, start)
    check_parts(config, device)
    tokenizer = None if start is None else start.tokenizers.source
    with (
        stop_signals(speaks=is_first_rank()) as request,
        join_ranks(request, device_type=device.type, timeout_s=config.train.rank_timeout) as ranks,
    ):
        device = ranks.own(device)
        _require_same("config", json.dumps(to_plain(config)), ranks)
        if not ranks.is_first:
            config = with_values(config, json.loads(ranks.share("the run directory is ours", None)))
            prepared = prepare(config.data, tokenizer=tokenizer)
            keep_freed_memory()
            _require_same("prepared data", prepared.fingerprint, ranks)
            assist(config, prepared, device=device, ranks=ranks)
            return None
        with open_run(config) as run_dir:
            chosen = chosen_before(config, run_dir)
            ranks.share("the run directory is ours", json.dumps(chosen))
            config = with_values(config, chosen)
            prepared = prepare(config.data, progress=True, tokenizer=tokenizer)
            keep_freed_memory()  # not what preparing took
            for warning in prepared.warnings:
                LOGGER.warning("%s", warning)
            _require_same("prepared data", prepared.fingerprint, ranks)
            result = train(config, prepared, run_dir, device=device, ranks=ranks)
        request.note_end()
        _report(config, prepared, result, device)
        return result.dev_score


def _require_same(what: str, mine: str, ranks: Ranks) -> None:
    """Raise ConfigError on a rank that has another config or corpus than the first."""
    if ranks.share(what, mine if ranks.is_first else None) != mine:
        raise ConfigError(
            f"rank {ranks.rank}: its {what} differ from those of rank 0. Start all ranks with one command"
        )


def _report(config: TrainConfig, prepared: Prepared, result: TrainResult, device: torch.device) -> None:
    """The scores of the test set, as `tfm evaluate` prints them."""
    kind = MODEL_OF[config.data.task]
    if kind in OTHER_KINDS:
        import_module(OTHER_KINDS[kind]).report_training(config, prepared, result, device)
    elif prepared.test is None:
        LOGGER.info("no test set, so no scores: name one with data.test, or give tfm evaluate --source and --reference")
    else:
        name = f"{config.data.title}.test"
        report_test_set(result.model_path, prepared.test, config.decode, name=name, device=device, seed=config.seed)
