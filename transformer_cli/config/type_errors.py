"""What OmegaConf says of a value of the wrong type, in one line that names the value and what is right."""

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

from transformer_cli.config.keys import leaves


def wrong_type(key: str, message: str, schema: type) -> str | None:
    """The line for a `message` about `key`; None for one that is about something else."""
    for pattern, say in _MESSAGES.items():
        if (found := re.fullmatch(pattern, message, re.DOTALL)) is not None:
            return say(key, found["value"] if "value" in found.re.groupindex else "", schema)
    return None


def _number(key: str, value: str, schema: type) -> str:
    return f"{key}={value}: no number. Give one"


def _whole_number(key: str, value: str, schema: type) -> str:
    return f"{key}={value}: no whole number. Give one"


def _truth_value(key: str, value: str, schema: type) -> str:
    return f"{key}={value}: unknown. Choose true or false"


def _choice(key: str, value: str, schema: type) -> str:
    kinds = {name: hint for name, hint, _ in leaves(schema)}
    kind = kinds.get(re.sub(r"\[\d+\]$", "", key))
    choices = list(kind.__members__) if isinstance(kind, type) and issubclass(kind, Enum) else []
    return f"{key}={value}: unknown. Choose {', '.join(choices)}"  # no nearest one: gpu is none to cpu


def _text(key: str, value: str, schema: type) -> str:
    return f"{key}={value}: must be one text, without brackets or braces around it"


def _table(key: str, value: str, schema: type) -> str:
    return f"{key}: must be a table of keys, as {key}.NAME=VALUE"


def _some_value(key: str, value: str, schema: type) -> str:
    return f"{key}=null: has a value always. Give one, or leave it out for its default"


def _element(key: str, value: str, schema: type) -> str:
    return f"{key}=null: must have a value. Give one, or leave it out of the list"


_MESSAGES: dict[str, Callable[[str, str, Any], str]] = {
    r"Value '?(?P<value>.*?)'? of type '\w+' could not be converted to Integer": _whole_number,
    r"Value '?(?P<value>.*?)'? of type '\w+' could not be converted to Float": _number,
    r"Value '?(?P<value>.*?)'? is not a valid bool \(type \w+\)": _truth_value,
    r"Value (?P<value>.*) \(\w+\) is not a valid input for <enum '\w+'>": _choice,
    r"Invalid value '(?P<value>.*)', expected one of \[.*\]": _choice,
    r"Cannot convert '\w+' to string: '(?P<value>.*)'": _text,
    r"Cannot assign \w+ to Dict\[.*\]": _table,
    r"field '.*' is not Optional": _some_value,
    r"Invalid type assigned: NoneType is not a subclass of \w+\. value: None": _element,
}
