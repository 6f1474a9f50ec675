"""Every row of the fault matrix, and that each has a test whose name begins with its number.

P0 before the first release, P1 soon, P2 later. `code` is the exit status that a row asks for, where it asks for one:
such a row of the groups C, D and E has a test that holds a command line to the contract (tests/support/contract.py).
"""

import ast
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from typing import NamedTuple

from tests.conftest import ROOT
from tests.support.each import each


class Row(NamedTuple):
    fault: str
    priority: int
    code: int | None = None


ROWS = {
    # Crash, stop, resume
    "A1": Row("killed while a checkpoint is written", 0),
    "A2": Row("killed between publishing a checkpoint and pruning", 0),
    "A3": Row("killed while pruning", 0),
    "A4": Row("killed at any other instant", 0),
    "A5": Row("SIGTERM in a step", 0, 143),
    "A6": Row("SIGINT, once and twice", 0, 130),
    "A7": Row("SIGTERM during a save", 0, 143),
    "A8": Row("SIGTERM at one rank of several", 1, 143),
    "A9": Row("SIGHUP and SIGUSR1", 1),
    "A10": Row("one rank killed", 0, 5),
    "A11": Row("a rank hangs", 1, 5),
    "A12": Row("power cut: what is published has been synced", 0),
    "A13": Row("the newest checkpoint is damaged", 0),
    "A14": Row("all checkpoints are damaged", 0, 4),
    "A15": Row("resume where there is nothing", 0, 4),
    "A16": Row("resume at any step, to the last bit", 0),
    "A17": Row("resume of scaler, bf16 and averages", 0),
    "A18": Row("resume with another number of ranks", 1),
    "A19": Row("resume on another device, torch or thread count", 1),
    "A20": Row("resume with another config", 0, 2),
    "A21": Row("resume with other data or tokenizer", 0, 3),
    "A22": Row("resume of a finished run", 1, 0),
    "A23": Row("files of a newer and of this format", 0, 4),
    "A24": Row("two trainers in one run directory", 0, 7),
    "A25": Row("a lock on NFS, or of a dead host", 2),
    "A26": Row("workers that outlive their trainer", 1),
    "A27": Row("the clock jumps back", 1),
    # Disk, memory, device, environment
    "B1": Row("disk full while saving", 0, 5),
    "B2": Row("disk too full at the start", 1, 5),
    "B3": Row("disk full for logs only", 0),
    "B4": Row("disk full behind stdout", 0, 5),
    "B5": Row("run directory that cannot be written", 0, 5),
    "B6": Row("no home, a read-only one, a cache that cannot be written", 0),
    "B7": Row("no more open files, odd and too long names", 1),
    "B8": Row("GPU out of memory", 0, 5),
    "B9": Row("one of several GPUs out of memory", 1),
    "B10": Row("host out of memory", 1),
    "B11": Row("loss or gradient is no number", 0, 6),
    "B12": Row("the loss jumps", 2),
    "B13": Row("dev loss is no number", 0),
    "B14": Row("a GPU that is not there", 0, 5),
    "B15": Row("a precision that the device lacks", 0, 5),
    "B16": Row("torchrun's surroundings are wrong", 1),
    "B17": Row("locale", 0),
    "B18": Row("no network", 0),
    "B19": Row("closed streams, no terminal", 1),
    # Training data
    "C1": Row("different line counts", 0, 3),
    "C2": Row("empty, missing, folder, no permission, FIFO, broken link", 0, 3),
    "C3": Row("CRLF", 0),
    "C4": Row("byte order mark", 0),
    "C5": Row("invalid UTF-8", 0, 3),
    "C6": Row("other encodings and packed data", 1, 3),
    "C7": Row("NUL and control characters", 0),
    "C8": Row("Unicode line separators", 0),
    "C9": Row("no newline at the end", 0),
    "C10": Row("blank lines", 0),
    "C11": Row("very long lines", 0),
    "C12": Row("all pairs filtered", 0, 3),
    "C13": Row("emoji, right to left, zero width, unknown", 1),
    "C14": Row("literal control tokens", 0),
    "C15": Row("broken gzip", 0, 3),
    "C16": Row("a file changes while it is trained on", 1, 3),
    "C17": Row("source and target are the same or swapped", 1),
    "C18": Row("dev or test text in the training text", 1),
    "C19": Row("vocabulary larger than the data allows", 0, 2),
    "C20": Row("interrupted preparation", 0),
    "C21": Row("tiny corpora", 0),
    # tfm translate and tfm evaluate
    "D1": Row("as many lines out as in", 0),
    "D2": Row("blank lines", 0),
    "D3": Row("line breaks in hypotheses", 0),
    "D4": Row("invalid UTF-8 on stdin", 0, 3),
    "D5": Row("over-long lines", 0),
    "D6": Row("empty input", 0),
    "D7": Row("order", 0),
    "D8": Row("batch size", 0),
    "D9": Row("neighbours", 0),
    "D10": Row("ties", 0),
    "D11": Row("beam 1 is greedy", 0),
    "D12": Row("never emits the end", 0),
    "D13": Row("closed pipe", 0),
    "D14": Row("interactive", 0),
    "D15": Row("killed while writing", 0),
    "D16": Row("input is output, output exists", 0, 2),
    "D17": Row("output cannot be written", 0, 5),
    "D18": Row("model and tokenizer disagree", 0, 4),
    "D19": Row("missing or foreign model", 0, 4),
    "D20": Row("reference of another length", 0, 3),
    "D21": Row("score equals sacrebleu's command", 0),
    "D22": Row("CPU and GPU, fp32 and bf16", 1),
    # Config and command line
    "E1": Row("unknown key", 0, 2),
    "E2": Row("wrong type or range", 0, 2),
    "E3": Row("unknown choice", 0, 2),
    "E4": Row("contradicting values", 0, 2),
    "E5": Row("bad YAML", 0, 2),
    "E6": Row("unset or unresolvable value", 0, 2),
    "E7": Row("_target_", 0, 2),
    "E8": Row("run directory of another config", 0, 2),
    "E9": Row("help, version, wrong command", 0, 2),
    "E10": Row("our bug", 0, 70),
    # Hostile input
    "F1": Row("pickle, zip or polyglot for a checkpoint", 0, 4),
    "F2": Row("malformed safetensors", 0, 4),
    "F3": Row("tensors of absurd or wrong shapes", 0, 4),
    "F4": Row("a manifest that leads elsewhere", 0, 4),
    "F5": Row("a model config that names classes or giants", 0, 4),
    "F6": Row("secrets by interpolation", 0),
    "F7": Row("other resolvers", 1, 2),
    "F8": Row("hostile archives", 0, 3),
    "F9": Row("downloads that are wrong, cut or elsewhere", 0, 5),
    "F10": Row("a hostile SentencePiece model", 1, 4),
    "F11": Row("terminal escapes in what errors show", 1),
    "F12": Row("modules beside the corpus", 2),
    "F13": Row("links planted at our names", 2),
}
OPEN = {"A25", "B12"}  # P2 rows without a test


@cache
def found() -> dict[str, list[ast.FunctionDef]]:
    """Row → the test functions whose names begin with its number, or with those of several rows."""
    tests: dict[str, list[ast.FunctionDef]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for row in takewhile(ROWS.__contains__, node.name.split("_")[1:]):
                    tests.setdefault(row, []).append(node)
    return tests


def calls(function: ast.FunctionDef) -> Iterator[str]:
    return (
        node.func.id for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )


def test_the_matrix_has_112_rows() -> None:
    assert [sum(row[0] == group for row in ROWS) for group in "ABCDEF"] == [27, 19, 21, 22, 10, 13]


@each("name", ROWS)
def test_each_row_has_a_test_or_is_listed_as_open(name: str) -> None:
    assert (name in found()) != (name in OPEN), ROWS[name]


def test_only_rows_for_later_are_open() -> None:
    assert {ROWS[name].priority for name in OPEN} == {2}


@each("name", [name for name, row in ROWS.items() if row.code and name[0] in "CDE"])
def test_each_row_with_an_exit_code_is_held_to_the_contract(name: str) -> None:
    assert any({"refused", "error_line"} & set(calls(test)) for test in found()[name]), ROWS[name]
