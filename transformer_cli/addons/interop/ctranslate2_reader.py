"""A model directory of CTranslate2, read back: the weights in its model.bin, dequantized.

model.bin (version 6, little-endian): u32 version; name of the specification; u32 revision; u32 number of variables, and
of each its name, u8 rank, u32 sizes, u8 type, u32 number of bytes and the bytes; u32 number of aliases, and of each its
name and that of a variable. A name is u16 length, with a NUL at its end. (ctranslate2/specs/model_spec.py)

Argos Translate's packages are zip archives of such a directory and a SentencePiece model.

Shapes: N rows of a matrix, D width, V vocabulary.
"""

import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import sentencepiece
import torch
from torch import Tensor

from transformer_cli.addons.interop.ctranslate2 import Loaded, vocabulary
from transformer_cli.addons.interop.foreign import Imported, ReadOptions, files_like
from transformer_cli.addons.interop.parts import part_names, weights_from_parts
from transformer_cli.addons.interop.verify import Ids
from transformer_cli.config.model import SINUSOIDAL, Activation, DecoderStart, ModelConfig, Norm, Positions, Tying
from transformer_cli.config.tags import is_tag
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter, is_code
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import CheckpointError, quoted
from transformer_cli.models.embeddings import SinusoidalPositions
from transformer_cli.models.header import MALFORMED, read_json

MODEL, CONFIG, SPECIFICATION, VERSION = "model.bin", "config.json", "TransformerSpec", 6
ARGOS_MODEL = "model"  # the folder of a package of Argos Translate
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_ACTIVATIONS = {0: Activation.relu, 2: Activation.silu, 3: Activation.gelu}
ACTIVATION_NAMES = ("relu", "gelu_tanh", "swish", "gelu", "gelu_sigmoid", "tanh", "sigmoid")
PADDINGS = ("<pad>", "<blank>", "[PAD]")
_NEVER = -1e4  # bias of a row that the original does not have: its probability is 0 in float32, and so is its gradient
_FLAGS = (
    *("num_heads", "pre_norm", "activation", "embeddings_merge", "scale_embeddings", "alignment_layer"),
    *("alignment_heads", "alibi", "alibi_use_positive_positions", "scale_alibi", "start_from_zero_embedding"),
    "multi_query_attention",
)
MULTI_QUERY = ("encoder/multi_query_attention", "decoder/multi_query_attention")
FIRST_POSITION = 1  # of the sinusoids that CTranslate2 makes where a directory holds no table
N_COMPARED = 64  # rows of a table that tell which sinusoids it holds


@dataclass(frozen=True)
class Variable:
    """The position of a variable in the file."""

    shape: tuple[int, ...]
    type: str
    start: int
    n_bytes: int


