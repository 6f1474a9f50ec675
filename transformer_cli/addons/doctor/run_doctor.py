"""`tfm doctor`: check the text, the vocabulary, the memory, the time and the disk of a run before it is started."""

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import torch

from transformer_cli.addons.doctor.findings import CheckReport, Level, Section
from transformer_cli.addons.doctor.keys import DoctorConfig
from transformer_cli.addons.doctor.text import check_text
from transformer_cli.addons.doctor.updates import check_training, duration
from transformer_cli.addons.doctor.vocabulary import check_tokenizer
from transformer_cli.config.tasks import BLEU
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.prepare import Prepared, prepare
from transformer_cli.evaluation.tokenization import suited_tokenizer
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device, tune_cpu_memory
from transformer_cli.standard_streams import require_stdout
from transformer_cli.training.batch_size import resolve_batch_size
from transformer_cli.training.dev_metrics import chrf_decides, dev_metrics, dev_tokens
from transformer_cli.training.initialisation import (
    initial_tokenizers,
    left_out_for,
    read_initial_model,
    with_initial_sizes,
)
from transformer_cli.training.plan import Chosen, plan_run
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.run_directory import chosen_before, run_folder, with_values
from transformer_cli.training.signals import StopRequest
from transformer_cli.training.state import check_components


def run(config: DoctorConfig) -> None:
    """Print the findings to stdout. Raises the first error among them, so that the exit status has its kind."""
    require_stdout("what is found")
    device = choose_device(config.device)
    training = TrainConfig(**{field.name: getattr(config, field.name) for field in fields(TrainConfig)})
    initial = read_initial_model(training)
    training = with_initial_sizes(training, initial)
    check_components(training, device)
    folder = run_folder(training)
    training = with_values(training, chosen_before(training, folder))

    start = time.perf_counter()
    tokenizers = initial_tokenizers(training, initial)
    prepared = prepare(training.data, progress=True, tokenizers=tokenizers, left_out=left_out_for(initial))
    opened = time.perf_counter()
    tune_cpu_memory()
    ranks = Ranks(StopRequest())
    plan = plan_run(training, prepared, device, ranks)
    training = resolve_batch_size(plan.config, prepared, device, ranks, None)
    report = examine(training, prepared, device, folder=folder, chosen=plan.chosen, recipe=plan.recipe)
    report.figures["seconds"] = {"prepare": opened - start, "checks": time.perf_counter() - opened}
    _show(report, training, as_json=config.json)
    error = report.first_error()
    if error is not None and error.kind is not None:
        raise error.kind(f"{error.where}: {error.sentence}")


def examine(
    config: TrainConfig,
    prepared: Prepared,
    device: torch.device,
    *,
    folder: Path | None = None,
    chosen: Sequence[Chosen] = (),
    recipe: Sequence[str] = (),
) -> CheckReport:
    """All checks. The updates come first: what the text leaves in memory would blur what they take.

    Parallel text is checked too; for another task than translation, only the updates are.
    """
    report = CheckReport()
    is_parallel = config.data.trained.translates
    names = ("text", "vocabulary", "training") if is_parallel else ("training",)
    *of_text, updates = (report.section(name) for name in names)
    LOGGER.info("trying the largest batch and a few updates on %s", device)
    for line in recipe:
        updates.ok("recipe", line)
    if numbers := [str(one) for one in chosen if not one.by_recipe]:
        updates.ok("auto", ", ".join(numbers))
    check_training(config, prepared, device, updates, folder=folder)
    if not is_parallel:
        return report
    check_dev_score(config, prepared, updates)
    text, vocabulary = of_text
    LOGGER.info("checking the text")
    check_text(config.data, prepared, text)
    check_tokenizer(config, prepared, vocabulary)
    return report


def check_dev_score(config: TrainConfig, prepared: Prepared, section: Section) -> None:
    """Findings on the metric of the dev set."""
    tokens = dev_tokens(config.data)
    if tokens.missing and BLEU in dev_metrics(config):
        section.warn("dev scores", tokens.missing, chrf_decides(config))
    elif (suited := suited_tokenizer([prepared.dev.targets], tokens)) is not None:
        what = f"data.dev is in a script that BLEU's tokenizer {tokens.bleu} does not cut into words"
        section.warn("dev scores", what, f"Set data.bleu_tokenize={suited}")


def _show(report: CheckReport, config: TrainConfig, *, as_json: bool) -> None:
    """The report on stdout: JSON, or lines that are as wide as the terminal, and whole where there is none."""
    if as_json:
        print(json.dumps(report.as_dict(), indent=2))
        return
    seconds = report.figures["seconds"]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(f"{config.data.title}, model {config.model.preset}")
    print("\n".join(report.lines(width)))
    print(
        f"\n{report.count(Level.error)} errors, {report.count(Level.warning)} warnings"
        f" (checks {duration(seconds['checks'])}; opening or preparing the corpus {duration(seconds['prepare'])})"
    )
