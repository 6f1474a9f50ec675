"""The text of docs/configuration.md: every key of every command, from the fields in transformer_cli/config/."""

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
command starts, from Python's path or else from the working folder. It may register entries, which configs then name:

| registry | key |
| --- | --- |
| `transformer_cli.models.build.MODELS` | `model.name` |
| `transformer_cli.decoding.search` | `decode.search` |
| `transformer_cli.training.optimizers` | `optimizer.name`, with its own settings in `optimizer.options` |
| `transformer_cli.training.schedules` | `schedule.name`, with its own settings in `schedule.options` |
| `transformer_cli.evaluation.metrics.METRICS` | `metrics` of `tfm evaluate` |
| `transformer_cli.data.readers.READERS` | `data.reader`, with its own settings in `data.options` |

A plugin is code. It is imported only where your command line or YAML names it: a model file or run directory that was
made with one names it in an error message, and you decide.
"""

GROUPS = ("model", "init", "lora", "data", "schedule", "optimizer", "train", "decode", "comet", "limits")


def page() -> str:
    keys = {command: help_of(one.schema) for command, one in COMMANDS.items()}
    of_model = {one.key for one in keys["train"] if _group(one) == "model"}
    parts = [INTRODUCTION, _files(), PLUGINS]
    for group in GROUPS:
        owner = next(command for command in COMMANDS if any(_group(one) == group for one in keys[command]))
        users = [command for command in COMMANDS if any(_group(one) == group for one in keys[command])]
        if group == "model":  # of which `tfm attention` has a few, with a meaning of their own
            users = [command for command in users if of_model <= {one.key for one in keys[command]}]
        parts.append(f"\n## `{group}`\n\nOf {', '.join(f'`tfm {name}`' for name in users)}.\n\n")
        parts.append(_table([one for one in keys[owner] if _group(one) == group]))
    shared = {one.key for one in keys["train"]}
    for command in COMMANDS:
        own = [one for one in keys[command] if not _group(one)]
        has_some = not of_model <= {one.key for one in keys[command]}
        own += [one for one in keys[command] if has_some and _group(one) == "model"]
        if command in ("doctor", "bench", "prepare", "reproduce"):
            own = [one for one in own if one.key not in shared]
            intro = "The keys of `tfm train`" + (", and:" if own else ".")
        else:
            groups = list(dict.fromkeys(_group(one) for one in keys[command] if _group(one) and one not in own))
            intro = f"And those of {', '.join(f'`{group}`' for group in groups)}." if groups else ""
        parts.append(f"\n## `tfm {command}`\n\n" + (f"{intro}\n\n" if intro else "") + _table(own))
    return "".join(parts).rstrip() + "\n"


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
