"""The files of a corpus and their lines: decompressed, decoded, and freed of markup.

A file is named by its path, or as `archive.tgz::path/inside`, and found under `data.root`, among the downloads or in
the working folder.
"""

import html
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from transformer_cli.config.data import DataConfig, InlineTags, OnBad
from transformer_cli.data import archive
from transformer_cli.data.compression import ByteSource
from transformer_cli.data.download import downloads_folder
from transformer_cli.data.formats.base import Fault, SourceFile
from transformer_cli.data.lines import NO_SURROGATES, SKIP_HINT, Lines, is_encodable, open_text, read_stream, shown
from transformer_cli.data.registry import FORMATS
from transformer_cli.environment import folder_named
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.logs import LOGGER
from transformer_cli.registry import is_ours, place_of

_ROWS_AT_A_TIME = 10_000  # in memory
_BREAKS = re.compile("\r\n|[\t\r\n]")  # within a field of a table: lines and their fields end so


@dataclass(frozen=True)
class CorpusFile:
    """A path, or the path of an archive and the name of a member; a table has a format, unless it is one with tabs."""

    path: Path
    member: str | None = None
    format: str | None = None  # entry of FORMATS

    def __str__(self) -> str:
        return f"{shown(self.path)}::{shown(self.member)}" if self.member else shown(self.path)

    @property
    def name(self) -> str:
        """The base name without .gz, which determines the markup."""
        return (self.member or self.path.name).rsplit("/", 1)[-1].removesuffix(".gz")

    @property
    def is_marked_up(self) -> bool:
        """WMT's .sgm and IWSLT's .xml: only <seg> elements are text."""
        return self.name.endswith((".sgm", ".xml"))

    @property
    def is_tagged(self) -> bool:
        """IWSLT's training text: titles, speakers and keywords are lines that begin with a tag."""
        return self.name.startswith("train.tags.")

    @property
    def has_markup(self) -> bool:
        return self.is_marked_up or self.is_tagged

    @contextmanager
    def opened(self) -> Iterator[ByteSource]:
        """Open its bytes from the start, decompressed. Raises DataError for a damaged file, at the end of a member."""
        if self.member is None:
            with open_text(self.path) as stream:
                yield stream
            return
        members = archive.open_members(self.path, [self.member])
        yield next(members)[1]
        for _ in members:  # the archive is whole
            pass

    def head(self, size: int) -> bytes:
        """Read its first bytes, decompressed; all of them if they are fewer. Raises DataError."""
        with ExitStack() as stack:
            if self.member is None:
                stream = stack.enter_context(open_text(self.path))
            else:
                _, stream = next(stack.enter_context(closing(archive.open_members(self.path, [self.member]))))
            head = b""
            while len(head) < size and (block := stream.read(size - len(head))):
                head += block
            return head

    def as_source(self, inline_tags: InlineTags = InlineTags.remove) -> SourceFile:
        return SourceFile(str(self), self.path, self.member, self.opened, inline_tags is InlineTags.keep)


# ---- Finding files


def folder(config: DataConfig) -> Path:
    """The folder that relative names of the corpus start from."""
    if config.root is not None:
        return folder_named(config.root)
    return downloads_folder(config) if config.downloads else Path()


def candidates(name: str, config: DataConfig) -> Iterator[CorpusFile]:
    """Possible locations of a file, best first: its name with or without .gz, and in data.root its base name.

    In data.root a member of an archive may also lie unpacked.
    """
    if "://" in name:
        raise ConfigError(f"{shown(name)}: is an address, and files are read. Download it first")
    path, _, member = name.partition("::")
    if member and not path.endswith(archive.SUFFIXES):
        raise ConfigError(f"{name}: only members of {', '.join(archive.SUFFIXES)} can be named. Check the name")
    base = folder(config)
    spellings = [path, path.rsplit("/", 1)[-1]] if config.root is not None else [path]
    if member:
        yield from (CorpusFile(base / spelling, member) for spelling in spellings)
        spellings = [member, member.rsplit("/", 1)[-1]] if config.root is not None else []
    for spelling in spellings:
        yield CorpusFile(base / spelling)
        yield CorpusFile(base / (spelling.removesuffix(".gz") if spelling.endswith(".gz") else f"{spelling}.gz"))


def exists(name: str, config: DataConfig) -> bool:
    return any(file.path.is_file() for file in candidates(name, config))


