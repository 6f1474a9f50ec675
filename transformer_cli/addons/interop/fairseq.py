"""Reading Transformers of fairseq: a checkpoint (.pt), its dictionaries and what cuts its text beside it.

Source: fairseq 0.12.2, `models/transformer` and `data/dictionary.py`. The decoder starts with EOS; the first position
is 2, behind those that fairseq keeps for the padding.

Shapes: B batch, S source, L new target tokens, D width, F feed-forward, V vocabulary.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from transformer_cli.addons.interop.foreign import Imported, ReadOptions, files_like
from transformer_cli.addons.interop.parts import STACKS, part_names, weights_from_parts
from transformer_cli.addons.interop.reference import ACTIVATIONS, Control, Past, Reference, sinusoids, with_texts
from transformer_cli.addons.interop.segmenters import SpecialIds, pack, read_segmenter
from transformer_cli.addons.interop.torch_checkpoint import (
    SEGMENTERS,
    CheckpointTensors,
    beside,
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
from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted

BOS, PAD, EOS, UNK = range(4)  # rows that every dictionary begins with; nothing uses the first one in a translation
FIRST = PAD + 1  # position of the first token
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_OVERWRITE = "#fairseq:overwrite"
_MOST = 1 << 28  # bytes of a dictionary

# What a checkpoint may say of these options, beside leaving them out. All else would be another model.
_SUPPORTED: Mapping[str, Sequence[Any]] = {
    "activation_fn": ("relu", "gelu"),
    "adaptive_input": (False,),
    "adaptive_softmax_cutoff": (False,),
    "layernorm_embedding": (False,),
    "no_token_positional_embeddings": (False,),
    "no_cross_attention": (False,),
    "cross_self_attention": (False,),
    "no_decoder_final_norm": (False,),
    "quant_noise_pq": (False, 0, 0.0),
    "quant_noise_scalar": (False, 0, 0.0),
    "base_layers": (False, 0),
    "char_inputs": (False,),
    "encoder_layers_to_keep": (False,),
    "decoder_layers_to_keep": (False,),
    "encoder_xformers_att_config": (False,),
    "decoder_xformers_att_config": (False,),
    "scale_fc": (False,),
    "scale_attn": (False,),
    "scale_heads": (False,),
    "scale_resids": (False,),
    "use_alibi": (False,),
    "alibi": (False,),
    "truncate_source": (False,),
    "encoder_langtok": (False,),
    "decoder_langtok": (False,),
    "lang_tok_style": (False, "none"),
    "prepend_bos": (False,),
    "prepend_bos_src": (False,),
    "add_bos": (False,),
}
_OTHER_MODELS = re.compile(
    r"levenshtein|nonautoregressive|insertion|cmlm|_lm|lightconv|pointer|monotonic|xm_|linformer"
)
_OTHER_TASKS = re.compile(r"multi|denois|language_model|lev$|from_pretrained|speech|online|masked|semisupervised")

_NORMS = {
    "encoder": {"self": ("self_attn_layer_norm", "0"), "ffn": ("final_layer_norm", "1")},
    "decoder": {
        "self": ("self_attn_layer_norm", "0"),
        "cross": ("encoder_attn_layer_norm", "1"),
        "ffn": ("final_layer_norm", "2"),
    },
}
_ATTENTION = {"self": "self_attn", "cross": "encoder_attn"}
# Not weights, or copies that fairseq makes anew when it loads the checkpoint.
_IGNORED = re.compile(
    r"(encoder|decoder)\.(version|embed_positions\.(_float_tensor|weights))"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)


_CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt", "model.pt")


class FairseqReader:
    """A Reader. A folder stands for its checkpoint_best.pt, checkpoint_last.pt, model.pt, or its only .pt file."""

    options: Sequence[str] = ("vocabulary", "segmenter")

    def recognises(self, path: Path) -> bool:
        checkpoint = _checkpoint(path)
        return checkpoint is not None and (
            mentions(checkpoint, "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
        )

    def files_of(self, names: Sequence[str]) -> list[str]:
        checkpoints = [name for name in _CHECKPOINTS if name in names] or files_like(names, "*.pt")
        texts = files_like(names, "dict*.txt", *SEGMENTERS)
        return [checkpoints[0], *texts] if checkpoints and files_like(texts, "dict*.txt") else []

    def read(self, path: Path, options: ReadOptions) -> Imported:
        checkpoint = _checkpoint(path)
        if checkpoint is None:
            raise CheckpointError(f"{path}: no checkpoint_best.pt, checkpoint_last.pt or model.pt in it. Name the file")
        found = read_checkpoint(checkpoint)
        theirs = _options(checkpoint, found)
        weights = CheckpointTensors(checkpoint, lambda: reread(checkpoint).get("model"))
        del found  # it holds all tensors of the file
        languages = checkpoint_languages(checkpoint, options, theirs.get("source_lang"), theirs.get("target_lang"))
        tokenizers, files = _tokenizers(checkpoint, weights, languages, options)
        model = _Checkpoint(weights, theirs, tokenizers)
        return Imported(
            config=model.config,
            tokenizers=tokenizers,
            source_lang=languages[0],
            target_lang=languages[1],
            weights=weights_from_parts(model.config, model.fetch),
            program=lambda: with_texts(FairseqProgram(weights.all(), theirs), tokenizers),
            program_name="the original weights, as fairseq computes them",
            files=[checkpoint, *files],
            notes=_notes(theirs, tokenizers),
        )


def _checkpoint(path: Path) -> Path | None:
    if path.is_file():
        return path
    if not path.is_dir():
        return None
    found = [path / name for name in _CHECKPOINTS if (path / name).is_file()] or sorted(path.glob("*.pt"))
    return found[0] if found and (len(found) == 1 or found[0].name in _CHECKPOINTS) else None


def _options(path: Path, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The options of model and task. Raises CheckpointError where they ask for what is not supported."""
    if checkpoint.get("args") is None and not isinstance(checkpoint.get("cfg"), Mapping):
        raise CheckpointError(f"{path}: has neither `args` nor `cfg`, so it is not a checkpoint of fairseq")
    cfg = checkpoint.get("cfg") or {}
    theirs = options_of(path, cfg.get("task"), cfg.get("model")) or options_of(path, checkpoint.get("args"))
    kind = str(theirs.get("arch", theirs.get("_name", "transformer")))
    task = cfg.get("task") or checkpoint.get("args")
    of_task = options_of(path, task)
    task_name = str(of_task.get("_name", of_task.get("task", "translation")))
    theirs["task"] = task_name
    if "transformer" not in kind or _OTHER_MODELS.search(kind):
        raise CheckpointError(
            f"{path}: the architecture {quoted(kind)} is not supported (only Transformers that translate)"
        )
    if _OTHER_TASKS.search(task_name):
        raise CheckpointError(f"{path}: the task {quoted(task_name)} is not supported (only translation of one pair)")
    check_options(path, theirs, _SUPPORTED)
    for name in ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before", "learned_pos"):
        encoder, decoder = (theirs.get(f"{side}_{name}") for side in STACKS)
        if encoder != decoder:
            raise CheckpointError(
                f"{path}: encoder_{name}={encoder} and decoder_{name}={decoder} are not supported (only the same in"
                " both). Nothing was imported"
            )
    for name in ("decoder_input_dim", "decoder_output_dim"):
        if theirs.get(name, theirs.get("decoder_embed_dim")) != theirs.get("decoder_embed_dim"):
            raise CheckpointError(
                f"{path}: {name}={theirs[name]}, another width than decoder_embed_dim, is not supported"
            )
    heads = theirs.get("encoder_attention_heads")
    if type(heads) is not int or heads < 1:
        raise CheckpointError(f"{path}: does not say how many attention heads it has. Save it with its options")
    return theirs


