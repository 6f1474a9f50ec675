"""What lies beside an exported model: `export.json`, which tells what another program's files do not."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_cli import __version__
from transformer_cli.config import to_plain
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import CheckpointError, ConfigError, quoted
from transformer_cli.models.file import MALFORMED, ModelFile, read_json
from transformer_cli.schema import DataConfig

EXPORT_FILE = "export.json"
FORMAT = 1


@dataclass(frozen=True)
class Exported:
    """A model directory of another program. `max_positions`: tokens that a sentence may have there; None: any number.

    `data` and `fingerprint` are those of the model file.
    """

    directory: Path
    tokenizers: Tokenizers
    source_lang: str
    target_lang: str
    max_positions: int | None
    data: dict[str, Any]
    fingerprint: str


def facts_of(model: ModelFile, model_sha256: str, *, program: str, max_positions: int | None) -> dict[str, Any]:
    """What `read_export` needs of the model, and what a reader may want to know."""
    return {
        "format": FORMAT,
        "program": program,
        "tfm": __version__,
        "model_sha256": model_sha256,
        "source_lang": model.source_lang,
        "target_lang": model.target_lang,
        "step": model.step,
        "scores": model.scores,
        "max_positions": max_positions,
        "config": to_plain(model.config),
        "fingerprint": model.fingerprint,
        "data": model.data,
    }


def read_export(directory: Path, *, program: str) -> Exported:
    """Raises CheckpointError for what `tfm export` did not write for `program`."""
    file = directory / EXPORT_FILE
    if not file.is_file():
        raise CheckpointError(f"{directory}: holds no {EXPORT_FILE}. Name a folder of `tfm export {program}`")
    try:
        facts = read_json(file.read_bytes(), file)
        if facts["program"] != program:
            raise CheckpointError(
                f"{directory}: was exported for {facts['program']}, not for {program}. Use `tfm export {program}`"
            )
        languages = DataConfig(source_lang=str(facts["source_lang"]), target_lang=str(facts["target_lang"]))
        source, target = (Tokenizer((directory / f"{side}.spm").read_bytes()) for side in ("source", "target"))
        return Exported(
            directory=directory,
            tokenizers=Tokenizers(source, target),
            source_lang=languages.source_lang,
            target_lang=languages.target_lang,
            max_positions=None if facts["max_positions"] is None else int(facts["max_positions"]),
            data=dict(facts["data"]),
            fingerprint=str(facts["fingerprint"]),
        )
    except (OSError, *MALFORMED) as error:
        raise CheckpointError(
            f"{file}: damaged ({quoted(str(error))}). Write it again with `tfm export {program} --overwrite`"
        ) from error


def locate_export(checkpoint: str | list[str] | None, *, program: str) -> Exported:
    """What `--checkpoint` means where `program` is the engine."""
    if isinstance(checkpoint, list) and len(checkpoint) == 1:
        checkpoint = checkpoint[0]
    if isinstance(checkpoint, list):
        raise ConfigError(f"--checkpoint: names several, and engine={program} joins none. Name one folder")
    if checkpoint is None:
        raise CheckpointError(
            f"engine={program}: needs an exported model. Write one with `tfm export {program}`, and name its folder"
            " with --checkpoint"
        )
    return read_export(Path(checkpoint), program=program)


def sha256_of(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
