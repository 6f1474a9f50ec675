"""A model directory of CTranslate2, made by that library's own specifications.

Its files: model.bin, config.json, the vocabularies, and the SentencePiece models. Pieces have the ids that they have
here. Sources get their EOS and targets start at BOS, without the caller's doing.
"""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transformer_cli.addons.interop.text import folder_tokenizers, write_tokenizers
from transformer_cli.addons.interop.verify import first_ids
from transformer_cli.addons.interop.weights import (
    built,
    check_decoder,
    check_heads,
    check_self_attention,
    projections,
    stacks,
    with_wide_embeddings,
)
from transformer_cli.config.model import Activation, DecoderStart, ModelConfig, Norm, Positions
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.search import ControlIds
from transformer_cli.decoding.shortlist import Shortlist
from transformer_cli.errors import ConfigError, quoted
from transformer_cli.extras import imported
from transformer_cli.models.embeddings import LearnedPositions, TokenEmbedding
from transformer_cli.models.file import ModelFile
from transformer_cli.models.layers import FeedForward, Residual
from transformer_cli.models.transformer import Stack

# Rows of the sinusoid table, which is finite there: more than a line has after it was split.
VOCABULARY_MAP = "vmap.txt"  # of a model's folder
_SPACES = frozenset(" \t\r\n")
_N_POSITIONS = 2048
_ACTIVATIONS = {
    Activation.relu: "RELU",
    Activation.gelu: "GELU",
    Activation.silu: "SWISH",
    Activation.swiglu: "SWISH",  # of the gate
}


def write(model: ModelFile, directory: Path, *, quantization: str | None = None, with_tokenizers: bool = True) -> None:
    """Write `model` into `directory`, which is there and empty; unset, the weights stay float32.

    Raises ConfigError for an option of the model that the format cannot express.
    """
    check(model.config)
    library = imported("ctranslate2", needs="tfm export ctranslate2")
    spec = specification(with_wide_embeddings(model), library.specs)
    spec.validate()
    spec.optimize(quantization=quantization or "float32")
    spec.save(str(directory))
    if with_tokenizers:
        write_tokenizers(model.tokenizers, directory)


def check(config: ModelConfig) -> None:
    instead = "`tfm translate --engine torch` runs this model"
    check_heads(config, "CTranslate2", instead)
    check_decoder(config, "CTranslate2")
    check_self_attention(config, "the encoder of CTranslate2", f"{instead}, and `tfm export onnx` writes it")


def max_positions(config: ModelConfig) -> int | None:
    """The most tokens that a sentence may have in the directory; None: no limit."""
    if config.positions is Positions.rotary:
        return None
    return config.max_positions if config.positions is Positions.learned else _N_POSITIONS


def specification(model: ModelFile, specs: ModuleType) -> Any:
    config, transformer = model.config, built(model)
    rotary = config.key_width if config.positions is Positions.rotary else None
    options: dict[str, Any] = {
        "pre_norm": config.norm is Norm.pre,
        "activation": getattr(specs.common_spec.Activation, _ACTIVATIONS[config.activation]),
        "ffn_glu": config.activation is Activation.swiglu,
        "rms_norm": config.norm_kind == "rms",
        "rotary_dim": rotary,
        "rotary_interleave": False,
    }
    spec = specs.TransformerSpec(
        specs.transformer_spec.TransformerEncoderSpec(config.n_encoder_layers, config.n_heads, **options),
        specs.transformer_spec.TransformerDecoderSpec(config.n_decoder_layers, config.n_heads, **options),
    )
    for name, stack in stacks(transformer):
        put_stack(getattr(spec, name), stack, config)
    put_embedding(spec.encoder.embeddings[0], transformer.source_embedding)
    put_embedding(spec.decoder.embeddings, transformer.target_embedding)
    put_linear(spec.decoder.projection, transformer.output_embedding.weight, transformer.output_embedding.bias)
    head = model.causal_alignment_head
    if head is not None and head[1] == 0:  # CTranslate2 has the first heads of a layer
        spec.decoder.alignment_layer = np.dtype("int16").type(head[0])
    spec.decoder.start_from_zero_embedding = config.decoder_start is DecoderStart.zero

    spec.register_source_vocabulary(vocabulary(model.tokenizers.source))
    spec.register_target_vocabulary(vocabulary(model.tokenizers.target))
    put_control(spec.config, model)
    return spec


