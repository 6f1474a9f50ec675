"""Command line and YAML → one checked dataclass (`schema.py`), composed by Hydra.

Hydra composes and nothing more: no `_target_`, no `instantiate`, no DictConfig past this module.
"""

import dataclasses
import os
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, ListConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from transformer_cli.config.bench import BenchConfig
from transformer_cli.config.commands import (
    AttentionConfig,
    AverageConfig,
    ClassifyConfig,
    EmbedConfig,
    EvaluateConfig,
    ExportConfig,
    GenerateConfig,
    ReplayConfig,
    ScoreConfig,
    TranslateConfig,
)
from transformer_cli.config.train import DoctorConfig, PrepareConfig, TrainConfig
from transformer_cli.environment import VARIABLE, folder_named
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.registry import did_you_mean

SCHEMAS: dict[str, type] = {
    "train": TrainConfig,
    "translate": TranslateConfig,
    "classify": ClassifyConfig,
    "embed": EmbedConfig,
    "evaluate": EvaluateConfig,
    "prepare": PrepareConfig,
    "doctor": DoctorConfig,
    "bench": BenchConfig,
    "replay": ReplayConfig,
    "score": ScoreConfig,
    "generate": GenerateConfig,
    "average": AverageConfig,
    "export": ExportConfig,
    "attention": AttentionConfig,
}
# Recipes for a task, whose numbers follow from the corpus; which commands take them where a corpus has no recipe of its
# own name; and which corpora are trained as the schema says instead.
RECIPE_OF = {"translation": "files", "classification": "labels", "language_model": "text"}
WITH_RECIPE_BY_TASK = ("train", "doctor", "prepare")
TRAINED_AS_IN_THE_PAPER = ("wmt14_en_de", "wmt14_en_fr")
MAX_YAML_BYTES = 1_000_000
RENAMED_SETTINGS = {"max_batch_cells": "tokens_per_batch"}  # of `train`, in files that older versions wrote

# Where this machine keeps its corpora: all that may come from the environment. Everything else is saved with a run or
# a model, sent to a server, or becomes a file name, and would take the value with it.
PLACES = ("data.root", "data.cache")
_REFERENCE = re.compile(r"\$\{[\w.\[\]]+\}")  # to another key


def config_dir() -> Path:
    """The folder with the YAML files: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def register_schemas() -> None:
    """Make the dataclasses known to Hydra, as the bases that the primary YAML files name."""
    store = ConfigStore.instance()
    for command, schema in SCHEMAS.items():
        store.store(name=f"{command}_schema", node=schema)


def load_config(
    command: str,
    overrides: Sequence[str] = (),
    *,
    flags: Mapping[str, Any] | None = None,
    user_dir: Path | None = None,
) -> Any:
    """The config of `command`, as an instance of its schema dataclass.

    `overrides` are Hydra's (`model=big`, `train.max_steps=10`); `flags` maps keys to values and wins over them.
    `user_dir` is a folder whose YAML files are choices beside ours. Raises ConfigError.
    """
    for text in overrides:
        if text.lstrip("+~").startswith("hydra"):
            raise ConfigError(f"{quoted(text)}: Hydra's own keys need --multirun. Add -m, or leave it out")
        if parse_override(text).is_sweep_override():
            raise ConfigError(f"{quoted(text)}: several values make several runs. Add -m, or write a list as [a,b]")
    arguments = hydra_arguments(command, overrides, user_dir)
    try:
        with initialize_config_dir(str(config_dir()), version_base="1.3"):
            config = compose(command, arguments)
    except (HydraException, OmegaConfBaseException) as error:
        raise as_config_error(error, SCHEMAS[command]) from error
    checked = to_schema(config, SCHEMAS[command], flags=flags)
    if isinstance(checked, EvaluateConfig):
        checked.refuse_given([*(flags or {}), *(parse_override(text).key_or_group for text in overrides)])
    return checked


def hydra_arguments(command: str, overrides: Sequence[str], user_dir: Path | None) -> list[str]:
    """`overrides`, looked at, with the user's folder and a recipe; Hydra then knows our schemas. Raises ConfigError."""
    if user_dir is not None and not user_dir.is_dir():
        raise ConfigError(f"{user_dir}: no such folder. Give --config-dir a folder with YAML files")
    check_overrides(command, overrides, user_dir)
    if user_dir is not None:
        _files_of([pair for pairs in _choices(command, overrides).values() for pair in pairs], user_dir)
    register_schemas()
    # Not as_uri(): Hydra does not decode the %20 of a blank.
    kept = [*(text for text in map(_without_null, overrides) if text), *_recipe_by_task(command, overrides, user_dir)]
    search_path = [f"hydra.searchpath=[{quoted_for_hydra(f'file://{user_dir.resolve()}')}]"] if user_dir else []
    return [*search_path, *kept]


