"""Reads directories of Hugging Face transformers: Marian (OPUS-MT), and Pegasus as `tfm export` writes it.

MarianMT is post-LN with the paper's sinusoids, all sines before all cosines; the decoder starts with the padding, whose
row is zero in nearly all models. Pegasus is the same with pre-LN.

Shapes: D width, V vocabulary, P positions.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from transformer_cli.addons.interop.foreign import Imported, ReadOptions, files_like
from transformer_cli.addons.interop.huggingface import BIAS, quiet
from transformer_cli.addons.interop.huggingface_files import (
    CONFIG,
    GENERATION,
    TEXT_FILES,
    TOKENIZER_CONFIG,
    WEIGHTS,
    Tensors,
    bytes_of,
    is_json_with,
    json_of,
    open_weights,
    refuse_file,
    source_tags,
    text_of_token,
    vocab_pieces,
)
from transformer_cli.addons.interop.parts import STACKS, part_names, weights_from_parts
from transformer_cli.addons.interop.text import marked
from transformer_cli.addons.interop.verify import Ids, of_targets, padded_ids
from transformer_cli.config.data import DataConfig
from transformer_cli.config.model import Activation, DecoderStart, ModelConfig, Norm, Positions, Tying
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter, is_code
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import CheckpointError, ConfigError, TfmError, quoted
from transformer_cli.extras import imported
from transformer_cli.models.embeddings import sinusoid_table
from transformer_cli.models.file import read_share
from transformer_cli.models.header import MALFORMED
from transformer_cli.models.locate import EXPORT_FILE
from transformer_cli.models.memory import is_out_of_memory

_UNKNOWN_LANGUAGE = "und"  # of ISO 639: undetermined
# What transformers takes where config.json is silent.
MARIAN_DEFAULTS: dict[str, Any] = {
    "vocab_size": 58101,
    "decoder_vocab_size": None,
    "max_position_embeddings": 1024,
    "encoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_layers": 12,
    "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "activation_function": "gelu",
    "d_model": 1024,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "decoder_start_token_id": 58100,
    "scale_embedding": False,
    "pad_token_id": 58100,
    "eos_token_id": 0,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
PEGASUS_DEFAULTS = MARIAN_DEFAULTS | {
    "vocab_size": 50265,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
_ACTIVATIONS = {"relu": Activation.relu, "gelu": Activation.gelu, "silu": Activation.silu, "swish": Activation.silu}
# Options that would change what is computed, and the one value that each may have.
_FIXED = {
    "normalize_embedding": False,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "add_bias_logits": False,
    "quantization_config": None,
    "position_embedding_type": "absolute",
    "is_encoder_decoder": True,
}
_NAME = re.compile(r"opus[-_]mt[-_](?:.*[-_])?([a-zA-Z]{2,3})[-_]([a-zA-Z]{2,3})$")


@dataclass(frozen=True)
class TextFiles:
    """What a folder says of text, and the files that say it."""

    tokenizers: Tokenizers
    source_lang: str
    target_lang: str
    files: Sequence[Path]


class ReadText(Protocol):
    def __call__(
        self, folder: Path, given: Mapping[str, Any], values: Mapping[str, Any], options: ReadOptions
    ) -> TextFiles: ...


@dataclass(frozen=True)
class Architecture:
    """A kind of model that transformers calls by `model_type`."""

    model: str  # its classes there
    config: str
    norm: Norm
    defaults: Mapping[str, Any]
    text: ReadText
    original: "Callable[[Path, Architecture, Mapping[str, Any], TextFiles], Original]"
    positions: Positions = Positions.sinusoidal_concat
    first_position: int = 0


class HuggingFaceReader:
    """Directories with a config.json that names a model_type."""

    options: Sequence[str] = ()

    def __init__(self, architectures: Mapping[str, Architecture]) -> None:
        self.architectures = architectures

    def recognises(self, path: Path) -> bool:
        return is_json_with(_folder_of(path) / CONFIG, "model_type")

    def files_of(self, names: Sequence[str]) -> list[str]:
        """Weights once: in the first of their forms that is there, safetensors before pickles."""
        weights = next((name for name in WEIGHTS if name in names), None)
        if weights is None or CONFIG not in names:
            return []
        stem, _, ending = weights.removesuffix(".index.json").rpartition(".")
        parts = [f"{stem}-*-of-*.{ending}"] if weights.endswith(".index.json") else []
        return files_like(names, CONFIG, GENERATION, *TEXT_FILES, weights, *parts)

    def read(self, path: Path, options: ReadOptions) -> Imported:
        folder = _folder_of(path)
        given = json_of(folder / CONFIG)
        kind = str(given.get("model_type"))
        if kind not in self.architectures:
            refuse_file(
                folder,
                f"model_type={quoted(kind)[1:-1]}: not one that tfm computes. Choose one of"
                f" {', '.join(sorted(self.architectures))}",
            )
        try:
            return _read(folder, self.architectures[kind], given, options)
        except ConfigError as error:
            raise CheckpointError(f"{folder / CONFIG}: cannot be expressed ({error})") from error


def _folder_of(path: Path) -> Path:
    """The folder of a model, of which a file may be named."""
    return path.parent if path.name in (CONFIG, *WEIGHTS) and path.is_file() else path


def _read(folder: Path, architecture: Architecture, given: Mapping[str, Any], options: ReadOptions) -> Imported:
    values = _checked(folder, given, architecture.defaults)
    tensors = open_weights(folder)
    names = PartNames(folder, tensors, values)
    config = _config_of(folder, architecture, values, names, tensors)
    names.check(config)
    text = architecture.text(folder, given, values, options)
    return Imported(
        config=config,
        tokenizers=text.tokenizers,
        source_lang=text.source_lang,
        target_lang=text.target_lang,
        weights=weights_from_parts(config, names.fetch),
        program=partial(architecture.original, folder, architecture, values, text),
        program_name=_program_name(),
        files=[folder / CONFIG, *tensors.files, *text.files],
        notes=_notes_of(folder, values),
        max_positions=values["max_position_embeddings"],
        known=known_of(folder),
    )


def _program_name() -> str:
    try:
        return f"transformers {version('transformers')}"
    except ModuleNotFoundError:
        return "transformers"


def _checked(folder: Path, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The options of config.json that count, each of the type that it has to have. Raises CheckpointError."""
    file = folder / CONFIG
    for name, value in _FIXED.items():
        if given.get(name, value) != value:
            refuse_file(
                file, f"{name}={quoted(str(given[name]))[1:-1]}: not supported, only {value} is. Choose another model"
            )
    values = {name: given.get(name, default) for name, default in defaults.items()}
    for name, value in values.items():
        default = defaults[name]
        if isinstance(default, float):
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        else:
            fits = type(value) is (int if default is None else type(default)) or (value is None and default is None)
        if not fits:
            refuse_file(file, f"{name} is {quoted(str(value))}, which it cannot be. Fetch the folder again")
    for name in ("attention_heads", "ffn_dim"):
        ours, theirs = values[f"encoder_{name}"], values[f"decoder_{name}"]
        if ours != theirs:
            refuse_file(
                file,
                f"encoder_{name}={ours} and decoder_{name}={theirs}: tfm has one number for both. Choose another model",
            )
    if values["activation_function"] not in _ACTIVATIONS:
        refuse_file(
            file,
            f"activation_function={quoted(values['activation_function'])[1:-1]}: not supported, only"
            f" {', '.join(_ACTIVATIONS)} are. Choose another model",
        )
    if values.get("decoder_vocab_size", 0) is None:
        values["decoder_vocab_size"] = values["vocab_size"]
    return values


