"""Conversions that an engine needs: made once, verified, and kept beside the model under its hash."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from transformer_cli.addons.interop import ctranslate2
from transformer_cli.addons.interop.exported import facts_of, read_export
from transformer_cli.addons.interop.publish import publishing
from transformer_cli.addons.interop.registries import Verdict
from transformer_cli.addons.interop.verify import in_all_languages, made_up, verify
from transformer_cli.config.decode import Quantize
from transformer_cli.config.model import ModelConfig
from transformer_cli.data.hashes import file_sha256
from transformer_cli.environment import user_cache
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault
from transformer_cli.extras import imported
from transformer_cli.files import locked, make_folder, wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.models.exported import Exported
from transformer_cli.models.file import ModelFile, read_model, refuse_plugin, require
from transformer_cli.models.header import MALFORMED, read_json
from transformer_cli.models.locate import EXPORT_FILE

PROGRAM = "ctranslate2"
QUANTIZATIONS = {Quantize.none: "float32", Quantize.int8: "int8"}
_CHECKPOINTS = "checkpoints"  # of a run, which come and go: their conversions are kept in the run
N_VERIFIED_LINES = 16  # that a conversion is verified on


class Conversion(Protocol):
    """What an engine has model files converted into."""

    @property
    def engine(self) -> str:
        """The engine's name, and that of the exporter of such folders."""

    @property
    def program(self) -> str:
        """The name of the program for people."""

    @property
    def package(self) -> str:
        """The library that runs the model."""

    @property
    def quantization(self) -> str:
        """The number format."""

    @property
    def variant(self) -> str:
        """What distinguishes it from other conversions of the same model, as part of a file name."""

    def check(self, config: ModelConfig) -> None:
        """Raise ConfigError for a model that the library cannot express."""

    def max_positions(self, config: ModelConfig) -> int | None: ...

    def read(self, directory: Path) -> Exported:
        """Raises CheckpointError for a damaged folder."""

    def write(self, path: Path, model: ModelFile, folder: Path) -> tuple[str, Verdict]:
        """Write the model of the file `path` into an empty folder; the text that was compared, and what was found."""


@dataclass(frozen=True)
class CTranslate2Conversion:
    quantization: str
    engine: str = PROGRAM
    program: str = "CTranslate2"
    package: str = "ctranslate2"

    @property
    def variant(self) -> str:
        return self.quantization

    def check(self, config: ModelConfig) -> None:
        ctranslate2.check(config)

    def max_positions(self, config: ModelConfig) -> int | None:
        return ctranslate2.max_positions(config)

    def read(self, directory: Path) -> Exported:
        return read_export(directory, program=PROGRAM)

    def write(self, path: Path, model: ModelFile, folder: Path) -> tuple[str, Verdict]:
        ctranslate2.write(model, folder, quantization=self.quantization)
        lines = in_all_languages(made_up(model.tokenizers.source)[:N_VERIFIED_LINES], model.tokenizers.source)
        program = ctranslate2.Loaded(folder, model.tokenizers)
        return "random pieces", verify(model, program, lines, is_float32=self.quantization == "float32")


def conversion_of(path: Path, *, quantize: Quantize = Quantize.none) -> Exported:
    """The conversion of a model file for CTranslate2; see `kept_conversion`."""
    return kept_conversion(path, CTranslate2Conversion(QUANTIZATIONS[quantize]))


def kept_conversion(path: Path, conversion: Conversion) -> Exported:
    """The conversion of the model file `path`; it is made if it is missing or damaged.

    Conversions of earlier versions of this file are removed. Raises ConfigError for a model that the library cannot
    express, CheckpointError if the conversion does not predict the same, and EnvironmentFault.
    """
    imported(conversion.package, needs=f"engine={conversion.engine}")
    path = path.resolve()
    sha256 = file_sha256(path)
    name = f"{sha256[:16]}-{conversion.variant}"
    beside = beside_model(path) / f".{conversion.engine}"
    cache: Path | None = None
    if (found := _read(beside / name, conversion)) is not None:
        return found
    if not _is_writable(beside):
        cache = user_cache() / conversion.engine
        if (found := _read(cache / name, conversion)) is not None:
            return found
    model = read_model(path)
    require(model, path, "transformer")
    refuse_plugin(model, path, program=f"engine={conversion.engine}")
    conversion.check(model.config)
    if cache is not None:
        LOGGER.info(
            "%s: cannot be written, so the conversion for %s is kept in %s", beside.parent, conversion.program, cache
        )
    folder = cache or beside
    with _locked(folder, conversion):
        found = _read(folder / name, conversion)  # another process may have made it meanwhile
        if found is None:
            found = _convert(path, model, folder / name, conversion, sha256=sha256)
            _remove_outdated(folder, path, sha256)
    return found


def is_convertible(model: ModelFile) -> bool:
    try:
        ctranslate2.check(model.config)
    except ConfigError:
        return False
    return model.config.name == "transformer"


def beside_model(path: Path) -> Path:
    """The folder of a model file; of a checkpoint of a run, the run."""
    folder = path.parent
    return folder.parent.parent if folder.parent.name == _CHECKPOINTS else folder


def _is_writable(folder: Path) -> bool:
    existing = folder if folder.is_dir() else folder.parent
    return os.access(existing, os.W_OK | os.X_OK)


@contextmanager
def _locked(folder: Path, conversion: Conversion) -> Iterator[None]:
    with wrap_os_errors(folder, f"keep the conversion for {conversion.program}"):
        make_folder(folder)
        with locked(folder / "lock"):
            yield


def _read(directory: Path, conversion: Conversion) -> Exported | None:
    """A whole conversion; None where there is none, or a damaged one."""
    if not (directory / EXPORT_FILE).is_file():
        return None
    try:
        return conversion.read(directory)
    except CheckpointError as error:
        LOGGER.warning("%s; it is made again", error)
        return None


def _convert(path: Path, model: ModelFile, directory: Path, conversion: Conversion, *, sha256: str) -> Exported:
    if directory.is_dir() and not directory.is_symlink():
        shutil.rmtree(directory)  # damaged
    LOGGER.info("%s: converted for %s once, into %s", path, conversion.program, directory)
    max_positions = conversion.max_positions(model.config)
    facts = facts_of(model, sha256, program=conversion.engine, max_positions=max_positions)
    library = f"{conversion.package} {version(conversion.package)}"
    facts |= {"library": library, "quantization": conversion.quantization, "model": str(path)}
    with publishing(directory, facts) as folder:
        text, verdict = conversion.write(path, model, folder)
        verified: dict[str, Any] = {"text": text, **verdict.as_dict()}
        facts["verified"] = verified
        if not verdict.holds:
            raise CheckpointError(
                f"{path}: does not predict the same in {library} ({'; '.join(verdict.lines_of_text())})."
                " Use engine=torch, and please report it, with the model's config"
            )
    return conversion.read(directory)


def _remove_outdated(folder: Path, path: Path, sha256: str) -> None:
    """Conversions of what `path` was before."""
    for directory in folder.iterdir():
        if directory.is_symlink() or not (directory / EXPORT_FILE).is_file():
            continue
        try:
            facts = read_json((directory / EXPORT_FILE).read_bytes(), directory / EXPORT_FILE)
            is_outdated = facts["model"] == str(path) and facts["model_sha256"] != sha256
        except (CheckpointError, OSError, *MALFORMED):
            continue
        if is_outdated:
            try:
                shutil.rmtree(directory)
            except OSError as error:
                raise EnvironmentFault(f"{directory}: {error.strerror}. Remove it") from error
