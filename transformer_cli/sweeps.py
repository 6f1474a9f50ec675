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
from transformer_cli.config.recipes import FOLD
from transformer_cli.tables import Cell, Column, ResultTable, aligned_lines, cell

MAX_NAME_BYTES = 180  # file systems allow 255, and temporary names need room
RECORD_FILE, RESULTS_FILE = "run.json", "results.json"
_REPEATS = {"seed": "seeds", FOLD: "folds"}  # keys whose values repeat a run, over which there is a mean


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
    """Every run, and the means over what was swept of seeds and folds: `over_seeds`, `over_folds` or both names."""
    over = "_and_".join(_swept(runs)) or _REPEATS["seed"]
    return json.dumps(
        {"runs": [asdict(run) for run in runs], f"over_{over}": [asdict(group) for group in over_repeats(runs)]},
        indent=1,
        ensure_ascii=False,
        allow_nan=False,
    )


@dataclass(frozen=True)
class RepeatGroup:
    """Finished runs that differ in nothing but their seed and their fold."""

    changes: dict[str, str]
    n_runs: int
    mean: dict[str, float]
    std: dict[str, float]  # the sample standard deviation, n - 1; empty for one run


def over_repeats(runs: Sequence[SweepRun]) -> list[RepeatGroup]:
    groups: dict[tuple[tuple[str, str], ...], list[SweepRun]] = {}
    for run in runs:
        if not _REPEATS.keys().isdisjoint(run.changes) and run.error is None:
            others = tuple((key, value) for key, value in run.changes.items() if key not in _REPEATS)
            groups.setdefault(others, []).append(run)
    found = []
    for others, members in groups.items():
        columns = {name: [run.scores.get(name) for run in members] for name in _score_names(members)}
        known = {name: [x for x in values if x is not None] for name, values in columns.items() if None not in values}
        mean = {name: statistics.fmean(values) for name, values in known.items()}
        std = {name: statistics.stdev(values) for name, values in known.items()} if len(members) > 1 else {}
        found.append(RepeatGroup(dict(others), len(members), mean, std))
    return found


def sweep_tables(runs: Sequence[SweepRun]) -> list[ResultTable]:
    """The runs; and mean ± standard deviation over seeds and folds where they were swept."""
    groups = over_repeats(runs)
    has_means = bool(_score_names(runs)) and any(group.n_runs > 1 for group in groups)
    return [_run_table(runs), *([_mean_table(runs, groups)] if has_means else [])]


def sweep_faults(runs: Sequence[SweepRun]) -> list[str]:
    """A line for each run that failed."""
    return [f"{run.label}: {run.ended}{run.error}" for run in runs if run.error is not None]


def sweep_text(runs: Sequence[SweepRun]) -> str:
    """The tables for a terminal."""
    first, *means = sweep_tables(runs)
    lines = [*aligned_lines(first), *sweep_faults(runs)]
    for table in means:
        lines += ["", spread_title(runs), *aligned_lines(table)]
    return "\n".join(lines)


def spread_title(runs: Sequence[SweepRun]) -> str:
    """The title of the table of means."""
    return f"mean ± standard deviation (n - 1) over {' and '.join(_swept(runs))}"


def _swept(runs: Sequence[SweepRun]) -> list[str]:
    """What was swept of seeds and folds."""
    return [name for key, name in _REPEATS.items() if any(key in run.changes for run in runs)]


def _run_table(runs: Sequence[SweepRun]) -> ResultTable:
    keys, names = _keys(runs), _score_names(runs)
    counted = list(dict.fromkeys(name for run in runs for name in run.counts))
    columns = [Column("corpus" if counted else "run", is_text=True), *(Column(key, is_text=True) for key in keys)]
    columns += [Column(name) for name in (*names, *(counted or ["steps"]), "minutes")]
    columns += [Column("error", is_shown=False)] if any(run.error is not None for run in runs) else []
    rows = []
    for run in runs:
        row = [cell(run.run_dir or run.corpus), *(cell(run.changes.get(key)) for key in keys)]
        row += [cell(run.scores.get(name), _number(run.scores.get(name), name)) for name in names]
        row += [cell(n, "" if n is None else f"{n:,}") for n in map(run.counts.get, counted)]
        row += [] if counted else [cell(run.step)]
        minutes = "before" if run.minutes is None else f"{run.minutes:.1f}"
        row += [cell(run.minutes, "" if run.error is not None else minutes), cell(run.error)]
        rows.append(row[: len(columns)])
    return ResultTable(columns, rows)


def _mean_table(runs: Sequence[SweepRun], groups: Sequence[RepeatGroup]) -> ResultTable:
    others, names, swept = [key for key in _keys(runs) if key not in _REPEATS], _score_names(runs), _swept(runs)
    columns = [Column(name, is_text=True) for name in (swept[0] if len(swept) == 1 else "runs", *others)]
    columns += [Column(name, keys=(f"{name} mean", f"{name} std")) for name in names]
    rows = []
    for group in groups:
        row = [cell(group.n_runs), *(cell(group.changes.get(key)) for key in others)]
        row += [Cell(_spread(group, name), (group.mean.get(name), group.std.get(name))) for name in names]
        rows.append(row)
    return ResultTable(columns, rows)


def _keys(runs: Sequence[SweepRun]) -> list[str]:
    return list(dict.fromkeys(key for run in runs for key in run.changes))


def _score_names(runs: Sequence[SweepRun]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.scores))


def _number(value: float | None, name: str) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if name.endswith("nll") else f"{value:.2f}"


def _spread(group: RepeatGroup, name: str) -> str:
    if name not in group.mean:
        return ""
    spread = f" ± {_number(group.std[name], name)}" if name in group.std else ""
    return _number(group.mean[name], name) + spread
