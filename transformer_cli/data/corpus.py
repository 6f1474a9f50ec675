"""The text that a config names: files, tab-separated files, members of archives, or a generator of our own.

It is always pairs. What is classified is paired with its label, and text for a language model with itself.

Files are unpacked and decoded block by block. Dev and test text is then held in memory; training text lies unpacked
in a folder, and is gone through as often as it is needed.
"""

import hashlib
import heapq
import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from transformer_cli.config.data import DataConfig, OnBad, Task
from transformer_cli.data import archive, demo
from transformer_cli.data.download import downloads_folder
from transformer_cli.data.lines import ByteSource, Lines, open_text, read_stream, shown
from transformer_cli.data.tables import check_columns, has_tabs, is_table, row_reader
from transformer_cli.environment import folder_named
from transformer_cli.errors import ConfigError, DataError, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.registry import Registry

Split = Literal["train", "dev", "test"]
_HELD_OUT: tuple[Split, ...] = ("dev", "test")

MAX_HELD_OUT = 0.05  # of the pairs, in each of dev and test
MANY_COPIES = 0.3  # share of pairs whose sides are equal, above which the files look like the same text twice

_WANTED = {
    Task.translation: "two text files, as in data.train=[corpus.en,corpus.de]",
    Task.classification: "a table of label<TAB>text, as in data.train=train.tsv",
    Task.language_model: "a text file, as in data.train=corpus.txt",
}

GENERATORS: Registry[Callable[[], demo.DemoCorpus]] = Registry("built-in corpus")


@GENERATORS.register("demo_en_fr")
@cache
def _demo_en_fr() -> demo.DemoCorpus:
    return demo.generate()


@dataclass
class ParallelText:
    """Sentences and their translations; line i of one is line i of the other."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    n_bad: int = 0  # pairs left out because a line of them could not be read

    def __post_init__(self) -> None:
        assert len(self.sources) == len(self.targets)

    def __len__(self) -> int:
        return len(self.sources)

    def each(self) -> Iterator[tuple[str, str]]:
        return zip(self.sources, self.targets, strict=True)

    @property
    def sizes(self) -> list[int]:
        """Pairs of each corpus that it is made of."""
        return [len(self)]

    def pick(self, indices: Iterable[int]) -> "ParallelText":
        """The pairs at `indices`, in their order."""
        indices = list(indices)
        return ParallelText([self.sources[i] for i in indices], [self.targets[i] for i in indices], self.n_bad)


@dataclass(frozen=True)
class Place:
    """Where a file of a corpus is: a path, or an archive and the name of a member."""

    path: Path
    member: str | None = None

    def __str__(self) -> str:
        return f"{shown(self.path)}::{shown(self.member)}" if self.member else shown(self.path)

    @property
    def name(self) -> str:
        """The base name, which tells the format."""
        return (self.member or self.path.name).rsplit("/", 1)[-1].removesuffix(".gz")

    @property
    def is_marked_up(self) -> bool:
        """WMT's .sgm and IWSLT's .xml: only <seg> elements are text."""
        return self.name.endswith((".sgm", ".xml"))

    @property
    def is_tagged(self) -> bool:
        """IWSLT's training text: titles, speakers and keywords are lines that begin with a tag."""
        return self.name.startswith("train.tags.")


def load_text(config: DataConfig, split: Split) -> ParallelText | None:
    """The pairs of a split as they are in its files; None if the config names none. Raises DataError, ConfigError.

    Nothing is cleaned: blank lines stay, so that dev and test keep the numbering of their files. Only pairs with a
    line that is not UTF-8 or has too few columns are left out, if `data.on_bad` says so.
    """
    if config.builtin is not None:
        corpus = GENERATORS[config.builtin]()
        sides = list(map(list, zip(*getattr(corpus, split), strict=True)))
        return ParallelText(*(reversed(sides) if config.is_swapped else sides))
    spec = getattr(config, split)
    if spec is None:
        if split == "train":
            raise ConfigError(f"data.train: not set. Name {_WANTED[config.task]}")
        return None
    return _in_memory(_read(spec, config, split))


