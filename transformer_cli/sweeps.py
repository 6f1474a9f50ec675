"""The runs of a sweep (`-m`): their names, and the table of their scores, or of what they have made."""

import hashlib
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hydra.core.override_parser.types import Override, QuotedString

from transformer_cli.command import SweepRun

MAX_NAME_BYTES = 180  # file systems allow 255, and temporary names need room
RECORD_FILE, RESULTS_FILE = "run.json", "results.json"
_SEED = "seed"


def value_of(override: Override) -> str:
    """The value of an override as text, without the quotes of Hydra's grammar."""
    value = override.value()
    return value.text if isinstance(value, QuotedString) else override.get_value_element_as_str()


def sweep_run_name(base: str, changes: Mapping[str, str]) -> str:
    """`base-norm=pre,seed=1`: a file name that no other values of these keys have, shorter than MAX_NAME_BYTES."""
    values = ",".join(f"{key}={_file_name_part(value)}" for key, value in changes.items())
    name = f"{base}-{values}" if values else base
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return f"{name.encode()[: MAX_NAME_BYTES - 9].decode(errors='ignore')}-{_digest(name, 8)}"


def _file_name_part(value: str) -> str:
    """`value` in characters of a run's name; where others are replaced, a hash keeps it different from its like."""
    plain = re.sub(r"[^\w.+-]+", "_", value).strip("_")
    return plain if plain == value else f"{plain}-{_digest(value, 4)}"


def _digest(text: str, n_digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:n_digits]


def read_records(folder: Path) -> list[SweepRun]:
    """The records that the jobs of a sweep have written there, in their order."""
    runs = [SweepRun(**json.loads(file.read_bytes())) for file in folder.glob(f"*/{RECORD_FILE}")]
    return sorted(runs, key=lambda run: run.number)


def as_json(runs: Sequence[SweepRun]) -> str:
    """Every run, and the mean over seeds where they were swept."""
    return json.dumps(
        {"runs": [asdict(run) for run in runs], "over_seeds": [asdict(group) for group in over_seeds(runs)]},
        indent=1,
        ensure_ascii=False,
        allow_nan=False,
    )


@dataclass(frozen=True)
class SeedGroup:
    """Finished runs that differ in nothing but their seed."""

    changes: dict[str, str]
    n_runs: int
    mean: dict[str, float]
    std: dict[str, float]  # the sample standard deviation, n - 1; empty for one run


def over_seeds(runs: Sequence[SweepRun]) -> list[SeedGroup]:
    groups: dict[tuple[tuple[str, str], ...], list[SweepRun]] = {}
    for run in runs:
        if _SEED in run.changes and run.error is None:
            others = tuple((key, value) for key, value in run.changes.items() if key != _SEED)
            groups.setdefault(others, []).append(run)
    found = []
    for others, members in groups.items():
        columns = {name: [run.scores.get(name) for run in members] for name in _score_names(members)}
        known = {name: [x for x in values if x is not None] for name, values in columns.items() if None not in values}
        mean = {name: statistics.fmean(values) for name, values in known.items()}
        std = {name: statistics.stdev(values) for name, values in known.items()} if len(members) > 1 else {}
        found.append(SeedGroup(dict(others), len(members), mean, std))
    return found


def sweep_table(runs: Sequence[SweepRun]) -> str:
    """The runs in columns; below, mean ± standard deviation over seeds where they were swept."""
    keys = list(dict.fromkeys(key for run in runs for key in run.changes))
    names = _score_names(runs)
    counted = list(dict.fromkeys(name for run in runs for name in run.counts))
    rows = [["corpus" if counted else "run", *keys, *names, *(counted or ["steps"]), "minutes"]]
    for run in runs:
        scores = [_number(run.scores.get(name), name) for name in names]
        minutes = "before" if run.minutes is None else f"{run.minutes:.1f}"
        counts = [f"{run.counts[name]:,}" if name in run.counts else "" for name in counted]
        steps = [] if counted else ["" if run.step is None else str(run.step)]
        changes = [run.changes.get(key, "") for key in keys]
        name = run.run_dir or run.corpus or ""
        rows.append([name, *changes, *scores, *counts, *steps, "" if run.error is not None else minutes])
    lines = _columns(rows, n_left=1 + len(keys))
    lines += [f"{run.label}: {run.ended}{run.error}" for run in runs if run.error is not None]
    groups = over_seeds(runs)
    if any(group.n_runs > 1 for group in groups):
        others = [key for key in keys if key != _SEED]
        means = [["seeds", *others, *names]]
        for group in groups:
            changes = [group.changes.get(key, "") for key in others]
            means.append([str(group.n_runs), *changes, *(_spread(group, name) for name in names)])
        lines += ["", "mean ± standard deviation (n - 1) over seeds", *_columns(means, n_left=1 + len(others))]
    return "\n".join(lines)


def _score_names(runs: Sequence[SweepRun]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.scores))


def _number(value: float | None, name: str) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if name.endswith("nll") else f"{value:.2f}"


def _spread(group: SeedGroup, name: str) -> str:
    if name not in group.mean:
        return ""
    spread = f" ± {_number(group.std[name], name)}" if name in group.std else ""
    return _number(group.mean[name], name) + spread


def _columns(rows: Sequence[Sequence[str]], *, n_left: int) -> list[str]:
    """Lines of aligned columns, of which the first `n_left` begin at the left and the others end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i < n_left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
