"""One run of tests, in a process forked from one that has imported what they need but the package itself.

The forked process starts in a second where a fresh one takes five.
"""

import os
import resource
import sys
import types
from collections.abc import Mapping, Sequence

PRELOADED = [
    *("_pytest.python", "hypothesis", "torch", "torch.nn.attention", "numpy", "sentencepiece", "safetensors.torch"),
    *("hydra", "omegaconf", "sacrebleu", "sacremoses", "yaml", "tqdm", "starlette.testclient"),
]


def run(
    arguments: Sequence[str], folder: str, environment: Mapping[str, str], output: str, memory: int, seconds: int | None
) -> None:
    """pytest with these arguments, in a process group of its own and within limits; its status is the process's."""
    os.setsid()
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, source in enumerate((null, descriptor, descriptor)):
        os.dup2(source, number)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    paths = environment["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [*paths, *(path for path in sys.path if path not in ("", *paths))]
    sys.argv = ["pytest", *arguments]
    sys.modules["__main__"] = types.ModuleType("__main__")
    import pytest

    status = int(pytest.main(list(arguments)))
    sys.stdout.flush()
    os._exit(status)
