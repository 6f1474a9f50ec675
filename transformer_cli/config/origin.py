"""The origin of each key's value: a default, YAML file, override or flag; and the value without it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from transformer_cli.command import schema_of
from transformer_cli.config.compose import composed, hydra_arguments, load_config, to_plain
from transformer_cli.config.difference import flattened
from transformer_cli.config.fields import written_name
from transformer_cli.config.interpolation import literal, resolve, take_left_open
from transformer_cli.config.key_help import KeyHelp, help_of
from transformer_cli.config.keys import check_key
from transformer_cli.config.keywords import KEYWORDS
from transformer_cli.config.overrides import parse_override
from transformer_cli.config.recipes import FOLD, without_test_set
from transformer_cli.config.text_values import override_as_written, read_as_written
from transformer_cli.config.yaml_files import config_dir, defaults_of, groups_of, lines_of, primary_file
from transformer_cli.errors import ConfigError

DEFAULT = "default"
_OVERRIDES = ("override /", "override ")


@dataclass(frozen=True)
class CommandLine:
    """What stands behind `tfm`: a command with its overrides and flags."""

    command: str
    overrides: Sequence[str] = ()
    flags: Mapping[str, Any] = field(default_factory=dict)  # by key
    options: Mapping[str, str] = field(default_factory=dict)  # key → its flag, as decode.beam_size → --beam
    user_dir: Path | None = None

    def without(self, word: str) -> "CommandLine":
        """The command line that lacks one word, an override or a flag with its value."""
        overrides = list(self.overrides)
        if word in overrides:
            del overrides[len(overrides) - 1 - overrides[::-1].index(word)]
            return replace(self, overrides=overrides)
        return replace(self, flags={key: value for key, value in self.flags.items() if self.flag(key) != word})

    def flag(self, key: str) -> str:
        return f"{self.options.get(key, key)} {self.flags[key]}"


@dataclass(frozen=True)
class ChosenFile:
    """A YAML file that is part of a config, or that another choice of its group has replaced."""

    path: Path
    package: str  # the key under which its content stands; empty: at the top
    group: str  # empty: the primary file of the command
    name: str
    content: Mapping[str, Any]
    lines: Mapping[str, int]  # key within the file → line
    chosen_by: str = ""  # file and line, or the word of the command line
    word: str = ""  # of the command line, without which it would not be there; empty: there is none
    replaced_by: str = ""  # the choice that was made instead

    @property
    def choice(self) -> str:
        return f"{self.group}={self.name}" if self.group else ""

    @property
    def keys(self) -> list[str]:
        """The keys to which it gives values."""
        names = [name for name in flattened(self.content) if not name.startswith("defaults")]
        return [f"{self.package}.{name}".removeprefix(".") for name in names]

    def overridden(self, group: str) -> str | None:
        """What its defaults list puts in the place of the choice of `group` that was made before."""
        listed = self.content.get("defaults")
        entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        keys = [f"{word}{group}" for word in _OVERRIDES]
        return next((entry[key] for key in keys for entry in entries if key in entry), None)

    def entry(self, group: str, name: str) -> str:
        """File and line of the entry of its defaults list that chooses a file."""
        names = [f"{prefix}{group}" for prefix in (*_OVERRIDES, "optional ", "/", "")] + [name, f"/{group}/{name}"]
        line = next((self.lines[f"defaults.{one}"] for one in names if f"defaults.{one}" in self.lines), 1)
        return f"{shown_path(self.path)}:{line}"


@dataclass(frozen=True)
class Source:
    """A place that gives a key a value, as it is written there."""

    value: Any
    where: str  # file and line, the word of the command line, or "default"
    file: ChosenFile | None = None
    word: str = ""  # as that of a ChosenFile

    @property
    def shown_word(self) -> str:
        """`word` with the names of keys as they are written."""
        return self.where if self.word and self.file is None else self.word

    @property
    def replaced_by(self) -> str:
        return self.file.replaced_by if self.file else ""


@dataclass(frozen=True)
class Explanation:
    """Why a key has its value. `sources` are in the order in which they apply: the last that is not replaced holds."""

    key: str
    value: Any
    help: KeyHelp
    sources: Sequence[Source]
    otherwise: Source | None  # what would hold without the word, or the file, that does
    is_there: bool = True  # False below a group that is null

    @property
    def winner(self) -> Source | None:
        """None of a plugin's option that nothing sets."""
        return next(reversed(_in_effect(self.sources)), None)


