"""Mutants: sources of one module with one small fault, and a sample of them over all packages.

`scripts/mutate` tests them.
"""

import ast
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exclusions import EXCLUDED, EXCLUDED_EVERYWHERE, KEYWORDS

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "transformer_cli"

OPERATORS: dict[type[ast.AST], tuple[str, str, str]] = {  # the kind, how it is written, and what it becomes
    **{ast.Lt: ("comparison", "<", "<="), ast.LtE: ("comparison", "<=", "<")},
    **{ast.Gt: ("comparison", ">", ">="), ast.GtE: ("comparison", ">=", ">")},
    **{ast.Eq: ("comparison", "==", "!="), ast.NotEq: ("comparison", "!=", "==")},
    **{ast.Is: ("comparison", "is", "is not"), ast.In: ("comparison", "in", "not in")},
    **{ast.And: ("boolean", "and", "or"), ast.Or: ("boolean", "or", "and")},
    **{ast.Add: ("arithmetic", "+", "-"), ast.Sub: ("arithmetic", "-", "+")},
    **{ast.Mult: ("arithmetic", "*", "/"), ast.Div: ("arithmetic", "/", "*")},
    **{ast.BitAnd: ("boolean", "&", "|"), ast.BitOr: ("boolean", "|", "&")},  # the `and` and `or` of tensors
}
NAMES = {"min": "max", "amin": "amax", "minimum": "maximum", "any": "all"}
NAMES |= {other: name for name, other in NAMES.items()}
Statement = ast.Expr | ast.AugAssign | ast.Assign | ast.Raise | ast.Continue | ast.Break


@dataclass(frozen=True)
class Mutant:
    module: str
    line: int
    before: str
    after: str
    kind: str
    source: bytes  # of the whole module

    def __str__(self) -> str:
        return f"{PACKAGE}/{self.module}:{self.line}: {self.before} → {self.after}"


