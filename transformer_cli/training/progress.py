"""The state of training apart from its tensors: the part of a checkpoint that is JSON."""

import json
import math
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from transformer_cli.config.train import TrainSettings
from transformer_cli.models.device import accumulation_dtype
from transformer_cli.training.spikes import Skip
from transformer_cli.training.trainer import UpdateStats
from transformer_cli.training.validation import Rank, Trust, perplexity


@dataclass(frozen=True)
class Ranked:
    rank: Rank
    step: int


LEAST_FALL = 0.001  # nats by which the NLL must fall to count: what the log shows of it


@dataclass(frozen=True)
class Evaluation:
    """What all ranks need of an evaluation: how good the step is, and which steps could not be saved until then."""

    rank: Rank
    failed_steps: list[int]
    trust: Trust | None = None  # None: the rank alone decides

    @staticmethod
    def to_json(evaluation: "Evaluation | None") -> str:
        return json.dumps(None if evaluation is None else asdict(evaluation))

    @classmethod
    def from_json(cls, text: str) -> "Evaluation | None":
        fields = json.loads(text)
        if fields is None:
            return None
        trust = None if fields["trust"] is None else Trust(**fields["trust"])
        return cls((fields["rank"][0], fields["rank"][1]), fields["failed_steps"], trust)


@dataclass
class Progress:
    """The counts that decide what comes next."""

    step: int = 0
    n_tokens: int = 0  # target tokens seen
    evaluated: int = 0  # the step of the last evaluation; a run may stop between an update and its evaluation
    best: tuple[Ranked, ...] = ()  # best first; each has a checkpoint
    saved: tuple[
        int, ...
    ] = ()  # the last steps that were to be saved; one more may have been, when the run was stopped
    n_without_best: int = 0  # evaluations; with `Trust`, also without a lower NLL
    highest: float | None = None  # score of an evaluation with `Trust`
    lowest_nll: float | None = None  # of such an evaluation
    must_evaluate: bool = False  # before the next update: the scores until now are of another dev set or metric
    skips: tuple[Skip, ...] = ()  # batches that are left out because of loss spikes
    rollbacks: tuple[dict[str, Any], ...] = ()  # because of these; each as it is in metrics.jsonl

    def is_over(self, settings: TrainSettings) -> bool:
        return self.step >= settings.max_steps or self.out_of_patience(settings)

    def is_due(self, every: int, settings: TrainSettings) -> bool:
        """Whether something that happens `every` so many steps, and at the last one, happens now."""
        return self.step % every == 0 or self.step == settings.max_steps

    def evaluation_is_due(self, settings: TrainSettings) -> bool:
        return self.must_evaluate or self.is_due(settings.eval_every, settings)

    def evaluation_is_missing(self, settings: TrainSettings) -> bool:
        """Whether a resumed run was stopped between an update and its evaluation."""
        return self.step > 0 and self.evaluation_is_due(settings) and self.evaluated != self.step

    def out_of_patience(self, settings: TrainSettings) -> bool:
        return settings.patience is not None and self.n_without_best >= settings.patience

    def rank(self, rank: Rank, settings: TrainSettings, trust: Trust | None = None) -> bool:
        """Count an evaluation at this step; True when it is one of the best. NaN is never best."""
        self.evaluated, self.must_evaluate = self.step, False
        is_finite = all(map(math.isfinite, rank))
        is_progress = is_finite and trust is not None and self._nll_falls(-rank[1])
        if is_finite:
            if trust is not None:
                self.highest = rank[0] if self.highest is None else max(self.highest, rank[0])
            candidates = [*self.best, Ranked(rank, self.step)]
            candidates.sort(key=lambda ranked: self.order(ranked.rank, trust), reverse=True)
            self.best = tuple(candidates[: settings.keep_best])
            is_progress |= self.best[0].step == self.step
        self.n_without_best = 0 if is_progress else self.n_without_best + 1
        return any(ranked.step == self.step for ranked in self.best)

    def order(self, rank: Rank, trust: Trust | None) -> tuple[float, ...]:
        """The higher, the better, after the evaluations until now."""
        if trust is None:
            return rank
        return trust.order(rank, rank[0] if self.highest is None else max(self.highest, rank[0]))

    def is_no_worse(self, rank: Rank, than: Rank, trust: Trust | None) -> bool:
        """Compare the average of checkpoints with one of them, where its score may be the highest."""
        if trust is None:
            return rank >= than
        highest = max(rank[0], than[0] if self.highest is None else self.highest)
        return trust.order(rank, highest) >= trust.order(than, highest)

    def _nll_falls(self, nll: float) -> bool:
        """Whether the NLL is lower than ever, and not only in digits that the log does not show."""
        falls = self.lowest_nll is None or nll <= self.lowest_nll - LEAST_FALL
        if falls:
            self.lowest_nll = nll
        return falls

    def keep(self, settings: TrainSettings) -> None:
        """Count this step as saved; those that are too old by now are no longer kept."""
        earlier = [step for step in self.saved if step != self.step]
        self.saved = (*earlier, self.step)[-settings.keep_last :]

    def steps(self) -> set[int]:
        """The steps that should have a checkpoint."""
        return {*self.saved, *(ranked.step for ranked in self.best)}

    def forget(self, steps: Collection[int]) -> None:
        """Removes steps that have no checkpoint."""
        self.best = tuple(ranked for ranked in self.best if ranked.step not in steps)
        self.saved = tuple(step for step in self.saved if step not in steps)

    def rank_anew(self) -> None:
        """Ranks from here on do not compare with earlier ones: nothing is best yet, and this step is evaluated first.

        Checkpoints that were among the best are kept as long as any other of their age.
        """
        self.saved = tuple(sorted(self.steps()))
        self.best, self.n_without_best = (), 0
        self.highest = self.lowest_nll = None
        self.evaluated, self.must_evaluate = min(self.evaluated, self.step - 1), True

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any], *, steps: Collection[int] = ()) -> "Progress":
        """The inverse of `state`, given the checkpoints that there are. Raises what MALFORMED lists."""
        counts = {key: int(state[key]) for key in ("step", "n_tokens", "n_without_best")}
        if min(counts.values()) < 0:
            raise ValueError(f"a count below 0 in {counts}")
        best = tuple(Ranked((float(r["rank"][0]), float(r["rank"][1])), int(r["step"])) for r in state["best"])
        evaluated = int(state["evaluated"])
        saved = tuple(int(step) for step in state["saved"])
        must_evaluate = bool(state["must_evaluate"])
        skips = tuple(Skip(int(skip["step"]), int(skip["n_batches"])) for skip in state.get("skips", []))
        rollbacks = tuple(dict(rollback) for rollback in state.get("rollbacks", []))
        if any(skip.n_batches < 0 for skip in skips):
            raise ValueError(f"a count below 0 in {skips}")
        highest, lowest = (None if (x := state[key]) is None else float(x) for key in ("highest", "lowest_nll"))
        progress = cls(
            **counts,
            evaluated=evaluated,
            best=best,
            saved=saved,
            must_evaluate=must_evaluate,
            highest=highest,
            lowest_nll=lowest,
            skips=skips,
            rollbacks=rollbacks,
        )
        progress.forget([step for step in progress.steps() if step not in steps])
        return progress