@dataclass(frozen=True)
class Origins:
    """The origins of all values of a command line."""

    line: CommandLine
    files: Sequence[ChosenFile]  # in the order in which they apply
    values: Mapping[str, Any]  # nested, as `--cfg` prints them
    refused: str  # why the command would not start with these values; empty: it would

    @classmethod
    def of(cls, line: CommandLine) -> "Origins":
        """Raises ConfigError for unknown keys and choices, as the command itself."""
        line = replace(line, overrides=[override_as_written(text, line.command) for text in line.overrides])
        values, refused = _values(line)  # which loads the plugins, on whose tasks recipes depend
        return cls(line, _files(line), values, refused)

    @cached_property
    def keys(self) -> Mapping[str, KeyHelp]:
        return {one.key: one for one in help_of(schema_of(self.line.command))}

    def below(self, group: str) -> list[str]:
        """The keys whose values stand below `group`."""
        return [key for key in self.keys if key.startswith(f"{group}.")]

    def choices(self, group: str) -> list[ChosenFile]:
        return [file for file in self.files if file.group == group]

    def why(self, key: str, *, otherwise: bool = True) -> Explanation:
        """The origin of the value of `key`. Raises ConfigError for an unknown one."""
        check_key(KEYWORDS.get(key, key), schema_of(self.line.command), groups=groups_of(self.line.command))
        option = next((known for known in self.keys if key.startswith(f"{known}.")), key)  # of a plugin
        default = [Source(self.keys[option].default_value, DEFAULT)] if option == key else []
        sources = [*default, *self._sources(key)]
        other = self._without(key, sources) if otherwise else None
        is_there, value = _at(self.values, key.split("."))
        return Explanation(key, value, self.keys[option], sources, other, is_there)

    def _sources(self, key: str) -> Iterator[Source]:
        for file in self.files:
            names = _below(key, file.package)
            is_there, written = _at(file.content, names or ())
            if is_there and names:
                line = file.lines.get(".".join(names), 1)
                yield Source(written, f"{shown_path(file.path)}:{line}", file, file.word)
        fold = next((text for text in self.line.overrides if text.lstrip("+").startswith(f"{FOLD}=")), "")
        given_by = [(text, fold) for text in without_test_set(self.line.overrides)]
        for text, by in [*given_by, *((text, "") for text in self.line.overrides)]:
            override = parse_override(text)
            given = ".".join(map(written_name, override.key_or_group.split(".")))
            names = _below(key, given)
            value: Any = override.value()
            is_there, value = _at(getattr(value, "text", value), names or ())  # of a quoted string
            if is_there and names is not None:
                yield Source(value, by or f"{given}={text.partition('=')[2]}", word=by or text)
        if key in self.line.flags:
            yield Source(self.line.flags[key], self.line.flag(key), word=self.line.flag(key))

    def _without(self, key: str, sources: Sequence[Source]) -> Source | None:
        in_effect = _in_effect(sources)
        if not in_effect or not in_effect[-1].word:
            return in_effect[-2] if len(in_effect) > 1 else None
        try:
            return Origins.of(self.line.without(in_effect[-1].word)).why(key, otherwise=False).winner
        except ConfigError:
            return None  # the rest needs that word


def _in_effect(sources: Sequence[Source]) -> list[Source]:
    return [source for source in sources if not source.replaced_by]


def _values(line: CommandLine) -> tuple[dict[str, Any], str]:
    """The values of a command line, and why the command would refuse them, if it would."""
    try:
        return to_plain(load_config(line.command, line.overrides, flags=line.flags, user_dir=line.user_dir)), ""
    except ConfigError as error:
        config = composed(line.command, line.overrides, line.user_dir)
        take_left_open(config)
        resolve(config)
        for key, value in line.flags.items():
            OmegaConf.update(config, key, literal(value))
        return _written(OmegaConf.to_container(config, enum_to_str=True)), str(error)


def _written(value: Any) -> Any:
    return {written_name(str(name)): _written(one) for name, one in value.items()} if isinstance(value, dict) else value


