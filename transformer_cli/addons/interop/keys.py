"""Keys of `tfm export` and `tfm import`."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from transformer_cli.addons.interop.registries import (
    EXPORT_ALIASES,
    EXPORTERS,
    IMPORT_ALIASES,
    export_formats,
    import_formats,
)
from transformer_cli.config.checks import check_file_name, model_names
from transformer_cli.config.fields import CHECKPOINT, OVERWRITE, PLUGINS, RUNS, key
from transformer_cli.config.shared import LICENSE, SCORES
from transformer_cli.errors import ConfigError


class Quantization(Enum):
    """Number formats of CTranslate2's weights."""

    float32 = "float32"
    int8 = "int8"
    int8_float32 = "int8_float32"  # as int8, but always with float32 activations
    int8_float16 = "int8_float16"
    int8_bfloat16 = "int8_bfloat16"
    int16 = "int16"
    float16 = "float16"
    bfloat16 = "bfloat16"


@dataclass
class ExportConfig:
    """`tfm export`."""

    format: str | None = key(None, "Program that the model is written for.", choices=export_formats, word=True)
    checkpoint: Any = key(None, CHECKPOINT, path=True, flag="--checkpoint", repeated=True)
    runs: str = key("runs", RUNS, path=True)
    output: str | None = key(
        None,
        "Folder for the exported model, or for argos FILE.argosmodel; written whole or not at all.",
        path=True,
        flag="--output",
    )
    overwrite: bool = key(False, "Replace an earlier export.", flag="--overwrite")
    quantization: Quantization = key(
        Quantization.float32, "Number format of the weights. ctranslate2 and argos only.", flag="--quantization"
    )
    license: str | None = key(None, LICENSE, flag="--license")
    scores: str | None = key(None, SCORES, path=True, flag="--scores")
    package_version: str = key("1.0", "Version of the package. argos only.", flag="--package-version")
    from_name: str | None = key(
        None, "Name of the source language; unset: by its code. argos only.", flag="--from-name"
    )
    to_name: str | None = key(None, "Name of the target language; unset: by its code. argos only.", flag="--to-name")
    options: dict[str, Any] = key({}, "Settings of an exporter that a plugin registers.", entry="format")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.checkpoint = model_names(self.checkpoint)
        self.format = EXPORT_ALIASES.get(self.format or "", self.format)
        self.check_own_keys()
        if not re.fullmatch(r"[0-9A-Za-z]+([.+-][0-9A-Za-z]+)*", self.package_version):
            raise ConfigError(f"--package-version {self.package_version}: no version. Write one as 1.0")

    def check_own_keys(self) -> None:
        """Raise ConfigError for a key that the format does not follow; a plugin's is known after it is imported."""
        if self.format is not None and self.format not in EXPORTERS.names():
            return
        followed = EXPORTERS[self.format].own_keys if self.format is not None else ("quantization",)
        if self.quantization is not Quantization.float32 and "quantization" not in followed:
            raise ConfigError(
                f"--quantization {self.quantization.name}: {self.format} keeps float32."
                " Leave it out, or export ctranslate2"
            )
        for name, value in (("from_name", self.from_name), ("to_name", self.to_name)):
            if value is not None and name not in followed:
                raise ConfigError(f"--{name.replace('_', '-')} {value}: for the format argos only. Leave it out")


@dataclass
class ImportConfig:
    """`tfm import`."""

    format: str | None = key(None, "Format of the model; unset: recognised.", choices=import_formats, word=True)
    path: str | None = key(None, "Folder or file of the model to import.", path=True, word=True)
    output: str | None = key(None, "File for the model, written whole or not at all.", path=True, flag="--output")
    overwrite: bool = key(False, OVERWRITE, flag="--overwrite")
    source_lang: str | None = key(
        None, "Language that the model translates from; unset: what its files say.", flag="--source-lang"
    )
    target_lang: str | None = key(
        None, "Language that the model translates into; unset: what its files say.", flag="--target-lang"
    )
    vocabulary: list[str] = key(
        [],
        "Vocabulary file, or that of the source and of the target; unset: those beside.",
        path=True,
        flag="--vocabulary",
    )
    segmenter: list[str] = key(
        [],
        "SentencePiece model or BPE codes, or those of the source and of the target; unset: those beside.",
        path=True,
        flag="--segmenter",
    )
    lines: str | None = key(
        None,
        "File of source lines on which both programs are compared; unset: random pieces.",
        path=True,
        flag="--lines",
    )
    compare: bool = key(True, "Compare with the original program, and write nothing if it says something else.")
    plugins: list[str] = key([], PLUGINS)

    def __post_init__(self) -> None:
        self.format = IMPORT_ALIASES.get(self.format or "", self.format)
        for name, files in (("vocabulary", self.vocabulary), ("segmenter", self.segmenter)):
            if len(files) > 2:
                raise ConfigError(f"--{name}: names {len(files)} files. Name one, or that of each language")
        if self.lines is not None and not self.compare:
            raise ConfigError(f"--lines {self.lines}: for a comparison, and compare=false. Leave one of them out")
        for name, language in (("source_lang", self.source_lang), ("target_lang", self.target_lang)):
            if language is not None:
                check_file_name(name, language)
