"""The words of a command line → flags and overrides of a command. Neither torch nor Hydra is imported for --help."""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from transformer_cli.command import COMMANDS, Command
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.registry import did_you_mean
from transformer_cli.tables import TableFormat


def table_format(text: str) -> TableFormat:
    if text not in [form.value for form in TableFormat]:
        choices = ", ".join(form.value for form in TableFormat)
        raise ConfigError(f"--table {quoted(text)}: no format of tables. Choose one of {choices}")
    return TableFormat(text)


# The options of every command; those of sweeps only where a command has them.
COMMON_OPTIONS: dict[tuple[str, ...], dict[str, Any]] = {
    ("--plugin",): {
        "action": "append",
        "metavar": "MODULE",
        "help": "import a Python module of your own, which registers models, searches, commands, …; repeatable",
    },
    ("--keys",): {
        "nargs": "?",
        "const": "",
        "metavar": "PATTERN",
        "help": "print every config key (that contains PATTERN) with type, default and meaning, and stop",
    },
    ("--cfg",): {"action": "store_true", "help": "print the resolved config and stop"},
    ("--config-dir",): {"metavar": "DIR", "help": "folder with your own YAML files, laid out as ours"},
    ("-m", "--multirun"): {"action": "store_true", "help": "one run for each combination of a,b values"},
    ("--table",): {
        "type": table_format,
        "metavar": "FORMAT",
        "help": "with -m: print the table of the runs alone, as latex, markdown or csv; all else to standard error",
    },
}
OF_SWEEPS = {("-m", "--multirun"), ("--table",)}  # only where a command has sweeps


def common_options(command: Command) -> list[tuple[str, ...]]:
    """The names of each common option that a command has."""
    return [names for names in COMMON_OPTIONS if command.sweep or names not in OF_SWEEPS]


class _Once(argparse.Action):
    """Store a value, and refuse a second, different one for the same flag."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        if before is not None and before != values:
            raise ConfigError(
                f"{option}: given twice, as {quoted(str(before))} and {quoted(str(values))}. Leave one out"
            )
        setattr(namespace, self.dest, values)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        command = self.prog.removeprefix("tfm").strip()
        _, is_unknown, unknown = message.partition("unrecognized arguments: ")
        if not is_unknown:  # a flag with a value that it does not take, or without one
            raise ConfigError(f"{_without_types(message)}. `tfm {command} --help` lists the flags")
        words = unknown.split()
        flags = [name for action in self._actions for name in action.option_strings]
        word = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
        near = (_flag_meant_by(word, command) or did_you_mean(word, flags)) if word else ""
        raise ConfigError(f"{message}{near or f'. `tfm {command} --help` lists the flags'}")


def _without_types(message: str) -> str:
    """A message of argparse without the names of Python's types."""
    wrong = re.fullmatch(r"argument (\S+): invalid (int|float) value: (.*)", message, re.DOTALL)
    return f"{wrong[1]} {wrong[3]}: must be a {'whole ' * (wrong[2] == 'int')}number" if wrong else message


def _flag_meant_by(word: str, command: str) -> str:
    """`; did you mean ...?` for a flag of another toolkit: our flag, or the key where there is no flag for it."""
    from transformer_cli.config.foreign_names import our_key
    from transformer_cli.config.keys import all_keys
    from transformer_cli.config.yaml_files import groups_of

    found = our_key(word, [*all_keys(COMMANDS[command].schema), *groups_of(command)])
    if found is None:
        return ""
    keys, clause = found
    flags = {flag.key: option for option, flag in COMMANDS[command].flags.items()}
    ours = " ".join(flags.get(key, key if "=" in key else f"{key}=VALUE") for key in keys.split(" and "))
    return f"; did you mean `{ours}`{clause and f', {clause}'}?"


