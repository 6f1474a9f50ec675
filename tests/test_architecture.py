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
    "benchmarks",
    "pictures",
    "training",
    "evaluation",
    "export",
    "decoding",
    "models",
    "data",
    "config",
    "schema",
    "registry",
    "errors",
]
# Beside the order: `completion`, `multirun` and `sweeps` belong to cli, `logs` to nobody.
ROOM = {
    "completion": "cli",
    "multirun": "cli",
    "sweeps": "cli",
    "logs": "errors",
    "files": "errors",
    "standard_streams": "errors",
    "environment": "errors",
    "extras": "errors",
    "__init__": "errors",
}

# Constructs that have run other people's code, split lines in the wrong place, or hidden an error.
BANNED = re.compile(
    r"splitlines\(|codecs\.open|(?<!safetensors\.)torch\.load\(|torch\.hub"
    r"|\b(import|from) (pickle|marshal|shelve|dill|cloudpickle)|pickle\.\w"
    r"|extractall\(|\.extract\(|instantiate\(|hydra\.utils|(?<![.\w])(exec|eval|compile|__import__)\(|shell=True|except:"
    r"|os\.system|os\.popen|np\.load\(|numpy\.load\(|allow_pickle"
    # Ours is a SafeLoader that refuses more.
    r"|yaml\.(unsafe|full)_load|yaml\.\w*Loader(?<!yaml\.SafeLoader)|yaml\.load\((?!file, _StrictLoader\))"
    # What other ranks send would be unpickled.
    r"|(broadcast|scatter|send|recv|all_gather|gather)_object|torch\.distributed\.rpc|torch\.package"
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


@pytest.mark.parametrize(
    "line",
    [
        *(
            "import pickle",
            "from pickle import loads",
            "torch.load(path)",
            "eval(text)",
            "exec(code)",
            "x = compile(a, b, c)",
        ),
        *("hydra.utils.instantiate(config)", "instantiate(config)", "yaml.load(file, yaml.Loader)", "yaml.load(file)"),
        *("yaml.unsafe_load(file)", "class L(yaml.FullLoader):", "tar.extractall(folder)", "archive.extract(name)"),
        *(
            "subprocess.run(a, shell=True)",
            "text.splitlines()",
            "codecs.open(path)",
            "np.load(path, allow_pickle=True)",
        ),
        *("dist.broadcast_object_list(things)", "dist.all_gather_object(out, thing)", "os.system(line)", "except:"),
        *("dist.send_object_list(things)", "dist.scatter_object_list(out, things)", "dist.gather_object(thing)"),
    ],
)
def test_the_ban_sees_each_of_them(line: str) -> None:
    assert BANNED.search(line)


@pytest.mark.parametrize(
    "line",
    [
        *("safetensors.torch.load(content)", "model.eval()", "re.compile(pattern)", "yaml.load(file, _StrictLoader)"),
        *("yaml.safe_load(text)", "class _StrictLoader(yaml.SafeLoader):", "dist.broadcast(tensor, 0)"),
    ],
)
def test_the_ban_leaves_what_is_safe(line: str) -> None:
    assert not BANNED.search(line)


def test_torch_is_imported_only_where_tensors_are() -> None:
    without = ["cli", "completion", "config", "schema", "registry", "errors", "logs", "multirun"]
    for name in without:
        assert not re.search(
            r"^\s*(import|from) torch", (PACKAGE / f"{name}.py").read_text(encoding="utf-8"), re.MULTILINE
        )
