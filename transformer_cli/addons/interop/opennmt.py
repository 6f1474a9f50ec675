"""Reading Transformers of OpenNMT-py 3: a checkpoint (.pt), which holds its vocabularies, and what cuts its text.

Source: OpenNMT-py 3.5.1, `modules`, `encoders/transformer.py` and `decoders/transformer.py`. All layers are pre-LN with
a final norm; sources have no EOS.

Shapes: B batch, S source, L new target tokens, D width, F feed-forward, V vocabulary, E head width.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.addons.interop.foreign import Imported, ReadOptions, files_like
from transformer_cli.addons.interop.parts import part_names, weights_from_parts
from transformer_cli.addons.interop.reference import ACTIVATIONS, Control, Past, Reference, sinusoids, with_texts
from transformer_cli.addons.interop.segmenters import SpecialIds, pack, read_segmenter
from transformer_cli.addons.interop.torch_checkpoint import (
    SEGMENTERS,
    CheckpointTensors,
    check_options,
    checked_config,
    checkpoint_languages,
    mentions,
    options_of,
    probability,
    read_checkpoint,
    reread,
    same_tensor,
    segmenters_beside,
)
from transformer_cli.config.model import Activation, ModelConfig, Norm, Positions, Tying
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import CheckpointError, quoted

PAD, UNK, BOS, EOS = "<blank>", "<unk>", "<s>", "</s>"
UNDETERMINED = "und"  # ISO 639-3, for languages that the checkpoint does not name
_ROTARY = -1  # of max_relative_positions

_SUPPORTED: Mapping[str, Sequence[Any]] = {
    "model_task": ("seq2seq",),
    "model_type": ("text",),
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "pos_ffn_activation_fn": ("relu", "gelu", "silu"),
    "position_encoding_type": ("SinusoidalInterleaved", "SinusoidalConcat"),
    "max_relative_positions": (0, _ROTARY),
    "relative_positions_buckets": (0,),
    "rotary_theta": (10000,),
    "layer_norm": ("standard", "rms"),
    "multiquery": (False,),
    "parallel_residual": (False,),
    "shared_layer_norm": (False,),
    "num_experts": (0,),
    "sliding_window": (0,),
    "copy_attn": (False,),
    "generator_function": ("softmax",),
    "n_src_feats": (0,),
    "lora_layers": (False,),
    "lora_embedding": (False,),
    "quant_type": (False,),
    "gpt2_pretok": (False,),
    "src_vocab_threshold": (0,),
    "tgt_vocab_threshold": (0,),
    "src_ggnn_size": (0,),
}
_EMBEDDING = "embeddings.make_embedding.emb_luts.0.weight"
_TABLE = "embeddings.make_embedding.pe.pe"  # the sinusoids, [positions, 1, D]
_LAYERS = {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"}
_NORMS = {
    "encoder": {"self": "layer_norm", "ffn": "feed_forward.layer_norm"},
    "decoder": {"self": "layer_norm_1", "cross": "layer_norm_2", "ffn": "feed_forward.layer_norm"},
}
_ATTENTION = {"self": "self_attn", "cross": "context_attn"}
_MATRICES = {"q": "linear_query", "k": "linear_keys", "v": "linear_values", "o": "final_linear"}
_STEP = re.compile(r"(.*)_step_([0-9]{1,12})\.pt")
_FED = ("sentencepiece", "bpe", "filtertoolong", "clean", "uppercase", "bart", "switchout", "tokendrop", "tokenmask")


class OpenNMTReader:
    """A Reader. A folder stands for its only .pt file, or for that of the last of its steps."""

    options: Sequence[str] = ("segmenter",)

    def recognises(self, path: Path) -> bool:
        checkpoint = _checkpoint(path)
        return checkpoint is not None and mentions(checkpoint, "vocab", "opt", "decoder_start_token", "transformer_ff")

    def files_of(self, names: Sequence[str]) -> list[str]:
        checkpoint = _last_step(files_like(names, "*.pt"))
        if checkpoint is None:
            return []
        return files_like(names, checkpoint, Path(checkpoint).with_suffix(".safetensors").name, *SEGMENTERS)

    def read(self, path: Path, options: ReadOptions) -> Imported:
        checkpoint = _checkpoint(path)
        if checkpoint is None:
            raise CheckpointError(
                f"{path}: not a file. Name the checkpoint of OpenNMT-py itself, as model_step_10000.pt"
            )
        path = checkpoint
        found = read_checkpoint(path)
        theirs = _options(path, found)
        languages = checkpoint_languages(
            path, options, theirs.get("src_lang"), theirs.get("tgt_lang"), default=UNDETERMINED
        )
        weights, files = _weights(path, found)
        vocab = dict(found["vocab"])
        del found  # it holds all tensors of the file
        pieces = _vocabularies(path, vocab)
        tokenizers, segmenters = _tokenizers(path, pieces, vocab, theirs, languages, options)
        model = _Checkpoint(weights, theirs, tokenizers)
        target = tokenizers.target
        banned = {target.pad_id, target.bos_id, target.unk_id} - {target.eos_id}
        control = Control(
            start=target.bos_id,
            eos=target.eos_id,
            unknown=tokenizers.source.unk_id,
            banned=sorted(banned),
            end=(),
        )
        return Imported(
            config=model.config,
            tokenizers=tokenizers,
            source_lang=languages[0],
            target_lang=languages[1],
            weights=weights_from_parts(model.config, model.fetch),
            program=lambda: with_texts(OpenNMTProgram(weights.all(), control, theirs), tokenizers),
            program_name="the original weights, as OpenNMT-py computes them",
            files=[path, *files, *segmenters],
            notes=_notes(theirs, tokenizers, languages),
        )


def _checkpoint(path: Path) -> Path | None:
    if path.is_file():
        return path
    name = _last_step([file.name for file in path.glob("*.pt")]) if path.is_dir() else None
    return None if name is None else path / name


def _last_step(names: Sequence[str]) -> str | None:
    """The only name, or that of the last step; None where they are of several models, or there is none."""
    steps = [_STEP.fullmatch(name) for name in names]
    if len(names) > 1 and len({step and step[1] for step in steps}) == 1 and all(steps):
        return max(names, key=lambda name: int(name.removesuffix(".pt").rpartition("_")[2]))
    return names[0] if len(names) == 1 else None


def _options(path: Path, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Raises CheckpointError where they ask for what is not supported."""
    theirs = options_of(path, checkpoint.get("opt"))
    if not theirs or not isinstance(checkpoint.get("vocab"), Mapping):
        raise CheckpointError(f"{path}: has no options and vocabularies, so it is no checkpoint of OpenNMT-py 3")
    check_options(path, theirs, _SUPPORTED)
    heads, width = theirs.get("heads"), theirs.get("hidden_size", theirs.get("enc_hid_size"))
    if type(heads) is not int or type(width) is not int or heads < 1 or width < 1 or width % heads:
        raise CheckpointError(
            f"{path}: heads={heads} and hidden_size={width} do not fit together. Nothing was imported"
        )
    checks = {
        "num_kv": (0, heads),
        "rotary_dim": (0, width // heads),
        "enc_hid_size": (width,),
        "dec_hid_size": (width,),
        "src_word_vec_size": (width,),
        "tgt_word_vec_size": (width,),
    }
    check_options(path, theirs, checks)
    if bool(theirs.get("position_encoding")) == (theirs.get("max_relative_positions", 0) == _ROTARY):
        raise CheckpointError(
            f"{path}: position_encoding={theirs.get('position_encoding')} with max_relative_positions="
            f"{theirs.get('max_relative_positions', 0)} is not supported (only sinusoids or rotary positions)"
        )
    if "onmt_tokenize" in _transforms(theirs):
        raise CheckpointError(
            f"{path}: its text is cut by onmt_tokenize, which is not supported (only sentencepiece, bpe, or words)"
        )
    return theirs


def _transforms(theirs: Mapping[str, Any]) -> list[str]:
    named = theirs.get("_all_transform") or theirs.get("transforms") or ()
    return sorted(name for name in named if isinstance(name, str))


def _weights(path: Path, checkpoint: Mapping[str, Any]) -> tuple[CheckpointTensors, list[Path]]:
    """The weights of the checkpoint or the .safetensors file beside it; the generator's under `generator.`."""
    if "model" not in checkpoint:
        file = path.with_suffix(".safetensors")
        if not file.is_file():
            raise CheckpointError(f"{path}: has no weights, and there is no {file.name} with them beside it")
        return CheckpointTensors(file, lambda: _safetensors(file)), [file]
    if not all(isinstance(checkpoint.get(part), Mapping) for part in ("model", "generator")):
        raise CheckpointError(f"{path}: has no weights of the whole model. Merge what LoRA has trained first")
    return CheckpointTensors(path, lambda: _joined(reread(path))), []


def _joined(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    return {**checkpoint["model"], **{f"generator.{name}": x for name, x in checkpoint["generator"].items()}}


def _safetensors(file: Path) -> dict[str, Tensor]:
    try:
        with safetensors.safe_open(file, framework="pt") as mapped:
            return {name: mapped.get_tensor(name) for name in mapped.keys()}  # noqa: SIM118  (no mapping)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{file}: damaged ({quoted(str(error))}). Copy it again") from error


def _vocabularies(path: Path, vocab: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    if vocab.get("src_feats"):
        raise CheckpointError(f"{path}: features of the source (src_feats) are not supported. Nothing was imported")
    for side in ("src", "tgt"):
        pieces = vocab.get(side)
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            raise CheckpointError(f"{path}: its {side} vocabulary is no list of text, as in OpenNMT-py 3")
        missing = [piece for piece in (PAD, UNK, EOS) if piece not in pieces]
        if missing:
            raise CheckpointError(f"{path}: its {side} vocabulary has no {missing[0]}. Nothing was imported")
    return vocab["src"], vocab["tgt"]


def _tokenizers(
    path: Path,
    pieces: tuple[list[str], list[str]],
    vocab: Mapping[str, Any],
    theirs: Mapping[str, Any],
    languages: tuple[str, str],
    options: ReadOptions,
) -> tuple[Tokenizers, list[Path]]:
    start = vocab.get("decoder_start_token", BOS)
    if start not in pieces[1]:
        raise CheckpointError(f"{path}: its tgt vocabulary has no {quoted(str(start))}, which the decoder starts with")
    segmenters = list(options.segmenters) or _named_segmenters(path, theirs) or segmenters_beside(path, languages)
    made: list[Tokenizer] = []
    for number, side in enumerate(pieces):
        segmenter = read_segmenter(segmenters[min(number, len(segmenters) - 1)] if segmenters else None)
        first = start if number else EOS  # sources begin with nothing
        ids = SpecialIds(pad=side.index(PAD), unk=side.index(UNK), bos=side.index(first), eos=side.index(EOS))
        made.append(pack(segmenter, side, ids, path=path, adds_eos=number == 1))
    return Tokenizers(made[0], made[1]), sorted(set(segmenters))


def _named_segmenters(path: Path, theirs: Mapping[str, Any]) -> list[Path]:
    """The files that the options name, if they lie beside the checkpoint; a shared vocabulary has one."""
    names = [theirs.get(f"{side}_subword_model") for side in ("src", "tgt")]
    if theirs.get("share_vocab"):
        names[1] = names[0]
    found = [path.parent / Path(name).name for name in names if isinstance(name, str) and Path(name).name]
    return found if len(found) == 2 and all(file.is_file() for file in found) else []


class _Checkpoint:
    """The checked parts of a checkpoint, by their canonical names."""

    def __init__(self, weights: CheckpointTensors, theirs: Mapping[str, Any], tokenizers: Tokenizers) -> None:
        self.weights, self.theirs, self.sizes = weights, theirs, (len(tokenizers.source), len(tokenizers.target))
        self.width, self.n_heads = int(theirs.get("hidden_size", theirs.get("enc_hid_size", 0))), int(theirs["heads"])
        self.d_ff = len(weights["encoder.transformer.0.feed_forward.w_1.weight"])
        self.config = self._config()
        self._check()

    def _config(self) -> ModelConfig:
        theirs, names = self.theirs, self.weights.names
        is_rotary = theirs.get("max_relative_positions", 0) == _ROTARY
        is_concat = theirs.get("position_encoding_type") == "SinusoidalConcat"
        sinusoidal = Positions.sinusoidal_tensor2tensor if is_concat else Positions.sinusoidal
        activation = theirs.get("pos_ffn_activation_fn", "relu")
        return checked_config(
            self.weights.path,
            preset="opennmt",
            n_encoder_layers=self.weights.n_layers(_LAYERS["encoder"]),
            n_decoder_layers=self.weights.n_layers(_LAYERS["decoder"]),
            d_model=self.width,
            n_heads=self.n_heads,
            d_ff=self.d_ff,
            dropout=probability(theirs.get("dropout")),
            attention_dropout=probability(theirs.get("attention_dropout")),
            norm=Norm.pre,
            norm_kind="rms" if theirs.get("layer_norm") == "rms" else "layer",
            norm_eps=theirs.get("norm_eps", 1e-6),
            activation=Activation.swiglu if activation == "silu" else Activation[activation],
            positions=Positions.rotary if is_rotary else sinusoidal,
            tie_embeddings=self._tying(),
            scale_embeddings=not is_rotary,  # what adds the sinusoids also scales
            bias=any(name.endswith((".w_1.bias", ".linear_query.bias")) for name in names),
            output_bias="generator.bias" in names,
        )

    def _tying(self) -> Tying:
        shares = self.theirs.get("share_embeddings")
        if not self.theirs.get("share_decoder_embeddings"):
            return Tying.source_target if shares else Tying.none
        return Tying.three_way if shares else Tying.decoder

    def _check(self) -> None:
        """Raises CheckpointError where a tensor is missing, has another shape, or is left over."""
        weights, tying = self.weights, self.config.tie_embeddings
        for name in part_names(self.config):
            tensor = self.fetch(name)
            if tensor is None:
                if not name.endswith("bias"):
                    weights.refuse(f"has no {name}")
            elif tuple(tensor.shape) != self._shape(name):
                weights.refuse(f"{name} is {list(tensor.shape)}, not {list(self._shape(name))}")
        tied = [f"decoder.{_EMBEDDING}"]
        if not tying.has_own_output:
            tied.append("generator.weight")
        if tying.shares_embedding:
            tied.append(f"encoder.{_EMBEDDING}")
        for name in tied[1:]:
            if not same_tensor(weights[name], weights[tied[0]]):
                weights.refuse(
                    f"{quoted(name)} differs from {quoted(tied[0])}, though the options say that they are one"
                )
        weights.check_all_used(ignored=lambda name: name.endswith(f".{_TABLE}"))
        weights.release()

    def _shape(self, part: str) -> tuple[int, ...]:
        d, f = self.width, self.d_ff
        if part in ("source_embedding", "target_embedding", "output"):
            return (self.sizes[part != "source_embedding"], d)
        if part == "output_bias":
            return (self.sizes[1],)
        if part.endswith(".bias"):
            return (f,) if ".ffn.in." in part or ".ffn.gate." in part else (d,)
        if ".norm." in part:
            return (d,)
        return (f, d) if ".ffn.in." in part or ".ffn.gate." in part else (d, f) if ".ffn.out." in part else (d, d)

    def fetch(self, part: str) -> Tensor | None:
        """A part by its canonical name; None for a bias that there is not."""
        if part in ("source_embedding", "target_embedding"):
            return self.weights[f"{'encoder' if part == 'source_embedding' else 'decoder'}.{_EMBEDDING}"]
        if part in ("output", "output_bias"):
            return self._optional(f"generator.{'weight' if part == 'output' else 'bias'}")
        side, _, rest = part.partition(".")
        if rest.startswith("norm."):
            return self.weights[f"{side}.layer_{rest}"]
        number, block, matrix, kind = rest.split(".")
        layer = f"{_LAYERS[side]}.{number}"
        if matrix == "norm":
            return self.weights[f"{layer}.{_NORMS[side][block]}.{kind}"]
        if block == "ffn":
            is_gated = self.config.activation is Activation.swiglu
            name = {"gate": "w_1", "in": "w_3" if is_gated else "w_1", "out": "w_2"}[matrix]
            return self._optional(f"{layer}.feed_forward.{name}.{kind}")
        found = self._optional(f"{layer}.{_ATTENTION[block]}.{_MATRICES[matrix]}.{kind}")
        is_rotated = block == "self" and matrix in "qk" and self.config.positions is Positions.rotary
        if found is not None and is_rotated and self.theirs.get("rotary_interleave"):
            return _halves(found, self.n_heads)
        return found

    def _optional(self, name: str) -> Tensor | None:
        return self.weights[name] if name in self.weights or not name.endswith(".bias") else None


def _halves(x: Tensor, n_heads: int) -> Tensor:
    """Rows of each head whose pairs (2i, 2i + 1) are rotated, in the order in which the pairs are (i, i + E/2)."""
    if len(x) % (2 * n_heads):
        return x  # of a shape that is refused
    return torch.unflatten(x, 0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def _notes(theirs: Mapping[str, Any], tokenizers: Tokenizers, languages: Sequence[str]) -> list[str]:
    notes = []
    if UNDETERMINED in languages:
        notes.append("its languages are not known: --source-lang and --target-lang name them")
    left = [name for name in _transforms(theirs) if name not in _FED]
    if left:
        notes.append(
            f"trained with the transforms {', '.join(left)}, which are not applied: give it text that has them"
        )
    if tokenizers.source.sentencepiece is None:
        notes.append("text is cut as it is: where words were tokenized before training, give it tokenized text")
    return notes


class OpenNMTProgram(Reference):
    """The checkpoint as OpenNMT-py computes it. Its table of sinusoids is its own."""

    def __init__(self, tensors: Mapping[str, Tensor], control: Control, theirs: Mapping[str, Any]) -> None:
        super().__init__(tensors, control, n_heads=int(theirs["heads"]))
        self.theirs, self.eps = theirs, float(theirs.get("norm_eps", 1e-6))
        self.activation = ACTIVATIONS[theirs.get("pos_ffn_activation_fn", "relu")]

    def encode_source(self, ids_BS: Tensor, is_token_BS: Tensor) -> Tensor:
        x_BSD = self._embed("encoder", ids_BS, 0)
        for i in range(self._n_layers("encoder.transformer")):
            layer = f"encoder.transformer.{i}"
            y_BSD = self._normed(f"{layer}.layer_norm", x_BSD)
            q, k, v = self._projected(f"{layer}.self_attn", y_BSD, y_BSD)
            q, k = self._rotated(q, 0), self._rotated(k, 0)
            context = self.attend(q, k, v, is_token_BS[:, None])
            x_BSD = self._feed_forward(layer, x_BSD + self.linear(f"{layer}.self_attn.final_linear", context))
        return self._normed("encoder.layer_norm", x_BSD)

    def decode(self, ids_BL: Tensor, first: int, memory_BSD: Tensor, is_token_BS: Tensor, past: Past) -> Tensor:
        x_BLD = self._embed("decoder", ids_BL, first)
        for i in range(self._n_layers("decoder.transformer_layers")):
            layer = f"decoder.transformer_layers.{i}"
            y_BLD = self._normed(f"{layer}.layer_norm_1", x_BLD)
            q, k, v = self._projected(f"{layer}.self_attn", y_BLD, y_BLD)
            k, v, causal = self.extend(past, layer, self._rotated(k, first), v)
            context = self.attend(self._rotated(q, first), k, v, causal)
            x_BLD = x_BLD + self.linear(f"{layer}.self_attn.final_linear", context)
            y_BLD = self._normed(f"{layer}.layer_norm_2", x_BLD)
            q, k, v = self._projected(f"{layer}.context_attn", y_BLD, memory_BSD)
            context = self.attend(q, k, v, is_token_BS[:, None])
            x_BLD = self._feed_forward(layer, x_BLD + self.linear(f"{layer}.context_attn.final_linear", context))
        return self.linear("generator", self._normed("decoder.layer_norm", x_BLD))

    def _n_layers(self, start: str) -> int:
        return len({name.split(".")[2] for name in self.tensors if name.startswith(f"{start}.")})

    def _embed(self, side: str, ids_BL: Tensor, first: int) -> Tensor:
        x_BLD = F.embedding(ids_BL, self.tensors[f"{side}.{_EMBEDDING}"])
        if not self.theirs.get("position_encoding"):
            return x_BLD
        width, last = x_BLD.size(-1), first + x_BLD.size(1)
        table = self.tensors.get(f"{side}.{_TABLE}")
        if table is None or len(table) < last:
            concat = self.theirs.get("position_encoding_type") == "SinusoidalConcat"
            step = 1 / (width // 2 - 1) if concat else 2 / width
            table_LD = sinusoids(range(first, last), width, interleaved=not concat, step=step)
        else:
            table_LD = table[first:last, 0]
        return x_BLD * math.sqrt(width) + table_LD

    def _normed(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        if self.theirs.get("layer_norm") == "rms":
            return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * weight
        return F.layer_norm(x, x.shape[-1:], weight, bias, self.eps)

    def _projected(self, name: str, query: Tensor, memory: Tensor) -> list[Tensor]:
        matrices = zip(("linear_query", "linear_keys", "linear_values"), (query, memory, memory), strict=True)
        return [self.linear(f"{name}.{matrix}", x) for matrix, x in matrices]

    def _rotated(self, x_BLD: Tensor, first: int) -> Tensor:
        """Rotary positions, as complex numbers of the pairs of each head."""
        if self.theirs.get("max_relative_positions", 0) != _ROTARY:
            return x_BLD
        x = torch.unflatten(x_BLD, -1, (self.n_heads, -1))
        n_pairs = x.size(-1) // 2
        angles = torch.outer(
            torch.arange(first, first + x.size(1), dtype=torch.float64),
            10_000 ** -(torch.arange(n_pairs, dtype=torch.float64) / n_pairs),
        ).float()[:, None]
        turns = torch.polar(torch.ones_like(angles), angles)
        if self.theirs.get("rotary_interleave"):
            turned = torch.view_as_complex(torch.unflatten(x, -1, (-1, 2)).contiguous()) * turns
            return torch.view_as_real(turned).flatten(-3)
        turned = torch.complex(x[..., :n_pairs].contiguous(), x[..., n_pairs:].contiguous()) * turns
        return torch.cat([turned.real, turned.imag], dim=-1).flatten(-2)

    def _feed_forward(self, layer: str, x_BLD: Tensor) -> Tensor:
        name = f"{layer}.feed_forward"
        y_BLD = self._normed(f"{name}.layer_norm", x_BLD)
        inner_BLF = self.activation(self.linear(f"{name}.w_1", y_BLD))
        if f"{name}.w_3.weight" in self.tensors:
            inner_BLF = inner_BLF * self.linear(f"{name}.w_3", y_BLD)
        return x_BLD + self.linear(f"{name}.w_2", inner_BLF)
