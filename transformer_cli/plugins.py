"""Plugins: a user's own modules, imported by name, which add entries to the registries.

A plugin is code, so it is imported only where the user's command line or config names it. What a model file names is
never imported.
"""

import importlib
import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path

from transformer_cli.errors import ConfigError, quoted

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

_loaded: list[str] = []


def load_plugins(names: Iterable[str]) -> None:
    """Import each module, from Python's path or the working folder. Raises ConfigError naming it."""
    for name in names:
        if name not in _loaded:
            _import(name)
            _loaded.append(name)


def loaded_plugins() -> list[str]:
    return list(_loaded)


def _import(name: str) -> None:
    if not _MODULE.fullmatch(name) or name.endswith(".py"):
        raise ConfigError(f"plugins={quoted(name)}: not the name of a module. Write it as in an import, without .py")
    # Last, so that a file in the working folder never takes the place of a library's module.
    folder = str(Path.cwd())
    sys.path.append(folder)
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error) from error
        raise ConfigError(
            f"plugins={name}: no module `{error.name}` in the working folder or on Python's path. Check the name"
        ) from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error
    finally:
        sys.path.remove(folder)


def _failed(name: str, error: BaseException) -> ConfigError:
    *_, last = traceback.extract_tb(error.__traceback__)
    what = f"{type(error).__name__}: {error}".rstrip(".: ")
    return ConfigError(f"plugins={name}: cannot be imported ({last.filename}:{last.lineno}: {what}). Correct it")
