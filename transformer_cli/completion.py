"""Shell completion: `tfm completion bash|zsh|fish` prints a script that calls `tfm --complete` for the next word."""

from collections.abc import Sequence

from transformer_cli.arguments import common_options
from transformer_cli.command import COMMANDS, command_in
from transformer_cli.errors import ConfigError

# bash splits words at "=" as well as at blanks, and replaces only the part after it.
_BASH = """_tfm() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT}
    local -a words; IFS=' ' read -ra words <<< "$line"
    [[ $line == *' ' ]] && words+=("")
    local word=${words[-1]}
    COMPREPLY=($(tfm --complete "${words[@]:1}" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    [[ $word == *=* ]] && COMPREPLY=("${COMPREPLY[@]#*=}")
}
complete -o default -F _tfm tfm"""

_ZSH = """#compdef tfm
_tfm() {
    local -a found
    found=("${(@f)$(tfm --complete "${words[@]:1:$((CURRENT-1))}" 2>/dev/null)}")
    compadd -S '' -- $found || _files
}
compdef _tfm tfm"""

_FISH = "complete -c tfm -a '(tfm --complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'"

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def answer(arguments: Sequence[str]) -> str:
    """The script for a shell, or the completions of the last word, one a line."""
    if arguments[0] == "--complete":
        return "\n".join(complete(arguments[1:]))
    shell = arguments[1] if len(arguments) > 1 else ""
    if shell not in _SCRIPTS:
        raise ConfigError(f"completion: no script for `{shell}`. Choose one of {', '.join(_SCRIPTS)}")
    return _SCRIPTS[shell]


def complete(words: Sequence[str]) -> list[str]:
    """The completions of the last of `words` (those after `tfm`)."""
    *before, word = words or [""]
    if not before:
        return [name for name in (*COMMANDS, "completion") if name.startswith(word) and " " not in name]
    command, before = command_in(before)
    if command not in COMMANDS:
        return [shell for shell in _SCRIPTS if command == "completion" and shell.startswith(word)]
    if word.startswith("-"):
        common = [names[-1] for names in common_options(COMMANDS[command])]
        flags = [*COMMANDS[command].flags, *common, "--help"]
        return [flag for flag in flags if flag.startswith(word)]
    longer = [] if before else [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{command} {word}")]
    return longer + (COMMANDS[command].complete(before, word) or complete_override(command, word))


def complete_override(command: str, word: str) -> list[str]:
    """The completions of an override of a command, or of its word."""
    from transformer_cli.config.keys import all_keys
    from transformer_cli.config.yaml_files import choices_of, groups_of

    groups = groups_of(command)
    group, equals, typed = word.partition("=")
    if equals:
        choices = choices_of(group) if group in groups else []
        return [f"{group}={choice}" for choice in choices if choice.startswith(typed)]
    folder = COMMANDS[command].word_choices
    names = choices_of(folder) if folder else []
    keys = [f"{key}=" for key in (*groups, *all_keys(COMMANDS[command].schema))]
    return [one for one in (*names, *keys) if one.startswith(word)]
