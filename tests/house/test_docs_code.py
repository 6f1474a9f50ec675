"""Every code block of README.md, CONTRIBUTING.md and docs/ does what its page says: none is known by its page's name.

Python runs in the order of its page, in one program; YAML, JSON and shell are read. `test_readme.py` composes
the commands of tfm.
"""

import ast
import configparser
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.addons.classification import toy_classifier
from tests.addons.tagging import toy_tagger
from tests.conftest import ROOT
from tests.house.test_readme import printed_commands
from tests.support.docs_code import BLOCKS, PAGES, Block, blocks_of, write_files_of
from tests.support.each import each
from tests.support.forked import run
from tests.toy.run import model_file, packed
from tests.toy.run import sentences as letters
from tests.toy.translator import sentences
from transformer_cli.models.file import write_model

# First lines of the blocks that no test runs, each with its reason.
NOT_RUN = {"import argostranslate.package, argostranslate.translate": "installs a package for all programs of the user"}
PYTHON = re.compile(r"(import |from [\w.]+ import |@\w|def |class |async def )", re.MULTILINE)


def of(language: str) -> list[Any]:
    """The blocks of a language."""
    return [pytest.param(block, id=str(block)) for block in BLOCKS if block.language == language]


# ---- Which blocks there are


def read_ini(text: str) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read_string(text)
    assert parser.sections()


def read_shell(text: str) -> None:
    subprocess.run(["bash", "-n"], input=text.encode(), check=True)


def read_json(text: str) -> None:
    for line in text.strip().split("\n"):
        json.loads(line)


def read_yaml(text: str) -> None:
    assert isinstance(yaml.safe_load(text), dict)


READ: dict[str, Callable[[str], None]] = {
    "ini": read_ini,
    "bash": read_shell,
    "sh": read_shell,
    "json": read_json,
    "yaml": read_yaml,
}
# Languages that no test reads, with the reason.
NOT_READ = {
    "bibtex": "a citation, which no program here reads",
    "nginx": "the server's own syntax, which only it reads",
}


@pytest.mark.parametrize("block", [pytest.param(one, id=str(one)) for one in BLOCKS if one.language in READ])
def test_a_block_can_be_read_in_its_language(block: Block) -> None:
    READ[block.language](block.text)


def test_every_language_is_run_or_read_or_has_a_reason() -> None:
    assert {block.language for block in BLOCKS} - {"", "python", *READ, *NOT_READ} == set()
    assert NOT_READ.keys() <= {block.language for block in BLOCKS}
    assert NOT_RUN.keys() <= {block.text.partition("\n")[0] for block in BLOCKS}


def test_a_block_without_a_language_is_no_python() -> None:
    assert [str(block) for block in BLOCKS if not block.language and PYTHON.match(block.text)] == []


def test_a_script_without_a_language_can_be_read() -> None:
    scripts = [block for block in BLOCKS if block.text.startswith("#!/bin/bash")]
    assert scripts
    for block in scripts:
        read_shell(block.text)


# ---- Python


def files_for_python(folder: Path) -> None:
    """A model over letters, a classifier and a tagger, and text to train on."""
    (folder / "model.safetensors").write_bytes(packed(model_file()))
    write_model(folder / "classifier.safetensors", toy_classifier.random_model())
    write_model(folder / "tagger.safetensors", toy_tagger.random_model())
    for name in ("text.en", "text.fr"):
        (folder / name).write_text("".join(f"{line}\n" for line in sentences(200, seed=1)), encoding="utf-8")


def vectors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(packed(model_file()))
    command = [
        *("embed", "--checkpoint", "model.safetensors", "--tokens", "pieces", "--output", "lines.npz", "device=cpu"),
    ]
    ran = run(command, folder, stdin="".join(f"{line}\n" for line in letters(3, seed=1)).encode())
    assert ran.code == 0, ran.err.decode()


def exports(folder: Path) -> None:
    pytest.importorskip("ctranslate2")
    pytest.importorskip("transformers")
    (folder / "model.safetensors").write_bytes(packed(model_file()))
    for form, name in (("ctranslate2", "model.ct2"), ("huggingface", "model.hf")):
        ran = run(["export", form, "--checkpoint", "model.safetensors", "--output", name], folder)
        assert ran.code == 0, ran.err.decode()


# What the Python of a page finds in its folder, and what it prints; a page that needs nothing is not named.
NEEDS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "python.md": (files_for_python, ["BLEU 100", "nowhere: ", "'middle': 0."]),
    "tutorials.md": (lambda folder: None, ["[112.0, 96.0]", "[0.88, 0.12]"]),
    "parsing.md": (lambda folder: None, ["(VP (XX slept)) (. .)) False", "(S (NP XX XX )NP (VP XX )VP . )S"]),
    "embedding.md": (vectors, ["</s>", "array("]),
    "exporting.md": (exports, ["['"]),
}
OVER_HTTP = {"apis.md"}  # its Python is a client
LONG = {"exporting.md"}


