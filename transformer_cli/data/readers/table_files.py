"""Tables among the files of a corpus are known by the format of their first bytes or names, or by their tabs."""

from functools import cache
from itertools import islice

from transformer_cli.config.data import DataConfig
from transformer_cli.data.corpus_files import CorpusFile, candidates, exists, find_file
from transformer_cli.data.formats.base import HEAD_BYTES
from transformer_cli.data.lines import FIRST_LINES, Lines, are_rows, other_format
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import DataError

_TABS = ""  # instead of a format: a table with tabs


def is_tsv(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(".tsv")


def table_files(name: str, config: DataConfig, *, key: str, is_alone: bool = True) -> tuple[CorpusFile, ...] | None:
    """The files of the table that is called `name`; None where it is the text of one side, a prefix, or not there.

    A file that is named alone is a table by its content, whatever it is called; one among others by its name, so that
    no text of one side is taken for a table.
    """
    if is_tsv(name):
        return (find_file(name, config, key=key),)
    file = next((file for file in candidates(name, config) if file.path.is_file()), None)
    if file is None:
        return (find_file(name, config, key=key),) if format_by_name(name) else None
    if is_alone and file.member is None and exists(f"{name}.{config.source_lang}", config):
        return None
    found = format_by_content(file, is_alone=is_alone)
    if found is None:
        return None
    return (CorpusFile(file.path, file.member, found or None),)


def format_by_content(file: CorpusFile, *, is_alone: bool = True) -> str | None:
    """The format of a file; empty for a table with tabs, None for text of one side. Raises DataError, OSError."""
    status = file.path.stat()
    return _recognised(file, (status.st_size, status.st_mtime_ns), is_alone)


@cache
def _recognised(file: CorpusFile, version: tuple[int, int], is_alone: bool) -> str | None:
    """The same for a `version` of the file, which is read once: of a tar, all up to the member."""
    named = format_by_name(file.name)
    if named is not None and FORMATS[named].is_certain_by_name:
        return _without_name(file) or named
    if not (is_alone or named is not None or file.is_marked_up):
        return None
    try:
        head = file.head(HEAD_BYTES)
    except DataError:
        if file.member is None:
            raise
        return named  # a prefix of members is no member; other faults are reported when the archive is read
    likely_first = sorted(FORMATS.items(), key=lambda item: not item[1].is_certain_by_name)
    may_be = [named] if named is not None and not is_alone else [name for name, _ in likely_first]
    found = next((name for name in may_be if FORMATS[name].recognises(head)), None)
    if found is not None:
        return found
    if is_alone and other_format(head) is None and are_rows(head.split(b"\n")[:FIRST_LINES]):
        return _TABS
    return named if is_alone else None


def _without_name(file: CorpusFile) -> str | None:
    """The format of a file, among those that no name tells, as one of several forms of JSON."""
    nameless = [name for name, one in FORMATS.items() if not one.endings]
    if file.member is not None or not nameless:
        return None
    try:
        head = file.head(HEAD_BYTES)
    except DataError:
        return None  # which is reported when it is read
    return next((name for name in nameless if FORMATS[name].recognises(head)), None)


def format_by_name(name: str) -> str | None:
    """The format of which files are called so, with or without .gz."""
    name = name.lower().removesuffix(".gz")
    return next((entry for entry, one in FORMATS.items() if name.endswith(one.endings)), None)


def has_tabs(lines: Lines) -> bool:
    """Whether at least half of the first lines that are not blank have a tab."""
    return are_rows([line.encode() for line in islice(lines.each(), FIRST_LINES)])