def _without_null(text: str) -> str:
    """`experiment=null` as Hydra says it: not at all, or `~recipe` for a group that has a choice by default."""
    group, _, value = text.partition("=")
    return (
        {"recipe": "~recipe"}.get(group, "")
        if value == "null" and "." not in group and (config_dir() / group).is_dir()
        else text
    )


Choice = tuple[str, str]  # a group, and the file that is chosen of it


def _choices(command: str, overrides: Sequence[str]) -> dict[str, list[Choice]]:
    """What is chosen of each group of a command: one file, none, or those of a sweep."""
    names: dict[str, list[Any]] = {group: [choice] for group, choice in _defaults_of(command).items()}
    for override in map(parse_override, overrides):
        if override.key_or_group in names:
            value: Any = override.value()
            names[override.key_or_group] = list(value.list) if hasattr(value, "list") else [value]
    return {group: [(group, str(name)) for name in found if name is not None] for group, found in names.items()}


def _files_of(choices: Sequence[Choice], user_dir: Path | None) -> dict[Choice, Any]:
    """The content of the files that are chosen, of those that they name, and of the recipes of corpora among them.

    The user's are read strictly, and no other file of `user_dir` is. Raises ConfigError naming file and line.
    """
    found: dict[Choice, Any] = {}
    waiting = list(choices)
    while waiting:
        group, name = choice = waiting.pop()
        ours = config_dir() / group / f"{name}.yaml"
        theirs = user_dir / group / f"{name}.yaml" if user_dir is not None else None
        is_theirs = theirs is not None and os.path.lexists(theirs)
        if choice in found or "${" in name or not (is_theirs or ours.is_file()):
            continue
        found[choice] = content = read_yaml(theirs if theirs is not None and is_theirs else ours)
        if theirs is not None and is_theirs:
            _check_values(content, theirs)
            if ours.is_file() and content != read_yaml(ours):
                raise ConfigError(f"{theirs}: tfm has a {group} of this name, which is the one chosen. Rename the file")
        waiting += [("recipe", name)] if group == "data" else []
        waiting += _named_in(content, group)
    return found


def _named_in(content: Any, group: str) -> list[Choice]:
    """The files that the defaults list of a file of `group` names."""
    named: list[Choice] = []
    listed = content.get("defaults") if isinstance(content, dict) else None
    for entry in listed if isinstance(listed, list) else []:
        for key, value in entry.items() if isinstance(entry, dict) else [("", entry)]:
            key = str(key).removeprefix("override ").removeprefix("optional ")
            for name in value if isinstance(value, list) else [value]:
                path = f"{key.split('@')[0]}/{str(name).split('@')[0]}".removesuffix(".yaml").lstrip()
                folder, _, file = (path[1:] if not key else path).rpartition("/")
                named += [(folder.strip("/"), file)] if folder.startswith("/") else []
                named += [(f"{group}/{folder}".rstrip("/"), file), (folder, file)] if not folder.startswith("/") else []
    return named


