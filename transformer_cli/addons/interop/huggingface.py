"""A model directory of Hugging Face transformers, which its Auto classes and its translation pipeline load.

Two architectures of that library are ours under another name. MarianMT is post-LN as in the paper; Pegasus is the same
with pre-LN and a norm at the end of each stack, and reads and writes text with MarianTokenizer just as well. Both
arrange sines before cosines, which is no more than another order of the model's width: every weight that touches it is
put into that order, and interleaved positions are exported, too.

Shapes: D width, V vocabulary.
"""

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from transformer_cli.addons.interop.huggingface_files import SOURCE_TAGS
from transformer_cli.addons.interop.text import finding_tags, marked, normalising
from transformer_cli.addons.interop.verify import padded_ids
from transformer_cli.addons.interop.weights import (
    built,
    check_heads,
    check_self_attention,
    projections,
    refuse_option,
    stacks,
    with_wide_embeddings,
)
from transformer_cli.config.model import Activation, DecoderStart, ModelConfig, Norm, Positions, Tying
from transformer_cli.data.packed_tokenizer import is_code
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.decoding.search import ControlIds
from transformer_cli.errors import ConfigError
from transformer_cli.extras import imported
from transformer_cli.models.embeddings import LearnedPositions
from transformer_cli.models.file import ModelFile
from transformer_cli.models.layers import Residual

# Rows of the sinusoid table, which is finite there: more than a line has after it was split.
_N_POSITIONS = 2048
TORCH_EPSILON = 1e-5  # of nn.LayerNorm, which transformers leaves as it is
BIAS = "final_logits_bias"
_PROGRAM = "no architecture of transformers that is ours otherwise"


def convert(model: ModelFile) -> Any:
    """The model as a MarianMTModel or PegasusForConditionalGeneration, ready to generate.

    Raises ConfigError for an option of the model that neither can express.
    """
    check(model)
    model = with_wide_embeddings(model)
    library = imported("transformers", needs="tfm export huggingface")
    options = marian_options(model)
    if model.config.norm is Norm.post:
        converted = library.MarianMTModel(library.MarianConfig(**options))
    else:
        converted = library.PegasusForConditionalGeneration(library.PegasusConfig(**options))
    return filled(converted, weights(model), library.GenerationConfig(**generation(model)))


def filled(converted: Any, theirs: Mapping[str, Tensor], control: Any) -> Any:
    """A model of that library with these weights."""
    found = converted.load_state_dict(theirs, strict=False)
    left = [name for name in found.missing_keys if "embed_positions" not in name and name != BIAS]
    assert not left, left
    assert not found.unexpected_keys, found.unexpected_keys
    converted.tie_weights()
    converted.generation_config = control
    return converted.eval()


def write(model: ModelFile, directory: Path) -> Any:
    """Write `convert(model)` and its tokenizer into `directory`, which is there and empty; return the model."""
    converted = convert(model)
    save_directory(converted, tokenizer_files(model), directory)
    return converted


