"""Benchmark workers: each implementation runs in a process of its own, with its own environment, memory and threads.

The parent writes a request to stdin, one per line, and the worker responds with a line of JSON: the measurements, or an
error.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.config.compose import from_plain
from transformer_cli.errors import EnvironmentFault, TfmError
from transformer_cli.plugins import load_plugins
from transformer_cli.system import peak_memory

ROUND, KERNELS, RELEASE = "go", "kernels", "release"  # requests to a worker that trains


@dataclass(frozen=True)
class Round:
    """The measurements of one round of training."""

    n_target_tokens: int
    n_source_tokens: int
    n_padded_tokens: int  # both sides, padding included
    seconds: float
    peak_bytes: int  # of memory, since the process started

    def as_dict(self) -> dict[str, float]:
        """Measurements for --json, where padded tokens are named n_cells."""
        fields = asdict(self)
        return {{"n_padded_tokens": "n_cells"}.get(name, name): value for name, value in fields.items()}


class BenchmarkWorker:
    """A worker process, seen from the parent. `module` reads the parameters and calls `serve` or `serve_requests`."""

    def __init__(self, name: str, module: str, parameters: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        self.name = name
        command = [sys.executable, "-m", module, json.dumps(parameters)]
        self._process = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def round(self) -> Round:
        """Run one round of training. Raises what `request` raises."""
        return Round(**self.request(ROUND))

    def n_kernels(self) -> int | None:
        """Kernels of a round; None where there is no GPU. Raises what `request` raises."""
        found: int | None = self.request(KERNELS)["kernels"]
        return found

    def release(self) -> None:
        """Leave memory that is cached, but not in use, to the other workers. Raises what `request` raises."""
        self.request(RELEASE)

    def request(self, request: str) -> dict[str, Any]:
        """The response to a request. Raises EnvironmentFault if the process has ended, or the worker's TfmError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = self._process.stdout.readline()  # a response written before the process ended
        if not line:
            status = self._process.wait()
            raise EnvironmentFault(
                f"{self.name}: ended with status {status}. What it wrote is above; rivals=false leaves the others out"
            )
        response: dict[str, Any] = json.loads(line)
        if "fault" in response:
            kinds = {kind.__name__: kind for kind in TfmError.__subclasses__()}
            raise kinds.get(response["fault"], EnvironmentFault)(f"{self.name}: {response['message']}")
        return response

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()


def peak_bytes(device: torch.device) -> int:
    """Peak memory of this process: on the GPU, or the resident set size."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_memory()


def config_and_parameters() -> tuple[BenchConfig, dict[str, Any]]:
    """The config and parameters on this worker's command line; the plugins that the config names are imported first."""
    parameters: dict[str, Any] = json.loads(sys.argv[1])
    load_plugins(parameters["config"]["plugins"])
    return from_plain(BenchConfig, parameters["config"]), parameters


def serve_rounds(set_up: Callable[[], Callable[[], Round]]) -> None:
    """Main loop of a worker that trains: ROUND runs a round, KERNELS counts those of one, RELEASE frees memory."""

    def ready() -> Callable[[str], Mapping[str, Any]]:
        make_round = set_up()
        requests: dict[str, Callable[[], Mapping[str, Any]]] = {
            ROUND: lambda: asdict(make_round()),
            KERNELS: lambda: {"kernels": count_kernels(make_round)},
            RELEASE: release,
        }
        return lambda request: requests[request.strip()]()

    serve_requests(ready)


def release() -> Mapping[str, Any]:
    torch.cuda.empty_cache()
    return {}


def count_kernels(work: Callable[[], object]) -> int | None:
    """Kernels that `work` runs on the GPU, copies not counted; None where there is no GPU."""
    if not torch.cuda.is_available():
        return None
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        work()
    on_gpu = [event for event in profile.events() if event.device_type.name == "CUDA"]
    kernels = [event for event in on_gpu if not getattr(event, "is_user_annotation", False)]
    return sum(not event.name.startswith(("Memcpy", "Memset")) for event in kernels)


def serve_requests(set_up: Callable[[], Callable[[str], Mapping[str, Any]]]) -> None:
    """Main loop of a worker: set up, then respond to each line until stdin ends or a TfmError is raised."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # output of libraries must not mix with responses

    def write(content: Mapping[str, Any]) -> None:
        out.write(json.dumps(content) + "\n")
        out.flush()

    try:
        respond = set_up()
        for request in sys.stdin:
            write(respond(request))
    except TfmError as error:
        write({"fault": type(error).__name__, "message": str(error)})
