"""Two graphs of ONNX, for onnxruntime."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.addons.interop.registries import EXPORTERS, Exporter
from transformer_cli.addons.interop.usage import (
    LABEL_TOKENIZER,
    PACKED_LABEL_TOKENIZER,
    PACKED_TOKENIZERS,
    PLAIN_TOKENIZERS,
)

if TYPE_CHECKING:
    from transformer_cli.addons.interop.keys import ExportConfig
    from transformer_cli.addons.interop.verify import Program
    from transformer_cli.addons.interop.verify_labels import LabelProgram
    from transformer_cli.config.model import ModelConfig
    from transformer_cli.models.file import ModelFile


_ONNX_CODE = """config = json.load(open("FOLDER/config.json"))
encoder, decoder = (onnxruntime.InferenceSession(f"FOLDER/{name}.onnx") for name in ("encoder", "decoder"))

ids = numpy.array([[*source.encode(["TEXT"])[0], *config["source_end_ids"]]])
mask = numpy.ones_like(ids)
cross = encoder.run(None, {"input_ids": ids, "attention_mask": mask})
past = [numpy.zeros((1, config["heads"], 0, config[width]), numpy.float32)
        for _ in range(config["decoder_layers"]) for width in ("key_width", "value_width")]
names = [node.name for node in decoder.get_inputs()]
newest, found = config["decoder_start_id"], []
while newest != config["eos_id"] and len(found) < 200:
    logits, *past = decoder.run(None, dict(zip(names, [numpy.array([[newest]]), mask, *cross, *past])))
    logits[..., config["suppressed_ids"]] = -numpy.inf
    newest = int(logits[0, -1].argmax())
    found.append(newest)
print(target.decode(found[:-1]))
"""


_OPEN = """with open("FOLDER/config.json", encoding="utf-8") as file:
    config = json.load(file)
model = onnxruntime.InferenceSession("FOLDER/model.onnx")
"""
_OF_A_TEXT = """ids = [*config["begin_ids"], *encode("TEXT"), *config["end_ids"]]
"""
_OF_A_PAIR = """first, second = encode("TEXT"), encode("second text")
ids = [*config["begin_ids"], *first, *config["separator_ids"], *second, *config["end_ids"]]
"""
_CLASS = """inputs = {"input_ids": numpy.array([ids]), "attention_mask": numpy.ones((1, len(ids)), numpy.int64)}
(logits,) = model.run(None, inputs)
print(config["labels"][logits[0].argmax()])
"""
_TAGS = """words = "TEXT".split()
ids = [encode(word) or [config["unk_id"]] for word in words]  # each word by itself
flat = [*sum(ids, []), *config["end_ids"]]
inputs = {"input_ids": numpy.array([flat]), "attention_mask": numpy.ones((1, len(flat)), numpy.int64)}
(logits,) = model.run(None, inputs)
ends = numpy.cumsum([len(word) for word in ids])
of_words = [logits[0, end - len(word):end] for word, end in zip(ids, ends)]
of_words = [rows[0] if config["word_pooling"] == "first" else rows.mean(0) for rows in of_words]
print([config["labels"][row.argmax()] for row in of_words])
"""


@EXPORTERS.register("onnx")
class ONNX(Exporter):
    program = "ONNX"
    kinds = ("transformer", "classifier", "tagger")
    packages = ("onnxruntime", "onnx")
    length = "A beam search of yours has it by dividing the log-probability of n tokens by ((5 + n) / 6)^{own:g}"

    def max_positions(self, config: "ModelConfig") -> int | None:
        from transformer_cli.addons.interop import onnx

        return onnx.max_positions(config)

    def write(self, model: "ModelFile", folder: Path, config: "ExportConfig") -> "Program | LabelProgram":
        from transformer_cli.addons.interop import onnx, onnx_labels

        if model.task.has_labels:
            onnx_labels.write(model, folder)
            return onnx_labels.LabelGraph(folder)
        onnx.write(model, folder)
        return onnx.Loaded(folder)

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        if facts["config"]["name"] != "transformer":
            return _usage_of_labels(facts["config"], is_packed)
        return f"""Greedy search in onnxruntime, without torch:

```python
import json, numpy, onnxruntime
{PACKED_TOKENIZERS if is_packed else PLAIN_TOKENIZERS}
{_ONNX_CODE}```"""


def _usage_of_labels(config: Mapping[str, Any], is_packed: bool) -> str:
    tokenizer = PACKED_LABEL_TOKENIZER if is_packed else LABEL_TOKENIZER
    if config["name"] == "tagger":
        what, code = "The tags of the words of a sentence", _TAGS
    else:
        ids = _OF_A_PAIR if config.get("n_segments", 1) == 2 else _OF_A_TEXT
        what, code = "The class", ids + _CLASS
    return f"""{what}, in onnxruntime, without torch:

```python
import json, numpy, onnxruntime
{tokenizer}
{_OPEN}
{code}```"""
