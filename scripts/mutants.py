"""Mutants: sources of one module with one small fault, and which tests concern that module.

`scripts/mutate.py` tests them.
"""

import ast
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "transformer_cli"

# Module → the test files that concern it, the quickest first.
TARGETS = {
    "training/loss.py": "loss compiled",
    "training/schedules/registry.py": "schedules own_components",
    "training/schedules/constant.py": "schedules",
    "training/schedules/cosine.py": "schedules",
    "training/schedules/inverse_sqrt.py": "schedules",
    "training/schedules/linear.py": "schedules",
    "training/schedules/noam.py": "schedules",
    "training/schedules/wsd.py": "schedules",
    "training/optimizers/registry.py": "optimizers own_components",
    "training/optimizers/adam.py": "optimizers",
    "training/optimizers/adamw.py": "optimizers",
    "training/optimizers/muon.py": "optimizers sharding",
    "training/optimizers/state.py": "optimizers",
    "training/trainer.py": "recompute precision out_of_memory diverging training",
    "data/batching.py": "batching shuffling feed",
    "data/cache.py": "batching prepare",
    "data/lines.py": "lines download corpus",
    "data/clean.py": "clean corpus prepare",
    "models/attention.py": "attention attention_maps transformer",
    "models/embeddings.py": "embeddings attention parity transformer",
    "decoding/search/beam.py": "placement terminology search search_options",
    "decoding/search/greedy.py": "search search_options",
    "decoding/search/sampling.py": "search search_options",
    "decoding/search/loop.py": "search search_options search_looks",
    "decoding/search/steps.py": "search search_options search_looks",
    "decoding/search/top_k.py": "search search_options",
    "decoding/search/scores.py": "force_decode search search_options",
    "decoding/search/logits_processors.py": "search search_options",
    "evaluation/metrics.py": "metrics tokenization",
    "evaluation/classification.py": "classification",
    "training/checkpoints.py": "checkpoints saver",
    "models/file.py": "model_file checkpoints",
    "files.py": "files prepare",
}

# Module → texts in the lines, or whole "line → mutated line"s, that are left out, with the reason.
EXCLUDED: dict[str, dict[str, str]] = {
    "training/loss.py": {"ROWS = 128": "the speed alone"},
    "training/optimizers/registry.py": {
        "set_lr(optimizer, 0.0) → pass": "the weights that it spares are put back anyway"
    },
    "training/optimizers/adam.py": {"fused=False": "the speed alone"},
    "training/optimizers/adamw.py": {"fused=False": "the speed alone"},
    "training/optimizers/muon.py": {
        "= self.param_groups[1]": "all groups have one rate",
        "param_groups[-1]": "all groups have one rate, and Muon itself has one group",
    },
    "training/trainer.py": {"torch.cuda.empty_cache() ": "a GPU alone"},
    "data/batching.py": {
        "low, high = max(": "where a bisection starts that ends within the same 1 %",
        "high // 99:": "how near to the best a bisection ends",
        "high // 101:": "how near to the best a bisection ends",
    },
    "data/cache.py": {
        "_LENGTHS_AT_A_TIME = ": "the memory alone",
        "→ count = max(_LENGTHS_AT_A_TIME": "the memory alone: a file is not read beyond its end",
    },
    "data/clean.py": {
        "_HASHES_AT_A_TIME = ": "the memory alone",
        "→ n_parts = max(255": "the memory alone",
        "2 + len(hashes)": "the memory alone",
        "→ n_parts = min(254": "the memory alone",
        "→ n_parts = min(256": "the memory alone",
        "digest_size=7": "how seldom two pairs have one hash: once in 2^56 pairs of pairs",
    },
    "decoding/search/beam.py": {
        "n_candidates = len(state.live_log_prob_BN), 3": "candidates beyond those that are chosen from"
    },
    "decoding/search/sampling.py": {"n_first = 3": "the speed alone", "→ n_first *= ": "the speed alone"},
    "decoding/search/loop.py": {
        "ranked[: n_best + 2]": "the speed alone: more sentences are searched again by themselves"
    },
    "decoding/search/top_k.py": {
        "FEW =": "the speed alone",
        "CHUNK =": "the speed alone",
        "if n_chunks < 3 * n": "the speed alone",
        "if n_chunks < 5 * n": "the speed alone",
        "<= FEW": "the speed alone",
    },
    "decoding/search/logits_processors.py": {
        "*[-2] * self.longest_prefix": "any negative number is no token",
        "→ if self.n_gram is None and self.past_BNT is None": "there is a past before the length is that of an n-gram",
    },
    "decoding/search/scores.py": {"for n in range(1, longest + 2)": "a divisor for a length that no hypothesis has"},
    "models/embeddings.py": {
        "→ n_rows = max(255": "the number of rows that are computed; the first ones are the same",
        "→ n_rows = max(257": "the number of rows that are computed; the first ones are the same",
        "→ n_rows = max(256, 2 <<": "the number of rows that are computed; the first ones are the same",
    },
}