def parse_arguments(name: str, arguments: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """The words behind a command, and key → value of its flags, of a command line that is not run.

    Raises ConfigError.
    """
    from transformer_cli.config.overrides import values_of
    from transformer_cli.config.text_values import override_as_written

    parsed = parser_of(name).parse_intermixed_args(arguments)
    flags = flags_of(name, COMMANDS[name], parsed)
    parsed.overrides = [override_as_written(text, name) for text in parsed.overrides]
    refuse_contradictions(COMMANDS[name], flags, values_of(parsed.overrides))
    return parsed, flags


def parser_of(name: str) -> _Parser:
    command = COMMANDS[name]
    words = [f" {word.key.upper()}: {word.help}" for word in command.words]
    parser = _Parser(
        prog=f"tfm {name}",
        description=f"{command.help[:1].upper()}{command.help[1:]}.{''.join(words)}",
        epilog=f"example: {command.example}",
        allow_abbrev=False,
        add_help=False,
    )
    if command.argument:
        word = command.argument.key.upper() + (" ..." if command.argument.repeated else "")
        first = f"[{command.before.key.upper()}] " if command.before else ""
        parser.usage = f"tfm {name} {first}{word if command.needs_word else f'[{word}]'} [flags] [key=value ...]"
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="config overrides, as model=big or seed=7")
    for option, flag in command.flags.items():
        if flag.kind is bool:
            parser.add_argument(option, action="store_true", default=None, help=flag.help)
        else:
            action: Any = "append" if flag.repeated else _Once
            metavar = "N" if flag.kind is int else option.strip("-").upper()
            parser.add_argument(option, action=action, type=flag.kind, metavar=metavar, help=flag.help)
    for names in common_options(command):
        parser.add_argument(*names, **{"action": _Once, **COMMON_OPTIONS[names]})
    parser.add_argument("-h", "--help", action="store_true", help="print this and stop")
    return parser


def flags_of(name: str, command: Command, parsed: argparse.Namespace) -> dict[str, Any]:
    """Key → value of the flags that are given, and of the word on its own, which leaves `parsed.overrides`."""
    options = {option: flag.key for option, flag in command.flags.items()} | {"--plugin": "plugins"}
    if command.takes_command_lines:
        options["--config-dir"] = "config_dir"
    flags = {key: value for option, key in options.items() if (value := _value(parsed, option)) is not None}
    bare = list(parsed.overrides) if command.takes_command_lines else _bare_words(parsed.overrides)
    if bare and command.argument:
        if command.before and len(bare) > 1:
            flags[command.before.key] = bare[0]
            parsed.overrides.remove(bare.pop(0))
        if command.argument.repeated:
            flags[command.argument.key] = bare
            parsed.overrides = [word for word in parsed.overrides if word not in bare]
            return flags
        if len(bare) > 1:
            raise ConfigError(
                f"{quoted(bare[1])}: a second {command.argument.key} after {quoted(bare[0])}."
                " Give one, in quotes if it has blanks, or write key=value"
            )
        flags[command.argument.key] = bare[0]
        parsed.overrides.remove(bare[0])
    elif bare and command.input_hint:
        is_model = "--checkpoint" in command.flags and (Path(bare[0]).is_dir() or bare[0].endswith(".safetensors"))
        hint = "Name a model with --checkpoint" if is_model else command.input_hint
        raise ConfigError(f"{quoted(bare[0])}: `tfm {name}` takes no word on its own. {hint}")
    return flags


def _bare_words(words: Sequence[str]) -> list[str]:
    """The words that are not overrides: a sentence or a path may hold a = sign, but a key has no blank and no slash."""
    return [word for word in words if not word.startswith("hydra/") and not re.match(r"[^\s/]*=", word)]


def refuse_contradictions(command: Command, flags: Mapping[str, Any], given: Mapping[str, Sequence[Any]]) -> None:
    """Raise ConfigError for a key to which a flag and an override give different values."""
    for key in given.keys() & flags.keys():
        by_flag = _alone(flags[key])
        for override in map(_alone, given[key]):
            if by_flag != override and str(by_flag) != str(override):
                names = [option for option, one in command.flags.items() if one.key == key] or [f"the {key}"]
                raise ConfigError(
                    f"{key}={override}: contradicts {names[0]} {quoted(str(by_flag))}. Leave one of them out"
                )


def _alone(value: Any) -> Any:
    """The element of a list of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _value(parsed: argparse.Namespace, option: str) -> Any:
    return getattr(parsed, option.strip("-").replace("-", "_"))
