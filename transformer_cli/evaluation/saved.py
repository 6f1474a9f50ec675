"""The files of translations, classes or tags of a test set that `tfm evaluate` and `tfm train` keep without --save.

Files of two test sets may have one name, as news/test.en and talks/test.en. A hidden file beside the outputs has the
hash of the input that they were made from, so that only outputs for the same input take their place.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_cli.config.evaluate import EvaluateConfig
from transformer_cli.config.tags import language_of
from transformer_cli.data.tags import split_tags
from transformer_cli.evaluation.test_sets import TestSet, reference_files
from transformer_cli.files import resolve_link, wrap_os_errors, write_whole
from transformer_cli.logs import LOGGER
from transformer_cli.models.exported import Exported
from transformer_cli.models.file import ModelFile
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.models.locate import named_path
from transformer_cli.models.runs import run_of
from transformer_cli.text_io import check_output

Scored = ModelFile | Exported
LONGEST_NAME = 200  # bytes: names of files have at most 255


@dataclass(frozen=True)
class Place:
    """A file of outputs."""

    file: Path
    input_sha256: str = ""  # of the lines with their tags; empty for --save, which the user has named
    may_replace: bool = True


def place_to_save(
    config: EvaluateConfig,
    paths: Sequence[Path],
    models: Sequence[Scored],
    test: TestSet,
    search: str = "",
    tags: Sequence[str] = (),
) -> Place | None:
    """--save, or the file in the run directory of the (first) model, or beside it.

    None, with a warning, if that cannot be written or is an input. Its name has the test set, the search and the model,
    so that only the same combination overwrites it. Where the file of that name is of another input, or of unknown
    origin, the test set has its hash in the name, too.
    """
    if config.save is not None:
        return Place(Path(config.save), may_replace=config.overwrite)
    path = named_path(config.checkpoint, paths[0])
    path = path.resolve() if isinstance(models[0], Exported) else path  # it may be called `.`
    folder, language = run_of(path) or path.parent, language_of_lines(test.sources, models[0], tags)
    sha256 = hashlib.sha256("\n".join([" ".join(tags), *test.sources]).encode()).hexdigest()

    def file_for(test_set: str) -> Path:
        parts = ["hypotheses", test_set.replace("/", "_"), search, _maker(path, folder, models), language]
        name = ".".join(filter(None, parts))
        if len(os.fsencode(name)) > LONGEST_NAME:
            ending = language if len(language) <= LONGEST_NAME // 4 else "languages"
            name = f"hypotheses.{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}.{ending}"
        return folder / name

    file = file_for(test.name)
    if not os.access(folder, os.W_OK | os.X_OK):
        LOGGER.warning("%s cannot be written, so the translations are not saved; --save names another place", file)
        return None
    if file.exists() and any(file.samefile(name) for name in (config.source, *reference_files(config)) if name):
        LOGGER.warning("%s: is an input, so the translations are not saved there; --save names another place", file)
        return None
    if file.exists() and not _is_made_from(file, sha256):
        other = file_for(f"{test.name}-{sha256[:8]}")
        LOGGER.info("%s: is of another test set than this %s, or of other tags, and stays", file, test.name)
        return Place(other, sha256)
    return Place(file, sha256)


def check_save(config: EvaluateConfig, models: Sequence[Path] = ()) -> None:
    """Refuse a --save that would fail, or destroy a file, before a model is read."""
    if config.save is None:
        return
    inputs: dict[str, str | None] = {"--source": config.source}
    inputs |= {f"--reference {name}": name for name in reference_files(config)}
    inputs |= {f"--checkpoint {path}": str(path) for path in models}
    there = {flag: name for flag, name in inputs.items() if name is not None and Path(name).exists()}
    check_output(Path(config.save), "--save", there, overwrite=config.overwrite)


def named_files(checkpoint: Any) -> list[Path]:
    """The files of --checkpoint that are model files, or folders with one."""
    names = [checkpoint] if isinstance(checkpoint, str) else checkpoint or []
    return [path for name in names for path in (Path(name), Path(name) / MODEL_FILE) if path.is_file()]


def language_of_lines(sources: Sequence[str], model: Scored, tags: Sequence[str] = ()) -> str:
    """The language that a model translates these lines into: by their tags, if it has several."""
    return directions_of_lines(sources, model, tags)[1]


def directions_of_lines(sources: Sequence[str], model: Scored, tags: Sequence[str] = ()) -> tuple[str, str]:
    """The languages that a model translates these lines from and into: by their tags, if it has several."""
    tokenizer = model.tokenizers.source
    sides = model.source_lang, model.target_lang
    if not tokenizer.tags:
        return sides
    found: set[tuple[str, str]] = set()
    for own in {tuple(split_tags(line, tokenizer.tags)[0] or tags) for line in sources if line.strip()}:
        found.add(tokenizer.direction_of(own) if tokenizer.languages else ("", language_of(own, sides[1])))
    source, target = ({pair[n] for pair in found} for n in (0, 1))
    return one_of(source) or sides[0], one_of(target) or sides[1]


def one_of(languages: set[str]) -> str:
    return next(iter(languages)) if len(languages) == 1 else ""


def _maker(path: Path, folder: Path, models: Sequence[Scored]) -> str:
    """Empty for the model of a run; else the name of a checkpoint, another model file, an export or an ensemble."""
    if len(models) > 1:
        return f"ensemble-of-{len(models)}"
    if isinstance(models[0], Exported):
        return path.name
    if path.name != MODEL_FILE:
        return path.name.removesuffix(".safetensors")
    return "" if path.parent == folder else path.parent.name  # a checkpoint of the run


def save(lines: Sequence[str], place: Place | None, doing: str) -> None:
    """Write the file of `place`, if there is to be one, whole or not at all. Raises EnvironmentFault.

    Raises TakenError where it has appeared since `check_save`, and may not be replaced.
    """
    if place is None:
        return
    with wrap_os_errors(place.file, doing):
        content = "".join(f"{line}\n" for line in lines).encode()
        write_whole(resolve_link(place.file), content, replace=place.may_replace)
        if place.input_sha256:
            write_whole(_record_of(place.file), place.input_sha256.encode())


def _record_of(file: Path) -> Path:
    return file.with_name(f".{file.name}.input")


def _is_made_from(file: Path, sha256: str) -> bool:
    """Whether its record names this input; a file without a record is of unknown origin."""
    try:
        return _record_of(file).read_bytes() == sha256.encode()
    except OSError:
        return False
