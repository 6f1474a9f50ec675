"""What add-ons know of models: addresses, those of other programs, what a path says of itself, and model cards."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from transformer_cli.registry import Registry

# A foreign model → the model file of ours that it was converted into; None for what is of no format of the entry's.
FOREIGN_MODELS: Registry[Callable[[Path], Path | None]] = Registry("foreign model")

Row = tuple[str, str]  # name and value


@dataclass(frozen=True)
class PublishedModel:
    """The files of a model as its makers published them, and what the card of a model made of it says of them."""

    folder: Path
    provenance: dict[str, Any]


class Address(Protocol):
    """A place elsewhere, whose models are named as `SCHEME:NAME` in place of a path."""

    def model(self, name: str) -> Path:
        """The model file, or the folder of an export; fetched, and imported, where it is not kept. Raises TfmError."""

    def published(self, name: str, format_name: str | None) -> AbstractContextManager[PublishedModel]:
        """The original files, fetched where they are not at hand. Raises TfmError."""


ADDRESSES: Registry[Address] = Registry("scheme of addresses")  # by scheme


@dataclass(frozen=True)
class Described:
    """What a path says of itself. `rows` come before those of every model."""

    facts: dict[str, Any]
    rows: Sequence[Row] = ()


class Card(Protocol):
    """A model card: what a person who gets a model wants to know of it."""

    def facts_beside(self, model: Path, sha256: str) -> dict[str, Any]:
        """What other files in the folder of a model file say of just this model."""

    def read_scores(self, file: Path) -> dict[str, Any]:
        """What `tfm evaluate --json` has printed, as the fact `test`. Raises ConfigError for anything else."""

    def write(self, facts: Mapping[str, Any], *, files: Mapping[str, str] | None = None) -> str:
        """The card; raises one of MALFORMED for facts of a damaged or forged file. `files` have their SHA-256."""


# What is at a path that holds no model file; None for what is of another kind. Raises CheckpointError.
DESCRIBERS: Registry[Callable[[Path], Described | None]] = Registry("describer")
CARDS: Registry[Callable[[], Card]] = Registry("model card")
