"""The summary before the first update: corpus, vocabulary, model, device and plan."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from transformer_cli.config.checks import AUTO
from transformer_cli.config.train import TENSORBOARD, TrainConfig
from transformer_cli.data.feed import epoch_of
from transformer_cli.data.prepare import Prepared
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.training.freezing import describe
from transformer_cli.training.plan import Chosen
from transformer_cli.training.trainer import Trainer

_WIDTH = 10  # of what stands before each line


def summary_lines(
    config: TrainConfig,
    prepared: Prepared,
    trainer: Trainer,
    run_dir: Path,
    chosen: Sequence[Chosen],
    recipe: Sequence[str] = (),
) -> Iterator[str]:
    """Lines for the log, aligned, given the numbers that the run has `chosen` and the lines on its `recipe`."""
    lines = [
        ("corpus", _corpus(config, prepared)),
        ("", _held_out(prepared)),
        *_filtered(prepared),
        ("vocabulary", _vocabulary(prepared, config)),
        ("model", _model(config, trainer)),
        *_trained(config, trainer),
        ("device", _device(config, trainer)),
        *(("" if i else "recipe", line) for i, line in enumerate(recipe)),
        ("plan", _plan(config, prepared)),
        ("", _schedule(config)),
        *_fine_tuning(config, chosen),
        *_auto(chosen),
        ("results", f"{run_dir / MODEL_FILE}, metrics.jsonl, {_loggers(config)}tfm.log"),
    ]
    return (f"{name:<{_WIDTH}}  {what}" for name, what in lines)


def _loggers(config: TrainConfig) -> str:
    shown = ("tensorboard/" if name == TENSORBOARD else name for name in config.train.loggers)
    return "".join(f"{name}, " for name in shown)


def _auto(chosen: Sequence[Chosen]) -> Iterator[tuple[str, str]]:
    """Three settings a line, each with its bounds; those of recipe=auto have lines of their own."""
    chosen = [one for one in chosen if not one.by_recipe]
    for start in range(0, len(chosen), 3):
        yield "" if start else "auto", ", ".join(map(str, chosen[start : start + 3]))


def _corpus(config: TrainConfig, prepared: Prepared) -> str:
    train, data, task = prepared.train, config.data, config.data.trained
    n_source, n_target = len(train.source_ids), len(train.target_ids)
    if task.translates:
        sides = f"{n_source:,} + {n_target:,} tokens, {data.source_lang} → {data.target_lang}"
        return f"{data.name}: {len(train):,} training pairs, {sides}"
    lines = f"sentences, {n_target:,} words" if task.has_words else "lines"
    return f"{data.name}: {len(train):,} training {lines}, {n_source if task.has_source else n_target:,} tokens"


def _held_out(prepared: Prepared) -> str:
    n_test = f"test {len(prepared.test):,}" if prepared.test is not None else "no test"
    report = prepared.report
    cleaned = f"; {report.n_read - report.n_kept:,} of {report.n_read:,} left out in cleaning" if report.n_read else ""
    return f"dev {len(prepared.dev):,}, {n_test}{cleaned}"


def _filtered(prepared: Prepared) -> Iterator[tuple[str, str]]:
    """What the filters of data.clean did, each with its count."""
    report = prepared.filtering
    if report is None:
        return
    counts = {
        "dropped": {one.name: one.n_dropped for one in report.filters if one.n_dropped},
        "repaired": {one.name: one.n_repaired for one in report.filters if one.n_repaired},
    }
    shown = [
        f"{sum(found.values()):,} {what} ({', '.join(f'{name} {n:,}' for name, n in found.items())})"
        for what, found in counts.items()
        if found
    ]
    yield "cleaned", f"{report.n_read:,} pairs: " + ("; ".join(shown) or "nothing dropped, nothing repaired")


def _vocabulary(prepared: Prepared, config: TrainConfig) -> str:
    tokenizers, asked = prepared.tokenizers, config.data.tokenizer
    is_trained = asked.model is None and config.init.from_ is None
    by_text = " (data.tokenizer.vocab_size=auto)" if asked.is_auto and is_trained else ""
    if tokenizers.labels:
        return f"{len(tokenizers.source):,} pieces{by_text}, {len(tokenizers.labels)} labels"
    if tokenizers.joint:
        return f"{len(tokenizers.source):,} pieces{by_text}"
    return f"{len(tokenizers.source):,} and {len(tokenizers.target):,} pieces{by_text}"


def _model(config: TrainConfig, trainer: Trainer) -> str:
    model = config.model
    layers = " + ".join(str(getattr(model, f"n_{side}_layers")) for side in config.data.trained.stacks)
    n_parameters = sum(parameter.numel() for parameter in trainer.whole_model.parameters())
    return f"{model.preset}: {layers} layers, width {model.d_model}, {n_parameters:,} parameters"


def _trained(config: TrainConfig, trainer: Trainer) -> Iterator[tuple[str, str]]:
    what = describe(trainer.whole_model, config)
    if what is not None:
        yield "trained", what


def _device(config: TrainConfig, trainer: Trainer) -> str:
    precision = str(trainer.dtype).removeprefix("torch.")
    ranks = f", {trainer.ranks.world_size} ranks" if trainer.ranks.world_size > 1 else ""
    if trainer.device.type == "cuda":
        return f"{torch.cuda.get_device_name(trainer.device)}, {precision}{ranks}"
    if trainer.device.type == "mps":
        return f"mps, {precision}"
    return f"cpu, {precision}, {torch.get_num_threads()} threads{ranks}"


def _plan(config: TrainConfig, prepared: Prepared) -> str:
    settings, epoch = config.train, epoch_of(config, prepared)
    epochs = settings.max_steps / epoch.updates(settings.tokens_per_update)
    shown = f"{epochs:,.0f}" if epochs >= 10 else f"{epochs:.2g}"
    size = f"{settings.tokens_per_update:,} {config.data.trained.counted}"
    return f"{settings.max_steps:,} updates of {size}, {shown} epochs"


def _fine_tuning(config: TrainConfig, chosen: Sequence[Chosen]) -> Iterator[tuple[str, str]]:
    """What was set for fine-tuning because the command line sets nothing of it."""
    schedule, patience = config.schedule, config.train.patience
    if config.init.from_ is not None and any(one.key == "schedule.lr" for one in chosen):
        rates = f"schedule={schedule.name} schedule.lr={schedule.lr:g} schedule.warmup_steps={schedule.warmup_steps}"
        yield "", f"fine-tuning: {rates} train.patience={patience}, where nothing else is set"


def _schedule(config: TrainConfig) -> str:
    settings = config.train
    better = "a better one or a lower nll" if settings.best_metric == AUTO else "a better one"
    patience = f", ends after {settings.patience} without {better}" if settings.patience is not None else ""
    return f"warm-up {config.schedule.warmup_steps:,}, dev scores every {settings.eval_every:,}{patience}"