def _tokenizers(
    path: Path, weights: CheckpointTensors, languages: tuple[str, str], options: ReadOptions
) -> tuple[Tokenizers, list[Path]]:
    dictionaries = list(options.vocabularies) or [_dictionary(path, language) for language in languages]
    segmenters = list(options.segmenters) or segmenters_beside(path, languages)
    made: list[Tokenizer] = []
    for number, side in enumerate(STACKS):
        dictionary = dictionaries[min(number, len(dictionaries) - 1)]
        segmenter = read_segmenter(segmenters[min(number, len(segmenters) - 1)] if segmenters else None)
        table = weights[f"{side}.embed_tokens.weight"]
        pieces = read_dictionary(dictionary, n_rows=len(table) if table.dim() == 2 else 0)
        special = SpecialIds(pad=PAD, unk=UNK, bos=EOS, eos=EOS)
        made.append(pack(segmenter, pieces, special, path=dictionary, hidden=pieces[:1], respaced=True))
    return Tokenizers(made[0], made[1]), sorted({*dictionaries, *segmenters})


def _dictionary(path: Path, language: str) -> Path:
    for name in (f"dict.{language}.txt", "dict.txt"):
        if (path.parent / name).is_file():
            return path.parent / name
    others = ", ".join(file.name for file in beside(path, ["dict*.txt"])) or "none"
    raise CheckpointError(
        f"{path}: no dict.{language}.txt beside it (there: {others}). Name the dictionaries with --vocabulary, or the"
        " languages with --source-lang and --target-lang"
    )


