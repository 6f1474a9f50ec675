"""The formats of other programs: importers read one of their models, exporters write one of ours.

An importer or an exporter registers an entry here; tests/plugins/test_format_plugins.py has
one of each.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, place_of

if TYPE_CHECKING:
    from transformer_cli.addons.interop.foreign import Imported, ReadOptions
    from transformer_cli.addons.interop.publish import Pack
    from transformer_cli.addons.interop.verify import Program
    from transformer_cli.addons.interop.verify_labels import LabelProgram
    from transformer_cli.config.model import ModelConfig
    from transformer_cli.models.file import ModelFile


class Importer(Protocol):
    """Reads the models of one format."""

    options: Sequence[str]  # those of the flags --vocabulary and --segmenter that are read; others are refused

    def recognises(self, path: Path) -> bool:
        """Whether `path`, a file or a folder that exists, is of this format; reads little, and raises nothing."""

    def read(self, path: Path, options: "ReadOptions") -> "Imported":
        """Raises CheckpointError for damaged files and for variants that cannot be expressed, which it names."""

    # One that reads models of the hub also has files_of(names): of the files of a folder, those that it reads; none
    # where the folder is not of its format. Only these are downloaded.


class Verdict(Protocol):
    """What a verification found."""

    @property
    def lines(self) -> int:
        """How many were compared."""

    @property
    def holds(self) -> bool:
        """Whether the model may be published."""

    def as_dict(self) -> dict[str, Any]:
        """The record beside the model."""

    def lines_of_text(self) -> list[str]:
        """Lines for people."""


class Exporter:
    """Writes the format of one program, and loads what it has written, to be verified."""

    program: str  # its name for people
    kinds: tuple[str, ...] = ("transformer",)  # of models that it writes
    packages: tuple[str, ...]  # that are needed; the first one runs the model
    own_keys: tuple[str, ...] = ()  # keys of ExportConfig that only some formats follow
    length = ""  # how its search normalizes for length, for a model whose own length penalty, {own}, is left behind
    suffix: str | None = None  # of a file that the folder may be packed into by `pack`
    takes_tags = True  # whether a text can have tags there
    place = "FOLDER the folder of this file"  # what stands for the model in `usage`
    has_hub_header = False  # whether its model card begins with what the Hugging Face Hub reads
    n_lines = 64  # that are compared
    quantization: str | None = None  # number format of the weights, where a format has one alone

    def max_positions(self, config: "ModelConfig") -> int | None:
        """Tokens that a sentence may have there; None: any number. Raises ConfigError for what it cannot express."""
        return None

    def write(self, model: "ModelFile", folder: Path, config: Any) -> "Program | LabelProgram":
        """Write into an empty folder, and load it as a user would: a LabelProgram of a model whose task has labels.

        `config` is the ExportConfig; its `options` has all settings of the dataclass that the exporter registered.
        """
        raise NotImplementedError

    def write_with(
        self, model: "ModelFile", folder: Path, config: Any, lines: Sequence[str]
    ) -> "Program | LabelProgram":
        """`write`, of a format that is calibrated on `lines`, which will be compared as well."""
        return self.write(model, folder, config)

    def verify(self, model: "ModelFile", program: Any, lines: Sequence[str], config: Any) -> Verdict:
        """Compare what `write` has loaded with the model; otherwise than by `addons.interop.verify`, if need be."""
        if model.task.has_labels:
            from transformer_cli.addons.interop.verify_labels import verify_labels

            return verify_labels(model, program, lines)
        from transformer_cli.addons.interop.verify import verify

        return verify(model, program, lines, is_float32=config.quantization.name == "float32")

    @property
    def pack(self) -> "Pack | None":
        return None

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        """How TEXT is translated or labelled, for a card; `is_packed`: its tokenizer is no SentencePiece model."""
        return ""


def _importer(name: str, entry: Any) -> Callable[[], Importer]:
    if not callable(entry):
        raise ConfigError(
            f"{place_of(entry)}: an importer is a class with recognises(path) and read(path, options). Correct it"
        )
    factory: Callable[[], Importer] = entry
    return factory


def _exporter(name: str, entry: Any) -> Exporter:
    if isinstance(entry, type) and issubclass(entry, Exporter):
        return entry()
    raise ConfigError(f"{place_of(entry)}: an exporter is a subclass of Exporter. Correct it")


READING = 3  # raised when an importer reads otherwise, so that what an earlier one has read is read again
IMPORTED = "imported"  # the folder in the user's cache, of imports that are not kept beside the original
IMPORTERS: Registry[Callable[[], Importer]] = Registry("importer", adopt=_importer)
EXPORTERS: Registry[Exporter] = Registry("exporter", adopt=_exporter, options_key="options")
# Other names that a command line may have for them.
IMPORT_ALIASES = {"huggingface": "hf", "argos": "ctranslate2"}
EXPORT_ALIASES = {"hf": "huggingface"}


def import_formats() -> list[str]:
    return [*IMPORTERS.names(), *IMPORT_ALIASES]


def export_formats() -> list[str]:
    return [*EXPORTERS.names(), *EXPORT_ALIASES]
