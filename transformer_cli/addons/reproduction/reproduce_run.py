"""A run of `tfm reproduce`: `tfm train` with a reference, and the scores beside those of others at the end."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from transformer_cli.addons.reproduction.departures import departures, grouped_lines
from transformer_cli.addons.reproduction.keys import ReproduceConfig
from transformer_cli.addons.reproduction.records import Reproduction
from transformer_cli.addons.reproduction.reference_curve import ReferenceCurve
from transformer_cli.commands.train.run import Trained, train_and_report
from transformer_cli.config.compose import load_config
from transformer_cli.config.train import TrainConfig
from transformer_cli.logs import LOGGER
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import read_model
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.system import processor
from transformer_cli.training.writers import METRICS_FILE

NEVER_RUN = "no run of ours exists yet: there is no reference curve"
UNITS = {"tokens": "target tokens", "sentences": "sentences"}  # in metrics.jsonl → as we name them
DEV_SCORES = {  # in a model file → as we name them
    "dev_nll": "dev nll",
    "dev_ppl": "dev perplexity",
    "dev_bleu": "dev BLEU",
    "dev_chrf": "dev chrF",
    "dev_accuracy": "dev accuracy",
}


def reproduce(config: ReproduceConfig, reproduction: Reproduction) -> None:
    """Train, logging at each evaluation how the run stands, and print the comparison to stdout."""
    device = choose_device(config.device)
    training = TrainConfig(**{field.name: getattr(config, field.name) for field in fields(TrainConfig)})
    recipe = load_config("train", [f"experiment={reproduction.name}"])
    found = departures(training, recipe)
    for line in _introduction(reproduction):
        LOGGER.info("%s", line)
    for line in grouped_lines(found):
        LOGGER.warning("%s", line)
    curve = None
    if reproduction.ours is not None and all(one.nll for one in found):
        curve = ReferenceCurve(reproduction.ours, by_score=all(one.score for one in found))
        LOGGER.info("on track    within ±: %s", curve.reason)
    trained = train_and_report(training, None if curve is None else curve.observe)
    if trained is not None:
        entries = _metrics(trained.run_dir)
        this_run = [f"{trained.step:,} updates{_seen(entries)}, torch {torch.__version__}, {_machine(device)}"]
        if curve is not None and (tally := curve.tally(entries)):
            this_run.append(f"evaluations beside the curve: {tally}")
        if found:
            settings = ", ".join(one.setting for one in found)
            this_run.append(f"{settings}: not the recipe, so its scores are not comparable with the others")
        print("\n".join(_comparison(reproduction, trained, this_run)), flush=True)


def _introduction(one: Reproduction) -> Iterator[str]:
    yield f"recipe      {one.title}"
    yield f"            {one.recipe}"
    yield from one.published_lines()
    if one.ours is None:
        yield f"reference   {NEVER_RUN}"
        return
    yield f"reference   {one.our_line()}"
    yield f"            commit {one.ours.commit}, torch {one.ours.torch}; {one.ours.source}"
    if one.ours.note:
        yield f"            {one.ours.note}"


def _comparison(one: Reproduction, trained: Trained, this_run: Sequence[str]) -> Iterator[str]:
    """The scores of this run beside those of the reference and those that are published, and what differs."""
    dev = read_model(trained.run_dir / MODEL_FILE).scores
    mine = {**{title: dev.get(name) for name, title in DEV_SCORES.items()}, **trained.test_scores}
    reference = {} if one.ours is None else {score.metric: score.score for score in one.ours.scores}
    published = {score.our_metric: score.score for score in one.published if score.our_metric is not None}
    metrics = dict.fromkeys([*published, *reference])
    width = max(map(len, metrics), default=0)
    yield f"\n{one.name}: {one.title}"
    yield " " * width + "".join(f"{head:>12}" for head in ("published", "reference", "this run"))
    for metric in metrics:
        scores = (published.get(metric), reference.get(metric), mine.get(metric))
        yield f"{metric:<{width}}" + "".join(f"{'-' if score is None else f'{score:.2f}':>12}" for score in scores)
    yield from one.published_lines()
    if one.ours is None:
        yield f"reference   {NEVER_RUN}"
    else:
        yield f"reference   {one.ours.date}, commit {one.ours.commit}, torch {one.ours.torch}, {one.ours.machine}"
        for score in one.ours.scores:
            yield f"            {score.metric}: {', '.join(filter(None, (score.signature, score.search)))}"
    for head, lines in (("this run", this_run), ("differs", one.differs)):
        yield from (f"{'' if i else head:<12}{line}" for i, line in enumerate(lines))


def _metrics(folder: Path) -> list[dict[str, Any]]:
    """The entries of metrics.jsonl; none if it is missing or damaged, which is no reason to lose the comparison."""
    try:
        entries = [json.loads(line) for line in (folder / METRICS_FILE).read_bytes().split(b"\n") if line]
    except (OSError, ValueError):
        return []
    return [entry for entry in entries if isinstance(entry, dict) and {"step", "kind"} <= entry.keys()]


def _seen(entries: Sequence[Mapping[str, Any]]) -> str:
    """The target tokens, or sentences, of all updates."""
    last = [entry for entry in entries if entry["kind"] == "train"][-1:]
    found = [f", {entry[unit]:,} {name}" for entry in last for unit, name in UNITS.items() if unit in entry]
    return "".join(found)


def _machine(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = re.search(r"^model name\s*: (.*)$", processor(), re.MULTILINE)
    return f"{device.type}, {name[1]}" if name else device.type