def read_dictionary(path: Path, *, n_rows: int) -> list[str]:
    """The pieces by their ids. Raises CheckpointError unless there are as many as rows of the embedding.

    A piece that a later line replaces (`#fairseq:overwrite`) cannot be looked up any more, but keeps its id.
    """
    try:
        if path.stat().st_size > _MOST:
            raise CheckpointError(f"{path}: too large for a dictionary")
        lines = path.read_bytes().decode().split("\n")
    except OSError as error:
        raise EnvironmentFault(f"{path}: {error.strerror}. Check --vocabulary and the file's permissions") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path}: not UTF-8, so not a dictionary of fairseq. Check --vocabulary") from error
    pieces, numbers = list(SPECIAL), {piece: number for number, piece in enumerate(SPECIAL)}
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, 1):
        piece, _, count = line.rstrip().rpartition(" ")
        overwrites = count == _OVERWRITE
        if overwrites:
            piece, _, count = piece.rpartition(" ")
        if not piece or not count.isdecimal():
            raise CheckpointError(
                f"{path}, line {number}: not a piece and its count ({quoted(line)}). Check --vocabulary"
            )
        if piece in numbers:
            if not overwrites:
                raise CheckpointError(f"{path}, line {number}: {quoted(piece)} for the second time. Check --vocabulary")
            pieces[numbers[piece]] = f"{piece} (overwritten {numbers[piece]})"  # with a space: no text has such a piece
        numbers[piece] = len(pieces)
        pieces.append(piece)
    if 0 < n_rows - len(pieces) < 8 and n_rows % 8 == 0:  # as Dictionary.finalize pads them
        pieces += [f"madeupword{i:04d}" for i in range(n_rows - len(pieces))]
    if len(pieces) != n_rows:
        raise CheckpointError(
            f"{path}: {len(pieces)} pieces with the special ones, but the embedding has {n_rows} rows. Use the"
            " dictionary of this model"
        )
    return pieces


