"""The warning of a model that does not translate although its warm-up is long over."""

from transformer_cli.config.train import TrainConfig
from transformer_cli.evaluation.usable import chance_score
from transformer_cli.training.progress import Progress
from transformer_cli.training.validation import DevScores, TranslationScores

# After so many warm-ups, and updates, each run that was measured and came to more than 5 BLEU had more than 1.
WARM_UPS, UPDATES = 2, 200


def low_score_warning(config: TrainConfig, progress: Progress, scores: DevScores, *, updates_per_epoch: int) -> str:
    """The likely causes of a dev score that is no more than chance, each with how to check it; empty if it is more.

    It is asked for at each evaluation, and concerns only the first one after `WARM_UPS` warm-ups and `UPDATES` updates.
    What the last one of a run has is reported at the end.
    """
    due, step = max(WARM_UPS * config.schedule.warmup_steps, UPDATES), progress.step
    if not progress.evaluated < due <= step or progress.is_over(config.train):
        return ""
    found = chance_score(list(scores.scores.values())) if isinstance(scores, TranslationScores) else ""
    if not found:
        return ""
    key = "lr" if config.schedule.factor is None else "factor"
    rate = getattr(config.schedule, key)
    lower = "" if rate is None else f" (the same command with schedule.{key}={rate / 2:g} and another name=)"
    return (
        f"dev {found}, although the warm-up is long over. Likely causes: lines that are not translations of each"
        " other, swapped sides or other languages (`tfm doctor` with the same arguments finds these); a learning rate"
        f" that is too high{lower}; too few updates ({step / updates_per_epoch:.2g} epochs until now; if the dev nll,"
        f" {scores.nll:.3f}, still falls, wait or raise train.max_steps)"
    )
