"""The package fxtranslate, by which Firefox's engine translates: its panics become errors of ours."""

import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from transformer_cli.errors import CheckpointError, EnvironmentFault, quoted
from transformer_cli.extras import imported

PACKAGE = "fxtranslate"
LEXICON = "lex.s2t.bin"
_MOST_PIECES = 256  # output pieces
_PANIC = "PanicException"  # of Rust code, a BaseException
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_VOCABULARIES = ("vocab.spm", "source.vocab.spm", "target.vocab.spm")


def most_pieces(n_source: int) -> int:
    """Pieces after which the engine ends a translation without EOS; `n_source` are those of the source, with EOS."""
    return min(2 * n_source + 4, _MOST_PIECES)


@dataclass(frozen=True)
class FirefoxFiles:
    """The files of a model. Two vocabularies may be one file."""

    model: Path
    source: Path
    target: Path
    lexicon: Path | None

    @classmethod
    def of(cls, directory: Path, names: Collection[str]) -> "FirefoxFiles":
        """The files of a model in a folder that has files of these `names`. Raises LookupError where one is missing."""
        one, source, target = _VOCABULARIES
        models = [name for name in names if re.fullmatch(r"model\.[\w-]+\.intgemm\.alphas\.bin", name)]
        found = [one, one] if one in names else [name for name in (source, target) if name in names]
        if len(models) != 1 or len(found) != 2:
            raise LookupError("files has no model, or no vocabulary, or several")
        lexicon = directory / LEXICON if LEXICON in names else None
        return cls(directory / models[0], directory / found[0], directory / found[1], lexicon)


class FirefoxLibrary:
    """A model that fxtranslate loads, for any number of threads: each has an object of its own.

    An object may be used, and freed, by the thread alone that made it. So a thread keeps its objects apart from this
    one, which an exception can carry to other threads. `remedy` ends the messages about damaged files.
    """

    def __init__(self, files: FirefoxFiles, *, needs: str, remedy: str) -> None:
        """Raises CheckpointError where a line cannot be translated, and EnvironmentFault."""
        self.files, self.needs, self.remedy = files, needs, remedy
        self.number = next(_NUMBERS)
        weakref.finalize(self, _forget, self.number).atexit = False
        self.translate("a")  # most faults show here only
        _forget(self.number)  # another thread may be the one that translates

    def translate(self, text: str) -> str:
        text = _LONE_SURROGATE.sub("\ufffd", text)
        if self.number not in _of_this_thread():
            self._load()
        return str(self._call("translate with", lambda: _of_this_thread()[self.number].translate(text)))

    def _load(self) -> None:
        library = imported(PACKAGE, needs=self.needs)
        files = self.files
        parts = [files.model, files.source, files.target, *([] if files.lexicon is None else [files.lexicon])]
        try:
            contents = [part.read_bytes() for part in parts]
        except OSError as error:
            raise EnvironmentFault(
                f"{error.filename}: {error.strerror}. Check the disk and the file's permissions"
            ) from error
        _of_this_thread()[self.number] = self._call("load", lambda: library.Translator(*contents))

    def _call(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            with _without_panics():
                return call()
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
                raise
            raise CheckpointError(
                f"{self.files.model.parent}: fxtranslate cannot {what} it ({quoted(str(error))}). {self.remedy}"
            ) from error


_NUMBERS = count()
_OF_THREADS = threading.local()


def _of_this_thread() -> dict[int, Any]:
    """The objects of fxtranslate that this thread has made, by the numbers of what they are for."""
    found: dict[int, Any] = _OF_THREADS.__dict__.setdefault("made", {})
    return found


def _forget(number: int) -> None:
    _of_this_thread().pop(number, None)


@contextmanager
def _without_panics() -> Iterator[None]:
    """Keeps standard error aside: what Rust writes of a panic is dropped, all else is written afterwards."""
    try:
        aside = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    except OSError:  # no place for it: the lines of a panic stay
        yield
        return
    with aside:
        try:
            kept = os.dup(2)
        except OSError:  # closed
            yield
            return
        os.dup2(aside.fileno(), 2)
        try:
            yield
        except BaseException:
            aside.truncate(0)
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            if os.fstat(aside.fileno()).st_size:  # of other threads
                aside.seek(0)
                with suppress(OSError):
                    os.write(2, aside.read())
