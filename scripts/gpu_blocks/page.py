"""benchmarks/gpu.md, made of the records of the blocks."""

import textwrap
from collections.abc import Sequence
from typing import Any

from gpu_blocks import BLOCKS
from gpu_blocks.record import FINISHED, Record

WIDTH = 120
TOY = "**Toy size: none of these figures means anything.**"


def page(records: Sequence[Record]) -> str:
    """Markdown. Raises ValueError for no record, or for toy ones beside others."""
    sizes = {bool(record["toy"]) for record in records}
    if len(sizes) != 1:
        raise ValueError("no block has run" if not records else "toy records beside others: give each a folder")
    (is_toy,) = sizes
    ordered = sorted(records, key=lambda record: list(BLOCKS).index(record["block"]))
    parts = ["# On a GPU", *([TOY] if is_toy else []), filled(introduction(ordered)), overview(ordered)]
    for record in ordered:
        parts += section(record)
    return "\n\n".join(parts) + "\n"


def introduction(records: Sequence[Record]) -> str:
    missing = [f"({name}) {kind.title}" for name, kind in BLOCKS.items() if name not in {r["block"] for r in records}]
    text = (
        "Measured by `scripts/bench_gpu`, each block in a process of its own; `scripts/bench_gpu --report DIR` writes"
        " this page from their records. Where programs are compared they take turns: a figure is the median, ± half the"
        " distance of the quartiles, and ratios are taken round by round."
    )
    return text + (f" Not run: {', '.join(missing)}." if missing else "")


def overview(records: Sequence[Record]) -> str:
    rows = [
        [
            f"({record['block']}) {BLOCKS[record['block']].title}",
            state_of(record),
            f"{record.get('seconds', 0):,.0f} s",
            record["date"][:10],
            record.get("commit", ""),
            record.get("machine", {}).get("device", ""),
        ]
        for record in records
    ]
    return table(["block", "state", "time", "date", "commit", "device"], rows)


def state_of(record: Record) -> str:
    measured = record["measurements"]
    failed = sum("failed" in one for one in measured)
    left_out = sum("left_out" in one for one in measured)
    state = "finished" if record["state"] == FINISHED else "cut short"
    details = [f"{n} {what}" for n, what in ((failed, "failed"), (left_out, "left out")) if n]
    return ", ".join([state, *details])


def section(record: Record) -> list[str]:
    """The paragraphs of a block."""
    machine = ", ".join(f"{key} {value}" for key, value in record.get("machine", {}).items())
    parts = [f"## ({record['block']}) {BLOCKS[record['block']].title}"]
    parts += [TOY] if record["toy"] else []
    parts += [f"```\n{record['command']}\n```", filled(f"{machine}; {record['date']}." if machine else record["date"])]
    if "failed" in record:
        parts.append(filled(f"Cut short: {one_line(record['failed'])}."))
    for one in record["measurements"]:
        if "rows" in one:
            parts += measurement(one)
    missing = [one for one in record["measurements"] if "failed" in one or "left_out" in one]
    if missing:
        parts.append("Not measured:")
        parts.append("\n".join(bullet(one) for one in missing))
    return parts


def measurement(one: dict[str, Any]) -> list[str]:
    parts = [f"### {one['title']}"]
    if one["rows"]:
        parts.append(table(one["columns"], one["rows"]))
    return parts + [note if "\n" in note else filled(note) for note in one["notes"]]


def bullet(one: dict[str, Any]) -> str:
    return f"- {one['title']}: {one_line(one.get('failed') or one['left_out'])}"


def one_line(text: str, limit: int = 300) -> str:
    """The text on one line and without the marks of Markdown's code, which a test reads as names of files and keys."""
    shown = " ".join(text.replace("`", "'").split())
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown, figures to the right."""
    lines = [[one_line(str(cell)).replace("|", "\\|") for cell in line] for line in (columns, *rows)]
    widths = [max(3, *(len(line[n]) for line in lines)) for n in range(len(columns))]
    shown = [[line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (shown[0], rule, *shown[1:]))
