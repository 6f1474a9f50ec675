"""Mutation testing: small faults are put into the code one at a time, and the tests have to notice each.

A mutant (`mutants.py`) is written into a copy of the tracked files, in which the tests of its module run until one
fails. `scripts/mutate` starts this.
"""

import argparse
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from mutants import PACKAGE, ROOT, TARGETS, Mutant, choose

MARKS = "not slow and not gpu and not nightly"
MEMORY = 8_000_000  # KiB of data for the tests of one mutant, which may never stop growing

Record = dict[str, Any]  # a line of the output


class Copy:
    """The tracked files in a folder of their own, where one mutant after another is tested."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._temporary = folder / "tfm", folder / "tmp"
        for name in subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0"):
            if name and os.path.lexists(ROOT / name):
                (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self._folder / name, follow_symlinks=False)
        (self._folder / ".venv").symlink_to(ROOT / ".venv")
        self._n_written = 0
        self._process: subprocess.Popen[bytes] | None = None

    def test(self, module: str, source: bytes | None, timeout: float) -> Record:
        """The outcome of the tests with this `source` of a module, or with its own; the test that failed; seconds."""
        path, began = self._folder / PACKAGE / module, time.monotonic()
        own = path.read_bytes()
        self._write(path, source or own)
        self._temporary.mkdir()
        try:
            outcome, by = self._run([f"tests/test_{name}.py" for name in TARGETS[module].split()], timeout)
        finally:
            self.stop()
            self._write(path, own)
            shutil.rmtree(self._temporary, ignore_errors=True)
        return {"outcome": outcome, "by": by, "seconds": round(time.monotonic() - began, 1)}

    def _write(self, path: Path, source: bytes) -> None:
        """With a time of its own, since by time and size Python knows what it has compiled."""
        path.write_bytes(source)
        self._n_written += 1
        os.utime(path, (1_000_000_000 + self._n_written,) * 2)

    def _run(self, files: Sequence[str], timeout: float) -> tuple[str, str]:
        only = ["-x", "-q", "--tb=no", "-p", "_hypothesis_pytestplugin", "--hypothesis-profile=ci", "-m", MARKS]
        command = [
            "bash",
            "-c",
            f'ulimit -d {MEMORY} && exec "$@"',
            "bash",
            sys.executable,
            "-m",
            "pytest",
            *only,
            *files,
        ]
        environment = {
            "TFM_TEST_DATA": str(ROOT.parent / "shared" / "data"),
            **os.environ,
            "PYTHONPATH": str(self._folder),  # before what is installed, in processes that tests start, too
            "TMPDIR": str(self._temporary),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # of all that are installed, which takes seconds
        }
        with open(self._temporary / "output", "w+b") as file:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            try:
                status = self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                return "timeout", ""
            file.seek(0)
            output = file.read().decode(errors="replace")
        if status in (4, 5):  # a file that is not there, or no test in any
            raise SystemExit(f"{' '.join(files)}: {output}")
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        return ("noticed", failed[1] if failed else output[-200:].strip()) if status else ("survived", "")

    def stop(self) -> None:
        """End the tests, with all that they started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


