"""Each exporter that comes along is a module of its own, which registers it; what is no entry is refused."""

import pkgutil
from typing import Any

import pytest

from transformer_cli.addons.interop import exporters
from transformer_cli.addons.interop.registries import EXPORTERS, IMPORTERS
from transformer_cli.errors import ConfigError
from transformer_cli.registry import Registry, is_ours


def test_each_module_registers_the_exporter_of_its_name() -> None:
    modules = {found.name for found in pkgutil.iter_modules(exporters.__path__)}
    assert {name for name, entry in EXPORTERS.items() if is_ours(entry)} == modules


@pytest.mark.parametrize(
    ("registry", "says"), [(EXPORTERS, "an exporter is a subclass"), (IMPORTERS, "an importer is")]
)
@pytest.mark.parametrize("entry", [3, None, "marian"])
def test_what_is_no_entry_is_refused_with_what_is_wanted(registry: Registry[Any], says: str, entry: Any) -> None:
    with pytest.raises(ConfigError, match=says):
        registry.register("mine")(entry)
    assert "mine" not in registry.names()
