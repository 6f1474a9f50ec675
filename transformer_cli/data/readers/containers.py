"""Archives and folders that are named as a corpus: the members or shards in them that hold the pairs."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from transformer_cli.config.data import DataConfig
from transformer_cli.data import archive
from transformer_cli.data.corpus_files import CorpusFile, candidates, exists, find_file, folder
from transformer_cli.data.lines import shown
from transformer_cli.data.readers.table_files import format_by_name, is_tsv
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import DataError, quoted
from transformer_cli.languages import NAMES, iso_639_1, matched

_SHARD = re.compile(r"(?P<split>.+?)[-_.](?P<number>\d{5})-of-(?P<n>\d{5})(?:-[0-9a-f]+)?")
_MOST_SHOWN = 12  # names in an error
_MOST_LISTED = 100  # files of a folder


def members_of(name: str, config: DataConfig, *, key: str) -> list[str] | None:
    """The members of an archive that is named as a whole: two files of a pair, or one table; None for other names.

    Raises DataError where the archive holds several corpora, or none.
    """
    if not names_archive(name):
        return None
    file = next((file for file in candidates(name, config) if file.path.is_file()), None)
    if file is None:
        return None
    sides = config.languages or [config.source_lang, config.target_lang]
    members, corpora = _corpora(file.path, sides)
    if len(corpora) == 1:
        return [f"{name}::{member}" for member in corpora[0]]
    languages = f"{config.source_lang} and {config.target_lang}"
    if not corpora:
        raise DataError(
            f"{shown(file.path)}: holds no pair of files that end in {languages}, and no table: {_shown(members)}. Name"
            f" its files, as {key}=[{name}::FILE,{name}::FILE]"
        )
    listed = _shown([" and ".join(corpus) for corpus in corpora])
    first = ",".join(f"{name}::{member}" for member in corpora[0])
    raise DataError(f"{shown(file.path)}: holds {len(corpora)} corpora: {listed}. Name one, as {key}=[{first}]")


def names_archive(name: str) -> bool:
    """Whether a name is that of an archive, and of no member."""
    return "::" not in name and name.lower().endswith(archive.SUFFIXES)


def corpora_in(name: str, config: DataConfig) -> list[list[str]]:
    """The members of each corpus in an archive, whatever the languages of its pairs. Raises DataError."""
    return _corpora(find_file(name, config, key="--list").path, None)[1]


def _corpora(path: Path, sides: Sequence[str] | None) -> tuple[Sequence[str], list[list[str]]]:
    """The members of an archive, and those of each corpus among them: two files of a pair, or one table."""
    status = path.stat()
    members = [one for one in _members(path, (status.st_size, status.st_mtime_ns)) if not _is_hidden(one)]
    by_stem: dict[str, dict[str, str]] = {}
    for member in members:
        stem, _, language = member.removesuffix(".gz").rpartition(".")
        by_stem.setdefault(stem, {})[language] = member
    pairs = [pair for found in by_stem.values() if (pair := _pair_of(found, sides))]
    tables = [[one] for one in members if is_tsv(one) or format_by_name(one) is not None]
    return members, [*pairs, *(table for table in tables if not any(table[0] in pair for pair in pairs))]


def _pair_of(by_language: Mapping[str, str], sides: Sequence[str] | None) -> list[str]:
    """The two files of a pair, in the order of the sides; without sides, of any two languages."""
    if sides is None:
        found = [member for code, member in by_language.items() if iso_639_1(code) in NAMES and len(code) < 8]
        return found if len(found) == 2 else []
    languages = [matched(side, by_language) for side in sides]
    found = [by_language[language] for language in languages if language is not None]
    return found if len(set(found)) == 2 else []


@cache
def _members(path: Path, version: tuple[int, int]) -> Sequence[str]:
    """The plain files in an archive, in alphabetical order, read once for each `version` of it."""
    return sorted(archive.member_sizes(path))


def _is_hidden(member: str) -> bool:
    """Whether a member is one that only operating systems read."""
    return member.startswith("__MACOSX/") or member.rsplit("/", 1)[-1].startswith(".")


# ---- Folders


def shards_of(name: str, config: DataConfig, *, key: str, is_listed: bool = False) -> tuple[CorpusFile, ...] | None:
    """The files of a dataset of Hugging Face that is a folder; None where `name` is no folder.

    A split of a folder is DIR/train, whether it is a folder of its own or part of the names of the files. Raises
    DataError for a folder without such files, or with several splits, unless it is to be listed, where there are none.
    """
    path = folder(config) / name
    if not name or exists(name, config):
        return None
    if path.is_dir():
        return _of_folder(path, key=key, is_listed=is_listed)
    if not path.parent.is_dir():
        return None
    shards = [shard for shard in _shards_in(path.parent) if _split_of(shard) == path.name]
    return _whole(path.parent, shards) if shards else None


def _of_folder(path: Path, *, key: str, is_listed: bool) -> tuple[CorpusFile, ...]:
    shards, splits = _shards_in(path), _splits_in(path)
    if is_listed and (not shards or len(splits) > 1):
        return ()
    if len(splits) > 1 or (splits and not shards):
        raise DataError(
            f"{shown(path)}: holds {len(splits)} splits: {_shown(splits)}. Name one, as {key}={shown(path / splits[0])}"
        )
    if not shards:
        raise DataError(f"{shown(path)}: is a folder without files of Parquet or Arrow. Name a file")
    return _whole(path, shards)


def _splits_in(path: Path) -> list[str]:
    """The splits of a dataset: of the names of its files, or folders with files."""
    if shards := _shards_in(path):
        return list(dict.fromkeys(filter(None, map(_split_of, shards))))
    return sorted(one.name for one in path.iterdir() if one.is_dir() and _shards_in(one))


def listed_folder(name: str) -> list[str]:
    """List the splits of the dataset in a folder, else its files, with their formats."""
    path = Path(name)
    if splits := _splits_in(path):
        return [f"{path / split}: a split of a dataset" for split in splits]
    files = sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
    return [f"{one}: {_kind_of(one.name)}" for one in files[:_MOST_LISTED]] or ["nothing"]


def _kind_of(name: str) -> str:
    if names_archive(name):
        return "an archive"
    if is_tsv(name):
        return "a table with tabs"
    kind = format_by_name(name)
    return "text, or not known by its name" if kind is None else str(FORMATS[kind].what)


def _shards_in(path: Path) -> list[Path]:
    """The files of Parquet or Arrow in a folder, or in its folder `data`, in their order."""
    return [
        shard
        for place in (path, path / "data")
        if place.is_dir()
        for shard in sorted(place.iterdir())
        if shard.suffix in (".parquet", ".arrow") and not shard.name.startswith((".", "cache-")) and shard.is_file()
    ]


def _split_of(shard: Path) -> str:
    """The split that the name of a file begins with, as train-00000-of-00002; empty for data-00000-of-00002."""
    found = _SHARD.fullmatch(shard.stem)
    return "" if found is None or found["split"] == "data" else found["split"]


def _whole(path: Path, shards: Sequence[Path]) -> tuple[CorpusFile, ...]:
    """The shards, if none is missing."""
    numbers = [found for found in map(_SHARD.fullmatch, [shard.stem for shard in shards]) if found]
    if len({one["n"] for one in numbers}) > 1:
        raise DataError(
            f"{shown(path)}: has files of several datasets: {_shown([one.name for one in shards])}. Name one"
        )
    if numbers and len({int(one["number"]) for one in numbers}) < (n := int(numbers[0]["n"])):
        raise DataError(f"{shown(path)}: has {len(numbers)} of the {n} files of its dataset. Fetch it again")
    return tuple(CorpusFile(shard, None, format_by_name(shard.name)) for shard in shards)


def _shown(names: Sequence[str]) -> str:
    listed = ", ".join(map(quoted, names[:_MOST_SHOWN]))
    return f"{listed}, …" if len(names) > _MOST_SHOWN else listed or "nothing"
