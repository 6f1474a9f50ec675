"""One ONNX graph of a classifier or tagger: ids → logits of the classes.

Files: model.onnx, weights.bin, config.json with the labels and the ids around a text, and the tokenizer of the source.

    classifier: input_ids [B, S], attention_mask [B, S] -> logits [B, C]
    tagger:     input_ids [B, S], attention_mask [B, S] -> logits of each token [B, S, C]

B and S are free. Those of a word are the logits of its first token, or the mean of those of its tokens.

Shapes: B batch, S source, D width, R hops, P width of what is pooled, C classes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_cli.addons.classification.classifier import Classifier, Convolution
from transformer_cli.addons.classification.self_attentive import SelfAttentivePooling
from transformer_cli.addons.interop.label_files import LabelFolder, write_label_files
from transformer_cli.addons.interop.onnx import (
    CONFIG,
    MASKED,
    WEIGHTS,
    Graph,
    StackWriter,
    WeightsFile,
    encoder_output,
    encoder_writer,
    max_positions,
    source_mask,
)
from transformer_cli.addons.tagging.tagger import Tagger
from transformer_cli.config.model import ModelConfig
from transformer_cli.errors import ConfigError
from transformer_cli.extras import imported
from transformer_cli.models.file import ModelFile
from transformer_cli.models.transformer import Model

GRAPH = "model.onnx"
_NEEDS = "tfm export onnx"


def write(model: ModelFile, directory: Path) -> None:
    """Write the graph of `model` into `directory`, which is there and empty.

    Raises ConfigError for a pooling of a plugin, which has no nodes.
    """
    onnx = imported("onnx", needs=_NEEDS)
    built = model.build_as(Model, torch.device("cpu")).float()
    with (directory / WEIGHTS).open("xb") as file:
        proto = label_graph(onnx, WeightsFile(onnx, file), built, model.config)
    (directory / GRAPH).write_bytes(proto.SerializeToString(deterministic=True))
    onnx.checker.check_model(str(directory / GRAPH))
    write_label_files(model, directory, CONFIG, max_positions=max_positions(model.config))


def label_graph(onnx: Any, weights: WeightsFile, model: Model, config: ModelConfig) -> Any:
    assert isinstance(model, Classifier | Tagger)
    graph = Graph(onnx, weights)
    ids_BS = graph.input("input_ids", ["batch", "source"], integer=True)
    mask_BS = graph.input("attention_mask", ["batch", "source"], integer=True)
    writer = encoder_writer(graph, ids_BS, model.encoder, config)
    x_BSD, segment_BS = writer.embed(ids_BS, "source_embedding", model.source_embedding), ""
    is_real_BS1 = graph.op("Unsqueeze", _cast(graph, mask_BS, "FLOAT"), graph.constant([2]))
    if isinstance(model, Classifier) and model.segment_embedding is not None:
        segment_BS = segment_ids(graph, ids_BS, model.segment_embedding.eos_id)
        table = graph.weight("segment_embedding", model.segment_embedding.weight)
        x_BSD = graph.op("Add", x_BSD, graph.op("Gather", table, segment_BS))
    if isinstance(model, Classifier) and model.convolution is not None:
        x_BSD = graph.op("Add", x_BSD, convolution(graph, x_BSD, is_real_BS1, model.convolution))
    y = encoder_output(writer, x_BSD, model.encoder, source_mask(graph, mask_BS))
    shape: list[str | int] = ["batch", "source", len(model.to_classes.weight)]
    if isinstance(model, Classifier):
        y, shape = pooled(writer, y, is_real_BS1, segment_BS, model), ["batch", shape[-1]]
    logits = graph.linear(y, "to_classes", model.to_classes.weight, model.to_classes.bias)
    graph.output(logits, "logits", shape)
    return graph.model("tagger" if isinstance(model, Tagger) else "classifier")


def _cast(graph: Graph, value: str, kind: str) -> str:
    return str(graph.op("Cast", value, to=int(getattr(graph.onnx.TensorProto, kind))))


def segment_ids(graph: Graph, ids_BS: str, eos_id: int) -> str:
    """0 for the tokens of the first text of a pair and its EOS, 1 for all after it."""
    is_eos_BS = _cast(graph, graph.op("Equal", ids_BS, graph.constant(eos_id)), "INT64")
    before_BS = graph.op("CumSum", is_eos_BS, graph.constant(1), exclusive=1)
    return _cast(graph, graph.op("Greater", before_BS, graph.constant(0)), "INT64")


def convolution(graph: Graph, x_BSD: str, is_real_BS1: str, layer: Convolution) -> str:
    reach, length_1 = layer.reach, graph.op("Shape", x_BSD, start=1, end=2)
    padded = graph.op("Pad", graph.op("Mul", x_BSD, is_real_BS1), graph.constant([0, reach, 0, 0, reach, 0]))
    near = []
    for start in range(2 * reach + 1):
        end_1 = graph.op("Add", length_1, graph.constant([start]))
        near.append(graph.op("Slice", padded, graph.constant([start]), end_1, graph.constant([1])))
    wide = graph.op("Concat", *near, axis=-1)
    return str(graph.op("Relu", graph.linear(wide, "convolution", layer.to_out.weight, layer.to_out.bias)))


# ---- Poolings: [B, S, D] → [B, P]


def pooled(writer: StackWriter, x_BSD: str, is_real_BS1: str, segment_BS: str, model: Classifier) -> str:
    """The vector of each text. Raises ConfigError for a pooling that is not here."""
    graph, name = writer.graph, writer.config.pooling
    if name == "segments":
        return _segments(graph, x_BSD, is_real_BS1, segment_BS)
    if isinstance(model.pooling, SelfAttentivePooling):
        return _self_attentive(graph, x_BSD, is_real_BS1, model.pooling)
    if name not in _FIXED:
        raise ConfigError(f"model.pooling={name}: has no nodes in ONNX. Use it with tfm")
    return _FIXED[name](graph, x_BSD, is_real_BS1)


def _first(graph: Graph, x_BSD: str, is_real_BS1: str) -> str:
    return str(graph.op("Gather", x_BSD, graph.constant(0), axis=1))


def _mean(graph: Graph, x_BSD: str, weight_BS1: str) -> str:
    """The weighted mean; zero where nothing has weight."""
    axis = graph.constant([1])
    sum_BD = graph.op("ReduceSum", graph.op("Mul", x_BSD, weight_BS1), axis, keepdims=0)
    count_B1 = graph.op("Max", graph.op("ReduceSum", weight_BS1, axis, keepdims=0), graph.number(1))
    return str(graph.op("Div", sum_BD, count_B1))


def _max(graph: Graph, x_BSD: str, is_real_BS1: str) -> str:
    may_count = graph.op("Greater", is_real_BS1, graph.number(0))
    return str(graph.op("ReduceMax", graph.op("Where", may_count, x_BSD, graph.number(MASKED)), axes=[1], keepdims=0))


_FIXED: dict[str, Callable[[Graph, str, str], str]] = {"first": _first, "mean": _mean, "max": _max}


def _segments(graph: Graph, x_BSD: str, is_real_BS1: str, segment_BS: str) -> str:
    second_BS1 = graph.op("Unsqueeze", _cast(graph, segment_BS, "FLOAT"), graph.constant([2]))
    first_BS1 = graph.op("Sub", graph.number(1), second_BS1)
    u, v = (_mean(graph, x_BSD, graph.op("Mul", one, is_real_BS1)) for one in (first_BS1, second_BS1))
    return str(graph.op("Concat", u, v, graph.op("Abs", graph.op("Sub", u, v)), graph.op("Mul", u, v), axis=-1))


def _self_attentive(graph: Graph, x_BSD: str, is_real_BS1: str, layer: SelfAttentivePooling) -> str:
    hidden = graph.op("Tanh", graph.linear(x_BSD, "pooling.to_hidden", layer.to_hidden.weight, None))
    scores_BSR = graph.linear(hidden, "pooling.to_hops", layer.to_hops.weight, None)
    masked = graph.op("Add", scores_BSR, graph.mask_where(graph.op("Greater", is_real_BS1, graph.number(0))))
    weights_BRS = graph.op("Softmax", graph.op("Transpose", masked, perm=[0, 2, 1]), axis=-1)
    return str(graph.op("Reshape", graph.op("MatMul", weights_BRS, x_BSD), graph.constant([0, -1])))


# ---- The folder, as a user loads it


class LabelGraph(LabelFolder):
    """A folder as a user of onnxruntime loads it, with one thread: a LabelProgram of `verify_labels`."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, CONFIG)
        library = imported("onnxruntime", needs=_NEEDS)
        options = library.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = library.InferenceSession(str(directory / GRAPH), options, providers=["CPUExecutionProvider"])

    def ask(self, ids_BS: Tensor, mask_BS: Tensor) -> Tensor:
        (found,) = self.session.run(None, {"input_ids": ids_BS.numpy(), "attention_mask": mask_BS.numpy()})
        return torch.from_numpy(found)
