"""scripts/bench_gpu: what is left of a block that crashes or hangs, what a second run completes, and the page."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.conftest import ROOT, slow

SCRIPT = ROOT / "scripts" / "bench_gpu.py"


def imported() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_gpu", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bench_gpu = imported()  # which finds the blocks beside it

from gpu_blocks import BLOCKS, exactness, gpu_tests, loss_curve, record, syncs, training  # noqa: E402
from gpu_blocks.block import Block  # noqa: E402
from gpu_blocks.page import page  # noqa: E402

HEAD = {"block": "q", "toy": True, "date": "2026-01-02T03:04:05+00:00", "command": "scripts/bench_gpu q", "commit": "x"}

# A block that has one result, and is at its second measurement.
HALF_DONE = f"""
import os, subprocess, sys, time
sys.path[:0] = [{str(ROOT / "scripts")!r}, {str(ROOT)!r}]
from pathlib import Path
from gpu_blocks.record import read_record, write_record
file = Path(sys.argv[1])
content = read_record(file)
content["measurements"].append({{"title": "first", "columns": [""], "rows": [["1"]], "notes": [], "figures": {{}}}})
write_record(file, {{**content, "now": "second"}})
"""


def half_done(ending: str, file: Path, *, limit_s: float = 60) -> dict[str, Any]:
    command = [sys.executable, "-c", HALF_DONE + ending, str(file)]
    found: dict[str, Any] = record.run_in_process(command, file, HEAD, limit_s=limit_s)
    assert found == json.loads(file.read_text(encoding="utf-8"))
    return found


# ---- What is left of a block


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("raise RuntimeError('no such kernel')", "ended with status 1 during: second (RuntimeError: no such kernel)"),
        ("os.kill(os.getpid(), 9)", "ended by SIGKILL during: second"),
        ("os.abort()", "ended by SIGABRT during: second"),
        ("print('gone', file=sys.stderr); os._exit(0)", "ended with status 0 during: second (gone)"),
    ],
)
def test_a_block_that_crashes_keeps_what_it_has_measured(tmp_path: Path, ending: str, said: str) -> None:
    found = half_done(ending, tmp_path / "q.json")
    assert found["state"] == record.FAILED
    assert found["failed"] == said
    assert [one["title"] for one in found["measurements"]] == ["first"]


@pytest.mark.slow
def test_a_block_that_hangs_is_killed_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "GRACE_S", 1)
    started = "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    hang = f"Path({str(tmp_path / 'worker')!r}).write_text(str(worker.pid)); time.sleep(600)"
    found = half_done(started + hang, tmp_path / "q.json", limit_s=5)
    assert found["failed"].startswith("killed after ")
    assert found["failed"].endswith(" s during: second")
    assert [one["title"] for one in found["measurements"]] == ["first"]
    assert ends(int((tmp_path / "worker").read_text()))


def ends(process: int, *, within_s: float = 20) -> bool:
    """Whether the process ends, or has ended and nobody has waited for it."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_a_block_ends_when_its_parent_is_killed() -> None:
    block = f"""
import importlib.util, os
spec = importlib.util.spec_from_file_location("bench_gpu", {str(SCRIPT)!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
parent = os.getppid()
print(os.getpid(), flush=True)
module.end_with_parent(parent)
"""
    parent = f"""
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {block!r}], process_group=0)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())  # it knows its parent by now
        time.sleep(1)
        process.kill()
    assert ends(child)


def test_a_measurement_that_fails_costs_no_other(tmp_path: Path) -> None:
    block = toy_block(tmp_path)

    def fails() -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20 GiB.")

    assert block.measure("one", fails) is None
    block.measure("two", lambda: exactness.Measured("x", ("", "y"), [["a", "1"]], ["a note"]))
    block.finish()
    found = record.read_record(block.file)
    assert found["state"] == record.FINISHED
    assert found["measurements"][0] == {"title": "one", "failed": "OutOfMemoryError: Tried to allocate 20 GiB."}
    assert found["measurements"][1]["rows"] == [["a", "1"]]


def toy_block(tmp_path: Path, *, is_toy: bool = True, seconds: float = 60) -> Block:
    file = tmp_path / "q.json"
    record.write_record(file, {**HEAD, "state": record.RUNNING, "limit_s": 1, "measurements": []})
    return Block(file, seconds=seconds, is_toy=is_toy)


def test_a_measurement_that_does_not_fit_into_the_time_is_left_out(tmp_path: Path) -> None:
    block = toy_block(tmp_path, is_toy=False, seconds=5)
    block.measure("long", lambda: pytest.fail("it was begun"), needs_s=60)
    assert record.read_record(block.file)["measurements"] == [
        {"title": "long", "left_out": "takes about 60 s, and 5 s were left"}
    ]


def test_an_unfinished_measurement_is_on_record_once(tmp_path: Path) -> None:
    block = toy_block(tmp_path)

    def grows() -> Any:
        found = exactness.Measured("x", ("",))
        for n in range(3):
            found.rows.append([str(n)])
            block.keep(found)
            on_file = record.read_record(block.file)
            assert on_file["now"] == "rows"
            assert [one["rows"] for one in on_file["measurements"]] == [found.rows]
        return found

    block.measure("rows", grows)
    assert [one["title"] for one in record.read_record(block.file)["measurements"]] == ["rows"]


# ---- The command


Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command with blocks that do nothing; returns its status and the blocks that it has started."""
    started: list[str] = []

    def do_nothing(command: list[str], file: Path, head: dict[str, Any], **options: Any) -> dict[str, Any]:
        started.append(head["block"])
        found = {**head, "state": record.FINISHED, "seconds": 1.0, "measurements": [], "limit": options["limit_s"]}
        record.write_record(file, found)
        return found

    def command(*arguments: str) -> tuple[int, list[str]]:
        started.clear()
        monkeypatch.setattr(record, "run_in_process", do_nothing)
        monkeypatch.setattr(sys, "argv", ["bench_gpu", *arguments])
        before = signal.getsignal(signal.SIGTERM)
        try:
            return bench_gpu.main(), list(started)
        finally:
            signal.signal(signal.SIGTERM, before)

    return command


