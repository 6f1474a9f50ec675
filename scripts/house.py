"""The structure of the package in figures: lines of the core and the add-ons, what a command reaches, public names.

Imports are read from the source, those within functions too; what a registry holds is not followed.
"""

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "transformer_cli"
ADDONS = "addons"


def name_of(path: Path) -> str:
    """`decoding.search.beam`; of a package's `__init__`, the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    return {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported_modules(path: Path, names: Iterable[str]) -> set[str]:
    """Modules of ours, of those `names`, that `path` imports, at its top or within a function."""
    found: set[str] = set()
    ours = PACKAGE.name
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative import"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == ours:
            module = ".".join(node.module.split(".")[1:])
            for alias in node.names:
                full = f"{module}.{alias.name}".removeprefix(".")
                found.add(full if full in names else module or "__init__")
        elif isinstance(node, ast.Import):
            found |= {a.name.removeprefix(f"{ours}.") for a in node.names if a.name.startswith(f"{ours}.")}
    return found - {name_of(path)}


def imports() -> dict[str, set[str]]:
    """Module → the modules of ours that it imports."""
    paths = modules()
    return {name: imported_modules(path, paths) for name, path in paths.items()}


def in_circles(imported: Mapping[str, set[str]]) -> set[str]:
    """The modules that are part of a circle of imports, or import one that is."""
    left = dict(imported)
    # What imports nothing that is left cannot be part of a circle.
    while free := {name for name, found in left.items() if not found & left.keys()}:
        left = {name: found for name, found in left.items() if name not in free}
    return set(left)


def reached_from(start: str, imported: Mapping[str, set[str]]) -> set[str]:
    """The modules that `start`, a package, and the modules in it import, directly or not."""
    reached: set[str] = set()
    waiting = [name for name in imported if f"{name}.".startswith(f"{start}.")]
    while waiting:
        name = waiting.pop()
        if name in imported and name not in reached:
            reached.add(name)
            waiting += imported[name]
    return reached


def public_names() -> dict[str, list[str]]:
    """Public class, function or constant → the modules that define one of that name."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, path in modules().items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            else:
                continue
            for name in names:
                if not name.startswith("_"):
                    found[name].append(module)
    return dict(found)


@dataclass(frozen=True)
class Size:
    modules: int
    lines: int


def size_of(names: Iterable[str]) -> Size:
    paths, chosen = modules(), list(names)
    return Size(len(chosen), sum(len(paths[name].read_text(encoding="utf-8").split("\n")) - 1 for name in chosen))


def figures() -> dict[str, Size | int]:
    imported = imports()
    core = [name for name in imported if name.split(".")[0] != ADDONS]
    sizes: dict[str, Size | int] = {"package": size_of(imported), "core": size_of(core)}
    for command in ("train", "translate", "evaluate"):
        sizes[f"tfm {command} reaches"] = size_of(reached_from(f"commands.{command}", imported))
    addons = sorted({name.split(".")[1] for name in imported if name.startswith(f"{ADDONS}.")})
    for addon in addons:
        sizes[f"add-on {addon}"] = size_of(n for n in imported if f"{n}.".startswith(f"{ADDONS}.{addon}."))
    sizes["modules in circles"] = len(in_circles(imported))
    sizes["public names in several modules"] = sum(len(places) > 1 for places in public_names().values())
    return sizes


def main(arguments: list[str]) -> None:
    found = figures()
    if arguments == ["--json"]:
        print(json.dumps({name: one if isinstance(one, int) else asdict(one) for name, one in found.items()}, indent=2))
        return
    for name, one in found.items():
        shown = f"{one:>8,}" if isinstance(one, int) else f"{one.modules:>4} modules {one.lines:>8,} lines"
        print(f"{name:<32} {shown:>24}")
    if arguments == ["--names"]:
        for name, places in sorted(public_names().items()):
            if len(places) > 1:
                print(f"{name}: {', '.join(places)}")


if __name__ == "__main__":
    main(sys.argv[1:])
