"""Two graphs of ONNX, for onnxruntime."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.addons.interop.registries import EXPORTERS, Exporter
from transformer_cli.addons.interop.usage import PACKED_TOKENIZERS, PLAIN_TOKENIZERS

if TYPE_CHECKING:
    from transformer_cli.addons.interop.keys import ExportConfig
    from transformer_cli.addons.interop.verify import Program
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


@EXPORTERS.register("onnx")
class ONNX(Exporter):
    program = "ONNX"
    packages = ("onnxruntime", "onnx")
    length = "A beam search of yours has it by dividing the log-probability of n tokens by ((5 + n) / 6)^{own:g}"

    def max_positions(self, config: "ModelConfig") -> int | None:
        from transformer_cli.addons.interop import onnx

        return onnx.max_positions(config)

    def write(self, model: "ModelFile", folder: Path, config: "ExportConfig") -> "Program":
        from transformer_cli.addons.interop import onnx

        onnx.write(model, folder)
        return onnx.Loaded(folder)

    def usage(self, facts: Mapping[str, Any], is_packed: bool) -> str:
        return f"""Greedy search in onnxruntime, without torch:

```python
import json, numpy, onnxruntime
{PACKED_TOKENIZERS if is_packed else PLAIN_TOKENIZERS}
{_ONNX_CODE}```"""
