"""Name → builder, with "did you mean". A config can name entries of a registry, and nothing else."""

import dataclasses
import difflib
import functools
import importlib
import inspect
import pkgutil
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, NoReturn, TypeVar

from transformer_cli.errors import ConfigError

_T = TypeVar("_T")
EntryT = TypeVar("EntryT")


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """`; did you mean ...?` when a choice is near to `name`, else the empty string."""
    near = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else ""


_ADDONS = Path(__file__).parent / "addons"
_loaded: set[str] = set()
_loading = threading.RLock()


def load_addons() -> None:
    """Import the commands, and the `plugin` module of every add-on that comes along, once: they register themselves."""
    with _loading:  # another thread waits for the end; a registry that is looked into meanwhile, by an add-on, does not
        if not _loaded:
            names = sorted(found.name for found in pkgutil.iter_modules([str(_ADDONS)]))
            _loaded.update(names)
            importlib.import_module(f"{__package__}.commands")
            for name in names:
                importlib.import_module(f"{__package__}.{_ADDONS.name}.{name}.plugin")


class Registry(Generic[_T]):
    """Builders by the names that a config may use.

    `adopt` gets the name and what is registered, which may be a plugin's, and returns the entry; it raises ConfigError
    for what is none. `options_key` is the key under which a config holds the settings that are an entry's own.
    """

    with_options: ClassVar[list["Registry[Any]"]] = []

    def __init__(self, kind: str, *, adopt: Callable[[str, Any], _T] | None = None, options_key: str = "") -> None:
        self.kind, self.options_key = kind, options_key
        self._adopt = adopt
        self._entries: dict[str, _T] = {}
        self._options: dict[str, type] = {}
        if options_key:
            self.with_options.append(self)

    def register(self, name: str, *, options: type | None = None) -> Callable[[EntryT], EntryT]:
        """Decorate a builder with the name that configs use for it.

        `options` is a dataclass of the settings that are its own. Raises ConfigError where the name is taken, or what
        is registered is no entry of this registry.
        """
        if not isinstance(name, str):
            raise ConfigError(f"{self.kind} registry: the name of an entry is text, as register('mine')")
        if name in self._entries:
            raise ConfigError(f"two entries called `{name}` in the registry of {self.kind} builders. Rename one")
        if options is not None and not (self.options_key and dataclasses.is_dataclass(options)):
            keys = "takes a dataclass" if self.options_key else "does not exist here"
            raise ConfigError(f"{self.kind} `{name}`: options= {keys}. Correct it")

        def add(builder: EntryT) -> EntryT:
            entry: Any = builder
            self._entries[name] = entry if self._adopt is None else self._adopt(name, entry)
            if options is not None:
                self._options[name] = options
            return builder

        return add

    def __getitem__(self, name: str) -> _T:
        load_addons()
        if name not in self._entries:
            self._refuse(name)
        return self._entries[name]

    def check(self, name: str) -> None:
        """Raise ConfigError unless there is an entry called `name`."""
        self[name]

    def names(self) -> list[str]:
        load_addons()
        return sorted(self._entries)

    def items(self) -> list[tuple[str, _T]]:
        """Name and entry of each, in the order in which they were registered."""
        load_addons()
        return list(self._entries.items())

    def __contains__(self, name: object) -> bool:
        load_addons()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in self.items()])

    def options_of(self, name: str) -> type | None:
        """The dataclass of the settings that are the entry's own, if it has any."""
        load_addons()
        return self._options.get(name)

    def all_options(self) -> Iterator[type]:
        """The dataclass of each entry that has settings of its own, by name."""
        load_addons()
        return (self._options[name] for name in sorted(self._options))

    def _refuse(self, name: str) -> NoReturn:
        choices = ", ".join(self.names())
        raise ConfigError(f"no {self.kind} called `{name}`{did_you_mean(name, self._entries)} (choices: {choices})")


# ---- What plugins register


def check_callable(entry: object, *, what: str, arguments: str) -> None:
    """Raise ConfigError unless `entry` can be called with the comma-separated `arguments`."""
    wanted = f"{what} is a function of ({arguments})"
    if not callable(entry):
        raise ConfigError(f"{entry!r:.80}: {wanted}, and this is a {type(entry).__name__}. Correct it")
    try:
        inspect.signature(entry).bind(*arguments.split(", "))
    except ValueError:  # one in C, without a signature
        return
    except TypeError as error:
        raise ConfigError(
            f"{place_of(entry)}: {wanted}, and this one cannot be called so ({error}). Correct it"
        ) from None


def guarded(
    function: Callable[..., _T],
    fault_of: Callable[..., str | None],
    *,
    given: Callable[..., tuple[Any, ...]] = lambda *args: args,
) -> Callable[..., _T]:
    """`function`; if it is a plugin's, its result is refused in one line where `fault_of` says what is wrong with it.

    `fault_of` gets the result and the arguments, and the function what `given` makes of these: a copy, where it might
    change them.
    """
    if is_ours(function):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> _T:
        result = function(*given(*args), **kwargs)
        if fault := fault_of(result, *args, **kwargs):
            raise ConfigError(f"{place_of(function)}: returned {fault}. Correct it")
        return result

    return call


def is_ours(function: Any) -> bool:
    """Whether a function or class is of this package, not of a plugin."""
    return str(_defined(function).__module__).split(".")[0] == __name__.split(".")[0]


def place_of(function: Any) -> str:
    """The place where a plugin defines a function or class: `plugin mine (mine.py:12)`."""
    defined = _defined(function)
    code = getattr(defined, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code is not None else ("", 0)
    if isinstance(defined, type):
        try:
            file, line = str(inspect.getsourcefile(defined)), inspect.getsourcelines(defined)[1]
        except (OSError, TypeError):  # one without a source file
            file = ""
    return format_place(str(defined.__module__), file, line)


def format_place(plugin: str, file: str, line: int) -> str:
    if not file:
        return f"plugin {plugin}"
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"plugin {plugin} ({shown}:{line})"


def _defined(function: Any) -> Any:
    """The function or class that is behind a partial, a method, a wrapper or an object that can be called."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(getattr(function, "__func__", function))
    is_code = inspect.isroutine(function) or isinstance(function, type)
    return function if is_code else type(function)