OPERATORS: dict[type[ast.AST], tuple[str, str]] = {  # how it is written, and what it becomes
    **{ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">")},
    **{ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.And: ("and", "or"), ast.Or: ("or", "and")},
    **{ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*")},
    **{ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&")},  # the `and` and `or` of tensors
}
NAMES = {"min": "max", "amin": "amax", "minimum": "maximum", "any": "all"}
NAMES |= {other: name for name, other in NAMES.items()}
KEYWORDS = (
    "strict",
    "non_blocking",
)  # arguments that are left as they are: the first asserts, the other is about speed


@dataclass(frozen=True)
class Mutant:
    module: str
    line: int
    before: str
    after: str
    source: bytes  # of the whole module

    def __str__(self) -> str:
        return f"{PACKAGE}/{self.module}:{self.line}: {self.before} → {self.after}"


class Edits(ast.NodeVisitor):
    """Finds what can be changed in a source, as (first byte, byte behind the last, new text).

    Not in annotations, decorators and messages. Nor in assertions: they are about what never happens, so that a weaker
    one cannot be noticed and a wrong one always is.
    """

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.found: list[tuple[int, int, str]] = []
        self._line_starts = [0]
        for line in source.split(b"\n"):
            self._line_starts.append(self._line_starts[-1] + len(line) + 1)
        self._returns_bool = False
        self.visit(ast.parse(source))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name == "__repr__":
            return
        self._returns_bool = isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        self._visit_all([*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all(node.body)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_all([node.value] if node.value is not None else [])

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.AST) -> None:
        """Strings that people read; `raise` and `assert` likewise."""

    visit_Raise = visit_Assert = visit_JoinedStr

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call) and not re.match(rb"LOGGER\.(info|debug)\b", self._text(node)):
            self._change(node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if self._returns_bool and node.value is not None and not isinstance(node.value, ast.Constant):
            self._change(node.value, f"not ({self._text(node.value).decode()})")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if self._text(node).startswith(b"LOGGER."):
            return
        for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
            value = argument.value if isinstance(argument, ast.Starred) else argument
            if isinstance(value, ast.Tuple) and len(value.elts) > 1:
                for left_out in value.elts:
                    kept = [self._text(element).decode() for element in value.elts if element is not left_out]
                    self._change(value, f"({', '.join(kept)},)")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg in KEYWORDS:
            return
        start = self._span(node)[0]
        if node.arg in NAMES:
            self.found.append((start, start + len(node.arg), NAMES[node.arg]))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        self._swap([node.left, *node.comparators], node.ops)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not any(self._text(side).endswith((b'"', b"]")) for side in (node.left, node.right)):  # texts and lists
            self._swap([node.left, node.right], [node.op])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._swap([node.target, node.value], [node.op])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._swap(node.values, [node.op] * (len(node.values) - 1))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.Invert):
            self._change(node, re.sub(r"^(not\s+|not(?=\()|~)", "", self._text(node).decode()))
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in NAMES:
            self._change(node, NAMES[node.id])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        end = self._span(node)[1]
        if node.attr in NAMES:
            self.found.append((end - len(node.attr), end, NAMES[node.attr]))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._change(node, str(not node.value))
        elif isinstance(node.value, int):
            self._change(node, str(node.value - 1))
            self._change(node, str(node.value + 1))

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _swap(self, operands: Sequence[ast.expr], operators: Sequence[ast.AST]) -> None:
        for left, operator, right in zip(operands, operators, operands[1:], strict=False):
            if type(operator) in OPERATORS:
                symbol, swapped = OPERATORS[type(operator)]
                start = self.source.index(symbol.encode(), self._span(left)[1], self._span(right)[0])
                self.found.append((start, start + len(symbol), swapped))

    def _change(self, node: ast.AST, text: str) -> None:
        self.found.append((*self._span(node), text))

    def _text(self, node: ast.AST) -> bytes:
        start, end = self._span(node)
        return self.source[start:end]

    def _span(self, node: ast.AST) -> tuple[int, int]:
        at: ast.expr = node  # type: ignore[assignment]  # what has a place at all
        assert at.end_lineno is not None
        assert at.end_col_offset is not None
        starts = self._line_starts
        return starts[at.lineno - 1] + at.col_offset, starts[at.end_lineno - 1] + at.end_col_offset


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    source = (ROOT / PACKAGE / module).read_bytes()
    found: dict[str, Mutant] = {}
    for start, end, text in sorted(set(Edits(source).found)):
        mutated = source[:start] + text.encode() + source[end:]
        line = source.count(b"\n", 0, start)
        before, after = (version.split(b"\n")[line].decode().strip() for version in (source, mutated))
        if not any(part in f"{before} → {after}" for part in EXCLUDED.get(module, {})):
            mutant = Mutant(module, line + 1, before, after, mutated)
            found[str(mutant)] = mutant
    return list(found.values())


def choose(modules: Sequence[str], number: int, seed: int) -> list[Mutant]:
    """`number` mutants, of each module as many as of the others, or all that it has."""
    left = {module: mutants_of(module) for module in modules}
    for module, mutants in left.items():
        random.Random(f"{seed}:{module}").shuffle(mutants)
    chosen: list[Mutant] = []
    while len(chosen) < number and any(left.values()):
        chosen += [mutants.pop() for mutants in left.values() if mutants][: number - len(chosen)]
    for mutant in chosen:
        compile(mutant.source, mutant.module, "exec")  # a mutant that cannot even be imported says nothing of the tests
    return sorted(chosen, key=lambda mutant: (modules.index(mutant.module), mutant.line, mutant.after))
