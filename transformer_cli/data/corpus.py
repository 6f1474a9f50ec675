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

from transformer_cli.data import archive, demo
from transformer_cli.data.download import downloads_folder
from transformer_cli.data.lines import ByteSource, Lines, open_text, read_stream, shown
from transformer_cli.environment import folder_named
from transformer_cli.errors import ConfigError, DataError, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.registry import Registry
from transformer_cli.schema import DataConfig, OnBad, Task

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
    n_bad: int = 0  # pairs left out because a line of them was not UTF-8

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
    line that is not UTF-8 are left out, if `data.on_bad` says so.
    """
    if config.builtin is not None:
        corpus = GENERATORS[config.builtin]()
        pairs = getattr(corpus, split)
        return ParallelText([source for source, _ in pairs], [target for _, target in pairs])
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
    task: Task = Task.translation

    @property
    def n_bad(self) -> int:
        return sum(len(_bad(unit)) for unit in self.units)

    @property
    def sizes(self) -> list[int]:
        """Pairs of each corpus that it is made of."""
        return [len(unit[0]) - len(_bad(unit)) for unit in self.units]

    def each(self) -> Iterator[tuple[str, str]]:
        """The pairs in their order. Raises DataError for lines that are no pair."""
        read = {
            Task.translation: lambda *unit: _tab_separated(*unit) if len(unit) == 1 else _aligned(*unit),
            Task.classification: _labelled,
            Task.language_model: _plain,
        }
        for unit in self.units:
            yield from read[self.task](*unit)


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
    if isinstance(spec, str) and not _is_tsv(spec):
        if not _exists(f"{spec}.{config.source_lang}", config):
            how = f"Name two files, as in {key}=[corpus.en,corpus.de], or a .tsv file of source<TAB>target lines"
            if _exists(spec, config):
                raise ConfigError(f"{key}={shown(spec)}: one file, which is not .tsv. {how}")
            if config.root is None and not config.downloads:
                missing = shown(f"{spec}.{config.source_lang}")
                raise DataError(f"{key}={shown(spec)}: no such file, and no {missing} either. {how}")
        spec = [f"{spec}.{config.source_lang}", f"{spec}.{config.target_lang}"]
    names = [spec] if isinstance(spec, str) else spec
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"{key}={spec}: names no files. Name two, as in {key}=[corpus.en,corpus.de]")
    units: list[tuple[Place, ...]] = []
    rest = iter(names)
    for name in rest:
        if _is_tsv(name):
            units.append((_find(name, config, key=key),))
            continue
        other = next(rest, None)
        if other is None or _is_tsv(other):
            raise ConfigError(f"{key}: {name} has no file of translations after it. Name files in pairs, source first")
        units.append((_find(name, config, key=key), _find(other, config, key=key)))
    return units


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
    text = KeptText([tuple(texts[place] for place in unit) for unit in units], config.task)
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


def _tab_separated(lines: Lines) -> Iterator[tuple[str, str]]:
    for index, line in enumerate(lines.each()):
        if index in lines.bad:
            continue
        line = line or "\t"  # an empty line is an empty pair, as it is in two files
        if line.count("\t") != 1:
            raise DataError(
                f"{lines.name}:{index + 1}: {line.count(chr(9))} tabs, must be one, between source and target:"
                f" {quoted(line)}. Correct the line"
            )
        source, target = line.split("\t")
        yield source, target


def _labelled(lines: Lines) -> Iterator[tuple[str, str]]:
    """Text and label of each line; a tab after the first one is white space of the text."""
    for index, line in enumerate(lines.each()):
        if index in lines.bad:
            continue
        label, tab, text = line.partition("\t")
        if line and not (tab and label.strip()):
            raise DataError(
                f"{lines.name}:{index + 1}: {'no label before the tab' if tab else 'no tab between label and text'}:"
                f" {quoted(line)}. Write label<TAB>text"
            )
        yield text, label.strip()


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
    """Say how many pairs were dropped for lines that are not UTF-8, and name the first ten."""
    if len(unit) > 1 and unit[0].name == unit[1].name:
        LOGGER.warning("%s: is both source and target; a model of it learns to copy", unit[0].name)
    faults = [fault for lines in unit for fault in lines.bad.values()]
    if faults:
        first = "; ".join(faults[:10]) + ("; …" if len(faults) > 10 else "")
        LOGGER.warning("%s pairs dropped, their lines are not UTF-8: %s", f"{len(_bad(unit)):,}", first)


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