def test_a_second_run_completes_what_is_missing(run: Run, tmp_path: Path) -> None:
    for name, state in (("c", record.FINISHED), ("e", record.RUNNING), ("b", record.FAILED)):
        record.write_record(record.path_of(tmp_path, name), {**HEAD, "block": name, "state": state, "measurements": []})
    record.path_of(tmp_path, "a").write_text("{", encoding="utf-8")
    status, started = run("c", "e", "b", "a", "d", "--toy", "--resume", "--output", str(tmp_path))
    assert (status, started) == (0, ["e", "b", "a", "d"])
    assert run("c", "--toy", "--output", str(tmp_path))[1] == ["c"]


def test_all_blocks_run_in_the_order_of_their_worth_as_far_as_the_time_goes(run: Run, tmp_path: Path) -> None:
    assert run("--toy", "--output", str(tmp_path))[1] == list(BLOCKS)
    limits = [record.read_record(record.path_of(tmp_path, name))["limit"] for name in BLOCKS]
    assert limits == [kind.limit_s for kind in BLOCKS.values()]
    assert run("--toy", "--output", str(tmp_path), "--minutes", "0.1") == (0, [])


def test_three_commands_of_less_than_ten_minutes_run_everything() -> None:
    header = (ROOT / "scripts" / "bench_gpu").read_text(encoding="utf-8")
    lines = [line.split() for line in header.split("\n") if line.startswith("#   bash scripts/bench_gpu ")]
    assert len(lines) == 3
    named = [[word for word in line if word in BLOCKS] for line in lines]
    assert sorted(name for names in named for name in names) == sorted(BLOCKS)
    for line, names in zip(lines, named, strict=True):
        minutes = float(line[line.index("--minutes") + 1])
        assert minutes < 10
        assert sum(BLOCKS[name].limit_s for name in names) + bench_gpu.OVERHEAD_S <= 60 * minutes
    assert max(kind.limit_s for kind in BLOCKS.values()) <= 8 * 60


