"""What a student follows from: the config of its training from the command line, and its languages from the teacher."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformer_cli.addons.students.keys import STUDENTS, DistillConfig
from transformer_cli.config.checks import check_choice
from transformer_cli.config.overrides import parse_override
from transformer_cli.config.tags import languages_of
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.models.header import read_header
from transformer_cli.models.locate import locate_models

UNKNOWN = "und"  # a language that the command line leaves to the teacher (ISO 639-2: undetermined)
_SIDES = ("source_lang", "target_lang")


def with_recipe(overrides: Sequence[str], flags: Mapping[str, Any]) -> list[str]:
    """The overrides of `tfm distill`, after the recipe, the corpus and the model of the chosen size.

    Raises ConfigError.
    """
    given = {parsed.key_or_group: parsed.value() for parsed in map(parse_override, overrides)}
    recipe, chosen = "student", []
    size = flags.get("size", given.get("size"))
    if size is not None:
        check_choice("size", str(size), list(STUDENTS))
        if "model" in given:
            raise ConfigError(f"--size {size}: and model={given['model']} are two models. Leave one of them out")
        recipe, model = STUDENTS[size]
        chosen.append(f"model={model}")
    if "recipe" not in given and "experiment" not in given:
        chosen.append(f"recipe={recipe}")
    corpus = [] if "data" in given else ["data=files"]
    languages = [f"data.{side}={UNKNOWN}" for side in _SIDES if f"data.{side}" not in given]
    return [*chosen, *corpus, *languages, *overrides]


def located(config: DistillConfig) -> list[Path]:
    """The files of the teacher. Raises CheckpointError."""
    try:
        return locate_models(config.teacher, config.runs)
    except CheckpointError as error:
        raise CheckpointError(str(error).replace("--checkpoint", "--teacher")) from error


def languages_of_student(config: DistillConfig) -> tuple[str, str]:
    """The direction of the student: what is given, else what the teacher translates.

    Raises ConfigError where that is several, or not what is given, and CheckpointError.
    """
    path = located(config)[0]
    try:
        metadata = read_header(path).metadata
    except CheckpointError as error:
        raise CheckpointError(str(error).replace("--checkpoint", "--teacher")) from error
    found = []
    for side in _SIDES:
        known, wanted = languages_of(str(metadata[side])), getattr(config.data, side)
        if wanted in known:
            found.append(str(wanted))
        elif len(known) == 1 and wanted == UNKNOWN:
            found.append(known[0])
        else:
            is_open = wanted == UNKNOWN
            raise ConfigError(
                f"data.{side}{'' if is_open else f'={wanted}'}: {'not given, and ' if is_open else ''}the teacher"
                f" {path} has {', '.join(known)}. Choose one, as data.{side}={known[0]}"
            )
    return found[0], found[1]
