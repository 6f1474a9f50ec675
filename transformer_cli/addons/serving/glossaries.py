"""Glossaries: named lists of terms for pairs of languages, in memory, and in a folder that survives the process.

A glossary belongs to the API key that made it, and no other key sees it; without keys, all requests share them.
"""

import csv
import io
import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from transformer_cli.addons.serving.errors import RequestError
from transformer_cli.addons.serving.keys import LimitsConfig
from transformer_cli.data.normalization import canonical, normalize
from transformer_cli.decoding.terminology import Term, Terminology, words_of
from transformer_cli.errors import ConfigError, EnvironmentFault, TfmError, quoted
from transformer_cli.files import locked, make_folder, remove_unowned, write_whole
from transformer_cli.languages import Code
from transformer_cli.logs import LOGGER
from transformer_cli.system import sync_folder

_FORMAT = "tfm glossary 1"  # of the files
_LONGEST_NAME = 1024  # bytes of UTF-8, as DeepL has it
_INVALID = "Invalid glossary entries provided"  # as DeepL says it
_LOCK = "lock"
# C0, C1, and the line ends of Unicode.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
LanguagePair = tuple[str, str]  # codes of languages without script and region


@dataclass(frozen=True)
class Dictionary:
    """Translations by source phrase, for one pair of languages."""

    entries: Mapping[str, str]

    @cached_property
    def n_bytes(self) -> int:
        return sum(len(source.encode()) + len(target.encode()) for source, target in self.entries.items())

    @cached_property
    def terminology(self) -> Terminology:
        """The entries as terms; of two that are the same words, as `a-b` and `a - b`, the first."""
        terms: dict[tuple[str, ...], Term] = {}
        for n, (source, target) in enumerate(self.entries.items(), start=1):
            phrase = normalize(source)
            terms.setdefault(words_of(canonical(phrase)), Term(phrase, (normalize(target),), n))
        return Terminology(terms.values(), name="glossary")


@dataclass(frozen=True)
class Glossary:
    """A version of a glossary; a change makes another one."""

    id: str
    name: str
    owner: str  # name of the API key that made it, empty without keys
    created: datetime
    dictionaries: Mapping[LanguagePair, Dictionary] = field(default_factory=dict)

    @property
    def n_bytes(self) -> int:
        return sum(one.n_bytes for one in self.dictionaries.values())