def save_directory(converted: Any, files: Mapping[str, bytes], directory: Path) -> None:
    try:
        with quiet():
            converted.save_pretrained(directory)
    except SafetensorError as error:  # of a disk too, without details
        raise OSError(errno.EIO, str(error)) from error
    for name, content in files.items():
        (directory / name).write_bytes(content)


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of that library, and no advice on options that it thinks useless."""
    logging = imported("transformers", needs="tfm export huggingface").utils.logging
    had_bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()


def tokenizer_files(model: ModelFile) -> dict[str, bytes]:
    """What MarianTokenizer reads. Pieces have the ids that they have here.

    It takes a code like `>>de<<` off a text by itself. Any other tag is a symbol of the source's SentencePiece model.
    """
    source, target = model.tokenizers.source, model.tokenizers.target
    unk, eos, pad = target.pieces([target.unk_id, target.eos_id, target.pad_id])
    config = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": model.source_lang,
        "target_lang": model.target_lang,
        "model_max_length": max_positions(model.config),
        "separate_vocabs": not model.tokenizers.joint,
        "unk_token": unk,
        "eos_token": eos,
        "pad_token": pad,
        "split_special_tokens": True,  # a written </s> is plain text
        "clean_up_tokenization_spaces": False,
    }
    tags = [tag for tag in source.tags if not is_code(tag)]
    if tags:
        config[SOURCE_TAGS] = tags  # for `tfm import`, which takes them for tags again
    files = {
        "source.spm": finding_tags(normalising(source), tags),
        "target.spm": finding_tags(normalising(target), tags if model.tokenizers.joint else []),
        "vocab.json": json_bytes(_vocabulary(source, tags)),
        "tokenizer_config.json": json_bytes(config),
    }
    return files if model.tokenizers.joint else files | {"target_vocab.json": json_bytes(_vocabulary(target))}


def _vocabulary(tokenizer: Tokenizer, tags: Sequence[str] = ()) -> dict[str, int]:
    pieces = enumerate(tokenizer.pieces(range(len(tokenizer))))
    return {marked(piece) if piece in tags else piece: number for number, piece in pieces}


def json_bytes(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def check(model: ModelFile) -> None:
    config, instead = model.config, "Train with another, or use `tfm export ctranslate2`"
    check_self_attention(config, "MarianMT and Pegasus", "Use `tfm export onnx`")  # CTranslate2 has none either
    if config.norm_kind != "layer":
        refuse_option("norm_kind", config.norm_kind, f"{_PROGRAM} has it", instead)
    if config.activation is Activation.swiglu:
        refuse_option("activation", config.activation.name, f"{_PROGRAM} gates its feed-forward layers", instead)
    if config.positions is Positions.rotary:
        refuse_option("positions", config.positions.name, f"{_PROGRAM} turns queries and keys", instead)
    if config.positions is Positions.sinusoidal_tensor2tensor:
        refuse_option("positions", config.positions.name, "MarianMT and Pegasus have the paper's frequencies", instead)
    if config.first_position:
        refuse_option("first_position", config.first_position, "positions begin at 0 in MarianMT and Pegasus", instead)
    if config.epsilon != TORCH_EPSILON:
        refuse_option("norm_eps", config.epsilon, f"the norms of MarianMT and Pegasus have {TORCH_EPSILON}", instead)
    if config.decoder_start is DecoderStart.zero and not starts_at_zero(model):
        why = "the row of the start token is not zero in the embedding, which is also the output layer"
        refuse_option("decoder_start", "zero", why, instead)
    if not model.tokenizers.source.end_ids:
        raise ConfigError(
            "tokenizer: its sources have no EOS, which MarianTokenizer appends. Use `tfm export ctranslate2`"
        )
    if config.positions is Positions.learned and config.norm is Norm.post:
        refuse_option(
            "positions", config.positions.name, "MarianMT, which has norm=post, computes its positions", instead
        )
    sizes = len(model.tokenizers.source), len(model.tokenizers.target)
    if config.norm is Norm.pre and sizes[0] != sizes[1]:
        refuse_option("norm", "pre", f"Pegasus, which has it, has one vocabulary size, and this model {sizes}", instead)
    check_heads(config, "transformers", "Train with others")


def starts_at_zero(model: ModelFile) -> bool:
    """Whether the start token's embedding is zero as it is stored, which is all that transformers looks at."""
    if model.config.tie_embeddings.has_own_output or model.config.embedding_width < model.config.d_model:
        return True  # `weights` makes it so
    name = "source_embedding" if model.config.tie_embeddings is Tying.three_way else "own_target_embedding"
    return not model.weights[f"{name}.weight"][model.tokenizers.target.bos_id].any()


