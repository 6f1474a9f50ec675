"""The mutation test's own: what is a mutant, and which of them the tests of a small project notice."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("mutants")
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def mutated(mutants: ModuleType, source: str) -> set[str]:
    text = source.encode()
    return {(text[:a] + new.encode() + text[b:]).decode() for a, b, new in mutants.Edits(text).found}


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("a < b", {"a <= b"}),
        ("a == b != c", {"a != b != c", "a == b == c"}),
        ("é + (a) * b", {"é - (a) * b", "é + (a) / b"}),
        ("n += k", {"n -= k"}),
        ("a and b or c", {"a or b or c", "a and b and c"}),
        ("x = not(a)", {"x = (a)"}),
        ("x = ~mask & other", {"x = mask & other", "x = ~mask | other"}),
        ("x = -2", {"x = -1", "x = -3"}),
        ("x = True", {"x = False"}),
        ("x = y.amax(dim=d)", {"x = y.amin(dim=d)"}),
        ("x = any(y.clamp(min=z))", {"x = all(y.clamp(min=z))", "x = any(y.clamp(max=z))"}),
        ("f(a)", {"pass"}),
        ("f(x=(a, b, c))", {"pass", "f(x=(b, c,))", "f(x=(a, c,))", "f(x=(a, b,))"}),
        ("x = f(*(a, b))", {"x = f(*(b,))", "x = f(*(a,))"}),
        ("def f() -> bool:\n    return a", {"def f() -> bool:\n    return not (a)"}),
        ("LOGGER.warning('%d', 3)", {"pass"}),
    ],
)
def test_a_mutant_has_one_small_fault(mutants: ModuleType, source: str, wanted: set[str]) -> None:
    assert mutated(mutants, source) == wanted


@pytest.mark.parametrize(
    "source",
    [
        '"""1 < 2"""',
        "x: Literal[1] | None",
        "def f(a: Literal[1] | None) -> Literal[2]: ...",
        "@dataclass(frozen=True)\nclass A: ...",
        "raise ValueError(f'{n + 1}', 3)",
        "assert a < b, f'{n + 1}'",
        "LOGGER.info('%d', n + 1)",
        "if TYPE_CHECKING:\n    f(1)",
        "def __repr__(self):\n    return a + b",
        "x = 'a' + b + [c]",
    ],
)
def test_what_people_read_and_what_only_checkers_read_is_not_mutated(mutants: ModuleType, source: str) -> None:
    assert mutated(mutants, source.replace("'", '"')) == set()


def test_every_target_and_its_tests_are_there(mutants: ModuleType) -> None:
    for module, tests in mutants.TARGETS.items():
        assert (ROOT / "transformer_cli" / module).is_file(), module
        for name in tests.split():
            assert (ROOT / f"tests/test_{name}.py").is_file(), name
    assert mutants.EXCLUDED.keys() <= mutants.TARGETS.keys()


def test_what_is_excluded_is_there_to_be_excluded(mutants: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    excluded = mutants.EXCLUDED
    monkeypatch.setattr(mutants, "EXCLUDED", {})
    for module, parts in excluded.items():
        all_of_it = [f"{mutant.before} → {mutant.after}" for mutant in mutants.mutants_of(module)]
        for part in parts:
            assert any(part in line for line in all_of_it), f"{module}: {part}"


def test_a_seed_chooses_the_same_mutants_again_spread_over_the_modules(mutants: ModuleType) -> None:
    modules = ["training/loss.py", "training/schedules/registry.py", "files.py"]
    chosen = mutants.choose(modules, 12, 7)
    assert [str(mutant) for mutant in chosen] == [str(mutant) for mutant in mutants.choose(modules, 12, 7)]
    assert [str(mutant) for mutant in chosen] != [str(mutant) for mutant in mutants.choose(modules, 12, 8)]
    assert [mutant.module for mutant in chosen] == [module for module in modules for _ in range(4)]


# Its three mutants: one is noticed, in a process that a test starts, one is not, and one never ends.
SIMPLE = """\
def smaller(a, b):
    return a < b


def unused(a, b):
    return a == b


def wait(is_over):
    while not is_over():
        pass
"""
TEST = """\
import subprocess, sys


def test_smaller():
    program = "from transformer_cli import simple; assert not simple.smaller(1, 1); simple.wait(lambda: True)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
"""
PROGRAM = """\
import sys
import mutants
mutants.TARGETS.clear()
mutants.TARGETS["simple.py"] = "simple"
import mutate
sys.exit(mutate.main())
"""


def run(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, "--timeout", "15", "--jobs", "1", "--output", "results.jsonl", *options]
    environment = {**os.environ, "PYTHONPATH": str(project / "scripts")}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project in git, whose mutants have been tested once."""
    folder = tmp_path_factory.mktemp("project")
    files = {"transformer_cli/__init__.py": "", "transformer_cli/simple.py": SIMPLE, "tests/test_simple.py": TEST}
    for name, text in {**files, "pytest.ini": "[pytest]\nmarkers =\n slow\n gpu\n nightly\n"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "scripts").mkdir()
    for script in ("mutate.py", "mutants.py"):
        shutil.copy(ROOT / "scripts" / script, folder / "scripts" / script)
    subprocess.run(["git", "init", "-q", folder], check=True)
    subprocess.run(["git", "add", "transformer_cli", "tests", "pytest.ini"], cwd=folder, check=True)
    return folder


@pytest.mark.slow
def test_survivors_are_named_and_decide_the_exit_status(project: Path) -> None:
    ran = run(project, "--at-least", "70")
    survivor = "transformer_cli/simple.py:6: return a == b → return a != b"
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.splitlines() == [
        "noticed   transformer_cli/simple.py:2: return a < b → return a <= b",
        f"survived  {survivor}",
        "timeout   transformer_cli/simple.py:10: while not is_over(): → while is_over():",
        f"not noticed: {survivor}",
        "2 of 3 mutants noticed (66.7 %)",
    ]
    assert (project / "transformer_cli/simple.py").read_text() == SIMPLE


@pytest.mark.slow
def test_a_second_run_goes_on_from_the_results_of_the_first(project: Path) -> None:
    results = project / "results.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    assert [json.loads(line).get("outcome") for line in lines] == ["survived", "noticed", "survived", "timeout"]
    results.write_text("".join([lines[0], lines[2], lines[3]]))  # as if the first had been killed at the second mutant
    ran = run(project, "--at-least", "60", "--retry")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "2 of 3 mutants noticed (66.7 %)"
    *before, again, survivor, endless = map(json.loads, results.read_text().splitlines())
    assert before == [json.loads(line) for line in (lines[0], lines[2], lines[3])]
    assert (again["mutant"], again["by"]) == (json.loads(lines[1])["mutant"], "tests/test_simple.py::test_smaller")
    assert [survivor["mutant"], endless["mutant"]] == [json.loads(line)["mutant"] for line in lines[2:]]
    assert run(project, "--at-least", "60").returncode == 0
    assert len(results.read_text().splitlines()) == 6, "all have a result"


def test_tests_that_fail_without_a_fault_prove_nothing(project: Path) -> None:
    test = project / "tests/test_simple.py"
    test.write_text("def test_smaller():\n    assert False\n")
    ran = run(project, "--output", "other.jsonl")
    test.write_text(TEST)
    assert ran.returncode == 1
    assert "simple.py: its tests fail without a fault: tests/test_simple.py::test_smaller" in ran.stderr
    assert "mutants noticed" not in ran.stdout
