"""The mutation test's own: what is a mutant, which tests concern it, and which of them a small project notices."""

import importlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ROOT
from tests.support.each import each

SCRIPTS = ROOT / "scripts"


def script(name: str) -> ModuleType:
    sys.path.insert(0, str(SCRIPTS / "mutation"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SCRIPTS / "mutation"))


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    return script("mutants")


@pytest.fixture(scope="module")
def relevant_tests() -> ModuleType:
    return script("relevant_tests")


def mutated(mutants: ModuleType, source: str) -> set[str]:
    text = source.encode()
    return {(text[:a] + new.encode() + text[b:]).decode() for a, b, new, _ in mutants.Edits(text).found} - {source}


@each(
    "source, wanted",
    [
        ("a < b", {"a <= b"}),
        ("a == b != c", {"a != b != c", "a == b == c"}),
        ("a in b", {"a not in b"}),
        ("é + (a) * b", {"é - (a) * b", "é + (a) / b"}),
        ("n += k", {"n -= k", "pass"}),
        ("a and b or c", {"a or b or c", "a and b and c"}),
        ("x = not(a)", {"x = (a)"}),
        ("x = ~mask & other", {"x = mask & other", "x = ~mask | other"}),
        ("x = -2", {"x = -1", "x = -3"}),
        ("x = 0.5", {"x = 0.75"}),
        ("x = True", {"x = False"}),
        ("x = y.amax(dim=d)", {"x = y.amin(dim=d)", "x = y.amax()"}),
        ("x = any(y.clamp(min=z))", {"x = all(y.clamp(min=z))", "x = any(y.clamp(max=z))", "x = any(y.clamp())"}),
        ("f(a)", {"pass"}),
        ("x = min(a, b)", {"x = max(a, b)"}),
        ("x = f(a, b, c=d)", {"x = f(b, a, c=d)", "x = f(a, b)"}),
        ("f(x=(a, b, c))", {"pass", "f()", "f(x=(b, c,))", "f(x=(a, c,))", "f(x=(a, b,))"}),
        ("x = f(*(a, b))", {"x = f(*(b,))", "x = f(*(a,))"}),
        ("def f() -> bool:\n    return a", {"def f() -> bool:\n    return not (a)"}),
        ("def f():\n    return a", {"def f():\n    return None"}),
        ("def f(a='b'):\n    ...", {"def f(a='b_'):\n    ..."}),
        ("if a:\n    b", {"if not (a):\n    b"}),
        ("x = a if b else c", {"x = a if not (b) else c"}),
        ("x = [a for a in b if c]", {"x = [a for a in b if not (c)]"}),
        ("for a in b:\n    continue", {"for a in b:\n    pass"}),
        ("raise ValueError(f'{n + 1}', 3)", {"pass"}),
        ("a.b = c", {"pass"}),
        ("x = y['k']", {"x = y['k_']"}),
        ("x = {'k': v}", {"x = {'k_': v}"}),
        ("x = y.get('k')", {"x = y.get('k_')"}),
        ("x == 'k'", {"x != 'k'", "x == 'k_'"}),
        ("LOGGER.warning('%d', 3)", {"pass"}),
    ],
)
def test_a_mutant_has_one_small_fault(mutants: ModuleType, source: str, wanted: set[str]) -> None:
    assert mutated(mutants, source) == wanted


@each(
    "source",
    [
        '"""1 < 2"""',
        "x: Literal[1] | None",
        "def f(a: Literal[1] | None) -> Literal[2]: ...",
        "@dataclass(frozen=True)\nclass A: ...",
        "assert a < b, f'{n + 1}'",
        "LOGGER.info('%d', n + 1)",
        "if TYPE_CHECKING:\n    f(1)",
        "def __repr__(self):\n    return a + b",
        "x = 'a' + b + [c]",
        "x = y['two words']",
        "x = open(y, encoding='utf-8')",
    ],
)
def test_what_people_read_and_what_only_checkers_read_is_not_mutated(mutants: ModuleType, source: str) -> None:
    assert mutated(mutants, source.replace("'", '"')) == set()


