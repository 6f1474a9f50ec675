"""A package of Argos Translate: a CTranslate2 model with what it needs."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.addons.interop.registries import EXPORTERS, Exporter

if TYPE_CHECKING:
    from transformer_cli.addons.interop.keys import ExportConfig
    from transformer_cli.addons.interop.publish import Pack
    from transformer_cli.addons.interop.verify import Program
    from transformer_cli.config.model import ModelConfig
    from transformer_cli.models.file import ModelFile


@EXPORTERS.register("argos")
class Argos(Exporter):
    program = "Argos Translate and LibreTranslate"
    packages = ("ctranslate2",)
    own_keys = ("quantization", "package_version", "from_name", "to_name")
    suffix = ".argosmodel"
    takes_tags = False
    place = "FILE.argosmodel the package"
    length = "Argos always divides by length^0.2"

    def max_positions(self, config: "ModelConfig") -> int | None:
        from transformer_cli.addons.interop import ctranslate2

        return ctranslate2.max_positions(config)

    def write(self, model: "ModelFile", folder: Path, config: "ExportConfig") -> "Program":
        from transformer_cli.addons.interop import argos

        argos.write(
            model,
            folder,
            quantization=config.quantization.name,
            package_version=config.package_version,
            from_name=config.from_name,
            to_name=config.to_name,
        )
        return argos.Loaded(folder, model)

    @property
    def pack(self) -> "Pack":
        from transformer_cli.addons.interop import argos

        return argos.pack_archive

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        source, target = facts["source_lang"], facts["target_lang"]
        return f"""```python
import argostranslate.package, argostranslate.translate

argostranslate.package.install_from_path("FILE.argosmodel")
print(argostranslate.translate.translate("TEXT", "{source}", "{target}"))
```

In LibreTranslate the package is installed by the same call, and the server is started again."""