def marian_options(model: ModelFile) -> dict[str, Any]:
    """The config that MarianMT and Pegasus share."""
    config, source, target = model.config, model.tokenizers.source, model.tokenizers.target
    options: dict[str, Any] = {
        "vocab_size": len(source),
        "d_model": config.d_model,
        "encoder_layers": config.n_encoder_layers,
        "decoder_layers": config.n_decoder_layers,
        "encoder_attention_heads": config.n_heads,
        "decoder_attention_heads": config.n_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "max_position_embeddings": max_positions(config),
        "activation_function": config.activation.name,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "scale_embedding": config.scale_embeddings,
        "pad_token_id": target.pad_id,
        "bos_token_id": target.bos_id,
        "eos_token_id": target.eos_id,
        "decoder_start_token_id": target.bos_id,
        "forced_eos_token_id": None,
    }
    if config.norm is Norm.post:
        shared = config.tie_embeddings is Tying.three_way
        options |= {
            "decoder_vocab_size": len(target),
            "share_encoder_decoder_embeddings": shared,
            "tie_word_embeddings": not config.tie_embeddings.has_own_output,
        }
    else:
        options["tie_word_embeddings"] = config.tie_embeddings is Tying.three_way
    return options


def generation(model: ModelFile) -> dict[str, Any]:
    """The default search of `generate`: as similar to our beam search as it can be."""
    target = model.tokenizers.target
    return {
        "num_beams": 4,
        "early_stopping": False,
        "length_penalty": 1.0,  # of that library: the mean; it has no GNMT
        "max_length": 512,
        "pad_token_id": target.pad_id,
        "bos_token_id": target.bos_id,
        "eos_token_id": target.eos_id,
        "decoder_start_token_id": target.bos_id,
        "suppress_tokens": ControlIds.of(target).banned,
    }


def max_positions(config: ModelConfig) -> int:
    return config.max_positions if config.positions is Positions.learned else _N_POSITIONS


def order(config: ModelConfig) -> Tensor:
    """The index of our column for each column of theirs, [D]."""
    columns_D = torch.arange(config.d_model)
    if config.positions is not Positions.sinusoidal:
        return columns_D
    return torch.cat([columns_D[0::2], columns_D[1::2]])


def weights(model: ModelFile) -> Mapping[str, Tensor]:
    """Our weights under their names and in their order."""
    transformer, order_D = built(model), order(model.config)
    output = transformer.output_embedding
    source_VD, target_VD, output_VD = (
        embedding.weight.detach()[:, order_D]
        for embedding in (transformer.source_embedding, transformer.target_embedding, output)
    )
    if model.config.decoder_start is DecoderStart.zero and model.config.tie_embeddings.has_own_output:
        target_VD[model.tokenizers.target.bos_id] = 0  # a copy, as indexing makes one
    theirs = {
        BIAS: torch.zeros(1, len(output_VD)) if output.bias is None else output.bias.detach()[None],
        "model.encoder.embed_tokens.weight": source_VD,
        "model.decoder.embed_tokens.weight": target_VD,
        "lm_head.weight": output_VD,
    }
    if model.config.norm is Norm.pre or model.config.tie_embeddings is Tying.three_way:
        theirs["model.shared.weight"] = source_VD

    def put(name: str, weight: Tensor, bias: Tensor | None) -> None:
        theirs[f"{name}.weight"] = weight.detach()
        theirs[f"{name}.bias"] = weight.new_zeros(len(weight)) if bias is None else bias.detach()

    def put_in(name: str, weight: Tensor, bias: Tensor | None) -> None:
        put(name, weight[:, order_D], bias)

    def put_out(name: str, layer: nn.Linear) -> None:
        put(name, layer.weight[order_D], None if layer.bias is None else layer.bias[order_D])

    def put_norm(name: str, norm: Any) -> None:
        put(name, norm.weight[order_D], norm.bias[order_D])

    def put_attention(name: str, attention: Any, around: Residual) -> None:
        for part, (weight, bias) in zip("qkv", projections(attention), strict=True):
            put_in(f"{name}.{part}_proj", weight, bias)
        put_out(f"{name}.out_proj", attention.to_out)
        put_norm(f"{name}_layer_norm", around.norm)

    for side, stack in stacks(transformer):
        if isinstance(stack.positions, LearnedPositions):
            theirs[f"model.{side}.embed_positions.weight"] = stack.positions.weight.detach()
        if model.config.norm is Norm.pre:
            put_norm(f"model.{side}.layer_norm", stack.norm)
        layers: Any = stack.layers
        for i, layer in enumerate(layers):
            name = f"model.{side}.layers.{i}"
            put_attention(f"{name}.self_attn", layer.self_attention, layer.around_self_attention)
            if side == "decoder":
                put_attention(f"{name}.encoder_attn", layer.cross_attention, layer.around_cross_attention)
            put_in(f"{name}.fc1", layer.feed_forward.to_hidden.weight, layer.feed_forward.to_hidden.bias)
            put_out(f"{name}.fc2", layer.feed_forward.to_out)
            put_norm(f"{name}.final_layer_norm", layer.around_feed_forward.norm)
    return theirs