def _config_of(
    folder: Path, architecture: Architecture, values: Mapping[str, Any], names: "PartNames", tensors: Tensors
) -> ModelConfig:
    positions, max_positions = architecture.positions, values["max_position_embeddings"]
    if names.learned_positions():
        positions, max_positions = Positions.learned, tensors.shapes[names.positions("encoder")][0]
    start = values["decoder_start_token_id"]
    target = names.embedding("decoder")
    shape = tensors.shapes.get(target, [0])
    if not 0 <= start < shape[0]:
        refuse_file(
            folder / CONFIG,
            f"decoder_start_token_id={start}: not in the decoder's vocabulary of {shape[0]:,}. Choose another model",
        )
    bias = tensors[BIAS].float() if BIAS in tensors.shapes else torch.zeros(1)
    return ModelConfig(
        n_encoder_layers=values["encoder_layers"],
        n_decoder_layers=values["decoder_layers"],
        d_model=values["d_model"],
        n_heads=values["encoder_attention_heads"],
        d_ff=values["encoder_ffn_dim"],
        dropout=values["dropout"],
        attention_dropout=values["attention_dropout"],
        activation_dropout=values["activation_dropout"],
        norm=architecture.norm,
        activation=_ACTIVATIONS[values["activation_function"]],
        positions=positions,
        first_position=architecture.first_position,
        max_positions=max_positions,
        tie_embeddings=names.tying,
        scale_embeddings=values["scale_embedding"],
        output_bias=bool(bias.any()),
        # Of a row of zeros, the embedding and a vector of zeros are one; only the second stays so in training.
        decoder_start=DecoderStart.bos if tensors[target][start].any() else DecoderStart.zero,
    )


