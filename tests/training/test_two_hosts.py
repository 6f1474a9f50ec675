"""Two hosts that meet through torchrun's rendezvous; they are network namespaces, each with a folder of its own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT


def may_make_networks() -> bool:
    if shutil.which("ip") is None:
        return False
    name = f"tfm-{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    return made and subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_two_hosts_have_the_losses_of_one_process_and_one_of_them_writes(
    tmp_path: Path, figures: Callable[[str, str], None]
) -> None:
    if not may_make_networks():
        pytest.skip("needs the right to make network namespaces")
    environment = {**os.environ, "TFM_BIN": str(Path(sys.executable).parent), "PYTHONPATH": str(ROOT)}
    command = [ROOT / "scripts/two_hosts", tmp_path]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert result.returncode == 0, result.stderr
    told = re.fullmatch(r"20 updates on two hosts against one process: .* by at most (\S+)\n", result.stdout)
    assert told, result.stdout
    assert float(told[1]) <= 1e-5
    figures("two hosts against one process", f"the losses of 20 updates differ by at most {told[1]}")
    wrote = sorted(str(path.relative_to(tmp_path).parent) for path in tmp_path.glob("host?/*"))
    assert wrote in (["host1", "host1", "host2"], ["host1", "host2", "host2"])  # both the data, one of them a run