class Loaded:
    """A directory as a user of transformers loads it: a Program of `verify`."""

    def __init__(self, directory: Path) -> None:
        library = imported("transformers", needs="tfm export huggingface")
        with quiet():
            self.model = library.AutoModelForSeq2SeqLM.from_pretrained(directory).eval()
        self.tokenizer = library.AutoTokenizer.from_pretrained(directory)
        self.control = self.model.generation_config

    def translate(self, sources: Sequence[Sequence[int]], *, beam_size: int, max_tokens: int) -> list[list[int]]:
        return self.without_ends(self.generate(*self.padded(sources), beam_size=beam_size, max_tokens=max_tokens))

    def without_ends(self, found_BT: Tensor) -> list[list[int]]:
        ends = (self.control.pad_token_id, self.control.eos_token_id)
        return [[i for i in row[1:] if i not in ends] for row in found_BT.tolist()]

    def translate_text(self, lines: Sequence[str], *, max_tokens: int) -> list[str]:
        given = self.tokenizer(list(lines), return_tensors="pt", padding=True)
        found_BT = self.generate(given.input_ids, given.attention_mask, beam_size=1, max_tokens=max_tokens)
        return list(self.tokenizer.batch_decode(found_BT, skip_special_tokens=True))

    def shown(self, text: str) -> str:
        return text

    @torch.inference_mode()
    def generate(
        self,
        source_BS: Tensor,
        mask_BS: Tensor,
        *,
        beam_size: int,
        max_tokens: int,
        begun: Sequence[Sequence[int]] = (),
    ) -> Tensor:
        """Ids with the start, EOS and padding, [B, T]; each begins with its ids of `begun`."""
        start = self.control.decoder_start_token_id
        with quiet():
            found_BT: Tensor = self.model.generate(
                input_ids=source_BS,
                attention_mask=mask_BS,
                decoder_input_ids=torch.tensor([[start, *ids] for ids in begun]) if begun else None,
                num_beams=beam_size,
                max_length=max_tokens + 1,
                length_penalty=0.0,
            )
        return found_BT

    @torch.inference_mode()
    def log_probs(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        source_BS, mask_BS = self.padded(sources)
        start, eos = self.control.decoder_start_token_id, self.control.eos_token_id
        target_in_BT = padded_ids([[start, *ids] for ids in targets], self.control.pad_token_id)
        logits_BTV = self.model(input_ids=source_BS, attention_mask=mask_BS, decoder_input_ids=target_in_BT).logits
        return [
            log_p_TV[range(len(ids) + 1), [*ids, eos]].tolist()
            for log_p_TV, ids in zip(logits_BTV.log_softmax(-1), targets, strict=True)
        ]

    def padded(self, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Ids with their EOS, and 1 at each that is real."""
        ends = self.end_ids
        source_BS = padded_ids([[*ids, *ends] for ids in sources], self.control.pad_token_id)
        return source_BS, padded_ids([[1] * (len(ids) + len(ends)) for ids in sources], 0)

    @property
    def end_ids(self) -> list[int]:
        """What every source ends with."""
        return [self.control.eos_token_id]