def _in_memory(text: "ParallelText | KeptText") -> ParallelText:
    pairs = list(text.each())
    return ParallelText([source for source, _ in pairs], [target for _, target in pairs], text.n_bad)


def stream_text(config: DataConfig, spool: Path) -> "ParallelText | KeptText":
    """What `load_text` gives of the training split, without holding it in memory: it is kept in the folder `spool`."""
    if config.builtin is not None or config.train is None:
        text = load_text(config, "train")
        assert text is not None
        return text
    return _read(config.train, config, "train", spool)


@dataclass(frozen=True)
class KeptText:
    """Text in files of our own: one that holds pairs, or source and target, for each that the config names."""

    units: list[tuple[Lines, ...]]
    config: DataConfig

    @property
    def n_bad(self) -> int:
        return sum(len(_bad(unit)) for unit in self.units)

    @property
    def sizes(self) -> list[int]:
        """Pairs of each corpus that it is made of."""
        return [len(unit[0]) - len(_bad(unit)) for unit in self.units]

    def each(self) -> Iterator[tuple[str, str]]:
        """The pairs in their order. Raises DataError for lines that are no pair, unless they are to be skipped."""
        for unit in self.units:
            if len(unit) == 2:
                yield from _aligned(*unit)
            elif self.config.task is Task.language_model:
                yield from _plain(*unit)
            else:
                yield from _table(unit[0], self.config)


def input_files(config: DataConfig, split: Split) -> list[Path]:
    """The files that `load_text` would read, each once: their content decides whether a cache is still good."""
    spec = getattr(config, split)
    if config.builtin is not None or spec is None:
        return []
    units = _parse(spec, config, key=f"data.{split}")
    return list(dict.fromkeys(place.path for unit in units for place in unit))


def check_weights(config: DataConfig) -> None:
    """Raise ConfigError if `data.weights` does not have one for each corpus that the training split names."""
    if not config.weights:
        return
    n_corpora = len(_parse(config.train, config, key="data.train")) if config.train is not None else 1
    if len(config.weights) != n_corpora:
        raise ConfigError(
            f"data.weights={config.weights}: {len(config.weights)} weights, but data.train names {n_corpora} corpora."
            " Give a weight to each pair of files and each table"
        )


def check_columns_are_read(config: DataConfig) -> None:
    """Raise ConfigError if `data.columns` is set and no split names a table."""
    if not config.columns:
        return
    specs = {f"data.{split}": getattr(config, split) for split in ("train", *_HELD_OUT)}
    units = [unit for key, spec in specs.items() if spec is not None for unit in _parse(spec, config, key=key)]
    if all(len(unit) == 2 for unit in units):
        raise ConfigError(f"data.columns={config.columns}: no table is named, but files of one side each. Leave it out")


# ---- Which files


def _parse(spec: object, config: DataConfig, *, key: str) -> list[tuple[Place, ...]]:
    """The files a split names: (file that holds pairs,) or (source file, target file), once or more."""
    if config.task is not Task.translation:
        names = [spec] if isinstance(spec, str) else spec
        if (
            not isinstance(names, list | tuple)
            or not names
            or not all(isinstance(name, str) and name for name in names)
        ):
            raise ConfigError(f"{key}={spec}: names no files. Name {_WANTED[config.task]}")
        return [(_find(name, config, key=key),) for name in names]
    if isinstance(spec, str) and not _is_table(spec, config):
        spec = _files_of_prefix(spec, config, key=key)
    names = [spec] if isinstance(spec, str) else spec
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{key}={spec}: names no files. Name two, as in {key}=[corpus.en,corpus.de]")
    is_alone = len(names) == 1
    units: list[tuple[Place, ...]] = []
    rest = iter(names)
    for name in rest:
        if _is_tsv(name) or (is_alone and _is_table(name, config)):
            units.append((_find(name, config, key=key),))
            continue
        other = next(rest, None)
        if other is None or _is_tsv(other):
            raise ConfigError(f"{key}: {name} has no file of translations after it. Name files in pairs, source first")
        places = _find(name, config, key=key), _find(other, config, key=key)
        units.append(places[::-1] if config.is_swapped else places)
        _refuse_other_direction(units[-1], config, key=key)
    return units


