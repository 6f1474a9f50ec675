"""`tfm import`: another program's model as a model file of ours, compared with the original before it is written."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.importing import import_model, read
from transformer_cli.addons.interop.keys import ImportConfig
from transformer_cli.addons.interop.registries import IMPORTERS
from transformer_cli.config.checks import check_choice
from transformer_cli.data.lines import read_lines
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.logs import LOGGER
from transformer_cli.models.locate import address_in
from transformer_cli.standard_streams import require_stdout
from transformer_cli.text_io import check_output

_MOST_LINES = 2000  # of --lines: the original translates each twice


def run(config: ImportConfig) -> None:
    """Write `config.output`, and print what was compared. Raises TfmError, and then writes nothing."""
    require_stdout("what was compared")
    if config.path is None:
        raise ConfigError("tfm import: no model given. Name its folder or file")
    if config.format is not None:
        check_choice("format", config.format, IMPORTERS.names())  # now that plugins are imported
    if config.output is None:
        raise ConfigError("--output: not given. Name the file for the model, as model.safetensors")
    output = Path(config.output)
    check_output(output, "--output", {"--lines": config.lines}, overwrite=config.overwrite)
    lines = None if config.lines is None else _lines_of(Path(config.lines))
    options = ReadOptions(
        source_lang=config.source_lang,
        target_lang=config.target_lang,
        vocabularies=[Path(name) for name in config.vocabulary],
        segmenters=[Path(name) for name in config.segmenter],
    )
    with _original(config.path, config.format) as (path, facts):
        if output.exists() and (output.samefile(path) or (path.is_dir() and output.resolve().parent == path.resolve())):
            raise ConfigError(f"{output}: belongs to the model to import. Choose another --output")
        imported = read(path, config.format, options)
        outcome = import_model(
            imported.with_provenance(facts) if facts else imported,
            output,
            origin=path,
            lines=lines,
            text=config.lines or "random pieces",
            replace=config.overwrite,
            compares=config.compare,
        )
    for note in imported.notes:
        LOGGER.info("%s", note)
    print(f"{output}: {config.path}, {imported.source_lang} → {imported.target_lang}")
    if outcome.comparison is None:
        print("not compared with the original (compare=false)", flush=True)
        return
    print(f"compared with {imported.program_name} on {outcome.comparison.verdict.lines} lines of {outcome.text}")
    print("\n".join(outcome.comparison.lines_of_text()), flush=True)


@contextmanager
def _original(name: str, format_name: str | None) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The files that a path or an address means, and what they say of where they come from."""
    if (found := address_in(name)) is None:
        yield Path(name), {}
        return
    address, rest = found
    with address.published(rest, format_name) as published:
        yield published.folder, published.provenance


def _lines_of(file: Path) -> Sequence[str]:
    """The first lines of a text that are not blank."""
    if not file.is_file():
        raise DataError(f"{file}: no such file. Check --lines")
    lines = list(islice((line for line in read_lines(file).texts if line.strip()), _MOST_LINES))
    if not lines:
        raise DataError(f"{file}: holds no text. Name another file with --lines")
    return lines