def _recipe_by_task(command: str, overrides: Sequence[str], user_dir: Path | None) -> list[str]:
    """`recipe=…` for a corpus that has no recipe of its own name: the one for text of its task.

    Not where a recipe is named, where an experiment of ours chooses the corpus, nor for the paper's corpora. Raises
    ConfigError for a sweep over corpora with different recipes.
    """
    given = [text.lstrip("+~").partition("=")[0] for text in overrides]
    if command not in WITH_RECIPE_BY_TASK or "recipe" in given:
        return []
    choices = _choices(command, overrides)
    corpora = [name for _, name in choices["data"]]
    for (group, name), content in _files_of(choices["experiment"], user_dir).items():
        named = (
            [corpus for kind, corpus in _named_in(content, group) if kind == "data"] if group == "experiment" else []
        )
        if named and (config_dir() / group / f"{name}.yaml").is_file():
            return []
        corpora = named if named and "data" not in given else corpora
    recipes = {_recipe_of(name, overrides, user_dir) for name in corpora}
    if len(recipes) > 1:
        raise ConfigError(
            f"data={','.join(corpora)}: these take different recipes. Name one with recipe=, or start them one by one"
        )
    return [f"recipe={recipe}" for recipe in recipes if recipe is not None]


def _recipe_of(corpus: str, overrides: Sequence[str], user_dir: Path | None) -> str | None:
    """The recipe for the task of a corpus; None where its name says which, or says that it is the paper's."""
    folders = [folder for folder in (config_dir(), user_dir) if folder is not None]
    if corpus in TRAINED_AS_IN_THE_PAPER or corpus in choices_of("recipe", [folder / "recipe" for folder in folders]):
        return None
    contents = _files_of([("data", corpus)], user_dir).values()
    told = [content["task"] for content in contents if isinstance(content, dict) and "task" in content]
    told = [text.partition("=")[2] for text in overrides if text.startswith("data.task=")] or told
    return RECIPE_OF.get(told[0] if told else "", "files")


def to_schema(config: DictConfig, schema: type, *, flags: Mapping[str, Any] | None = None) -> Any:
    """`config` as an instance of `schema`, every key checked; `flags` win over it. Raises ConfigError."""
    try:
        _refuse_strangers(config, schema, root=schema)
        _resolve(config)
        for key, value in (flags or {}).items():
            OmegaConf.update(config, key, _literal(value))
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            raise ConfigError(f"{missing[0]}: not set. Give it as {missing[0]}=VALUE")
        return OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise as_config_error(error, schema) from error


def to_plain(config: Any) -> dict[str, Any]:
    """A config dataclass as dictionaries, lists, strings and numbers, ready for JSON or YAML."""
    plain = OmegaConf.to_container(OmegaConf.structured(config), enum_to_str=True)
    assert isinstance(plain, dict)
    return typing.cast(dict[str, Any], plain)


def to_yaml(config: Any) -> str:
    return yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True)


def from_plain(schema: type, plain: Mapping[str, Any]) -> Any:
    """The inverse of `to_plain`, for configs read from a file: nothing in them is interpolated. Raises ConfigError."""
    if not isinstance(plain, Mapping):
        raise ConfigError("config: not a table of keys and values. Restore it")
    try:
        _refuse_interpolations(plain, "")
        config = OmegaConf.create(_literal(_renamed(plain)))
        _refuse_strangers(config, schema, root=schema)
        return OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), config))
    except OmegaConfBaseException as error:
        raise as_config_error(error, schema) from error


