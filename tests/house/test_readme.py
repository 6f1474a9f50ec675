"""The commands, keys, links and files that README.md, CONTRIBUTING.md, docs/ and benchmarks/ name exist."""

import ast
import fnmatch
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, slow
from tests.support.docs_code import write_files_of
from tests.support.each import each
from transformer_cli.arguments import flags_of, parser_of
from transformer_cli.command import COMMANDS, command_in
from transformer_cli.config.compose import load_config
from transformer_cli.config.fields import key_infos
from transformer_cli.config.keys import all_keys
from transformer_cli.config.overrides import check_overrides
from transformer_cli.config.train import TrainConfig
from transformer_cli.config.yaml_files import choices_of
from transformer_cli.registry import Registry

PACKAGE = ROOT / "transformer_cli"
FunctionOrClass = ast.FunctionDef | ast.ClassDef
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "benchmarks").glob("*.md")), *DOCS]
FIRST = ("README", "training", "translating", "data", "extending")  # pages whose commands scripts/test composes
BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
KEY = re.compile(
    r"((?:train|data|decode|model|schedule|optimizer|init|lora)\.[a-z]\w*(?:\.\w+)*)(?<!safetensors)(?:=.*)?"
)
FILE = re.compile(r"(?:tests|scripts|benchmarks|configs|docs)/[\w./-]+")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


README = text_of(ROOT / "README.md")


def without_blocks(text: str) -> str:
    return BLOCK.sub("", text)


# A command line up to its comment, redirection or pipe; what is in quotes belongs to it.
WRITTEN = re.compile(r"""(?:'[^']*'|"[^"]*"|(?<!\s)#|[^'"#<>|])*""")


