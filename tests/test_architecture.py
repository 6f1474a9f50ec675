"""The order of the packages, and what no module may contain."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "transformer_cli"

# The translator, from its top. Each package may import from itself and from those after it.
ORDER = [
    "cli",
    "addons",
    "commands",
    "tasks",
    "api",
    "training",
    "evaluation",
    "decoding",
    "inference",
    "models",
    "text_io",
    "data",
    "config",
    "plugins",
    "languages",
    "registry",
    "errors",
]
# Modules at the top of the package, by the package that they belong to.
PART_OF = {
    "arguments": "config",
    "command": "config",
    "completion": "config",
    "multirun": "cli",
    "sweeps": "cli",
    "logs": "errors",
    "files": "errors",
    "system": "errors",
    "standard_streams": "errors",
    "environment": "errors",
    "extras": "errors",
    "__init__": "cli",
    "version": "errors",
}

# Constructs that have run other people's code, split lines in the wrong place, or hidden an error.
BANNED = re.compile(
    r"splitlines\(|codecs\.open|(?<!safetensors\.)torch\.load\((?!.*weights_only=True)|torch\.hub"
    r"|\b(import|from) (pickle|marshal|shelve|dill|cloudpickle)|pickle\.\w"
    r"|extractall\(|\.extract\(|instantiate\(|hydra\.utils|(?<![.\w])(exec|eval|compile|__import__)\(|shell=True|except:"
    r"|os\.system|os\.popen|np\.load\(|numpy\.load\(|allow_pickle"
    # Ours is a SafeLoader that refuses more.
    r"|yaml\.(unsafe|full)_load|yaml\.\w*Loader(?<!yaml\.SafeLoader)|yaml\.load\((?!file, _StrictLoader\))"
    # What other ranks send would be unpickled.
    r"|(broadcast|scatter|send|recv|all_gather|gather)_object|torch\.distributed\.rpc|torch\.package"
)

MODULES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    """`decoding.search.beam`; of a package's `__init__`, the package."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in MODULES}


def package_of(module: str) -> str:
    first = module.split(".")[0]
    return PART_OF.get(first, first)


def imported_modules(path: Path) -> set[str]:
    """Modules of ours that `path` imports, at its top or within a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path}: relative import"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "transformer_cli":
            module = ".".join(node.module.split(".")[1:])
            for alias in node.names:
                full = f"{module}.{alias.name}".removeprefix(".")
                found.add(full if full in NAMES else module or "__init__")
        elif isinstance(node, ast.Import):
            found |= {
                a.name.removeprefix("transformer_cli.") for a in node.names if a.name.startswith("transformer_cli.")
            }
    return found - {name_of(path)}


def test_imports_point_one_way() -> None:
    places = {package: place for place, package in enumerate(ORDER)}
    up = set()
    for path in MODULES:
        here = places[package_of(name_of(path))]
        up |= {(name_of(path), module) for module in imported_modules(path) if places[package_of(module)] < here}
    assert up == set()


def addon_of(module: str) -> str:
    first, _, rest = module.partition(".")
    return rest.partition(".")[0] if first == "addons" else ""


def needs_of(addon: str) -> tuple[str, ...]:
    """The other add-ons that an add-on declares, as `NEEDS = ("pages",)` in its `__init__`."""
    tree = ast.parse((PACKAGE / "addons" / addon / "__init__.py").read_text(encoding="utf-8"))
    declared = [
        node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NEEDS"
    ]
    return tuple(ast.literal_eval(declared[0])) if declared else ()


def test_an_addon_imports_only_those_that_it_declares() -> None:
    needed: dict[str, set[str]] = {addon_of(name): set() for name in NAMES if addon_of(name)}
    for path in MODULES:
        if addon := addon_of(name_of(path)):
            needed[addon] |= {addon_of(module) for module in imported_modules(path)} - {"", addon}
    assert {addon: sorted(others) for addon, others in needed.items()} == {
        addon: sorted(needs_of(addon)) for addon in needed
    }


def test_no_imports_go_round_in_a_circle() -> None:
    imports = {name_of(path): imported_modules(path) for path in MODULES}
    # Whatever imports nothing that is left cannot be part of a circle.
    while free := {name for name, imported in imports.items() if not imported & imports.keys()}:
        imports = {name: imported for name, imported in imports.items() if name not in free}
    assert imports == {}


# Packages are named for the files that lie in them, too.
PLAIN_MODULES = {name_of(path) for path in MODULES if path.name != "__init__.py"}


def hidden_imports(tree: ast.AST) -> set[str]:
    """What a text names, or `import_module` is given, as a module of ours: the rules above do not see it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = re.fullmatch(r"transformer_cli\.([\w.]+)(:\w+)?", node.value)
            found |= {node.value} if name and name[1] in PLAIN_MODULES else set()
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "import_module":
            given = ast.unparse(node.args[0])
            found |= {given} if "package" in given or "transformer_cli" in given else set()
    return found


