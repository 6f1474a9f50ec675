"""The model file: one safetensors file with all that translating needs, and nothing that can run.

It holds the weights, the SentencePiece models as byte tensors, and one JSON text as metadata: the format's number, the
model's config, languages, scores, and the SHA-256 of the whole file. What is read is checked before it is used.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import safetensors
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer_cli.config.compose import from_plain, to_plain
from transformer_cli.config.data import DataConfig
from transformer_cli.config.model import ModelConfig
from transformer_cli.config.poolings import POOLINGS
from transformer_cli.config.tasks import Task, our_kinds, task_of_model
from transformer_cli.config.train import Device
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.errors import CheckpointError, ConfigError, EnvironmentFault, quoted
from transformer_cli.files import Chunk, Output, write_whole
from transformer_cli.models.build import build_model
from transformer_cli.models.device import choose_device
from transformer_cli.models.header import (
    FORMAT,
    MALFORMED,
    METADATA,
    NO_HASH,
    READABLE_SINCE,
    SOURCE,
    TARGET,
    check_hash,
    contents,
    read_header,
    read_metadata,
    refuse,
    sha256,
    texts,
    unhashed,
    whole,
)
from transformer_cli.models.locate import locate_model
from transformer_cli.models.norms import NORMS
from transformer_cli.models.registry import MODELS
from transformer_cli.models.transformer import Model, Transformer
from transformer_cli.plugins import loaded_plugins
from transformer_cli.registry import Registry, is_ours
from transformer_cli.system import total_memory
from transformer_cli.version import __version__

_ModelT = TypeVar("_ModelT", bound=Model)

FILE_BYTES = 4  # of a weight in a model file, whatever it is in memory
_SAFETENSORS_TYPES = {  # in the order of the library: wide ones first, so that all are aligned
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.uint8: "U8",
}


@dataclass(frozen=True)
class ModelFile:
    """What a model file holds: `data` is the config of the corpus as a plain dictionary, `scores` those on dev.

    `fingerprint` is that of the prepared corpus: the one whose held-out text this model has never seen.
    """

    config: ModelConfig
    tokenizers: Tokenizers
    weights: Mapping[str, Tensor]
    source_lang: str
    target_lang: str
    step: int
    fingerprint: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    averaged: list[str] = field(default_factory=list)  # the models whose mean this one is
    length_penalty: float | None = None  # that was chosen on the dev set; None: none was
    multi_sentence_share: float | None = None  # of the training text's source lines; None: not measured
    translates_letterless: bool = False  # whether the training text translates lines without a letter
    alignment_head: tuple[int, int] | None = None  # see `Transformer.alignment_head`
    full_context_alignment: bool = False  # see `Transformer.full_context_alignment`
    provenance: dict[str, Any] = field(default_factory=dict)  # for people: see `models.facts`; may be empty

    @property
    def kind(self) -> str:
        """The `Task.model` of the tasks that the model is for; a plugin's is that of its class."""
        if self.config.name in our_kinds():
            return self.config.name
        kind: str = _empty_model(self.config, self.tokenizers).kind
        return kind

    @property
    def task(self) -> Task:
        """The task that the model is trained for. Raises ConfigError for a kind that no task has."""
        return task_of_model(self.kind, self.data)

    @property
    def causal_alignment_head(self) -> tuple[int, int] | None:
        """The taught head, if its weights in a search are the alignment: those of full context need another pass."""
        return None if self.full_context_alignment else self.alignment_head

    @property
    def label_smoothing(self) -> float | None:
        """The train.label_smoothing of its training; None where that is not known."""
        found = self.provenance.get("label_smoothing")
        return float(found) if isinstance(found, float | int) and 0 <= found < 1 else None

    def build(self, device: torch.device, *, copies: bool = True) -> Transformer:
        """The model, ready to translate."""
        return self.build_as(Transformer, device, copies=copies)

    def build_as(self, kind: type[_ModelT], device: torch.device, *, copies: bool = True) -> _ModelT:
        """The model, ready to be asked; `require` says before whether it is of this kind.

        Without `copies` its parameters are `weights` themselves.
        """
        model = _empty_model(self.config, self.tokenizers)
        computed = [name for name, buffer in model.named_buffers() if buffer.numel() and name not in self.weights]
        assert not computed, f"{computed} would have no numbers"
        # No time is spent on drawing weights that are replaced at once, nor, as by to_empty, on importing sympy.
        weights = {
            name: torch.empty(x.shape, dtype=x.dtype, device=device).copy_(x) if copies else x
            for name, x in self.weights.items()
        }
        model.load_state_dict(weights, assign=True)
        assert isinstance(model, kind)
        if isinstance(model, Transformer):
            model.alignment_head = self.alignment_head
            model.full_context_alignment = self.full_context_alignment
        return model.eval()


