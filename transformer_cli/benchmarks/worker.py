"""A contestant in a process of its own, as it would be used: with its own settings, memory and threads.

The parent writes a line for each round, or with what it asks for, and gets a line of JSON back: what was done and how
long it took, or why it cannot be done.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from transformer_cli.errors import EnvironmentFault, TfmError


@dataclass(frozen=True)
class Round:
    """What a contestant did."""

    n_target_tokens: int
    n_source_tokens: int
    n_cells: int  # that were computed for them, both sides
    seconds: float
    peak_bytes: int  # of memory, since it was started


class Contestant:
    """The parent's end. `module` reads the parameters and hands `serve` what makes ready for rounds."""

    def __init__(self, name: str, module: str, parameters: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self.name = name
        command = [sys.executable, "-m", module, json.dumps(parameters)]
        self._process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def round(self) -> Round:
        """Raises what `ask` raises."""
        return Round(**self.ask("go"))

    def ask(self, request: str) -> dict[str, Any]:
        """The answer to one line. Raises EnvironmentFault when the contestant has ended, or the TfmError it has met."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = self._process.stdout.readline()  # what it said before it went
        if not line:
            status = self._process.wait()
            raise EnvironmentFault(
                f"{self.name}: ended with status {status}. What it wrote is above; rivals=false leaves the others out"
            )
        answer: dict[str, Any] = json.loads(line)
        if "fault" in answer:
            kinds = {kind.__name__: kind for kind in TfmError.__subclasses__()}
            raise kinds.get(answer["fault"], EnvironmentFault)(f"{self.name}: {answer['message']}")
        return answer

    def close(self) -> None:
        """End its process, whatever it is at."""
        self._process.kill()
        self._process.communicate()


def peak_bytes(device: torch.device) -> int:
    """What this process has held at most: of the GPU's memory, or of this machine's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    # Not getrusage: what it tells on Linux is no less than what the parent had when it started this process.
    return 1024 * int(status.partition("VmHWM:")[2].split(maxsplit=1)[0])


def serve(make_ready: Callable[[], Callable[[], Round]]) -> None:
    """The end of a contestant that has one thing to do: a round of it for each line."""

    def ready() -> Callable[[str], Mapping[str, Any]]:
        make_round = make_ready()
        return lambda request: asdict(make_round())

    serve_requests(ready)


def serve_requests(make_ready: Callable[[], Callable[[str], Mapping[str, Any]]]) -> None:
    """The contestant's end: make ready, and answer each line until stdin ends or a TfmError is met."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer

    def answer(content: Mapping[str, Any]) -> None:
        out.write(json.dumps(content) + "\n")
        out.flush()

    try:
        respond = make_ready()
        for request in sys.stdin:
            answer(respond(request))
    except TfmError as error:
        answer({"fault": type(error).__name__, "message": str(error)})