class _Checkpoint:
    """The checked parts of a checkpoint, by their canonical names."""

    def __init__(self, weights: CheckpointTensors, theirs: Mapping[str, Any], tokenizers: Tokenizers) -> None:
        self.weights, self.theirs, self.sizes = weights, theirs, (len(tokenizers.source), len(tokenizers.target))
        self.width = weights["encoder.embed_tokens.weight"].size(-1)
        first = "encoder.layers.0.fc1.weight"
        self.d_ff = weights.shaped(first, len(weights[first]), self.width).size(0)
        self.config = self._config()
        self._check()

    def _config(self) -> ModelConfig:
        theirs = self.theirs
        n_heads, pre_norm = int(theirs["encoder_attention_heads"]), bool(theirs.get("encoder_normalize_before"))
        learned = bool(theirs.get("encoder_learned_pos"))
        rows = [len(self.weights[f"{side}.embed_positions.weight"]) - FIRST for side in STACKS] if learned else []
        return checked_config(
            self.weights.path,
            preset="fairseq",
            n_encoder_layers=self.weights.n_layers("encoder.layers"),
            n_decoder_layers=self.weights.n_layers("decoder.layers"),
            d_model=self.width,
            n_heads=n_heads,
            d_ff=self.d_ff,
            dropout=probability(theirs.get("dropout", 0.1)),
            attention_dropout=probability(theirs.get("attention_dropout", 0.0)),
            activation_dropout=probability(theirs.get("activation_dropout") or theirs.get("relu_dropout", 0.0)),
            norm=Norm.pre if pre_norm else Norm.post,
            activation=Activation[theirs.get("activation_fn", "relu")],
            positions=Positions.learned if learned else Positions.sinusoidal_tensor2tensor,
            first_position=0 if learned else FIRST,
            **({"max_positions": min(rows)} if learned else {}),
            tie_embeddings=self._tying(),
            scale_embeddings=not theirs.get("no_scale_embedding"),
        )

    def _tying(self) -> Tying:
        if self.theirs.get("share_all_embeddings"):
            return Tying.three_way
        return Tying.decoder if self.theirs.get("share_decoder_input_output_embed") else Tying.none

    def _check(self) -> None:
        """Raises CheckpointError where a tensor is missing, has another shape, or is left over."""
        weights, config = self.weights, self.config
        for side, n_old in (("encoder", 2), ("decoder", 3)):
            version = f"{side}.version"
            if config.norm is Norm.pre and version in weights and float(weights[version].reshape(-1)[0]) < n_old:
                weights.refuse(f"{version} is below {n_old}: pre-LN without a final norm is not supported")
        for name in part_names(config):
            if name != "output_bias":
                tensor = self.fetch(name)
                assert tensor is not None
                if tuple(tensor.shape) != self._shape(name):
                    weights.refuse(f"{name} is {list(tensor.shape)}, not {list(self._shape(name))}")
        tied = {
            Tying.three_way: ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
            Tying.decoder: ("decoder.embed_tokens.weight",),
            Tying.none: (),
        }[config.tie_embeddings]
        for name in (*tied, *(["decoder.output_projection.weight"] if tied else [])):
            if name in weights and not same_tensor(weights[name], weights[tied[0]]):
                weights.refuse(
                    f"{quoted(name)} differs from {quoted(tied[0])}, though the options say that they are one"
                )
        weights.check_all_used(ignored=lambda name: _IGNORED.fullmatch(name) is not None)
        weights.release()

    def _shape(self, part: str) -> tuple[int, ...]:
        d, f = self.width, self.d_ff
        if part in ("source_embedding", "target_embedding", "output"):
            return (self.sizes[part != "source_embedding"], d)
        if part.endswith(".positions"):
            return (self.config.max_positions, d)
        if part.endswith(".bias"):
            return (f,) if ".ffn.in." in part else (d,)
        if ".norm." in part:
            return (d,)
        return (f, d) if ".ffn.in." in part else (d, f) if ".ffn.out." in part else (d, d)

    def fetch(self, part: str) -> Tensor | None:
        """A part by its canonical name, from the names of this version or from older ones."""
        weights = self.weights
        if part == "output_bias":
            return None
        if part == "source_embedding":
            return weights["encoder.embed_tokens.weight"]
        if part == "target_embedding":
            return weights["decoder.embed_tokens.weight"]
        if part == "output":
            if self.config.tie_embeddings is not Tying.none:
                return weights["decoder.embed_tokens.weight"]
            old = "decoder.embed_out"
            return weights[old if old in weights else "decoder.output_projection.weight"]
        side, _, rest = part.partition(".")
        if rest == "positions":
            return weights[f"{side}.embed_positions.weight"][FIRST : FIRST + self.config.max_positions]
        if rest.startswith("norm."):
            return weights[f"{side}.layer_{rest}"]
        number, block, matrix, kind = rest.split(".")
        layer = f"{side}.layers.{number}"
        if matrix == "norm":
            new, old = _NORMS[side][block]
            old = f"{layer}.layer_norms.{old}.{kind}"
            return weights[old if old in weights else f"{layer}.{new}.{kind}"]
        if block == "ffn":
            return weights[f"{layer}.{'fc1' if matrix == 'in' else 'fc2'}.{kind}"]
        attention = f"{layer}.{_ATTENTION[block]}"
        joined = f"{attention}.in_proj_{kind}"
        if matrix != "o" and joined in weights:
            shape = (3 * self.width, self.width) if kind == "weight" else (3 * self.width,)
            return weights.shaped(joined, *shape).chunk(3)["qkv".index(matrix)]
        return weights[f"{attention}.{'out' if matrix == 'o' else matrix}_proj.{kind}"]


def _notes(theirs: Mapping[str, Any], tokenizers: Tokenizers) -> list[str]:
    notes = []
    if theirs["task"] != "translation":
        notes.append(f"its task is {quoted(theirs['task'])}: taken for translation of one pair")
    if tokenizers.source.sentencepiece is None:
        notes.append("text is cut as it is: where words were tokenized before training, give it tokenized text")
    return notes


