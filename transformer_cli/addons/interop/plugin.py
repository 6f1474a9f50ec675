"""What this add-on brings."""

from pathlib import Path

from transformer_cli.addons.interop.exporters.argos import Argos
from transformer_cli.addons.interop.exporters.ctranslate2 import CTranslate2Exporter
from transformer_cli.addons.interop.exporters.huggingface import HuggingFaceExporter
from transformer_cli.addons.interop.exporters.marian import MarianExporter
from transformer_cli.addons.interop.exporters.onnx import ONNX
from transformer_cli.addons.interop.keys import ExportConfig, ImportConfig
from transformer_cli.addons.interop.registries import EXPORTERS, IMPORTERS, Importer
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
        help="write a model for CTranslate2, Hugging Face, ONNX, Argos or Marian, and verify what it translates",
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


EXPORTERS.register("ctranslate2")(CTranslate2Exporter())
EXPORTERS.register("huggingface")(HuggingFaceExporter())
EXPORTERS.register("onnx")(ONNX())
EXPORTERS.register("argos")(Argos())
EXPORTERS.register("marian")(MarianExporter())


@IMPORTERS.register("hf")
def hf() -> Importer:
    """A folder of Hugging Face transformers: Marian (OPUS-MT), Pegasus as we export it, M2M-100."""
    from transformer_cli.addons.interop import huggingface_reader, m2m100

    return huggingface_reader.HuggingFaceReader({**huggingface_reader.ARCHITECTURES, "m2m_100": m2m100.M2M100})


@IMPORTERS.register("marian")
def marian() -> Importer:
    from transformer_cli.addons.interop import marian_reader

    return marian_reader.Marian()


@IMPORTERS.register("fairseq")
def fairseq() -> Importer:
    from transformer_cli.addons.interop.fairseq import FairseqReader

    return FairseqReader()


@IMPORTERS.register("opennmt")
def opennmt() -> Importer:
    from transformer_cli.addons.interop.opennmt import OpenNMTReader

    return OpenNMTReader()


@IMPORTERS.register("ctranslate2")
def ctranslate2_folder() -> Importer:
    """A folder of CTranslate2, or an unpacked package of Argos Translate."""
    from transformer_cli.addons.interop.ctranslate2_reader import CTranslate2Reader

    return CTranslate2Reader()
