"""`tfm config why KEY` and `tfm config diff A B`: where a value is from, and in which keys two configs differ."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_cli.arguments import parse_arguments
from transformer_cli.command import COMMANDS, command_in, schema_of
from transformer_cli.commands.config.keys import ConfigAction, ConfigConfig
from transformer_cli.config.checks import AUTO
from transformer_cli.config.compose import from_plain, load_config, to_plain
from transformer_cli.config.data import DataConfig
from transformer_cli.config.difference import differences, flattened
from transformer_cli.config.key_help import help_of, shown_value
from transformer_cli.config.keys import all_keys, check_key
from transformer_cli.config.keywords import KEYWORDS
from transformer_cli.config.model import ModelConfig
from transformer_cli.config.origin import DEFAULT, ChosenFile, CommandLine, Explanation, Origins, Source, shown_path
from transformer_cli.config.text_values import read_as_written
from transformer_cli.config.yaml_files import choices_of, config_dir, groups_of, lines_of
from transformer_cli.environment import home_followed
from transformer_cli.errors import CheckpointError, ConfigError, printable, quoted
from transformer_cli.files import follow
from transformer_cli.models.header import MALFORMED, read_header
from transformer_cli.models.locate import locate_own_model
from transformer_cli.registry import did_you_mean
from transformer_cli.standard_streams import require_stdout

_CONFIG_FILE = "config.yaml"  # of a run directory
LONGEST_CELL = 60  # characters


@dataclass(frozen=True)
class StoredConfig:
    """The config in a run directory, a YAML file or a model file."""

    file: Path
    values: Mapping[str, Any]  # nested
    lines: Mapping[str, int]  # key → line; of a model file, none
    command: str = "train"  # whose keys these are


def run(config: ConfigConfig) -> None:
    """Print the answer. Raises ConfigError and CheckpointError for what is no key, file or command line."""
    require_stdout("the answer")
    if config.action is ConfigAction.why:
        answer, text = _why(config)
    elif config.action is ConfigAction.diff:
        answer, text = _diff(config)
    else:
        raise ConfigError("`tfm config`: what is asked? Write `why KEY`, or `diff A B`")
    if config.json:
        print(json.dumps(answer, indent=2, ensure_ascii=False))
    else:
        for line in text:
            print(printable(line))  # a file from elsewhere may hold what a terminal would obey
    sys.stdout.flush()


# What two configs differ in


def _diff(config: ConfigConfig) -> tuple[dict[str, Any], list[str]]:
    if len(config.words) != 2:
        raise ConfigError(
            f"`tfm config diff`: {len(config.words)} given. Name two runs, model files, YAML files or command lines,"
            ' each in quotes, as in `tfm config diff runs/first "model=big norm=pre"`'
        )
    configs = [_values_of(word, config) for word in config.words]
    found = differences(configs)
    both = len(flattened(configs[0]).keys() & flattened(configs[1]).keys())
    rows = [("key", "A", "B"), *((key, *map(_short, values)) for key, values in found)]
    text = [f"{name}  {word or 'no words'}" for name, word in zip("AB", config.words, strict=True)]
    text += ["", *_aligned(rows)] if found else [""]
    text += [""] if found else []
    text.append(f"{len(found) or 'none'} of the {both} keys that both have {'differs' if len(found) < 2 else 'differ'}")
    answer = {"configs": config.words, "keys": both, "differences": [{"key": k, "values": v} for k, v in found]}
    return answer, text


def _values_of(word: str, config: ConfigConfig) -> Mapping[str, Any]:
    """The config, nested, that a word of `tfm config diff` means."""
    stored = _stored(word, config)
    if stored is not None:
        return stored.values
    line = _command_line(word, config)
    loaded = load_config(line.command, line.overrides, flags=line.flags, user_dir=line.user_dir)
    return to_plain(loaded)


# Configs in files


def _stored(word: str, config: ConfigConfig) -> StoredConfig | None:
    """The config that the file or folder called `word` holds; None where there is no such file."""
    path = follow(Path(word)) if word.strip() else None
    if path is None or not path.exists():
        return None
    if path.is_dir() and (path / _CONFIG_FILE).is_file():
        return _yaml(path / _CONFIG_FILE, "train")
    if path.suffix in (".yaml", ".yml"):
        return None if _choice_in(path, config) else _yaml(path, config.command)
    file = locate_own_model(str(path), "")
    metadata = read_header(file).metadata
    try:
        model = to_plain(from_plain(ModelConfig, metadata["config"]))
        known = {key.partition(".")[0] for key in all_keys(DataConfig)}
        data = {key: value for key, value in metadata["data"].items() if key in known}
    except (ConfigError, *MALFORMED) as error:
        raise CheckpointError(f"{file}: its config cannot be read ({error}). Choose another model") from error
    return StoredConfig(file, {"model": model, "data": data}, {})


def _yaml(file: Path, command: str) -> StoredConfig:
    try:
        values = to_plain(from_plain(schema_of(command), read_as_written(file)))
        return StoredConfig(file, values, lines_of(file), command)
    except ConfigError as error:
        message = str(error).removeprefix(f"{file}: ")
        end = "" if message.endswith("?") else "."
        raise ConfigError(
            f"{file}: {message}{end} It should be what `tfm {command} --cfg` prints; --command names another command"
        ) from error


def _choice_in(path: Path, config: ConfigConfig) -> CommandLine | None:
    """The command line that chooses a file of a group, as configs/model/big.yaml; None for any other file."""
    group, folder = path.parent.name, path.resolve().parent.parent
    if group not in groups_of(config.command):
        return None
    return CommandLine(
        config.command, [f"{group}={path.stem}"], user_dir=None if folder == config_dir().resolve() else folder
    )


# Command lines


def _command_line(text: str, config: ConfigConfig) -> CommandLine:
    """The command line in a word: `tfm translate --beam 8`, `translate --beam 8`, `model=big norm=pre`, or a YAML file
    of a group."""
    path = Path(text)
    if text.strip() and path.is_file() and (line := _choice_in(follow(path), config)):
        return line
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{quoted(text)}: not a command line ({error}). Close every quote") from error
    words = words[1:] if words[:1] == ["tfm"] else words
    if words and "=" not in words[0] and words[0] not in COMMANDS and not words[0].startswith("-"):
        near = did_you_mean(words[0], COMMANDS)
        raise ConfigError(
            f"{quoted(text)}: no such file, and no command line{near}. Name a run, a model file or a YAML file, or"
            ' write overrides in quotes, as "model=big norm=pre"'
        )
    return _parsed(words, config)


def _parsed(words: Sequence[str], config: ConfigConfig) -> CommandLine:
    """The command line of words, the first of which may be the command."""
    command, arguments = command_in(words) if words and words[0] in COMMANDS else (config.command, list(words))
    if command not in COMMANDS:
        near = did_you_mean(command, COMMANDS) or f" (choices: {', '.join(COMMANDS)})"
        raise ConfigError(f"--command {quoted(command)}: no such command{near}")
    parsed, flags = parse_arguments(command, arguments)
    options = {flag.key: option for option, flag in COMMANDS[command].flags.items()}
    folder = parsed.config_dir or config.config_dir
    return CommandLine(command, parsed.overrides, flags, options, Path(home_followed(folder)) if folder else None)


# Why a key has its value


def _why(config: ConfigConfig) -> tuple[dict[str, Any], list[str]]:
    if not config.words or "=" in config.words[0]:
        raise ConfigError(
            "`tfm config why`: no key given. Name one first, as in `tfm config why model.d_model model=big`"
        )
    key, *words = config.words
    if len(words) == 1:
        stored = _stored(words[0], config)
        if stored is not None:
            return _why_stored(key, stored)
        line = _command_line(words[0], config)
    else:
        line = _parsed(words, config)
    origins = Origins.of(line)
    if key in groups_of(line.command) or origins.below(key):
        answer, text = _why_group(key, origins)
    else:
        answer, text = _why_key(origins.why(key), origins)
    if origins.refused:
        text += ["", f"`tfm {line.command}` would refuse this command line: {origins.refused}"]
    return answer | {"refused": origins.refused or None}, text


def _why_key(why: Explanation, origins: Origins) -> tuple[dict[str, Any], list[str]]:
    without = why.winner.shown_word if why.winner else ""
    text = [f"{why.key}={shown_value(why.value)}", *_help(why), "", *_aligned(_rows(why))]
    if not why.is_there:
        group = why.key.partition(".")[0]
        text += ["", f"{group}=null: no key of {group} has a value. Add {group}=NAME"]
    elif why.otherwise is not None:
        text += ["", f"{f'without {without}' if without else 'else'}: {_brief(why.otherwise)}"]
    otherwise = _plain(why.otherwise) if why.otherwise else None
    return {"command": origins.line.command, **_answer(why), "without": without or None, "otherwise": otherwise}, text


def _why_group(group: str, origins: Origins) -> tuple[dict[str, Any], list[str]]:
    """The chosen file of the group, and the origin of each of its keys."""
    files = origins.choices(group)
    chosen = [file for file in files if not file.replaced_by]
    keys = origins.below(group) or [key for file in chosen for key in file.keys]
    found = [origins.why(key, otherwise=False) for key in keys]
    text = []
    if group in groups_of(origins.line.command):
        text = [f"{group}={chosen[-1].name if chosen else 'null'}", f"    {', '.join(choices_of(group))}", ""]
        text += _aligned([(" " if one.replaced_by else ">", shown_path(one.path), _choice(one)) for one in files])
        text += [""] if files else []
    rows = [(why.key, _short(why.value), why.winner.where) for why in found if why.winner]
    text += _aligned([("key", "value", "from"), *rows]) if rows else []
    answer = {
        "command": origins.line.command,
        "group": group,
        "choice": chosen[-1].name if chosen else None,
        "files": [_plain_file(file) | {"holds": not file.replaced_by} for file in files],
        "keys": [{"key": w.key, "value": w.value, "from": w.winner.where} for w in found if w.winner],
    }
    return answer, text


def _why_stored(key: str, stored: StoredConfig) -> tuple[dict[str, Any], list[str]]:
    """A file keeps values, not what has set them: their place in it, and the defaults."""
    check_key(KEYWORDS.get(key, key), schema_of(stored.command))
    file, values = shown_path(stored.file), flattened(stored.values)
    helps = [one for one in help_of(schema_of(stored.command)) if one.key in values]
    found = [one for one in helps if f"{one.key}.".startswith(f"{key}.") or key.startswith(f"{one.key}.")]
    if not found:
        raise ConfigError(f"{file}: does not hold {key}. Ask the run that it was made by")
    wheres = [f"{file}:{stored.lines[one.key]}" if one.key in stored.lines else DEFAULT for one in found]
    wheres = wheres if stored.lines else [file for _ in found]
    about = {"command": stored.command}
    if found[0].key != key:
        rows = [(one.key, _short(values[one.key]), where) for one, where in zip(found, wheres, strict=True)]
        keys = [{"key": name, "value": values[name], "from": where} for name, _, where in rows]
        return about | {"group": key, "keys": keys}, _aligned([("key", "value", "from"), *rows])
    sources = [Source(found[0].default_value, DEFAULT)]
    sources += [Source(values[key], wheres[0])] if wheres[0] != DEFAULT else []
    why = Explanation(key, values[key], found[0], sources, None)
    text = [f"{key}={shown_value(why.value)}", *_help(why), "", *_aligned(_rows(why))]
    text += ["", "A file keeps values, not the choices that set them."]
    return about | _answer(why), text


def _help(why: Explanation) -> list[str]:
    facts = ", ".join(fact for fact in (why.help.type, why.help.values) if fact)
    lines = [f"    {why.help.help}", f"    {facts}"]
    if why.value == AUTO:
        lines.append("    A number is chosen when the run begins; the config.yaml of the run keeps it.")
    return lines


def _rows(why: Explanation) -> list[tuple[str, ...]]:
    return [
        (">" if source is why.winner else " ", _short(source.value), source.where, _remark(source))
        for source in why.sources
    ]


def _remark(source: Source) -> str:
    if source.file is not None:
        return _choice(source.file)
    return "on the command line" if source.word else ""


def _choice(file: ChosenFile) -> str:
    """`model=tiny, chosen in configs/train.yaml:7; replaced by model=big`."""
    by = "on the command line" if file.chosen_by == file.choice == file.word else f"chosen by {file.chosen_by}"
    return ", ".join(part for part in (file.choice, by if file.group else "", _replaced(file)) if part)


def _replaced(file: ChosenFile) -> str:
    return f"replaced by {file.replaced_by}" if file.replaced_by else ""


def _brief(source: Source) -> str:
    return f"{shown_value(source.value)} ({', '.join(part for part in (source.where, _remark(source)) if part)})"


def _answer(why: Explanation) -> dict[str, Any]:
    about = {"type": why.help.type, "legal": why.help.values, "default": why.help.default_value, "help": why.help.help}
    sources = [_plain(source) | {"holds": source is why.winner} for source in why.sources]
    return {"key": why.key, "value": why.value, **about, "sources": sources}


def _plain(source: Source) -> dict[str, Any]:
    return {"value": source.value, "where": source.where} | (_plain_file(source.file) if source.file else {})


def _plain_file(file: ChosenFile) -> dict[str, Any]:
    return {
        "file": shown_path(file.path),
        "choice": file.choice or None,
        "chosen_by": file.chosen_by or None,
        "replaced_by": file.replaced_by or None,
    }


def _short(value: Any) -> str:
    """A value as the cell of a table; --json has it whole."""
    text = shown_value(value)
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}…"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as a table without rules, whose last column may be of any width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1] if rows else []
    return ["  ".join([*(map(str.ljust, row, widths)), row[-1]]).rstrip() for row in rows]
