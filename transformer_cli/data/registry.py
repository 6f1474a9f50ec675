"""The registry of corpus formats. Nothing slow is imported to register one."""

from collections.abc import Callable
from typing import Any, TypeAlias

from transformer_cli.config.data import DataConfig
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, is_ours, place_of

# A subclass of `data.readers.base.Reader`; of ours also a function that imports one and makes it.
ReaderOf: TypeAlias = Callable[[DataConfig], Any]


def _adopted(name: str, entry: Any) -> ReaderOf:
    if is_ours(entry) or (isinstance(entry, type) and hasattr(entry, "pairs")):
        made: ReaderOf = entry
        return made
    raise ConfigError(f"{place_of(entry)}: a corpus reader is a subclass of Reader. Correct it")


READERS: Registry[ReaderOf] = Registry("corpus reader", adopt=_adopted, options_key="data.options")


def _adopted_format(name: str, entry: Any) -> Any:
    if hasattr(entry, "table") and hasattr(entry, "recognises"):
        return entry
    raise ConfigError(f"{place_of(entry)}: a file format is an object of a subclass of FileFormat. Correct it")


# Objects of subclasses of `data.formats.base.FileFormat`.
FORMATS: Registry[Any] = Registry("file format", adopt=_adopted_format)