def _files_of_prefix(prefix: str, config: DataConfig, *, key: str) -> list[str]:
    """The two files that `prefix` stands for. Raises ConfigError and DataError for what is no prefix."""
    names = [f"{prefix}.{language}" for language in config.languages or (config.source_lang, config.target_lang)]
    if not _exists(names[0], config):
        how = f"Name two files, as in {key}=[corpus.en,corpus.de], or a table of source<TAB>target lines"
        if _exists(prefix, config):
            raise ConfigError(f"{key}={shown(prefix)}: one file, without tabs in its first lines. {how}")
        if config.root is None and not config.downloads:
            raise DataError(f"{key}={shown(prefix)}: no such file, and no {shown(names[0])} either. {how}")
    return names


def _is_table(name: str, config: DataConfig) -> bool:
    """Whether a file that is named alone holds pairs: by its name, or by the tabs in it. A prefix names other files."""
    if _is_tsv(name):
        return True
    place = next((place for place in _candidates(name, config) if place.path.is_file()), None)
    if place is None or (place.member is None and _exists(f"{name}.{config.source_lang}", config)):
        return False
    status = place.path.stat()
    return _holds_tabs(place, (status.st_size, status.st_mtime_ns))


@cache
def _holds_tabs(place: Place, version: tuple[int, int]) -> bool:
    """Whether a file has tabs; of an archive, which is gone through, once for each `version` of it."""
    if place.member is None:
        with open_text(place.path) as stream:
            return has_tabs(stream)
    try:
        return any([has_tabs(stream) for _, stream in archive.open_members(place.path, [place.member])])
    except DataError:  # as of a prefix of members, which is not there itself; what is wrong is told when it is read
        return False


_NOT_LANGUAGES = (".gz", ".sgm", ".xml", ".txt")  # that come after the language in the names of files


def _refuse_other_direction(unit: tuple[Place, ...], config: DataConfig, *, key: str) -> None:
    """Raise ConfigError if the endings of the files tell that one is the side that the other is declared to be."""
    declared = [config.source_lang.lower(), config.target_lang.lower()]
    told = [_ending(place.name) for place in unit]
    if declared[0] == declared[1] or told[0] == told[1]:
        return
    if declared[0] == told[1] or declared[1] == told[0]:
        names = " and ".join(quoted(place.name) for place in unit)
        raise ConfigError(
            f"{key}: {names} are named as the other sides of data.source_lang={config.source_lang}"
            f" data.target_lang={config.target_lang}. Name the file of {config.source_lang} first, or exchange the two"
            " keys"
        )


def _ending(name: str) -> str:
    name = name.lower()
    while name.endswith(_NOT_LANGUAGES):
        name = name.rpartition(".")[0]
    return name.rpartition(".")[2]


def _is_tsv(name: str) -> bool:
    return name.removesuffix(".gz").endswith(".tsv")


def folder(config: DataConfig) -> Path:
    """Where relative names of the corpus start."""
    if config.root is not None:
        return folder_named(config.root)
    return downloads_folder(config) if config.downloads else Path()


