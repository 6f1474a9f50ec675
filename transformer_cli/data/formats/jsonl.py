"""JSON lines: an object a line, `{"en": "…", "fr": "…"}` or `{"translation": {"en": "…", "fr": "…"}}`.

A column is a key, or the keys of nested objects with dots between them, as translation.en. An array of objects is read
in the same way.
"""

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from transformer_cli.config.data import DataConfig, OnBad
from transformer_cli.data.column_names import selected_columns
from transformer_cli.data.compression import ByteSource
from transformer_cli.data.formats.base import Contents, Fault, FileFormat, SourceFile, Table
from transformer_cli.data.lines import MAX_LINE_BYTES, NO_SURROGATES, READ_BYTES, SKIP_HINT, each_line, is_encodable
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import DataError, quoted

_FIRST_RECORDS = 1000  # whose keys are the columns of a file
_REMEDY = "Correct the line, or drop such lines with data.on_bad=skip"
_HEAD_BYTES = 64
_OPENING, _BETWEEN = re.compile(r"\s*\[\s*"), re.compile(r"[\s,]*")

_Record = dict[str, Any]  # flat: a value by the name of its column


class JsonObjects(FileFormat):
    what = "a file of JSON lines (JSONL)"
    endings = (".jsonl", ".ndjson", ".json")

    def recognises(self, head: bytes) -> bool:
        text = head.decode("utf-8-sig", errors="replace").lstrip()
        text = text[1:].lstrip() if text.startswith("[") else text.partition("\n")[0]
        try:
            return text.startswith("{") and isinstance(json.JSONDecoder().raw_decode(text)[0], dict)
        except (ValueError, RecursionError):
            return False

    def names(self, file: SourceFile) -> Sequence[str]:
        records = (one[1] for one in _records(file, skip_bad=True) if not isinstance(one, Fault))
        names = dict.fromkeys(name for record in islice(records, _FIRST_RECORDS) for name in record)
        if not names:
            raise DataError(f'{file.name}: has no JSON objects. Write one a line, as {{"en": "…", "fr": "…"}}')
        return list(names)

    def table(self, file: SourceFile, config: DataConfig) -> Table:
        names = tuple(self.names(file))
        columns = selected_columns(names, config, file.name) or []
        wanted = [names[column] for column in columns if column < len(names)]  # others are refused with what it has
        label = wanted[0] if wanted and config.trained.labels_lines else None
        return Table(names, self._rows(file, names, wanted, label, config))

    def _rows(
        self, file: SourceFile, names: Sequence[str], wanted: Sequence[str], label: str | None, config: DataConfig
    ) -> Iterator[Sequence[str] | Fault]:
        for one in _records(file, skip_bad=config.on_bad is OnBad.skip):
            if isinstance(one, Fault):
                yield one
                continue
            place, record = one
            if what := _fault_of(record, wanted, label):
                yield Fault(place, what, _REMEDY)
            else:
                yield [_text(record.get(name), is_label=name == label) for name in names]

    def contents(self, file: SourceFile) -> Contents:
        found, names = Contents(), self.names(file)
        counts: Counter[str] = Counter()
        for one in _records(file, skip_bad=True):
            if isinstance(one, Fault):
                found.add_fault(one)
                continue
            found.n_rows += 1
            counts.update(name for name, value in one[1].items() if isinstance(value, str) and value.strip())
            found.add_sample([_text(one[1].get(name), is_label=True) for name in names])
        found.columns = {name: counts[name] for name in names}
        return found


FORMATS.register("jsonl")(JsonObjects())


def _records(file: SourceFile, *, skip_bad: bool) -> Iterator[tuple[str, _Record] | Fault]:
    """Each object of a file, flat and with its place, or what is wrong with the line."""
    with file.open() as stream:
        is_array = stream.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    with file.open() as stream:
        if is_array:
            yield from _array(stream, file.name)
            return
        for number, (line, fault) in enumerate(each_line(stream, file.name, skip_bad=skip_bad, skip_hint=SKIP_HINT), 1):
            if fault is not None:
                yield Fault(f"line {number:,}", fault.rpartition(": ")[2], "Convert the file to UTF-8")
            elif line.strip():
                yield _record(line, f"line {number:,}")


def _record(line: str, place: str) -> tuple[str, _Record] | Fault:
    try:
        return _flat_record(json.loads(line), place)
    except json.JSONDecodeError as error:
        what = f"not JSON ({error.msg} at character {error.colno}): {quoted(line)}"
        is_spread = line.strip() in ("{", "}")
        return Fault(place, what, "Write each object on one line, as `jq -c . FILE` does" if is_spread else _REMEDY)
    except (RecursionError, ValueError):  # too deep, or a number of too many digits
        return Fault(place, f"no object of texts: {quoted(line)}", _REMEDY)


def _array(stream: ByteSource, name: str) -> Iterator[tuple[str, _Record] | Fault]:
    """The objects of an array, decoded as their bytes arrive. Raises DataError where it is not JSON."""
    decode, decode_bytes = json.JSONDecoder().raw_decode, codecs.getincrementaldecoder("utf-8-sig")().decode
    text, start, number, skipped = "", 0, 0, _OPENING

    def refusal(what: str) -> DataError:
        return DataError(
            f"{name}: record {number + 1:,}: {what}. Write each object on a line, as `jq -c .[] FILE` does"
        )

    while True:
        if found := skipped.match(text, start):
            start, skipped = found.end(), _BETWEEN
        if text.startswith("]", start):
            return
        try:
            value, start = decode(text, start)
        except (ValueError, RecursionError):
            try:
                more = stream.read(READ_BYTES)
                text, start = text[start:] + decode_bytes(more, final=not more), 0
            except UnicodeDecodeError as error:
                raise refusal(f"byte 0x{error.object[error.start]:02x} is not UTF-8") from None
            if not more or len(text) > READ_BYTES + MAX_LINE_BYTES:
                raise refusal("not JSON, or the array does not end") from None
            continue
        number += 1
        yield _flat_record(value, f"record {number:,}")


def _flat_record(value: object, place: str) -> tuple[str, _Record] | Fault:
    if not isinstance(value, dict):
        return Fault(place, f"no JSON object, but {quoted(json.dumps(value))}", _REMEDY)
    record: _Record = {}
    _flatten(value, "", record)
    return place, record


def _flatten(value: dict[str, Any], prefix: str, record: _Record) -> None:
    for key, one in value.items():
        if isinstance(one, dict):
            _flatten(one, f"{prefix}{key}.", record)
        else:
            record[f"{prefix}{key}"] = one


def _fault_of(record: _Record, wanted: Sequence[str], label: str | None) -> str | None:
    """Why a record gives no pair."""
    for name in wanted:
        if name not in record:
            return f"has no {quoted(name)}, but {', '.join(map(quoted, record))}"
        value = record[name]
        if not isinstance(value, str) and (name != label or value is None or isinstance(value, list)):
            return f"{quoted(name)} is {quoted(json.dumps(value))}, not a text"
        if isinstance(value, str) and not is_encodable(value):
            return f"{quoted(name)} {NO_SURROGATES}"
    return None


def _text(value: object, *, is_label: bool) -> str:
    """A value as text; empty for what is no text, unless it is a label, which may be a number."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if is_label and value is not None else ""
