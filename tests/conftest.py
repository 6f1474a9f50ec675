"""Fixtures that several test files share."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with real corpora, which the project does not carry: $TFM_TEST_DATA, or ../shared/data."""
    folder = Path(os.environ.get("TFM_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no corpora at {folder}; set TFM_TEST_DATA")
    return folder
