"""Keys that are called as a keyword of Python, for which the schema has a field of another name."""

from collections.abc import Mapping
from typing import Any

KEYWORDS = {"init.from": "init.from_"}  # key → field


def override_of_field(text: str) -> str:
    """A `key=value` with the name of the key's field."""
    given, equals, value = text.partition("=")
    key = given.lstrip("+~")
    return f"{given.removesuffix(key)}{KEYWORDS.get(key, key)}{equals}{value}"


def config_of_fields(plain: Mapping[str, Any], *, package: str = "") -> dict[str, Any]:
    """A nested config with the names of the fields; `package` is the key of the group that it is the content of."""
    found = {}
    for name, value in plain.items():
        key = f"{package}.{name}".removeprefix(".")
        below = isinstance(value, Mapping) and any(one.startswith(f"{key}.") for one in KEYWORDS)
        field = KEYWORDS[key].rpartition(".")[2] if key in KEYWORDS else name
        found[field] = config_of_fields(value, package=key) if below else value
    return found