def put_control(config: Any, model: ModelFile) -> None:
    target = model.tokenizers.target
    config.unk_token, config.bos_token, config.eos_token = target.pieces([target.unk_id, target.bos_id, target.eos_id])
    config.decoder_start_token, config.add_source_eos = config.bos_token, bool(model.tokenizers.source.end_ids)
    config.layer_norm_epsilon = model.config.epsilon


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    return tokenizer.pieces(range(len(tokenizer)))


def put_stack(spec: Any, stack: Stack, config: ModelConfig) -> None:
    spec.scale_embeddings = config.scale_embeddings
    if isinstance(stack.positions, LearnedPositions):
        spec.position_encodings.encodings = array(stack.positions.weight)
    elif stack.positions is not None:
        spec.position_encodings.encodings = array(stack.positions.table(_N_POSITIONS, config.d_model))
    if config.norm is Norm.pre:
        put_norm(spec.layer_norm, stack.norm)
    layers: Any = stack.layers
    for layer_spec, layer in zip(spec.layer, layers, strict=True):
        put_attention(layer_spec.self_attention, layer.self_attention, layer.around_self_attention)
        if hasattr(layer, "cross_attention"):
            put_attention(layer_spec.attention, layer.cross_attention, layer.around_cross_attention)
        put_feed_forward(layer_spec.ffn, layer.feed_forward, layer.around_feed_forward)


def put_attention(spec: Any, attention: Any, around: Residual) -> None:
    """Queries, keys and values together in self-attention; in cross-attention the queries come from elsewhere."""
    put_norm(spec.layer_norm, around.norm)
    parts = projections(attention)
    groups = [parts] if len(spec.linear) == 2 else [parts[:1], parts[1:]]
    for linear, group in zip(spec.linear, groups, strict=False):
        put_linear(linear, torch.cat([weight for weight, _ in group]), _joined([bias for _, bias in group]))
    put_linear(spec.linear[-1], attention.to_out.weight, attention.to_out.bias)


def put_feed_forward(spec: Any, feed_forward: FeedForward, around: Residual) -> None:
    put_norm(spec.layer_norm, around.norm)
    hidden, out = feed_forward.to_hidden, feed_forward.to_out
    if feed_forward.gated:
        gate_bias, value_bias = (None, None) if hidden.bias is None else hidden.bias.chunk(2)
        gate_FD, value_FD = hidden.weight.chunk(2)
        put_linear(spec.linear_0, gate_FD, gate_bias)
        put_linear(spec.linear_0_noact, value_FD, value_bias)
    else:
        put_linear(spec.linear_0, hidden.weight, hidden.bias)
    put_linear(spec.linear_1, out.weight, out.bias)


def put_norm(spec: Any, norm: nn.Module) -> None:
    spec.gamma = array(norm.weight)  # type: ignore[arg-type]
    if isinstance(norm, nn.LayerNorm):
        spec.beta = array(norm.bias)


def put_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = array(weight)
    if bias is not None:
        spec.bias = array(bias)


def put_embedding(spec: Any, embedding: TokenEmbedding) -> None:
    spec.weight = array(embedding.weight)


def _joined(biases: list[Tensor | None]) -> Tensor | None:
    given = [bias for bias in biases if bias is not None]
    return torch.cat(given) if given else None


def array(tensor: Tensor) -> Any:
    return tensor.detach().contiguous().numpy()


