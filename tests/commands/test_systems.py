"""macOS and Windows, rehearsed: whole pipelines without what they lack, and each part by itself."""

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.commands.test_environment import TYPED, fill
from tests.conftest import ROOT
from tests.data.test_corpus_faults import CORPUS, TRAIN
from tests.data.test_prepare import holder
from tests.support import systems
from tests.support.each import each
from tests.support.forked import Forked, Ran, environment
from tests.toy.run import CPU as ON_CPU
from tests.toy.run import model_file, packed, tokenizers
from transformer_cli import files, system
from transformer_cli.addons.interop import ctranslate2_engine
from transformer_cli.config.decode import Quantize
from transformer_cli.config.overrides import parse_override, quoted_for_hydra
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.errors import CheckpointError, EnvironmentFault
from transformer_cli.files import atomic_symlink, follow, locked
from transformer_cli.inference import worker_pool
from transformer_cli.models.linear import has_onednn
from transformer_cli.models.locate import locate_model

CPU = ["--device", "cpu"]
NAMES = "data.train=['kö.en','kö.de']"
PIPELINE = [
    ["prepare", *CORPUS, NAMES],
    [*TRAIN, NAMES],
    [*TRAIN, NAMES, "train.max_steps=6", "force=true"],
    ["average", "--last", "2", "--output", "average.safetensors"],
    ["translate", "--input", "text", "--output", "öut", "decode=greedy", "--device", "cpu"],
    ["translate", "--checkpoint", "runs/run/best", "decode=greedy", "--device", "cpu"],
    ["evaluate", "--source", "kö.en", "--reference", "kö.de", "--save", "hypotheses ☃", "--device", "cpu"],
]
OTHERS = [
    ["doctor", *TRAIN[1:], NAMES],
    [*TRAIN, NAMES],
    ["export", "ctranslate2", "--output", "exported"],
    ["export", "ctranslate2", "--output", "exported", "--overwrite"],
    ["translate", "--checkpoint", "exported", "--input", "text", "--output", "exported.de", "--device", "cpu"],
    ["translate", "--engine", "ctranslate2", "--input", "text", "--output", "int8", "decode.quantize=int8", *CPU],
    [*TRAIN, NAMES, "name=again", "resume=runs/run/best", "train.max_steps=6", "schedule.warmup_steps=64"],
    ["attention", "a b c", "--output", "page.html", *CPU],
    ["score", "--source", "kö.en", "--translation", "kö.de", *CPU],
]
ALL_OF_IT = """
import json, sys, tempfile
from pathlib import Path
if sys.argv[2] != "linux":
    sys.path.insert(0, sys.argv[3])
    from tests.support import systems
    systems.become(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        systems.prove(sys.argv[2], Path(folder))
from transformer_cli import cli
from transformer_cli.data import prepare
prepare._PAIRS_PER_PROCESS = 20  # several processes, of which each is spawned

def everything(main=cli.main):
    return next((code for line in json.loads(sys.argv[1]) if (code := main(line))), 0)

cli.main = everything
cli.entry_point()
"""
WRITTEN = ["öut", "hypotheses ☃", "average.safetensors", "runs/run/model.safetensors", "runs/run/config.yaml"]


