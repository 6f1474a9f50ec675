"""Two ONNX graphs, for onnxruntime and whatever else runs ONNX: the encoder, and a step of the decoder with its cache.

Files: encoder.onnx, decoder.onnx, weights.bin with every weight of both once, config.json with what a search has to
know (ids, and the names of the cache's tensors), and the tokenizers.

    encoder: input_ids [B, S], attention_mask [B, S] -> cross.N.key and cross.N.value of each decoder layer [B, H, S, E]
    decoder: input_ids [B, T], attention_mask, cross.*, past.N.key and past.N.value [B, H, P, E]
             -> logits [B, T, V], present.N.key and present.N.value [B, H, P + T, E]

All of B, S, T and P are free. P is 0 in the first step, and its T may be more than one: a whole translation is scored
in one call. The graphs are written node by node rather than traced: so both share the weights, and no name or order
depends on a version of torch.

Shapes: B batch or rows of a search, S source, T target, P past, D width, H heads, E head width, V vocabulary.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from transformer_cli.addons.interop.label_files import write_vocabulary
from transformer_cli.addons.interop.text import SIDES, folder_tokenizers, write_tokenizers
from transformer_cli.addons.interop.verify import Ids, of_targets, padded_ids, searched
from transformer_cli.addons.interop.weights import built, check_decoder
from transformer_cli.config.model import Activation, ModelConfig, Positions
from transformer_cli.decoding.search import ControlIds
from transformer_cli.errors import ConfigError
from transformer_cli.extras import imported
from transformer_cli.models.attention import CrossAttention, SelfAttention
from transformer_cli.models.embeddings import LearnedPositions, NarrowEmbedding, TokenEmbedding, sinusoid_table
from transformer_cli.models.file import ModelFile
from transformer_cli.models.layers import FeedForward, Residual
from transformer_cli.models.transformer import Encoder, Stack, Transformer

_Array = npt.NDArray[Any]

OPSET, IR_VERSION = 17, 8  # the oldest with LayerNormalization: onnxruntime 1.13 and later read them
N_POSITIONS = 2048  # rows of the computed tables: more than a line has after it was split
ENCODER, DECODER, WEIGHTS, CONFIG = "encoder.onnx", "decoder.onnx", "weights.bin", "config.json"
ALIGNMENT = 64  # bytes: the file is mapped into memory
MASKED = -1e30  # finite, so that a row of nothing but padding has no NaN
_NEEDS = "tfm export onnx"


def write(model: ModelFile, directory: Path) -> None:
    """Write the graphs of `model` into `directory`, which is there and empty."""
    check_decoder(model.config, "the graphs that tfm writes")
    onnx = imported("onnx", needs=_NEEDS)
    transformer = built(model)
    with (directory / WEIGHTS).open("xb") as file:
        weights = WeightsFile(onnx, file)
        for name, proto in (
            (ENCODER, encoder_graph(onnx, weights, transformer, model.config)),
            (DECODER, decoder_graph(onnx, weights, transformer, model.config)),
        ):
            (directory / name).write_bytes(proto.SerializeToString(deterministic=True))
    for name in (ENCODER, DECODER):
        onnx.checker.check_model(str(directory / name))
    (directory / CONFIG).write_text(json.dumps(settings(model), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    write_tokenizers(model.tokenizers, directory, finds_tags=True)
    for side, tokenizer in zip(SIDES, (model.tokenizers.source, model.tokenizers.target), strict=True):
        write_vocabulary(tokenizer, side, directory)


def settings(model: ModelFile) -> dict[str, Any]:
    """What a search over the graphs has to know."""
    source, target = model.tokenizers.source, model.tokenizers.target
    if source.languages or target.prefix_ids:
        raise ConfigError(
            "tokenizer: every translation begins with a token of its language, which the search over the graphs does"
            " not add. Use `tfm export ctranslate2`"
        )
    control = ControlIds.of(target)
    return {
        "source_lang": model.source_lang,
        "target_lang": model.target_lang,
        "decoder_layers": model.config.n_decoder_layers,
        "heads": model.config.n_heads,
        "key_width": model.config.key_width,
        "value_width": model.config.value_width,
        "source_pad_id": source.pad_id,
        "source_end_ids": source.end_ids,
        "pad_id": control.pad,
        "decoder_start_id": control.bos,
        "eos_id": control.eos,
        "unk_id": control.unk,
        "suppressed_ids": control.banned,
        "max_positions": max_positions(model.config),
    }


def max_positions(config: ModelConfig) -> int:
    """The most tokens that a sentence may have in the graphs."""
    return config.max_positions if config.positions is Positions.learned else N_POSITIONS


class WeightsFile:
    """The file of the weights, and where in it each one is: one that both graphs use, or use twice, is there once."""

    def __init__(self, onnx: Any, file: BinaryIO) -> None:
        self.onnx, self.file = onnx, file
        self.places: dict[str, Any] = {}

    def put(self, name: str, tensor: Tensor) -> Any:
        """A reference to the tensor called `name`, which is written at the first call. Float32."""
        if name not in self.places:
            array = tensor.detach().float().contiguous().numpy()
            self.file.write(b"\0" * (-self.file.tell() % ALIGNMENT))
            place = {"location": WEIGHTS, "offset": self.file.tell(), "length": array.nbytes}
            self.file.write(array.data)
            proto = self.onnx.TensorProto(name=name, data_type=self.onnx.TensorProto.FLOAT, dims=array.shape)
            proto.data_location = self.onnx.TensorProto.EXTERNAL
            for key, value in place.items():
                proto.external_data.add(key=key, value=str(value))
            self.places[name] = proto
        return self.places[name]


class Graph:
    """The nodes of one graph, in order. A value is known by its name; `op` adds the node that computes it."""

    def __init__(self, onnx: Any, weights: WeightsFile) -> None:
        self.onnx, self.weights = onnx, weights
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def op(self, kind: str, *inputs: str, n_outputs: int = 1, **attributes: Any) -> Any:
        """The name of what the node gives; a list of them where it gives several."""
        number = len(self.nodes)
        names = [f"{kind}_{number}" + (f"_{i}" if n_outputs > 1 else "") for i in range(n_outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, names, name=f"node_{number}", **attributes))
        return names if n_outputs > 1 else names[0]

    def constant(self, values: Any, dtype: type[np.generic] = np.int64) -> str:
        """A small array within the graph."""
        array = np.asarray(values, dtype)
        name = f"constant_{array.dtype}_{'x'.join(map(str, array.shape))}_{'_'.join(map(str, array.flatten()))}"
        self.initializers[name] = self.onnx.numpy_helper.from_array(array, name)
        return name

    def number(self, value: float) -> str:
        return self.constant(value, np.float32)

    def weight(self, name: str, tensor: Tensor) -> str:
        self.initializers[name] = self.weights.put(name, tensor)
        return name

    def input(self, name: str, shape: Sequence[int | str], *, integer: bool = False) -> str:
        self.inputs.append(self._declared(name, shape, integer=integer))
        return name

    def output(self, value: str, name: str, shape: Sequence[int | str]) -> None:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value], [name], name=f"node_{len(self.nodes)}"))
        self.outputs.append(self._declared(name, shape, integer=False))

    def _declared(self, name: str, shape: Sequence[int | str], *, integer: bool) -> Any:
        kind = self.onnx.TensorProto.INT64 if integer else self.onnx.TensorProto.FLOAT
        return self.onnx.helper.make_tensor_value_info(name, kind, shape)

    def model(self, name: str) -> Any:
        graph = self.onnx.helper.make_graph(
            self.nodes, name, self.inputs, self.outputs, initializer=list(self.initializers.values())
        )
        opset = self.onnx.helper.make_opsetid("", OPSET)
        made = self.onnx.helper.make_model(graph, opset_imports=[opset], producer_name="tfm")
        made.ir_version = IR_VERSION
        return made

    # ---- What several layers are made of

    def size(self, value: str, axis: int) -> str:
        """The length of an axis, as an array of no dimensions."""
        shape_1 = self.op("Shape", value, start=axis, end=axis + 1)
        return str(self.op("Squeeze", shape_1, self.constant([0])))

    def scaled(self, value: str, factor: float) -> str:
        return value if factor == 1 else str(self.op("Mul", value, self.number(factor)))

    def linear(self, x: str, name: str, weight: Tensor, bias: Tensor | None) -> str:
        y = self.op("MatMul", x, self.weight(f"{name}.weight", weight.t()))
        return str(y if bias is None else self.op("Add", y, self.weight(f"{name}.bias", bias)))

    def norm(self, x: str, name: str, norm: Any) -> str:
        scale = self.weight(f"{name}.weight", norm.weight)
        if isinstance(norm, nn.LayerNorm):
            bias = self.weight(f"{name}.bias", norm.bias)
            return str(self.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=norm.eps))
        mean = self.op("ReduceMean", self.op("Mul", x, x), axes=[-1], keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.number(norm.eps)))
        return str(self.op("Mul", self.op("Div", x, root), scale))

    def activated(self, x: str, activation: Activation) -> str:
        if activation is Activation.relu:
            return str(self.op("Relu", x))
        if activation is Activation.gelu:
            grown = self.op("Add", self.op("Erf", self.op("Mul", x, self.number(math.sqrt(0.5)))), self.number(1))
            return str(self.op("Mul", self.op("Mul", x, grown), self.number(0.5)))
        return str(self.op("Mul", x, self.op("Sigmoid", x)))  # silu, and of the gate of swiglu

    def split_heads(self, x_BLX: str, n_heads: int, width: int) -> str:
        """[B, L, H × E] -> [B, H, L, E]."""
        x_BLHE = self.op("Reshape", x_BLX, self.constant([0, 0, n_heads, width]))
        return str(self.op("Transpose", x_BLHE, perm=[0, 2, 1, 3]))

    def attend(self, q_BHTE: str, k_BHSE: str, v_BHSE: str, mask: str, width: int) -> str:
        """softmax(Q Kᵀ / √d_k) V, [B, T, H × E]; `mask` is added."""
        k_BHES = self.op("Transpose", k_BHSE, perm=[0, 1, 3, 2])
        scores_BHTS = self.op("MatMul", self.scaled(q_BHTE, width**-0.5), k_BHES)
        weights_BHTS = self.op("Softmax", self.op("Add", scores_BHTS, mask), axis=-1)
        y_BTHE = self.op("Transpose", self.op("MatMul", weights_BHTS, v_BHSE), perm=[0, 2, 1, 3])
        return str(self.op("Reshape", y_BTHE, self.constant([0, 0, -1])))

    def mask_where(self, may_attend: str) -> str:
        return str(self.op("Where", may_attend, self.number(0), self.number(MASKED)))


@dataclass
class StackWriter:
    """One stack within a graph: what its layers share."""

    graph: Graph
    name: str
    stack: Stack
    config: ModelConfig
    positions_L: str  # of the tokens that are computed, from 0

    def embed(self, ids_BL: str, name: str, embedding: TokenEmbedding) -> str:
        graph = self.graph
        x_BLD = graph.scaled(graph.op("Gather", graph.weight(name, embedding.weight), ids_BL), embedding.scale)
        if isinstance(embedding, NarrowEmbedding):
            x_BLD = graph.linear(x_BLD, f"{name}.project_in", embedding.project_in.weight, None)
        if embedding.zero_id is None:
            return x_BLD
        is_zero_BL = graph.op("Equal", ids_BL, graph.constant(embedding.zero_id))
        return str(graph.op("Where", graph.op("Unsqueeze", is_zero_BL, graph.constant([2])), graph.number(0), x_BLD))

    def add_positions(self, x_BLD: str) -> str:
        positions = self.stack.positions
        if positions is None:
            return x_BLD
        if isinstance(positions, LearnedPositions):
            table = self.graph.weight(f"{self.name}.positions", positions.weight)
        else:
            table = self.graph.weight("positions", positions.table(N_POSITIONS, self.config.d_model))
        return str(self.graph.op("Add", x_BLD, self.graph.op("Gather", table, self.positions_L)))

    def rotated(self, x_BHLE: str) -> str:
        """Queries or keys turned by the angles of their positions."""
        if self.config.positions is not Positions.rotary:
            return x_BHLE
        graph, width = self.graph, self.config.key_width
        table = sinusoid_table(N_POSITIONS, width, interleaved=False, dtype=torch.float32, device=torch.device("cpu"))
        table_LE = graph.op("Gather", graph.weight("rotary", table), self.positions_L)
        halves = graph.constant([width // 2, width // 2])
        sin_LE, cos_LE = graph.op("Split", table_LE, halves, axis=-1, n_outputs=2)
        a, b = graph.op("Split", x_BHLE, halves, axis=-1, n_outputs=2)
        first = graph.op("Sub", graph.op("Mul", a, cos_LE), graph.op("Mul", b, sin_LE))
        second = graph.op("Add", graph.op("Mul", b, cos_LE), graph.op("Mul", a, sin_LE))
        return str(graph.op("Concat", first, second, axis=-1))

    def project(self, x_BLD: str, name: str, layer: nn.Linear, widths: Sequence[int]) -> list[str]:
        """Queries, keys or values of all heads, from one product: each [B, H, L, E]."""
        y = self.graph.linear(x_BLD, name, layer.weight, layer.bias)
        split = [y]
        if len(widths) > 1:
            split = self.graph.op("Split", y, self.graph.constant(widths), axis=-1, n_outputs=len(widths))
        heads = self.config.n_heads
        return [self.graph.split_heads(part, heads, width // heads) for part, width in zip(split, widths, strict=True)]

    def self_attention(self, x_BLD: str, name: str, layer: SelfAttention, mask: str, past: "_Past | None") -> str:
        q, k, v = self.project(x_BLD, f"{name}.qkv", layer.to_qkv, layer.widths)
        q, k = self.rotated(q), self.rotated(k)
        if past is not None:
            k, v = past.extended(self.graph, k, v)
        y = self.graph.attend(q, k, v, mask, self.config.key_width)
        return self.graph.linear(y, f"{name}.out", layer.to_out.weight, layer.to_out.bias)

    def feed_forward(self, x_BLD: str, name: str, layer: FeedForward) -> str:
        graph = self.graph
        hidden = graph.linear(x_BLD, f"{name}.in", layer.to_hidden.weight, layer.to_hidden.bias)
        if layer.gated:
            halves = graph.constant([self.config.d_ff, self.config.d_ff])
            gate, value = graph.op("Split", hidden, halves, axis=-1, n_outputs=2)
            hidden = graph.op("Mul", graph.activated(gate, self.config.activation), value)
        else:
            hidden = graph.activated(hidden, self.config.activation)
        return graph.linear(hidden, f"{name}.out", layer.to_out.weight, layer.to_out.bias)

    def before(self, x: str, name: str, around: Residual) -> str:
        return self.graph.norm(x, f"{name}.norm", around.norm) if around.pre_norm else x

    def after(self, x: str, y: str, name: str, around: Residual) -> str:
        total = self.graph.op("Add", x, y)
        return str(total if around.pre_norm else self.graph.norm(total, f"{name}.norm", around.norm))

    def final_norm(self, x: str) -> str:
        is_there = not isinstance(self.stack.norm, nn.Identity)
        return self.graph.norm(x, f"{self.name}.norm", self.stack.norm) if is_there else x


@dataclass
class _Past:
    """Keys and values of the target so far in one layer of the decoder."""

    key: str
    value: str

    def extended(self, graph: Graph, k: str, v: str) -> tuple[str, str]:
        self.key = graph.op("Concat", self.key, k, axis=2)
        self.value = graph.op("Concat", self.value, v, axis=2)
        return self.key, self.value


def _window_mask(graph: Graph, positions_S: str, window: int) -> str:
    """Additive, [S, S], of the encoder's restricted self-attention."""
    query_S1 = graph.op("Unsqueeze", positions_S, graph.constant([1]))
    distance_SS = graph.op("Abs", graph.op("Sub", query_S1, positions_S))
    return graph.mask_where(graph.op("LessOrEqual", distance_SS, graph.constant(window // 2)))


def source_mask(graph: Graph, attention_mask_BS: str) -> str:
    """Additive, [B, 1, 1, S]."""
    is_real_BS = graph.op("Cast", attention_mask_BS, to=int(graph.onnx.TensorProto.BOOL))
    return str(graph.op("Unsqueeze", graph.mask_where(is_real_BS), graph.constant([1, 2])))


def encoder_graph(onnx: Any, weights: WeightsFile, model: Transformer, config: ModelConfig) -> Any:
    graph = Graph(onnx, weights)
    ids_BS = graph.input("input_ids", ["batch", "source"], integer=True)
    mask_B11S = source_mask(graph, graph.input("attention_mask", ["batch", "source"], integer=True))
    writer = encoder_writer(graph, ids_BS, model.encoder, config)
    memory_BSD = encoder_output(
        writer, writer.embed(ids_BS, "source_embedding", model.source_embedding), model.encoder, mask_B11S
    )
    for i, decoder_layer in enumerate(model.decoder.layers):
        cross = decoder_layer.cross_attention
        k, v = writer.project(memory_BSD, f"decoder.{i}.cross.kv", cross.to_kv, cross.widths)
        for kind, value, width in (("key", k, config.key_width), ("value", v, config.value_width)):
            graph.output(value, f"cross.{i}.{kind}", ["batch", config.n_heads, "source", width])
    return graph.model("encoder")


def encoder_writer(graph: Graph, ids_BS: str, encoder: Encoder, config: ModelConfig) -> StackWriter:
    positions_S = graph.op("Range", graph.constant(0), graph.size(ids_BS, 1), graph.constant(1))
    return StackWriter(graph, "encoder", encoder, config, positions_S)


def encoder_output(writer: StackWriter, x_BSD: str, encoder: Encoder, mask_B11S: str) -> str:
    """The output of the encoder, from embeddings without positions."""
    window, self_mask = writer.config.attention_window, mask_B11S
    if window is not None:
        self_mask = writer.graph.op("Add", mask_B11S, _window_mask(writer.graph, writer.positions_L, window))
    x = writer.add_positions(x_BSD)
    for i, layer in enumerate(encoder.layers):
        part = f"encoder.{i}.self"
        y = writer.before(x, part, layer.around_self_attention)
        y = writer.self_attention(y, part, layer.self_attention, self_mask, past=None)
        x = writer.after(x, y, part, layer.around_self_attention)
        part = f"encoder.{i}.ffn"
        y = writer.feed_forward(writer.before(x, part, layer.around_feed_forward), part, layer.feed_forward)
        x = writer.after(x, y, part, layer.around_feed_forward)
    return writer.final_norm(x)


def decoder_graph(onnx: Any, weights: WeightsFile, model: Transformer, config: ModelConfig) -> Any:
    graph, heads = Graph(onnx, weights), config.n_heads
    widths = {"key": config.key_width, "value": config.value_width}
    n_layers = len(model.decoder.layers)
    ids_BT = graph.input("input_ids", ["batch", "target"], integer=True)
    mask_B11S = source_mask(graph, graph.input("attention_mask", ["batch", "source"], integer=True))

    def cached(kind: str, length: str) -> list[_Past]:
        return [
            _Past(
                *(graph.input(f"{kind}.{i}.{half}", ["batch", heads, length, width]) for half, width in widths.items())
            )
            for i in range(n_layers)
        ]

    cross, past = cached("cross", "source"), cached("past", "past")
    n_past, one = graph.size(past[0].key, 2), graph.constant(1)
    n_all = graph.op("Add", n_past, graph.size(ids_BT, 1))
    positions_T = graph.op("Range", n_past, n_all, one)
    key_M = graph.op("Range", graph.constant(0), n_all, one)
    query_T1 = graph.op("Unsqueeze", positions_T, graph.constant([1]))
    may_attend_TM = graph.op("LessOrEqual", key_M, query_T1)
    if config.attention_window is not None:
        before_T1 = graph.op("Sub", query_T1, graph.constant(config.attention_window))
        may_attend_TM = graph.op("And", may_attend_TM, graph.op("Greater", key_M, before_T1))
    causal_TM = graph.mask_where(may_attend_TM)
    writer = StackWriter(graph, "decoder", model.decoder, config, positions_T)
    x = writer.embed(ids_BT, embedding_name(model, model.target_embedding), model.target_embedding)
    x = writer.add_positions(x)
    for i, layer in enumerate(model.decoder.layers):
        part = f"decoder.{i}.self"
        y = writer.before(x, part, layer.around_self_attention)
        assert isinstance(layer.self_attention, SelfAttention)  # as `write` has checked
        y = writer.self_attention(y, part, layer.self_attention, causal_TM, past[i])
        x = writer.after(x, y, part, layer.around_self_attention)
        part = f"decoder.{i}.cross"
        y = writer.before(x, part, layer.around_cross_attention)
        y = cross_attention(writer, y, part, layer.cross_attention, cross[i], mask_B11S)
        x = writer.after(x, y, part, layer.around_cross_attention)
        part = f"decoder.{i}.ffn"
        y = writer.feed_forward(writer.before(x, part, layer.around_feed_forward), part, layer.feed_forward)
        x = writer.after(x, y, part, layer.around_feed_forward)
    logits_BTV = output(graph, writer.final_norm(x), model)
    graph.output(logits_BTV, "logits", ["batch", "target", len(model.output_embedding.weight)])
    for i, both in enumerate(past):
        graph.output(both.key, f"present.{i}.key", ["batch", heads, "past + target", config.key_width])
        graph.output(both.value, f"present.{i}.value", ["batch", heads, "past + target", config.value_width])
    return graph.model("decoder")


def cross_attention(
    writer: StackWriter, x_BTD: str, name: str, layer: CrossAttention, cross: _Past, mask_B11S: str
) -> str:
    (q,) = writer.project(x_BTD, f"{name}.q", layer.to_q, [len(layer.to_q.weight)])
    y = writer.graph.attend(q, cross.key, cross.value, mask_B11S, writer.config.key_width)
    return writer.graph.linear(y, f"{name}.out", layer.to_out.weight, layer.to_out.bias)


def output(graph: Graph, x_BTD: str, model: Transformer) -> str:
    """Logits. Gemm reads the rows of an embedding as they are: no transposed copy of a tied one is needed."""
    layer = model.output_embedding
    if isinstance(layer, NarrowEmbedding):
        assert layer.project_out is not None
        x_BTD = graph.linear(x_BTD, "output.project_out", layer.project_out.weight, None)
    rows_XD = graph.op("Reshape", x_BTD, graph.constant([-1, layer.weight.size(1)]))
    bias = [] if layer.bias is None else [graph.weight("output_bias", layer.bias)]
    table = graph.weight(embedding_name(model, layer), layer.weight)
    logits_XV = graph.op("Gemm", rows_XD, table, *bias, transB=1)
    n_tokens = graph.constant([len(layer.weight)])
    shape = graph.op("Concat", graph.op("Shape", x_BTD, start=0, end=2), n_tokens, axis=0)
    return str(graph.op("Reshape", logits_XV, shape))


def embedding_name(model: Transformer, embedding: TokenEmbedding) -> str:
    """One that is used in two places has one name."""
    if embedding is model.source_embedding:
        return "source_embedding"
    return "target_embedding" if embedding is model.target_embedding else "output"


@dataclass
class _Cache:
    """The state kept between steps; every row has its own keys and values of the source."""

    mask: _Array  # attention_mask [R, S]
    cross: list[_Array]  # in the order of the decoder's inputs
    past: list[_Array]

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        chosen_R = rows_R.numpy()
        self.mask = self.mask[chosen_R]
        self.cross = [array[chosen_R] for array in self.cross]
        self.past = [array[chosen_R] for array in self.past]


class Loaded:
    """A folder as a user of onnxruntime loads it, with one thread: a Program of `verify`. The search is ours."""

    def __init__(self, directory: Path) -> None:
        library = imported("onnxruntime", needs=_NEEDS)
        options = library.SessionOptions()
        options.intra_op_num_threads = 1
        self.encoder, self.decoder = (
            library.InferenceSession(str(directory / name), options, providers=["CPUExecutionProvider"])
            for name in (ENCODER, DECODER)
        )
        self.config = json.loads((directory / CONFIG).read_bytes())
        self.source, self.target = folder_tokenizers(directory)
        self.control = ControlIds(
            pad=self.config["pad_id"],
            bos=self.config["decoder_start_id"],
            eos=self.config["eos_id"],
            unk=self.config["unk_id"],
        )

    def translate(self, sources: Sequence[Ids], *, beam_size: int, max_tokens: int) -> list[list[int]]:
        found = searched(
            self,
            self.padded(sources),
            self.control,
            max_lengths_B=torch.full((len(sources),), max_tokens),
            beam_size=beam_size,
        )
        return [hypothesis.ids for hypothesis in found]

    def translate_text(self, lines: Sequence[str], *, max_tokens: int) -> list[str]:
        found = self.translate([self.source.ids(line) for line in lines], beam_size=1, max_tokens=max_tokens)
        return [self.target.decode(ids) for ids in found]

    def shown(self, text: str) -> str:
        return text

    def log_probs(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        cache = self.start(self.padded(sources), beam_size=1, max_length=0)
        target_in_BT = padded_ids([[self.control.bos, *ids] for ids in targets], self.control.pad)
        return of_targets(self._logits(target_in_BT, cache), targets, self.control.eos)

    def padded(self, sources: Sequence[Ids]) -> Tensor:
        return padded_ids([[*ids, *self.config["source_end_ids"]] for ids in sources], self.config["source_pad_id"])

    def start(self, source_BS: Tensor, *, beam_size: int, max_length: int) -> _Cache:
        """A cache with `beam_size` rows for each source sentence; it grows by itself."""
        mask = (source_BS != self.config["source_pad_id"]).long().numpy()
        encoded = self.encoder.run(None, {"input_ids": source_BS.numpy(), "attention_mask": mask})
        n_rows, heads = beam_size * len(mask), self.config["heads"]
        return _Cache(
            mask=mask.repeat(beam_size, axis=0),
            cross=[array.repeat(beam_size, axis=0) for array in encoded],
            past=[
                np.zeros((n_rows, heads, 0, self.config[width]), np.float32)
                for _ in range(self.config["decoder_layers"])
                for width in ("key_width", "value_width")
            ],
        )

    def step(self, ids_R: Tensor, cache: _Cache) -> Tensor:
        """Logits of the token after `ids_R`, the newest token of each row; `cache` grows by one position."""
        return self._logits(ids_R[:, None], cache)[:, -1]

    def _logits(self, ids_BT: Tensor, cache: _Cache) -> Tensor:
        names = [node.name for node in self.decoder.get_inputs()]
        given = [ids_BT.numpy(), cache.mask, *cache.cross, *cache.past]
        logits_BTV, *cache.past = self.decoder.run(None, dict(zip(names, given, strict=True)))
        return torch.from_numpy(logits_BTV)