class ModelKeys(Protocol):
    """The keys of a command that uses one model."""

    checkpoint: Any
    runs: str
    device: Device


def open_one_model(config: ModelKeys, *kinds: str) -> tuple[torch.device, Path, ModelFile]:
    """The device, and the model of --checkpoint with its path. Raises TfmError, also for one of none of the `kinds`."""
    device, path = choose_device(config.device), locate_model(config.checkpoint, config.runs)
    model = read_model(path)
    require(model, path, *kinds)
    return device, path, model


def require(model: ModelFile, path: Path, *kinds: str) -> None:
    """Raise CheckpointError unless the model is of one of the `kinds`."""
    if model.kind not in kinds:
        task = model.task
        raise CheckpointError(f"{path}: this is {task.what}; use `tfm {task.command}`, or choose another --checkpoint")


def require_command(model: ModelFile, path: Path, command: str) -> None:
    """Raise CheckpointError unless the model is for this command."""
    if (task := model.task).command != command:
        raise CheckpointError(
            f"{path}: this is {task.what}, which `tfm {task.command}` is for. Choose a model of `tfm {command}`"
        )


def refuse_plugin(model: ModelFile, path: Path, *, program: str) -> None:
    """Raise CheckpointError for a plugin's model: another program does not have its code."""
    if (part := _part_of_plugin(model.config)) is not None:
        raise CheckpointError(
            f"{path}: its {part} is a plugin's, and {program} has only those of tfm itself. Use it with engine=torch"
        )


def write_model(path: Path, model: ModelFile, *, replace: bool = True) -> None:
    """Write `path` whole. Raises OSError, and TakenError where it has appeared meanwhile and `replace` is not set."""
    write_whole(path, *model_pieces(model), replace=replace)


def read_model(path: Path) -> ModelFile:
    """Raises CheckpointError for anything that is not a whole and sound model file of ours."""
    if not path.is_file():
        raise CheckpointError(f"{path}: {'not a file' if path.exists() else 'no such file'}. Check --checkpoint")
    try:
        if path.stat().st_size > total_memory():
            refuse(path, f"larger than this machine's memory ({path.stat().st_size:,} bytes)")
        content = bytearray(path.stat().st_size)
        with path.open("rb") as file:
            del content[file.readinto(content) :]
            content += file.read()  # what was written meanwhile
    except OSError as error:
        raise EnvironmentFault(f"{path}: {error.strerror}. Check the disk and the file's permissions") from error
    return unpack_model(content, path)


def model_pieces(model: ModelFile) -> "Serialised":
    """The content of a model file."""
    pieces = serialise(model.weights, {METADATA: _metadata_of(model)}, _tokenizer_tensors(model))
    return replace(pieces, header=pieces.header.replace(NO_HASH.encode(), sha256(pieces).encode()))


def write_lazily(output: Output, model: ModelFile, weights: Mapping[str, Callable[[], Tensor]]) -> None:
    """The bytes of `model_pieces` of a model with these `weights`, each in memory only while it is written.

    `model.weights` is not used. Raises CheckpointError for a weight of another shape than `model.config` asks for.
    """
    tensors = _tokenizer_tensors(model)
    empty = _empty_model(model.config, model.tokenizers).state_dict()
    assert weights.keys() == empty.keys(), weights.keys() ^ empty.keys()
    kinds = {name: (tensor.dtype, tensor.shape) for name, tensor in {**empty, **tensors}.items()}
    header = _header(kinds, {METADATA: _metadata_of(model)})
    output.write(header)
    digest = hashlib.sha256(header)
    for name in _ordered(kinds):
        tensor = tensors[name] if name in tensors else weights[name]()
        if _kind(tensor) != (wanted := _kind(empty.get(name, tensor))):
            raise CheckpointError(f"{quoted(name)} is {_kind(tensor)}, but the model's config asks for {wanted}")
        memory = _memory(tensor)
        output.write(memory)
        digest.update(memory)
    output.rewrite_start(header.replace(NO_HASH.encode(), digest.hexdigest().encode()))