_MATRICES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj", "in": "fc1", "out": "fc2"}
_BLOCKS = {"self": "self_attn", "cross": "encoder_attn"}


class PartNames:
    """The names that transformers gives to the parts of a model, and the tensors under them."""

    def __init__(self, folder: Path, tensors: Tensors, values: Mapping[str, Any]) -> None:
        self.folder, self.tensors, self.values = folder, tensors, values
        shares = values.get("share_encoder_decoder_embeddings", True)
        if not values["tie_word_embeddings"]:
            self.tying = Tying.none
        else:
            self.tying = Tying.three_way if shares else Tying.decoder
        self.sizes = {"encoder": values["vocab_size"], "decoder": values["vocab_size"]}
        if not shares:
            self.sizes["decoder"] = values["decoder_vocab_size"]

    def embedding(self, side: str) -> str:
        own, shared = f"model.{side}.embed_tokens.weight", "model.shared.weight"
        first, second = (shared, own) if self.tying is Tying.three_way else (own, shared)
        return first if first in self.tensors.shapes else second

    def positions(self, side: str) -> str:
        return f"model.{side}.embed_positions.weight"

    def learned_positions(self) -> bool:
        """Whether there is a table of positions that is not the sinusoids."""
        names = [self.positions(side) for side in STACKS]
        if not all(name in self.tensors.shapes for name in names):
            return False
        return not all(self.is_sinusoidal(name) for name in names)

    def is_sinusoidal(self, name: str) -> bool:
        shape = self.tensors.shapes[name]
        if len(shape) != 2 or shape[1] != self.values["d_model"] or shape[1] % 2:
            return False
        table_PD = self.tensors[name].float()
        length, width = shape
        cpu = torch.device("cpu")
        expected_PD = sinusoid_table(length, width, interleaved=False, dtype=torch.float32, device=cpu)
        return torch.allclose(table_PD, expected_PD, rtol=0, atol=1e-5 if _is_float32(table_PD) else 2e-3)

    def of(self, part: str) -> str:
        """The library's name of one of our parts."""
        if part in ("source_embedding", "target_embedding"):
            return self.embedding("encoder" if part == "source_embedding" else "decoder")
        if part == "output":
            return self.embedding("decoder") if self.tying is not Tying.none else "lm_head.weight"
        if part == "output_bias":
            return BIAS
        side, *rest = part.split(".")
        if rest == ["positions"]:
            return self.positions(side)
        if rest[0] == "norm":
            return f"model.{side}.layer_norm.{rest[1]}"
        layer, block, matrix, kind = rest
        prefix = f"model.{side}.layers.{layer}"
        if matrix == "norm":
            return f"{prefix}.{'final' if block == 'ffn' else _BLOCKS[block]}_layer_norm.{kind}"
        inner = "" if block == "ffn" else f"{_BLOCKS[block]}."
        return f"{prefix}.{inner}{_MATRICES[matrix]}.{kind}"

    def fetch(self, part: str) -> Tensor:
        tensor = self.tensors[self.of(part)]
        return tensor.squeeze(0) if part == "output_bias" else tensor

    def check(self, config: ModelConfig) -> None:
        """Raise CheckpointError for a tensor that is missing, of another shape, or not used."""
        used = set()
        for part in part_names(config):
            name = self.of(part)
            used.add(name)
            if part == "output_bias" and not config.output_bias and name not in self.tensors.shapes:
                continue
            found, wanted = self.tensors.shapes.get(name), self.shape(part, config)
            if found != wanted:
                shown = "missing" if found is None else str(found)
                refuse_file(
                    self.folder, f"{quoted(name)} is {shown}, but {CONFIG} asks for {wanted}. Fetch the folder again"
                )
        if config.positions is not Positions.learned:
            used |= {name for side in STACKS if (name := self.positions(side)) in self.tensors.shapes}
        for name, first in self.doubles().items():
            if name not in used and name in self.tensors.shapes:
                self.check_equal(name, first)
                used.add(name)
        if unused := sorted(self.tensors.shapes.keys() - used):
            more = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
            refuse_file(
                self.folder,
                f"holds {quoted(unused[0])}{more}, which no model of its {CONFIG} has. Choose another model",
            )

    def doubles(self) -> dict[str, str | None]:
        """Names of tied matrices, with the name under which each is read; None where it counts for nothing."""
        own = {side: f"model.{side}.embed_tokens.weight" for side in STACKS}
        if self.tying is Tying.three_way:
            return dict.fromkeys([*own.values(), "lm_head.weight", "model.shared.weight"], self.embedding("encoder"))
        unused: dict[str, str | None] = {"model.shared.weight": None}
        return unused | ({"lm_head.weight": own["decoder"]} if self.tying is Tying.decoder else {})

    def check_equal(self, name: str, first: str | None) -> None:
        if first is None:
            return
        ours, theirs = self.tensors[first], self.tensors[name]
        if ours.shape != theirs.shape or (ours.data_ptr() != theirs.data_ptr() and not torch.equal(ours, theirs)):
            refuse_file(
                self.folder,
                f"{quoted(name)} and {quoted(first)} differ, though {CONFIG} ties them. Choose another model",
            )

    def shape(self, part: str, config: ModelConfig) -> list[int]:
        d_model, d_ff = config.d_model, config.d_ff
        if part == "source_embedding":
            return [self.sizes["encoder"], d_model]
        if part in ("target_embedding", "output"):
            return [self.sizes["decoder"], d_model]
        if part == "output_bias":
            return [1, self.sizes["decoder"]]
        if part.endswith("positions"):
            return [config.max_positions, d_model]
        *_, matrix, kind = part.split(".")
        out, into = {"in": (d_ff, d_model), "out": (d_model, d_ff)}.get(matrix, (d_model, d_model))
        return [out, into] if kind == "weight" and matrix != "norm" else [out]


