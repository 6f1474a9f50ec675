"""What fine-tuning forgets: the dev set of the text that the model was trained on is scored beside the new one.

The text is kept in the run directory, for a run that goes on when the model or its text has gone.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from transformer_cli.config.compose import from_plain, to_plain
from transformer_cli.config.data import DataConfig
from transformer_cli.config.train import TrainConfig
from transformer_cli.data.checks.overlap import warn_of_overlap
from transformer_cli.data.corpus import ParallelText, load_text
from transformer_cli.data.prepare import Prepared, dev_of
from transformer_cli.data.tags import split_tags
from transformer_cli.errors import TfmError
from transformer_cli.evaluation.held_out import plain_text, read_held_out, text_of
from transformer_cli.files import wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.header import MALFORMED
from transformer_cli.models.runs import read_config, run_of
from transformer_cli.training.initialisation import Initial
from transformer_cli.training.validation import LABELS, DevScores, Validator, make_validator

OLD_DEV_FILE = "old_dev.json"
OLD = "dev_old_"  # begins the names of its scores, as dev_ those of the new text


@dataclass(frozen=True)
class OldDev:
    """A dev set of the text that a model was trained on, with the config of that text."""

    data: DataConfig
    text: ParallelText

    def write(self, run_dir: Path) -> None:
        content = {"data": to_plain(self.data), **plain_text(self.text)}
        with wrap_os_errors(run_dir, "write to the run directory"):
            write_whole(run_dir / OLD_DEV_FILE, json.dumps(content).encode())

    @classmethod
    def read(cls, run_dir: Path) -> "OldDev | None":
        """What `write` has left; None if there is nothing, or nothing that can be used."""
        try:
            content = json.loads((run_dir / OLD_DEV_FILE).read_bytes())
            return cls(from_plain(DataConfig, content["data"]), text_of(content))
        except (OSError, TfmError, AssertionError, *MALFORMED):
            return None

    def warn_of_overlap(self, prepared: Prepared) -> None:
        """Log how much of it is training text, as a dev set may be that was named: what was held out is left out."""
        if not self.data.trained.translates:
            return
        sources = [split_tags(line, self.data.all_tags)[1] for line in self.text.sources]
        warn_of_overlap("dev (old)", sources, [self.text.targets], prepared, what="dev")

    def validator(self, config: TrainConfig, prepared: Prepared, device: torch.device) -> Validator:
        """It scores with the settings of `config`, and in the languages of the old text."""
        data = replace(self.data, max_length=config.data.max_length)
        return make_validator(replace(config, data=data), replace(prepared, dev=self.text), device)


def find_old_dev(config: TrainConfig, start: Initial, prepared: Prepared) -> OldDev | None:
    """The dev set that `start` was scored on, unless it is the new one; a line in the log where it is not at hand."""
    if config.data.trained.has_labels or start.model.task.name != config.data.task:
        return None  # which a model of another task is not scored on
    try:
        found = OldDev(*_old_dev(config, start))
        if lost := [tag for tag in found.data.all_tags if tag not in prepared.tokenizers.source.tags]:
            raise ValueError(f"it has lines with {lost[0]}, which the new model does not know")
    except (TfmError, *MALFORMED) as error:
        LOGGER.info(
            "dev (old): the text that init.from=%s was trained with is not at hand, so its score is not shown (%s)",
            *(config.init.from_, error),
        )
        return None
    new = prepared.dev
    is_new = (found.text.sources, found.text.targets) == (new.sources, new.targets)
    return None if is_new else found


def _old_dev(config: TrainConfig, start: Initial) -> tuple[DataConfig, ParallelText]:
    """Raises ValueError or TfmError, with the reason, where it is not at hand."""
    model = start.model
    if not model.data:
        raise ValueError("the model does not name it")
    data: DataConfig = from_plain(DataConfig, model.data)
    run = run_of(start.path)
    of_run = read_config(run).data if run is not None else None
    data = replace(data, root=of_run.root if of_run else None, cache=of_run.cache if of_run else config.data.cache)
    text = dev_of(data, model.fingerprint)
    if text is None and (kept := read_held_out(run, [model.fingerprint])) is not None:
        text = kept.dev
    if text is None and data.dev is None and data.builtin is None:
        raise ValueError("it was held out of its training text, which is not prepared here")
    text = text or load_text(data, "dev")
    if text is None:
        raise ValueError(f"data={data.name} has no dev set")
    return data, text


def old_scores(scores: DevScores) -> dict[str, Any]:
    """The entries of metrics.jsonl."""
    return {f"{OLD}{name.removeprefix('dev_')}": value for name, value in scores.as_dict().items()}


def comparison(before: Mapping[str, Any], after: Mapping[str, Any], *, metric: str, old: str | None, new: str) -> str:
    """One line: what the score of the old text (its name is `old`) and of the new was before, and is after.

    Empty where there is nothing to compare.
    """
    named = [(f"dev (old: {old})", OLD)] if old is not None else []
    parts = []
    for title, prefix in [*named, (f"dev (new: {new})", "dev_")]:
        key = prefix + metric
        if key in before and key in after:
            digits = 3 if metric == "nll" else 1
            parts.append(f"{title} {LABELS.get(metric, metric)} {before[key]:.{digits}f} → {after[key]:.{digits}f}")
    return " · ".join(parts)
