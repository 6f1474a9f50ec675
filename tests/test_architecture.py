"""The order of the rooms, and what no module may contain."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "transformer_cli"

# Each room may import from itself and from those after it.
ORDER = [
    "cli",
    "commands",
    "training",
    "evaluation",
    "decoding",
    "models",
    "data",
    "config",
    "schema",
    "registry",
    "errors",
]
# Beside the order: `completion` and `multirun` belong to cli, `logs` to nobody.
ROOM = {
    "completion": "cli",
    "multirun": "cli",
    "logs": "errors",
    "files": "errors",
    "environment": "errors",
    "__init__": "errors",
}

# Constructs that have run other people's code, split lines in the wrong place, or hidden an error.
BANNED = re.compile(
    r"splitlines\(|codecs\.open|(?<!safetensors\.)torch\.load\(|import pickle|extractall\("
    r"|hydra\.utils|\bexec\(|shell=True|except:"
)

MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    return ROOM.get(module, module)


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("transformer_cli"):
            parts = node.module.split(".")[1:]
            found |= {room_of(parts[0])} if parts else {room_of(alias.name) for alias in node.names}
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative import"
    return found - {"__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room_of(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))
    allowed = ORDER[ORDER.index(here) :]
    assert imported_rooms(path) <= set(allowed), f"{here} may import only {allowed}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_banned_constructs_are_absent(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").split("\n")
    assert [line for line in lines if BANNED.search(line)] == []


def test_torch_is_imported_only_where_tensors_are() -> None:
    without = ["cli", "completion", "config", "schema", "registry", "errors", "logs", "multirun"]
    for name in without:
        assert not re.search(
            r"^\s*(import|from) torch", (PACKAGE / f"{name}.py").read_text(encoding="utf-8"), re.MULTILINE
        )
