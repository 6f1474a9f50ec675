"""Name → builder, with "did you mean". A config can name entries of a registry, and nothing else."""

import difflib
from collections.abc import Callable, Iterable
from typing import Generic, NoReturn, TypeVar

from transformer_cli.errors import ConfigError

T = TypeVar("T")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """`; did you mean ...?` when a choice is near to `name`, else the empty string."""
    near = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""


class Registry(Generic[T]):
    """Builders by the names that a config may use."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorate a builder with the name that configs use for it. Raises ConfigError where the name is taken."""
        if name in self._entries:
            raise ConfigError(f"two entries called `{name}` in the registry of {self.kind} builders. Rename one")

        def add(builder: T) -> T:
            self._entries[name] = builder
            return builder

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            self._refuse(name)
        return self._entries[name]

    def check(self, name: str) -> None:
        """Raise ConfigError unless there is an entry called `name`."""
        self[name]

    def names(self) -> list[str]:
        return sorted(self._entries)

    def _refuse(self, name: str) -> NoReturn:
        choices = ", ".join(self.names())
        raise ConfigError(f"no {self.kind} called `{name}`{did_you_mean(name, self._entries)} (choices: {choices})")
