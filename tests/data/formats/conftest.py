from pathlib import Path

import pytest

from tests.data.formats.toy_tables import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