def _tokenizer_tensors(model: ModelFile) -> dict[str, Tensor]:
    return {name: _as_tensor(tokenizer.model_bytes) for name, tokenizer in _stored_tokenizers(model).items()}


def _stored_tokenizers(model: ModelFile) -> dict[str, Tokenizer]:
    tokenizers = {SOURCE: model.tokenizers.source}
    if not model.tokenizers.joint:
        tokenizers[TARGET] = model.tokenizers.target
    return tokenizers


def _metadata_of(model: ModelFile) -> str:
    """The metadata as JSON, with room for the hash."""
    metadata = {
        "sha256": NO_HASH,
        "format": FORMAT,
        "needs": READABLE_SINCE,
        "tfm": __version__,
        "step": model.step,
        "source_lang": model.source_lang,
        "target_lang": model.target_lang,
        "scores": model.scores,
        "tokenizers": {name: tokenizer.sha256 for name, tokenizer in _stored_tokenizers(model).items()},
        "config": to_plain(model.config),
        "fingerprint": model.fingerprint,
        "data": model.data,
    }
    if model.tokenizers.labels:
        metadata["labels"] = list(model.tokenizers.labels)
    if model.averaged:
        metadata["averaged"] = model.averaged
    if _part_of_plugin(model.config) is not None:
        metadata["plugins"] = loaded_plugins()
    if model.multi_sentence_share is not None:
        metadata["multi_sentence_share"] = model.multi_sentence_share
    if model.translates_letterless:
        metadata["translates_letterless"] = True
    if model.alignment_head is not None:
        metadata["alignment_head"] = list(model.alignment_head)
    if model.full_context_alignment:
        metadata["full_context_alignment"] = True
    if model.length_penalty is not None:
        metadata["length_penalty"] = model.length_penalty
    if model.provenance:
        metadata["provenance"] = model.provenance
    return json.dumps(metadata, allow_nan=False)


@dataclass(frozen=True)
class Serialised:
    """The content of a safetensors file, each time that it is iterated over: the header, then a view of each tensor.

    What a mapping computes when it is asked for is in memory only while it is the last piece.
    """

    header: bytes
    sources: Mapping[str, Mapping[str, Tensor]]  # name of a tensor, in the order of the file → the mapping that has it

    def __iter__(self) -> Iterator[Chunk]:
        yield self.header
        for name, tensors in self.sources.items():
            yield _memory(tensors[name])


def serialise(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None, also: Mapping[str, Tensor] | None = None
) -> Serialised:
    """A safetensors file of `tensors`, and of those of `also`.

    The bytes are those of the safetensors library, whose own writer copies everything twice and does not let other
    threads run meanwhile.
    """
    found = {name: source for source in (tensors, also or {}) for name in source}
    kinds = {name: _type(source[name]) for name, source in found.items()}
    return Serialised(_header(kinds, metadata), {name: found[name] for name in _ordered(kinds)})


def _type(tensor: Tensor) -> tuple[torch.dtype, torch.Size]:
    return tensor.dtype, tensor.shape


_Kinds = Mapping[str, tuple[torch.dtype, torch.Size]]


def _ordered(kinds: _Kinds) -> list[str]:
    order = list(_SAFETENSORS_TYPES)
    return sorted(kinds, key=lambda name: (order.index(kinds[name][0]), name))


