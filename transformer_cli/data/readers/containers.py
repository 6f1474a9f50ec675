"""Archives and folders that are named as a corpus: the members or shards in them that hold the pairs."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from transformer_cli.config.data import DataConfig
from transformer_cli.data import archive
from transformer_cli.data.corpus_files import CorpusFile, candidates, folder
from transformer_cli.data.lines import shown
from transformer_cli.data.readers.table_files import format_by_name, is_tsv
from transformer_cli.errors import DataError, quoted
from transformer_cli.languages import matched

_SHARD = re.compile(r"(?P<split>.+?)[-_.](?P<number>\d{5})-of-(?P<n>\d{5})(?:-[0-9a-f]+)?")
_MOST_SHOWN = 12  # names in an error


def members_of(name: str, config: DataConfig, *, key: str) -> list[str] | None:
    """The members of an archive that is named as a whole: two files of a pair, or one table; None for other names.

    Raises DataError where the archive holds several corpora, or none.
    """
    if "::" in name or not name.lower().endswith(archive.SUFFIXES):
        return None
    file = next((file for file in candidates(name, config) if file.path.is_file()), None)
    if file is None:
        return None
    status = file.path.stat()
    members = [one for one in _members(file.path, (status.st_size, status.st_mtime_ns)) if not _is_hidden(one)]
    pairs = _pairs_of(members, config)
    tables = [one for one in members if is_tsv(one) or format_by_name(one) is not None]
    corpora = [*pairs, *([table] for table in tables)]
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


@cache
def _members(path: Path, version: tuple[int, int]) -> Sequence[str]:
    """The plain files in an archive, in alphabetical order, read once for each `version` of it."""
    return sorted(archive.member_sizes(path))


def _is_hidden(member: str) -> bool:
    """Whether a member is one that only operating systems read."""
    return member.startswith("__MACOSX/") or member.rsplit("/", 1)[-1].startswith(".")


def _pairs_of(members: Sequence[str], config: DataConfig) -> list[list[str]]:
    """The pairs of members that differ in their language alone, in the order of the files of a corpus."""
    by_stem: dict[str, dict[str, str]] = {}
    for member in members:
        stem, _, language = member.removesuffix(".gz").rpartition(".")
        by_stem.setdefault(stem, {})[language] = member
    sides = config.languages or [config.source_lang, config.target_lang]
    return [pair for found in by_stem.values() if (pair := _pair_of(found, sides))]


def _pair_of(by_language: Mapping[str, str], sides: Sequence[str]) -> list[str]:
    languages = [matched(side, by_language) for side in sides]
    found = [by_language[language] for language in languages if language is not None]
    return found if len(set(found)) == 2 else []


# ---- Folders


def shards_of(name: str, config: DataConfig, *, key: str) -> tuple[CorpusFile, ...] | None:
    """The files of a dataset of Hugging Face that is a folder; None where `name` is no folder.

    A split of a folder is DIR/train, whether it is a folder of its own or part of the names of the files. Raises
    DataError for a folder without such files, or with several splits.
    """
    path = folder(config) / name
    if path.is_dir():
        return _of_folder(path, key=key)
    if not path.parent.is_dir():
        return None
    shards = [shard for shard in _shards_in(path.parent) if _split_of(shard) == path.name]
    return _whole(path.parent, shards) if shards else None


def _of_folder(path: Path, *, key: str) -> tuple[CorpusFile, ...]:
    shards = _shards_in(path)
    splits = list(dict.fromkeys(filter(None, map(_split_of, shards))))
    if not shards:
        splits = sorted(one.name for one in path.iterdir() if one.is_dir() and _shards_in(one))
    if len(splits) > 1 or (splits and not shards):
        raise DataError(
            f"{shown(path)}: holds {len(splits)} splits: {_shown(splits)}. Name one, as {key}={shown(path / splits[0])}"
        )
    if not shards:
        raise DataError(f"{shown(path)}: is a folder without files of Parquet or Arrow. Name a file")
    return _whole(path, shards)


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
    if numbers and len({int(one["number"]) for one in numbers}) < (n := int(numbers[0]["n"])):
        raise DataError(f"{shown(path)}: has {len(numbers)} of the {n} files of its dataset. Fetch it again")
    return tuple(CorpusFile(shard, None, format_by_name(shard.name)) for shard in shards)


def _shown(names: Sequence[str]) -> str:
    listed = ", ".join(map(quoted, names[:_MOST_SHOWN]))
    return f"{listed}, …" if len(names) > _MOST_SHOWN else listed or "nothing"
