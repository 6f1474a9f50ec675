"""engine=firefox: folders of `tfm export firefox` as they are, and model files, which are converted once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from transformer_cli.addons.interop import firefox
from transformer_cli.addons.interop.conversions import kept_conversion
from transformer_cli.addons.interop.exported import ExportContents, read_export
from transformer_cli.addons.interop.exporters.firefox import FirefoxExporter
from transformer_cli.addons.interop.firefox_engine import (
    ENGINE_FIREFOX,
    FIREFOX,
    FIREFOX_ALONE,
    FIREFOX_WITH_TORCH,
    FirefoxEngine,
)
from transformer_cli.addons.interop.firefox_library import PACKAGE, FirefoxFiles
from transformer_cli.addons.interop.marian_vocabulary import read_vocabulary
from transformer_cli.addons.interop.registries import Verdict
from transformer_cli.addons.interop.run_export import refuse_tags, text_without_tags
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import ModelConfig
from transformer_cli.data.hashes import file_sha256
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.engine import check_supported
from transformer_cli.decoding.engines import EngineKind
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.shortlist import Shortlist
from transformer_cli.decoding.torch_engine import torch_engine
from transformer_cli.decoding.training_text import training_text
from transformer_cli.errors import CheckpointError, ConfigError
from transformer_cli.extras import imported
from transformer_cli.logs import LOGGER
from transformer_cli.models.exported import Exported
from transformer_cli.models.file import ModelFile
from transformer_cli.models.locate import EXPORT_FILE, exported_for


class FirefoxKind(EngineKind):
    """One model, of a file or of an export."""

    own_format = "was exported for Firefox's engine"
    own_arithmetic = True

    def recognises(self, folder: Path, *, is_chosen: bool) -> bool:
        program = exported_for(folder)
        damaged = (folder / firefox.CONFIG).exists() or ((folder / EXPORT_FILE).exists() and program != "huggingface")
        return program == FIREFOX or (is_chosen and damaged)

    def read(self, folder: Path, decode: DecodeConfig, options: TranslateOptions) -> Exported:
        check_supported(FIREFOX_ALONE, decode, options)
        return read_folder(folder)

    def check(self, n_models: int, decode: DecodeConfig, options: TranslateOptions) -> None:
        if n_models > 1:
            raise ConfigError(f"--checkpoint: names several, and {ENGINE_FIREFOX} joins none. Name one")
        check_supported(FIREFOX_WITH_TORCH, decode, options)
        imported(PACKAGE, needs=ENGINE_FIREFOX)

    def open(
        self,
        paths: Sequence[Path],
        models: Sequence[ModelFile | Exported],
        decode: DecodeConfig,
        device: torch.device,
        *,
        options: TranslateOptions,
        parallel: bool,
    ) -> FirefoxEngine:
        (model,) = models
        check_supported(FIREFOX_ALONE if isinstance(model, Exported) else FIREFOX_WITH_TORCH, decode, options)
        if device.type != "cpu":
            LOGGER.info("%s: computes on the CPU, as it has no device=%s", ENGINE_FIREFOX, device.type)
        exported = model if isinstance(model, Exported) else kept_conversion(paths[0], _conversion(model, decode))
        return FirefoxEngine(
            _files_of(exported.directory),
            model.tokenizers,
            text=training_text([model]),
            parallel=parallel,
            with_torch=None if isinstance(model, Exported) else lambda: torch_engine([model], decode, device),
        )


def _conversion(model: ModelFile, decode: DecodeConfig) -> "FirefoxConversion":
    """The conversion with the lists of decode.shortlist. Raises CheckpointError for those of another model."""
    if decode.shortlist is None:
        return FirefoxConversion()
    path = Path(decode.shortlist)
    shortlist = Shortlist.read(path, model.tokenizers, (model.source_lang, model.target_lang))
    return FirefoxConversion(shortlist, file_sha256(path))


@dataclass(frozen=True)
class FirefoxConversion:
    """What `tfm export firefox` writes."""

    shortlist: Shortlist | None = None
    shortlist_sha256: str = ""
    engine: str = FIREFOX
    program: str = "Firefox's engine"
    package: str = PACKAGE
    quantization: str = "int8"

    @property
    def variant(self) -> str:
        return self.quantization if self.shortlist is None else f"{self.quantization}-{self.shortlist_sha256[:16]}"

    def check(self, config: ModelConfig) -> None:
        firefox.check(config)

    def max_positions(self, config: ModelConfig) -> int | None:
        return None

    def read(self, directory: Path) -> Exported:
        return read_folder(directory)

    def write(self, path: Path, model: ModelFile, folder: Path) -> tuple[str, Verdict]:
        refuse_tags(model, ENGINE_FIREFOX, "Use engine=torch")
        lines, whose = text_without_tags(model, path, FirefoxExporter.n_lines)
        return whose, firefox.write(model, folder, lines, self.shortlist).verified(lines)


def read_folder(directory: Path) -> Exported:
    """Raises CheckpointError for what `tfm export firefox` did not write, or what has changed since."""
    return read_export(directory, program=FIREFOX, contents=_contents)


def _files_of(directory: Path) -> FirefoxFiles:
    return FirefoxFiles.of(directory, [path.name for path in directory.iterdir()])


def _contents(directory: Path, facts: Mapping[str, Any]) -> ExportContents:
    files = FirefoxFiles.of(directory, list(facts["files"]))
    sizes = facts["vocabularies"]
    source, target = (
        _tokenizer(path, int(sizes[side])) for side, path in (("source", files.source), ("target", files.target))
    )
    return ExportContents(files.model, Tokenizers(source, target))


def _tokenizer(path: Path, size: int) -> Tokenizer:
    """A vocabulary of ours, or of Marian's, which has no padding."""
    try:
        return Tokenizer(path.read_bytes())
    except CheckpointError:
        pass
    try:
        return read_vocabulary(path, size, None).tokenizer
    except CheckpointError as error:
        raise ValueError(str(error)) from error
