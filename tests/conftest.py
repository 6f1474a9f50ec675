"""Fixtures that several test files share."""

import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.zygote import Zygote

pytest.register_assert_rewrite("tests.contract")

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure() -> None:
    """Shells start what runs in the background with SIGINT ignored, and nohup does SIGHUP; some tests send them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with real corpora, which the project does not carry: $TFM_TEST_DATA, or ../shared/data."""
    folder = Path(os.environ.get("TFM_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}; set TFM_TEST_DATA")
    return folder


@pytest.fixture
def figures() -> Callable[[str, str], None]:
    """Write down what was measured under a name, in the file $TFM_FIGURES if that is set."""

    def write(name: str, value: str) -> None:
        if file := os.environ.get("TFM_FIGURES"):
            with open(file, "a", encoding="utf-8") as lines:
                lines.write(json.dumps({"name": name, "value": value}) + "\n")

    return write


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """A process from which trainers are forked."""
    process = Zygote()
    yield process
    process.close()


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """A command that ran inside this process, for a test or for a whole module, set up the log: each finds it new."""
    _forget_the_log()
    yield
    _forget_the_log()


def _forget_the_log() -> None:
    logger = logging.getLogger("tfm")
    logger.propagate, logger.handlers = True, []
    logger.setLevel(logging.NOTSET)
