"""Reports on what cleaning did to a corpus: add-ons and plugins register a writer for an ending of files."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, check_callable, guarded
from transformer_cli.text_io import check_output, open_output

if TYPE_CHECKING:
    from transformer_cli.config.data import DataConfig
    from transformer_cli.data.prepare import Prepared

Writer = Callable[["Prepared", "DataConfig"], str]


def _adopted(name: str, entry: Any) -> Writer:
    check_callable(entry, what="a cleaning report", arguments="prepared, config")
    return guarded(entry, _fault)


def _fault(page: Any, prepared: "Prepared", config: "DataConfig") -> str | None:
    return None if isinstance(page, str) else f"{page!r:.80}, not the text of a report"


CLEANING_REPORTS: Registry[Writer] = Registry("cleaning report", adopt=_adopted)


def check_report(name: str, *, overwrite: bool) -> None:
    """Raise ConfigError for a file that has no known ending or exists, EnvironmentFault for one that cannot be made."""
    if _ending(name) not in CLEANING_REPORTS:
        endings = " or ".join(f".{ending}" for ending in CLEANING_REPORTS.names())
        raise ConfigError(f"{name}: reports are not written in such files. Choose a name that ends in {endings}")
    check_output(Path(name), "--report", {}, overwrite=overwrite)


def write_report(name: str, prepared: "Prepared", config: "DataConfig", *, overwrite: bool) -> None:
    content = CLEANING_REPORTS[_ending(name)](prepared, config)
    with open_output(name, replace=overwrite) as sink:
        sink.write(content.encode())


def _ending(name: str) -> str:
    return Path(name).suffix.removeprefix(".").lower()
