"""Checkpoints of training programs in files of `torch.save`: named weights, and the options of the training.

Nothing in them is executed. Beside tensors and containers they may hold an `argparse.Namespace`, and numbers of NumPy
in statistics that are not read here: stand-ins without any code take the place of these.
"""

import argparse
import re
import reprlib
import zipfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from transformer_cli.addons.interop.foreign import ReadOptions
from transformer_cli.addons.interop.torch_files import ZIP, read_torch
from transformer_cli.config.checks import check_file_name
from transformer_cli.config.model import ModelConfig
from transformer_cli.errors import CheckpointError, ConfigError, quoted
from transformer_cli.files import wrap_os_errors

MOST_OPTIONS = 10_000  # fairseq has some 500
DEEPEST = 8  # groups within each other
_PEEK = 1 << 24  # bytes of a pickle, in which the names of all weights are found
SEGMENTERS = (
    "*.model",
    "*.spm",
    "*.codes",
    "*bpecodes*",
    "*bpe_codes*",
    "code",
    "codes",
    "bpe.*",
    "code.*",
    "codes.*",
)


class Ignored:
    """Stands for an object that is of no use here, whatever it was made of."""

    def __new__(cls, *_: Any) -> "Ignored":
        return super().__new__(cls)

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


_NUMPY = [f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")]
_IGNORED = [*_NUMPY, "numpy.dtype", "numpy.ndarray", "numpy.dtypes.Float64DType", "_codecs.encode"]
ALLOWED: list[Any] = [argparse.Namespace, *((Ignored, name) for name in _IGNORED)]


def mentions(path: Path, *names: str) -> bool:
    """Whether a file is of torch and its pickle holds these names; reads only its beginning, and executes nothing."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
                content = archive.open(pickles[0]).read(_PEEK) if pickles else b""
        else:
            with path.open("rb") as file:
                content = file.read(_PEEK)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError):
        return False
    return all(name.encode() in content for name in names)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The outermost dictionary. Raises CheckpointError, which names what would have to be executed."""
    with wrap_os_errors(path, "read the checkpoint"), path.open("rb") as file:
        is_cut = file.read(len(ZIP)) == ZIP and not zipfile.is_zipfile(path)  # its table of contents is at the end
    if is_cut:
        raise CheckpointError(f"{path}: cut short, as it has no end. Copy or download it again")
    _refuse_code(path, _needing_code(path))
    try:
        found = read_torch(path, allowed=ALLOWED)
    except CheckpointError as error:
        named = re.search(r"(?:un|Un)supported GLOBAL (\S+)", str(error.__cause__))
        _refuse_code(path, [named[1]] if named else [])
        raise
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise CheckpointError(f"{path}: not a checkpoint of named entries. Download it again")
    return found


def _refuse_code(path: Path, names: Sequence[str]) -> None:
    if names:
        raise CheckpointError(
            f"{path}: holds code ({', '.join(map(quoted, names[:5]))}{', …' if len(names) > 5 else ''}), which is"
            " not run. Save it without, in the program that wrote it"
        )


def reread(path: Path) -> Any:
    """What `read_checkpoint` has read, mapped again."""
    return read_torch(path, allowed=ALLOWED)


def _needing_code(path: Path) -> list[str]:
    """What a zip archive of torch names beside what is allowed; a file of another kind is left to the reader."""
    try:
        with torch.serialization.safe_globals(ALLOWED):
            return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # a damaged file fails in many ways, and the reader says how
        return []


def options_of(path: Path, *groups: Any) -> dict[str, Any]:
    """The options in dictionaries and namespaces, without those that are None; those within another get its name first.

    As in fairseq, whose `encoder.layers` and `encoder_layers` are the same. A value is a text, a number, or a list
    or set of these; of anything else it is a short description. Raises CheckpointError for groups that contain
    themselves, and for more options than any program has, which a few groups make that hold each other many times.
    """
    found: dict[str, Any] = {}
    n_visited = 0

    def add(group: Any, prefix: str, above: tuple[int, ...]) -> None:
        nonlocal n_visited
        entries = vars(group) if isinstance(group, argparse.Namespace) else group
        if not isinstance(entries, Mapping):
            return
        if id(group) in above or len(above) == DEEPEST:
            raise CheckpointError(f"{path}: {quoted(prefix)} in its options is too deep. Nothing was imported")
        for name, value in entries.items():
            n_visited += 1
            if n_visited > MOST_OPTIONS:
                raise CheckpointError(f"{path}: has more than {MOST_OPTIONS:,} options. Nothing was imported")
            if not isinstance(name, str) or value is None:
                continue
            if isinstance(value, dict | argparse.Namespace):
                add(value, f"{prefix}{name}_", (*above, id(group)))
            else:
                found[f"{prefix}{name}"] = _plain(value)

    for group in groups:
        add(group, "", ())
    return found


def _plain(value: Any) -> Any:
    """A value that can be compared and shown: what holds others many times has no end otherwise."""
    parts = value if isinstance(value, list | tuple | set | frozenset) else [value]
    return value if all(isinstance(part, str | int | float) for part in parts) else quoted(reprlib.repr(value))


class CheckpointTensors:
    """The tensors of a checkpoint by their own names, and which of them have been asked for.

    `load` maps the file; it is called again for each tensor after `release`, as what stays mapped counts as memory.
    """

    def __init__(self, path: Path, load: Callable[[], Any]) -> None:
        self.path, self.asked = path, set[str]()
        tensors = load()
        if (
            not isinstance(tensors, Mapping)
            or not tensors
            or not all(isinstance(name, str) and isinstance(x, Tensor) for name, x in tensors.items())
        ):
            raise CheckpointError(f"{path}: its weights are not named tensors. Copy or download it again")
        for name, tensor in tensors.items():
            if tensor.layout is not torch.strided or not (tensor.is_floating_point() or tensor.numel() == 1):
                raise CheckpointError(f"{path}: {quoted(name)} is {tensor.dtype}, not floating-point numbers")
        self.names: Collection[str] = set(tensors)
        self._load, self._tensors = load, dict[str, Tensor](tensors)

    def release(self) -> None:
        """Keep no tensor from now on; but those of a file of before torch 1.6 are in memory, and stay."""
        if zipfile.is_zipfile(self.path) or self.path.suffix == ".safetensors":
            self._tensors = {}

    def all(self) -> Mapping[str, Tensor]:
        return self._tensors or self._load()

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.names:
            self.refuse(f"has no tensor {quoted(name)}")
        self.asked.add(name)
        return self.all()[name]

    def shaped(self, name: str, *shape: int) -> Tensor:
        """Raises CheckpointError where it is missing or has another shape."""
        found = self[name]
        if tuple(found.shape) != shape:
            self.refuse(f"{quoted(name)} is {list(found.shape)}, not {list(shape)}")
        return found

    def n_layers(self, prefix: str) -> int:
        """How many layers there are, whose names begin with `prefix`, a dot and a number."""
        start = f"{prefix}."
        numbers = {name.removeprefix(start).split(".")[0] for name in self.names if name.startswith(start)}
        count = len(numbers)
        if not count or numbers != {str(i) for i in range(count)}:
            self.refuse(f"{quoted(prefix)} are not layers from 0 on")
        return count

    def check_all_used(self, *, ignored: Callable[[str], bool]) -> None:
        """Raises CheckpointError for a tensor of which nothing became a part of the model."""
        left = sorted(name for name in set(self.names) - self.asked if not ignored(name))
        if left:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            self.refuse(f"has the tensor {quoted(left[0])}{more}, of a variant that is not supported")

    def refuse(self, what: str) -> NoReturn:
        raise CheckpointError(f"{self.path}: {what}. Nothing was imported")


def check_options(path: Path, options: Mapping[str, Any], supported: Mapping[str, Sequence[Any]]) -> None:
    """Raises CheckpointError for an option that is set to something else than its supported values."""
    for name, values in supported.items():
        if name in options and options[name] not in values and not _is_off(options[name], values):
            raise CheckpointError(
                f"{path}: {name}={quoted(str(options[name]))} is not supported (only"
                f" {', '.join(str(value) for value in values)}). Nothing was imported"
            )


def _is_off(value: Any, values: Sequence[Any]) -> bool:
    """Whether it is an empty list or text where False stands for "not used"."""
    return False in values and value in ([], "", {}, ())


def checked_config(path: Path, **values: Any) -> ModelConfig:
    """Raises CheckpointError for what no model can be."""
    try:
        return ModelConfig(**values)
    except (ConfigError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path}: its options make no model ({quoted(str(error))}). Nothing was imported"
        ) from error