def test_what_is_excluded_is_there_to_be_excluded(mutants: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    excluded = mutants.EXCLUDED
    monkeypatch.setattr(mutants, "EXCLUDED", {})
    for module, parts in excluded.items():
        all_of_it = [f"{mutant.before} → {mutant.after}" for mutant in mutants.mutants_of(module)]
        for part in parts:
            assert any(part in line for line in all_of_it), f"{module}: {part}"


def test_a_seed_chooses_the_same_mutants_again(mutants: ModuleType) -> None:
    modules = ["training/loss.py", "training/schedules/registry.py", "files.py"]
    chosen = mutants.choose(modules, 12, 7)
    assert [str(mutant) for mutant in chosen] == [str(mutant) for mutant in mutants.choose(modules, 12, 7)]
    assert [str(mutant) for mutant in chosen] != [str(mutant) for mutant in mutants.choose(modules, 12, 8)]


def test_a_sample_has_of_each_package_by_its_lines_and_of_each_kind_as_many(mutants: ModuleType) -> None:
    modules = [name for name in mutants.modules() if mutants.package_of(name) in ("serving", "synthesis")]
    lines = {package: 0 for package in ("serving", "synthesis")}
    for name in modules:
        lines[mutants.package_of(name)] += len((ROOT / "transformer_cli" / name).read_text().splitlines())
    chosen = mutants.choose(modules, 60, 1)
    found = Counter(mutants.package_of(mutant.module) for mutant in chosen)
    assert abs(found["synthesis"] - 60 * lines["synthesis"] / sum(lines.values())) <= 1
    kinds = Counter(mutant.kind for mutant in chosen if mutants.package_of(mutant.module) == "serving")
    assert len(kinds) == 10
    assert sorted(kinds.values())[1] >= max(kinds.values()) - 1, "all but those of which there are few"
    assert len({(mutant.module, mutant.line) for mutant in chosen}) == 60


def test_the_shares_of_packages_are_those_of_the_largest_remainder(mutants: ModuleType) -> None:
    assert mutants._shares({"a": 6, "b": 3, "c": 1}, 4) == {"a": 2, "b": 1, "c": 1}  # 2.4, 1.2 and 0.4
    assert sum(mutants._shares({name: 7 for name in "abc"}, 100).values()) == 100


# ---- Which tests concern a line


@each(
    "module, file",
    [
        ("data/cache.py", "tests/data/test_batching.py"),  # which imports it
        ("addons/serving/gate.py", "tests/addons/serving/test_serve_operation.py"),
        ("evaluation/significance.py", "tests/addons/comparison/test_compare.py"),
        ("addons/classification/run_classify.py", "tests/addons/classification/test_classify_command.py"),
    ],
)
def test_a_test_file_is_near_by_its_name_or_its_imports(relevant_tests: ModuleType, module: str, file: str) -> None:
    likely = sorted(relevant_tests.test_files(), key=lambda file: -relevant_tests.likeness(module, file))
    assert file in likely[: relevant_tests.UNMEASURED_FILES]


MODULE = """\
LIMIT = 3


def first(a=1, *, b=2):
    if (
        a
        > LIMIT
    ):
        return b
    return a


def second():
    return 4
"""


@pytest.mark.parametrize(
    ("line", "lines"),
    [(1, range(5, 11)), (4, range(5, 11)), (7, range(5, 9)), (9, [9]), (10, [10]), (14, [14])],
)
def test_a_line_runs_with_its_statement_and_a_default_with_its_function(
    relevant_tests: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int, lines: list[int]
) -> None:
    (tmp_path / "transformer_cli").mkdir()
    (tmp_path / "transformer_cli/some_module.py").write_text(MODULE)
    monkeypatch.setattr(relevant_tests, "ROOT", tmp_path)
    relevant_tests._tree.cache_clear()
    assert relevant_tests.lines_of("some_module.py", line) == set(lines)


# ---- A small project, of whose three functions one is tested, one is not, and one never ends where it is mutated

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
    program = "from transformer_cli import simple; simple.wait(lambda: True)"
    program += "; assert simple.smaller(1, 2) and not simple.smaller(1, 1)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
"""


def run(project: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "scripts/mutation/campaign.py",
        "--timeout",
        "15",
        "--jobs",
        "1",
        "--output",
        "results.jsonl",
    ]
    return subprocess.run([*command, *options], cwd=project, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project in git."""
    folder = tmp_path_factory.mktemp("project")
    files = {"transformer_cli/__init__.py": "", "transformer_cli/simple.py": SIMPLE, "tests/test_simple.py": TEST}
    for name, text in {**files, "pytest.ini": "[pytest]\nmarkers =\n slow\n gpu\n nightly\n"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    shutil.copytree(SCRIPTS, folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    commit = ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "-m", "All"]
    for arguments in (["init", "-q"], ["add", "transformer_cli", "tests", "pytest.ini", "scripts"], commit):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


@pytest.mark.slow
@pytest.mark.slow
def test_survivors_are_named_and_decide_the_exit_status(project: Path) -> None:
    ran = run(project, "--at-least", "70")
    assert ran.returncode == 1, ran.stderr
    table, survivor, total = ran.stdout.splitlines()
    assert table.split() == [".", "2", "of", "3", "66.7", "%"]
    assert survivor.startswith("survived: transformer_cli/simple.py:6: return a == b → ")
    assert total == "2 of 3 mutants noticed (66.7 %), 1 of them by the time limit"
    assert (project / "transformer_cli/simple.py").read_text() == SIMPLE
    assert run(project, "--report", "--at-least", "60").stdout == ran.stdout


@pytest.mark.slow
@pytest.mark.slow
def test_a_second_run_goes_on_from_the_results_of_the_first(project: Path) -> None:
    assert run(project, "--output", "again.jsonl", "--shard", "1/2").returncode in (0, 1)
    results = project / "again.jsonl"
    before = results.read_text().splitlines()
    ran = run(project, "--output", "again.jsonl", "--at-least", "60")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("2 of 3 mutants noticed (66.7 %)")
    after = results.read_text().splitlines()
    assert after[: len(before)] == before
    assert len({json.loads(line)["mutant"] for line in after}) == 3
    assert run(project, "--output", "again.jsonl", "--at-least", "60").returncode == 0
    assert results.read_text().splitlines() == after, "all have a result"


@pytest.mark.slow
@pytest.mark.slow
def test_the_lines_of_a_test_are_measured_in_the_processes_that_it_starts_too(project: Path) -> None:
    assert run(project, "--measure").returncode == 0
    (record,) = map(json.loads, (project / ".mutation/lines.jsonl").read_text().splitlines())
    (test,) = record["tests"].values()
    assert test["passed"]
    assert test["lines"]["simple.py"] == "1-2 5-5 9-10"
    assert run(project, "--measure").returncode == 0
    assert len((project / ".mutation/lines.jsonl").read_text().splitlines()) == 1, "the file has not changed"
    ran = run(project, "--output", "measured.jsonl", "--at-least", "60")
    assert "not run: transformer_cli/simple.py:6:" in ran.stdout, ran.stderr
    shutil.rmtree(project / ".mutation")


@pytest.mark.slow
def test_tests_that_fail_without_a_fault_prove_nothing(project: Path) -> None:
    test = project / "tests/test_simple.py"
    test.write_text("def test_smaller():\n    assert False\n")
    ran = run(project, "--output", "other.jsonl", "--number", "1")
    test.write_text(TEST)
    assert ran.returncode == 1, ran.stderr
    assert "unstable: transformer_cli/simple.py:" in ran.stdout
    assert "0 of 0 mutants noticed" in ran.stdout


def test_a_part_that_is_none_is_refused(project: Path) -> None:
    for wrong in ("3/2", "0/2", "1"):
        ran = run(project, "--shard", wrong)
        assert ran.returncode == 2
        assert f"--shard {wrong}: give it as 1/4" in ran.stderr
