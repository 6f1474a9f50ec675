"""The order of the packages, and what no module may contain."""

import ast
import re
from functools import cache
from pathlib import Path

from scripts import house
from scripts.house import in_circles, modules, reached_from, size_of
from tests.conftest import ROOT
from tests.support.each import each

PACKAGE = ROOT / "transformer_cli"

# The translator, from its top. Each package may import from itself and from those after it.
ORDER = [
    *("cli", "addons", "commands", "tasks", "api", "training", "evaluation", "decoding", "inference", "models"),
    *("text_io", "data", "config", "plugins", "languages", "registry", "errors"),
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
    "tables": "errors",
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

MODULES = modules()  # name → file


@cache  # not when tests are collected: it takes seconds
def imports() -> dict[str, set[str]]:
    return house.imports()


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


def package_of(module: str) -> str:
    first = module.split(".")[0]
    return PART_OF.get(first, first)


def test_imports_point_one_way() -> None:
    places = {package: place for place, package in enumerate(ORDER)}
    up = {
        (name, module)
        for name, imported in imports().items()
        for module in imported
        if places[package_of(module)] < places[package_of(name)]
    }
    assert up == set()


def test_few_public_names_are_defined_in_several_modules() -> None:
    """A name means one thing; `scripts/house --names` prints those of several modules, as `run` of each command."""
    several = {name: places for name, places in house.public_names().items() if len(places) > 1}
    assert "run" in several
    assert len(several) <= 40, several


def test_what_a_command_reaches_stays_small() -> None:
    """The translator can be held in the head: `scripts/house` prints the sizes."""
    sizes = {command: size_of(reached_from(f"commands.{command}", imports())) for command in ("translate", "train")}
    assert sizes["translate"].modules <= 132
    assert sizes["translate"].lines <= 20_860
    assert sizes["train"].lines <= 39_050  # of which 5,000 read and clean text, and 600 are kernels and graphs of a GPU


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
    needed: dict[str, set[str]] = {addon_of(name): set() for name in MODULES if addon_of(name)}
    for name, imported in imports().items():
        if addon := addon_of(name):
            needed[addon] |= {addon_of(module) for module in imported} - {"", addon}
    assert {addon: sorted(others) for addon, others in needed.items()} == {
        addon: sorted(needs_of(addon)) for addon in needed
    }


def test_no_imports_go_round_in_a_circle() -> None:
    assert in_circles(imports()) == set()


# Packages are named for the files that lie in them, too.
PLAIN_MODULES = {name for name, path in MODULES.items() if path.name != "__init__.py"}


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def hidden_imports(tree: ast.AST) -> set[str]:
    """What a text names, or `import_module` is given, as a module of ours: the rules above do not see it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = re.fullmatch(r"transformer_cli\.([\w.]+)(:\w+)?", node.value)
            found |= {node.value} if name and name[1] in PLAIN_MODULES else set()
        elif isinstance(node, ast.Call) and called(node) == "import_module":
            given = ast.unparse(node.args[0])
            found |= {given} if "package" in given or "transformer_cli" in given else set()
    return found


def test_no_module_is_named_in_a_text_but_where_all_are_found() -> None:
    found = {name: hidden_imports(tree_of(path)) for name, path in MODULES.items()}
    assert {name: texts for name, texts in found.items() if texts}.keys() == {
        "registry",  # the commands, and the plugin module of each add-on
        # Programs that are measured, each in a process of its own.
        *("addons.benchmarks.decoding", "addons.benchmarks.startup", "addons.benchmarks.training"),
    }


@each(
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


def test_banned_constructs_are_absent() -> None:
    for path in MODULES.values():
        lines = path.read_text(encoding="utf-8").split("\n")
        assert [line for line in lines if BANNED.search(line)] == [], path


@each(
    "line",
    [
        *(
            *("import pickle", "from pickle import loads", "torch.load(path)", "eval(text)", "exec(code)"),
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


@each(
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
    for name, path in MODULES.items():
        if package_of(name) in without:
            assert not re.search(r"^\s*(import|from) torch", path.read_text(encoding="utf-8"), re.MULTILINE), path


OPENERS = {"open", "read_text", "write_text", "fdopen", "Popen", "run", "check_output"}


def _text_without_encoding(tree: ast.AST) -> list[int]:
    """Lines with a call that opens text in the encoding of the system, which is not UTF-8 on Windows."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or called(node) not in OPENERS:
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


def test_text_is_opened_with_an_encoding() -> None:
    for path in MODULES.values():
        assert _text_without_encoding(tree_of(path)) == [], path


@each(
    "call, is_found",
    [
        *[(call, True) for call in ("open(path)", "path.read_text()", "os.fdopen(1, 'w')", "run(command, text=True)")],
        *[(call, False) for call in ("open(path, 'rb')", "path.read_text(encoding='utf-8')", "gzip.open(file, 'wb')")],
    ],
)
def test_that_rule_finds_what_it_is_for(call: str, is_found: bool) -> None:
    assert bool(_text_without_encoding(ast.parse(call))) is is_found