def pages_with_python() -> list[Any]:
    pages = [page for page in PAGES if any(block.language == "python" for block in blocks_of(page))]
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in LONG else [])
        for page in pages
        if page.name not in OVER_HTTP
    ]


def python_of(page: Path) -> str:
    """The blocks of Python of a page, in order; what is a file of its own is imported, as `--plugin` does."""
    program = []
    for block in blocks_of(page):
        if block.language == "python" and block.text.partition("\n")[0] not in NOT_RUN:
            program.append(f"import {Path(block.file).stem}" if block.file else block.text)
    return "\n".join(program)


@pytest.mark.parametrize("page", pages_with_python())
def test_the_python_of_a_page_runs_in_its_order(page: Path, tmp_path: Path) -> None:
    prepare, says = NEEDS.get(page.name, (lambda folder: None, []))
    write_files_of(page, tmp_path)
    prepare(tmp_path)
    ran = run([], tmp_path, program=f"import sys; sys.path.insert(0, '')\n{python_of(page)}")
    assert ran.code == 0, ran.err.decode()
    assert [text for text in says if text not in ran.out.decode()] == []


def test_the_clients_of_the_page_about_apis_run(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("deepl")
    pytest.importorskip("libretranslatepy")
    from tests.addons.serving.toy_server import StandIn, running, stand_in_server

    (page,) = [page for page in PAGES if page.name in OVER_HTTP]
    with running(stand_in_server(StandIn("en", "de"))) as server:
        program = python_of(page).replace("http://127.0.0.1:8080", server.url)
        assert server.url in program
        exec(program, {})
    # The stand-in writes each word in capitals, and terms as they are.
    assert capsys.readouterr().out == "TWO DOGS IN THE SNOW.\n<p>TWO <b>DOGS</b></p>\nTWO Dackel.\n"


# ---- What programs print


def sentences_of_the_package() -> set[str]:
    """The parts of all texts in the package, between what is put into them."""
    found: set[str] = set()
    for file in (ROOT / "transformer_cli").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.update(re.split(r"%[sd]", node.value))
    return found


def test_the_messages_that_pages_quote_are_those_of_the_package() -> None:
    lines = [line for block in BLOCKS for line in block.text.split("\n")]
    messages = [found[1] for line in lines if (found := re.match(r"tfm: (?:warning|error): (.*)", line))]
    assert len(messages) > 4
    sentences = sentences_of_the_package()
    for message in messages:
        without_texts = re.sub(r"'.*?'|…", "", message)
        for words in re.findall(r"[a-zA-Z]+(?: [a-zA-Z]+){2,}", without_texts):
            # Some are put together, as "1 line" and "with …": all but two of the words stand together.
            each = words.split(" ")
            n = max(3, len(each) - 2)
            kept = {" ".join(each[start : start + n]) for start in range(len(each) - n + 1)}
            assert any(one in sentence for sentence in sentences for one in kept), f"{words!r} of {message!r}"


ORIGINS = [block for block in BLOCKS if not block.language and re.match(r"[\w.]+=\S+\n {4}", block.text)]


@pytest.mark.parametrize("block", ORIGINS, ids=str)
def test_where_a_value_is_from_is_quoted_as_it_is_printed(block: Block) -> None:
    key = block.text.partition("=")[0]
    (command,) = [line for line in printed_commands([block.page]) if line.startswith(f"tfm config why {key} ")]
    assert run(shlex.split(command)[1:], ROOT).out.decode() == block.text


def test_there_is_a_page_that_quotes_where_a_value_is_from() -> None:
    assert ORIGINS


@each("page", PAGES)
def test_a_page_tells_to_install_from_the_checkout_and_extras_that_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"transformer[-_]cli\[", text), "no index has the package"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"'\.\[(\w+)\]'", text)) <= extras.keys()


# ---- Commands that need no model


def cheap_commands() -> list[Any]:
    """The printed commands that answer from the configs alone; the first of each page runs in scripts/test."""
    found = []
    for page in PAGES:
        lines = [line for line in printed_commands([page]) if re.search(r"^tfm config |--cfg\b|--keys\b", line)]
        for n, line in enumerate(lines):
            found.append(pytest.param(page, line, id=line, marks=[pytest.mark.slow] if n else []))
    return found


@pytest.mark.parametrize(("page", "line"), cheap_commands())
def test_a_command_that_needs_no_model_prints_its_answer(page: Path, line: str, tmp_path: Path) -> None:
    is_at_home = not write_files_of(page, tmp_path)
    ran = run(shlex.split(line)[1:], ROOT if is_at_home else tmp_path)
    assert ran.code == 0, ran.err.decode()
    assert ran.out
