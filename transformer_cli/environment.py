"""What a config takes from the environment: filled in where a folder is opened, and never written down.

A config keeps `${oc.env:NAME}` as it was written, so no file made from it can hold the value; messages that name a
folder go through `concealed`.
"""

import os
import re
from pathlib import Path

from transformer_cli.errors import ConfigError, EnvironmentFault

ENVIRONMENT_VARIABLE = re.compile(
    r"\$\{oc\.env:(\w+)(?:,([^${}]*))?\}"
)  # with a value for when it is not set, after the comma
_SHORTEST = 4  # characters: what is shorter is no secret, and stands everywhere by chance

_written_as: dict[str, str] = {}  # value → what the config has in its place


def folder_named(text: str) -> Path:
    """The folder `text` of a config, with `~` and variables of the environment replaced.

    Raises ConfigError for a variable that is not set, EnvironmentFault where the home folder is unknown.
    """
    return Path(home_followed(ENVIRONMENT_VARIABLE.sub(_value, text)))


def user_cache() -> Path:
    """The folder of tfm in the user's cache (XDG). Raises EnvironmentFault without a home folder."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(cache) if Path(cache).is_absolute() else folder_named("~/.cache")) / "tfm"


def home_followed(text: str) -> str:
    """The path `text` with the home folder in place of a leading `~`. Raises EnvironmentFault where there is none."""
    found = os.path.expanduser(text)
    if found.startswith("~"):
        raise EnvironmentFault(
            f"{text}: there is no home folder for {Path(text).parts[0]}. Set HOME, or write ./{text} for a file of"
            " that name"
        )
    return found


def _value(match: re.Match[str]) -> str:
    name, default = match.groups()
    value = os.environ.get(name) or default
    if not value:
        raise ConfigError(f"{match[0]}: {name} is not set in the environment. Set it, or write the folder itself")
    for spelling in (value.rstrip("/"), str(Path(value))):  # a path drops doubled slashes
        if len(spelling) >= _SHORTEST:
            _written_as[spelling] = match[0]
    return value


def concealed(text: str) -> str:
    """`text` with every value from the environment replaced by what the config has in its place."""
    for value in sorted(_written_as, key=len, reverse=True):
        text = text.replace(value, _written_as[value])
    return text
