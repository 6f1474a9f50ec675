"""Writes a model for Marian: `model.npz`, its vocabularies and `decoder.yml`, as Marian itself and OPUS-MT have them.

Marian has no options for its positions, norms and first input, so that a model has to be trained as Marian has them.
Its search applies no norm to the keys and values of earlier tokens in a pre-LN decoder's self-attention, though its
training and its scorer do (seen in 1.12.42): such models are refused.
Embeddings are put into the order of Marian's ids; every other number is ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from torch import Tensor

from transformer_cli.addons.interop.marian_names import (
    ACTIVATIONS,
    EPSILON,
    OPTIONS,
    Tied,
    is_transposed,
    marian_options,
    their_name,
    their_shape,
)
from transformer_cli.addons.interop.marian_program import Original
from transformer_cli.addons.interop.marian_vocabulary import SegmenterFile, Written, read_vocabulary, written
from transformer_cli.addons.interop.npz import Npz, write_npz
from transformer_cli.addons.interop.parts import part_names, parts_of
from transformer_cli.addons.interop.weights import (
    check_heads,
    check_self_attention,
    refuse_option,
    with_wide_embeddings,
)
from transformer_cli.config.model import DecoderStart, ModelConfig, Norm, Positions
from transformer_cli.models.file import ModelFile
from transformer_cli.version import __version__

MODEL_FILE, DECODER_FILE = "model.npz", "decoder.yml"
_BLOCK = 256  # bytes, of which the options fill whole ones
_NEVER = -500.0  # an output bias below it is that of a token which is never predicted
AS_MARIAN = "model.positions=sinusoidal_tensor2tensor model.norm_eps=1e-6 model.decoder_start=zero"
INSTEAD = f"Train with {AS_MARIAN}, or use `tfm export ctranslate2`"
SEARCH = {"beam-size": 4, "normalize": 0.6, "word-penalty": 0, "mini-batch": 32, "maxi-batch": 100}


def write(model: ModelFile, directory: Path) -> None:
    """Write `model` into `directory`, which is there and empty.

    Raises ConfigError for an option of the model that Marian does not have.
    """
    check_self_attention(model.config, "the Marian files that tfm writes", "Use `tfm export onnx`")
    check_kind(model.config)
    model = with_wide_embeddings(model)
    vocabularies = vocabularies_of(model)
    for vocabulary in vocabularies:
        for name, content in vocabulary.files.items():
            (directory / name).write_bytes(content)
    write_npz(directory / MODEL_FILE, items(model, vocabularies))
    settings = {
        "relative-paths": True,
        "models": [MODEL_FILE],
        "vocabs": [vocabulary.name for vocabulary in vocabularies],
        **SEARCH,
        "maxi-batch-sort": "src",
    }
    (directory / DECODER_FILE).write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")


def check_kind(config: ModelConfig) -> None:
    """Raise ConfigError for an option that no model of Marian's has."""
    if config.norm is not Norm.post:
        why = (
            "Marian trains and scores pre-LN as it is, but its search leaves out a norm of the decoder's self-attention"
        )
        refuse_option("norm", config.norm.name, why, "Train with model.norm=post, or use `tfm export ctranslate2`")
    if config.norm_kind != "layer":
        refuse_option("norm_kind", config.norm_kind, "Marian's self-attention has layer normalization", INSTEAD)
    if config.activation not in ACTIVATIONS.values():
        refuse_option("activation", config.activation.name, "Marian has relu and silu, which it calls swish", INSTEAD)
    if config.positions is not Positions.sinusoidal_tensor2tensor:
        refuse_option("positions", config.positions.name, "Marian has sinusoidal_tensor2tensor", INSTEAD)
    if config.first_position:
        refuse_option("first_position", config.first_position, "positions begin at 0 in Marian", INSTEAD)
    if config.epsilon != EPSILON:
        refuse_option("norm_eps", config.epsilon, f"the norms of Marian have {EPSILON}", INSTEAD)
    if config.decoder_start is not DecoderStart.zero:
        refuse_option("decoder_start", config.decoder_start.name, "Marian starts its decoder with zeros", INSTEAD)
    if not config.scale_embeddings:
        refuse_option("scale_embeddings", "false", "Marian multiplies embeddings by sqrt(d_model)", INSTEAD)
    check_heads(config, "Marian", "Train with others")


def max_positions(config: ModelConfig) -> int | None:
    """The most tokens that a sentence may have there: any number."""
    return None


def tied_as_theirs(config: ModelConfig) -> Tied:
    return next(
        tied
        for tied in (Tied(True, True), Tied(False, True), Tied(True, False), Tied(False, False))
        if tied.tying is config.tie_embeddings
    )


