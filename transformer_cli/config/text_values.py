"""Values of keys that take text, as they are written: YAML and Hydra read `no`, `12:30` and `1_000` as something else.

What is written stays text wherever a key takes text: in a user's YAML files, the saved config of a run, and overrides.
A group takes the name of a file, which is text, too.
"""

import re
import typing
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from transformer_cli.command import COMMANDS, schema_of
from transformer_cli.config.fields import KeyInfo, written_name
from transformer_cli.config.keys import leaves
from transformer_cli.config.keywords import override_of_field
from transformer_cli.config.overrides import parse_override, quoted_for_hydra
from transformer_cli.config.yaml_files import groups_of, read_yaml
from transformer_cli.errors import ConfigError

# What Hydra takes for a number or a truth value, and the ~ that it refuses without quotes.
_NO_TEXT = re.compile(r"[+-]?[\d_]*\.?[\d_]*(e[+-]?[\d_]+)?|[+-]?(inf|nan)|true|false|~.*", re.IGNORECASE | re.ASCII)
_PARTS = re.compile(r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | [\[\](),] | [^'"\[\](),]+""", re.VERBOSE)
# What Hydra's grammar has without quotes; a backslash is its own escape.
_UNQUOTED = re.compile(r"[\w/+.$%*@?|:\\\s-]*", re.ASCII)
_WITHIN_BRACES = re.compile(r"[{}]")  # of a mapping, whose values are of no known type, or of an interpolation


@cache
def _text_keys(command: str | None) -> frozenset[str]:
    """The keys of a command that take text; without one, those that take text in every command that has them."""
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    for schema in [one.schema for _, one in COMMANDS.items()] if command is None else [schema_of(command)]:
        for key, hint, info in leaves(schema):
            kinds[takes_text(hint, info)].add(key)
    return frozenset(kinds[True] - kinds[False])


def takes_text(hint: Any, info: KeyInfo) -> bool:
    """Whether a key of this type takes a text, or a list of texts."""
    if hint is Any:
        return not (info.auto or info.choices)
    return hint is str or str in typing.get_args(hint)


def override_as_written(text: str, command: str) -> str:
    """A `key=value` with the name of its field, and in quotes what Hydra would not read as text."""
    text = override_of_field(text)
    given, equals, value = text.partition("=")
    key = given.lstrip("+~")
    if not equals or _WITHIN_BRACES.search(value) or not (key in groups_of(command) or _is_text(key, command)):
        return text
    if (choice := re.fullmatch(r"choice\((.*)\)", value)) is not None:
        value = choice[1]  # the same sweep; Hydra drops the quotes of the other spelling
    is_call = "(" in value  # of a function of Hydra, as range(start=1,stop=3), or no grammar at all
    written = f"{given}={_PARTS.sub(lambda part: _in_quotes(part, is_call=is_call), value)}"
    return written if written == text or _is_grammatical(written) else text  # which is refused as it is given


def _in_quotes(part: re.Match[str], *, is_call: bool) -> str:
    word = part[0].strip()
    if not word or not (_NO_TEXT.fullmatch(word) or (not is_call and _needs_quotes(word))):
        return part[0]
    return part[0].replace(word, quoted_for_hydra(word))


def _needs_quotes(word: str) -> bool:
    """Whether a name is refused by Hydra's grammar for a letter beyond ASCII, or for a sign such as # or =."""
    if word[0] in "'\"[](),\\" or _UNQUOTED.fullmatch(word):
        return False
    return not (re.search(r"\s", word) and "=" in word)  # which may be two overrides


def _is_grammatical(text: str) -> bool:
    try:
        parse_override(text)
    except ConfigError:
        return False
    return True


def _is_text(key: str, command: str | None = None) -> bool:
    return ".".join(map(written_name, key.split("."))) in _text_keys(command)


def read_as_written(path: Path, package: str = "") -> Any:
    """The content of a YAML file, text as it is written; `package` is the key of what it holds. Raises ConfigError."""
    return text_as_written(read_yaml(path), path.read_text(encoding="utf-8"), package)


def text_as_written(content: Any, text: str, package: str = "") -> Any:
    """`content`, which some loader has read from the YAML `text`, with the text of its keys as it is written there."""
    return _as_written(content, yaml.compose(text, yaml.SafeLoader), package)


def _as_written(value: Any, node: yaml.Node | None, key: str) -> Any:
    if isinstance(value, dict) and isinstance(node, yaml.MappingNode) and len(value) == len(node.value):
        prefix = f"{key}." if key else ""
        return {
            name: _as_written(one, value_node, f"{prefix}{key_node.value}")
            for (name, one), (key_node, value_node) in zip(value.items(), node.value, strict=True)
        }
    if isinstance(value, list) and isinstance(node, yaml.SequenceNode):
        return [_as_written(one, of_one, key) for one, of_one in zip(value, node.value, strict=True)]
    is_chosen = key.startswith("defaults") or ".defaults" in key  # a file of a group
    if value is None or not isinstance(node, yaml.ScalarNode) or not (is_chosen or _is_text(key)):
        return value
    return str(node.value)
