"""What a request says: a JSON object, or the fields of a form and of the address, as HTML forms send them."""

import codecs
import json
import logging
import reprlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, create_form_parser
from starlette.requests import Request

from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.errors import quoted

MOST_FIELDS = 10_000


@dataclass(frozen=True)
class Upload:
    """A file of a form."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Fields:
    """Values by name: of JSON any, of a form a string, or a list of those that have the same name."""

    values: dict[str, Any] = field(default_factory=dict)
    uploads: dict[str, Upload] = field(default_factory=dict)
    is_form: bool = False

    def add(self, name: str, value: str) -> None:
        if name not in self.values:
            self.values[name] = value
        elif isinstance(self.values[name], list):
            self.values[name].append(value)
        else:
            self.values[name] = [self.values[name], value]


def form_fields(request: Request, body: bytes) -> Fields:
    """Raises RequestError 400 for what cannot be read. What is in the body counts, not what the address says as well.

    JSON is known by its first character, as programs often name another type. Some name it for a GET without a body.
    """
    kind = request.headers.get("content-type", "")
    if kind.lower().startswith("multipart/form-data"):
        fields = parse_multipart(body, kind)
    elif (body and "json" in kind.lower()) or body.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"{", b"["):
        value = parse_json(body)
        if not isinstance(value, dict):
            raise RequestError(400, 'the body is no JSON object. Send one, as {"name": "value"}')
        fields = Fields(value)
    else:
        fields = parse_form(body)
    for name, value in parse_form(request.url.query.encode()).values.items():
        fields.values.setdefault(name, value)
    return fields


# ---- JSON


def parse_json(body: bytes) -> Any:
    """Raises RequestError 400 for what is no JSON in UTF-8, numbers that JSON does not have, and a key twice."""
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the body is not UTF-8, at byte {error.start + 1}. Send UTF-8") from None
    except RecursionError:
        raise RequestError(400, "the body's JSON is nested too deep. Send less") from None
    except ValueError as error:
        raise RequestError(400, f"the body is no JSON ({error}). Send an object") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {quoted(twice, 40)} occurs twice")
    return values


# ---- Forms


def parse_form(body: bytes) -> Fields:
    """`application/x-www-form-urlencoded`."""
    fields = Fields(is_form=True)
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except UnicodeDecodeError:
        raise RequestError(400, "the form is not UTF-8. Send UTF-8") from None
    except ValueError:
        raise RequestError(400, f"the form has more than {MOST_FIELDS:,} fields. Send fewer") from None
    for name, value in pairs:
        fields.add(name, value)
    return fields


def parse_multipart(body: bytes, kind: str) -> Fields:
    """`multipart/form-data`; `kind` is its Content-Type, with the boundary."""
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # what is wrong is said to the client
    found: list[Field | File] = []

    def add(part: Field | File) -> None:
        if len(found) == MOST_FIELDS:
            raise RequestError(400, f"the form has more than {MOST_FIELDS:,} fields. Send fewer")
        found.append(part)

    try:
        parser = create_form_parser(
            {"Content-Type": kind.encode("latin-1")},
            add,
            add,
            {"MAX_MEMORY_FILE_SIZE": len(body) + 1, "UPLOAD_ERROR_ON_BAD_CTE": True},  # nothing goes to a disk
        )
        parser.write(body)
        parser.finalize()
        fields = Fields(is_form=True)
        for part in found:
            name = (part.field_name or b"").decode()
            if isinstance(part, Field):
                fields.add(name, (part.value or b"").decode())
            else:
                part.file_object.seek(0)
                fields.uploads[name] = Upload((part.file_name or b"").decode(), part.file_object.read())
    except UnicodeDecodeError:
        raise RequestError(400, "the form is not UTF-8. Send UTF-8") from None
    except FormParserError as error:
        raise RequestError(400, f"the form cannot be read ({error})") from None
    return fields


# ---- Values


def given(value: Any) -> Any:
    """A value; None for null and for the empty string that a form has in its place."""
    return None if value is None or value == "" else value


def string_of(value: Any, name: str) -> str:
    """A string that UTF-8 can hold. Raises RequestError 400 otherwise."""
    if not isinstance(value, str):
        raise RequestError(400, f"{name}: {reprlib.repr(value)} is no text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            400, f"{name}: \\u{ord(value[error.start]):04x} is half of a character. Send the whole, or leave it out"
        ) from None
    return value


def strings_of(value: Any, name: str) -> tuple[list[str], bool]:
    """A text or a list of texts, and whether it is a list. Raises RequestError 400 otherwise."""
    if value is None:
        raise RequestError(400, f"{name}: is missing. Give a text, or a list of texts")
    if isinstance(value, list):
        return [string_of(one, f"{name}[{n}]") for n, one in enumerate(value)], True
    return [string_of(value, name)], False


def language_code(value: Any, name: str) -> str | None:
    """A language code; None where none is given."""
    return string_of(value, name) if value not in (None, "", "auto") else None


def switch_of(value: Any, name: str) -> bool:
    """true and false, or as forms have them; None is false."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if str(value).lower() in ("0", "1", "true", "false"):
        return str(value).lower() in ("1", "true")
    raise RequestError(400, f"{name}: {reprlib.repr(value)} is neither true nor false")


def number_of(value: Any, name: str, *, low: int = 0) -> int:
    """A whole number, which forms and some programs write as a string. Raises RequestError 400 otherwise."""
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value.strip()[:20])
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise RequestError(400, f"{name}: {reprlib.repr(value)} is no whole number from {low} up")
    return value
