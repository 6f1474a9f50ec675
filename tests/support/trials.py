"""The things that are interrupted, and the check of how they go on: two commands and what they must come to."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import zygote
from tests.support.disk import Disk, cut_power
from tests.support.zygote import End
from tests.toy.run import tree
from transformer_cli.errors import TfmError
from transformer_cli.training.checkpoints import CheckpointStore, Damage

Report = Callable[[str], None]


@dataclass
class Subject:
    """Something that can be interrupted anywhere and done again: `work` in a copy of `template`."""

    template: Path
    work: zygote.Work
    outcome: Callable[[Path], dict[str, Any]]  # of a folder where it is finished; `metrics` may suffer in a power cut
    expected: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0  # that the work takes
    reports: list[str] = field(default_factory=list)  # of the work without a break

    def measure(self) -> "Subject":
        """Do it twice without a break, to know what it comes to and how long it takes."""
        runs = []
        for _ in range(2):
            trial = self.copy()
            end = zygote.finish(zygote.start(self.work, trial))
            assert end.status == 0, end.output
            runs.append((end.seconds, self.outcome(trial)))
            self.reports = end.reports
        self.seconds, self.expected = min(runs, key=lambda run: run[0])
        assert all(outcome == self.expected for _, outcome in runs), "not reproducible without a break"
        return self

    def copy(self) -> Path:
        """A new trial, in the place of the one before: paths stay the same."""
        trial = self.template.with_name("trial")
        for suffix in ("", ".memory", ".old"):
            shutil.rmtree(trial.with_name(trial.name + suffix), ignore_errors=True)
        return Path(shutil.copytree(self.template, trial, symlinks=True))


@dataclass
class Judge:
    """Follows one trial through its interruptions. `problems` are sentences."""

    subject: Subject
    trial: Path
    what: str
    problems: list[str] = field(default_factory=list)
    acknowledged: int = 0  # step of the last save that was
    compared: Sequence[str] = ()  # keys of the outcome; none: all

    def blame(self, problem: str) -> None:
        self.problems.append(f"{self.what}: {problem}")

    def follow(self, end: End, *, expected: Sequence[int] = (0,)) -> None:
        """Take in how a process ended that was not killed, or that was if -9 is `expected`."""
        for line in end.reports:
            word, _, number = line.partition(" ")
            if word == "found" and int(number) < self.acknowledged:
                self.blame(f"LOST: found step {number} after step {self.acknowledged} had been acknowledged")
            elif word == "saved":
                self.acknowledged = max(self.acknowledged, int(number))
        if end.status not in expected:
            self.blame(f"UNUSABLE: ended with {end.status}: {end.output[-1500:]}")

    def inspect(self) -> None:
        """Whatever has a checkpoint's name is whole."""
        for folder in self.trial.rglob("checkpoints"):
            store = CheckpointStore(folder.parent)
            for step in store.steps():
                try:
                    store.load(step)
                except (Damage, TfmError) as damage:
                    self.blame(f"HALF: step {step}: {damage}")

    def finish(self, *, metrics: bool = True, work: zygote.Work | None = None) -> list[str]:
        """Let the work go on to its end, compare, and give the problems."""
        if not self.problems:
            self.follow(zygote.finish(zygote.start(work or self.subject.work, self.trial)))
        return self.compare(metrics=metrics)

    def compare(self, *, metrics: bool = True) -> list[str]:
        """What differs from a run that was never interrupted, and what lies about.

        A power cut may take metrics, which are not synced with a save; what is left of them must be true.
        """
        if not self.problems:
            found, expected = self.subject.outcome(self.trial), self.subject.expected
            if not metrics and is_subsequence(found["metrics"], expected["metrics"]):
                expected = {**expected, "metrics": found["metrics"], "trained": found["trained"]}
            differing = [key for key in self.compared or expected if found.get(key) != expected[key]]
            if differing:
                self.blame(f"DIVERGED: {differing} differ, {found} is not {expected}")
            if left := zygote.leftovers(self.trial):
                self.blame(f"LEFT: {left}")
        return self.problems


