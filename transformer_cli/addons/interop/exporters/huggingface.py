"""A folder of Hugging Face transformers: a Marian or Pegasus model."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.addons.interop.registries import EXPORTERS, Exporter

if TYPE_CHECKING:
    from transformer_cli.addons.interop.keys import ExportConfig
    from transformer_cli.addons.interop.verify import Program
    from transformer_cli.config.model import ModelConfig
    from transformer_cli.models.file import ModelFile


@EXPORTERS.register("huggingface")
class HuggingFaceExporter(Exporter):
    program = "Hugging Face transformers"
    packages = ("transformers",)
    has_hub_header = True
    length = "The length_penalty of `generate` is another formula, length^length_penalty, and is 1 in this folder"

    def max_positions(self, config: "ModelConfig") -> int | None:
        from transformer_cli.addons.interop import huggingface

        return huggingface.max_positions(config)

    def write(self, model: "ModelFile", folder: Path, config: "ExportConfig") -> "Program":
        from transformer_cli.addons.interop import huggingface

        huggingface.write(model, folder)
        return huggingface.Loaded(folder)

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        return """```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model, tokenizer = (kind.from_pretrained("FOLDER") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
ids = model.generate(**tokenizer(["TEXT"], return_tensors="pt", padding=True))
print(tokenizer.batch_decode(ids, skip_special_tokens=True))
```"""
