"""The README's commands, keys and files exist."""

import fnmatch
import re
import shlex

import pytest

from tests.conftest import ROOT
from transformer_cli.cli import COMMANDS, _parser
from transformer_cli.config.compose import load_config
from transformer_cli.config.overrides import check_overrides
from transformer_cli.config.yaml_files import choices_of

README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "benchmarks").glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]


def printed_commands() -> list[str]:
    """Every `tfm ...` in a code block of a page, also under torchrun, without comments, pipes and redirections."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").split("\n"):
                words = re.split(r"\s#|[<>|]", re.sub(r"^\$ |^.*--no-python ", "", line))[0].strip()
                if words.startswith("tfm "):
                    found.append(words)
    return sorted(set(found))


@pytest.mark.parametrize("line", printed_commands())
def test_every_printed_command_line_composes(line: str) -> None:
    _, command, *arguments = shlex.split(line)
    if command == "completion":
        return
    parsed = _parser(command).parse_intermixed_args(arguments)
    if getattr(parsed, "multirun", False):
        check_overrides(command, parsed.overrides)
    else:
        flags = {
            flag.key: value
            for option, flag in COMMANDS[command].flags.items()
            if (value := getattr(parsed, option.strip("-").replace("-", "_"))) is not None
        }
        argument = COMMANDS[command].argument
        if argument and (bare := [word for word in parsed.overrides if "=" not in word]):
            flags[argument.key] = bare[0]
            parsed.overrides.remove(bare[0])
        load_config(command, parsed.overrides, flags=flags)


def test_the_commands_that_the_user_wrote_are_printed() -> None:
    printed = printed_commands()
    assert "tfm train model=base data=wmt14_en_de" in printed
    assert any(line.startswith("tfm translate --beam 4") for line in printed)
    assert any(line.startswith("tfm evaluate") for line in printed)


@pytest.mark.parametrize("group", ["model", "norm", "data", "schedule", "optimizer", "decode", "recipe", "experiment"])
def test_the_table_of_groups_lists_every_choice(group: str) -> None:
    (row,) = re.findall(rf"^\| `{group}` \| (.*) \|$", README, re.MULTILINE)
    listed = [choice.split(" (")[0] for choice in row.split(", ")]
    choices = choices_of(group)
    assert sorted(name for one in listed for name in fnmatch.filter(choices, one) or [one]) == choices


def test_every_folder_that_the_readme_names_exists() -> None:
    for folder in re.findall(r"^\| `([\w/]+/)` \|", README, re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder
