"""Lists the contents of files: format, languages, rows and samples, and how to train on them."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_cli.config.data import DataConfig, OnBad
from transformer_cli.config.overrides import as_list
from transformer_cli.data.column_names import language_columns, role_columns, text_columns
from transformer_cli.data.corpus_files import CorpusFile, find_file, read_files
from transformer_cli.data.formats.base import HEAD_BYTES, N_SAMPLES, Contents, contents_of_rows
from transformer_cli.data.lines import no_corpus, shown
from transformer_cli.data.readers.columns import Columns
from transformer_cli.data.readers.containers import corpora_in, listed_folder, names_archive, shards_of
from transformer_cli.data.readers.parallel import file_language
from transformer_cli.data.readers.table_files import format_by_content
from transformer_cli.data.registry import FORMATS
from transformer_cli.errors import DataError
from transformer_cli.languages import NAMES, iso_639_1

_WIDTH = 100  # characters of a sample
_PLACEHOLDER = "LANGUAGE"
_ONE_SIDE = "text, a sentence a line"


@dataclass(frozen=True)
class Listing:
    """A corpus among the files that were named."""

    names: list[str]  # as data.train takes them
    what: str  # the format
    contents: Contents
    languages: dict[str, int] = field(default_factory=dict)  # code → column
    choices: list[str] = field(default_factory=list)  # the corpora of an archive, or the files of a folder, instead
    data: str = ""  # the `data=` that trains on it, where that follows from its format


def listings(names: Sequence[str], config: DataConfig) -> Iterator[Listing]:
    """List each of these files, archives and folders; two files of a pair together. Raises DataError."""
    if len(names) == 2 and all(map(_language_of_file, names)):
        yield _pair(list(names), config)
        return
    for name in names:
        yield _listing(name, config)


def listing_lines(listing: Listing) -> Iterator[str]:
    """The listing as text."""
    contents = listing.contents
    title = " and ".join(map(shown, listing.names))
    if listing.choices:
        yield f"{title}: {listing.what}"
        yield from (f"  {choice}" for choice in listing.choices)
        return
    unit = "units" if contents.columns and contents.is_bilingual else "rows"
    yield f"{title}: {listing.what}, {contents.n_rows:,} {unit}"
    width = max([6, *(len(name) for name in contents.columns)])
    yield f"  {'column':{width}}  texts"
    yield from (f"  {_plain(name):{width}}  {n:,}" for name, n in contents.columns.items())
    for number, row in enumerate(contents.samples[:N_SAMPLES], 1):
        yield f"  sample {number}"
        yield from (
            f"    {_plain(name):{width}}  {_plain(text)}" for name, text in zip(contents.columns, row, strict=False)
        )
    if contents.n_faults:
        yield f"  rows that cannot be read: {contents.n_faults:,}, such as"
    yield from (f"  {_plain(note)}" for note in contents.notes)
    if len(listing.languages) > 2:
        yield f"  has {len(listing.languages)} languages, of which any two can be trained on."
    yield f"Train on it with: {command_of(listing)}"


def command_of(listing: Listing) -> str:
    """The command that trains on the corpus, with placeholders for what the file does not say."""
    names = list(listing.contents.columns)
    is_one_side = listing.what == _ONE_SIDE
    train = _train([*listing.names, "TRANSLATIONS"] if is_one_side else listing.names)
    if listing.data:
        return f"tfm train data={listing.data} {train}"
    if role_columns(names, has_labels=True) and len(listing.languages) < 2:
        return f"tfm train data=labels {train}"
    if (texts := text_columns(names)) and len(listing.languages) < 2 and not is_one_side:
        return f"tfm train data=text {train} data.columns={as_list([names[texts[0]]])}"
    languages = list(listing.languages)[:2]
    source, target = languages if len(languages) == 2 else (_PLACEHOLDER, _PLACEHOLDER)
    if listing.contents.is_bilingual and len(languages) < 2:  # one that the file does not name
        at = {index: language for language, index in listing.languages.items()}
        source, target = (at.get(side, _PLACEHOLDER) for side in (0, 1))
    command = f"tfm train data=files data.source_lang={source} data.target_lang={target} {train}"
    are_sides = is_one_side or listing.contents.is_bilingual or len(listing.names) == 2 or names == ["0", "1"]
    if are_sides or len(languages) == 2 or role_columns(names, has_labels=False):
        return command
    return f"{command} {shlex.quote(f'data.columns={as_list(names[:2])}')}"


def _listing(name: str, config: DataConfig) -> Listing:
    if names_archive(name):
        return _archive(name, config)
    if (shards := shards_of(name, config, key="--list", is_listed=True)) is not None:
        return (
            _dataset(name, shards, config)
            if shards
            else Listing([name], "a folder", Contents(), choices=listed_folder(name))
        )
    if not Path(name).exists() and (pair := _files_of_prefix(name)):
        return _pair(pair, config)
    file = find_file(name, config, key="--list")
    found = format_by_content(file)
    if found is None:
        if fault := no_corpus(file.head(HEAD_BYTES)):
            raise DataError(f"{shown(name)}: {fault}")
        return _text(name, file, config)
    if not found:
        return _tabs(name, file, config)
    return _of_format(name, CorpusFile(file.path, file.member, found), config)


def _of_format(name: str, file: CorpusFile, config: DataConfig) -> Listing:
    one = FORMATS[str(file.format)]
    contents = one.contents(file.as_source(config.inline_tags))
    return Listing([name], one.what, contents, language_columns(list(contents.columns)), data=one.data)


def _dataset(name: str, shards: Sequence[CorpusFile], config: DataConfig) -> Listing:
    """The files of one dataset, added up."""
    parts = [_of_format(name, shard, config) for shard in shards]
    total = parts[0].contents
    for part in parts[1:]:
        total.n_rows += part.contents.n_rows
        for column, n in part.contents.columns.items():
            total.columns[column] = total.columns.get(column, 0) + n
    files = f"{len(shards)} files" if len(shards) > 1 else "1 file"
    return Listing([name], f"a dataset in {files}, each {parts[0].what}", total, parts[0].languages)


def _archive(name: str, config: DataConfig) -> Listing:
    corpora = corpora_in(name, config)
    if len(corpora) == 1:
        members = [f"{name}::{member}" for member in corpora[0]]
        found = _pair(members, config) if len(members) == 2 else _listing(members[0], config)
        return Listing([name], found.what, found.contents, found.languages)
    choices = [_train([f"{name}::{member}" for member in corpus]) for corpus in corpora]
    what = f"an archive of {len(corpora)} corpora. Name one:" if corpora else "an archive without pairs or tables"
    return Listing([name], what, Contents(), choices=choices or ["Name its files as archive::FILE"])


def _tabs(name: str, file: CorpusFile, config: DataConfig) -> Listing:
    with TemporaryDirectory() as spool:
        skipping = replace(config, on_bad=OnBad.skip)
        [lines] = read_files([file], Path(spool), skipping).values()
        contents = contents_of_rows(Columns(skipping).rows(lines))
    _note_bad(contents, list(lines.bad.values()))
    return Listing([name], "a table with tabs", contents, language_columns(list(contents.columns)))


def _text(name: str, file: CorpusFile, config: DataConfig) -> Listing:
    """The sentences of one side; with the other side, where a file beside it is called so."""
    stem, language = name.rpartition(".")[0], _language_of_file(name)
    if language and len(pair := _files_of_prefix(stem)) == 2:
        return _pair(pair, config)
    contents = _sentences([name], config)
    contents.notes.append("One side of a corpus: name the file of translations after it.")
    return Listing([name], _ONE_SIDE, contents)


def _pair(names: list[str], config: DataConfig) -> Listing:
    languages = {str(_language_of_file(name)): column for column, name in enumerate(names)}
    return Listing(names, "two files of text, a sentence a line", _sentences(names, config), languages)


def _sentences(names: Sequence[str], config: DataConfig) -> Contents:
    files = [find_file(name, config, key="--list") for name in names]
    skipping = replace(config, on_bad=OnBad.skip)
    with TemporaryDirectory() as spool:
        found = read_files(files, Path(spool), skipping)
        sides = [found[file] for file in files]
        contents = Contents(n_rows=max(len(lines) for lines in sides))
        for name, lines in zip(names, sides, strict=True):
            contents.columns[_language_of_file(name) or "text"] = sum(bool(text.strip()) for text in lines.each())
            _note_bad(contents, list(lines.bad.values()))
        for row in islice(zip(*(lines.each() for lines in sides), strict=False), 1000):
            contents.add_sample(row)
    if len({len(lines) for lines in sides}) > 1:
        counts = " and ".join(f"{len(lines):,}" for lines in sides)
        contents.notes.append(f"The files have {counts} lines: they are no pair, line by line.")
    return contents


def _note_bad(contents: Contents, faults: Sequence[str]) -> None:
    contents.n_faults += len(faults)
    contents.notes += faults[:N_SAMPLES]


def _files_of_prefix(prefix: str) -> list[str]:
    """The files that are called by the prefix and a language, in the order of the alphabet, where they are two."""
    path = Path(prefix)
    if not path.parent.is_dir():
        return []
    names = sorted(str(one) for one in path.parent.iterdir() if one.name.startswith(f"{path.name}."))
    found = {name.removeprefix(str(path)).removesuffix(".gz"): name for name in names}
    languages = [name for ending, name in found.items() if _is_language(ending[1:])]
    return languages if len(languages) == 2 else []


def _language_of_file(name: str) -> str | None:
    language = file_language(name.rpartition("::")[2])
    return language if _is_language(language) else None


def _is_language(code: str) -> bool:
    return iso_639_1(code) in NAMES and len(code) < 8


def _train(names: Sequence[str]) -> str:
    """The setting of `data.train` as a shell takes it."""
    listed = as_list(names)
    setting = f"data.train={listed if len(names) > 1 else listed[1:-1]}"
    return shlex.quote(setting)


def _plain(text: str) -> str:
    """A text on one line, without what a terminal would obey."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
