"""`export.json` beside an exported model: what the files of the other program do not contain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_cli.addons.interop.export_file import EXPORT_FORMAT, check_format, check_hashes
from transformer_cli.config.compose import to_plain
from transformer_cli.config.data import DataConfig
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault, quoted
from transformer_cli.models.exported import Exported
from transformer_cli.models.file import ModelFile, read_share
from transformer_cli.models.header import MALFORMED, read_json
from transformer_cli.models.locate import EXPORT_FILE
from transformer_cli.version import __version__

MODEL_BIN = "model.bin"  # of CTranslate2
PACKED = ".tokenizer"  # ending of a file with a tokenizer that is more than a SentencePiece model


def facts_of(model: ModelFile, model_sha256: str, *, program: str, max_positions: int | None) -> dict[str, Any]:
    """What `read_export` needs of the model, and its provenance."""
    return {
        "format": EXPORT_FORMAT,
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
        "multi_sentence_share": model.multi_sentence_share,
        "translates_letterless": model.translates_letterless,
        "averaged": model.averaged,
        "provenance": model.provenance,
        "tags": list(model.tokenizers.source.tags),
        "languages": _languages(model.tokenizers),
        "language_last": bool((packed := model.tokenizers.source.packed) and packed.language_last),
        "parameters": sum(weight.numel() for weight in model.weights.values()),
        "vocabularies": {
            "source": len(model.tokenizers.source),
            "target": len(model.tokenizers.target),
            "joint": model.tokenizers.joint,
        },
    }


def _languages(tokenizers: Tokenizers) -> list[str]:
    """Two pieces that name languages, for the example of a model card: those of the model, or two of many."""
    sides = (tokenizers.source.packed, tokenizers.target.packed)
    of_sides = [[*side.prefix, *side.languages] for side in sides if side is not None]
    return [of_sides[0][0], of_sides[1][-1]] if len(of_sides) == 2 and all(of_sides) else []


@dataclass(frozen=True)
class ExportContents:
    """The files of an export that an engine reads."""

    weights: Path  # whose hash names the model
    tokenizers: Tokenizers


def ctranslate2_contents(directory: Path, facts: Mapping[str, Any]) -> ExportContents:
    source, target = (read_tokenizer(directory / f"{side}.spm", facts) for side in ("source", "target"))
    return ExportContents(directory / MODEL_BIN, Tokenizers(source, target))


def read_export(
    directory: Path,
    *,
    program: str,
    contents: Callable[[Path, Mapping[str, Any]], ExportContents] = ctranslate2_contents,
) -> Exported:
    """Raises CheckpointError for what `tfm export` did not write for `program`, or what has changed since."""
    file, again = directory / EXPORT_FILE, f"Write it again with `tfm export {program}`"
    if not file.is_file():
        what = f"holds no {EXPORT_FILE}" if directory.is_dir() else "no such folder"
        raise CheckpointError(f"{directory}: {what}. Name a folder of `tfm export {program}`")
    try:
        facts = read_json(file.read_bytes(), file)
        check_format(facts, directory)
        if facts["program"] != program:
            made_for = quoted(str(facts["program"]))[1:-1]
            raise CheckpointError(
                f"{directory}: was exported for {made_for}, not for {program}. Use `tfm export {program}`"
            )
        check_hashes(directory, facts["files"], again)
        return _unpack(directory, facts, contents(directory, facts))
    except OSError as error:
        raise EnvironmentFault(
            f"{error.filename or file}: {error.strerror}. Check the disk and the file's permissions"
        ) from error
    except (ConfigError, *MALFORMED) as error:
        raise CheckpointError(f"{file}: damaged ({quoted(f'{type(error).__name__}: {error}')}). {again}") from error


def _unpack(directory: Path, facts: Mapping[str, Any], contents: ExportContents) -> Exported:
    """`facts` as an Exported; raises what MALFORMED lists for malformed ones."""
    most = facts["max_positions"]
    if most is not None and (type(most) is not int or most < 1):
        raise ValueError(f"max_positions is {most}")
    languages = DataConfig(source_lang=str(facts["source_lang"]), target_lang=str(facts["target_lang"]))
    return Exported(
        directory=directory,
        weights=contents.weights,
        tokenizers=contents.tokenizers,
        source_lang=languages.source_lang,
        target_lang=languages.target_lang,
        max_positions=most,
        data=dict(facts["data"]),
        fingerprint=str(facts["fingerprint"]),
        multi_sentence_share=read_share(facts.get("multi_sentence_share")),
        translates_letterless=facts.get("translates_letterless") is True,
    )


def read_tokenizer(file: Path, facts: Mapping[str, Any]) -> Tokenizer:
    """The SentencePiece model `file`, or the packed tokenizer that stands beside or in place of it."""
    if (packed := file.with_suffix(PACKED)).name in facts["files"]:
        file = packed
    if file.name not in facts["files"]:
        raise ValueError(f"files has no {file.name}")
    try:
        return Tokenizer(file.read_bytes())
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from error