class Variables:
    """The variables of a model.bin, each read when it is requested."""

    def __init__(self, path: Path, specification: str, variables: Mapping[str, Variable], aliases: Mapping[str, str]):
        self.path, self.specification = path, specification
        self.variables, self.aliases = variables, aliases

    @classmethod
    def of(cls, path: Path) -> "Variables":
        """Raises CheckpointError for what is no model.bin that can be read."""
        size = path.stat().st_size
        with path.open("rb") as file:
            try:
                (version,) = _unpack(file, "<I")
                if version != VERSION:
                    _refuse(
                        path, f"version {version} of the format, and only {VERSION} is read. Convert the model again"
                    )
                specification, _ = _text(file), _unpack(file, "<I")
                variables: dict[str, Variable] = {}
                for _ in range(_unpack(file, "<I")[0]):
                    name, (rank,) = _text(file), _unpack(file, "<B")
                    shape, (type, n_bytes) = _unpack(file, f"<{rank}I"), _unpack(file, "<BI")
                    variable = Variable(shape, TYPES[type], file.tell(), n_bytes)
                    if name in variables or file.tell() + n_bytes > size or expected_bytes(variable) != n_bytes:
                        _refuse(path, f"damaged (the variable {quoted(name)}). Copy it again")
                    variables[name] = variable
                    file.seek(n_bytes, 1)
                aliases = {_text(file): _text(file) for _ in range(_unpack(file, "<I")[0])}
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                _refuse(path, f"damaged or not of CTranslate2 ({quoted(str(error))}). Copy it again")
        if missing := aliases.values() - variables.keys():
            _refuse(path, f"damaged (an alias of {quoted(min(missing))}). Copy it again")
        return cls(path, specification, variables, aliases)

    def __contains__(self, name: str) -> bool:
        return name in self.variables or name in self.aliases

    def names(self) -> set[str]:
        return {*self.variables, *self.aliases}

    def shape(self, name: str) -> tuple[int, ...]:
        return self._variable(name).shape

    def is_same(self, one: str, other: str) -> bool:
        """Whether two names are of the same numbers."""
        if self.aliases.get(one, one) == self.aliases.get(other, other):
            return True
        return self.shape(one) == self.shape(other) and torch.equal(self.tensor(one), self.tensor(other))

    def flag(self, name: str, default: float) -> float:
        """A number, as options are kept."""
        if name not in self:
            return default
        found = self._array(name)
        if found.size != 1:
            _refuse(self.path, f"damaged (the option {quoted(name)}). Copy it again")
        return float(found.reshape(-1)[0])

    def tensor(self, name: str) -> Tensor:
        """The variable in float32, whatever it is stored as."""
        array = self._array(name)
        if array.dtype not in (np.int8, np.int16):
            return torch.from_numpy(array.astype(np.float32))
        scale_N = self._array(f"{self.aliases.get(name, name)}_scale").astype(np.float32)
        return torch.from_numpy(array.astype(np.float32) / scale_N.reshape(-1, *[1] * (array.ndim - 1)))

    def _variable(self, name: str) -> Variable:
        found = self.variables.get(self.aliases.get(name, name))
        if found is None:
            _refuse(self.path, f"has no {quoted(name)}: not a Transformer as tfm has it")
        return found

    def _array(self, name: str) -> Any:
        variable = self._variable(name)
        with self.path.open("rb") as file:
            file.seek(variable.start)
            content = file.read(variable.n_bytes)
        if variable.type == "bfloat16":  # the upper half of a float32
            wide = np.frombuffer(content, "<u2").astype(np.uint32) << 16
            return wide.view(np.float32).reshape(variable.shape)
        return np.frombuffer(content, np.dtype(variable.type).newbyteorder("<")).reshape(variable.shape)


def expected_bytes(variable: Variable) -> int:
    width = 2 if variable.type == "bfloat16" else np.dtype(variable.type).itemsize
    return math.prod(variable.shape) * width


