"""Parquet files, and files of Arrow as Hugging Face's `datasets` saves them, read by pyarrow.

A column is a field, or the fields of nested ones with dots between them, as translation.en.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from transformer_cli.config.data import DataConfig
from transformer_cli.data.column_names import selected_columns
from transformer_cli.data.formats.base import Contents, Fault, FileFormat, SourceFile, Table
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import DataError, quoted
from transformer_cli.extras import imported

_ROWS_AT_A_TIME = 1000
_ARROW_FILE = b"ARROW1"  # begins a file of Arrow that is no stream
_METADATA = b"huggingface"  # names the types that `datasets` has beside those of Arrow
_REMEDY = "Correct the row, or drop such rows with data.on_bad=skip"


@dataclass(frozen=True)
class _Column:
    name: str
    path: tuple[int, ...]  # indices of the field, from the outermost
    is_text: bool
    labels: Sequence[str] = ()  # what the numbers of a class stand for


class _Columnar(FileFormat):
    """A format of columns with types: those that hold text may be source or target."""

    def names(self, file: SourceFile) -> Sequence[str]:
        with self._opened(file) as (schema, _):
            return [column.name for column in _columns_of(schema)]

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        with self._opened(file) as (schema, _):
            columns = _columns_of(schema)
        names = tuple(column.name for column in columns)
        wanted = selected_columns(names, config, file.name) or []
        for number, index in enumerate(wanted):
            is_label = config.trained.labels_lines and number == 0
            if index < len(columns) and not (columns[index].is_text or is_label):
                raise DataError(
                    f"{file.name}: the column {quoted(names[index])} holds no text. Choose others by data.columns"
                )
        return Table(names, self._rows(file, [index for index in wanted if index < len(columns)]))

    def contents(self, file: SourceFile) -> Contents:
        found = Contents()
        with self._opened(file) as (schema, batches):
            columns = _columns_of(schema)
            counts = [0] * len(columns)
            for batch in batches:
                found.n_rows += batch.num_rows
                values = [_values(batch, column) for column in columns]
                for index, column in enumerate(columns):
                    counts[index] += (
                        sum(bool(value.strip()) for value in values[index] if value) if column.is_text else 0
                    )
                for row in zip(*values, strict=True) if len(found.samples) < 1 else ():
                    found.add_sample([value or "" for value in row])
        found.columns = {column.name: n for column, n in zip(columns, counts, strict=True)}
        return found

    def _rows(self, file: SourceFile, wanted: Sequence[int]) -> Iterator[Sequence[str] | Fault]:
        n = 0
        with self._opened(file) as (schema, batches):
            columns = _columns_of(schema)
            blank = [""] * len(columns)
            for batch in batches:
                values = {index: _values(batch, columns[index]) for index in wanted}
                for number in range(batch.num_rows):
                    n += 1
                    row = list(blank)
                    missing = [index for index in wanted if values[index][number] is None]
                    if missing:
                        yield Fault(f"row {n:,}", f"{quoted(columns[missing[0]].name)} is null, not a text", _REMEDY)
                        continue
                    for index in wanted:
                        row[index] = values[index][number] or ""
                    yield row

    @contextmanager
    def _opened(self, file: SourceFile) -> Iterator[tuple[Any, Iterator[Any]]]:
        """The schema of a file and its batches of rows. Raises DataError for a damaged one."""
        arrow = imported("pyarrow", needs=f"{file.name}: {self.what}")
        if file.member is not None or file.path.name.endswith(".gz"):
            raise DataError(f"{file.name}: {self.what} cannot be read while it is packed. Unpack it first")
        try:
            with file.path.open("rb") as stream:
                yield self._read(arrow, stream)
        except (arrow.ArrowException, OSError) as error:
            if getattr(error, "errno", None):  # of the disk
                raise
            raise DataError(f"{file.name}: is damaged ({quoted(str(error))}). Fetch it again") from None

    def _read(self, arrow: Any, stream: Any) -> tuple[Any, Iterator[Any]]:
        raise NotImplementedError


class Parquet(_Columnar):
    what = "a file of Parquet"
    endings = (".parquet",)

    def recognises(self, head: bytes) -> bool:
        return head.startswith(b"PAR1")

    def _read(self, arrow: Any, stream: Any) -> tuple[Any, Iterator[Any]]:
        parquet = imported("pyarrow.parquet", needs="Parquet").ParquetFile(stream)
        return parquet.schema_arrow, parquet.iter_batches(batch_size=_ROWS_AT_A_TIME)


class Arrow(_Columnar):
    what = "a file of Arrow"
    endings = (".arrow",)

    def recognises(self, head: bytes) -> bool:
        return head.startswith(_ARROW_FILE)

    def _read(self, arrow: Any, stream: Any) -> tuple[Any, Iterator[Any]]:
        is_file = stream.read(len(_ARROW_FILE)) == _ARROW_FILE
        stream.seek(0)
        if not is_file:
            reader = arrow.ipc.open_stream(stream)
            return reader.schema, iter(reader)
        reader = arrow.ipc.open_file(stream)
        return reader.schema, map(reader.get_batch, range(reader.num_record_batches))


FORMATS.register("parquet")(Parquet())
FORMATS.register("arrow")(Arrow())


def _columns_of(schema: Any) -> list[_Column]:
    """The columns of a file, those within nested fields by themselves."""
    features = json.loads((schema.metadata or {}).get(_METADATA, b"{}")).get("info", {}).get("features", {})
    return [column for index, field in enumerate(schema) for column in _within(field, field.name, (index,), features)]


def _within(field: Any, name: str, path: tuple[int, ...], features: Any) -> Iterator[_Column]:
    types = imported("pyarrow.types", needs="Parquet")
    feature = features.get(field.name, {}) if isinstance(features, dict) else {}
    if types.is_struct(field.type):
        for index, inner in enumerate(field.type):
            yield from _within(inner, f"{name}.{inner.name}", (*path, index), feature)
        return
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    labels = feature.get("names", ()) if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else ()
    yield _Column(name, path, types.is_string(kind) or types.is_large_string(kind), labels)


def _values(batch: Any, column: _Column) -> list[str | None]:
    """The values of a column as text; None for null."""
    array = batch.column(column.path[0])
    if len(column.path) > 1:
        array = imported("pyarrow.compute", needs="Parquet").struct_field(array, list(column.path[1:]))
    values = array.to_pylist()
    if column.is_text:
        found: list[str | None] = values
        return found
    if column.labels:
        return [None if value is None else column.labels[value] for value in values]
    return [None if value is None else str(value) for value in values]
