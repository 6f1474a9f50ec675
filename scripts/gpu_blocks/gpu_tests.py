"""(a) The tests marked gpu, in this process: what has passed is on record whatever a later test does."""

import re
from pathlib import Path
from typing import Any

import pytest

from gpu_blocks.block import Block
from transformer_cli.addons.benchmarks.report import Measured

ROOT = Path(__file__).resolve().parent.parent.parent
TITLE = "pytest -m gpu"
MARKED = re.compile(r"\bmarks?\.gpu\b")


class Recorder:
    """A plugin of pytest that writes down the result of each test as it ends."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.results: dict[str, tuple[str, float, str]] = {}  # by name of the test: result, seconds, reason
        self.found: Measured | None = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.passed:
            return  # of set-up and tear-down only what went wrong
        result = "error" if report.failed and report.when != "call" else report.outcome
        self.add(report.nodeid, result, report.duration, reason(report))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.add(report.nodeid, "error", 0.0, reason(report))

    def add(self, name: str, result: str, seconds: float, why: str) -> None:
        self.results[name] = (result, seconds, why)
        counts = {kind: sum(one[0] == kind for one in self.results.values()) for kind, *_ in self.results.values()}
        rows = [[one, result, f"{seconds:.1f}", why] for one, (result, seconds, why) in self.results.items()]
        notes = [f"{', '.join(f'{n} {kind}' for kind, n in counts.items())}."]
        self.found = Measured("tests", ("test", "result", "s", "reason"), rows, notes, counts)
        self.block.keep(self.found)


def reason(report: Any) -> str:
    """The last line of an error; why a test was skipped."""
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", None)
    text = crash or (str(report.longrepr) if report.longrepr else "")
    return text.strip().split("\n")[0] if crash else text.strip().split("\n")[-1]


def marked_files() -> list[str]:
    """Test files that name the mark: others need not be imported."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(file) for file in files if MARKED.search(file.read_text(encoding="utf-8"))]


def run(block: Block) -> None:
    block.measure(TITLE, lambda: tested(block))


def tested(block: Block) -> Measured:
    recorder = Recorder(block)
    usual = ["-m", "gpu", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", f"--rootdir={ROOT}"]
    usual += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hydra has a plugin, and is imported already
    status = pytest.main([*usual, *marked_files()], plugins=[recorder])
    if recorder.found is None:
        raise RuntimeError(f"pytest ended with status {int(status)} and no result")
    return recorder.found
