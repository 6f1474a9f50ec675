"""The table of the robustness suite in a model card: read from where the suite wrote it, as rows of text.

What is read is a plain dictionary: the report of `addons.robustness` with its test set and search.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformer_cli.errors import CheckpointError
from transformer_cli.logs import LOGGER
from transformer_cli.models.header import MALFORMED, is_whole, read_json
from transformer_cli.models.locate import ROBUSTNESS_FILE

HEAD = ["source lines", "lines", "chrF/plain", "chrF/reference", "length", "loops", "copies", "empty", "lost"]


def robustness_beside(model: Path, model_sha256: str) -> dict[str, Any] | None:
    """What robustness.json in the folder of a model file says of just this model; None without it.

    A warning says so where there is one that cannot be read, or that is of another model.
    """
    file = model.parent / ROBUSTNESS_FILE
    if not file.is_file():
        return None
    try:
        found = dict(read_json(file.read_bytes(), file))
        if list(found["model_sha256"]) != [model_sha256]:
            LOGGER.warning("%s: is of another model than %s, so its table is left out", file, model)
            return None
        return checked_report(found)
    except (OSError, CheckpointError, *MALFORMED):
        LOGGER.warning("%s: cannot be read, or was not written by tfm, so its table is left out", file)
        return None


def checked_report(found: Mapping[str, Any]) -> dict[str, Any]:
    """`found`, of which a table can be made; raises one of MALFORMED for anything else."""
    introduction(found)
    table_rows(found)
    return dict(found)


def introduction(found: Mapping[str, Any]) -> str:
    suite, seed, n_lines, n_test_lines = (_count(found[key]) for key in ("suite", "seed", "lines", "test_lines"))
    of_all = f" of {n_test_lines:,}" if n_lines < n_test_lines else ""
    return (
        f"The source lines of {found['test_set']}, perturbed (robustness suite {suite}, seed {seed}, {n_lines:,} lines"
        f"{of_all}; {found.get('search') or 'search:unknown'}). chrF is that of the translations against those of the"
        f" plain lines, and against the references ({found['chrf']}); length is against the plain ones. Loops, copies"
        " of the source, empty translations, and those without what was put in are percentages of the lines."
    )


def table_rows(found: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            str(row["name"]),
            f"{_count(row['lines']):,}",
            _number(row["chrf_plain"], ".1f"),
            _number(row["chrf_reference"], ".1f"),
            _number(row["length"], ".2f"),
            *(_share(row[key], row["lines"]) for key in ("loops", "copies", "empty", "lost")),
        ]
        for row in found["rows"]
    ]


def _count(value: object) -> int:
    if not isinstance(value, int) or not is_whole(value):
        raise ValueError(f"{value} is no count")
    return value


def _number(value: object, form: str) -> str:
    return "" if value is None else format(float(str(value)), form)


def _share(count: object, n_lines: int) -> str:
    return "" if count is None or not n_lines else f"{100 * _count(count) / n_lines:.1f}"
