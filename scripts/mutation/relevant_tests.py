"""The tests that concern a line of the package, the likeliest to notice a fault first.

Of test files that `line_map.py` has measured those tests that run the line; of others, those that import its module or
are called like it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath

from line_map import Test, test_files
from mutants import PACKAGE, ROOT, Mutant

UNMEASURED_FILES = 5  # of one mutant


@dataclass(frozen=True)
class Choice:
    """Tests, or whole test files, in the order in which they run; `complete` if no others run the line."""

    names: list[str]
    complete: bool


def concerned(mutant: Mutant, tests: Sequence[Test]) -> Choice:
    lines = lines_of(mutant.module, mutant.line)
    files: dict[str, list[Test]] = defaultdict(list)
    for test in tests:
        if not lines.isdisjoint(test.lines.get(mutant.module, ())):
            files[test.file].append(test)
    measured = {test.file for test in tests}
    scores = {file: nearness(mutant.module, file) + _focus(mutant.module, files[file]) for file in files}
    others = {file: score for file in test_files() if file not in measured and (score := likeness(mutant.module, file))}
    likely = sorted(others, key=lambda file: (-others[file], file))[:UNMEASURED_FILES]
    scores |= {file: others[file] for file in likely}
    names: list[str] = []
    for file in sorted(scores, key=lambda file: (-scores[file], file)):
        names += [test.name for test in sorted(files[file], key=lambda test: test.seconds)] if file in files else [file]
    return Choice(names, complete=len(measured) == len(test_files()))


# The lines that run when one does


def lines_of(module: str, line: int) -> frozenset[int]:
    """The lines of the statement that holds a line; of a function's defaults, its body, as they act there.

    What runs at import alone acts in the functions that name it.
    """
    tree = _tree(module)
    statement, function = _innermost(tree, line)
    if function is not None and line < function.body[0].lineno:
        return _numbers(function.body)
    if statement is None or function is None:
        return _users(module, statement)
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno or line
    return frozenset(range(statement.lineno, max(last, line) + 1))


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse((ROOT / PACKAGE / module).read_bytes())


def _innermost(tree: ast.Module, line: int) -> tuple[ast.stmt | None, ast.FunctionDef | ast.AsyncFunctionDef | None]:
    statement, function = None, None
    for node in ast.walk(tree):  # from the outside in
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            statement = node
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function = node
    return statement, function


def _numbers(statements: Sequence[ast.stmt]) -> frozenset[int]:
    return frozenset(range(statements[0].lineno, (statements[-1].end_lineno or 0) + 1))


def _users(module: str, statement: ast.stmt | None) -> frozenset[int]:
    """The bodies of the functions that name what a statement defines, or else of all functions of this module."""
    functions = [node for node in ast.walk(_tree(module)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    users = [node for node in functions if names & {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}]
    return frozenset().union(*(_numbers(node.body) for node in users or functions))


# How near a test file is to a module


def likeness(module: str, file: str) -> float:
    """The rank of a test file that was not measured: by its name, and by whether it imports the module."""
    return nearness(module, file) + 3 * (module in _imported(file))


def nearness(module: str, file: str) -> int:
    """How many words a test file's name has in common with that of a module, twice those of the module itself; and
    one for a file in the folder of the module's package.
    """
    own, package = _words(PurePath(file).stem) - {"test"}, PurePath(module).parts[:-1]
    is_there = PurePath(file).parts[1:-1] == package
    return 2 * len(own & _words(PurePath(module).stem)) + len(own & _words(*package)) + is_there


def _words(*names: str) -> Collection[str]:
    """The first letters of each word, so that `serving` is like `serve`."""
    return {word[:4] for name in names for word in re.findall(r"[a-z]+|\d+", name.lower())}


@cache
def _imported(file: str) -> frozenset[str]:
    """The modules of the package that a test file imports itself."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    paths = {name.removeprefix(f"{PACKAGE}.").replace(".", "/") for name in names if name.startswith(f"{PACKAGE}.")}
    return frozenset(f"{path}{ending}" for path in paths for ending in (".py", "/__init__.py"))


def _focus(module: str, tests: Iterable[Test]) -> float:
    """The part of the lines that these tests run that are of the module."""
    own = all_lines = 1
    for test in tests:
        own += len(test.lines.get(module, ()))
        all_lines += sum(map(len, test.lines.values()))
    return own / all_lines