def pipeline(system: str, folder: Path, commands: list[list[str]] = PIPELINE) -> Ran:
    arguments = [json.dumps(commands), system, str(ROOT)]
    if system == "linux":
        with Forked(arguments, folder, program=ALL_OF_IT) as process:
            out, err = process.communicate(TYPED)
            return Ran(process.wait(), out, err)
    command = [sys.executable, "-c", ALL_OF_IT, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(), input=TYPED, capture_output=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def linux(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    folder = fill(tmp_path_factory.mktemp("linux"))
    return folder, pipeline("linux", folder)


@pytest.mark.slow
@pytest.mark.parametrize("system", ["macos", "windows"])
def test_every_byte_is_the_same_without_what_a_system_lacks(
    system: str, linux: tuple[Path, Ran], tmp_path: Path
) -> None:
    usual, expected = linux
    assert expected.code == 0, expected.err.decode()
    ran = pipeline(system, fill(tmp_path))
    assert ran.code == 0, ran.err.decode()
    assert ran.out == expected.out
    for file in WRITTEN:
        assert (tmp_path / file).read_bytes() == (usual / file).read_bytes(), file


@pytest.mark.slow
@pytest.mark.parametrize("system", ["macos", "windows"])
def test_the_other_commands_work_without_what_a_system_lacks(system: str, tmp_path: Path) -> None:
    ran = pipeline(system, fill(tmp_path), OTHERS)
    assert ran.code == 0, ran.err.decode()
    assert {"exported", "exported.de", "int8", "page.html"} <= {path.name for path in tmp_path.iterdir()}


# ---- Links where there are none


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "symlink", systems._not_permitted)


@pytest.mark.usefixtures("no_links")
def test_latest_and_best_lead_to_the_model_also_where_links_are_not_permitted(tmp_path: Path) -> None:
    checkpoint = tmp_path / "runs/run/checkpoints/step-00000004"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(packed(model_file()))
    for run in ("an earlier one", "run"):
        atomic_symlink(tmp_path / "runs/latest", run)
    atomic_symlink(tmp_path / "runs/run/best", "checkpoints/step-00000004")
    expected = checkpoint / "model.safetensors"
    for name in ("runs/latest", "runs/latest/best", "runs/run/best/model.safetensors", "runs/run"):
        assert locate_model(str(tmp_path / name), str(tmp_path / "runs")).samefile(expected), name
    finished = tmp_path / "runs/run/model.safetensors"
    finished.write_bytes(b"")
    assert locate_model(None, str(tmp_path / "runs")) == finished
    assert [path.name for path in (tmp_path / "runs").iterdir() if path.is_file()] == ["latest"]


@pytest.mark.usefixtures("no_links")
def test_a_link_to_nothing_is_said(tmp_path: Path) -> None:
    atomic_symlink(tmp_path / "best", "checkpoints/step-00000004")
    assert follow(tmp_path / "best") == tmp_path / "best"
    with pytest.raises(CheckpointError, match="no trained model"):
        locate_model(None, str(tmp_path))


@pytest.mark.parametrize("target", ["../outside", "/", "", ".", "folder/../../outside", "best"])
def test_a_file_instead_of_a_link_leads_below_its_own_folder_or_nowhere(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").mkdir()
    run = tmp_path / "run"
    (run / "folder").mkdir(parents=True)
    (run / "best").write_text(f"tfm-link: {target}\n", encoding="utf-8")
    assert follow(run / "best" / "x").is_relative_to(run)


def test_a_file_that_is_no_link_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for content in (b"folder\n", b"tfm-link: \xff\n", b"tfm-link: folder" + b" " * 2000):
        (tmp_path / "file").write_bytes(content)
        assert follow(tmp_path / "file") == tmp_path / "file"


# ---- Locks, renames and syncing


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "fcntl", None)
    monkeypatch.setattr(system, "msvcrt", systems._msvcrt(fcntl))
    for module in (system, files):
        monkeypatch.setattr(module, "OPEN_FILES_MOVE", False)


@pytest.mark.usefixtures("windows")
def test_a_lock_of_windows_excludes_other_processes(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder(path) as process:
        with pytest.raises(BlockingIOError, match="held by another process"), locked(path, wait=False):
            pass
        assert process.stdin is not None
        process.stdin.close()
        with locked(path) as is_held:
            assert is_held


@pytest.mark.usefixtures("windows")
def test_a_rename_waits_for_who_has_the_file_open_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new").write_bytes(b"content")
    replace, tries, slept = os.replace, [0], []

    def in_use(source: Any, target: Any, *, until: int = 3) -> None:
        tries[0] += 1
        if tries[0] < until:
            raise PermissionError(errno.EACCES, "in use")
        replace(source, target)

    monkeypatch.setattr(system.time, "sleep", slept.append)
    monkeypatch.setattr(os, "replace", in_use)
    system.rename(tmp_path / "new", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert len(slept) == 2
    monkeypatch.setattr(os, "replace", lambda *paths: in_use(*paths, until=1000))
    with pytest.raises(PermissionError, match="in use"):
        system.rename(tmp_path / "file", tmp_path / "other")
    assert sum(slept) < 3


@pytest.mark.parametrize("can", [True, False])
def test_on_macos_a_sync_goes_through_to_the_disk_where_that_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool
) -> None:
    calls: list[object] = []

    def full_sync(descriptor: int, command: int) -> None:
        calls.append(command)
        if not can:
            raise OSError(errno.ENOTSUP, "a network disk")

    monkeypatch.setattr(system, "fcntl", SimpleNamespace(F_FULLFSYNC=51, fcntl=full_sync))
    monkeypatch.setattr(os, "fsync", lambda descriptor: calls.append("fsync"))
    with (tmp_path / "file").open("wb") as file:
        system.sync(file.fileno())
    assert calls == ([51] if can else [51, "fsync"])


@each("path", [r"C:\Users\a b\configs", "C:\\", r"\\server\it's", r"ends in \'", "\\"])
def test_a_path_of_windows_comes_through_hydras_grammar(path: str) -> None:
    assert parse_override(f"hydra.sweep.dir={quoted_for_hydra(path)}").value() == path


# ---- Memory and processors


def test_memory_is_measured_on_every_system(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert system.total_memory() == pages
    assert 0 < system.available_memory() <= pages
    block = bytearray(64 << 20)
    assert system.peak_memory() >= len(block)

    def no_proc(*_: object, **__: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", no_proc)  # macOS
    assert system.available_memory() == pages
    assert system.peak_memory() >= len(block)
    monkeypatch.delattr(os, "sysconf")  # Windows
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.setattr(system, "_kernel32", systems._Kernel32)
    assert (system.total_memory(), system.available_memory(), system.peak_memory()) == (16 << 30, 8 << 30, 1 << 30)


def test_processors_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert system.n_processors() == len(os.sched_getaffinity(0))
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "process_cpu_count", lambda: 3, raising=False)
    assert system.n_processors() == 3
    monkeypatch.delattr(os, "process_cpu_count")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert system.n_processors() == 1


UNGUARDED = """
from tests.toy.run import tokenizers
from transformer_cli.data.encoding import encoded
print(sum(len(source.lengths) for source, _ in encoded([("a b", "c")] * 30_000, tokenizers(), n_processes=2)))
"""


@pytest.mark.slow
def test_a_script_without_a_guard_encodes_in_several_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(UNGUARDED, encoding="utf-8")
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"30000\n"), done.stderr.decode()


def test_where_forking_is_not_safe_one_process_translates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(worker_pool, "can_fork", lambda: False)
    pool = worker_pool.WorkerPool(lambda item: (item, os.getpid()))
    assert [result for _, result in pool(range(3))] == [(n, os.getpid()) for n in range(3)]


# ---- Other processors


@pytest.mark.parametrize("error", [AttributeError, NotImplementedError, RuntimeError])
def test_onednn_is_used_where_it_multiplies(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fails(*_: object) -> None:
        raise error("not for this processor")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", fails, raising=False)
    assert has_onednn.__wrapped__() is False


def ctranslate2(compute_types: set[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Make an engine with a library that has these types; how it was asked for a translator."""
    asked: dict[str, Any] = {}
    library = SimpleNamespace(
        Translator=lambda directory, **options: asked.update(options),
        get_supported_compute_types=lambda device: {"cpu": compute_types}[device],
    )
    monkeypatch.setattr(ctranslate2_engine, "imported", lambda name, needs: library)

    def make(device: torch.device, quantize: Quantize) -> dict[str, Any]:
        text: Any = TrainingText
        ctranslate2_engine.CTranslate2Engine(Path(), tokenizers(), text=text, device=device, quantize=quantize)
        return asked

    return make


def test_int8_is_refused_where_ctranslate2_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    make = ctranslate2({"float32"}, monkeypatch)
    with pytest.raises(EnvironmentFault, match=r"^decode\.quantize=int8: .*\. Use decode\.quantize=none$"):
        make(ON_CPU, Quantize.int8)
    assert make(ON_CPU, Quantize.none)["compute_type"] == "default"


def test_ctranslate2_computes_on_the_cpu_of_a_mac_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    make = ctranslate2({"float32", "int8"}, monkeypatch)
    assert make(torch.device("mps"), Quantize.int8)["device"] == "cpu"
    assert caplog.messages == ["engine=ctranslate2: computes on the CPU, as it has no device=mps"]
