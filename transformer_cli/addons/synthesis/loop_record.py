"""What `tfm augment loop` has made: a file in its folder that says from what, and a row for each model."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformer_cli.addons.synthesis.work import as_read, different
from transformer_cli.data.hashes import file_sha256
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.files import remove_leftovers, write_whole
from transformer_cli.tables import Column, ResultTable, aligned_lines, cell

LOOP_FILE = "loop.json"
_FORMAT = 1
TABLE_METRICS = {"BLEU": "BLEU", "chrF2": "chrF"}  # as they are called in the record, and in the table


@dataclass(frozen=True)
class LoopRow:
    """A model of a round, with the pairs that were made for it."""

    round: int
    direction: str
    model: str
    dev: Mapping[str, float | None]  # None: not a number
    test: Mapping[str, float | None]
    minutes: float | None = None  # None: no training, as of a model that was given
    pairs: int | None = None  # None: of real text alone
    dropped: int | None = None

    @property
    def bleu(self) -> float:
        """The dev BLEU; -inf where it is not a number."""
        score = self.dev.get("BLEU")
        return -math.inf if score is None else score


@dataclass
class LoopRecord:
    """The settings of a loop, the hashes of the files that it goes on from, and its rows."""

    folder: Path
    settings: Mapping[str, Any]
    files: dict[str, str] = field(default_factory=dict)
    rows: list[LoopRow] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path, settings: Mapping[str, Any]) -> "LoopRecord":
        """The record in a folder, or a new one. Raises ConfigError for one with other settings, or edited files."""
        if not cls.has_begun(folder):  # nothing is made yet, of whatever settings
            record = cls(folder, as_read(settings))
            record.save()
            return record
        record = cls._read(folder)
        if unlike := different(record.settings, as_read(settings)):
            more = f" and {len(unlike) - 1} more" if len(unlike) > 1 else ""
            raise ConfigError(
                f"--output {folder}: holds a loop that was begun with another value of: {unlike[0]}{more}. Repeat its"
                " command, or choose another --output"
            )
        record.check_files()
        return record

    @staticmethod
    def refuse_other_files(folder: Path) -> None:
        """Raise ConfigError for a folder that holds files, none of which is a record."""
        path = folder / LOOP_FILE
        remove_leftovers(path)
        if folder.is_dir() and not path.exists() and any(one.name != "lock" for one in folder.iterdir()):
            raise ConfigError(f"--output {folder}: holds other files, and no loop. Choose another --output")

    @classmethod
    def has_begun(cls, folder: Path) -> bool:
        """Whether a loop has written its text there. Raises DataError for another file of that name."""
        return (folder / LOOP_FILE).exists() and bool(cls._read(folder).files)

    @classmethod
    def _read(cls, folder: Path) -> "LoopRecord":
        path = folder / LOOP_FILE
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != _FORMAT:
                raise ValueError(content["format"])
            rows = [LoopRow(**row) for row in content["rows"]]
            return cls(folder, dict(content["settings"]), dict(content["files"]), rows)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not what `tfm augment loop` writes. Choose another --output") from error

    def check_files(self) -> None:
        """Raise ConfigError if a file that the loop goes on from has gone or was edited."""
        for name, sha256 in self.files.items():
            file = Path(name)
            if not file.is_file() or file_sha256(file) != sha256:
                what = "was changed since" if file.exists() else "has gone"
                raise ConfigError(f"{file}: was made by this loop, and {what}. Restore it, or choose another --output")

    def add(self, row: LoopRow | None, files: Sequence[Path]) -> None:
        """Keep a row, and the hashes of files that later steps are made from."""
        self.files |= {str(file): file_sha256(file) for file in files}
        self.rows += [row] if row is not None else []
        self.save()

    def save(self) -> None:
        content = {
            "format": _FORMAT,
            "rows": [asdict(row) for row in self.rows],
            "files": self.files,
            "settings": self.settings,
        }
        write_whole(self.folder / LOOP_FILE, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())

    def row(self, round_number: int, direction: object) -> LoopRow | None:
        """The model of a round and a direction, if it is there."""
        return next((one for one in self.rows if (one.round, one.direction) == (round_number, str(direction))), None)

    def best(self, direction: object) -> LoopRow | None:
        """The model with the best dev BLEU; the first of equal ones."""
        rows = [one for one in self.rows if one.direction == str(direction)]
        return max(rows, key=lambda one: one.bleu, default=None)

    def gained(self, round_number: int) -> bool:
        """Whether a direction has a higher dev BLEU than in every round before."""
        for row in self.rows:
            before = [one.bleu for one in self.rows if one.direction == row.direction and one.round < round_number]
            if row.round == round_number and row.bleu > max(before, default=-math.inf):
                return True
        return False

    def lines(self, *, with_test: bool) -> list[str]:
        """The table for a terminal; test scores belong to its end, when nothing is chosen any more."""
        splits = ("dev", "test") if with_test else ("dev",)
        columns = [Column("round"), Column("direction", is_text=True), Column("pairs"), Column("dropped")]
        columns += [Column(f"{split} {metric}") for split in splits for metric in TABLE_METRICS.values()]
        rows = []
        for row in self.rows:
            counts = [cell(n, "" if n is None else f"{n:,}") for n in (row.pairs, row.dropped)]
            scores = [getattr(row, split).get(name) for split in splits for name in TABLE_METRICS]
            shown = [cell(score, "-" if score is None else f"{score:.2f}") for score in scores]
            minutes = cell(row.minutes, "given" if row.minutes is None else f"{row.minutes:.1f}")
            rows.append([cell(row.round), cell(row.direction), *counts, *shown, minutes])
        return aligned_lines(ResultTable([*columns, Column("minutes")], rows))