def _header(kinds: _Kinds, metadata: Mapping[str, str] | None) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in _ordered(kinds):
        dtype, shape = kinds[name]
        start, end = end, end + dtype.itemsize * shape.numel()
        header[name] = {"dtype": _SAFETENSORS_TYPES[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _memory(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def unpack_model(content: bytes | bytearray, path: Path) -> ModelFile:
    """The model file in `content`, which was read from `path`. Raises CheckpointError.

    The weights are views of a bytearray: a model takes no more memory than its file.
    """
    table = contents(content, path, n_bytes=len(content))
    metadata = read_metadata(table, path)
    data_at = 8 + int.from_bytes(content[:8], "little")
    pieces: list[Chunk] = [unhashed(bytes(content[:data_at]), metadata, path), memoryview(content)[data_at:]]
    check_hash(sha256(pieces), metadata, path)
    try:
        tensors = _views(bytearray(content) if isinstance(content, bytes) else content, table, data_at)
    except MALFORMED as error:
        refuse(path, f"damaged or not written by tfm ({quoted(str(error))})")
    return _unpacked(tensors, metadata, path)


def _views(content: bytearray, table: Mapping[str, Any], data_at: int) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Raises ValueError for a table that leaves out bytes, or names some twice."""
    types = {name: dtype for dtype, name in _SAFETENSORS_TYPES.items()}
    entries = {name: entry for name, entry in table.items() if name != "__metadata__"}
    tensors: dict[str, Tensor] = {}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = types[entry["dtype"]], [whole(size, name) for size in entry["shape"]]
        (first, last), n = entry["data_offsets"], math.prod(shape)
        if first != end or last - first != n * dtype.itemsize or data_at + last > len(content):
            raise ValueError(f"{name} is at {first} to {last}, after {end}")
        end = last
        place = memoryview(content)[data_at + first : data_at + last]
        place = place if (data_at + first) % dtype.itemsize == 0 else memoryview(bytearray(place))
        tensors[name] = torch.frombuffer(place, dtype=dtype).view(shape) if n else torch.empty(shape, dtype=dtype)
    if data_at + end != len(content):
        raise ValueError(f"{len(content) - data_at - end} bytes belong to no tensor")
    return tensors


def map_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, mapped. Raises OSError and SafetensorError."""
    with safetensors.safe_open(path, framework="pt") as mapped:
        return {name: mapped.get_tensor(name) for name in mapped.keys()}  # noqa: SIM118  (no mapping)


def map_model(path: Path, known: Tokenizers | None = None) -> ModelFile:
    """Maps a model file, which `read_model` would read: weights are read when used, and may leave memory again.

    Tokenizers are those that are `known`, where the file has their very bytes: a large one is not in memory twice.
    """
    metadata = read_header(path).metadata
    try:
        tensors = map_tensors(path)
    except OSError as error:
        raise EnvironmentFault(f"{path}: {error.strerror}. Check the disk and the file's permissions") from error
    except (safetensors.SafetensorError, *MALFORMED) as error:
        refuse(path, f"damaged or not written by tfm ({quoted(str(error))})")
    return _unpacked(tensors, metadata, path, known)


def _unpacked(
    tensors: Mapping[str, Tensor], metadata: dict[str, Any], path: Path, known: Tokenizers | None = None
) -> ModelFile:
    try:
        config = from_plain(ModelConfig, metadata["config"])
        _check_registered(config, texts(metadata.get("plugins", []), "plugins"), path)
        # They become parts of file names; what the config of a corpus would refuse is refused here.
        languages = DataConfig(source_lang=str(metadata["source_lang"]), target_lang=str(metadata["target_lang"]))
        tokenizers = _read_tokenizers(tensors, metadata["tokenizers"], path, known)
        tokenizers = replace(tokenizers, labels=tuple(texts(metadata.get("labels", []), "labels")))
        model = ModelFile(
            config=config,
            tokenizers=tokenizers,
            weights={name: tensor for name, tensor in tensors.items() if name not in (SOURCE, TARGET)},
            source_lang=languages.source_lang,
            target_lang=languages.target_lang,
            step=whole(metadata["step"], "step"),
            fingerprint=str(metadata.get("fingerprint", "")),
            data=dict(metadata["data"]),
            scores=dict(metadata["scores"]),
            averaged=texts(metadata.get("averaged", []), "averaged"),
            length_penalty=_number_within(10, "length_penalty", metadata.get("length_penalty")),
            multi_sentence_share=read_share(metadata.get("multi_sentence_share")),
            translates_letterless=metadata.get("translates_letterless") is True,
            alignment_head=(head := _read_head(metadata.get("alignment_head"), config)),
            full_context_alignment=head is not None and metadata.get("full_context_alignment") is True,
            provenance=dict(metadata.get("provenance", {})),
        )
        _check_shapes(model, path)
    except ConfigError as error:
        raise CheckpointError(f"{path}: its config cannot be used ({error}). Copy or train it again") from error
    except MALFORMED as error:
        refuse(path, f"damaged or not written by tfm ({quoted(str(error))})")
    return model


def _registered_parts(config: ModelConfig) -> list[tuple[str, str, Registry[Any]]]:
    """The parts of a model that may come from plugins: what each is, its name, and its registry."""
    return [("model", config.name, MODELS), ("norm", config.norm_kind, NORMS), ("pooling", config.pooling, POOLINGS)]


def _check_registered(config: ModelConfig, plugins: list[str], path: Path) -> None:
    """Raise CheckpointError for a plugin's model whose plugin is not loaded: no file can have a module imported."""
    lacking = [f"{what} {quoted(name)}" for what, name, registry in _registered_parts(config) if name not in registry]
    if plugins and lacking:
        needed = " or ".join(quoted(plugin, 40)[1:-1] for plugin in plugins)
        raise CheckpointError(
            f"{path}: its {lacking[0]} comes from the plugin {needed}, which is code of its own."
            f" If you have it and trust it, add --plugin {quoted(plugins[0], 40)[1:-1]}"
        )


def _part_of_plugin(config: ModelConfig) -> str | None:
    """What of a model is a plugin's: the model itself, its norm or its pooling; None where all is ours."""
    for what, name, registry in _registered_parts(config):
        if not is_ours(getattr(registry[name], "build", registry[name])):
            return f"{what} {quoted(name)}"
    return None


def read_share(value: object) -> float | None:
    """Raises what MALFORMED lists for what is no share."""
    return _number_within(1, "multi_sentence_share", value)


def _read_head(value: object, config: ModelConfig) -> tuple[int, int] | None:
    """Raises ValueError for a layer or head that the decoder does not have."""
    if value is None:
        return None
    numbers = value if isinstance(value, list) and len(value) == 2 else [value, value]
    layer, head = (whole(number, "alignment_head") for number in numbers)
    if layer >= config.n_decoder_layers or head >= config.n_heads:
        raise ValueError(f"alignment_head is {value}")
    return layer, head


def _number_within(high: float, name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
        raise ValueError(f"{name} is {value}")
    return float(value)


def _read_tokenizers(
    tensors: Mapping[str, Tensor], hashes: dict[str, str], path: Path, known: Tokenizers | None
) -> Tokenizers:
    # By side: the target's is without tags, though its bytes may be the same.
    by_side = {} if known is None else {SOURCE: known.source, TARGET: known.target}
    found: dict[str, Tokenizer] = {}
    for name in (SOURCE, TARGET):
        if name not in hashes:
            continue
        if tensors[name].dtype is not torch.uint8:
            refuse(path, f"its {name} is {tensors[name].dtype}, not bytes")
        try:
            content = bytes(tensors[name].flatten().numpy())
            same = (one := by_side.get(name)) is not None and one.model_bytes == content
            found[name] = by_side[name] if same else Tokenizer(content)
        except CheckpointError as error:
            refuse(path, f"its {error}")
        if found[name].sha256 != hashes[name]:
            refuse(path, f"its {name} has SHA-256 {found[name].sha256[:12]}…, not {hashes[name][:12]}…")
    return Tokenizers(found[SOURCE], found.get(TARGET, found[SOURCE]))


def _check_shapes(model: ModelFile, path: Path) -> None:
    """Compare with a model that has shapes and no memory, so that a lying config cannot claim any."""
    if model.config.n_encoder_layers + model.config.n_decoder_layers > len(model.weights):
        refuse(path, f"has {len(model.weights)} tensors, but its config asks for more layers")  # which take a while
    expected, found = _empty_model(model.config, model.tokenizers).state_dict(), model.weights
    for name in sorted(expected.keys() | found.keys()):
        wanted, got = _kind(expected.get(name)), _kind(found.get(name))
        if wanted != got:
            refuse(path, f"{quoted(name)} is {got}, but its config asks for {wanted}")


def _kind(tensor: Tensor | None) -> str:
    return "nothing" if tensor is None else f"{list(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def _empty_model(config: ModelConfig, tokenizers: Tokenizers) -> Model:
    with torch.device("meta"), _Undrawn():
        return build_model(config, *tokenizers.vocabularies)


_DRAWING = (nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)


class _Undrawn(TorchFunctionMode):
    """Leaves out what draws first weights. A model without memory has none, but torch imports its compiler for them."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        if func in _DRAWING:
            return args[0] if args else options["tensor"]
        return func(*args, **options)


def _as_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
