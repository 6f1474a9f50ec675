"""`tfm verify-resume`: an exact resume is called exact, a planted fault is found, and the run itself is only read."""

import json
import math
import platform
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support import zygote
from tests.support.contract import refused, run
from tests.support.each import each
from tests.toy.run import tree
from transformer_cli.addons.resume_check import continuation, run_verify_resume
from transformer_cli.addons.resume_check.differences import Differences, Reached, compared
from transformer_cli.files import locked
from transformer_cli.training.run_directory import LOCK_FILE

SHORT = ["--updates", "4"]
PLUGIN = """
import os
import torch
from transformer_cli.training.optimizers import OPTIMIZERS

class Forgetful(torch.optim.SGD):
    \"\"\"Momentum in an attribute, which no checkpoint has.\"\"\"
    def step(self, closure=None):
        kept = self.__dict__.setdefault("kept", {})
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is not None:
                before = kept.get(parameter, torch.zeros_like(parameter))
                kept[parameter] = parameter.grad = 0.9 * before + parameter.grad
        super().step(closure)

class Random(torch.optim.SGD):
    def step(self, closure=None):
        super().step(closure)
        with torch.no_grad():
            self.param_groups[0]["params"][0].add_(1e-3 * os.urandom(1)[0])

OPTIMIZERS.register("forgetful")(lambda model, config: Forgetful(model.parameters(), lr=0.1))
OPTIMIZERS.register("random")(lambda model, config: Random(model.parameters(), lr=0.1))
"""


@pytest.fixture(autouse=True)
def _in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tasks of the processes are done in this one, but in a slow test: importing torch takes seconds."""

    def start_process(task_file: Path) -> str:
        continuation.main(task_file)
        return ""

    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(run_verify_resume, "start_process", start_process)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a run of it, which has ended after four updates."""
    folder = tmp_path_factory.mktemp("made")
    zygote.write_corpus(folder)
    ran = run([*zygote.COMMAND, "train.max_steps=4", "train.ema=0.9", "train.robustness_lines=0"], folder)
    assert ran.code == 0, ran.err
    return folder


def copied(made: Path, tmp_path: Path) -> Path:
    """A copy of the folder, in the place of the one before."""
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    return Path(shutil.copytree(made, tmp_path / "copy", symlinks=True))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return copied(made, tmp_path)


def test_a_resumed_run_is_exact_and_the_run_stays_as_it_was(made: Path) -> None:
    before = tree(made / "runs")
    with locked(made / zygote.RUN / LOCK_FILE):  # as if another process trained it
        ran = run(["verify-resume", "runs/run", *SHORT], made)
    assert ran.code == 0, ran.err
    facts = f"fp32, 1 thread, train.compile=auto, not compiled, torch {torch.__version__}"
    assert ran.out.decode().startswith("resumed = uninterrupted: 4 updates, ")
    assert ran.out.decode().endswith(f" tensors, equal to the last bit ({platform.machine()}, {facts})\n")
    assert tree(made / "runs") == before


