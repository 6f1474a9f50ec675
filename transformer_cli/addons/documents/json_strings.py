"""JSON of texts by their keys: of i18next and the like, ARB of Flutter, and messages of Chrome's extensions."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from transformer_cli.addons.documents.json_tree import load_json
from transformer_cli.addons.documents.key_values import utf_16, with_escapes
from transformer_cli.addons.documents.messages import DocumentWriter, Value, parse_message
from transformer_cli.addons.documents.units import Document, UnreadableError

# Of JSON that is known to be right.
_TOKEN = re.compile(r"\"(?P<string>(?:[^\"\\]++|\\.)*+)\"(?P<colon>\s*+:)?+|(?P<mark>[\[\]{}])")
JSON_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[0-9a-fA-F]{4})|(.))")
_MEANING = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}
_CONTROL = re.compile(r"[\x00-\x1f]")
_KINDS = frozenset({"java", "i18next", "quoted"})
_OF_CHROME = frozenset({"chrome"})


def parse_json_texts(text: str) -> Document:
    """Raises UnreadableError for what is no JSON, or a string catalogue of Xcode."""
    content = load_json(text)
    if isinstance(content, dict) and {"sourceLanguage", "strings", "version"} <= content.keys():
        raise UnreadableError(
            1,
            "is a string catalogue of Xcode, which holds texts beside their translations. Use --format xcstrings",
        )
    is_chrome = _is_chrome(content)
    # What Angular has beside its texts.
    skipped = {"locale"} if isinstance(content, dict) and "translations" in content else set()
    escape = json_escape(text)
    writer = DocumentWriter(text)
    for start, end, path in _values(text):
        if any(key.startswith(("@", "$schema")) for key in path) or (len(path) == 1 and path[0] in skipped):
            continue
        if is_chrome and path[1:] != ["message"]:
            continue
        value = Value.of(text[start:end], JSON_ESCAPE, json_meaning)
        if is_chrome:
            document = parse_message(value, _OF_CHROME, escape)
        else:
            of_text = partial(_unquoting, escape=escape) if "{" in value.text else escape
            document = parse_message(value, _KINDS, of_text, escape_kept=escape, has_choices=True)
        writer.put(start, end, writer.adopt(document))
    return writer.document()


def _is_chrome(content: Any) -> bool:
    """Whether each key has an object with a message, which other keys explain."""
    return (
        isinstance(content, dict)
        and bool(content)
        and all(isinstance(one, dict) and isinstance(one.get("message"), str) for one in content.values())
    )


def _values(text: str) -> Iterator[tuple[int, int, list[str]]]:
    """The place of each string that is no key, without its quotes, and the keys that lead to it. Lists have none."""
    path: list[str] = []
    opened: list[int] = []  # of each list or object that is open: the length of the path to it
    for match in _TOKEN.finditer(text):
        if match["mark"]:
            if match["mark"] in "[{":
                opened.append(len(path))
            else:
                del path[opened.pop() :]
        elif match["colon"] is not None:
            del path[opened[-1] :]
            path.append(match["string"])
        else:
            yield *match.span("string"), path


def json_meaning(match: re.Match[str]) -> str:
    return _MEANING.get(match[2], match[2]) if match[1] is None else utf_16(match[1])


def _unquoting(text: str, *, escape: Callable[[str], str]) -> str:
    """The text of an ICU message, in which an apostrophe before a brace would quote it: l'{item}."""
    return escape(re.sub(r"'(?=[{}]|\Z)", "’", text))


def json_escape(text: str) -> Callable[[str], str]:
    """How a text is written in this JSON: in ASCII, if it has no other characters, and some of them escaped."""
    return partial(_escaped, is_ascii=text.isascii() and re.search(r"\\u(?!00[01])", text) is not None)


def _escaped(text: str, *, is_ascii: bool) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    text = _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return with_escapes(text) if is_ascii else text