def _is_float32(tensor: Tensor) -> bool:
    """Whether its numbers have more digits than 16 bits hold."""
    return not torch.equal(tensor.half().float(), tensor)


# ---- Text


def marian_text(folder: Path, given: Mapping[str, Any], values: Mapping[str, Any], options: ReadOptions) -> TextFiles:
    return TextFiles(marian_tokenizers(folder, values), *_languages(folder, given, options), marian_files(folder))


def marian_files(folder: Path) -> list[Path]:
    names = ("source.spm", "target.spm", "vocab.json", "target_vocab.json", TOKENIZER_CONFIG, "special_tokens_map.json")
    return [folder / name for name in names if (folder / name).is_file()]


def marian_tokenizers(folder: Path, values: Mapping[str, Any]) -> Tokenizers:
    """Marian's tokenizers: ids of vocab.json, pieces of two SentencePiece models, `>>xxx<<` looked up as is."""
    settings = optional_json(folder / TOKENIZER_CONFIG)
    separate = bool(settings.get("separate_vocabs", False))
    names = {
        kind: text_of_token(settings.get(f"{kind}_token", default))
        for kind, default in (("pad", "<pad>"), ("unk", "<unk>"), ("eos", "</s>"))
    }
    files = {"source": folder / "vocab.json", "target": folder / ("target_vocab.json" if separate else "vocab.json")}
    sizes = {"source": values["vocab_size"], "target": values["vocab_size"]}
    if not values.get("share_encoder_decoder_embeddings", True):
        sizes["target"] = values["decoder_vocab_size"]
    tags = source_tags(folder, settings)
    has_tags = {"source": tags, "target": [] if separate else tags}
    found = {
        side: side_tokenizer(folder, side, files[side], sizes[side], names, values, has_tags[side]) for side in files
    }
    return Tokenizers(found["source"], found["target"])