class MetricAccumulator:
    """Sums over the updates since the last log line. They stay on the device until `means` reads them."""

    def __init__(self, device: torch.device, saved: dict[str, float] | None = None) -> None:
        """Empty, or as `saved` by `state`: a resumed run logs what one that was never stopped logs."""
        self.device = device
        saved = saved or {"loss": 0.0, "nll": 0.0, "n_tokens": 0, "n_real": 0, "n_cells": 0}
        dtype = accumulation_dtype(device)
        # `full` is a kernel; `tensor` would be a copy that the CPU waits for.
        self.loss, self.nll = (torch.full((), saved[key], dtype=dtype, device=device) for key in ("loss", "nll"))
        self.n_tokens = torch.full((), int(saved["n_tokens"]), device=device)  # of the updates that were not skipped
        self.n_real, self.n_padded_tokens = int(saved["n_real"]), int(saved["n_cells"])
        if min(saved["n_tokens"], self.n_real, self.n_padded_tokens) < 0:
            raise ValueError(f"a count below 0 in {saved}")
        self.grad_norm = torch.zeros((), device=device)
        # Of guided alignment; None until an update has any.
        self.alignment: Tensor | None = None
        self.n_linked = torch.full((), int(saved.get("n_linked", 0)), device=device)
        if "alignment" in saved:
            self.alignment = torch.full((), saved["alignment"], dtype=dtype, device=device)

    def add(self, stats: UpdateStats, *, n_real: int) -> None:
        """Add one update, whose batches hold `n_real` tokens of both sides."""
        self.loss += torch.where(stats.finite, stats.loss.to(self.loss.dtype) * stats.n_tokens, 0.0)
        self.nll += torch.where(stats.finite, stats.nll.to(self.nll.dtype) * stats.n_tokens, 0.0)
        self.n_tokens += stats.finite * stats.n_tokens
        self.n_real += n_real
        self.n_padded_tokens += stats.n_padded_tokens
        self.grad_norm = stats.grad_norm
        if stats.alignment is not None:
            before = torch.zeros_like(self.loss) if self.alignment is None else self.alignment
            added = stats.alignment.to(before.dtype) * stats.n_linked
            self.alignment = before + torch.where(stats.finite, added, 0.0)
            self.n_linked += stats.finite * stats.n_linked

    def means(self) -> dict[str, float] | None:
        """`grad_norm` is that of the last update. None when every update was skipped."""
        n_tokens = int(self.n_tokens)
        if n_tokens == 0:
            return None
        nll = self.nll.item() / n_tokens
        grad_norm = self.grad_norm.item()
        return {
            "loss": self.loss.item() / n_tokens,
            "nll": nll,
            "ppl": perplexity(nll),
            **self._alignment_loss(),
            **({"grad_norm": grad_norm} if math.isfinite(grad_norm) else {}),  # fp16 sometimes overflows
            "fill": self.n_real / self.n_padded_tokens,
        }

    def _alignment_loss(self) -> dict[str, float]:
        if self.alignment is None:
            return {}
        return {"alignment_loss": self.alignment.item() / max(1, int(self.n_linked))}

    def state(self) -> dict[str, float]:
        sums = {"loss": self.loss.item(), "nll": self.nll.item()}
        if self.alignment is not None:
            sums |= {"alignment": self.alignment.item(), "n_linked": int(self.n_linked)}
        return {**sums, "n_tokens": int(self.n_tokens), "n_real": self.n_real, "n_cells": self.n_padded_tokens}