def test_without_a_gpu_nothing_is_written(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert run("--output", str(tmp_path / "out")) == (5, [])
    assert "no GPU is visible" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_wheels_are_installed_without_a_network(tmp_path: Path) -> None:
    pytest.importorskip("pip")
    with zipfile.ZipFile(tmp_path / "carried-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "here = True\n")
        wheel.writestr("carried-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
        wheel.writestr("carried-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("carried-1.0.dist-info/RECORD", "")
    site = bench_gpu.installed(tmp_path)
    assert (Path(site) / "carried.py").read_text() == "here = True\n"


def test_a_folder_without_wheels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no wheel in this folder"):
        bench_gpu.installed(tmp_path)


# ---- The page


MEASURED = {"title": "rates", "columns": ["", "tokens/s"], "rows": [["tfm", "1"]], "notes": ["A note."], "figures": {}}


def a_record(name: str, *, toy: bool = False, **content: Any) -> dict[str, Any]:
    usual = {"state": record.FINISHED, "seconds": 2.0, "machine": {"device": "H", "driver": "1"}, "measurements": []}
    return {**HEAD, "block": name, "toy": toy, **usual, **content}


def test_the_page_says_what_was_measured_and_what_was_not() -> None:
    records = [
        a_record("e", state=record.FAILED, failed="killed after 9 s during: base", measurements=[MEASURED]),
        a_record(
            "c",
            measurements=[
                {"title": "big", "failed": "OutOfMemoryError: `x`"},
                {"title": "base", "left_out": "no time"},
                MEASURED,
            ],
        ),
    ]
    text = page(records)
    assert "Toy size" not in text
    assert text.index("## (c) Training") < text.index("## (e) Translating")  # in the order of their worth
    assert "| tfm |        1 |" in text
    assert "Cut short: killed after 9 s during: base." in text
    assert "- big: OutOfMemoryError: 'x'" in text
    assert "- base: no time" in text
    assert "| (c) Training    | finished, 1 failed, 1 left out |" in text
    assert "Not run: (b)" in text.replace("\n", " ")
    assert max(len(line) for line in text.split("\n") if not line.startswith(("|", "-"))) <= 120


def test_every_section_of_a_toy_page_says_that_its_figures_mean_nothing() -> None:
    text = page([a_record(name, toy=True, measurements=[MEASURED]) for name in BLOCKS])
    assert text.count("none of these figures means anything") == 1 + len(BLOCKS)


def test_toy_records_are_never_on_a_page_with_others(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, toy in (("c", True), ("e", False)):
        record.write_record(record.path_of(tmp_path, name), a_record(name, toy=toy))
    wanted = tmp_path / "page.md"
    assert run("--report", str(tmp_path), "--page", str(wanted)) == (1, [])
    assert not wanted.exists()
    assert "toy records beside others" in capsys.readouterr().err


def test_a_page_without_records_is_not_written(run: Run, tmp_path: Path) -> None:
    assert run("--report", str(tmp_path)) == (1, [])
    assert list(tmp_path.iterdir()) == []


def test_a_toy_page_lies_beside_its_records(run: Run, tmp_path: Path) -> None:
    record.write_record(record.path_of(tmp_path, "c"), a_record("c", toy=True))
    assert run("--report", str(tmp_path)) == (0, [])
    assert "means anything" in (tmp_path / "gpu.md").read_text(encoding="utf-8")


def test_the_page_of_the_repository_has_no_toy_figures() -> None:
    file = ROOT / "benchmarks" / "gpu.md"
    assert not file.exists() or "means anything" not in file.read_text(encoding="utf-8")


# ---- The blocks


def test_host_syncs_are_counted_by_the_line_that_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)

    def waits() -> None:  # as torch does it
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)

    with syncs.counted_syncs() as places:
        for _ in range(3):
            waits()
        warnings.warn("something else", stacklevel=1)
    (place,) = places
    assert place.startswith("test_bench_gpu.py:")
    assert places[place] == 3
    with syncs.refused_syncs():
        pass
    assert modes == ["warn", "default", "error", "default"]


@pytest.mark.parametrize("model", ["base", slow("big")])
def test_the_ways_to_train_on_a_gpu_have_the_settings_of_their_names(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = toy_block(tmp_path, is_toy=False)
    block.device = torch.device("cuda")
    monkeypatch.setattr(training, "fitting_batch_size", lambda *_, **options: 12_345)
    monkeypatch.setattr(training, "load_workload", lambda config: None)
    ways = {way.name: way for way in [*training.beside_others(block, model), *training.settings(block, model)]}
    assert {way.config.train.tokens_per_update for way in ways.values()} == {25_000}
    assert {way.config.train.precision.name for way in ways.values()} == {"bf16"}
    for mode in ("none", "default", "graphs"):
        assert ways[f"compile={mode}"].config.train.compile.name == mode
        assert ways[f"compile={mode}"].is_compiled == (mode != "none")
    assert ways["micro-batches of 8,192"].config.train.max_tokens_per_microbatch == 8192
    assert ways["micro-batches auto: 12,345"].config.train.max_tokens_per_microbatch == 12_345
    assert {ways["tfm"].config.model.d_model} == {512 if model == "base" else 1024}
    assert not ways[training.LEAN].is_compiled
    assert ways["Hugging Face Marian, compiled"].is_compiled


def test_every_file_with_a_test_for_a_gpu_is_in_its_block() -> None:
    marks = (".mark" + ".gpu", "marks." + "gpu")
    files = {
        file.name
        for file in (ROOT / "tests").rglob("test_*.py")
        if any(mark in file.read_text(encoding="utf-8") for mark in marks)
    }
    assert files
    assert {Path(name).name for name in gpu_tests.marked_files()} == files


def test_text_for_the_loss_curve_is_found_in_pairs(tmp_path: Path) -> None:
    for name in ("a.en", "a.de.gz", "b.en", "c.de", "d.en.gz", "d.de.gz"):
        (tmp_path / name).touch()
    named, *rest = loss_curve.files(tmp_path)
    wanted = ["a.en", "a.de.gz", "d.en.gz", "d.de.gz"]
    assert named == f"data.train=[{','.join(str(tmp_path / name) for name in wanted)}]"
    assert rest == ["data.dev=null", "data.test=null", "data.downloads=[]"]


def test_a_sparkline_has_a_bar_for_each_value() -> None:
    assert loss_curve.sparkline([1.0, 0.0, 0.5]) == "█▁▅"
    assert loss_curve.sparkline([2.0, 2.0]) == "▁▁"


@pytest.mark.slow
def test_all_blocks_pass_at_toy_size(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--toy", "--limit", "900", "--minutes", "120", "--output", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == len(BLOCKS) + 1
    for found in record.read_records(tmp_path, list(BLOCKS)):
        assert found["state"] == record.FINISHED, found
        assert [one for one in found["measurements"] if "failed" in one] == []
        failed = [note for one in found["measurements"] for note in one.get("notes", []) if " failed: " in note]
        assert failed == [], found["block"]
    text = (tmp_path / "gpu.md").read_text(encoding="utf-8")
    for row in (
        "| nn.Transformer lean, compiled",
        "| compile=none",
        "| language model",
        "| bf16, beam 4",
        "| tfm, 30 tok",
    ):
        assert row in text
