"""The YAML files that a command line chooses, and the settings that follow from it, as the recipe for the corpus."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from transformer_cli.command import COMMANDS
from transformer_cli.config.data import DataConfig
from transformer_cli.config.interpolation import refuse_resolvers
from transformer_cli.config.keywords import KEYWORDS
from transformer_cli.config.overrides import parse_override
from transformer_cli.config.tasks import Task, all_tasks
from transformer_cli.config.text_values import read_as_written
from transformer_cli.config.yaml_files import choices_of, config_dir, defaults_of, groups_of
from transformer_cli.errors import ConfigError, quoted

TRAINED_AS_IN_THE_PAPER = ("wmt14_en_de", "wmt14_en_fr")  # corpora with the defaults of the schema
_BY_TEXT, _OF_FINE_TUNING = "auto", "files"  # a model that is trained further has its sizes, and rates of its own
OF_ADAM = ("adam", "adamw", "adafactor")  # optimizers with one rate for fine-tuning: their steps are as large
FOLD = "data.fold"
_WITHOUT_TEST = {"data.test": "null", "data.test_tags": "[]"}  # as in a corpus that names no test set

_Choice = tuple[str, str]  # a group, and the name of a file of it


def recipe_by_task(command: str, overrides: Sequence[str], user_dir: Path | None) -> list[str]:
    """`recipe=…` for a corpus without a recipe of its own name: the recipe for its task.

    Nothing where the command line names a recipe, where one of our experiments chooses the corpus, and for the paper's
    corpora. Raises ConfigError for a sweep over corpora with different recipes.
    """
    given = [text.lstrip("+~").partition("=")[0] for text in overrides]
    if not COMMANDS[command].recipe_by_task or "recipe" in given:
        return []
    choices = chosen_files(command, overrides)
    corpora = [name for _, name in choices["data"]]
    is_fine_tuning = _initial_model(overrides) is not None
    for (group, name), content in read_chosen_files(choices["experiment"], user_dir).items():
        if group != "experiment":
            continue
        is_fine_tuning |= (
            isinstance(content, dict) and isinstance(content.get("init"), dict) and "from" in content["init"]
        )
        named = [corpus for kind, corpus in _named_in(content, group) if kind == "data"]
        if named and (config_dir() / group / f"{name}.yaml").is_file():
            return []
        corpora = named if named and "data" not in given else corpora
    recipes = {_recipe_of(name, overrides, user_dir) for name in corpora}
    if len(recipes) > 1:
        raise ConfigError(
            f"data={','.join(corpora)}: these take different recipes. Name one with recipe=, or start them one by one"
        )
    instead = {f"recipe={_BY_TEXT}": f"recipe={_OF_FINE_TUNING}"} if is_fine_tuning else {}
    return [instead.get(recipe, recipe) for recipe in recipes if recipe]


def _recipe_of(corpus: str, overrides: Sequence[str], user_dir: Path | None) -> str:
    """The override that chooses the recipe of a corpus's task, or that none is chosen.

    Nothing for the paper's corpora, and where the recipe of the corpus's own name is used.
    """
    contents = read_chosen_files([("data", corpus)], user_dir).values()
    task = _task_of(overrides, contents)
    if task is None or corpus in TRAINED_AS_IN_THE_PAPER:
        return ""
    recipe = task.recipe_of(_n_columns(overrides, contents))
    choices = choices_of("recipe", [folder / "recipe" for folder in (config_dir(), user_dir) if folder is not None])
    of_tasks = {_OF_FINE_TUNING, *(one.recipe for one in all_tasks())}
    if recipe == corpus or (corpus in choices and corpus not in of_tasks):
        return ""
    if recipe is not None and recipe not in choices:
        raise ConfigError(
            f"data.task={task.name}: its recipe `{recipe}` is no file of a folder recipe. Name the folder above it with"
            f" --config-dir, or another recipe with recipe= (choices: {', '.join(choices)})"
        )
    return f"recipe={recipe}" if recipe is not None else "~recipe"


def _task_of(overrides: Sequence[str], contents: Iterable[Any]) -> Task | None:
    """The task of a corpus whose files have these `contents`; None for an unknown one, which is refused later."""
    names = [text.partition("=")[2] for text in overrides if text.startswith("data.task=")]
    names += [content["task"] for content in contents if isinstance(content, dict) and "task" in content]
    name = names[0] if names else DataConfig.task
    return next((task for task in all_tasks() if task.name == name), None)


def fine_tuning_default(command: str, overrides: Sequence[str], user_dir: Path | None) -> list[str]:
    """`fine_tuning=default` where a whole model is trained further, and nothing on the command line sets its rates.

    Rates are set by the schedule, and by recipes, experiments and some optimizers, which have rates of their own. A
    classifier or tagger takes an encoder and trains a new output layer, so its recipe stays.
    """
    parsed = [
        one for one in map(parse_override, overrides) if one.key_or_group != "optimizer" or one.value() not in OF_ADAM
    ]
    names = {one.key_or_group.partition(".")[0] for one in parsed}
    if "fine_tuning" not in groups_of(command) or names & {
        "schedule",
        "optimizer",
        "recipe",
        "experiment",
        "fine_tuning",
    }:
        return []
    if _initial_model(overrides) is None:
        return []
    corpora = chosen_files(command, overrides)["data"]
    tasks = [_task_of(overrides, read_chosen_files([corpus], user_dir).values()) for corpus in corpora]
    return ["fine_tuning=default"] if all(task is not None and not task.has_labels for task in tasks) else []


def _initial_model(overrides: Sequence[str]) -> Any:
    """The value of init.from, None where it is not given."""
    names = ("init.from", KEYWORDS["init.from"])
    return next((one.value() for one in map(parse_override, overrides) if one.key_or_group in names), None)


def _n_columns(overrides: Sequence[str], contents: Iterable[Any]) -> int:
    """How many columns of a table are selected: with three, there are two texts to classify together."""
    given = [override.value() for override in map(parse_override, overrides) if override.key_or_group == "data.columns"]
    given += [content["columns"] for content in contents if isinstance(content, dict) and "columns" in content]
    return len(given[0]) if given and isinstance(given[0], list) else 0


def chosen_files(command: str, overrides: Sequence[str]) -> dict[str, list[_Choice]]:
    """The files that are chosen of each group of a command: one, none, or those of a sweep."""
    names: dict[str, list[Any]] = {group: [choice] for group, choice in defaults_of(command).items()}
    for override in map(parse_override, overrides):
        if override.key_or_group in names:
            value: Any = override.value()
            names[override.key_or_group] = list(value.list) if hasattr(value, "list") else [value]
    return {group: [(group, str(name)) for name in found if name is not None] for group, found in names.items()}


def read_chosen_files(choices: Sequence[_Choice], user_dir: Path | None) -> dict[_Choice, Any]:
    """The content of the files that are chosen, of those that they name, and of the recipes of corpora among them.

    The user's are read strictly, and no other file of `user_dir` is. Raises ConfigError naming file and line.
    """
    found: dict[_Choice, Any] = {}
    waiting = list(choices)
    while waiting:
        group, name = choice = waiting.pop()
        ours = config_dir() / group / f"{name}.yaml"
        theirs = user_dir / group / f"{name}.yaml" if user_dir is not None else None
        is_theirs = theirs is not None and os.path.lexists(theirs)
        if choice in found or "${" in name or not (is_theirs or ours.is_file()):
            continue
        found[choice] = content = read_as_written(theirs if theirs is not None and is_theirs else ours, group)
        if theirs is not None and is_theirs:
            _check_values(content, theirs)
            if ours.is_file() and content != read_as_written(ours, group):
                raise ConfigError(f"{theirs}: tfm has a {group} of this name, which is the one chosen. Rename the file")
        waiting += [("recipe", name)] if group == "data" else []
        waiting += _named_in(content, group)
    return found


def _named_in(content: Any, group: str) -> list[_Choice]:
    """The files that the defaults list of a file of `group` names."""
    named: list[_Choice] = []
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


def _check_values(value: object, path: Path, key: str = "") -> None:
    """Refuse what Hydra would evaluate while it composes: classes, resolvers, and choices from the environment."""
    if isinstance(value, str) and "${" in value:
        if key.startswith("defaults"):
            raise ConfigError(f"{path}: {key}: {quoted(value)} is no choice. Name one, as in model: base")
        refuse_resolvers(value, f"{path}: {key}")
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, child in children:
        if name == "_target_":
            raise ConfigError(f"{path}: {key or 'top'}: _target_: not supported. Configs never name classes")
        for text in (name, child):
            _check_values(text, path, f"{key}.{name}" if key else str(name))


def without_test_set(overrides: Sequence[str]) -> list[str]:
    """Further overrides where `overrides` have a fold: no test set that the file of the corpus names.

    A key that the user gives stays as it is given, and is refused if it names a test set.
    """
    given = {one.key_or_group: one for one in map(parse_override, overrides)}
    if FOLD not in given or given[FOLD].value() is None:
        return []
    return [f"{key}={value}" for key, value in _WITHOUT_TEST.items() if key not in given]
