"""A folder of Hugging Face transformers: a Marian, Pegasus or M2M-100 model; EuroBERT of a classifier or tagger."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.addons.interop.registries import EXPORTERS, Exporter
from transformer_cli.addons.interop.usage import LABEL_TOKENIZER, PACKED_LABEL_TOKENIZER, export_languages

if TYPE_CHECKING:
    from transformer_cli.addons.interop.keys import ExportConfig
    from transformer_cli.addons.interop.verify import Program
    from transformer_cli.addons.interop.verify_labels import LabelProgram
    from transformer_cli.config.model import ModelConfig
    from transformer_cli.models.file import ModelFile


@EXPORTERS.register("huggingface")
class HuggingFaceExporter(Exporter):
    program = "Hugging Face transformers"
    kinds = ("transformer", "classifier", "tagger")
    packages = ("transformers",)
    has_hub_header = True
    length = "The length_penalty of `generate` is another formula, length^length_penalty, and is 1 in this folder"

    def max_positions(self, config: "ModelConfig") -> int | None:
        from transformer_cli.addons.interop import eurobert, huggingface

        if config.name != "transformer":
            eurobert.check_eurobert(config)
            return eurobert.EUROBERT_POSITIONS
        return huggingface.max_positions(config)

    def write(self, model: "ModelFile", folder: Path, config: "ExportConfig") -> "Program | LabelProgram":
        from transformer_cli.addons.interop import eurobert, huggingface, m2m100_writer

        if model.task.has_labels:
            eurobert.write(model, folder)
            return eurobert.LoadedEuroBert(folder)
        if m2m100_writer.is_of_languages(model):
            arranged = m2m100_writer.arranged(model)
            m2m100_writer.write_m2m100(arranged, folder)
            return m2m100_writer.LoadedM2M100(folder, arranged)
        huggingface.write(model, folder)
        return huggingface.Loaded(folder)

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        if facts["config"]["name"] != "transformer":
            return _usage_of_labels(facts, is_packed)
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


_CLASS = """from transformers import pipeline

classify = pipeline("text-classification", model="FOLDER")
print(classify("TEXT")[0]["label"])
"""
_TAGS = """import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer

model = AutoModelForTokenClassification.from_pretrained("FOLDER").eval()
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
words = "TEXT".split()
inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
logits = model(**inputs).logits[0]
of_words = [logits[[i for i, word in enumerate(inputs.word_ids()) if word == n]] for n in range(len(words))]
of_words = [rows[0] if "POOLING" == "first" else rows.mean(0) for rows in of_words]
print([model.config.id2label[int(row.argmax())] for row in of_words])
"""
# Where transformers has no such tokenizer.
_CLASS_OF_IDS = """ids = [*settings["begin_ids"], *encode("TEXT"), *settings["end_ids"]]
logits = model(input_ids=torch.tensor([ids])).logits
print(settings["labels"][logits[0].argmax()])
"""
_TAGS_OF_IDS = """words = [encode(word) or [settings["unk_id"]] for word in "TEXT".split()]  # each word by itself
ids = [*sum(words, []), *settings["end_ids"]]
logits = model(input_ids=torch.tensor([ids])).logits[0]
of_words = torch.split(logits[: -len(settings["end_ids"])], [len(word) for word in words])
of_words = [rows[0] if settings["word_pooling"] == "first" else rows.mean(0) for rows in of_words]
print([settings["labels"][row.argmax()] for row in of_words])
"""


def _usage_of_labels(facts: Mapping[str, Any], is_packed: bool) -> str:
    config = facts["config"]
    of_words = config["name"] == "tagger"
    what = "The tags of the words of a sentence" if of_words else "The class"
    if "tokenizer.json" in facts["files"]:
        code = _TAGS.replace("POOLING", config["pooling"]) if of_words else _CLASS
        return f"{what}:\n\n```python\n{code}```"
    kind = f"AutoModelFor{'Token' if of_words else 'Sequence'}Classification"
    return f"""{what}. No tokenizer of transformers has these ids:

```python
import json, torch
from transformers import {kind}
{PACKED_LABEL_TOKENIZER if is_packed else LABEL_TOKENIZER}
with open("FOLDER/labels.json", encoding="utf-8") as file:
    settings = json.load(file)
model = {kind}.from_pretrained("FOLDER").eval()

{_TAGS_OF_IDS if of_words else _CLASS_OF_IDS}```"""
