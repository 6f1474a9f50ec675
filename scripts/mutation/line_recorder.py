"""A pytest plugin: which lines of the package each test runs, in this process and in those that it starts.

`scripts/mutation/line_map.py` starts it under `coverage run`; the file $TFM_LINES gets a JSON object of each test.
"""

import json
import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import coverage
import pytest
from coverage.exceptions import CoverageException
from coverage.sqldata import CoverageData

Lines = dict[str, set[int]]  # of each file


class LineRecorder:
    def __init__(self, folder: Path, output: Path) -> None:
        measured = coverage.Coverage.current()
        assert measured is not None, "under `coverage run`"
        self._coverage, self._folder, self._output = measured, folder, output
        self._lines: dict[str, Lines] = defaultdict(lambda: defaultdict(set))
        self._seconds: dict[str, float] = defaultdict(float)
        self._failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """What the processes of this test have left. The data of one that has not ended belong to a later test."""
        for path in self._folder.iterdir():
            if f".pid{os.getpid()}." not in path.name and not path.name.endswith("-journal"):
                data = CoverageData(str(path))
                with suppress(CoverageException):
                    data.read()
                    self._add(nodeid, data)
                    data.close(force=True)
                    path.unlink()

    def pytest_sessionfinish(self) -> None:
        data = self._coverage.get_data()
        for test in list(self._seconds):
            data.set_query_context(test)
            self._add(test, data)
        with open(self._output, "w", encoding="utf-8") as file:
            for test, seconds in self._seconds.items():
                lines = {path: sorted(numbers) for path, numbers in self._lines[test].items()}
                record = {
                    "test": test,
                    "passed": test not in self._failed,
                    "seconds": round(seconds, 2),
                    "lines": lines,
                }
                file.write(json.dumps(record) + "\n")

    def _add(self, test: str, data: CoverageData) -> None:
        for path in data.measured_files():
            if numbers := data.lines(path):
                self._lines[test][path].update(numbers)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(
        LineRecorder(Path(os.environ["TFM_LINES_DATA"]), Path(os.environ["TFM_LINES"])), "line-recorder"
    )