class GlossaryStore:
    """All glossaries. Raises ConfigError for a folder that holds what is none, or that another process uses.

    A change is on the disk before it is answered.
    """

    def __init__(self, limits: LimitsConfig, folder: Path | None = None) -> None:
        self.limits, self.folder = limits, folder
        self.lock = threading.Lock()
        self.glossaries: dict[str, Glossary] = {}
        self.held = ExitStack()  # the lock of the folder
        if folder is not None:
            try:
                self._open(folder)
            except TfmError:
                self.close()
                raise

    def close(self) -> None:
        """Let another process use the folder."""
        self.held.close()

    # ---- Requests

    def of(self, owner: str) -> list[Glossary]:
        """The glossaries of an API key, oldest first."""
        with self.lock:
            return sorted((one for one in self.glossaries.values() if one.owner == owner), key=lambda one: one.created)

    def get(self, owner: str, glossary_id: str) -> Glossary:
        """Raises RequestError 404, also for the glossary of another key."""
        found = self.glossaries.get(glossary_id)
        if found is None or found.owner != owner:
            raise RequestError(404, "Glossary not found")
        return found

    def create(self, owner: str, name: str, dictionaries: Mapping[LanguagePair, Dictionary]) -> Glossary:
        """Raises RequestError 456 where the key has too many, as DeepL answers."""
        new = Glossary(str(uuid.uuid4()), _checked_name(name), owner, datetime.now(UTC), dict(dictionaries))
        with self.lock:
            if sum(one.owner == owner for one in self.glossaries.values()) >= self.limits.glossaries:
                raise RequestError(
                    456, f"{self.limits.glossaries:,} glossaries, which is all that a key may have. Delete one"
                )
            return self._kept(new)

    def replace_dictionary(self, owner: str, glossary_id: str, pair: LanguagePair, new: Dictionary) -> None:
        """Replace the dictionary of a pair, or add it where there is none."""
        with self.lock:
            old = self.get(owner, glossary_id)
            self._kept(replace(old, dictionaries={**old.dictionaries, pair: new}))

    def merge(
        self, owner: str, glossary_id: str, dictionaries: Mapping[LanguagePair, Dictionary], *, name: str | None = None
    ) -> Glossary:
        """Add entries to the dictionaries of their pairs, in which they replace those of the same source phrase."""
        with self.lock:
            old = self.get(owner, glossary_id)
            merged = {
                pair: Dictionary({**old.dictionaries[pair].entries, **one.entries}) if pair in old.dictionaries else one
                for pair, one in dictionaries.items()
            }
            new = replace(old, dictionaries={**old.dictionaries, **merged})
            return self._kept(new if name is None else replace(new, name=_checked_name(name)))

    def remove_dictionary(self, owner: str, glossary_id: str, pair: LanguagePair) -> None:
        with self.lock:
            old = self.get(owner, glossary_id)
            dictionary_of(old, pair)
            self._kept(replace(old, dictionaries={key: one for key, one in old.dictionaries.items() if key != pair}))

    def delete(self, owner: str, glossary_id: str) -> None:
        with self.lock:
            found = self.get(owner, glossary_id)
            if self.folder is not None:
                file = self._file(found)
                try:
                    file.unlink(missing_ok=True)
                    sync_folder(self.folder)
                except OSError as error:
                    self._failed(file, error)
            del self.glossaries[found.id]

    def _kept(self, new: Glossary) -> Glossary:
        """Keep a new version. Raises RequestError 456 where all of its key would be too large."""
        others = sum(one.n_bytes for one in self.glossaries.values() if one.owner == new.owner and one.id != new.id)
        if others + new.n_bytes > (most := self.limits.glossary_bytes):
            raise RequestError(
                456, f"glossaries of more than {most:,} bytes, which is all that a key may have. Delete one"
            )
        if self.folder is not None:
            file = self._file(new)
            try:
                write_whole(file, _as_json(new).encode())
            except OSError as error:
                self._failed(file, error)
        self.glossaries[new.id] = new
        return new

    def _file(self, glossary: Glossary) -> Path:
        assert self.folder is not None
        return self.folder / f"{glossary.id}.json"

    def _failed(self, file: Path, error: OSError) -> NoReturn:
        LOGGER.error("%s: cannot be written (%s). Make room or repair it", file, error.strerror or error)
        raise RequestError(500, "the glossary cannot be kept; the server's log says why") from error

    # ---- The folder

    def _open(self, folder: Path) -> None:
        try:
            make_folder(folder)
            self.held.enter_context(locked(folder / _LOCK, wait=False))
            for leftover in folder.glob(".tfm-*.tmp"):
                remove_unowned(leftover)
            for found in map(_read, sorted(folder.glob("*.json"))):
                self.glossaries[found.id] = found
        except BlockingIOError:
            raise EnvironmentFault(
                f"glossaries={folder}: another `tfm serve` keeps its glossaries there. Give each server its own folder"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"glossaries={folder}: cannot be used ({error.strerror or error}). Give a folder that can be written"
            ) from error