def _renamed(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the keys of older versions under the names that they have now."""
    settings = plain.get("train")
    if not isinstance(settings, Mapping):
        return plain
    return {**plain, "train": {RENAMED_SETTINGS.get(key, key): value for key, value in settings.items()}}


def check_overrides(command: str, overrides: Sequence[str], user_dir: Path | None = None) -> None:
    """Refuse what Hydra would accept silently or answer at length: strange keys, choices and grammar."""
    schema = SCHEMAS[command]
    for text in overrides:
        override = parse_override(text)
        key = override.key_or_group
        if "_target_" in text:
            raise ConfigError(
                f"{key}: _target_: not supported. Configs name entries of tfm's registries, never classes"
            )
        if key.startswith(("hydra.", "hydra/")):
            continue
        _refuse_resolvers(text.partition("=")[2], key)
        folders = [folder / key for folder in (config_dir(), user_dir) if folder and (folder / key).is_dir()]
        if override.is_delete():
            raise ConfigError(f"{quoted(text)}: keys cannot be deleted. Set {key} to a value, or to null")
        if "." not in key and folders and key in groups_of(command):
            _check_choice(key, override.value(), folders, may_be_null=key in _optional_groups(command))
            continue
        _check_key(key, schema, groups=groups_of(command))
        group = key.split(".")[0]
        if group == "data" and command == "evaluate" and not any(other.startswith("data=") for other in overrides):
            raise ConfigError(f"{key}: no corpus is chosen. Add data=NAME (choices: {', '.join(choices_of('data'))})")


def values_of(overrides: Sequence[str]) -> dict[str, list[Any]]:
    """Key → the different values that `overrides` give it, the one that holds last. Raises ConfigError."""
    found: dict[str, list[Any]] = {}
    for text in overrides:
        override = parse_override(text)
        value = override.value()
        values = found.setdefault(override.key_or_group, [])
        values.append(getattr(value, "text", value))  # of a quoted string
        if str(values[-1]) in map(str, values[:-1]):
            values[:] = [one for one in values[:-1] if str(one) != str(values[-1])] + values[-1:]
    return found


def parse_override(text: str) -> Override:
    if "=" not in text and not text.startswith("~"):
        raise ConfigError(f"{quoted(text)}: not a flag and not a key=value override. Write key=value")
    try:
        override = OverridesParser.create().parse_override(text)
        if not override.key_or_group:
            raise ConfigError(f"{quoted(text)}: no key before the = sign. Write key=value")
        return override
    except HydraException as error:
        raise ConfigError(
            f"{quoted(text)}: not a key=value override. Close every bracket, and quote a value that holds blanks,"
            " letters beyond ASCII, commas, braces, ~ or = signs, as in 'key=\"a=b\"'"
        ) from error


def groups_of(command: str) -> list[str]:
    """The config groups in the defaults list of a command's primary YAML."""
    return list(_defaults_of(command))


def _optional_groups(command: str) -> list[str]:
    return [group for group, choice in _defaults_of(command).items() if choice is None or group == "recipe"]


def _defaults_of(command: str) -> dict[str, str | None]:
    listed = yaml.safe_load((config_dir() / f"{command}.yaml").read_text(encoding="utf-8"))["defaults"]
    entries = [item for entry in listed if isinstance(entry, dict) for item in entry.items()]
    return {name.removeprefix("optional "): choice for name, choice in entries if not name.startswith("override ")}


def choices_of(group: str, folders: Sequence[Path] = ()) -> list[str]:
    return sorted(path.stem for folder in folders or [config_dir() / group] for path in folder.glob("*.yaml"))


def _check_choice(group: str, value: Any, folders: Sequence[Path], *, may_be_null: bool) -> None:
    choices = choices_of(group, folders)
    for choice in value.list if hasattr(value, "list") else [value]:  # a sweep, model=tiny,small, has a list
        name = "null" if choice is None else str(choice)
        if name not in choices and not (choice is None and may_be_null):
            raise ConfigError(
                f"{group}: no {group} called `{name}`{did_you_mean(name, choices)} (choices: {', '.join(choices)})"
            )


def _check_key(key: str, schema: type, groups: Sequence[str]) -> None:
    """Refuse a dotted key that is no field of the schema."""
    node: type | None = schema
    known: list[str] = []
    for part in key.split("."):
        if node is None:
            raise ConfigError(f"{key}: unknown key; `{'.'.join(known)}` is a value, not a group of keys")
        if part == "_target_":
            raise ConfigError(f"{key}: not supported. Configs name entries of tfm's registries, never classes")
        children = _fields(node)
        if part not in children:
            prefix = "".join(f"{name}." for name in known)
            near = _nearest_key(key, prefix + part, prefix, children, schema, groups)
            raise ConfigError(f"{key}: unknown key{near or '. `--cfg` prints every key'}")
        known.append(part)
        node = children[part]


def _nearest_key(
    key: str, wrong: str, prefix: str, children: Mapping[str, Any], schema: type, groups: Sequence[str]
) -> str:
    siblings = [prefix + name for name in children] + ([] if prefix else list(groups))
    everywhere = all_keys(schema)
    same_name = [known for known in everywhere if known.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    return did_you_mean(key, same_name) or did_you_mean(wrong, siblings) or did_you_mean(key, everywhere)


def _fields(schema: type) -> dict[str, type | None]:
    """Field name → dataclass of that field, or None for a plain value; unions with None are looked through."""
    found: dict[str, type | None] = {}
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        candidates = [hints[field.name], *typing.get_args(hints[field.name])]
        is_list = typing.get_origin(hints[field.name]) is list
        nested = [hint for hint in candidates if dataclasses.is_dataclass(hint) and not is_list]
        found[field.name] = typing.cast(type, nested[0]) if nested else None
    return found


def all_keys(schema: type, prefix: str = "") -> list[str]:
    """Every dotted key that leads to a value."""
    keys: list[str] = []
    for name, nested in _fields(schema).items():
        keys += all_keys(nested, f"{prefix}{name}.") if nested else [prefix + name]
    return keys


def _refuse_strangers(config: Any, schema: type, *, root: type, prefix: str = "") -> None:
    """Refuse keys that are no field: `+model.d_modle=3` gets past Hydra even on a typed node."""
    if not isinstance(config, DictConfig) or config._is_none() or config._is_interpolation():
        return
    children = _fields(schema)
    for name in map(str, config):
        _check_key(prefix + name, root, groups=())
        nested = children[name]
        if nested is not None:
            _refuse_strangers(config._get_node(name), nested, root=root, prefix=f"{prefix}{name}.")


def _resolve(config: DictConfig) -> None:
    """Fill in each `${...}` in place; what comes from the environment stays as it is written. Raises ConfigError."""
    for parent, name, key, text in list(_texts(config, "${")):
        _refuse_resolvers(text, key)
        if VARIABLE.search(text):
            if key not in PLACES:
                _refuse_environment(key, text)
            parent[name] = VARIABLE.sub(lambda match: f"\0{match[0][2:-1]}\0", text)
    for parent, name, key, text in _texts(config, "${"):
        try:
            parent[name]  # reading is what resolves; OmegaConf's message for a whole tree does not name the key
        except OmegaConfBaseException as error:
            what = str(error).split("\n")[0].rstrip(".").replace("\0", "'")
            raise ConfigError(f"{key}={text}: {what}. Check the name after `$`") from error
    OmegaConf.resolve(config)
    for parent, name, key, text in list(_texts(config, "\0")):
        text = re.sub("\0(.*?)\0", r"${\1}", text)
        if key not in PLACES:  # by way of a reference
            _refuse_environment(key, text)
        folder_named(text)  # now is the time to say that a variable is not set
        parent[name] = _literal(text)


def _texts(config: DictConfig | ListConfig, part: str, prefix: str = "") -> Iterator[tuple[Any, Any, str, str]]:
    """Container, name in it, dotted key and text of every value that holds `part`."""
    for name in range(len(config)) if isinstance(config, ListConfig) else list(config):
        node = config._get_node(name)
        assert isinstance(node, Node)
        value = node._value()
        if isinstance(value, str) and part in value:
            yield config, name, f"{prefix}{name}", value
        elif isinstance(node, DictConfig | ListConfig) and isinstance(value, dict | list):
            yield from _texts(node, part, f"{prefix}{name}.")


def _refuse_resolvers(text: str, where: str) -> None:
    """Refuse every `${...}` but those of the environment and those that name another key."""
    if "${" in _REFERENCE.sub(" ", VARIABLE.sub(" ", text)):
        raise ConfigError(
            f"{where}={quoted(text)[1:-1]}: only ${{oc.env:NAME}} and ${{other.key}} are filled in."
            " Write the value itself"
        )


def _refuse_environment(key: str, text: str) -> NoReturn:
    raise ConfigError(
        f"{key}={text}: only {' and '.join(PLACES)} may come from the environment, as all else is written down."
        " Write the value itself"
    )


def _refuse_interpolations(value: object, key: str) -> None:
    if isinstance(value, str) and "${" in (VARIABLE.sub("", value) if key in PLACES else value):
        raise ConfigError(f"{key}: interpolation {quoted(value)} is not supported here. Write the value itself")
    children = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        _refuse_interpolations(child, f"{key}.{name}" if key else str(name))


def as_config_error(error: Exception, schema: type) -> ConfigError:
    """Hydra's and OmegaConf's many-line messages as one line that names the key."""
    cause: BaseException = error
    while not isinstance(cause, OmegaConfBaseException) and cause.__cause__ is not None:
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).split("\n")]
    named = [line.removeprefix("full_key:").strip() for line in lines if line.startswith("full_key:")]
    if named and named[0]:
        _check_key(
            named[0], schema, groups=()
        )  # an unknown key in a YAML file, in the words of one on the command line
    if not isinstance(cause, OmegaConfBaseException):
        told = [line for line in lines if line and not line.startswith(("full_key:", "object_type="))]
        return ConfigError(f"{' '.join(told).rstrip('.')}. `--cfg` prints every key with its value")
    key = cause.full_key or next(iter(named), "config")
    return ConfigError(f"{key}: {lines[0].rstrip('.')}. `--cfg` prints every key with its value")