def test_no_module_is_named_in_a_text_but_where_all_are_found() -> None:
    found = {name_of(path): hidden_imports(ast.parse(path.read_text(encoding="utf-8"))) for path in MODULES}
    assert {name: texts for name, texts in found.items() if texts}.keys() == {
        "registry",  # the commands, and the plugin module of each add-on
        # Programs that are measured, each in a process of its own.
        *("addons.benchmarks.decoding", "addons.benchmarks.startup", "addons.benchmarks.training"),
    }


@pytest.mark.parametrize(
    "line",
    [
        'import_module("transformer_cli.api")',
        'importlib.import_module(f"{__package__}.api")',
        'KINDS = {"tagger": "transformer_cli.api"}',
        'Command("train", "transformer_cli.api:train")',
    ],
)
def test_that_rule_finds_a_hidden_import(line: str) -> None:
    assert hidden_imports(ast.parse(line))


def test_that_rule_leaves_other_texts_and_modules() -> None:
    text = 'import_module("sacremoses")\nprint("transformer_cli/api.py")\nimport_module(name)'
    assert not hidden_imports(ast.parse(text))


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
        *(
            "torch.load(path, weights_only=True)",
            "safetensors.torch.load(content)",
            "model.eval()",
            "re.compile(pattern)",
            "yaml.load(file, _StrictLoader)",
        ),
        *("yaml.safe_load(text)", "class _StrictLoader(yaml.SafeLoader):", "dist.broadcast(tensor, 0)"),
    ],
)
def test_the_ban_leaves_what_is_safe(line: str) -> None:
    assert not BANNED.search(line)


def test_torch_is_imported_only_where_tensors_are() -> None:
    without = {"cli", "text_io", "config", "registry", "errors", "plugins"}
    for path in MODULES:
        if package_of(name_of(path)) in without:
            assert not re.search(r"^\s*(import|from) torch", path.read_text(encoding="utf-8"), re.MULTILINE), path


def _text_without_encoding(tree: ast.AST) -> list[int]:
    """Lines with a call that opens text in the encoding of the system, which is not UTF-8 on Windows."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        owner, _, name = function.rpartition(".")
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        modes = [ast.unparse(argument) for argument in node.args[:2]] + [keywords.get("mode", "")]
        is_binary = any(re.fullmatch(r"'[rwxa+]*b[rwxa+]*'|mode", mode) for mode in modes)  # a variable may be
        is_method = owner != "" and name in ("read_text", "write_text", "fdopen")
        is_file = is_method or function in ("open", "gzip.open")
        is_process = name in ("Popen", "run", "check_output") and {"text", "universal_newlines"} & keywords.keys()
        if ((is_file and not is_binary) or is_process) and "encoding" not in keywords:
            found.append(node.lineno)
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_text_is_opened_with_an_encoding(path: Path) -> None:
    assert _text_without_encoding(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("call", "is_found"),
    [
        *[(call, True) for call in ("open(path)", "path.read_text()", "os.fdopen(1, 'w')", "run(command, text=True)")],
        *[(call, False) for call in ("open(path, 'rb')", "path.read_text(encoding='utf-8')", "gzip.open(file, 'wb')")],
    ],
)
def test_that_rule_finds_what_it_is_for(call: str, is_found: bool) -> None:
    assert bool(_text_without_encoding(ast.parse(call))) is is_found
