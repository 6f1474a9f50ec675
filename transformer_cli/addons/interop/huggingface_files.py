"""The files of a directory of Hugging Face transformers: JSON that is checked, and weights that are read one by one."""

import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import safetensors
import torch
from torch import Tensor

from transformer_cli.addons.interop.torch_files import read_tensors
from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted
from transformer_cli.models.header import MALFORMED, read_json

CONFIG, TOKENIZER_CONFIG, GENERATION = "config.json", "tokenizer_config.json", "generation_config.json"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
# What the tokenizers of transformers are read from.
TEXT_FILES = (
    *("*.spm", "*.model", "vocab.json", "target_vocab.json", "tokenizer.json"),
    *(TOKENIZER_CONFIG, "special_tokens_map.json", "added_tokens.json"),
)
SOURCE_TAGS = "source_tags"  # in the tokenizer's config: tags that `tfm export` has made symbols of SentencePiece
_MOST_JSON = 128 << 20  # bytes: a vocabulary of 250,000 pieces takes 6 MB, and with its merges in lines 40
_NUMBERS = ("F16", "BF16", "F32", "F64", torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Tensors:
    """Named tensors in one or several files. Their shapes are known before any is read.

    A file is mapped again for each tensor that is read, so that it takes no memory after that.
    """

    def __init__(self) -> None:
        self.shapes: dict[str, list[int]] = {}
        self.kinds: dict[str, Any] = {}
        self.files: list[Path] = []
        self._read: dict[str, Callable[[], Tensor]] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._read[name]()

    def add(self, file: Path) -> None:
        """The tensors of one file. Raises CheckpointError for a damaged file, and for a name that stands twice."""
        try:
            if file.suffix == ".safetensors":
                self._add_safetensors(file)
            else:
                is_mapped = zipfile.is_zipfile(file)  # else of torch before 1.6, and in memory
                for name, tensor in read_tensors(file).items():
                    read = partial(_from_torch, file, name) if is_mapped else partial(_same, tensor)
                    self._put(name, file, list(tensor.shape), tensor.dtype, read)
        except safetensors.SafetensorError as error:
            refuse_file(file, f"damaged, or not of safetensors ({quoted(str(error))}). Fetch it again")
        except OSError as error:
            raise EnvironmentFault(f"{file}: {error.strerror}. Check the disk and the file's permissions") from error
        self.files.append(file)

    def _add_safetensors(self, file: Path) -> None:
        opened: Any = safetensors.safe_open(file, framework="pt")
        for name in opened.keys():  # noqa: SIM118  (no mapping)
            entry = opened.get_slice(name)
            self._put(name, file, list(entry.get_shape()), entry.get_dtype(), partial(_from_safetensors, file, name))

    def _put(self, name: str, file: Path, shape: list[int], kind: Any, read: Callable[[], Tensor]) -> None:
        if name in self._read:
            refuse_file(file, f"{quoted(name)} is in another file, too. Fetch the folder again")
        if kind not in _NUMBERS:
            refuse_file(file, f"{quoted(name)} holds {str(kind).removeprefix('torch.')}, not floating-point weights")
        self.shapes[name], self.kinds[name], self._read[name] = shape, kind, read


def _from_safetensors(file: Path, name: str) -> Tensor:
    opened: Any = safetensors.safe_open(file, framework="pt")
    tensor: Tensor = opened.get_tensor(name)
    return tensor


def _from_torch(file: Path, name: str) -> Tensor:
    return read_tensors(file)[name]


def _same(tensor: Tensor) -> Tensor:
    return tensor


def open_weights(directory: Path) -> Tensors:
    """The weights of a directory, in the order in which transformers looks for them."""
    found = next((name for name in WEIGHTS if (directory / name).exists()), None)
    if found is None:
        refuse_file(directory, f"holds no weights ({', '.join(WEIGHTS)}). Fetch the whole folder")
    tensors = Tensors()
    if found.endswith(".json"):
        parts = json_of(directory / found).get("weight_map")
        names = set(parts.values()) if isinstance(parts, dict) else set()
        if not names or not all(isinstance(name, str) and Path(name).name == name for name in names):
            refuse_file(directory / found, "its weight_map names no files of the folder. Fetch it again")
        ending = Path(found.removesuffix(".index.json")).suffix
        if odd := next((name for name in sorted(names) if not name.endswith(ending)), None):
            refuse_file(directory / found, f"its weight_map names {quoted(odd)}, no file {ending}. Fetch it again")
        for name in sorted(names):
            tensors.add(plain_file(directory / name))
        tensors.files.append(directory / found)
    else:
        tensors.add(plain_file(directory / found))
    return tensors


def plain_file(file: Path) -> Path:
    """`file`, if it can be read. Downloads keep links to files in a cache."""
    if not file.is_file():
        refuse_file(
            file,
            "not a plain file. Fetch it again"
            if file.exists() or file.is_symlink()
            else "no such file, and the model needs it. Fetch the folder again",
        )
    return file


def json_of(file: Path) -> dict[str, Any]:
    """A JSON object. Raises CheckpointError."""
    content = bytes_of(file)
    found = read_json(content, file)
    if not isinstance(found, dict):
        refuse_file(file, "holds no JSON object. Fetch it again")
    return found


def bytes_of(file: Path) -> bytes:
    try:
        if plain_file(file).stat().st_size > _MOST_JSON:
            refuse_file(file, f"larger than such a file is ({file.stat().st_size:,} bytes). Fetch it again")
        return file.read_bytes()
    except OSError as error:
        raise EnvironmentFault(f"{file}: {error.strerror}. Check the disk and the file's permissions") from error


def vocab_pieces(file: Path, size: int) -> list[str]:
    """The pieces of a vocab.json in the order of their ids; rows of the model after the last one get made-up names."""
    return pieces_in_order(file, json_of(file), size)


def pieces_in_order(file: Path, ids: Mapping[str, Any], size: int) -> list[str]:
    """The pieces that `file` gives these ids, as `vocab_pieces` has them.

    Raises CheckpointError for ids that are no numbers, stand twice, leave a gap, or have no row in the model.
    """
    by_id: dict[int, str] = {}
    for piece, number in ids.items():
        if type(number) is not int or number < 0:
            refuse_file(file, f"the id of {quoted(piece)} is {quoted(str(number))}, no whole number. Fetch it again")
        if number in by_id:
            refuse_file(file, f"{quoted(piece)} and {quoted(by_id[number])} have the id {number}. Fetch it again")
        if number >= size:
            refuse_file(file, f"{quoted(piece)} has the id {number}, but the model has {size:,} rows. Fetch it again")
        by_id[number] = piece
    if (gap := next((number for number in range(len(by_id)) if number not in by_id), None)) is not None:
        refuse_file(file, f"no piece has the id {gap}, though others have higher ones. Fetch it again")
    return [by_id.get(number, f"<no piece {number}>") for number in range(size)]


def source_tags(folder: Path, settings: Mapping[str, Any]) -> list[str]:
    """The tags that our own export names in its tokenizer's config. Raises CheckpointError."""
    tags = settings.get(SOURCE_TAGS, [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) and tag for tag in tags):
        refuse_file(folder / TOKENIZER_CONFIG, f"{SOURCE_TAGS}: no list of texts. Fetch it again")
    return tags


def text_of_token(value: Any) -> Any:
    """A special token, which may be an object with its text in it."""
    return value.get("content") if isinstance(value, Mapping) else value


def is_json_with(file: Path, name: str) -> bool:
    """Whether a file is a JSON object with a text under `name`; raises nothing."""
    try:
        return file.is_file() and file.stat().st_size < _MOST_JSON and isinstance(json_of(file).get(name), str)
    except (CheckpointError, EnvironmentFault, OSError, *MALFORMED):
        return False


def refuse_file(file: Path, what: str) -> NoReturn:
    raise CheckpointError(f"{file}: {what}")
