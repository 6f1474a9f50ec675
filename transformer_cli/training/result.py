"""What a finished run leaves behind: its model, and `result.json` about it."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer_cli.config.train import TrainConfig
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import map_model
from transformer_cli.models.header import MALFORMED, MODEL_FILE
from transformer_cli.models.locate import RESULT_FILE
from transformer_cli.training.averaging import average
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.ema import Ema
from transformer_cli.training.progress import Progress


@dataclass(frozen=True)
class TrainResult:
    model_path: Path  # of the exported model
    dev_score: float  # its train.best_metric: BLEU (chrF where that cannot be computed), or nats per target token
    step: int  # the last one
    metric: str  # what dev_score is: bleu, chrf …
    is_new: bool = True  # False: the run had ended before
    to_raise: str = "train.max_steps"  # the key that has ended it


@dataclass(frozen=True)
class _Candidate:
    """Averaged weights that are exported if they score no worse than the best checkpoint."""

    name: str
    details: dict[str, Any]  # in result.json, beside the scores
    description: str
    weights: dict[str, Tensor]


def averaged_candidates(
    config: TrainConfig, progress: Progress, ema: Ema | None, store: CheckpointStore
) -> Iterator[_Candidate]:
    """The moving average of all updates, and the mean of the last checkpoints."""
    steps = progress.saved[-config.train.average_last :]
    if ema is not None and ema.is_sound():
        decay = config.train.ema
        yield _Candidate("ema", {"decay": decay}, f"the moving average of all updates, decay {decay}", ema.weights())
    if len(steps) > 1:
        weights = average([store.load_model(step).weights for step in steps])
        description = f"the average of {len(steps)} checkpoints, steps {', '.join(map(str, steps))}"
        yield _Candidate("average", {"steps": steps}, description, weights)


def read_result(run_dir: Path, step: int) -> TrainResult | None:
    """The result of a run that ended at `step`; None if it has none, or its model is damaged."""
    try:
        outcome = json.loads((run_dir / RESULT_FILE).read_bytes())
        score = outcome["dev_score"]
        score = math.nan if score is None else float(score)
        metric = str(outcome["dev_metric"])
        result = TrainResult(run_dir / MODEL_FILE, score, int(outcome["step"]), metric)
    except (OSError, *MALFORMED):
        return None
    if result.step != step:
        return None
    try:
        map_model(result.model_path)
    except CheckpointError:
        return None
    return result
