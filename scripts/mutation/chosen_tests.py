"""A pytest plugin that runs the tests, or test files, that the file $TFM_TESTS names, one a line, in its order.

After $TFM_ENOUGH seconds of processor time it begins no other.
"""

import os
from pathlib import Path

import pytest


class ChosenTests:
    def __init__(self, names: list[str], enough: float) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._enough, self._began = enough, _processor_s()

    def _place(self, item: pytest.Item) -> int | None:
        return self._places.get(item.nodeid, self._places.get(item.nodeid.partition("::")[0]))

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        places = [(place, number) for number, item in enumerate(items) if (place := self._place(item)) is not None]
        config.hook.pytest_deselected(items=[item for item in items if self._place(item) is None])
        items[:] = [items[number] for _, number in sorted(places)]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if _processor_s() - self._began > self._enough:
            item.session.shouldstop = "enough"


def _processor_s() -> float:
    """The processor time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def pytest_configure(config: pytest.Config) -> None:
    names = Path(os.environ["TFM_TESTS"]).read_text(encoding="utf-8").split("\n")
    config.pluginmanager.register(ChosenTests(names, float(os.environ["TFM_ENOUGH"])), "chosen-tests")
