"""What this add-on brings; importers, and each exporter in a module of its own, register themselves."""

from pathlib import Path

from transformer_cli.addons.interop import exporters, importers  # noqa: F401
from transformer_cli.addons.interop.keys import ExportConfig, ImportConfig
from transformer_cli.command import Command, register
from transformer_cli.config.shared import ENGINES
from transformer_cli.decoding.engines import EngineKind
from transformer_cli.models.registries import CARDS, DESCRIBERS, FOREIGN_MODELS, Card, Described


def _export(config: ExportConfig) -> None:
    from transformer_cli.addons.interop.run_export import run

    run(config)


register(
    Command(
        "export",
        help="write a model for CTranslate2, Hugging Face, ONNX, Argos, Marian or Firefox, and verify it",
        example="tfm export ctranslate2 --output model.ct2 --quantization int8",
        schema=ExportConfig,
        run=_export,
    )
)


def _import(config: ImportConfig) -> None:
    from transformer_cli.addons.interop.run_import import run

    run(config)


register(
    Command(
        "import",
        help="read a model of Hugging Face, Marian, fairseq, OpenNMT-py or CTranslate2, and verify that it is the same",
        example="tfm import hf opus-mt-en-de --output model.safetensors",
        schema=ImportConfig,
        run=_import,
        needs_word="Name the folder or file of the model",
    )
)


@ENGINES.register("ctranslate2")
def ctranslate2() -> EngineKind:
    from transformer_cli.addons.interop.ctranslate2_kind import CTranslate2Kind

    return CTranslate2Kind()


@ENGINES.register("firefox")
def firefox() -> EngineKind:
    from transformer_cli.addons.interop.firefox_kind import FirefoxKind

    return FirefoxKind()


@CARDS.register("markdown")
def markdown_card() -> Card:
    from transformer_cli.addons.interop.model_card import MarkdownCard

    return MarkdownCard()


@DESCRIBERS.register("export")
def export(path: Path) -> Described | None:
    from transformer_cli.addons.interop.export_file import export_facts, is_archive
    from transformer_cli.addons.interop.model_card import export_rows
    from transformer_cli.models.facts import checked_facts
    from transformer_cli.models.locate import EXPORT_FILE

    if not ((path / EXPORT_FILE).is_file() or is_archive(path)):
        return None
    facts = checked_facts(export_facts(path), path)
    return Described(facts, export_rows(facts))


@FOREIGN_MODELS.register("imported")
def foreign_model_file(path: Path) -> Path | None:
    from transformer_cli.addons.interop import kept_imports

    return kept_imports.imported_file(path)