class Edits(ast.NodeVisitor):
    """What may be changed in a source: (first byte, byte behind the last, new text, kind of fault).

    Not in annotations, decorators and messages. Nor in assertions: they are about what never happens, so that a weaker
    one cannot be noticed and a wrong one always is.
    """

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.found: list[tuple[int, int, str, str]] = []
        self._line_starts = [0]
        for line in source.split(b"\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self._returns_bool = False
        self.visit(ast.parse(source))

    # Definitions

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name == "__repr__":
            return
        self._returns_bool = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self._change_text(default, "default")
            self.visit(default)
        self._visit_all(node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._change_text(node.value, "default")
            self.visit(node.value)

    # Statements

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._negate(node.test)
            self.generic_visit(node)

    visit_IfExp = visit_If

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """The message is what people read; that nothing is refused is a fault."""
        self._delete(node)

    def visit_Continue(self, node: ast.Continue | ast.Break) -> None:
        self._delete(node)

    visit_Break = visit_Continue

    def visit_JoinedStr(self, node: ast.AST) -> None:
        """A string that people read; `assert` likewise."""

    visit_Assert = visit_JoinedStr

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not re.match(rb"LOGGER\.(info|debug)\b", self._text(node)):
            self._delete(node)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._delete(node)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            negated = f"not ({self._text(node.value).decode()})"
            self._change(node.value, negated if self._returns_bool else "None", "return")
        self.generic_visit(node)

    # Expressions

    def visit_Call(self, node: ast.Call) -> None:
        if self._text(node).startswith(b"LOGGER."):
            return
        self._change_arguments(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "setdefault") and node.args:
            self._change_text(node.args[0], "key")
        self.generic_visit(node)

    def _change_arguments(self, node: ast.Call) -> None:
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            value = argument.value if isinstance(argument, ast.Starred) else argument
            if isinstance(value, ast.Tuple) and len(value.elts) > 1:
                for left_out in value.elts:
                    kept = [self._text(element).decode() for element in value.elts if element is not left_out]
                    self._change(value, f"({', '.join(kept)},)", "argument")
        arguments = [*node.args, *node.keywords]
        for keyword in node.keywords:
            if keyword.arg is not None and keyword.arg not in KEYWORDS:
                kept = [self._text(other).decode() for other in arguments if other is not keyword]
                after = self.source[self._span(arguments[-1])[1] : self._span(node)[1] - 1]
                if b"#" not in after:
                    start = min(self._span(argument)[0] for argument in arguments)
                    self.found.append((start, self._span(node)[1] - 1, ", ".join(kept), "argument"))
        is_symmetric = isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
        if (
            len(node.args) > 1
            and not is_symmetric
            and not any(isinstance(argument, ast.Starred) for argument in node.args[:2])
        ):
            first, second = node.args[:2]
            start, end = self._span(first)[0], self._span(second)[1]
            between = self.source[self._span(first)[1] : self._span(second)[0]].decode()
            exchanged = f"{self._text(second).decode()}{between}{self._text(first).decode()}"
            self.found.append((start, end, exchanged, "argument"))

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg in KEYWORDS:
            return
        start = self._span(node)[0]
        if node.arg in NAMES:
            self.found.append((start, start + len(node.arg), NAMES[node.arg], "arithmetic"))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._change_text(node.slice, "key")
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key in node.keys:
            if key is not None:
                self._change_text(key, "key")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._swap([node.left, *node.comparators], node.ops)
        for side in (node.left, *node.comparators):
            for text in side.elts if isinstance(side, ast.Tuple | ast.Set | ast.List) else [side]:
                self._change_text(text, "key")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not any(self._text(side).endswith((b'"', b"]")) for side in (node.left, node.right)):  # texts and lists
            self._swap([node.left, node.right], [node.op])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._swap([node.target, node.value], [node.op])
        self._delete(node)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._swap(node.values, [node.op] * (len(node.values) - 1))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.Invert):
            self._change(node, re.sub(r"^(not\s+|not(?=\()|~)", "", self._text(node).decode()), "boolean")
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in NAMES:
            self._change(node, NAMES[node.id], "arithmetic")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        end = self._span(node)[1]
        if node.attr in NAMES:
            self.found.append((end - len(node.attr), end, NAMES[node.attr], "arithmetic"))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._change(node, str(not node.value), "boolean")
        elif isinstance(node.value, int):
            self._change(node, str(node.value - 1), "boundary")
            self._change(node, str(node.value + 1), "boundary")
        elif isinstance(node.value, float):
            self._change(node, str(node.value * 1.5 if node.value else 0.5), "boundary")

    # Edits

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _swap(self, operands: Sequence[ast.expr], operators: Sequence[ast.AST]) -> None:
        for left, operator, right in zip(operands, operators, operands[1:], strict=False):
            if type(operator) in OPERATORS:
                kind, symbol, swapped = OPERATORS[type(operator)]
                start = self.source.index(symbol.encode(), self._span(left)[1], self._span(right)[0])
                self.found.append((start, start + len(symbol), swapped, kind))

    def _negate(self, test: ast.expr) -> None:
        self._change(test, f"not ({self._text(test).decode()})", "branch")

    def _delete(self, node: Statement) -> None:
        self._change(node, "pass", "statement")

    def _change_text(self, node: ast.expr, kind: str) -> None:
        """A string that is a key or a value of the program, not prose: prose has spaces."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[\w./:-]+", node.value):
            quote = self._text(node)[-1:].decode()
            self._change(node, f"{quote}{node.value}_{quote}", kind)

    def _change(self, node: ast.AST, text: str, kind: str) -> None:
        self.found.append((*self._span(node), text, kind))

    def _text(self, node: ast.AST) -> bytes:
        start, end = self._span(node)
        return self.source[start:end]

    def _span(self, node: ast.AST) -> tuple[int, int]:
        at: ast.expr = node  # type: ignore[assignment]  # what has a place at all
        assert at.end_lineno is not None
        assert at.end_col_offset is not None
        starts = self._line_starts
        return starts[at.lineno - 1] + at.col_offset, starts[at.end_lineno - 1] + at.end_col_offset


def modules() -> list[str]:
    """Every module of the package, by its path within it."""
    folder = ROOT / PACKAGE
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))


def package_of(module: str) -> str:
    """The folder of a module at the top of the package, or of an add-on; modules beside the folders have `.`."""
    folder, _, rest = module.removeprefix("addons/").partition("/")
    return folder if rest else "."


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    source = (ROOT / PACKAGE / module).read_bytes()
    found: dict[str, Mutant] = {}
    for start, end, text, kind in sorted(set(Edits(source).found)):
        mutated = source[:start] + text.encode() + source[end:]
        if mutated == source:
            continue
        line = source.count(b"\n", 0, start)
        before, after = (version.split(b"\n")[line].decode().strip() for version in (source, mutated))
        mutant = Mutant(module, line + 1, before, after, kind, mutated)
        if not is_excluded(mutant):
            found[str(mutant)] = mutant
    return list(found.values())


def is_excluded(mutant: Mutant) -> bool:
    own = [part for folder, parts in EXCLUDED.items() if mutant.module.startswith(folder) for part in parts]
    change = f"{mutant.before} → {mutant.after}"
    return any(part in change for part in own) or any(re.search(part, change) for part in EXCLUDED_EVERYWHERE)


def choose(names: Sequence[str], number: int, seed: int) -> list[Mutant]:
    """`number` mutants of these modules: of each package in proportion to its lines, of each kind as many."""
    packages: dict[str, list[str]] = defaultdict(list)
    for name in names:
        packages[package_of(name)].append(name)
    lines = {package: sum(map(_n_lines, packages[package])) for package in packages}
    chosen: list[Mutant] = []
    for package, share in _shares(lines, number).items():
        chosen += _of_each_kind([mutant for name in packages[package] for mutant in mutants_of(name)], share, seed)
    return sorted(chosen, key=lambda mutant: (mutant.module, mutant.line, mutant.after))


def _n_lines(module: str) -> int:
    return (ROOT / PACKAGE / module).read_bytes().count(b"\n")


def _shares(weights: dict[str, int], number: int) -> dict[str, int]:
    """`number` divided in proportion to the weights, by largest remainder."""
    exact = {name: number * weight / max(1, sum(weights.values())) for name, weight in weights.items()}
    shares = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: shares[name] - exact[name])
    for name in by_remainder[: number - sum(shares.values())]:
        shares[name] += 1
    return shares


def _of_each_kind(mutants: Sequence[Mutant], number: int, seed: int) -> list[Mutant]:
    """A sample in which the kinds take turns, of no line more than one."""
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in sorted(mutants, key=lambda mutant: random.Random(f"{seed}:{mutant}").random()):
        kinds[mutant.kind].append(mutant)
    turns = sorted(kinds, key=lambda kind: random.Random(f"{seed}:{kind}:{len(mutants)}").random())
    chosen: dict[tuple[str, int], Mutant] = {}
    while len(chosen) < number and any(kinds.values()):
        for kind in turns:
            if len(chosen) < number and (found := _next(kinds[kind], chosen)):
                chosen[found.module, found.line] = found
    return list(chosen.values())


def _next(mutants: list[Mutant], chosen: dict[tuple[str, int], Mutant]) -> Mutant | None:
    """The first that can be imported, of a line that none is of; what is passed over is used up."""
    while mutants:
        mutant = mutants.pop(0)
        if (mutant.module, mutant.line) not in chosen and _compiles(mutant):
            return mutant
    return None


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(mutant.source, mutant.module, "exec")
    except (SyntaxError, SyntaxWarning):
        return False
    return True