def side_tokenizer(
    folder: Path,
    side: str,
    file: Path,
    size: int,
    names: Mapping[str, Any],
    values: Mapping[str, Any],
    tags: Sequence[str] = (),
) -> Tokenizer:
    """`tags` are symbols of the SentencePiece model, with its sign for a space before them; here they are tags."""
    by_symbol = {marked(tag): tag for tag in tags}
    pieces = [by_symbol.get(piece, piece) for piece in vocab_pieces(file, size)]
    ids = {piece: number for number, piece in enumerate(pieces)}
    for kind, name in names.items():
        if not isinstance(name, str) or name not in ids:
            refuse_file(file, f"has no {quoted(str(name))}, the {kind}_token. Fetch it again")
    eos, pad = values["eos_token_id"], values["pad_token_id"]
    for kind, number in (("eos", eos), ("pad", pad)):
        if not 0 <= number < size:
            refuse_file(
                folder / CONFIG,
                f"{kind}_token_id={number}: not in the vocabulary of {size:,} pieces. Choose another model",
            )
        if side == "source" and ids[names[kind]] != number:
            found = f"{quoted(str(names[kind]))} has the id {ids[names[kind]]}"
            refuse_file(file, f"{found}, but {CONFIG} has {number}. Choose another model")
    spm = folder / f"{side}.spm"
    try:
        packed = PackedTokenizer(
            Segmenter.sentencepiece,
            pieces,
            pad=pad,
            unk=ids[names["unk"]],
            bos=values["decoder_start_token_id"],
            eos=eos,
            model=bytes_of(spm),
            whole=[piece for piece in pieces if is_code(piece) or piece in tags],
            codes=True,
        )
        return Tokenizer(packed.to_bytes())
    except ValueError as error:
        refuse_file(folder, f"its {side} tokenizer cannot be used ({quoted(str(error))}). Fetch the folder again")
    except CheckpointError as error:
        raise CheckpointError(f"{spm}: {error}") from error


def optional_json(file: Path) -> dict[str, Any]:
    return json_of(file) if file.exists() else {}


def _languages(folder: Path, given: Mapping[str, Any], options: ReadOptions) -> tuple[str, str]:
    """Source and target language: the user's, else those of the files or of the folder's name, else undetermined."""
    settings, facts = optional_json(folder / TOKENIZER_CONFIG), optional_json(folder / EXPORT_FILE)
    name = _NAME.search(folder.resolve().name) or _NAME.search(str(given.get("_name_or_path", "")))
    found = []
    for i, side in enumerate(("source_lang", "target_lang")):
        choices = (getattr(options, side), facts.get(side), settings.get(side), name and name[i + 1], _UNKNOWN_LANGUAGE)
        found.append(str(next(choice for choice in choices if choice)))
    checked_by_config = DataConfig(source_lang=found[0], target_lang=found[1])
    return checked_by_config.source_lang, checked_by_config.target_lang


def known_of(folder: Path) -> dict[str, Any]:
    """What our own export says of the model's training."""
    facts = optional_json(folder / EXPORT_FILE)
    if facts.get("program") != "huggingface":
        return {}
    try:
        return {
            "step": int(facts["step"]),
            "data": dict(facts["data"]),
            "fingerprint": str(facts["fingerprint"]),
            "scores": dict(facts["scores"]),
            "multi_sentence_share": read_share(facts.get("multi_sentence_share")),
            "translates_letterless": facts.get("translates_letterless") is True,
        }
    except MALFORMED as error:
        refuse_file(
            folder / EXPORT_FILE, f"damaged ({quoted(f'{type(error).__name__}: {error}')}). Export the model again"
        )


def _notes_of(folder: Path, values: Mapping[str, Any]) -> list[str]:
    notes = []
    search = {**optional_json(folder / CONFIG), **optional_json(folder / GENERATION)}
    if type(beam := search.get("num_beams")) is int and beam > 1:
        notes.append(f"its makers translate with a beam of {beam} (num_beams); here --beam {beam} does")
    notes.append(
        f"in transformers a sentence may have {values['max_position_embeddings']} tokens (max_position_embeddings);"
        " here it may have any number"
    )
    return notes


