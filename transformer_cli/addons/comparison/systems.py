"""What `tfm compare` is given: models, files of translations (recognised by content), and short names."""

from collections.abc import Sequence
from pathlib import Path

from transformer_cli.data.compression import Gunzip
from transformer_cli.data.lines import Lines, other_format, read_lines, shown
from transformer_cli.errors import DataError
from transformer_cli.files import follow, naming
from transformer_cli.models.header import MODEL_FILE
from transformer_cli.models.locate import is_own_model, place_named

_HEAD_BYTES = 4096
# Endings of model files; by anything else, a file is known by its content.
_MODELS = (".safetensors", ".npz", ".pt", ".pth", ".bin", ".ckpt", ".argosmodel")
_TEXT_CONTROLS = b"\t\n\v\f\r\x1b\x85"


def is_model(path: Path) -> bool:
    """Whether `path` names a model, a checkpoint or a folder that may hold one, rather than a file of translations.

    Raises DataError for what does not exist, and for a file that is neither.
    """
    path = place_named(path)
    if not path.exists():
        raise DataError(f"{shown(path)}: no such file or folder. Check the name")
    if path.is_dir():
        return True
    if not path.is_file():
        raise DataError(f"{shown(path)}: is neither a file nor a folder. Name a model or a text file")
    if is_own_model(path):
        return True
    with naming(path), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
        if path.name.endswith(".gz"):
            file.seek(0)
            return not _is_text(Gunzip(file, shown(path)).read(_HEAD_BYTES), path)
    return path.name.endswith(_MODELS) or not _is_text(head, path)


def _is_text(head: bytes, path: Path) -> bool:
    """Whether these first bytes are of a text, also of one in another encoding, which its reader says more of."""
    format_fault = other_format(head)
    if format_fault is not None and not head.startswith(b"PK\x03\x04"):  # a zip archive may be a model
        raise DataError(f"{shown(path)}: {format_fault}")
    return not any(byte < 32 and byte not in _TEXT_CONTROLS for byte in head)


def read_translations(path: Path) -> Lines:
    """The lines of a text file. Raises DataError."""
    return read_lines(follow(path))


def short_names(paths: Sequence[str]) -> list[str]:
    """The last parts of each path that tell it from the others; what is named twice gets a number."""
    parts = [_parts(path) for path in paths]
    names: list[str] = []
    for own in parts:
        others = [other for other in parts if other != own]
        n = next(
            (n for n in range(1, len(own)) if all(own[-n:] != other[-n:] for other in others)),
            len(own),
        )
        name = "/".join(own[-n:])
        n_before = sum(other == own for other in parts[: len(names)])
        names.append(f"{name} ({n_before + 1})" if n_before else name)
    return names


def _parts(path: str) -> tuple[str, ...]:
    """A model of a run is called like the run."""
    parts = Path(path).parts
    if not Path(path).name:  # as `.`
        parts = Path(path).resolve().parts
    return parts[:-1] if len(parts) > 1 and parts[-1] == MODEL_FILE else parts
