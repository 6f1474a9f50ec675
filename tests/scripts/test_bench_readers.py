"""The comparison of the readers with other libraries, with programs of Python's own library in their place."""

import csv
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import bench_readers
import bench_readers_xml
import second_readers
from second_readers import csv_files, jsonl_files

WITH_CSV = """
import csv
rows = list(csv.reader(open(case["path"], encoding="utf-8-sig", newline=""), delimiter=case["options"]["sep"]))
header, rows = rows[0], [row for row in rows[1:] if row]
assert all(len(row) == len(header) for row in rows), "another number of fields"
return [[row[header.index(name)] for name in case["columns"]] for row in rows]
"""
WITH_JSON = """
text = open(case["path"], encoding="utf-8", newline="").read()
records = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.split("\\n") if line.strip()]
assert records, "empty"
pairs = []
for record in records:
    record = record.get("translation", record)
    pair = [record[name.rpartition(".")[2]] for name in case["columns"]]
    assert all(isinstance(text, str) and text.encode() for text in pair)
    pairs.append(pair)
return pairs
"""


@pytest.mark.parametrize(("module", "program"), [(csv_files, WITH_CSV), (jsonl_files, WITH_JSON)])
def test_readers_find_the_pairs_that_pythons_own_library_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, program: str
) -> None:
    monkeypatch.setattr(module, "PROGRAM", program)
    cases = list(module.CASES(tmp_path, Random(2), 40))
    others = bench_readers.theirs(sys.executable, module, cases, tmp_path / "cache")
    verdicts = {
        case.name: bench_readers.verdict(bench_readers.ours(case), other)
        for case, other in zip(cases, others, strict=True)
    }
    assert len(cases) >= 30
    different = {name: kind for name, kind in verdicts.items() if kind not in ("same pairs", "both refuse")}
    assert set(different) <= {"text behind a quote"}  # which Python's csv reads as it can, and tfm refuses
    assert list(verdicts.values()).count("same pairs") >= 20


def test_every_format_has_thirty_files(tmp_path: Path) -> None:
    assert bench_readers.modules().keys() >= {"csv", "jsonl", "parquet"}
    for name, module in bench_readers.modules().items():
        (tmp_path / name).mkdir()
        cases = list(module.CASES(tmp_path / name, Random(1), 3))
        assert len(cases) >= 30, name
        assert all(isinstance(case, second_readers.Case) for case in cases)
        compile("def read(case):\n" + "".join(f" {line}\n" for line in module.PROGRAM.split("\n")), name, "exec")


def test_a_large_file_is_as_large_as_it_is_to_be(tmp_path: Path) -> None:
    bench_readers.write_large(tmp_path / "a.csv", 2)
    assert 2_000_000 <= (tmp_path / "a.csv").stat().st_size < 4_000_000
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        assert all(len(row) == 3 for row in csv.reader(file))
    bench_readers.write_large(tmp_path / "a.jsonl", 1)
    with (tmp_path / "a.jsonl").open(encoding="utf-8") as file:
        assert all(set(json.loads(line)) == {"id", "en", "fr"} for line in file)


@pytest.mark.parametrize(
    ("mine", "other", "kind"),
    [
        ([["a b", "c"]], [["a\nb", "c"], ["", " "]], "same pairs"),
        ([["a", "c"]], [["c", "a"]], "differ"),
        ("x: no", "Error", "both refuse"),
        ("x: no", [], "tfm refuses"),
        ([], "Error", "the other refuses"),
    ],
)
def test_a_verdict_is_what_it_says(mine: object, other: object, kind: str) -> None:
    assert bench_readers.verdict(mine, other) == kind


def test_bilingual_files_are_read_or_refused_with_a_line(tmp_path: Path) -> None:
    """The second reader is no dependency; what is compared with it is read here."""
    for name, cases in (
        ("tmx", bench_readers_xml.odd_memories()),
        ("xliff", bench_readers_xml.odd_documents()),
        ("po", bench_readers_xml.odd_catalogues()),
    ):
        found = {case: bench_readers_xml.ours(name, data) for case, data in cases.items()}
        assert len(found) >= 30
        assert sum(isinstance(pairs, list) for pairs in found.values()) >= 20
    path = tmp_path / "large.tmx"
    n_pairs = bench_readers_xml.write_memory(path, 100_000)
    pairs = bench_readers_xml.ours("tmx", path.read_bytes())
    assert isinstance(pairs, list)
    assert len(pairs) == n_pairs
