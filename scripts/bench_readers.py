"""Compares the readers of file formats with those of other libraries, and measures their memory.

python scripts/bench_readers.py compare PYTHON   pairs of odd files; PYTHON is what `scripts/judges readers` prints
python scripts/bench_readers.py memory 2000      peak memory of listing and of reading a file of so many MB
benchmarks/data.md holds what it printed. Beside tfm, Parquet needs its extra `parquet`.
"""

import argparse
import importlib
import json
import pkgutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import second_readers
from second_readers import Case

from transformer_cli.config.compose import load_config
from transformer_cli.data.corpus import load_text
from transformer_cli.errors import TfmError

_LOOP = """
import json, sys

def read(case):
{body}

for case in json.load(sys.stdin):
    try:
        answer = read(case)
    except BaseException as error:
        answer = f"{{type(error).__name__}}: {{error}}"
    print("answer", json.dumps(answer))
"""
_LANGUAGES = ["data=files", "data.source_lang=en", "data.target_lang=fr"]


def modules() -> dict[str, Any]:
    """The module of each format, by its name."""
    names = sorted(found.name for found in pkgutil.iter_modules(second_readers.__path__))
    return {name.removesuffix("_files"): importlib.import_module(f"second_readers.{name}") for name in names}


def theirs(python: str, module: Any, cases: list[Case], cache: Path) -> list[Any]:
    """What the other library reads of each file: pairs, or its error as a text."""
    program = _LOOP.format(body=textwrap.indent(module.PROGRAM, "    "))
    questions = [
        {"path": case.path, "columns": case.columns, "options": case.options, "cache": str(cache)} for case in cases
    ]
    done = subprocess.run(
        [python, "-c", program], input=json.dumps(questions), capture_output=True, text=True, check=False
    )
    answers = [json.loads(line[7:]) for line in done.stdout.split("\n") if line.startswith("answer ")]
    assert len(answers) == len(cases), done.stderr[-3000:]
    return answers


def ours(case: Case) -> list[list[str]] | str:
    """The same of tfm."""
    try:
        text = load_text(load_config("train", [*_LANGUAGES, f"data.train='{case.path}'", *case.settings]).data, "train")
    except TfmError as error:
        return str(error)
    assert text is not None
    return [[flat(source), flat(target)] for source, target in text.each() if source.strip() or target.strip()]


def flat(text: str) -> str:
    """A text as a line: tfm's formats have blanks for the ends of lines and tabs within a text."""
    return " ".join(text.split())


def verdict(mine: Any, other: Any) -> str:
    if isinstance(other, list):
        other = [[flat(text) for text in pair] for pair in other if any(text.strip() for text in pair)]
    if isinstance(mine, str):
        return "both refuse" if isinstance(other, str) else "tfm refuses"
    if isinstance(other, str):
        return "the other refuses"
    return "same pairs" if mine == other else "differ"


def compare(python: str, n: int, only: str | None) -> int:
    kinds = ("same pairs", "both refuse", "tfm refuses", "the other refuses", "differ")
    print(f"| format | files | {' | '.join(kinds)} |")
    print(f"|---|{'---:|' * (len(kinds) + 1)}")
    notes, n_different = [], 0
    for name, module in modules().items():
        if only not in (None, name):
            continue
        with TemporaryDirectory() as folder:
            cases = list(module.CASES(Path(folder), Random(1), n))
            others = theirs(python, module, cases, Path(folder) / "cache")
            found = {
                case.name: (verdict(mine := ours(case), other), mine, other)
                for case, other in zip(cases, others, strict=True)
            }
            counts = [sum(kind == verdict for verdict, _, _ in found.values()) for kind in kinds]
            notes += [
                f"{name}, {title}: {kind}: {str(mine if isinstance(mine, str) else other).replace(folder, '')[:200]}"
                for title, (kind, mine, other) in found.items()
                if kind not in ("same pairs", "both refuse")
            ]
        n_different += counts[-1]
        print(f"| {name} | {len(cases)} | {' | '.join(map(str, counts))} |", flush=True)
    print("\n".join(["", *notes]))
    return int(n_different > 0)


_MEASURED = """
import resource, sys
from pathlib import Path
from transformer_cli.cli import main
{work}
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""
_WORK = {
    "listing": "main(['prepare', '--list', sys.argv[1]])",
    "reading": (
        "from transformer_cli.config.compose import load_config\n"
        "from transformer_cli.data.corpus import stream_text\n"
        "config = load_config('prepare', ['data=files', 'data.source_lang=en', 'data.target_lang=fr',"
        " f'data.train={sys.argv[1]}']).data\n"
        "print(stream_text(config, Path(sys.argv[2])).sizes)"
    ),
}


def memory(megabytes: int, kind: str) -> int:
    """Write a file and measure in processes of their own."""
    print("| what | MB | seconds | peak, MB |\n|---|---:|---:|---:|")
    with TemporaryDirectory(dir=".") as folder:
        path = Path(folder) / f"large.{kind}"
        write_large(path, megabytes)
        for what, work in _WORK.items():
            start = time.perf_counter()
            (spool := Path(folder) / what).mkdir()
            done = subprocess.run(
                [sys.executable, "-c", _MEASURED.format(work=work), str(path), str(spool)],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            peak = done.stdout.rpartition("peak ")[2].strip()
            print(f"| {what} {kind} | {megabytes} | {time.perf_counter() - start:.0f} | {peak} |", flush=True)
    return 0


def write_large(path: Path, megabytes: int) -> None:
    """A file of different rows, in the format that its ending names."""
    n_bytes = n_rows = 0
    with path.open("w", encoding="utf-8") as file:
        n_bytes += file.write("id,en,fr\n" if path.suffix == ".csv" else "")
        while n_bytes < megabytes * 1_000_000:
            n_bytes += file.write("".join(_large_row(n, path.suffix) for n in range(n_rows, n_rows + 10_000)))
            n_rows += 10_000


def _large_row(number: int, ending: str) -> str:
    source, target = f'Row {number} of the "table", in words', f"La ligne {number} du tableau, en mots"
    if ending == ".csv":
        quotes = source.replace('"', '""')
        return f'{number},"{quotes}","{target}"\n'
    return json.dumps({"id": number, "en": source, "fr": target}) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True, dest="command")
    comparing = commands.add_parser("compare")
    comparing.add_argument("python", help="the Python that has the other libraries")
    comparing.add_argument("--rows", type=int, default=300, help="of each file")
    comparing.add_argument("--only", help="one format, as csv")
    measuring = commands.add_parser("memory")
    measuring.add_argument("megabytes", type=int)
    measuring.add_argument("--kind", choices=["csv", "jsonl"], default="csv")
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return compare(arguments.python, arguments.rows, arguments.only)
    return memory(arguments.megabytes, arguments.kind)


if __name__ == "__main__":
    sys.exit(main())
