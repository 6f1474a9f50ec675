"""CSV: files of Python's csv, pandas and spreadsheets, read by pandas; odd rows and quotes."""

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random

from second_readers import Case, pairs

PROGRAM = """
import pandas
frame = pandas.read_csv(
    case["path"], dtype=str, keep_default_na=False, skip_blank_lines=False, encoding="utf-8-sig", **case["options"]
)
return frame[list(case["columns"])].values.tolist()
"""


def written(rows: Sequence[Sequence[str]], delimiter: str, quoting: str, end: str) -> str:
    file = io.StringIO(newline="")
    how = csv.QUOTE_ALL if quoting == "all" else csv.QUOTE_MINIMAL
    csv.writer(file, delimiter=delimiter, quoting=how, lineterminator=end).writerows(rows)
    return file.getvalue()


def CASES(folder: Path, random: Random, n: int) -> Iterator[Case]:
    headers = (["en", "fr"], ["fr", "en"], ["id", "en", "fr", "note"], ["id", "English", "French"])
    kinds = list(product((",", ";", "\t"), ("all", "minimal"), ("\n", "\r\n")))
    for number, (delimiter, quoting, end) in enumerate([*kinds, *kinds]):
        header = headers[number % len(headers)]
        rows = [header]
        for source, target in pairs(random, n, "\n\t" if number < len(kinds) else ""):
            texts = {"en": source, "English": source, "fr": target, "French": target, "id": str(len(rows)), "note": ""}
            rows.append([texts[name] for name in header])
        text = ("\ufeff" if number % 3 == 0 else "") + written(rows, delimiter, quoting, end)
        columns = ("English", "French") if "English" in header else ("en", "fr")
        yield _case(folder, f"{number}", text, delimiter, columns)
    yield from _odd(folder)


def _odd(folder: Path) -> Iterator[Case]:
    rows = "one,un\n" * 5
    for name, text in {
        "too many fields": f"en,fr\n{rows}two, three,deux\n",
        "too few fields": f"en,fr\n{rows}two\n",
        "a quote that never ends": f'en,fr\n{rows}"two,deux\n{rows}',
        "a quote within a field": f'en,fr\n{rows}5" wide,5 pouces\n',
        "text behind a quote": f'en,fr\n{rows}"two" three,deux\n',
        "a header alone": "en,fr\n",
        "no end of line": f"en,fr\n{rows}two,deux",
        "empty fields": f"en,fr\n{rows},deux\ntwo,\n,\n",
        "blank lines": f"en,fr\n\n{rows}\ntwo,deux\n\n",
    }.items():
        yield _case(folder, name, text, ",", ("en", "fr"))


def _case(folder: Path, name: str, text: str, delimiter: str, columns: tuple[str, str]) -> Case:
    path = folder / f"csv-{name.replace(' ', '-')}.csv"
    path.write_bytes(text.encode())
    return Case(name, str(path), columns, options={"sep": delimiter})
