"""Triton's interpreter, which runs the kernels of a GPU on a CPU."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def errors_in_interpreter(module: str) -> list[float]:
    """`largest_error` of each of the CASES of a test module, in float32.

    A process of its own, as Triton asks for its interpreter once.
    """
    program = (
        "import os; os.environ['TRITON_INTERPRET'] = '1'\n"
        "import json, torch\n"
        f"from {module} import CASES, largest_error\n"
        "print(json.dumps([largest_error(case, torch.float32, 'cpu') for case in CASES]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found