def test_the_moving_average_and_the_optimizer_are_compared_too(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []

    def nothing(one: Reached, other: Reached) -> Differences:
        names.extend(one.tensors())
        return NOTHING

    monkeypatch.setattr(run_verify_resume, "difference_of", nothing)
    assert run(["verify-resume", "runs/run", *SHORT], made).code == 0
    kinds = ("weights ", "optimizer exp_avg", "optimizer ema")
    assert all(any(name.startswith(kind) for name in names) for kind in kinds), names


def test_a_run_that_is_not_started_is_verified_by_its_config(folder: Path) -> None:
    config = run([*zygote.COMMAND, "--cfg"], folder).out
    (folder / "new.yaml").write_bytes(config)
    shutil.rmtree(folder / "runs")
    ran = run(["verify-resume", "new.yaml", *SHORT], folder)
    assert (ran.code, ran.out.split(b":")[0]) == (0, b"resumed = uninterrupted"), ran.err
    assert b"new.yaml: step 0: 4 updates without a stop" in ran.err
    assert not (folder / "runs").exists()


@each(
    "optimizer, code, says",
    [
        (
            "forgetful",
            4,
            ["resumed ≠ uninterrupted, stopped after update 2", "update 4 is the first", "weights ", "a plugin with"],
        ),
        (
            "random",
            5,
            ["uninterrupted ≠ uninterrupted", "update 2 is the first", "weights ", "not deterministic here"],
        ),
    ],
)
def test_a_planted_fault_is_found_and_told_from_a_machine_that_is_not_deterministic(
    optimizer: str, code: int, says: list[str], made: Path, tmp_path: Path
) -> None:
    folder = copied(made, tmp_path)
    (folder / "planted.py").write_text(PLUGIN, encoding="utf-8")
    config = run([*zygote.COMMAND, "--plugin", "planted", f"optimizer.name={optimizer}", "--cfg"], folder).out
    (folder / "new.yaml").write_bytes(config)
    ran = run(["verify-resume", "new.yaml", "--plugin", "planted", *SHORT], folder)
    shown = (ran.out + ran.err).decode()
    assert ran.code == code, shown
    assert [text for text in says if text not in shown] == [], shown


def test_a_loss_that_differs_before_the_stop_is_no_fault_of_the_resume(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[Path] = []

    def start_process(task_file: Path) -> str:
        continuation.main(task_file)
        tasks.append(task_file)
        if len(tasks) == 3:  # of the run that is stopped
            answer = json.loads(continuation.answer_file(task_file).read_bytes())
            answer["losses"]["5"] = (1.5).hex()
            continuation.answer_file(task_file).write_text(json.dumps(answer), encoding="utf-8")
        return ""

    monkeypatch.setattr(run_verify_resume, "start_process", start_process)
    ran = run(["verify-resume", "runs/run", *SHORT], made)
    assert ran.code == 5
    assert b"update 5 is the first that differs" in ran.out
    assert b"second 1.5\n" in ran.out
    assert b"not deterministic here" in ran.err


# ---- What cannot be verified


def _damage(folder: Path) -> None:
    newest = max((folder / zygote.RUN / "checkpoints").glob("step-*"))
    with (newest / "optimizer.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\xff")


def _move_text(folder: Path) -> None:
    (folder / "train.en").rename(folder / "moved.en")


@each(
    "spoil, words, code, says",
    [
        (lambda folder: None, ["runs/other"], 4, ["runs/other", "no such file"]),
        (lambda folder: (folder / "empty").mkdir(), ["empty"], 4, ["empty", "is no run"]),
        (lambda folder: None, ["runs/run/model.safetensors"], 4, ["is no run", "no YAML file"]),
        (lambda folder: shutil.rmtree(folder / "runs"), [], 4, ["runs/latest", "no trained model"]),
        (lambda folder: (folder / "a.yaml").write_text("a: 1\n"), ["a.yaml"], 2, ["a.yaml", "no config of a run"]),
        (lambda folder: (folder / "a.yaml").write_text("plugins: [b]\n"), ["a.yaml"], 2, ["a.yaml", "--plugin b"]),
        (_damage, ["runs/run"], 4, ["step-00000004", "optimizer.safetensors has another SHA-256"]),
        (_move_text, ["runs/run"], 3, ["train.en"]),
    ],
)
def test_what_cannot_be_verified_is_refused_in_one_line(
    spoil: Callable[[Path], object], words: list[str], code: int, says: list[str], made: Path, tmp_path: Path
) -> None:
    folder = copied(made, tmp_path)
    spoil(folder)
    refused(["verify-resume", *words, *SHORT], folder, code=code, says=says, working=code == 3)


def test_a_new_run_that_ends_too_early_is_refused(folder: Path) -> None:
    config = run([*zygote.COMMAND, "train.max_steps=auto", "train.max_epochs=0.3", "--cfg"], folder).out
    (folder / "new.yaml").write_bytes(config)
    refused(["verify-resume", "new.yaml"], folder, code=2, says=["--updates=20: the run ends after"], working=True)


def test_a_process_that_dies_is_reported(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_verify_resume, "start_process", lambda task_file: "ended with status -9 ('')")
    says = ["has ended with status -9", "close other programs"]
    refused(["verify-resume", "runs/run"], made, code=5, says=says, working=True)


def test_several_ranks_are_refused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    refused(["verify-resume", "runs/run"], made, code=2, says=["in one process", "without torchrun"])


def test_a_run_that_was_sharded_is_verified_in_one_process(folder: Path) -> None:
    config = run([*zygote.COMMAND, "train.sharding=full", "--cfg"], folder).out
    (folder / "new.yaml").write_bytes(config)
    ran = run(["verify-resume", "new.yaml", *SHORT], folder)
    assert ran.code == 0, ran.err
    assert b"new.yaml: train.sharding divides it among several processes; one continues it here" in ran.err


# ---- The comparison


NOTHING = Differences(None, [], [], 0)


@each("dtype, ulp", [(torch.float32, 2.0**-23), (torch.bfloat16, 2.0**-7), (torch.float64, 2.0**-52)])
def test_a_difference_is_counted_in_ulps(dtype: torch.dtype, ulp: float) -> None:
    one = torch.tensor([1.0, 2.0], dtype=dtype)
    found = compared("x", one, torch.tensor([1.0 + ulp, 2.0], dtype=dtype))
    assert found is not None
    assert found.what.startswith("1 of 2 values, by up to ")
    assert found.what.endswith(", 1 ulps")
    assert found.relative == ulp / 2


@each(
    "one, other, what",
    [
        (torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0]), ", 0 ulps"),
        (torch.tensor([1e-3, 1.0]), torch.tensor([-1e-3, 1.0]), "1 of 2 values, by up to 0.002 of the largest value"),
        (torch.tensor([math.nan]), torch.tensor([1.0]), "1 of 1 values"),
        (torch.tensor([1.0]), torch.tensor([1]), "another form: (1,) torch.float32 and (1,) torch.int64"),
        (torch.tensor([3]), torch.tensor([5]), "by up to 0.67 of the largest value"),
        (None, torch.tensor([5]), "is only in the second"),
        (torch.tensor([5]), None, "is only in the first"),
    ],
)
def test_every_other_bit_is_a_difference(one: Tensor | None, other: Tensor | None, what: str) -> None:
    found = compared("x", one, other)
    assert found is not None
    assert what in found.what