def _files(line: CommandLine) -> list[ChosenFile]:
    """The files of a config in the order in which they apply, each behind those that it has replaced."""
    arguments = hydra_arguments(line.command, line.overrides, line.user_dir)
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        found = GlobalHydra.instance().config_loader().compute_defaults_list(line.command, arguments, RunMode.RUN)
    groups = groups_of(line.command)
    words = {group: text for text in line.overrides for group in [text.partition("=")[0]] if group in groups}
    entries = {entry.config_path: entry for entry in found.defaults if not entry.package.startswith("hydra")}
    paths = {name: path for name in entries if (path := _path_of(name, line.user_dir)) is not None}
    plain = {name: _read(path, entries[name].package, *_group_and_name(name)) for name, path in paths.items()}
    data = next((file.choice for file in plain.values() if file.group == "data"), "")

    def chosen(name: str) -> ChosenFile:
        """The chosen file, with what has chosen it."""
        file = plain[name]
        if not file.group:
            return file
        if file.group in words and str(parse_override(words[file.group]).value()) == file.name:
            return replace(file, chosen_by=words[file.group], word=words[file.group])
        if file.group == "recipe":  # by the primary file, as ${data}, or by hydra_arguments
            return replace(file, chosen_by=data, word=chosen(data.replace("=", "/")).word)
        if file.group == "fine_tuning":  # by hydra_arguments
            start = next((text for text in line.overrides if text.lstrip("+").startswith("init.from")), "")
            return replace(file, chosen_by=start, word=start)
        by = found.overrides.override_metadata.get(file.group)
        choosing = (by and by.containing_config_path) or entries[name].parent
        if choosing not in plain:  # a command whose groups stand in the code
            return replace(file, chosen_by=f"tfm {line.command}")
        parent = chosen(choosing)
        return replace(file, chosen_by=parent.entry(file.group, file.name), word=parent.word)

    files = {name: chosen(name) for name in plain}
    replaced = list(_replaced(list(files.values()), line, words))
    merged = []
    for file in files.values():
        merged += [one for one in replaced if one.group == file.group] + [file]
    return merged + [one for one in replaced if one.group not in {file.group for file in files.values()}]


def _replaced(files: Sequence[ChosenFile], line: CommandLine, words: Mapping[str, str]) -> Iterator[ChosenFile]:
    """The files that the primary file or an experiment chooses where another choice of their group holds."""
    chosen = {file.group: file for file in files}
    command: list[ChosenFile | None] = [] if primary_file(line.command) else [None]  # which chooses in the code
    for group in groups_of(line.command):
        for file in [*command, *files]:
            name = file.overridden(group) if file is not None and file.group else defaults_of(line.command)[group]
            name = (name or "").replace("${data}", chosen["data"].name if "data" in chosen else "")
            path = _path_of(f"{group}/{name}", line.user_dir)
            if path is not None and (group not in chosen or chosen[group].name != name):
                by = words.get(group) or (chosen[group].choice if group in chosen else f"{group}=null")
                chosen_by = f"tfm {line.command}" if file is None else file.entry(group, name)
                yield _read(path, group, group, name, chosen_by=chosen_by, replaced_by=by)


def _read(path: Path, package: str, group: str, name: str, **about: str) -> ChosenFile:
    header = re.match(r"# @package (\S+)", path.read_text(encoding="utf-8"))
    if header is not None:
        package = header[1].replace("_global_", "")
    content = read_as_written(path, package)
    return ChosenFile(path, package, group, name, content if isinstance(content, dict) else {}, lines_of(path), **about)


def _group_and_name(config_path: str) -> tuple[str, str]:
    group, _, name = config_path.rpartition("/")
    return group, name


def _path_of(config_path: str, user_dir: Path | None) -> Path | None:
    paths = (folder / f"{config_path}.yaml" for folder in (config_dir(), user_dir) if folder is not None)
    return next((path for path in paths if path.is_file()), None)


def shown_path(path: Path) -> str:
    """`path` from the working folder, where it is in it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _below(key: str, package: str) -> list[str] | None:
    """The names that lead from `package` to `key`; None where `key` is not in it."""
    names, above = key.split("."), package.split(".") if package else []
    return names[len(above) :] if names[: len(above)] == above else None


def _at(tree: Any, names: Sequence[str]) -> tuple[bool, Any]:
    """Whether there is something in nested mappings, and what."""
    for name in names:
        if not isinstance(tree, Mapping) or name not in tree:
            return False, None
        tree = tree[name]
    return True, tree