def probability(value: Any) -> float:
    """A probability of dropout, which only training uses; also from a list of the probabilities of its stages."""
    last = value[-1] if isinstance(value, list) and value else value
    return float(last) if isinstance(last, int | float) and 0 <= last < 1 else 0.0


def same_tensor(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and (a.data_ptr() == b.data_ptr() or bool((a == b).all()))


def checkpoint_languages(
    path: Path, options: ReadOptions, source: Any, target: Any, *, default: str | None = None
) -> tuple[str, str]:
    """Source and target language as given, or as the checkpoint says.

    Raises CheckpointError where neither does, or where they are no names.
    """
    found = []
    for given, stated, flag in (
        (options.source_lang, source, "--source-lang"),
        (options.target_lang, target, "--target-lang"),
    ):
        language = given or stated or default
        if not isinstance(language, str) or not language:
            raise CheckpointError(f"{path}: does not say what languages it translates. Give {flag}")
        try:
            check_file_name(flag, language)
        except ConfigError as error:
            raise CheckpointError(f"{path}: {error}") from error
        found.append(language)
    return found[0], found[1]


def beside(path: Path, patterns: Iterable[str]) -> list[Path]:
    """The files in the folder of `path` with such names, each once."""
    folder = path.parent
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()} - {path})


def segmenters_beside(path: Path, languages: Sequence[str]) -> list[Path]:
    """The SentencePiece model or the BPE codes, or one for each language. Raises CheckpointError where it is not clear.

    Of each language are files with its name between dots: spm.de.model. Empty where there is none.
    """
    found = beside(path, SEGMENTERS)
    of_each = [[file for file in found if language in file.name.split(".")] for language in languages]
    if all(len(files) == 1 for files in of_each):
        return [files[0] for files in of_each]
    if len(found) > 1:
        raise CheckpointError(
            f"{path}: several files beside it may cut its text ({', '.join(file.name for file in found[:6])})."
            " Name one, or that of the source and that of the target, with --segmenter"
        )
    return found