@each("x", [torch.tensor([math.nan, -0.0, 1.0]), torch.tensor([True]), torch.empty(0), torch.tensor(3)])
def test_equal_bits_are_no_difference_nan_included(x: Tensor) -> None:
    assert compared("x", x, x.clone()) is None


def test_counts_alone_are_a_difference() -> None:
    found = replace(NOTHING, counts=["interval"])
    assert found
    assert list(found.lines("a", "b"))[-1] == "counts of the checkpoint that differ: interval"


# ---- In processes of their own


@pytest.mark.slow
def test_the_processes_are_new_interpreters(made: Path) -> None:
    ran = run(["verify-resume", "runs/run", *SHORT], made)
    assert (ran.code, ran.out.split(b":")[0]) == (0, b"resumed = uninterrupted"), ran.err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("compiled", ["none", "graphs"])
def test_on_a_gpu_a_resumed_run_is_exact(compiled: str, folder: Path) -> None:
    settings = ["device=cuda", f"train.compile={compiled}", "train.precision=bf16"]
    (folder / "new.yaml").write_bytes(run([*zygote.COMMAND, *settings, "--cfg"], folder).out)
    ran = run(["verify-resume", "new.yaml", *SHORT], folder)
    assert (ran.code, ran.out.split(b":")[0]) == (0, b"resumed = uninterrupted"), ran.err