class Campaign:
    """Tests mutants in several copies at once; results are added to a file, from which another one goes on."""

    def __init__(self, folder: Path, output: Path | None, *, jobs: int, timeout: float) -> None:
        self._output, self._timeout, self._lock = output, timeout, threading.Lock()
        self.outcomes: dict[str, str] = {}  # of each mutant
        self._seconds: dict[str, float] = {}  # that the tests of a module take without a fault
        self._is_over = False
        self._copies = [Copy(folder / str(number)) for number in range(jobs)]
        self._free = queue.SimpleQueue[Copy]()
        for copy in self._copies:
            self._free.put(copy)
        if output is not None and output.exists():
            for line in output.read_bytes().split(b"\n"):
                if line:
                    self._take(json.loads(line))

    def run(self, mutants: Sequence[Mutant], *, retry: bool) -> None:
        """Test those that have no result yet, and with `retry` those that survived or took too long."""
        done = {"noticed"} if retry else {"noticed", "timeout", "survived"}
        left = [mutant for mutant in mutants if self.outcomes.get(str(mutant)) not in done]
        modules = {mutant.module for mutant in left} - set(self._seconds)
        pool = ThreadPoolExecutor(len(self._copies))
        try:
            list(pool.map(self._test_unchanged, sorted(modules)))
            list(pool.map(self._test, left))
        finally:
            self._is_over = True  # what is ended from here on has noticed nothing
            for copy in self._copies:
                copy.stop()
            pool.shutdown(cancel_futures=True)

    def _test_unchanged(self, module: str) -> None:
        result = self._in_a_copy(module, None, 10 * self._timeout)
        if result["outcome"] != "survived":  # every mutant would count as noticed
            raise SystemExit(f"{module}: its tests fail without a fault: {result['by'] or result['outcome']}")
        self._note({"module": module, **result})

    def _test(self, mutant: Mutant) -> None:
        timeout = min(self._timeout, 60 + 4 * self._seconds[mutant.module])
        self._note({"mutant": str(mutant), **self._in_a_copy(mutant.module, mutant.source, timeout)})

    def _in_a_copy(self, module: str, source: bytes | None, timeout: float) -> Record:
        copy = self._free.get()
        try:
            return copy.test(module, source, timeout)
        finally:
            self._free.put(copy)

    def _note(self, record: Record) -> None:
        with self._lock:
            if self._is_over:
                return
            self._take(record)
            line = json.dumps(record, ensure_ascii=False)
            print(line, file=sys.stderr)
            if "mutant" in record:
                print(f"{record['outcome']:8}  {record['mutant']}", flush=True)
            if self._output is not None:
                with open(self._output, "a", encoding="utf-8") as lines:
                    lines.write(line + "\n")

    def _take(self, record: Record) -> None:
        if "mutant" in record:
            self.outcomes[record["mutant"]] = record["outcome"]
        else:
            self._seconds[record["module"]] = record["seconds"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/mutate", description="Counts the small faults that the tests notice."
    )
    parser.add_argument("--number", type=int, default=150, metavar="N", help="how many (150)")
    parser.add_argument("--seed", type=int, default=1, help="which (1)")
    parser.add_argument("--module", default="", metavar="PATTERN", help="only in modules whose path contains it")
    parser.add_argument("--list", action="store_true", help="name them, and test nothing")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="how many at a time (2)")
    parser.add_argument(
        "--timeout", type=float, default=300, metavar="S", help="seconds; a longer test has noticed (300)"
    )
    parser.add_argument(
        "--at-least", type=float, default=95, metavar="P", help="exit with 1 when fewer are noticed (95)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON lines; a run that ended goes on from them")
    parser.add_argument("--retry", action="store_true", help="test again what survived or took too long")
    wanted = parser.parse_args()
    mutants = choose([module for module in TARGETS if wanted.module in module], wanted.number, wanted.seed)
    if not mutants:
        parser.error(f"--module {wanted.module}: no module is called like it: {', '.join(TARGETS)}")
    if wanted.list:
        print(*mutants, sep="\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="tfm-mutate-", ignore_cleanup_errors=True) as folder:
        campaign = Campaign(Path(folder), wanted.output, jobs=wanted.jobs, timeout=wanted.timeout)
        campaign.run(mutants, retry=wanted.retry)
    survivors = [mutant for mutant in mutants if campaign.outcomes[str(mutant)] == "survived"]
    noticed = len(mutants) - len(survivors)
    for mutant in survivors:
        print(f"not noticed: {mutant}")
    share = 100 * noticed / len(mutants)
    print(f"{noticed} of {len(mutants)} mutants noticed ({share:.1f} %)")
    return int(share < wanted.at_least)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