class FairseqProgram(Reference):
    """The checkpoint as fairseq computes it, with names of version 0.12 or older ones."""

    def __init__(self, tensors: Mapping[str, Tensor], theirs: Mapping[str, Any]) -> None:
        super().__init__(
            tensors,
            Control(start=EOS, eos=EOS, unknown=UNK, banned=(PAD, UNK), end=(EOS,)),
            n_heads=int(theirs["encoder_attention_heads"]),
        )
        self.pre_norm = bool(theirs.get("encoder_normalize_before"))
        self.activation = ACTIVATIONS[theirs.get("activation_fn", "relu")]
        self.is_scaled = not theirs.get("no_scale_embedding")

    def encode_source(self, ids_BS: Tensor, is_token_BS: Tensor) -> Tensor:
        x_BSD = self._embed("encoder", ids_BS, 0)
        for layer in self._layers("encoder"):
            x_BSD = self._attention(f"{layer}.self_attn", f"{layer}.self_attn_layer_norm", x_BSD, is_token_BS[:, None])
            x_BSD = self._feed_forward(layer, x_BSD)
        return self._normed("encoder.layer_norm", x_BSD) if self.pre_norm else x_BSD

    def decode(self, ids_BL: Tensor, first: int, memory_BSD: Tensor, is_token_BS: Tensor, past: Past) -> Tensor:
        x_BLD = self._embed("decoder", ids_BL, first)
        for layer in self._layers("decoder"):
            x_BLD = self._attention(f"{layer}.self_attn", f"{layer}.self_attn_layer_norm", x_BLD, past=past)
            x_BLD = self._attention(
                f"{layer}.encoder_attn", f"{layer}.encoder_attn_layer_norm", x_BLD, is_token_BS[:, None], memory_BSD
            )
            x_BLD = self._feed_forward(layer, x_BLD)
        if self.pre_norm:
            x_BLD = self._normed("decoder.layer_norm", x_BLD)
        names = ("decoder.output_projection.weight", "decoder.embed_out", "decoder.embed_tokens.weight")
        return F.linear(x_BLD, next(self.tensors[name] for name in names if name in self.tensors))

    def _layers(self, side: str) -> Iterable[str]:
        numbers = {int(name.split(".")[2]) for name in self.tensors if name.startswith(f"{side}.layers.")}
        return [f"{side}.layers.{i}" for i in sorted(numbers)]

    def _embed(self, side: str, ids_BL: Tensor, first: int) -> Tensor:
        x_BLD = F.embedding(ids_BL, self.tensors[f"{side}.embed_tokens.weight"])
        width = x_BLD.size(-1)
        places = range(PAD + 1 + first, PAD + 1 + first + x_BLD.size(1))
        learned = self.tensors.get(f"{side}.embed_positions.weight")
        if learned is None:
            table_LD = sinusoids(places, width, interleaved=False, step=1 / (width // 2 - 1))
        else:
            table_LD = learned[places.start : places.stop]
        return x_BLD * (math.sqrt(width) if self.is_scaled else 1) + table_LD

    def _normed(self, name: str, x: Tensor) -> Tensor:
        if f"{name}.weight" not in self.tensors:
            layer, _, kind = name.rpartition(".")
            old = {"self_attn_layer_norm": 0, "encoder_attn_layer_norm": 1, "final_layer_norm": -1}[kind]
            last = 1 if layer.startswith("encoder") else 2
            name = f"{layer}.layer_norms.{last if old < 0 else old}"
        return F.layer_norm(x, x.shape[-1:], self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"], 1e-5)

    def _attention(
        self,
        name: str,
        norm: str,
        x_BLD: Tensor,
        may_attend: Tensor | None = None,
        memory_BSD: Tensor | None = None,
        past: Past | None = None,
    ) -> Tensor:
        y_BLD = self._normed(norm, x_BLD) if self.pre_norm else x_BLD
        states = y_BLD if memory_BSD is None else memory_BSD
        if f"{name}.in_proj_weight" in self.tensors:
            weights, biases = (self.tensors[f"{name}.in_proj_{kind}"].chunk(3) for kind in ("weight", "bias"))
            q, k, v = (F.linear(x, w, b) for x, w, b in zip((y_BLD, states, states), weights, biases, strict=True))
        else:
            q, k, v = (self.linear(f"{name}.{m}_proj", x) for m, x in zip("qkv", (y_BLD, states, states), strict=True))
        if past is not None:
            k, v, may_attend = self.extend(past, name, k, v)
        assert may_attend is not None
        x_BLD = x_BLD + self.linear(f"{name}.out_proj", self.attend(q, k, v, may_attend))
        return x_BLD if self.pre_norm else self._normed(norm, x_BLD)

    def _feed_forward(self, layer: str, x_BLD: Tensor) -> Tensor:
        name = f"{layer}.final_layer_norm"
        y_BLD = self._normed(name, x_BLD) if self.pre_norm else x_BLD
        x_BLD = x_BLD + self.linear(f"{layer}.fc2", self.activation(self.linear(f"{layer}.fc1", y_BLD)))
        return x_BLD if self.pre_norm else self._normed(name, x_BLD)