def vocabularies_of(model: ModelFile) -> tuple[Written, Written]:
    """The vocabularies of source and target: one if both have the same ids, though each is cut by its own segmenter."""
    hides_pad = _hides_pad(model)
    source, target = model.tokenizers.source, model.tokenizers.target
    joint = written(source, name="vocab", segmenter="source", hides_pad=hides_pad)
    other = written(target, name="vocab", segmenter="target", hides_pad=hides_pad)
    if joint.order == other.order and joint.files.get(joint.name) == other.files.get(joint.name):
        return joint, other
    ours = written(source, name="source.vocab", segmenter="source", hides_pad=hides_pad)
    theirs = written(target, name="target.vocab", segmenter="target", hides_pad=hides_pad)
    return ours, theirs


def _hides_pad(model: ModelFile) -> bool:
    """Whether the padding is none of Marian's, but was appended when the model was read."""
    bias = next(
        (
            weight
            for name, weight in model.weights.items()
            if name.endswith("embedding.bias") or name == "own_output.bias"
        ),
        None,
    )
    return bias is not None and bool(bias[model.tokenizers.target.pad_id] < _NEVER)


def items(model: ModelFile, vocabularies: tuple[Written, Written]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Marian's items, sorted by name, and its options at the end."""
    config, tied, sizes = model.config, tied_as_theirs(model.config), _sizes(vocabularies)
    parts = parts_of(model)
    names = {their_name(part, config, tied): part for part in part_names(config)}
    for name, part in sorted(names.items()):
        yield name, _as_theirs(part, parts, config, vocabularies).reshape(their_shape(part, config, sizes)).numpy()
    yield OPTIONS, _block(marian_options(config, sizes, tied, f"tfm {__version__}", model.causal_alignment_head))


def _sizes(vocabularies: tuple[Written, Written]) -> tuple[int, int]:
    return len(vocabularies[0].order), len(vocabularies[1].order)


def _as_theirs(
    part: str, parts: Mapping[str, Tensor], config: ModelConfig, vocabularies: tuple[Written, Written]
) -> Tensor:
    if part not in parts:  # a bias that we do not have, and Marian always has
        weight = parts["output" if part == "output_bias" else part.removesuffix("bias") + "weight"]
        zeros = weight.new_zeros(len(weight))
        return zeros[vocabularies[1].order] if part == "output_bias" else zeros
    if part in ("source_embedding", "target_embedding", "output", "output_bias"):
        return parts[part][vocabularies[0 if part == "source_embedding" else 1].order]
    return parts[part].t().contiguous() if is_transposed(part) else parts[part]


def _block(options: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The options as Marian keeps them: text that a zero ends, in whole blocks.

    They are filled with empty lines, so that there is one zero, as older programs want it.
    """
    text = yaml.safe_dump(options, sort_keys=False, default_flow_style=None).encode()
    text += b"\n" * (-(len(text) + 1) % _BLOCK) + b"\0"
    return np.frombuffer(text, dtype=np.int8)


class Loaded(Original):
    """A folder as CTranslate2 reads Marian's files, with the vocabularies of the folder: a Program of `verify`."""

    def __init__(self, directory: Path, model: ModelFile) -> None:
        model = with_wide_embeddings(model)
        vocabularies, tied = vocabularies_of(model), tied_as_theirs(model.config)
        sizes = _sizes(vocabularies)
        self.orders = vocabularies[0].order, vocabularies[1].order
        self.texts = [
            read_vocabulary(directory / vocabulary.name, size, _segmenter(directory, vocabulary, side)).tokenizer
            for vocabulary, size, side in zip(vocabularies, sizes, ("source", "target"), strict=True)
        ]
        super().__init__(Npz(directory / MODEL_FILE), model.config, tied, sizes, model.tokenizers, self.orders)

    def translate_text(self, lines: Sequence[str], *, max_tokens: int) -> list[str]:
        """The translation by greedy search of raw text, through the vocabularies of the folder."""
        source, target = self.orders
        sources = [[source[i] for i in ids] for ids in self.texts[0].encode(lines)]
        theirs = {ours: i for i, ours in enumerate(target)}
        found = self.translate(sources, beam_size=1, max_tokens=max_tokens)
        return [self.texts[1].decode([theirs[i] for i in ids]) for ids in found]

    def shown(self, text: str) -> str:
        """What the program makes of a translation: nothing else."""
        return text


def _segmenter(directory: Path, vocabulary: Written, side: str) -> SegmenterFile | None:
    names = [name for name in vocabulary.files if name.startswith(f"{side}.") and name != vocabulary.name]
    return SegmenterFile(directory / names[0]) if names else None
