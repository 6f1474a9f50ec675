"""Test sets by name: those of sacrebleu, in its own cache ($SACREBLEU, or ~/.sacrebleu), so that it is downloaded once.

sacrebleu makes the text files, so a score here and one of its own command are of the same lines. What it needs is
fetched here: its own download leaves a file that was cut short for the next start, and ends the process at a fault.
"""

import copy
import hashlib
import http.client
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformer_cli.data.archive import SUFFIXES, member_sizes, open_members
from transformer_cli.data.download import CHUNK_BYTES, TIMEOUT_SECONDS, http_opener, is_web_page
from transformer_cli.data.lines import BLOCK_BYTES, read_lines, shown
from transformer_cli.environment import home_followed
from transformer_cli.errors import ConfigError, DataError, EnvironmentFault, quoted
from transformer_cli.files import wrap_os_errors
from transformer_cli.logs import LOGGER
from transformer_cli.registry import did_you_mean

LISTED = "list"  # in place of a name: print those that there are
OWN_FILES = "give its files with --source and --reference"
_PAIR = re.compile(r"[a-z]+-[a-z]+")


@dataclass(frozen=True)
class SetFiles:
    """The files of a named set in one direction, one sentence a line: all have as many."""

    name: str
    source_lang: str
    target_lang: str
    source: Path
    references: tuple[Path, ...]

    @property
    def title(self) -> str:
        return f"{self.name}.{self.source_lang}-{self.target_lang}"

    def read(self) -> tuple[list[str], list[list[str]]]:
        """The sources, and each reference. Raises EnvironmentFault for files in the cache that do not fit."""
        try:
            sources, *references = (read_lines(path) for path in (self.source, *self.references))
        except DataError as error:
            raise EnvironmentFault(f"{error}. Delete {_cache() / self.name}, and it is made again") from None
        for reference in references:
            if len(reference) != len(sources):
                raise EnvironmentFault(
                    f"{reference.name}: has {len(reference):,} lines, {sources.name} {len(sources):,}. Delete"
                    f" {shown(_cache() / self.name)}, and it is made again"
                )
        return sources.texts, [reference.texts for reference in references]


def set_names(languages: str | None = None) -> dict[str, list[str]]:
    """The sets that sacrebleu knows, with their language pairs; with `languages`, as en-de, those that have it."""
    return {
        name: sorted(dataset.langpairs)
        for name, dataset in sorted(_datasets().items())
        if languages is None or languages in dataset.langpairs
    }


def check_languages(languages: str) -> tuple[str, str]:
    """Source and target of a language pair. Raises ConfigError for what is none."""
    if not _PAIR.fullmatch(languages):
        raise ConfigError(f"--languages {languages}: no language pair. Write it as en-de")
    source, _, target = languages.partition("-")
    return source, target


def check_set(name: str, languages: str, *, asked_by: str) -> None:
    """Raise ConfigError for a set that sacrebleu does not know, or a direction that it does not have."""
    datasets = _datasets()
    if name not in datasets:
        raise ConfigError(
            f"{asked_by}: sacrebleu has no such test set{did_you_mean(name, datasets)} (`tfm evaluate --test-set"
            f" {LISTED}` names all)"
        )
    pairs = datasets[name].langpairs
    if languages not in pairs:
        raise ConfigError(
            f"{asked_by}: has no {languages}{did_you_mean(languages, pairs)} (choices: {', '.join(sorted(pairs))})"
        )


def set_files(name: str, languages: str, *, asked_by: str, instead: str = OWN_FILES) -> SetFiles:
    """The files of a set in the direction `languages`, as en-de, in sacrebleu's cache, which is filled if need be.

    `asked_by` is the flag or key that names the set, `instead` what to do where it cannot be downloaded. Raises
    ConfigError for a set or a direction that there is not, EnvironmentFault if it cannot be fetched or kept.
    """
    check_set(name, languages, asked_by=asked_by)
    place = _Place(_datasets()[name], languages, _cache() / name)
    try:
        paths = place.text_files()
        if paths is None:
            place.fetch(asked_by, instead)
            paths = place.make_text()
    except _Damaged as damage:
        raise EnvironmentFault(
            f"{asked_by}: {damage}. Delete {shown(_cache() / name)}, and it is fetched again, or {instead}"
        ) from None
    return SetFiles(name, *check_languages(languages), paths[0], tuple(paths[1:]))


def _datasets() -> dict[str, Any]:
    from sacrebleu.dataset import DATASETS

    return dict(DATASETS)


def _cache() -> Path:
    """sacrebleu's: as its own module finds it, but where the environment says so now."""
    return Path(home_followed(os.environ.get("SACREBLEU", "~/.sacrebleu")))


class _Damaged(Exception):
    """The cache has content that sacrebleu's test set cannot have."""


class _NotMade(Exception):
    """The text files are not there yet."""


