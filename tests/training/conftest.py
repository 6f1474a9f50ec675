"""Runs and models that several tests of training share."""

from pathlib import Path

import pytest

from tests.toy.run import MODEL, run, written_model


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of the toy's own settings, which nothing has stopped. No test trains it further."""
    folder = tmp_path_factory.mktemp("unbroken")
    run(folder)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model to begin with, of another seed than the runs have."""
    return written_model(tmp_path, name="source", seed=5, norm=MODEL.norm)
