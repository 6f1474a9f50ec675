"""`tfm config`."""

from collections.abc import Sequence

from transformer_cli.command import Command, register
from transformer_cli.commands.config.keys import ConfigAction, ConfigConfig


def _complete(before: Sequence[str], word: str) -> list[str]:
    """Why or diff; after why the keys of `tfm train`, and behind a key the words of its command line."""
    from transformer_cli.completion import complete_override

    if not before:
        return [action.name for action in ConfigAction if action.name.startswith(word)]
    found = complete_override("train", word)
    return [key.removesuffix("=") for key in found] if before == ["why"] else found


def _run(config: ConfigConfig) -> None:
    from transformer_cli.commands.config.run import run

    run(config)


register(
    Command(
        "config",
        help="say which file, group, flag or default sets a key, or in which keys two configs differ",
        example="tfm config why model.d_model experiment=multi30k model=big",
        schema=ConfigConfig,
        run=_run,
        complete=_complete,
        takes_command_lines=True,
        needs_word="Write `why KEY`, or `diff A B`",
    )
)
