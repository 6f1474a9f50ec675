"""A folder of Hugging Face transformers: a Marian, Pegasus or M2M-100 model."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.addons.interop.registries import EXPORTERS, Exporter
from transformer_cli.addons.interop.usage import export_languages

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
        from transformer_cli.addons.interop import huggingface, m2m100_writer

        if m2m100_writer.is_of_languages(model):
            arranged = m2m100_writer.arranged(model)
            m2m100_writer.write_m2m100(arranged, folder)
            return m2m100_writer.LoadedM2M100(folder, arranged)
        huggingface.write(model, folder)
        return huggingface.Loaded(folder)

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        if languages := export_languages(facts):
            source, target = languages
            if "vocab.json" in facts["files"]:  # of M2M100Tokenizer, which has codes for languages
                source = source.strip("_")
            call = f'''tokenizer.src_lang = "{source}"
first = tokenizer.convert_tokens_to_ids("{target}")
ids = model.generate(**tokenizer(["TEXT"], return_tensors="pt", padding=True), forced_bos_token_id=first)'''
        else:
            call = 'ids = model.generate(**tokenizer(["TEXT"], return_tensors="pt", padding=True))'
        return f"""```python
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model, tokenizer = (kind.from_pretrained("FOLDER") for kind in (AutoModelForSeq2SeqLM, AutoTokenizer))
{call}
print(tokenizer.batch_decode(ids, skip_special_tokens=True))
```"""