def _candidates(name: str, config: DataConfig) -> Iterator[Place]:
    """Where a file may be, best first: under its name, with or without .gz, and in data.root under its base name.

    In data.root a member of an archive may also lie unpacked.
    """
    path, _, member = name.partition("::")
    if member and not path.endswith(archive.SUFFIXES):
        raise ConfigError(f"{name}: only members of {', '.join(archive.SUFFIXES)} can be named. Check the name")
    base = folder(config)
    spellings = [path, path.rsplit("/", 1)[-1]] if config.root is not None else [path]
    if member:
        yield from (Place(base / spelling, member) for spelling in spellings)
        spellings = [member, member.rsplit("/", 1)[-1]] if config.root is not None else []
    for spelling in spellings:
        yield Place(base / spelling)
        yield Place(base / (spelling.removesuffix(".gz") if spelling.endswith(".gz") else f"{spelling}.gz"))


def _exists(name: str, config: DataConfig) -> bool:
    return any(place.path.is_file() for place in _candidates(name, config))


def _find(name: str, config: DataConfig, *, key: str) -> Place:
    places = list(_candidates(name, config))
    for place in places:
        if place.path.exists() or place.path.is_symlink():
            return place
    if config.root is not None:
        raise DataError(f"data.root={shown(config.root)}: holds no {shown(name)}, packed or not. Put it there")
    if config.downloads:
        raise DataError(f"{places[0]}: not downloaded. Run `tfm prepare data={shown(config.name)}`, or set data.root")
    if config.task is Task.classification:
        told = f"docs/classifying.md tells where data={shown(config.name)} comes from"
        raise DataError(
            f"{places[0]}: no such file. Correct {key}, or set data.root to the folder that has it ({told})"
        )
    raise DataError(f"{places[0]}: no such file. Correct {key}")


# ---- What is in them


def _read(spec: object, config: DataConfig, split: Split, spool: Path | None = None) -> KeptText:
    """The files that a split names; their lines are kept in the folder `spool` if there is one."""
    key = f"data.{split}"
    units = _parse(spec, config, key=key)
    places = list(dict.fromkeys(place for unit in units for place in unit))
    kept_in = {place: spool / f"{number}.txt" for number, place in enumerate(places)} if spool is not None else {}
    texts = _read_all(places, kept_in, skip_bad=config.on_bad is OnBad.skip)
    text = KeptText([tuple(texts[place] for place in unit) for unit in units], config)
    for unit in text.units:
        if len(unit) == 1 and config.task is not Task.language_model:
            check_columns(unit[0], config)
    n_pairs = n_copies = 0
    for source, target in text.each():
        n_pairs += 1
        n_copies += source == target != "" and config.task is not Task.language_model
    for unit in text.units:
        _report_bad(unit)
    if n_copies > MANY_COPIES * n_pairs:
        share = f"{n_copies / n_pairs:.0%}"
        LOGGER.warning("%s: source and target are equal in %s of the pairs; is one file named twice?", key, share)
    return text


def _read_all(places: Sequence[Place], kept_in: dict[Place, Path], *, skip_bad: bool) -> dict[Place, Lines]:
    """The sentences of every file; each archive is gone through once."""
    texts: dict[Place, Lines] = {}
    members: dict[Path, dict[str, Place]] = {}

    def read(place: Place, stream: ByteSource) -> None:
        kept = kept_in.get(place)
        after_block = (
            (lambda lines: _sentences(place, lines).keep_in(kept)) if kept and not place.is_marked_up else None
        )
        hint = _skip_hint(place)
        lines = read_stream(stream, str(place), skip_bad=skip_bad, skip_hint=hint, after_block=after_block)
        _report_lines(place, lines)
        texts[place] = lines if after_block else _sentences(place, lines)

    for place in places:
        if place.member:
            members.setdefault(place.path, {})[place.member] = place
        else:
            with open_text(place.path) as stream:
                read(place, stream)
    for path, wanted in members.items():
        for name, stream in archive.open_members(path, wanted):
            read(wanted[name], stream)
    return texts


def _skip_hint(place: Place) -> str:
    return "" if place.is_marked_up or place.is_tagged else ", or drop such pairs with data.on_bad=skip"