def is_subsequence(some: Sequence[str], of: Sequence[str]) -> bool:
    rest = iter(of)
    return all(line in rest for line in some)


# ---- What is interrupted


def training(
    folder: Path, overrides: Sequence[str] = (), *, prepare: Callable[[Report], None] = zygote.reporting
) -> Subject:
    """`tfm train` from an empty folder: everything from its first file to the test scores."""
    zygote.write_corpus(folder / "template")
    zygote.compose(overrides)

    def work(report: Report) -> int:
        prepare(report)
        return zygote.train(overrides)

    return Subject(folder / "template", work, zygote.outcome).measure()


def saving(folder: Path) -> Subject:
    """The store alone: one more save where there are two, `best` moved to it, and the oldest pruned."""
    from tests.training.test_checkpoints import checkpoint, store_with

    third = checkpoint(3)
    store_with(folder / "template" / "run", 1, 2).mark_best(2)

    def work(report: Report) -> int:
        zygote.reporting(report)
        store = CheckpointStore(Path("run"))
        store.sweep()
        found = store.newest()
        if found is None or found.step < 3:
            store.save(third)
        store.mark_best(3)
        store.prune({2, 3})
        return 0

    def outcome(trial: Path) -> dict[str, Any]:
        files = {name: str(hash(content)) for name, content in tree(trial / "run").items()}
        return {**files, "best": os.readlink(trial / "run" / "best"), "metrics": [], "trained": []}

    return Subject(folder / "template", work, outcome).measure()


def die_at(
    work: zygote.Work, number: int, *, after: bool, on: str, mutate: Callable[[], None] | None = None
) -> zygote.Work:
    """`work` in a process that a file event kills: see Disk.die_at."""

    def dying(report: Report) -> int:
        disk = Disk(Path.cwd())
        disk.install()
        disk.die_at(number, after=after, on=on)
        if mutate is not None:
            mutate()
        status = work(report)
        report(f"events {disk.number}")
        return status

    return dying


def boundaries(
    folder: Path,
    *,
    what: str,
    overrides: Sequence[str],
    aftermaths: Sequence[str],
    stride: int = 1,
    on: str = "",
    mutant: str | None = None,
) -> dict[str, Any]:
    """Die before and after each file event that `on` is found in, or at each `stride`-th of these instants; go on.

    A `mutant` is a function of tests.support.disk that spoils the program; the first problem then ends the campaign.
    """
    from tests.support import disk

    subject = saving(folder) if what == "saving" else training(folder, overrides)
    mutate = getattr(disk, mutant) if mutant else None
    problems: list[str] = []
    n_events = n_trials = 0
    for i, aftermath in enumerate(aftermaths):
        instant = i % stride
        while True:
            number, after = instant // 2 + 1, bool(instant % 2)
            judge = Judge(subject, subject.copy(), f"{aftermath} {'after' if after else 'before'} event {number}")
            dying = die_at(subject.work, number, after=after, on=on, mutate=mutate)
            end = zygote.finish(zygote.start(dying, judge.trial))
            judge.follow(end, expected=(0, -9))
            if end.status != -9:
                problems += judge.problems
                n_events = max(n_events, *end.numbers("events"), 0)
                break
            n_trials += 1
            cut_power(judge.trial, aftermath)
            judge.inspect()
            problems += judge.finish(metrics=aftermath == "kill", work=_spoilt(subject.work, mutate))
            if mutant and problems:
                return {"events": n_events, "trials": n_trials, "problems": problems}
            instant += stride
    return {"events": n_events, "trials": n_trials, "problems": problems}


def _spoilt(work: zygote.Work, mutate: Callable[[], None] | None) -> zygote.Work:
    def spoilt(report: Report) -> int:
        if mutate is not None:
            mutate()
        return work(report)

    return spoilt
