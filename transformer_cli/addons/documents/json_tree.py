"""JSON as a tree of its values, with their places in the text."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from transformer_cli.addons.documents.units import UnreadableError

# Of JSON that is known to be right.
_TOKEN = re.compile(r"(?P<string>\"(?:[^\"\\]++|\\.)*+\")(?P<colon>\s*+:)?+|(?P<mark>[\[\]{}])|[^\s,:\[\]{}\"]++")


@dataclass(slots=True)
class JsonValue:
    """A value: a string with its quotes, a number or the like, a list or an object."""

    start: int
    end: int = 0
    key_start: int = -1  # where its key is in an object, with the quotes
    members: "dict[str, JsonValue]" = field(default_factory=dict)  # of an object; of a key that occurs twice, the last
    items: "list[JsonValue]" = field(default_factory=list)  # of a list

    def get(self, *path: str) -> "JsonValue | None":
        """The value to which keys lead."""
        found: JsonValue | None = self
        for key in path:
            found = None if found is None else found.members.get(key)
        return found


def load_json(text: str) -> Any:
    """The content of a document. Raises UnreadableError for what is no JSON."""
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise UnreadableError(error.lineno, f"is no JSON: {error.msg} at column {error.colno}. Correct it") from error
    except RecursionError as error:
        raise UnreadableError(1, "has lists or objects too deep within each other. Is it the right file?") from error
    except ValueError as error:  # a number with thousands of digits
        raise UnreadableError(1, "has a number of too many digits. Is it the right file?") from error


def json_values(text: str) -> JsonValue:
    """The root of a text that is JSON, as `load_json` has found."""
    root = JsonValue(0)
    opened, key, key_start = [root], "", -1
    for match in _tokens(text):
        if match["colon"] is not None:
            key, key_start = json.loads(match["string"]), match.start()
            continue
        if match["mark"] and match["mark"] in "]}":
            opened.pop().end = match.end()
            continue
        value = JsonValue(match.start(), match.end(), key_start)
        if key_start >= 0:
            opened[-1].members.pop(key, None)
            opened[-1].members[key] = value
        else:
            opened[-1].items.append(value)
        key_start = -1
        if match["mark"]:
            opened.append(value)
    return root.items[0]


def _tokens(text: str) -> Iterator[re.Match[str]]:
    return _TOKEN.finditer(text, text.startswith("\ufeff"))