def find_file(name: str, config: DataConfig, *, key: str) -> CorpusFile:
    """The file called `name`; `key` is the config key that names it. Raises DataError if it is missing."""
    files = list(candidates(name, config))
    for file in files:
        if file.path.exists() or file.path.is_symlink():
            return file
    if config.root is not None:
        raise DataError(f"data.root={shown(config.root)}: holds no {shown(name)}, packed or not. Put it there")
    if config.downloads:
        raise DataError(f"{files[0]}: not downloaded. Run `tfm prepare data={shown(config.name)}`, or set data.root")
    if page := config.trained.page:
        source = f"docs/{page}.md describes where data={shown(config.name)} comes from"
        raise DataError(
            f"{files[0]}: no such file. Correct {key}, or set data.root to the folder that has it ({source})"
        )
    raise DataError(f"{files[0]}: no such file. Correct {key}")


# ---- Reading files


def read_files(files: Sequence[CorpusFile], spool: Path | None, config: DataConfig) -> dict[CorpusFile, Lines]:
    """The sentences of each file, in memory or, if there is a folder `spool`, in files there.

    A row of a table that has a format is a line with tabs between its fields. Each archive is read once for all members
    that are text.
    """
    found: dict[CorpusFile, Lines] = {}
    members: dict[Path, dict[str, CorpusFile]] = {}
    skip_bad = config.on_bad is OnBad.skip

    def read(number: int, file: CorpusFile, stream: ByteSource) -> None:
        spooled = spool / f"{number}.txt" if spool is not None and not file.is_marked_up else None
        after_block = (lambda lines: _sentences(file, lines).spool_to(spooled)) if spooled else None
        hint = "" if file.has_markup else SKIP_HINT
        lines = read_stream(stream, str(file), skip_bad=skip_bad, skip_hint=hint, after_block=after_block)
        _report_lines(file, lines)
        found[file] = lines if after_block else _sentences(file, lines)

    numbers = {file: number for number, file in enumerate(dict.fromkeys(files))}
    for file, number in numbers.items():
        if file.format is not None:
            found[file] = _rows(file, spool and spool / f"{number}.txt", config)
        elif file.member:
            members.setdefault(file.path, {})[file.member] = file
        else:
            with open_text(file.path) as stream:
                read(number, file, stream)
    for path, wanted in members.items():
        for name, stream in archive.open_members(path, wanted):
            read(numbers[wanted[name]], wanted[name], stream)
    return found


def _rows(file: CorpusFile, spooled: Path | None, config: DataConfig) -> Lines:
    """The rows of a table as lines, with tabs between their fields."""
    lines = Lines(str(file), skip_bad=config.on_bad is OnBad.skip, is_decoded=True)
    one = FORMATS[str(file.format)]
    table = one.table(file.as_source(config.inline_tags), config)
    lines.columns = table.columns
    for index, row in enumerate(table.rows):
        fault = row if isinstance(row, Fault) else None
        try:
            text = "" if fault is not None else "\t".join(map(_on_one_line, row))
        except TypeError:
            if is_ours(one):
                raise
            raise DataError(f"{file}: {place_of(one)}: gives {row!r:.80}, not a list of texts. Correct it") from None
        if fault is None and not is_encodable(text):
            fault = Fault(f"row {index + 1:,}", NO_SURROGATES, "Correct the row")
        if fault is not None:
            lines.reject_at(index, f": {fault.place}", fault.what, fault.remedy)
            text = ""
        lines.texts.append(text)
        lines.n_read += 1
        if spooled is not None and len(lines.texts) == _ROWS_AT_A_TIME:
            lines.spool_to(spooled)
    if spooled is not None and lines.texts:
        lines.spool_to(spooled)
    return lines


def _on_one_line(field: str) -> str:
    return _BREAKS.sub(" ", field)


def _report_lines(file: CorpusFile, lines: Lines) -> None:
    """Log that lines end in \\r\\n. Raises DataError for bad lines between markup, which cannot be skipped."""
    if lines.n_crlf:
        LOGGER.info("%s: %s lines end in \\r\\n; the \\r was left out", file, f"{lines.n_crlf:,}")
    for fault in lines.bad.values() if file.has_markup else ():
        raise DataError(f"{fault}. Convert the file to UTF-8: lines between markup cannot be skipped")


def _sentences(file: CorpusFile, lines: Lines) -> Lines:
    """`lines`, with markup removed from its texts."""
    if file.is_marked_up:
        lines.texts = _segments(lines)
    elif file.is_tagged:
        lines.texts = [text.strip(" ") for text in lines.texts if not text.startswith("<")]
    return lines


def _segments(lines: Lines) -> list[str]:
    """The <seg> elements of WMT's .sgm and IWSLT's .xml, neither of which is always well-formed XML."""
    segments = re.findall(r"<seg\b[^>]*>(.*?)</seg>", "\n".join(lines.texts), flags=re.DOTALL | re.IGNORECASE)
    if not segments:
        raise DataError(f"{lines.name}: has no <seg> elements. Is it the right file?")
    return [html.unescape(re.sub(r"[ \t\n]+", " ", text).strip(" ")) for text in segments]
