"""Mutation testing: small faults are put into the code one at a time, and the tests have to notice each.

A mutant (`mutants.py`) is written into a copy of the tracked files, in which the tests that concern its line
(`mutation_tests.py`) run until one fails. `scripts/mutate` starts this.
"""

import argparse
import json
import math
import multiprocessing
import os
import queue
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import child
import line_map
from mutants import PACKAGE, Mutant, choose, modules, package_of
from relevant_tests import concerned

MEMORY = 8_000_000_000  # bytes of data for the tests of one mutant, which may never stop growing
STUCK_S = 120  # processor time beyond what is enough, after which a single test is stuck
ENOUGH = {"noticed", "timeout", "survived", "not run"}  # outcomes that are not sought again

Record = dict[str, Any]  # a line of the output
_CONTEXT = multiprocessing.get_context("forkserver")


class Copy:
    """The tracked files in a folder of their own, where one mutant after another is tested."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._temporary = folder / "tfm", folder / "tmp"
        line_map.copy_tracked(self._folder)
        self._n_written = 0
        self._process: BaseProcess | None = None

    def test(self, mutant: Mutant, tests: Sequence[str], *, timeout: float, enough: float) -> Record:
        """The outcome of these tests with a mutant in the place of its module; the test that failed; seconds."""
        path, began = self._folder / PACKAGE / mutant.module, time.monotonic()
        own = path.read_bytes()
        self._write(path, mutant.source)
        try:
            outcome, failed = self._run(tests, timeout=timeout, enough=enough)
        finally:
            self._write(path, own)
        return {"outcome": outcome, "by": next(iter(failed), ""), "seconds": round(time.monotonic() - began, 1)}

    def failing(self, tests: Sequence[str]) -> list[str]:
        """The tests that fail without a mutant."""
        return self._run(tests, timeout=None, enough=math.inf, options=())[1]

    def _write(self, path: Path, source: bytes) -> None:
        """Write a source with a time of its own, since by time and size Python knows what it has compiled."""
        path.write_bytes(source)
        self._n_written += 1
        os.utime(path, (1_000_000_000 + self._n_written,) * 2)

    def _run(
        self, tests: Sequence[str], *, timeout: float | None, enough: float, options: Sequence[str] = ("-x",)
    ) -> tuple[str, list[str]]:
        """The outcome, and the tests that failed."""
        self._temporary.mkdir()
        (self._temporary / "tests").write_text("\n".join(tests), encoding="utf-8")
        arguments = [*options, "-q", "--tb=no", "-p", "_hypothesis_pytestplugin", "--hypothesis-profile=ci"]
        arguments += ["-p", "chosen_tests", "-m", line_map.MARKS, *_files(tests)]
        environment = line_map.environment(self._folder, self._temporary)
        environment |= {"TFM_TESTS": str(self._temporary / "tests"), "TFM_ENOUGH": str(enough)}
        output, limit = self._temporary / "output", None if math.isinf(enough) else int(enough + STUCK_S)
        work = (arguments, str(self._folder), environment, str(output), MEMORY, limit)
        self._process = _CONTEXT.Process(target=child.run, args=work)
        try:
            self._process.start()
            self._process.join(timeout)
            if (status := self._process.exitcode) is None:
                return "timeout", []
            text = output.read_text(encoding="utf-8", errors="replace")
        finally:
            self.stop()
            shutil.rmtree(self._temporary, ignore_errors=True)
        if status == -signal.SIGXCPU:
            return "timeout", []
        if status == 5 or "file or directory not found" in text:
            raise SystemExit(f"pytest found none of {' '.join(tests)}: {text[-2000:]}")
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
        return ("noticed" if status else "survived"), failed or ([text[-200:].strip()] if status else [])

    def stop(self) -> None:
        """End the tests, with all that they started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid or 0, signal.SIGKILL)
            self._process.join()
            self._process = None


def _files(tests: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(test.partition("::")[0] for test in tests))


class Campaign:
    """Tests mutants in several copies at once; results are added to a file, from which another one goes on."""

    def __init__(
        self,
        folder: Path,
        output: Path | None,
        *,
        tests: Sequence[line_map.Test],
        jobs: int,
        timeout: float,
        enough: float,
    ) -> None:
        self._output, self._timeout, self._lock = output, timeout, threading.Lock()
        self._tests, self._enough = tests, enough
        self.records = records_of(output)
        self._is_over = False
        self._copies = [Copy(folder / str(number)) for number in range(jobs)]
        self._free = queue.SimpleQueue[Copy]()
        for copy in self._copies:
            self._free.put(copy)

    def run(self, mutants: Sequence[Mutant], *, retry: bool) -> None:
        """Test those that have no result yet, and with `retry` those that survived or took too long."""
        done = {"noticed"} if retry else ENOUGH
        left = [mutant for mutant in mutants if self.records.get(str(mutant), {}).get("outcome") not in done]
        random.Random(len(left)).shuffle(left)  # so that what was tested is a sample wherever a run is ended
        pool = ThreadPoolExecutor(len(self._copies))
        try:
            list(pool.map(self._test, left))
            self._confirm(mutants)
        finally:
            self._is_over = True  # what is ended from here on has noticed nothing
            for copy in self._copies:
                copy.stop()
            pool.shutdown(cancel_futures=True)

    def _test(self, mutant: Mutant) -> None:
        choice = concerned(mutant, self._tests)
        record: Record = {"mutant": str(mutant), "kind": mutant.kind}
        if not choice.names:
            self._note({**record, "outcome": "not run", "by": "", "seconds": 0})
            return
        copy = self._free.get()
        try:
            self._note({**record, **copy.test(mutant, choice.names, timeout=self._timeout, enough=self._enough)})
        finally:
            self._free.put(copy)

    def _confirm(self, mutants: Sequence[Mutant]) -> None:
        """A test that fails without a mutant has noticed none: the mutants that it ended are to be tested again."""
        records = [self.records[str(mutant)] for mutant in mutants]
        known = {name for record in records if "::" in (name := record["by"])}
        names = sorted({record["by"] for record in records if not record.get("confirmed")} & known)
        if not names:
            return
        copy = self._free.get()
        failing = set(copy.failing(names)) & known
        self._free.put(copy)
        for record in records:
            if record["by"] in names:
                self._note(
                    {**record, "confirmed": True, **({"outcome": "unstable"} if record["by"] in failing else {})}
                )

    def _note(self, record: Record) -> None:
        with self._lock:
            if self._is_over:
                return
            self.records[record["mutant"]] = record
            if "confirmed" not in record:
                print(
                    f"{record['outcome']:8}  {record['seconds']:5.0f} s  {record['mutant']}",
                    file=sys.stderr,
                    flush=True,
                )
            if self._output is not None:
                with open(self._output, "a", encoding="utf-8") as lines:
                    lines.write(json.dumps(record, ensure_ascii=False) + "\n")