def _literal(value: Any) -> Any:
    """`value` so that OmegaConf does not interpolate it: a file may be called `a${b}`."""
    if isinstance(value, Mapping):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return value.replace("${", "\\${") if isinstance(value, str) else value


def quoted_for_hydra(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class _StrictLoader(yaml.SafeLoader):
    """YAML without what makes it dangerous or ambiguous: aliases and repeated keys."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event: yaml.Event = self.get_event()  # type: ignore[no-untyped-call]
            _refuse_yaml(event.start_mark, "aliases are not supported. Write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen:
                _refuse_yaml(key_node.start_mark, f"key {quoted(key)} stands twice. Remove one")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _refuse_yaml(mark: Any, what: str) -> NoReturn:
    raise ConfigError(f"{mark.name}:{mark.line + 1}: {what}")


def read_yaml(path: Path) -> Any:
    """The content of a small YAML file: plain values, without aliases and repeated keys. Raises ConfigError."""
    if not path.is_file():  # opening a pipe would wait for ever
        raise ConfigError(f"{path}: not a plain file. Remove it, or give it another name")
    try:
        if path.stat().st_size > MAX_YAML_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_YAML_BYTES:,} bytes. Leave out what is no config")
        with path.open(encoding="utf-8") as file:
            return yaml.load(file, _StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = quoted(" ".join(str(error.problem).split()))[1:-1]
        raise ConfigError(f"{path}:{line}: not valid YAML: {what}. Indent with spaces, one key a line") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply. A config file has a few levels") from error
    except (yaml.YAMLError, ValueError) as error:  # numbers and dates that are none, bytes that are no text
        what = quoted(" ".join(str(error).split()))[1:-1]
        raise ConfigError(f"{path}: not valid YAML text: {what}. Write UTF-8, and quote what is no number") from error


def _check_values(value: object, path: Path, key: str = "") -> None:
    """Refuse what Hydra would act upon while it composes: classes, resolvers, and choices from the environment."""
    if isinstance(value, str) and "${" in value:
        if key.startswith("defaults"):
            raise ConfigError(f"{path}: {key}: {quoted(value)} is no choice. Name one, as in model: base")
        _refuse_resolvers(value, f"{path}: {key}")
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        if name == "_target_":
            raise ConfigError(f"{path}: {key or 'top'}: _target_: not supported. Configs never name classes")
        for text in (name, child):
            _check_values(text, path, f"{key}.{name}" if key else str(name))
