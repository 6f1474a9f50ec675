"""An .npz for Marian, and for what is made from its models."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.addons.interop.registries import EXPORTERS, Exporter

if TYPE_CHECKING:
    from transformer_cli.addons.interop.keys import ExportConfig
    from transformer_cli.addons.interop.verify import Program
    from transformer_cli.config.model import ModelConfig
    from transformer_cli.models.file import ModelFile


@EXPORTERS.register("marian")
class MarianExporter(Exporter):
    program = "Marian"
    packages = ("ctranslate2",)
    takes_tags = False
    length = "Marian's normalize is another formula, length^normalize, and is 0.6 in decoder.yml"

    def max_positions(self, config: "ModelConfig") -> int | None:
        from transformer_cli.addons.interop import marian

        return marian.max_positions(config)

    def write(self, model: "ModelFile", folder: Path, config: "ExportConfig") -> "Program":
        from transformer_cli.addons.interop import marian

        marian.write(model, folder)
        return marian.Loaded(folder, model)

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        return "`marian-decoder -c FOLDER/decoder.yml < TEXT`"