class _Place:
    """One language pair of a set, in its folder of the cache: text files, and in `raw/` what was downloaded."""

    def __init__(self, dataset: Any, languages: str, folder: Path) -> None:
        self._dataset, self._languages, self._folder, self._raw = dataset, languages, folder, folder / "raw"

    def text_files(self) -> list[Path] | None:
        """Source and references, if all that sacrebleu keeps of this pair is there."""

        def not_made(_: str) -> None:
            raise _NotMade

        view = self._view(self._folder)
        view.process_to_text = not_made
        try:
            # Of a set in XML, sacrebleu has its references in another order each time.
            names = [view.get_source_file(self._languages), *sorted(view.get_reference_files(self._languages))]
        except (OSError, SyntaxError, ValueError, AssertionError, _NotMade):  # the fields of XML are in its download
            return None
        paths = [Path(name) for name in names]
        if len(paths) < 2:
            raise _Damaged("has no reference")
        return paths if all(path.stat().st_size for path in paths) else None

    def make_text(self) -> list[Path]:
        """Have sacrebleu make the text files, in a folder apart, so that none is ever there in part."""
        with _staging() as staging, wrap_os_errors(self._folder, "keep a test set"):
            try:
                self._view(staging).process_to_text(self._languages)
            except (FileNotFoundError, SyntaxError, LookupError, ValueError, AssertionError) as error:
                raise _Damaged(f"sacrebleu cannot read what was downloaded ({_shown(error)})") from None
            for path in sorted(staging.iterdir()):
                path.replace(self._folder / path.name)
        paths = self.text_files()
        if paths is None:
            raise _Damaged("sacrebleu made no text of it")
        return paths

    def fetch(self, asked_by: str, instead: str) -> None:
        """Download what is not there or is not the right file, and unpack what sacrebleu reads of it.

        An archive is put in place after its members: where it is, sacrebleu takes them to be there, too.
        """
        with _staging() as staging, wrap_os_errors(self._folder, "keep a test set"):
            archives: list[Path] = []
            for url, md5 in self._downloads():
                name = self._dataset._get_tarball_filename(url)
                kept = self._raw / name
                if not kept.is_file() or md5 not in (None, _md5(kept)):
                    if kept.is_file():
                        LOGGER.warning("%s: is not the file that sacrebleu knows; it is downloaded again", shown(kept))
                    kept = staging / name
                    if (fault := _download(url, md5, kept)) is not None:
                        raise EnvironmentFault(
                            f"{asked_by}: not in {shown(_cache())}, and {url} cannot be downloaded ({shown(fault)})."
                            f" Connect to the network and run again, or {instead}"
                        )
                archives.append(kept)
            self._raw.mkdir(parents=True, exist_ok=True)
            for archive in archives:
                self._unpack(archive, staging / "members")
            for path in archives:
                if path.parent == staging:
                    path.replace(self._raw / path.name)

    def _downloads(self) -> Iterator[tuple[str, str | None]]:
        md5s = self._dataset.md5 or [None] * len(self._dataset.data)
        return zip(self._dataset.data, md5s, strict=True)

    def _unpack(self, archive: Path, staging: Path) -> None:
        """The members that sacrebleu reads for any language pair of the set, unless they are there already."""
        if not archive.name.endswith(SUFFIXES):
            return
        staging.mkdir(exist_ok=True)
        found: list[tuple[Path, Path]] = []
        try:
            sizes = member_sizes(archive)
            wanted = [name for name in self._members() if name in sizes and _size(self._raw / name) != sizes[name]]
            for number, (name, stream) in enumerate(open_members(archive, wanted) if wanted else ()):
                with (staging / str(number)).open("wb") as file:
                    while block := stream.read(BLOCK_BYTES):
                        file.write(block)
                found.append((staging / str(number), self._raw / name))
        except DataError as error:
            raise _Damaged(str(error)) from None
        for path, final in found:
            final.parent.mkdir(parents=True, exist_ok=True)
            path.replace(final)

    def _members(self) -> list[str]:
        """The files below `raw/` that the set is made of, by sacrebleu's own table; those of a table have a column."""
        of_pairs = (entry["path"] if isinstance(entry, dict) else entry for entry in self._dataset.langpairs.values())
        names = (name for entry in of_pairs for name in ([entry] if isinstance(entry, str) else entry))
        return sorted({re.sub(r"^\d+:", "", name) for name in names})

    def _view(self, text_folder: Path) -> Any:
        """The set as sacrebleu has it, but with text files in `text_folder`, and without its own download."""
        view = copy.copy(self._dataset)
        view._outdir, view._rawdir = str(text_folder), str(self._raw)
        view.maybe_download = lambda: None
        return view


@contextmanager
def _staging() -> Iterator[Path]:
    """A folder on the disk of the cache, from which whole files are moved; it is gone at the end."""
    cache = _cache()
    with wrap_os_errors(cache, "write to sacrebleu's cache of test sets, $SACREBLEU"):
        cache.mkdir(parents=True, exist_ok=True)
        made = TemporaryDirectory(prefix=".new-", dir=cache)
    with made as name:
        yield Path(name)


def _download(url: str, md5: str | None, path: Path) -> str | None:
    """Download a file to `path` and verify it; what was wrong, or None. Raises OSError for a fault of the disk."""
    LOGGER.info("downloading %s", url)
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "tfm", "Accept-Encoding": "identity"})
        with http_opener().open(request, timeout=TIMEOUT_SECONDS) as response, path.open("wb") as file:
            chunk = response.read(CHUNK_BYTES)
            if is_web_page(chunk, response):
                return "a web page came instead of the file, perhaps the login page of this network"
            while chunk:
                file.write(chunk)
                chunk = response.read(CHUNK_BYTES)
            if response.length:
                return f"the connection was cut, {response.length:,} bytes are missing"
    except urllib.error.HTTPError as error:
        with error:
            return f"the server answers {error.code} {error.reason}"
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        return str(getattr(error, "reason", None) or error) or type(error).__name__
    if md5 not in (None, found := _md5(path)):
        return f"what came has MD5 {found}, and sacrebleu knows {md5}"
    return None


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _shown(error: object) -> str:
    return quoted(str(error) or type(error).__name__, 160)