def printed_commands(pages: Iterable[Path]) -> list[str]:
    """Every `tfm ...` in a code block or a row of a table, also under torchrun, without comments and redirections."""
    found = []
    for page in pages:
        text = text_of(page)
        lines = [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").split("\n")]
        if page.name == "README.md":
            rows = re.findall(r"^\|.*\|$", without_blocks(text), re.MULTILINE)
            lines += [code for row in rows for code in INLINE.findall(row) if "…" not in code]
        for line in lines:
            words = WRITTEN.match(re.sub(r"^\$ |^.*--no-python ", "", line))[0].strip()  # type: ignore[index]
            if words.startswith("tfm "):
                found.append(words)
    return sorted(set(found))


def commands_of_pages() -> list[Any]:
    """The commands of the first pages; with --all, of every page. test_extending runs those with plugins."""
    first = printed_commands([page for page in PAGES if page.stem in FIRST])
    lines = [line for line in printed_commands(PAGES) if "--plugin" not in line]
    return [line if line in first else slow(line) for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with every file that a page shows."""
    made = tmp_path_factory.mktemp("files")
    for page in PAGES:
        write_files_of(page, made)
    (made / "configs").symlink_to(ROOT / "configs")
    return made


@pytest.mark.parametrize("line", commands_of_pages())
def test_every_printed_command_line_composes(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    command, arguments = command_in(shlex.split(line)[1:])
    if command == "completion":
        return
    if command not in COMMANDS:  # of a plugin that a page shows: tests/plugins/test_extending.py runs it
        assert "--plugin" in arguments
        return
    parsed = parser_of(command).parse_intermixed_args(arguments)
    flags = flags_of(command, COMMANDS[command], parsed)
    if getattr(parsed, "multirun", False):
        check_overrides(command, parsed.overrides)
    else:
        user_dir = Path(parsed.config_dir) if parsed.config_dir else None
        load_config(command, parsed.overrides, flags=flags, user_dir=user_dir)


def test_brackets_and_signs_of_a_shell_are_in_quotes_in_every_printed_command_line() -> None:
    """zsh, the shell of macOS, refuses key=[a,b] as a pattern that no file matches."""
    quoted = re.compile(r"'[^']*'|\"[^\"]*\"")
    lines = printed_commands(PAGES)
    assert [line for line in lines if re.search(r"=\S*[\[\]{}*?~]", quoted.sub("", line))] == []


def test_the_commands_that_every_user_needs_are_printed() -> None:
    printed = printed_commands(PAGES)
    assert "tfm train model=base data=wmt14_en_de" in printed
    assert any(line.startswith("tfm translate --beam 4") for line in printed)
    assert any(line.startswith("tfm evaluate") for line in printed)


@pytest.mark.parametrize(
    "group", ["model", "norm", "data", "schedule", "optimizer", "decode", "recipe", "fine_tuning", "experiment"]
)
def test_the_table_of_groups_lists_every_choice(group: str) -> None:
    (row,) = re.findall(rf"^\| `{group}` \| (.*) \|$", text_of(ROOT / "docs" / "training.md"), re.MULTILINE)
    listed = [choice.split(" (")[0] for choice in row.split(", ")]
    choices = choices_of(group)
    assert sorted(name for one in listed for name in fnmatch.filter(choices, one) or [one]) == choices


@each("page", PAGES)
def test_every_key_that_a_page_names_exists(page: Path) -> None:
    options = {
        f"{registry.options_key}.{name}"
        for registry in Registry.with_options
        for entry in registry.all_options()
        for name in key_infos(entry)
    }
    keys = {*all_keys(TrainConfig), *options}
    named = [match[1] for code in INLINE.findall(without_blocks(text_of(page))) if (match := KEY.fullmatch(code))]
    assert [key for key in named if key not in keys and not key.endswith("_")] == []


@each("page", PAGES)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = [match[0] for code in INLINE.findall(without_blocks(text_of(page))) if (match := FILE.match(code))]
    assert [name for name in named if "NAME" not in name and not (ROOT / name).exists()] == []


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each("page", PAGES)
def test_every_relative_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    for link in re.findall(r"\]\(([^()\s]+)\)", without_blocks(text_of(page))):
        if link.startswith(("https://", "http://")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.is_file(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_every_function_that_a_page_links_to_is_in_its_file(page: Path) -> None:
    """Links that are called `name` or `Class.name` lead to the file that defines it."""
    for name, file in re.findall(r"\[`([\w.]+)`\]\((\.\./[\w/.]+\.py)\)", text_of(page)):
        defined = ast.parse(text_of(page.parent / file)).body
        for part in name.split("."):
            found = [node for node in defined if isinstance(node, FunctionOrClass) and node.name == part]
            assert found, f"{name}: not in {file}"
            defined = found[0].body


def headings_of(page: Path) -> dict[str, str]:
    """The sections of a page that have a name of their own: `tags` of "Tags: several languages" → its anchor."""
    found = re.findall(r"^##+ (.*)$", without_blocks(text_of(page)), re.MULTILINE)
    names = {re.split(r"[:,(]", heading)[0].strip().lower(): heading for heading in found}
    return {name: re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for name, heading in names.items()}


@each("page", PAGES)
def test_a_link_that_is_called_as_a_section_leads_to_one_of_that_name(page: Path) -> None:
    """Names of pages, and names that mean many things, are left out."""
    titles = {target.stem.replace("_", " ") for target in PAGES}
    sections = {target.resolve(): headings_of(target) for target in DOCS if target.stem != "configuration"}
    named = {name for of_page in sections.values() for name in of_page} - titles - {"translation", "measured"}
    for text, link in re.findall(r"\[([^\]]+)\]\(([^()\s]+)\)", without_blocks(text_of(page))):
        if (name := text.strip("`").lower()) in named:
            file, _, anchor = link.partition("#")
            target = (page.parent / file if file else page).resolve()
            assert sections.get(target, {}).get(name) == anchor, f"[{text}]({link})"


def test_the_index_of_docs_lists_every_page() -> None:
    index = text_of(ROOT / "docs" / "README.md")
    listed = re.findall(r"^\| \[[^\]]+\]\((\w+\.md)\) \|", index, re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in DOCS if page.name != "README.md")


@each("page", [page for page in DOCS if page.name != "README.md"])
def test_a_page_of_docs_begins_with_the_commands_that_it_is_about(page: Path) -> None:
    assert re.match(r"# [^\n]+\n\n(<!--[^>]*-->\n)*```\w*\n(tfm |scripts/|torchrun |pip |from |import )", text_of(page))


def test_the_readme_is_short() -> None:
    assert len(README.split("\n")) <= 131  # of which the last is empty
    paragraphs = [part for part in without_blocks(README).split("\n\n") if not part.lstrip().startswith(("|", "#"))]
    assert [paragraph for paragraph in paragraphs if len(paragraph.strip().split("\n")) > 4] == []


def test_the_readme_shows_the_attention_page() -> None:
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert (ROOT / picture).read_bytes().startswith(b"\x89PNG")


def test_every_folder_in_the_layout_exists() -> None:
    for page in ("README.md", "CONTRIBUTING.md"):
        for row in re.findall(r"^\| `[\w./]+`.*\|$", text_of(ROOT / page), re.MULTILINE):
            for name in re.findall(r"`([\w/]+/)`", row):
                assert any(
                    (folder / name).is_dir() for folder in (ROOT, PACKAGE, PACKAGE / "decoding", PACKAGE / "addons")
                ), name
