"""The lines of the package that each test of the default suite runs: measured once, and kept in a file.

A test file is measured again when its text has changed. When the package has changed since, the lines that are still
there are found in the new source.
"""

import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "transformer_cli"
MARKS = "not slow and not gpu and not nightly"
FILES_AT_A_TIME = 6  # in one process: torch is imported once for all of them
TIMEOUT_S = 3600  # of one process
FILE = ROOT / ".mutation" / "lines.jsonl"

SETTINGS = """\
[run]
source = {package}
data_file = {data}
parallel = true
concurrency = thread, multiprocessing
patch = subprocess, fork, _exit
sigterm = true
"""
# Run by every interpreter in the copy: an environment on top of another lacks the hook that coverage installs.
AT_START = """\
import coverage

coverage.process_startup()
"""


@dataclass(frozen=True)
class Test:
    """One test, with the lines that it runs of each module."""

    name: str
    seconds: float
    lines: dict[str, frozenset[int]]

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


def test_files() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def digest_of(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:16]


def copy_tracked(folder: Path) -> None:
    """Copy the files that git tracks, as they are now, and point at the environment."""
    for name in git("ls-files", "-z").split("\0"):
        if name and os.path.lexists(ROOT / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    (folder / ".venv").symlink_to(ROOT / ".venv")


def git(*arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True)


def measure(*, jobs: int) -> None:
    """Add a line to `FILE` for each test file whose text has not been measured."""
    known = {record["digest"] for record in _records()}
    left = [file for file in test_files() if digest_of(file) not in known]
    if not left:
        return
    if git("status", "--porcelain", "--", PACKAGE):
        raise SystemExit(f"{PACKAGE} has changes that are not committed: lines are measured of a commit")
    print(f"measuring which lines {len(left)} test files run ...", file=sys.stderr, flush=True)
    commit = git("rev-parse", "HEAD").strip()
    FILE.parent.mkdir(exist_ok=True)

    def measure_group(files: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory(prefix="tfm-lines-", ignore_cleanup_errors=True) as folder:
            tests = _run(Path(folder), files)
        with open(FILE, "a", encoding="utf-8") as output:
            for name in files:
                own = {test: found for test, found in tests.items() if test.partition("::")[0] == name}
                record = {"file": name, "digest": digest_of(name), "commit": commit, "tests": own}
                output.write(json.dumps(record) + "\n")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(measure_group, [left[at : at + FILES_AT_A_TIME] for at in range(0, len(left), FILES_AT_A_TIME)]))


def environment(tree: Path, temporary: Path) -> dict[str, str]:
    """The environment of tests in a copy of the tracked files."""
    return {
        "TFM_TEST_DATA": str(ROOT.parent / "shared" / "data"),
        **os.environ,
        "PYTHONPATH": f"{tree}:{tree / 'scripts' / 'mutation'}",  # before what is installed, in each process
        "TMPDIR": str(temporary),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # of all that are installed, which takes seconds
    }


def _run(folder: Path, files: Sequence[str]) -> dict[str, Any]:
    """Whether each test of these files passes, its seconds and its lines."""
    tree, data, temporary = (folder / name for name in ("tree", "data", "tmp"))
    for new in (tree, data, temporary):
        new.mkdir()
    copy_tracked(tree)
    (tree / "sitecustomize.py").write_text(AT_START, encoding="utf-8")
    (folder / "settings").write_text(SETTINGS.format(package=PACKAGE, data=data / "lines"))
    command = [
        sys.executable,
        "-m",
        "coverage",
        "run",
        f"--rcfile={folder / 'settings'}",
        "-m",
        "pytest",
        "-q",
        "--tb=no",
    ]
    command += ["-p", "_hypothesis_pytestplugin", "--hypothesis-profile=ci", "-p", "line_recorder", "-m", MARKS, *files]
    recorded = {"TFM_LINES": str(folder / "tests"), "TFM_LINES_DATA": str(data)}
    ran = subprocess.run(
        command,
        cwd=tree,
        env={**environment(tree, temporary), **recorded},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if not (folder / "tests").exists():
        raise SystemExit(f"{' '.join(files)}: {ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    found: dict[str, Any] = {}
    package = f"{tree / PACKAGE}/"
    for line in (folder / "tests").read_text(encoding="utf-8").split("\n")[:-1]:
        record = json.loads(line)
        lines = {path.removeprefix(package): _ranges(numbers) for path, numbers in record["lines"].items()}
        found[record["test"]] = {"passed": record["passed"], "seconds": record["seconds"], "lines": lines}
    return found


def _ranges(numbers: Sequence[int]) -> str:
    """Line numbers in order as `3-5 9`, since there are millions."""
    starts = [number for at, number in enumerate(numbers) if not at or numbers[at - 1] != number - 1]
    ends = [number for at, number in enumerate(numbers) if at + 1 == len(numbers) or numbers[at + 1] != number + 1]
    return " ".join(f"{start}-{end}" for start, end in zip(starts, ends, strict=True))


def _records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").split("\n") if line] if FILE.exists() else []


def read() -> list[Test]:
    """The tests that pass, as they are now, with the lines of the package as it is now."""
    now = {file: digest_of(file) for file in test_files()}
    records = {record["file"]: record for record in _records() if record["digest"] == now.get(record["file"])}
    return [
        Test(
            name,
            found["seconds"],
            {module: _now(record["commit"], module, at) for module, at in found["lines"].items()},
        )
        for record in records.values()
        for name, found in record["tests"].items()
        if found["passed"]
    ]


@cache
def _now(commit: str, module: str, ranges: str) -> frozenset[int]:
    moved = _moved(commit, module)
    pairs = (map(int, each.split("-")) for each in ranges.split())
    return frozenset(moved[number] for first, last in pairs for number in range(first, last + 1) if number in moved)


@cache
def _moved(commit: str, module: str) -> dict[int, int]:
    """The present number of each line of a module that is as it was at `commit`."""
    path = ROOT / PACKAGE / module
    old = git("show", f"{commit}:{PACKAGE}/{module}").split("\n")
    new = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return {block.a + at + 1: block.b + at + 1 for block in blocks for at in range(block.size)}