# ---- The original


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Raise CheckpointError for what transformers raises about the files of a folder, in any of many ways."""
    try:
        with quiet():
            yield
    except TfmError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or (isinstance(error, OSError) and error.errno is not None):
            raise
        first = quoted(str(error).strip().split("\n")[0], 120)
        raise CheckpointError(
            f"{folder}: {_program_name()} cannot read it ({type(error).__name__}: {first}), so that nothing can be"
            " compared. Fetch the folder again, or install a newer transformers; `tfm import … compare=false` does"
            " without"
        ) from error


class Original:
    """A directory as transformers loads it, in float32: a Program with its own tokenizers.

    Tokens that no translation of ours contains, as <unk>, are suppressed there, too.
    """

    def __init__(self, folder: Path, architecture: Architecture, values: Mapping[str, Any], text: TextFiles) -> None:
        library: Any = imported("transformers", needs="the comparison with the original")
        place = {"pretrained_model_name_or_path": str(folder), "local_files_only": True}
        # Only the options that were checked: others could name kernels to download, or code.
        config = getattr(library, architecture.config)(**values)
        with reading(folder):
            self.model = getattr(library, architecture.model).from_pretrained(
                **place, config=config, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
            )
        self.model.eval()
        self.ours = text.tokenizers.source
        self.folder, self._place = folder, (library, place, text)
        self.start, self.pad, self.eos = (values[f"{name}_token_id"] for name in ("decoder_start", "pad", "eos"))
        self.ends = self.ours.end_ids
        self.suppressed = sorted({self.pad, self.start, text.tokenizers.target.unk_id} - {self.eos})
        self.model.generation_config = library.GenerationConfig(
            decoder_start_token_id=self.start,
            pad_token_id=self.pad,
            eos_token_id=self.eos,
            early_stopping=False,
            suppress_tokens=self.suppressed,
        )

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer of the original, opened when it is used: that is after the searches, which take memory, too."""
        with reading(self.folder):
            return self.open_tokenizer(*self._place)

    def open_tokenizer(self, library: Any, place: Mapping[str, Any], text: TextFiles) -> Any:
        return library.MarianTokenizer.from_pretrained(**place)

    @torch.inference_mode()
    def translate(
        self, sources: Sequence[Ids], begun: Sequence[Ids] = (), *, beam_size: int, max_tokens: int
    ) -> list[list[int]]:
        source_BS, mask_BS = self.padded(sources)
        with quiet():
            found_BT = self.model.generate(
                input_ids=source_BS,
                attention_mask=mask_BS,
                decoder_input_ids=torch.tensor([[self.start, *ids] for ids in begun]) if begun else None,
                num_beams=beam_size,
                max_length=max_tokens + 1,
                length_penalty=0.0,
            )
        return [[i for i in row[1:] if i not in (self.pad, self.eos)] for row in found_BT.tolist()]

    @torch.inference_mode()
    def log_probs(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        source_BS, mask_BS = self.padded(sources)
        target_in_BT = padded_ids([[self.start, *ids] for ids in targets], self.pad)
        logits_BTV = self.model(input_ids=source_BS, attention_mask=mask_BS, decoder_input_ids=target_in_BT).logits
        return of_targets(logits_BTV, targets, self.eos)

    def padded(self, sources: Sequence[Ids]) -> tuple[Tensor, Tensor]:
        source_BS = padded_ids([[*ids, *self.ends] for ids in sources], self.pad)
        return source_BS, padded_ids([[1] * (len(ids) + len(self.ends)) for ids in sources], 0)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        with reading(self.folder):
            return [ids[:-1] for ids in self.tokenizer(list(lines)).input_ids]

    def decode(self, sentences: Sequence[Ids]) -> list[str]:
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return [self.tokenizer.decode(list(ids), **options) for ids in sentences]


_marian = partial(Architecture, text=marian_text, original=Original)
ARCHITECTURES = {
    "marian": _marian("MarianMTModel", "MarianConfig", Norm.post, MARIAN_DEFAULTS),
    "pegasus": _marian("PegasusForConditionalGeneration", "PegasusConfig", Norm.pre, PEGASUS_DEFAULTS),
}