def vocabulary_map(shortlist: Shortlist, tokenizers: Tokenizers) -> bytes:
    """A shortlist as CTranslate2 reads it: a token of the source, a tab, tokens of the target with spaces between.

    An empty token is in every source: with it stand what is frequent, the list of EOS, which CTranslate2 adds itself,
    and the control tokens, whose probability counts. Raises ConfigError for a token that such a file cannot hold.
    """
    sources = tokenizers.source.pieces(range(len(tokenizers.source)))
    targets = tokenizers.target.pieces(range(len(tokenizers.target)))
    if wrong := [piece for piece in [*sources, *targets] if not piece or not _SPACES.isdisjoint(piece)]:
        raise ConfigError(
            f"decode.shortlist: the vocabulary has {quoted(wrong[0])}, which CTranslate2's map of words cannot hold."
            " Use engine=torch"
        )
    lists = [shortlist.ids[start:end] for start, end in pairwise(shortlist.starts)]
    control = ControlIds.of(tokenizers.target)
    of_control = np.array([control.eos, *control.banned])
    always = [shortlist.frequent, of_control, *(lists[i] for i in tokenizers.source.end_ids)]
    rows = [("", np.unique(np.concatenate(always))), *zip(sources, lists, strict=True)]
    text = "".join(f"{piece}\t{' '.join(targets[i] for i in ids)}\n" for piece, ids in rows if len(ids))
    return text.encode()


class Loaded:
    """A directory as a user of CTranslate2 loads it, with one thread: a Program of `verify`.

    It computes in the type of the weights, or in `compute_type`.
    """

    def __init__(self, directory: Path, tokenizers: Tokenizers, *, compute_type: str = "default") -> None:
        library = imported("ctranslate2", needs="tfm export ctranslate2")
        self.translator = library.Translator(str(directory), compute_type=compute_type, intra_threads=1)
        self.tokenizers, self.source, self.target = tokenizers, tokenizers.source, tokenizers.target
        self.ids = {piece: number for number, piece in enumerate(vocabulary(tokenizers.target))}
        self.banned = ControlIds.of(self.target).banned
        self.directory = directory

    def translate(
        self, sources: Sequence[Sequence[int]], begun: Sequence[Sequence[int]] = (), *, beam_size: int, max_tokens: int
    ) -> list[list[int]]:
        pieces, prefixes = [self.source.pieces(ids) for ids in sources], [self.target.pieces(ids) for ids in begun]
        found = self.translate_pieces(pieces, prefixes, beam_size=beam_size, max_tokens=max_tokens)
        return [[self.ids[piece] for piece in row] for row in found]

    def translate_pieces(
        self,
        sources: Sequence[Sequence[str]],
        prefixes: Sequence[Sequence[str]] = (),
        *,
        beam_size: int = 1,
        max_tokens: int,
    ) -> list[list[str]]:
        found = self.translator.translate_batch(
            sources,
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=beam_size,
            max_decoding_length=max_tokens,
            min_decoding_length=0,  # EOS counts as the others do
            max_input_length=0,
            length_penalty=0,
            suppress_sequences=[[piece] for piece in self.target.pieces(self.banned)],
        )
        return [result.hypotheses[0] for result in found]

    def translate_text(self, lines: Sequence[str], *, max_tokens: int) -> list[str]:
        source, target = folder_tokenizers(self.directory)
        prefixes = [self.target.pieces(first_ids(self.tokenizers, line)) for line in lines]
        found = self.translate_pieces([source.pieces(line) for line in lines], prefixes, max_tokens=max_tokens)
        return [target.decode([self.ids[piece] for piece in pieces]) for pieces in found]

    def shown(self, text: str) -> str:
        return text

    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        found = self.translator.score_batch(
            [self.source.pieces(ids) for ids in sources],
            [self.target.pieces(ids) for ids in targets],
            max_input_length=0,
        )
        return [list(result.log_probs) for result in found]
