"""Marian's names of the parts of a model, and the options in its `special:model.yml` that decide them.

Marian multiplies rows by a matrix: its weights are [in, out], ours are [out, in]. Biases and norms are [1, n].
"""

from dataclasses import dataclass
from typing import Any

from transformer_cli.config.model import Activation, Autoregression, ModelConfig, Norm, Positions, Tying

OPTIONS = "special:model.yml"  # the item that holds the options
POSITIONS = "Wpos"
LEGACY_OUTPUT = "decoder_ff_logit_out_W"  # [in, out]; of newer versions, transposed, with a t
EPSILON = 1e-6  # of its norms

ACTIVATIONS = {"relu": Activation.relu, "swish": Activation.silu}
# What is done before a sub-layer, after it, and after a stack; dropout (d) and the residual sum (a) left out.
NORMS = {("", "n", ""): Norm.post, ("n", "", "n"): Norm.pre}

_BLOCKS = {"self": "self", "rnn": "rnn", "cross": "context", "ffn": "ffn"}
_MATRICES = {"q": "q", "k": "k", "v": "v", "o": "o", "input": "", "forget": "f", "in": "1", "out": "2"}
_NORM_OF = {"self": "_Wo", "rnn": "_ffn", "cross": "_Wo", "ffn": "_ffn"}
_LN = {"weight": "scale", "bias": "bias"}


@dataclass(frozen=True)
class Tied:
    """The tying of the model: the embeddings of both sides, and the output layer with the target's embedding."""

    embeddings: bool
    output: bool

    @classmethod
    def of(cls, options: dict[str, Any]) -> "Tied":
        everything = bool(options.get("tied-embeddings-all"))
        return cls(
            embeddings=everything or bool(options.get("tied-embeddings-src")),
            output=everything or bool(options.get("tied-embeddings")),
        )

    @property
    def tying(self) -> Tying:
        if not self.output:
            return Tying.source_target if self.embeddings else Tying.none
        return Tying.three_way if self.embeddings else Tying.decoder


def their_name(part: str, config: ModelConfig, tied: Tied) -> str:
    """Marian's name of one of `part_names`."""
    if part == "source_embedding":
        return "Wemb" if tied.embeddings else "encoder_Wemb"
    if part == "output" and not tied.output:
        return "decoder_ff_logit_out_Wt"
    if part in ("target_embedding", "output"):
        return "Wemb" if tied.embeddings else "decoder_Wemb"
    if part == "output_bias":
        return "decoder_ff_logit_out_b"
    side, *middle, kind = part.split(".")
    if kind == "positions":
        return POSITIONS
    if middle == ["norm"]:
        return f"{side}_top_ln_{_LN[kind]}"
    number, block, matrix = middle
    prefix = f"{side}_l{int(number) + 1}_{_BLOCKS[block]}"
    if matrix == "norm":
        before = "_pre" if config.norm is Norm.pre else ""
        return f"{prefix}{_NORM_OF[block]}_ln_{_LN[kind]}{before}"
    return f"{prefix}_{'W' if kind == 'weight' else 'b'}{_MATRICES[matrix]}"


def is_transposed(part: str) -> bool:
    """Whether Marian holds the part as [in, out]."""
    return part.endswith(".weight") and not part.endswith("norm.weight")


def their_shape(part: str, config: ModelConfig, sizes: tuple[int, int]) -> tuple[int, ...]:
    """The shape of a part in Marian; `sizes` are those of the two vocabularies there."""
    d_model, d_ff = config.d_model, config.d_ff
    if part == "source_embedding":
        return sizes[0], d_model
    if part in ("target_embedding", "output"):
        return sizes[1], d_model
    if part == "output_bias":
        return 1, sizes[1]
    if part.endswith("positions"):
        return config.max_positions, d_model
    matrix, kind = part.split(".")[-2:]
    n_in, n_out = {"in": (d_model, d_ff), "out": (d_ff, d_model)}.get(matrix, (d_model, d_model))
    return (n_in, n_out) if kind == "weight" and matrix != "norm" else (1, n_out)


def marian_options(
    config: ModelConfig, sizes: tuple[int, int], tied: Tied, version: str, head: tuple[int, int] | None = None
) -> dict[str, Any]:
    """All options of a model that Marian saves and looks for, in its order.

    Those of other kinds of models have their defaults. `head` is the layer and head that were taught the alignment:
    Marian reads the first head of a layer, which it counts from 1.
    """
    layer, number = head or (config.n_decoder_layers - 1, 0)
    is_last = number > 0 or layer == config.n_decoder_layers - 1
    activation = next(name for name, ours in ACTIVATIONS.items() if ours is config.activation)
    is_pre, is_recurrent = config.norm is Norm.pre, config.decoder is Autoregression.ssru
    return {
        "bert-train-type-embeddings": True,
        "bert-type-vocab-size": 2,
        "dec-cell": "ssru" if is_recurrent else "gru",
        "dec-cell-base-depth": 2,
        "dec-cell-high-depth": 1,
        "dec-depth": config.n_decoder_layers,
        "dim-emb": config.d_model,
        "dim-rnn": 1024,
        "dim-vocabs": list(sizes),
        "enc-cell": "gru",
        "enc-cell-depth": 1,
        "enc-depth": config.n_encoder_layers,
        "enc-type": "bidirectional",
        "factors-combine": "sum",
        "factors-dim-emb": 0,
        "input-types": [],
        "layer-normalization": False,
        "lemma-dependency": "",
        "lemma-dim-emb": 0,
        "output-omit-bias": False,
        "right-left": False,
        "separator-symbol": "[eos]",
        "skip": False,
        "tied-embeddings": tied.output and not tied.embeddings,
        "tied-embeddings-all": tied.output and tied.embeddings,
        "tied-embeddings-src": tied.embeddings and not tied.output,
        "transformer-aan-activation": "swish",
        "transformer-aan-depth": 2,
        "transformer-aan-nogate": False,
        "transformer-alibi-shift": False,
        "transformer-alibi-trainable": False,
        "transformer-attention-mask": "default",
        "transformer-decoder-autoreg": "rnn" if is_recurrent else "self-attention",
        "transformer-decoder-dim-ffn": 0,
        "transformer-decoder-ffn-depth": 0,
        "transformer-dim-aan": 2048,
        "transformer-dim-ffn": config.d_ff,
        "transformer-disable-position-embeddings": False,
        "transformer-ffn-activation": activation,
        "transformer-ffn-depth": 2,
        "transformer-guided-alignment-layer": "last" if is_last else str(layer + 1),
        "transformer-heads": config.n_heads,
        "transformer-no-affine": False,
        "transformer-no-bias": False,
        "transformer-no-projection": False,
        "transformer-pool": False,
        "transformer-postprocess": "da" if is_pre else "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "n" if is_pre else "",
        "transformer-preprocess": "n" if is_pre else "",
        "transformer-rnn-projection": False,
        "transformer-tied-layers": [],
        "transformer-train-position-embeddings": config.positions is Positions.learned,
        "type": "transformer",
        "ulr": False,
        "ulr-dim-emb": 0,
        "ulr-trainable-transformation": False,
        "version": version,
    }
