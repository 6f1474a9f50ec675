"""`tfm train`: prepare, train or resume, and report dev and test scores."""

import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from transformer_cli.commands.translate.keys import TranslateConfig
from transformer_cli.config.train import TrainConfig
from transformer_cli.files import follow
from transformer_cli.logs import LOGGER, is_first_rank
from transformer_cli.models.locate import LATEST
from transformer_cli.training.main_process import Observer
from transformer_cli.training.ranks import join_ranks
from transformer_cli.training.result import TrainResult
from transformer_cli.training.run import Start, train_run
from transformer_cli.training.schedules import ends_at_max_steps
from transformer_cli.training.signals import stop_signals
from transformer_cli.training.validation import LABELS


@dataclass(frozen=True)
class Trained:
    """The result of a run. `scores` has those that a table of runs shows, `test_scores` the whole report, by name."""

    run_dir: Path
    dev_score: float
    step: int
    scores: dict[str, float | None]  # None: not a number
    is_new: bool  # False: an earlier command had finished it
    test_scores: Mapping[str, float | None] = field(default_factory=dict)


def run(config: TrainConfig) -> float | None:
    """Train `config` in its run directory; return the dev score, which a sweeper optimises.

    Under torchrun every rank runs this, and all but the first return None.
    """
    trained = train_and_report(config)
    return None if trained is None else trained.dev_score


def train_and_report(config: TrainConfig, observe: Observer | None = None) -> Trained | None:
    """Train, and print the scores of the test set; None on every rank but the first.

    `observe` is called with the step and the dev scores of each evaluation.
    """
    start = Start.of(config)
    with (
        stop_signals(is_reporting=is_first_rank()) as request,
        join_ranks(request, device_type=start.device.type, timeout_s=config.train.rank_timeout) as ranks,
    ):
        run = train_run(start, ranks, observe, owns_process=True)
        if run is None:
            return None
        config, result = run.config, run.result
        request.note_end()
        test_scores, unusable = config.data.trained.report(config, run.prepared, result, run.device)
        for line in _next(config, result, unusable):
            LOGGER.info("%s", line)
        dev_score = result.dev_score if math.isfinite(result.dev_score) else None
        return Trained(
            run.run_dir,
            result.dev_score,
            result.step,
            {f"dev {LABELS.get(result.metric, result.metric)}": dev_score, **_in_tables(test_scores)},
            result.is_new,
            test_scores,
        )


def _next(config: TrainConfig, result: TrainResult, unusable: str) -> Iterator[str]:
    """The commands for what people do next with the model, or why it is of no use yet."""
    goes_on = not ends_at_max_steps(config.schedule.name)
    if unusable:
        longer = f"raise {result.to_raise} and run the same command" if goes_on else "train a new run with more updates"
        yield f"not usable yet: {unusable}. Train longer ({longer}), or on more text"
        return
    newest = follow(Path(TranslateConfig().runs) / LATEST)
    is_newest = newest.exists() and newest.resolve() == result.model_path.parent.resolve()
    which = "" if is_newest else f" --checkpoint {shlex.quote(str(result.model_path.parent))}"
    lines = config.data.trained.next_commands(config, which)
    yield from (f"{'next: ' if i == 0 else '      '}{line}" for i, line in enumerate(lines))
    if goes_on:
        yield f"      the same command with a larger {result.to_raise} goes on"


def _in_tables(test_scores: Mapping[str, float | None]) -> Mapping[str, float | None]:
    """The scores of translations, as in the whole report, that are comparable between languages."""
    if "test chrF2" not in test_scores:
        return test_scores
    names = {"test BLEU": "test BLEU", "test chrF2": "test chrF"}
    return {shown: test_scores[name] for name, shown in names.items() if name in test_scores}
