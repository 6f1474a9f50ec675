"""Every fault that a user can meet today has a test that carries its row number."""

import re

import pytest

from tests.conftest import ROOT

# Corpora (C), translate and evaluate (D), config and command line (E): the rows that must hold in this version.
ROWS = {
    "C1": "different line counts",
    "C2": "empty, missing, folder, no permission, FIFO, broken link",
    "C3": "CRLF",
    "C4": "byte order mark",
    "C5": "invalid UTF-8",
    "C7": "NUL and control characters",
    "C8": "Unicode line separators",
    "C9": "no newline at the end",
    "C10": "blank lines",
    "C11": "very long lines",
    "C12": "all pairs filtered",
    "C14": "literal control tokens",
    "C15": "broken gzip",
    "C17": "one file twice, swapped sides",
    "C18": "dev or test text in the training text",
    "C19": "vocabulary larger than the data allows",
    "C20": "interrupted preparation",
    "C21": "tiny corpora",
    "D1": "as many lines out as in",
    "D2": "blank lines",
    "D3": "line breaks in hypotheses",
    "D4": "invalid UTF-8 on stdin",
    "D5": "over-long lines",
    "D6": "empty input",
    "D7": "order",
    "D8": "batch size",
    "D9": "neighbours",
    "D10": "ties",
    "D11": "beam 1 is greedy",
    "D12": "never emits the end",
    "D13": "closed pipe",
    "D14": "interactive",
    "D15": "killed while writing",
    "D16": "input is output, output exists",
    "D17": "output cannot be written",
    "D18": "model and tokenizer disagree",
    "D19": "missing or foreign model",
    "D20": "reference of another length",
    "D21": "score equals sacrebleu's command",
    "E1": "unknown key",
    "E2": "wrong type or range",
    "E3": "unknown choice",
    "E4": "contradicting values",
    "E5": "bad YAML",
    "E6": "unset or unresolvable value",
    "E7": "_target_",
    "E8": "run directory of another config",
    "E9": "help, version, wrong command",
    "E10": "our bug",
}


@pytest.mark.parametrize("row", ROWS)
def test_each_row_has_a_test(row: str) -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").glob("test_*.py"))
    assert re.search(rf"^def test_{row}_", code, re.MULTILINE), f"no test for {row}: {ROWS[row]}"
