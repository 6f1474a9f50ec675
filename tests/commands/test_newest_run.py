"""The run that a command takes which names none: never one that still trains."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.contract import error_line, run
from tests.support.each import each
from tests.toy.run import config, run_until
from tests.toy.run import run as train
from transformer_cli.command import COMMANDS
from transformer_cli.models.locate import locate_model

# Every command that takes a model, and what it needs besides. Where none is named, `bench` draws a model of its own and
# `align` needs none.
ARGUMENTS = {
    "translate": [],
    "serve": ["--port", "0"],
    "augment": ["back-translate", "--input", "text", "--output", "out"],
    "answer": [],
    "classify": [],
    "tag": [],
    "embed": ["--output", "out.npy"],
    "evaluate": ["--source", "text", "--reference", "text"],
    "score": ["--source", "text", "--translation", "text"],
    "shortlist": ["--source", "text", "--translation", "text"],
    "attention": ["a b"],
    "generate": ["a"],
    "fill": ["a [mask]"],
    "average": ["--last", "2", "--output", "out"],
    "export": ["huggingface", "--output", "out"],
    "inspect": [],
    "push": ["hf:me/model", "--license", "cc0-1.0", "--yes"],
}


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a run that was stopped in update 7 of 12."""
    folder = tmp_path_factory.mktemp("work")
    run_until(7, folder / "runs" / "ft", config(average_last=1))
    (folder / "text").write_text("a b\n")
    return folder


def test_every_command_with_a_model_is_in_the_table() -> None:
    flags = {name: [*command.flags.values(), command.argument] for name, command in COMMANDS.items()}
    assert {name for name, all_ in flags.items() if any(flag and flag.key == "checkpoint" for flag in all_)} == {
        *ARGUMENTS,
        *("bench", "align"),
    }


@each("command", ARGUMENTS)
def test_no_command_takes_a_run_that_trains_unless_it_is_named(unfinished: Path, command: str) -> None:
    says = ["runs: no run is finished. runs/ft is unfinished, step 6 of 12", "--checkpoint runs/ft"]
    error_line(forked.run([command, *ARGUMENTS[command]], unfinished), code=4, says=says)


@each("command", ARGUMENTS)
def test_every_command_looks_for_a_run_in_the_folder_that_it_is_given(unfinished: Path, command: str) -> None:
    start = forked.run if command == "serve" else run  # which leaves its socket to the end of its process
    ran = start([command, *ARGUMENTS[command], "runs=elsewhere"], unfinished)
    error_line(ran, code=4, says=["elsewhere/latest: no trained model"])


@pytest.mark.slow
def test_a_run_that_trains_never_takes_the_place_of_the_finished_one(unfinished: Path, tmp_path: Path) -> None:
    shutil.copytree(unfinished, tmp_path, dirs_exist_ok=True, symlinks=True)
    runs = tmp_path / "runs"
    train(runs / "base")
    step_of_base = json.loads((runs / "base" / "result.json").read_bytes())["step"]
    run_until(10, runs / "ft", config(average_last=1))
    run_until(7, runs / "newer")
    ran = run(["inspect", "--json"], tmp_path)
    assert json.loads(ran.out)["model"] == "runs/base/model.safetensors"
    assert ran.err.decode() == f"using runs/base, finished at step {step_of_base}\n"
    named = run(["inspect", "--json", "runs/ft"], tmp_path)
    assert b"runs/ft: unfinished, step 8 of 12. Using " in named.err

    train(runs / "ft", config(average_last=1))
    assert locate_model(None, str(runs)) == runs / "ft" / "model.safetensors"
    run_until(14, runs / "base", config(max_steps=20))  # more updates for a run that has ended
    assert locate_model(None, str(runs)) == runs / "ft" / "model.safetensors"
    train(runs / "base", config(max_steps=20))
    assert locate_model(None, str(runs)) == runs / "base" / "model.safetensors"


def test_a_run_that_patience_ends_is_finished(tmp_path: Path) -> None:
    result = train(tmp_path / "runs" / "a", config(eval_every=1, patience=1, max_steps=40, best_metric="bleu"))
    assert result.step < 40
    assert locate_model(None, str(tmp_path / "runs")) == result.model_path
