"""The text of docs/configuration.md: every key of every command, from the fields in transformer_cli/config/."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from transformer_cli.command import COMMANDS
from transformer_cli.config.key_help import KeyHelp, help_of
from transformer_cli.config.yaml_files import choices_of, config_dir, defaults_of

INTRODUCTION = """# Configuration

```bash
tfm train --keys          # every key of a command: type, default, legal values, meaning
tfm train --keys warmup   # those whose name contains a word
tfm train model=base train.max_steps=50000 --cfg
```

This page is written by `scripts/configuration`; the sentences stand beside the keys in `transformer_cli/config/`.
`tfm COMMAND --keys [PATTERN]` prints the same in a terminal, and `tfm COMMAND --cfg` the values in effect.

A value is taken from the first of these that has one:

1. a flag, as `--beam 8`
2. `key=value` on the command line; of several for one key the last
3. the YAML files that are chosen by `group=NAME`, ours or those of `--config-dir DIR`
4. the default, as the tables below have it

A list is written as `[a,b]`, no value as `null`. `${other.key}` takes the value of another key; only `data.root` and
`data.cache` may hold `${oc.env:NAME}`. Misspelt keys and values out of range are refused before anything starts.
"""

PLUGINS = """
## Plugins

`--plugin my_module` (repeatable), or `plugins: [my_module]` in YAML, imports a Python module of your own before a
command starts. It may register entries, which keys such as `model.name`, `schedule.name` or `decode.search` then name:
[extending](extending.md).
"""

SHARED = """
## Keys of several commands

The section of each command says which of these it has. A key that means something else there has a row of its own.

"""

AS_TRAIN = ("doctor", "bench", "prepare", "reproduce")  # commands that have the keys of `tfm train`
GROUPS = ("model", "init", "lora", "data", "schedule", "optimizer", "train", "decode", "comet", "limits")


def page() -> str:
    keys = {command: help_of(one.schema) for command, one in COMMANDS.items()}
    of_model = {one.key for one in keys["train"] if _group(one) == "model"}

    def has_some(keys: Sequence[KeyHelp]) -> bool:
        """Whether these have a part of the group `model`, with a meaning of their own, as `tfm attention` has."""
        return not of_model <= {one.key for one in keys}

    parts = [INTRODUCTION, _files(), PLUGINS]
    for group in GROUPS:
        owner = next(command for command in COMMANDS if any(_group(one) == group for one in keys[command]))
        users = [command for command in COMMANDS if any(_group(one) == group for one in keys[command])]
        if group == "model":
            users = [command for command in users if not has_some(keys[command])]
        parts.append(f"\n## `{group}`\n\nOf {', '.join(f'`tfm {name}`' for name in users)}.\n\n")
        parts.append(_table([one for one in keys[owner] if _group(one) == group]))
    shared = _shared({command: keys[command] for command in COMMANDS if command not in AS_TRAIN})
    parts.append(SHARED + _table(list(shared.values())))
    of_train = {one.key for one in keys["train"]}
    for command in COMMANDS:
        own = [one for one in keys[command] if not _group(one) or (_group(one) == "model" and has_some(keys[command]))]
        parts.append(f"\n## `tfm {command}`\n\n")
        if command in AS_TRAIN:
            own = [one for one in own if one.key not in of_train]
            parts.append("The keys of `tfm train`" + (", and:\n\n" if own else ".\n"))
        else:
            groups = dict.fromkeys(_group(one) for one in keys[command] if _group(one) and one not in own)
            also = [one for one in own if _meaning(one) in shared]
            own = [one for one in own if one not in also]
            parts.append(_sentence("Groups", groups) + _sentence("Keys of several commands", [one.key for one in also]))
        parts.append(_table(own))
    return "".join(parts).rstrip() + "\n"


def _meaning(one: KeyHelp) -> tuple[str, ...]:
    """The properties that are equal in all commands that share a key."""
    return one.key, one.type, one.values, one.default, one.help


def _shared(keys: Mapping[str, Sequence[KeyHelp]]) -> dict[tuple[str, ...], KeyHelp]:
    """The keys outside of groups that mean the same in several of these commands, those of most commands first."""
    found: dict[tuple[str, ...], list[KeyHelp]] = {}
    for of_command in keys.values():
        for one in of_command:
            if not _group(one):
                found.setdefault(_meaning(one), []).append(one)
    shared: dict[str, tuple[str, ...]] = {}  # of each key the meaning that most commands have
    for meaning in sorted(found, key=lambda meaning: -len(found[meaning])):
        if len(found[meaning]) > 1:
            shared.setdefault(meaning[0], meaning)
    return {meaning: found[meaning][0] for meaning in shared.values()}


def _sentence(what: str, names: Iterable[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names)
    return f"{what}: {listed}.\n\n" if listed else ""


def _files() -> str:
    rows = [f"| `{group}` | {', '.join(choices_of(group))} |\n" for group in defaults_of("train")]
    assert all((config_dir() / group).is_dir() for group in defaults_of("train"))
    return "\n## Groups\n\n| `group=` | files |\n| --- | --- |\n" + "".join(rows)


def _group(one: KeyHelp) -> str:
    return one.key.partition(".")[0] if "." in one.key else ""


def _table(keys: list[KeyHelp]) -> str:
    if not keys:
        return ""
    rows = ["| key | type | default | meaning |\n| --- | --- | --- | --- |\n"]
    for one in keys:
        kind = ": ".join(part for part in (one.type, one.values.replace(" | ", ", ")) if part)
        default = f"`{one.default}`" if one.default else "required"
        resume = " *May change on resume.*" if one.may_change else ""
        rows.append(f"| `{one.key}` | {kind} | {default} | {escape(one.help, quote=False)}{resume} |\n")
    return "".join(rows)


if __name__ == "__main__":
    print(page(), end="")
