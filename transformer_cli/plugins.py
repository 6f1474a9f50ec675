"""Plugins: a user's own modules, imported by name, which add entries to the registries.

A plugin is code, so it is imported only where the user's command line or config names it. What a model file names is
never imported.
"""

import contextlib
import importlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

from transformer_cli.errors import ConfigError, TfmError, quoted
from transformer_cli.registry import format_place

_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")

# What the code of a plugin may raise: its sys.exit() is a fault of its own, and ends no command.
RAISED = (Exception, SystemExit)

_loaded: list[str] = []


def load_plugins(names: Iterable[str]) -> bool:
    """Import each module, from Python's path or the working folder; whether one was new. Raises ConfigError."""
    new = [name for name in names if name not in _loaded]
    for name in new:
        _import(name)
        _loaded.append(name)
    return bool(new)


def loaded_plugins() -> list[str]:
    return list(_loaded)


def plugin_fault(error: BaseException) -> ConfigError | None:
    """`error` in one line, if code of a plugin was running when it was raised: the plugin, its file and the line."""
    where = plugin_place(error)
    return None if where is None else _fault(where, error)


def plugin_place(error: BaseException) -> str | None:
    """The innermost line of a plugin that was running when `error` was raised: `plugin mine (mine.py:12)`."""
    for one in _chain(error):
        for call in reversed(traceback.extract_tb(one.__traceback__)):
            for name in _loaded:
                if _is_part_of(call.filename, name):
                    return format_place(name, call.filename, call.lineno or 0)
    return None


def as_exception(error: BaseException) -> Exception:
    """`error`, or for a SystemExit the fault that it is of a plugin: raised again, it would end an event loop."""
    if isinstance(error, Exception):
        return error
    return plugin_fault(error) or RuntimeError(f"{type(error).__name__}: {error}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what has caused it."""
    seen: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in seen:
        seen.append(following)
        yield following
        following = following.__cause__ or following.__context__


def _is_part_of(file: str, name: str) -> bool:
    """Whether a file belongs to the plugin: it is its module, or is in the package that the module is of."""
    top = sys.modules.get(name.split(".")[0])
    folders = [Path(folder) for folder in getattr(top, "__path__", ())]
    return file == getattr(top, "__file__", None) or any(Path(file).is_relative_to(folder) for folder in folders)


def _import(name: str) -> None:
    if not _MODULE.fullmatch(name) or name.endswith(".py"):
        raise ConfigError(f"plugins={quoted(name)}: not the name of a module. Write it as in an import, without .py")
    # Last, so that a file in the working folder never takes the place of a library's module.
    folder = str(Path.cwd())
    sys.path.append(folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output has the results of the command alone
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error) from error
        raise ConfigError(
            f"plugins={name}: no module `{error.name}` in the working folder or on Python's path. Check the name"
        ) from error
    except RAISED as error:
        raise _failed(name, error) from error
    finally:
        sys.path.remove(folder)


def _failed(name: str, error: BaseException) -> ConfigError:
    """An import that failed: the last line of the plugin, or beside it, that was running or cannot be read.

    What a registry refuses keeps its message, which may name the function that it refuses.
    """
    calls = [(call.filename, call.lineno or 0) for call in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename is not None:
        calls.append((error.filename, error.lineno or 0))
    package, importer = Path(__file__).parent, Path(str(importlib.__file__)).parent
    others = [
        call
        for call in calls
        if not any(Path(call[0]).is_relative_to(one) for one in (package, importer)) and call[0][:1] != "<"
    ]
    # What a plugin calls of a library is not at fault; nothing of it has run where its file holds a null byte.
    beside = [call for call in others if Path(call[0]).is_relative_to(Path(others[0][0]).parent)]
    file, line = beside[-1] if beside else ("", 0)
    where, message = format_place(name, file, line), str(error)
    if isinstance(error, TfmError):
        return ConfigError(message if message.startswith("plugin ") else f"{where}: {message}")
    return _fault(f"{where}: cannot be imported", error)


def _fault(where: str, error: BaseException) -> ConfigError:
    what = f"{type(error).__name__}: {error}".rstrip(".: ")
    return ConfigError(f"{where}: {what}. Correct it, or see all calls with TFM_DEBUG=1")