def records_of(output: Path | None) -> dict[str, Record]:
    """The last result of each mutant that a file of results holds."""
    if output is None or not output.exists():
        return {}
    records = [json.loads(line) for line in output.read_text(encoding="utf-8").split("\n") if line]
    return {record["mutant"]: record for record in records}


def report(mutants: Sequence[Mutant], records: dict[str, Record]) -> float:
    """Print a table of the packages and the mutants that no test noticed; return the share that was, in percent."""
    outcomes = {mutant: records[str(mutant)]["outcome"] for mutant in mutants if str(mutant) in records}
    counted = {mutant: outcome for mutant, outcome in outcomes.items() if outcome != "unstable"}
    totals, noticed = Counter[str](), Counter[str]()
    for mutant, outcome in counted.items():
        totals[package_of(mutant.module)] += 1
        noticed[package_of(mutant.module)] += outcome in ("noticed", "timeout")
    for package in sorted(totals):
        share = 100 * noticed[package] / totals[package]
        print(f"{package:16}  {noticed[package]:4} of {totals[package]:4}  {share:5.1f} %")
    for mutant, outcome in outcomes.items():
        if outcome not in ("noticed", "timeout"):
            print(f"{outcome}: {mutant}")
    share = 100 * noticed.total() / max(1, totals.total())
    n_timeouts = sum(outcome == "timeout" for outcome in outcomes.values())
    print(
        f"{noticed.total()} of {totals.total()} mutants noticed ({share:.1f} %), {n_timeouts} of them by the time limit"
    )
    return share


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate", description="Counts the small faults that the tests notice."
    )
    parser.add_argument("--number", type=int, default=300, metavar="N", help="how many (300)")
    parser.add_argument("--seed", type=int, default=1, help="which (1)")
    parser.add_argument("--module", default="", metavar="PATTERN", help="only in modules whose path contains it")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="of these, each N-th from the I-th on")
    parser.add_argument("--list", action="store_true", help="name them, and test nothing")
    parser.add_argument(
        "--measure", action="store_true", help="measure which lines new and changed tests run, for later runs, and stop"
    )
    parser.add_argument("--report", action="store_true", help="print what --output holds so far, and test nothing")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (2)")
    parser.add_argument(
        "--timeout", type=float, default=900, metavar="S", help="seconds; a longer test has noticed (900)"
    )
    parser.add_argument(
        "--enough", type=float, default=60, metavar="S", help="seconds of processor time for one mutant (60)"
    )
    parser.add_argument(
        "--at-least", type=float, default=92, metavar="P", help="exit with 1 when fewer are noticed (92)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON lines; a run that ended goes on from them")
    parser.add_argument("--retry", action="store_true", help="test again what survived or took too long")
    return parser


def sample(parser: argparse.ArgumentParser, wanted: argparse.Namespace) -> list[Mutant]:
    names = [module for module in modules() if wanted.module in module]
    if not names:
        parser.error(f"--module {wanted.module}: no module is called like it")
    if not (shard := re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", wanted.shard)) or int(shard[1]) > int(shard[2]):
        parser.error(f"--shard {wanted.shard}: give it as 1/4")
    return choose(names, wanted.number, wanted.seed)[int(shard[1]) - 1 :: int(shard[2])]


def main() -> int:
    parser = options()
    wanted = parser.parse_args()
    mutants = sample(parser, wanted)
    if wanted.list:
        print(*mutants, sep="\n")
        return 0
    if wanted.report:
        report(mutants, records_of(wanted.output))
        return 0
    if wanted.measure:
        line_map.measure(jobs=wanted.jobs)
        return 0
    _CONTEXT.set_forkserver_preload(child.PRELOADED)
    with tempfile.TemporaryDirectory(prefix="tfm-mutate-", ignore_cleanup_errors=True) as folder:
        campaign = Campaign(
            Path(folder),
            wanted.output,
            tests=line_map.read(),
            jobs=wanted.jobs,
            timeout=wanted.timeout,
            enough=wanted.enough,
        )
        campaign.run(mutants, retry=wanted.retry)
    return int(report(mutants, campaign.records) < wanted.at_least)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