def _as_json(glossary: Glossary) -> str:
    dictionaries = [
        {"source_lang": source, "target_lang": target, "entries": one.entries}
        for (source, target), one in glossary.dictionaries.items()
    ]
    content = {
        "format": _FORMAT,
        "id": glossary.id,
        "name": glossary.name,
        "owner": glossary.owner,
        "created": glossary.created.isoformat(),
        "dictionaries": dictionaries,
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _read(file: Path) -> Glossary:
    """Raises ConfigError for what `_as_json` has not written, OSError for what cannot be read."""
    data = file.read_bytes()
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        content = json.loads(data)
        dictionaries = {
            (str(one["source_lang"]), str(one["target_lang"])): Dictionary(
                {str(source): str(target) for source, target in one["entries"].items()}
            )
            for one in content["dictionaries"]
        }
        if content["format"] == _FORMAT and content["id"] == str(uuid.UUID(file.stem)):
            created = datetime.fromisoformat(content["created"])
            return Glossary(content["id"], str(content["name"]), str(content["owner"]), created, dictionaries)
    raise ConfigError(f"{file}: is no glossary of `tfm serve`. Restore it from a backup, or remove it")


def pair_of(source: str, target: str) -> LanguagePair:
    """The pair of languages that codes name; a glossary counts for every variant of them."""
    return Code.of(source).language, Code.of(target).language


# ---- Names and entries


def _checked_name(name: str) -> str:
    """Raises RequestError 400 for a name that is empty, too long, or has control characters."""
    if not normalize(name):
        raise RequestError(400, "name: is empty. Give one")
    if len(name.encode()) > _LONGEST_NAME:
        raise RequestError(400, f"name: has more than {_LONGEST_NAME:,} bytes. Give a shorter one")
    if _CONTROL.search(name):
        raise RequestError(400, "name: has a line end or another control character. Leave it out")
    return name


def dictionary_of(glossary: Glossary, pair: LanguagePair) -> Dictionary:
    """Raises RequestError 404 where there is none for these languages."""
    if pair not in glossary.dictionaries:
        raise RequestError(404, "Dictionary not found")
    return glossary.dictionaries[pair]


def read_entries(text: str, form: str, pair: LanguagePair, *, longest: int) -> Dictionary:
    """The dictionary of a text in `tsv` or `csv`. Raises RequestError 400 with the number of the wrong entry.

    `longest` is the most characters of a phrase. In CSV, languages may follow, and entries of others are left out.
    """
    rows = _rows_of_tsv(text) if form == "tsv" else _rows_of_csv(text, pair)
    entries: dict[str, str] = {}
    seen: dict[str, int] = {}
    for n, source, target in rows:
        for side, phrase in (("source", source), ("target", target)):
            if not normalize(phrase):
                _refuse(n, f"has no {side} phrase")
            if len(phrase) > longest:
                _refuse(n, f"has a {side} phrase of {len(phrase):,} characters, and it may have {longest:,}")
            if _CONTROL.search(phrase):
                _refuse(n, f"has a line end or another control character in its {side} phrase")
        if (key := canonical(source)) in seen:
            _refuse(n, f"duplicates the source phrase of entry {seen[key]}, {quoted(source, 40)}")
        seen[key] = n
        entries[source] = target
    if not entries:
        raise RequestError(400, _INVALID, detail="there is no entry. Give one a line")
    return Dictionary(entries)


def _rows_of_tsv(text: str) -> Iterator[tuple[int, str, str]]:
    for n, line in enumerate(text.removeprefix("\ufeff").split("\n"), start=1):
        if not line.strip():
            continue
        fields = [one.strip(" \r") for one in line.split("\t")]
        if len(fields) != 2:
            _refuse(n, f"has {len(fields) - 1} tabs, and needs one between its phrases")
        yield n, fields[0], fields[1]


def _rows_of_csv(text: str, pair: LanguagePair) -> Iterator[tuple[int, str, str]]:
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    n = 0
    try:
        for n, row in enumerate(reader, start=1):
            fields = [one.strip(" ") for one in row]
            if not any(fields):
                continue
            if len(fields) not in (2, 4):
                _refuse(n, f"has {len(fields)} fields, and needs two phrases, which their languages may follow")
            if len(fields) == 4 and pair_of(fields[2], fields[3]) != pair:
                continue
            yield n, fields[0], fields[1]
    except csv.Error as error:
        _refuse(n + 1, f"cannot be read as CSV ({error})")


def _refuse(n: int, what: str) -> NoReturn:
    raise RequestError(400, _INVALID, detail=f"entry {n} {what}")


def as_tsv(dictionary: Dictionary) -> str:
    return "\n".join(f"{source}\t{target}" for source, target in dictionary.entries.items())
