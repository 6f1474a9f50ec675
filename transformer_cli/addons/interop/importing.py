"""Another program's model becomes a model file of ours, which is compared with the original before it gets its name.

The weights go from file to file one by one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_cli.addons.interop.comparison import ImportComparison, ask, compare_answers
from transformer_cli.addons.interop.foreign import Imported, ReadOptions
from transformer_cli.addons.interop.registries import IMPORTERS
from transformer_cli.addons.interop.verify import in_all_languages, made_up
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.files import remove_leftovers, resolve_link, wrap_os_errors, writing_whole
from transformer_cli.models.device import release_cpu_memory
from transformer_cli.models.file import ModelFile, map_model, write_lazily
from transformer_cli.models.locate import is_own_model

_DEFAULT_OPTIONS = ReadOptions()
_MARKUP = re.compile(r"__\w+__")


@dataclass(frozen=True)
class Outcome:
    """What was read, and how it was compared; None: with nothing."""

    imported: Imported
    comparison: ImportComparison | None
    text: str  # that was compared: "random pieces", or a file


def format_of(path: Path) -> str | None:
    """The format of what lies at `path`; None for what no reader recognises."""
    return next((name for name in IMPORTERS.names() if IMPORTERS[name]().recognises(path)), None)


def files_of_format(names: Sequence[str], format_name: str | None = None) -> list[str]:
    """The files of a folder elsewhere that the reader of their format needs; none for an unknown format."""
    for name in IMPORTERS.names() if format_name is None else [format_name]:
        files_of = getattr(IMPORTERS[name](), "files_of", None)
        if files_of is not None and (found := list(files_of(names))):
            return found
    return []


def read(path: Path, format_name: str | None = None, options: ReadOptions = _DEFAULT_OPTIONS) -> Imported:
    """All of a foreign model but its numbers. Raises CheckpointError, and ConfigError for an option without effect."""
    if not path.exists():
        raise CheckpointError(f"{path}: no such file or folder. Name the model")
    name = format_name or format_of(path)
    if name is None and is_own_model(path):
        raise CheckpointError(f"{path}: is a model of tfm, with nothing to import. Name it with --checkpoint")
    if name is None:
        raise CheckpointError(
            f"{path}: none of the formats that tfm reads ({', '.join(IMPORTERS.names())}) is recognised. Name one"
            " before the path, for what is missing to be said"
        )
    reader = IMPORTERS[name]()
    for option, files in (("vocabulary", options.vocabularies), ("segmenter", options.segmenters)):
        if files and option not in reader.options:
            raise ConfigError(f"--{option} {files[0]}: is not read, as a model of {name} has its own. Leave it out")
    return reader.read(path, options)


def plain(lines: Sequence[str], tags: Sequence[str] = ()) -> list[str]:
    """The lines without tags and tokens of languages.

    Some programs take them for these wherever they stand, some only once, and some leave them to the caller.
    """
    return [line for line in lines if not _MARKUP.search(line) and not any(tag in line for tag in tags)]


def import_model(
    imported: Imported,
    output: Path,
    *,
    origin: Path,
    lines: Sequence[str] | None = None,
    text: str = "random pieces",
    n_made_up: int | None = None,
    replace: bool = False,
    compares: bool = True,
) -> Outcome:
    """Write `output`, after the comparison; nothing where it does not hold, which is a CheckpointError.

    Without `lines` the two are compared on `n_made_up` lines of random pieces.
    """
    answers = None
    if compares:
        source = imported.tokenizers.source
        chosen = plain(made_up(source), source.tags)[:n_made_up] if lines is None else lines
        chosen = in_all_languages(chosen, source)
        answers = ask(imported.program, imported.tokenizers, chosen, max_positions=imported.max_positions)
        release_cpu_memory()  # the original's: its vocabulary, too, which may be large
    model = ModelFile(
        imported.config,
        imported.tokenizers,
        {},
        imported.source_lang,
        imported.target_lang,
        **{"step": 0, **imported.known},
    )
    comparison = None
    with wrap_os_errors(output, "save the model"):
        place = resolve_link(output)
        remove_leftovers(place)
        with writing_whole(place, replace=replace) as file:
            write_lazily(file, model, imported.weights)
            if answers is not None:
                comparison = compare_answers(map_model(file.temporary, imported.tokenizers), answers)
                if not comparison.holds:
                    raise CheckpointError(
                        f"{origin}: does not say the same in {imported.program_name}, so nothing was written"
                        f" ({'; '.join(comparison.lines_of_text())}). Check --vocabulary and --segmenter where given,"
                        " and that all files are of one revision, else please report it, with the model's config"
                    )
    return Outcome(imported, comparison, text)
