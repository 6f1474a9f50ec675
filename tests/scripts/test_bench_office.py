"""The benchmark of office files: it starts, and other programs find each text of their files translated once."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.judges import judge

SCRIPT = ROOT / "scripts" / "bench_office.py"


@pytest.mark.parametrize(("what", "of"), [("time", "pages"), ("cells", "texts")])
def test_the_time_of_a_small_file_is_printed(what: str, of: str) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), what, "1"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith(f"1 {of}: "), done.stderr


@pytest.mark.slow
def test_other_programs_find_their_texts_translated_once(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), str(judge("office")), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.endswith("27 files, 0 faults\n"), done.stdout + done.stderr