def _report_lines(place: Place, lines: Lines) -> None:
    """Say what is odd about all the lines of a file. Raises DataError where what is bad cannot be skipped."""
    if lines.n_crlf:
        LOGGER.info("%s: %s lines end in \\r\\n; the \\r was left out", place, f"{lines.n_crlf:,}")
    for fault in lines.bad.values() if place.is_marked_up or place.is_tagged else ():
        raise DataError(f"{fault}. Convert the file to UTF-8: lines between markup cannot be skipped")


def _sentences(place: Place, lines: Lines) -> Lines:
    """`lines` with only the sentences among its texts, by the format that the file's name tells."""
    if place.is_marked_up:
        lines.texts = _segments(lines)
    elif place.is_tagged:
        lines.texts = [text.strip(" ") for text in lines.texts if not text.startswith("<")]
    return lines


def _segments(lines: Lines) -> list[str]:
    """The <seg> elements of WMT's .sgm and IWSLT's .xml, neither of which is always well-formed."""
    found = re.findall(r"<seg\b[^>]*>(.*?)</seg>", "\n".join(lines.texts), flags=re.DOTALL | re.IGNORECASE)
    if not found:
        raise DataError(f"{lines.name}: has no <seg> elements. Is it the right file?")
    return [html.unescape(re.sub(r"[ \t\n]+", " ", text).strip(" ")) for text in found]


def _table(lines: Lines, config: DataConfig) -> Iterator[tuple[str, str]]:
    """The pairs of a table. Lines that are none are kept in mind, or raise DataError where they are not skipped."""
    read = row_reader(config)
    for index, line in enumerate(lines.each()):
        if index in lines.bad:
            continue
        row = read(line)
        if not isinstance(row, str):
            yield row
        elif config.on_bad is OnBad.skip:
            lines.bad[index] = f"{lines.name}:{index + 1}: {row.rpartition('. ')[0]}"
        else:
            raise DataError(f"{lines.name}:{index + 1}: {row}")


def _plain(lines: Lines) -> Iterator[tuple[str, str]]:
    for index, line in enumerate(lines.each()):
        if index not in lines.bad:
            yield line, line


def _aligned(sources: Lines, targets: Lines) -> Iterator[tuple[str, str]]:
    if len(sources) != len(targets):
        raise DataError(
            f"{targets.name}: has {len(targets):,} lines, {sources.name} {len(sources):,}."
            " Make line i of one the translation of line i of the other"
        )
    bad = _bad((sources, targets))
    for index, pair in enumerate(zip(sources.each(), targets.each(), strict=True)):
        if index not in bad:
            yield pair


def _bad(unit: Sequence[Lines]) -> set[int]:
    return {index for lines in unit for index in lines.bad}


def _report_bad(unit: Sequence[Lines]) -> None:
    """Say how many pairs were dropped for lines that cannot be read, and name the first ten."""
    if len(unit) > 1 and unit[0].name == unit[1].name:
        LOGGER.warning("%s: is both source and target; a model of it learns to copy", unit[0].name)
    elif len(unit) > 1 and all(is_table(lines) for lines in unit):
        names = " and ".join(lines.name for lines in unit)
        LOGGER.warning("%s: both have tabs in their first lines. If they are tables, call them .tsv", names)
    faults = [fault for lines in unit for fault in lines.bad.values()]
    if faults:
        first = "; ".join(faults[:10]) + ("; …" if len(faults) > 10 else "")
        LOGGER.warning("%s pairs dropped, their lines cannot be read: %s", f"{len(_bad(unit)):,}", first)


# ---- Dev and test text where none is named


@dataclass
class HeldOut:
    """Pairs that were taken out of the training text, and how many pairs that leaves no use for."""

    text: ParallelText = field(default_factory=ParallelText)
    sources: frozenset[str] = frozenset()  # stripped; no training pair may have one of them
    n_before: int = 0  # pairs that there were to take them from