def _unpack(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


def _text(file: BinaryIO) -> str:
    (length,) = _unpack(file, "<H")
    return file.read(length).removesuffix(b"\0").decode()


def _refuse(path: Path, what: str) -> NoReturn:
    raise CheckpointError(f"{path}: {what}")


def _read_config(variables: Variables, settings: Mapping[str, Any]) -> ModelConfig:
    """Raises CheckpointError for a variant that is not ours, by its name."""
    path, names = variables.path, variables.names()
    if variables.specification != SPECIFICATION:
        _refuse(
            path, f"is a {quoted(variables.specification)}, and only {SPECIFICATION} is an encoder-decoder of tfm's"
        )

    def same(option: str, default: float) -> float:
        found = {side: variables.flag(f"{side}/{option}", default) for side in ("encoder", "decoder")}
        if len(set(found.values())) > 1:
            _refuse(path, f"{option} is {found['encoder']:g} in the encoder and {found['decoder']:g} in the decoder")
        return found["encoder"]

    if "encoder/embeddings_1/weight" in names:
        _refuse(path, "has several source embeddings (factors), which tfm has not")
    for option in ("decoder/alibi", "decoder/scale_outputs", *MULTI_QUERY):
        if variables.flag(option, 0):
            _refuse(path, f"has {option.partition('/')[2]}, which tfm has not")
    activation = int(same("activation", 0))
    if activation not in _ACTIVATIONS:
        _refuse(path, f"has the activation {ACTIVATION_NAMES[activation]}, which tfm has not")
    gated = "encoder/layer_0/ffn/linear_0_noact/weight" in names
    if gated and _ACTIVATIONS[activation] is not Activation.silu:
        _refuse(path, f"gates its feed-forward layers with {ACTIVATION_NAMES[activation]}: tfm has only swish for that")
    d_model = variables.shape("encoder/embeddings_0/weight")[1]
    is_scaled = same("scale_embeddings", 1)
    if is_scaled not in (0, 1) and not math.isclose(is_scaled, math.sqrt(d_model), rel_tol=1e-3):
        _refuse(path, f"scales its embeddings by {is_scaled:g}, which is not sqrt({d_model})")
    is_shared = variables.is_same("encoder/embeddings_0/weight", "decoder/embeddings/weight")
    if variables.is_same("decoder/embeddings/weight", "decoder/projection/weight"):
        tying = Tying.three_way if is_shared else Tying.decoder
    else:
        tying = Tying.source_target if is_shared else Tying.none
    kind = "layer" if "encoder/layer_0/ffn/layer_norm/beta" in names else "rms"
    norm_eps = settings.get("layer_norm_epsilon")
    positions, first_position, max_positions = read_positions(variables, d_model)
    return ModelConfig(
        n_encoder_layers=count(names, "encoder"),
        n_decoder_layers=count(names, "decoder"),
        d_model=d_model,
        n_heads=int(same("num_heads", 8)),
        d_ff=variables.shape("encoder/layer_0/ffn/linear_0/weight")[0],
        norm=Norm.pre if same("pre_norm", 1) else Norm.post,
        norm_kind=kind,
        norm_eps=1e-5 if norm_eps is None else float(norm_eps),
        activation=Activation.swiglu if gated else _ACTIVATIONS[activation],
        positions=positions,
        first_position=first_position,
        max_positions=max_positions,
        tie_embeddings=tying,
        scale_embeddings=bool(is_scaled),
        bias="encoder/layer_0/ffn/linear_0/bias" in names,
        output_bias="decoder/projection/bias" in names,
        decoder_start=DecoderStart.zero if variables.flag("decoder/start_from_zero_embedding", 0) else DecoderStart.bos,
    )


def count(names: set[str], side: str) -> int:
    return len({found[1] for name in names if (found := re.match(rf"{side}/layer_(\d+)/", name))})


def read_positions(variables: Variables, d_model: int) -> tuple[Positions, int, int]:
    """Kind, first position, and rows of a learned table; sinusoids in 16 bits are one, as they are no longer exact."""
    tables = [f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")]
    rotary = "decoder/layer_0/self_attention/rotary_dim"
    default = ModelConfig().max_positions
    if rotary in variables:
        return Positions.rotary, 0, default
    if not any(table in variables for table in tables):
        return Positions.sinusoidal_tensor2tensor, FIRST_POSITION, default
    encoder_LD, decoder_LD = (variables.tensor(table) for table in tables)
    if encoder_LD.shape == decoder_LD.shape and torch.equal(encoder_LD, decoder_LD):
        n_rows = min(len(encoder_LD), N_COMPARED)
        for kind in SINUSOIDAL:
            for first in (0, 1, 2):
                interleaved, spread = kind is Positions.sinusoidal, kind is Positions.sinusoidal_tensor2tensor
                ours = SinusoidalPositions(interleaved=interleaved, tensor2tensor=spread, first=first)
                if torch.allclose(ours.table(n_rows, d_model), encoder_LD[:n_rows], rtol=0, atol=2e-4):
                    return kind, first, default
    return Positions.learned, 0, min(len(encoder_LD), len(decoder_LD))


def their_names(config: ModelConfig) -> dict[str, tuple[str, int, int]]:
    """The variable of each of our parts, and which of how many equal slices of its rows the part is."""
    found = {
        "source_embedding": ("encoder/embeddings_0/weight", 0, 1),
        "target_embedding": ("decoder/embeddings/weight", 0, 1),
        "output": ("decoder/projection/weight", 0, 1),
        "output_bias": ("decoder/projection/bias", 0, 1),
    }
    attention = {"q": (0, 0, 3), "k": (0, 1, 3), "v": (0, 2, 3), "o": (1, 0, 1)}
    cross = {"q": (0, 0, 1), "k": (1, 0, 2), "v": (1, 1, 2), "o": (2, 0, 1)}
    first = "linear_0_noact" if config.activation is Activation.swiglu else "linear_0"
    feed_forward = {"gate": "linear_0", "in": first, "out": "linear_1"}
    for part in part_names(config):
        side, *path = part.split(".")
        if not path:
            continue
        if path[0] == "positions":
            found[part] = (f"{side}/position_encodings/encodings", 0, 1)
        elif path[0] == "norm":
            found[part] = (f"{side}/layer_norm/{norm_name(path[1])}", 0, 1)
        else:
            number, block, matrix, kind = path
            module = {"self": "self_attention", "cross": "attention", "ffn": "ffn"}[block]
            layer = f"{side}/layer_{number}/{module}"
            if matrix == "norm":
                found[part] = (f"{layer}/layer_norm/{norm_name(kind)}", 0, 1)
            elif block == "ffn":
                found[part] = (f"{layer}/{feed_forward[matrix]}/{kind}", 0, 1)
            else:
                linear, index, n = (attention if block == "self" else cross)[matrix]
                found[part] = (f"{layer}/linear_{linear}/{kind}", index, n)
    return found


def norm_name(kind: str) -> str:
    return {"weight": "gamma", "bias": "beta"}[kind]


def check_variables(variables: Variables, config: ModelConfig) -> None:
    """Refuse a directory with a variable that is not read: it would be another model without it."""
    known = {name for name, _, _ in their_names(config).values()}
    known |= {f"{name}_scale" for name in known}
    known |= {f"{side}/{flag}" for side in ("encoder", "decoder") for flag in _FLAGS}
    known |= {"encoder/embeddings_merge", "decoder/scale_outputs"}
    if config.positions is Positions.rotary:
        for name in variables.names() - known:
            if name.endswith(("/rotary_dim", "/rotary_interleave", "/rotary_base")):
                check_rotary(variables, name, config)
                known.add(name)
    if config.positions in SINUSOIDAL:
        known |= {f"{side}/position_encodings/encodings" for side in ("encoder", "decoder")}
    if foreign := sorted(variables.names() - known):
        _refuse(variables.path, f"has {quoted(foreign[0])} ({len(foreign)} such), which no Transformer of tfm has")
    parts = their_names(config).items()
    needed = {name for part, (name, _, _) in parts if ".norm." in part or not part.endswith("bias")}
    if missing := sorted(needed - variables.names()):
        _refuse(variables.path, f"has no {quoted(missing[0])}: not a Transformer as tfm has it")


def check_rotary(variables: Variables, name: str, config: ModelConfig) -> None:
    expected = {"rotary_dim": (0, config.key_width), "rotary_interleave": (0,), "rotary_base": (10_000,)}
    option = name.rpartition("/")[2]
    if (value := variables.flag(name, 0)) not in expected[option]:
        _refuse(variables.path, f"{option} is {value:g}, and tfm has only {expected[option][-1]:g}")


@dataclass(frozen=True)
class _Vocabulary:
    pieces: Sequence[str]
    n_rows: int  # of the original; one more is appended where it has no padding

    @property
    def pad(self) -> int:
        return next((self.pieces.index(name) for name in PADDINGS if name in self.pieces), self.n_rows)


class CTranslate2Reader:
    """A directory with model.bin, config.json and vocabularies, in or beside which SentencePiece models are.

    Or an unpacked package of Argos Translate, which holds such a directory.
    """

    options: Sequence[str] = ("segmenter",)

    def recognises(self, path: Path) -> bool:
        return (path / MODEL).is_file() or (path / ARGOS_MODEL / MODEL).is_file()

    def files_of(self, names: Sequence[str]) -> list[str]:
        texts = ("*vocabulary.json", "*vocabulary.txt", "*.spm", "*.model")
        return files_like(names, MODEL, CONFIG, *texts) if MODEL in names else []

    def read(self, path: Path, options: ReadOptions) -> Imported:
        if not (path / MODEL).is_file():
            path = path / ARGOS_MODEL
        variables = Variables.of(path / MODEL)
        settings = read_settings(path / CONFIG)
        try:
            config = _read_config(variables, settings)
        except ValueError as error:  # a shape of another rank
            _refuse(variables.path, f"damaged ({quoted(str(error))}). Copy it again")
        check_variables(variables, config)
        vocabularies = read_vocabularies(path, variables)
        config, fetch = with_padding(variables, config, vocabularies)
        tokenizers, files = read_tokenizers(path, settings, vocabularies, config, options)
        source_lang, target_lang = _languages(path, options)
        return Imported(
            config=config,
            tokenizers=tokenizers,
            source_lang=source_lang,
            target_lang=target_lang,
            weights=weights_from_parts(config, fetch),
            program=partial(
                _Original,
                path,
                tokenizers,
                files,
                n_rows=vocabularies[1].n_rows,
                adds_eos=sources_end(path, settings)[1],
            ),
            program_name="ctranslate2",
            files=[variables.path, path / CONFIG, *files],
            notes=notes(variables),
        )


class _Original:
    """The directory as its users run it: those of `adds_eos` end their sources with EOS themselves."""

    def __init__(
        self, path: Path, tokenizers: Tokenizers, segmenters: Sequence[Path], *, n_rows: int, adds_eos: bool
    ) -> None:
        # Rounded weights as they are: products in fewer bits would round the sentence, too, which the import does not.
        self.loaded, self.target = Loaded(path, tokenizers, compute_type="float32"), tokenizers.target
        self.loaded.banned = [i for i in self.loaded.banned if i < n_rows]  # the padding may be ours
        self.end = [tokenizers.source.eos_id] if adds_eos else []
        self.ids = {piece: number for number, piece in enumerate(vocabulary(tokenizers.source))}
        self.unk_id = tokenizers.source.unk_id
        self.segmenters = [sentencepiece.SentencePieceProcessor(model_file=str(file)) for file in segmenters]

    def translate(self, sources: Sequence[Ids], *, beam_size: int, max_tokens: int) -> list[list[int]]:
        ended = [[*ids, *self.end] for ids in sources]
        return self.loaded.translate(ended, beam_size=beam_size, max_tokens=max_tokens)

    def log_probs(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[list[float]]:
        return self.loaded.log_probs([[*ids, *self.end] for ids in sources], targets)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of the SentencePiece model, as a caller of the library obtains them."""
        cut: list[list[str]] = self.segmenters[0].encode(list(lines), out_type=str)
        return [[self.ids.get(piece, self.unk_id) for piece in pieces] for pieces in cut]

    def decode(self, sentences: Sequence[Ids]) -> list[str]:
        found: list[str] = [self.segmenters[-1].decode_pieces(self.target.pieces(ids)) for ids in sentences]
        return found


def sources_end(path: Path, settings: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether sources end with EOS, and whether that is left to the caller.

    Directories of Hugging Face's models leave it to their tokenizers, which start the decoder with EOS or the padding;
    models of OpenNMT-py start it with <s>, and have no EOS in their sources.
    """
    if settings.get("add_source_eos"):
        return True, False
    start = settings.get("decoder_start_token", settings.get("bos_token", "<s>"))
    if start is None:
        _refuse(path, "is multilingual: its translations begin with a language. Import the model that it was made from")
    ends = start != settings.get("bos_token", "<s>")
    return ends, ends


def notes(variables: Variables) -> list[str]:
    types = {variable.type for variable in variables.variables.values() if len(variable.shape) == 2}
    return [f"its weights were rounded to {name}, and stay so" for name in sorted(types - {"float32"})]


def read_settings(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}  # of versions before 3
    found = read_json(path.read_bytes(), path)
    if not isinstance(found, dict):
        _refuse(path, "not an object of JSON. Copy it again")
    return found


def read_vocabularies(path: Path, variables: Variables) -> tuple[_Vocabulary, _Vocabulary]:
    def read(names: Sequence[str], n_rows: int) -> _Vocabulary:
        file = next((path / name for name in names if (path / name).is_file()), None)
        if file is None:
            _refuse(path, f"holds no {names[0]}. Copy the whole folder")
        try:
            if file.suffix == ".json":
                pieces = read_json(file.read_bytes(), file)
            else:
                pieces = file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            _refuse(file, f"not UTF-8 ({error.reason}). Copy it again")
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            _refuse(file, "not a list of pieces. Copy it again")
        if len(pieces) != n_rows:
            _refuse(file, f"has {len(pieces):,} pieces, and the model {n_rows:,} rows. Copy the whole folder")
        return _Vocabulary(pieces, n_rows)

    rows = [variables.shape(name)[0] for name in ("encoder/embeddings_0/weight", "decoder/embeddings/weight")]
    shared = ("shared_vocabulary.json", "shared_vocabulary.txt")
    source = read(("source_vocabulary.json", "source_vocabulary.txt", *shared), rows[0])
    target = read(("target_vocabulary.json", "target_vocabulary.txt", *shared), rows[1])
    return source, target


def with_padding(
    variables: Variables, config: ModelConfig, vocabularies: tuple[_Vocabulary, _Vocabulary]
) -> tuple[ModelConfig, Callable[[str], Tensor | None]]:
    """The parts of the model, each vocabulary with a row for the padding at its end where it has none of its own.

    CTranslate2 masks padding by its length. The new row is zero, and a bias that nothing outweighs keeps its token out
    of every softmax.
    """
    added = {"source_embedding": vocabularies[0].pad == vocabularies[0].n_rows}
    added |= dict.fromkeys(("target_embedding", "output", "output_bias"), vocabularies[1].pad == vocabularies[1].n_rows)
    if added["output"]:
        config = replace(config, output_bias=True)
    names = their_names(config)

    def fetch(part: str) -> Tensor | None:
        name, index, n = names[part]
        if name not in variables:
            if part != "output_bias" or not added[part]:
                return None
            tensor = torch.zeros(vocabularies[1].n_rows)
        else:
            tensor = variables.tensor(name)
        if n > 1:
            tensor = tensor.chunk(n)[index]
        if part.endswith(".positions"):
            tensor = tensor[: config.max_positions]
        if added.get(part):
            row = torch.full_like(tensor[:1], _NEVER if part == "output_bias" else 0)
            tensor = torch.cat([tensor, row])
        return tensor

    return config, fetch


def read_tokenizers(
    path: Path,
    settings: Mapping[str, Any],
    vocabularies: tuple[_Vocabulary, _Vocabulary],
    config: ModelConfig,
    options: ReadOptions,
) -> tuple[Tokenizers, list[Path]]:
    files = segmenters(path, options)
    special = {"unk_token": "<unk>", "eos_token": "</s>", "bos_token": "<s>"} | dict(settings)
    start = special.get("decoder_start_token", special["bos_token"])

    def read(vocabulary: _Vocabulary, file: Path, *, adds_eos: bool) -> Tokenizer:
        tags = control_tags(file)
        pieces = [*vocabulary.pieces, *(["<pad>"] if vocabulary.pad == vocabulary.n_rows else [])]
        ids = {piece: number for number, piece in reversed(list(enumerate(pieces)))}
        missing = [name for name in ("unk_token", "eos_token") if special[name] not in ids]
        if missing:
            _refuse(path, f"its vocabulary has no {quoted(str(special[missing[0]]))}, the {missing[0]} of {CONFIG}")
        if config.decoder_start is DecoderStart.zero:
            bos = vocabulary.pad
        else:
            if start not in ids:
                _refuse(path, f"its vocabulary has no {quoted(str(start))} for the decoder to start with")
            bos = ids[start]
        packed = PackedTokenizer(
            Segmenter.sentencepiece,
            pieces,
            pad=vocabulary.pad,
            unk=ids[special["unk_token"]],
            bos=bos,
            eos=ids[special["eos_token"]],
            model=file.read_bytes(),
            whole=[piece for piece in pieces if is_code(piece) or piece in tags],
            adds_eos=adds_eos,
        )
        try:
            return Tokenizer(packed.to_bytes())
        except CheckpointError as error:
            _refuse(file, str(error))

    adds_eos, _ = sources_end(path, settings)
    if special.get("add_source_bos"):
        _refuse(path, "puts BOS before its sources (add_source_bos), which tfm does not")
    source, target = vocabularies
    try:
        tokenizers = Tokenizers(read(source, files[0], adds_eos=adds_eos), read(target, files[-1], adds_eos=True))
    except ValueError as error:
        _refuse(path, f"its vocabulary cannot be used ({error})")
    return tokenizers, files


def control_tags(file: Path) -> set[str]:
    """Symbols of a SentencePiece model that it cuts no text into, as those of our tags."""
    try:
        model: Any = sentencepiece.SentencePieceProcessor(model_file=str(file))
        controls = [model.id_to_piece(i) for i in range(len(model)) if model.is_control(i)]
    except (RuntimeError, OSError, UnicodeDecodeError):
        return set()  # it is refused when it is used
    return {piece for piece in controls if is_tag(piece)}


def segmenters(path: Path, options: ReadOptions) -> list[Path]:
    """SentencePiece models of the two sides, or one for both."""
    if options.segmenters:
        return list(options.segmenters)
    pairs = [("source.spm", "target.spm"), ("sentencepiece.model",), ("spm.model",), ("../sentencepiece.model",)]
    for names in pairs:
        files = [path / name for name in names]
        if all(file.is_file() for file in files):
            return files
    _refuse(path, "no SentencePiece model is beside it. Name it (or source and target) with --segmenter")


def _languages(path: Path, options: ReadOptions) -> tuple[str, str]:
    found = [options.source_lang, options.target_lang]
    if None in found:
        for file, keys in (
            (path / "export.json", ("source_lang", "target_lang")),
            (path.absolute().parent / "metadata.json", ("from_code", "to_code")),
        ):
            try:
                facts = json.loads(file.read_bytes())
                found = [one or str(facts[key]) for one, key in zip(found, keys, strict=True)]
                break
            except (OSError, *MALFORMED):
                continue
    if None in found:
        raise CheckpointError(f"{path}: does not say its languages. Name them with --source-lang and --target-lang")
    return str(found[0]), str(found[1])
