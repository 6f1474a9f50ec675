"""Fixtures that several test files share."""

import gc
import io
import json
import logging
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from transformer_cli.cli import main
from transformer_cli.registry import load_addons

pytest.register_assert_rewrite("tests.support.contract")

load_addons()  # before a test replaces what a registry holds

ROOT = Path(__file__).resolve().parent.parent
Run = Callable[..., tuple[int, str, str]]

# The longest first: begun early, so that no worker is left alone with one at the end.
LONG_FILES = (
    *("test_hostile", "test_config", "test_end_to_end", "test_training", "test_stopping", "test_doctor", "test_ranks"),
    *("test_environment", "test_export_command", "test_translator", "test_prepare", "test_ensemble", "test_invariance"),
    *("test_translate_faults", "test_diverging", "test_plan", "test_search", "test_bench_decode", "test_layer_costs"),
    *("test_corpus_faults", "test_search_options", "test_cuda_graphs", "test_engines", "test_kills", "test_compiled"),
    *("test_systems", "test_device", "test_serve_service", "test_mutate", "test_docs_code", "test_every_flag"),
    *("test_augment_command", "test_config_command", "test_shards", "test_clean_corpora", "test_dual_cross_entropy"),
    *("test_suspects", "test_auto_recipe", "test_bench_auto_recipe", "test_scripts"),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return  # one process keeps the order that it was given
    places = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of each later garbage collection: they took a tenth of all time."""
    import hypothesis  # noqa: F401  # its plugin does at the end, and looks for referrers among what is not frozen

    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


def pytest_configure() -> None:
    """Shells start what runs in the background with SIGINT ignored, and nohup does SIGHUP; some tests send them."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def slow(*values: object) -> Any:
    """Values of a test's parameters that scripts/test --all alone takes."""
    return pytest.param(*values, marks=pytest.mark.slow)


def slow_but(values: Iterable[str], *quick: str) -> list[Any]:
    """Values of a test's parameter of which scripts/test takes only the `quick` ones."""
    found = list(values)
    assert set(quick) <= set(found)
    return [value if value in quick else slow(value) for value in found]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with real corpora, which the project does not carry: $TFM_TEST_DATA, or ../shared/data."""
    folder = Path(os.environ.get("TFM_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}; set TFM_TEST_DATA")
    return folder


@pytest.fixture
def tfm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in an empty folder, on the CPU: status, standard output and error; `stdin` are bytes."""

    def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        status = main([*arguments, *([] if arguments[0] == "export" else ["device=cpu"])])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def figures() -> Callable[[str, str], None]:
    """Write down what was measured under a name, in the file $TFM_FIGURES if that is set."""

    def write(name: str, value: str) -> None:
        if file := os.environ.get("TFM_FIGURES"):
            with open(file, "a", encoding="utf-8") as lines:
                lines.write(json.dumps({"name": name, "value": value}) + "\n")

    return write


@pytest.fixture(autouse=True, scope="session")
def _each_composition_once() -> Iterator[None]:
    from tests.support.compositions import compose_once
    from transformer_cli.config import compose

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "compose", compose_once())
        yield


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
    root = logging.getLogger()  # a sweep lets Hydra set it up; pytest's handlers are of other types
    root.handlers = [handler for handler in root.handlers if type(handler) is not logging.StreamHandler]
