"""Every rank but the first, beside its updates: it waits for what the first rank reads, evaluates and writes."""

from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

from transformer_cli.errors import Stopped
from transformer_cli.training.checkpoints import Checkpoint
from transformer_cli.training.plan import RunPlan
from transformer_cli.training.progress import Evaluation
from transformer_cli.training.ranks import Ranks
from transformer_cli.training.result import TrainResult
from transformer_cli.training.spikes import Spike
from transformer_cli.training.state import TrainingState
from transformer_cli.training.trainer import UpdateStats


class Worker:
    """A `Process` that writes nothing. Its counterpart, message by message, is `MainProcess`."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.result: TrainResult | None = None

    def logging(self) -> AbstractContextManager[None]:
        return nullcontext()

    def find_checkpoint(self, resume: str) -> Checkpoint | None:
        return None

    def resume(self, run: TrainingState, checkpoint: Checkpoint | None) -> None:
        run.load(None)

    def begin(self, run: TrainingState, plan: RunPlan) -> bool:
        return not self.ranks.wait_for("finished")

    def recording(self, run: TrainingState) -> AbstractContextManager[None]:
        return nullcontext()

    def record(self, run: TrainingState, stats: UpdateStats) -> None:
        """The first rank reports for all."""

    def log(self, run: TrainingState) -> None:
        """The first rank logs for all."""

    def evaluate(self, run: TrainingState) -> Evaluation | None:
        return Evaluation.from_json(self.ranks.wait_for(f"evaluated/{run.progress.step}"))

    def save(self, run: TrainingState, *, counts: bool, in_doubt: bool = False) -> None:
        """The first rank saves for all."""

    def save_and_stop(self, run: TrainingState) -> NoReturn:
        """Raises Stopped once the first rank has saved: torchrun ends all ranks soon after one of them has ended."""
        self.ranks.wait_for("saved", is_patient=True)
        raise Stopped(self.ranks.stop_signal, "the first rank has saved")

    def diverge(self, run: TrainingState, step: int) -> NoReturn:
        """Raises DivergedError once the first rank has kept the divergence dump."""
        self.ranks.wait_for("incident", is_patient=True)
        raise run.divergence(step)

    def report_spike(self, run: TrainingState, spike: Spike) -> None:
        """The first rank reports for all."""

    def roll_back(self, run: TrainingState, spike: Spike) -> bool:
        """Whether the first rank has found a checkpoint to go back to; if so, it is loaded here too."""
        if not self.ranks.wait_for(f"rollback/{run.progress.step}", is_patient=True):
            return False
        self.ranks.go_back()
        run.load(None)
        return True

    def export_best(self, run: TrainingState, plan: RunPlan) -> None:
        """The first rank exports."""