@dataclass
class Splits:
    """All the text of a corpus. `train` is not cleaned yet, and still has the pairs whose source is in `held_out`.

    Where there is too little to hold any out, `dev` is the training text itself.
    """

    train: "ParallelText | KeptText"
    dev: ParallelText
    test: ParallelText | None
    held: dict[Split, HeldOut] = field(default_factory=dict)

    @property
    def held_out(self) -> frozenset[str]:
        return frozenset().union(*(held.sources for held in self.held.values()))

    def notes(self, n_left: int) -> Iterator[str]:
        """What was held out, when `n_left` pairs of the training text are left."""
        counts = [*(held.n_before for held in self.held.values()), n_left]
        for (split, held), n_after in zip(self.held.items(), counts[1:], strict=True):
            if len(held.text):
                others = f"{held.n_before - n_after - len(held.text):,} others of the same source sentences left out"
                yield f"{len(held.text):,} pairs held out of the training text as {split}; {others}"


def load_splits(config: DataConfig, spool: Path) -> Splits:
    """Load the named splits, and hold out from the training text those that are not named.

    The training text is kept in files in the folder `spool`.
    """
    train = stream_text(config, spool)
    named = {split: load_text(config, split) for split in _HELD_OUT}
    splits = Splits(train, dev=ParallelText(), test=None)
    for split, text in named.items():
        if text is None:
            held = hold_out(train, config.holdout, config.seed, split=split, without=splits.held_out)
            splits.held[split] = held
            named[split] = held.text if len(held.text) else None
    dev, splits.test = named["dev"], named["test"]
    splits.dev = dev if dev is not None else _in_memory(train)
    return splits


def hold_out(
    text: "ParallelText | KeptText",
    n: int,
    seed: int,
    *,
    split: Split = "dev",
    without: frozenset[str] = frozenset(),
) -> HeldOut:
    """Choose held-out pairs of the training text: `n` of them, at most 5 %, at least one.

    A held-out source sentence is in no training pair: its other translations are dropped. Blank pairs are not held
    out, nor those whose source is in `without`. Nothing is held out of fewer than four different sources. Whether a
    source comes before another depends on the two, `seed` and `split` alone, so that little changes when the corpus
    grows or is filtered.
    """
    n_pairs = 0
    different: set[str] = set()  # more than twice `n` need not be told apart
    found: dict[str, tuple[int, str, str]] = {}  # the n sources of lowest rank so far, with the first pair of each
    ranks: list[tuple[int, str]] = []  # of these, negative: the highest comes first
    for source, target in text.each():
        key = source.strip()
        if key in without:
            continue
        n_pairs += 1
        if not key or not target.strip():
            continue
        if len(different) < 2 * n + 4:
            different.add(key)
        rank = -int.from_bytes(hashlib.blake2b(f"{seed} {split}\n{key}".encode()).digest())
        if (len(ranks) < n or rank > ranks[0][0]) and key not in found:
            found[key] = (n_pairs, source, target)
            heapq.heappush(ranks, (rank, key))
            if len(ranks) > n:
                del found[heapq.heappop(ranks)[1]]
    if len(different) < 4:
        return HeldOut(n_before=n_pairs)
    n_held = min(n, max(1, int(MAX_HELD_OUT * n_pairs)), len(different) // 2)
    chosen = [key for _, key in heapq.nlargest(n_held, ranks)]
    pairs = sorted(found[key] for key in chosen)
    held = ParallelText([source for _, source, _ in pairs], [target for _, _, target in pairs])
    return HeldOut(held, frozenset(chosen), n_pairs)


def text_sha256(text: ParallelText) -> str:
    """SHA-256 of the pairs, whatever files they came from."""
    digest = hashlib.sha256()
    for lines in (text.sources, text.targets):
        for start in range(0, len(lines), 10_000):
            digest.update("\n".join([*lines[start : start + 10_000], ""]).encode())
        digest.update(b"\n")
    return digest.hexdigest()
