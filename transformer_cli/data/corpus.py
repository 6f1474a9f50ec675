"""Parallel text as a config names it: files, tab-separated files, members of archives, or a generator of our own.

Files are unpacked and decoded block by block; their lines are then held in memory, all of a split at once.
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
from transformer_cli.data.lines import Lines, read_lines, read_stream, shown
from transformer_cli.environment import folder_named
from transformer_cli.errors import ConfigError, DataError, quoted
from transformer_cli.logs import LOGGER
from transformer_cli.registry import Registry
from transformer_cli.schema import DataConfig, OnBad

Split = Literal["train", "dev", "test"]

MAX_HELD_OUT = 0.05  # of the pairs, in each of dev and test
MANY_COPIES = 0.3  # share of pairs whose sides are equal, above which the files look like the same text twice

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
            raise ConfigError("data.train: not set. Name two text files, as in data.train=[corpus.en,corpus.de]")
        return None
    units = _parse(spec, config, key=f"data.{split}")
    texts = _read_all([place for unit in units for place in unit], skip_bad=config.on_bad is OnBad.skip)
    text = ParallelText()
    for unit in units:
        _append(text, _tab_separated(texts[unit[0]]) if len(unit) == 1 else _aligned(texts[unit[0]], texts[unit[1]]))
    _warn_of_copies(text, key=f"data.{split}")
    return text


def input_files(config: DataConfig, split: Split) -> list[Path]:
    """The files that `load_text` would read, each once: their content decides whether a cache is still good."""
    spec = getattr(config, split)
    if config.builtin is not None or spec is None:
        return []
    units = _parse(spec, config, key=f"data.{split}")
    return list(dict.fromkeys(place.path for unit in units for place in unit))


# ---- Which files


def _parse(spec: object, config: DataConfig, *, key: str) -> list[tuple[Place, ...]]:
    """The files a split names: (tab-separated file,) or (source file, target file), once or more."""
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
    raise DataError(f"{places[0]}: no such file. Correct {key}")


# ---- What is in them


def _read_all(places: Sequence[Place], *, skip_bad: bool) -> dict[Place, Lines]:
    """The sentences of every file; each archive is gone through once."""
    texts: dict[Place, Lines] = {}
    members: dict[Path, dict[str, Place]] = {}
    for place in places:
        if place.member:
            members.setdefault(place.path, {})[place.member] = place
        else:
            lines = read_lines(place.path, skip_bad=skip_bad, skip_hint=_skip_hint(place))
            texts[place] = _sentences(place, lines)
    for path, wanted in members.items():
        for name, stream in archive.open_members(path, wanted):
            place = wanted[name]
            lines = read_stream(stream, str(place), skip_bad=skip_bad, skip_hint=_skip_hint(place))
            texts[place] = _sentences(place, lines)
    return texts


def _skip_hint(place: Place) -> str:
    return "" if place.is_marked_up or place.is_tagged else ", or drop such pairs with data.on_bad=skip"


def _sentences(place: Place, lines: Lines) -> Lines:
    """The sentences among the lines of a file, by the format that its name tells."""
    if lines.n_crlf:
        LOGGER.info("%s: %s lines end in \\r\\n; the \\r was left out", place, f"{lines.n_crlf:,}")
    for fault in lines.bad.values() if place.is_marked_up or place.is_tagged else ():
        raise DataError(f"{fault}. Convert the file to UTF-8: lines between markup cannot be skipped")
    if place.is_marked_up:
        return _segments(lines)
    if place.is_tagged:
        return Lines(lines.name, [text.strip(" ") for text in lines.texts if not text.startswith("<")])
    return lines


def _segments(lines: Lines) -> Lines:
    """The <seg> elements of WMT's .sgm and IWSLT's .xml, neither of which is always well-formed."""
    found = re.findall(r"<seg\b[^>]*>(.*?)</seg>", "\n".join(lines.texts), flags=re.DOTALL | re.IGNORECASE)
    if not found:
        raise DataError(f"{lines.name}: has no <seg> elements. Is it the right file?")
    return Lines(lines.name, [html.unescape(re.sub(r"[ \t\n]+", " ", text).strip(" ")) for text in found])


def _tab_separated(lines: Lines) -> ParallelText:
    text = ParallelText()
    for index, line in enumerate(lines.texts):
        if index in lines.bad:
            continue
        line = line or "\t"  # an empty line is an empty pair, as it is in two files
        if line.count("\t") != 1:
            raise DataError(
                f"{lines.name}:{index + 1}: {line.count(chr(9))} tabs, must be one, between source and target:"
                f" {quoted(line)}. Correct the line"
            )
        source, target = line.split("\t")
        text.sources.append(source)
        text.targets.append(target)
    _report_bad([lines], n_pairs=len(lines.bad))
    text.n_bad = len(lines.bad)
    return text


def _aligned(sources: Lines, targets: Lines) -> ParallelText:
    if len(sources) != len(targets):
        raise DataError(
            f"{targets.name}: has {len(targets):,} lines, {sources.name} {len(sources):,}."
            " Make line i of one the translation of line i of the other"
        )
    if sources.name == targets.name:
        LOGGER.warning("%s: is both source and target; a model of it learns to copy", sources.name)
    bad = sources.bad.keys() | targets.bad.keys()
    if not bad:
        return ParallelText(sources.texts, targets.texts)
    _report_bad([sources, targets], n_pairs=len(bad))
    text = ParallelText(sources.texts, targets.texts).pick(i for i in range(len(sources)) if i not in bad)
    text.n_bad = len(bad)
    return text


def _report_bad(files: list[Lines], *, n_pairs: int) -> None:
    """Say how many pairs were dropped for lines that are not UTF-8, and name the first ten."""
    faults = [fault for lines in files for fault in lines.bad.values()]
    if faults:
        first = "; ".join(faults[:10]) + ("; …" if len(faults) > 10 else "")
        LOGGER.warning("%s pairs dropped, their lines are not UTF-8: %s", f"{n_pairs:,}", first)


def _append(text: ParallelText, more: ParallelText) -> None:
    text.sources += more.sources
    text.targets += more.targets
    text.n_bad += more.n_bad


def _warn_of_copies(text: ParallelText, *, key: str) -> None:
    copies = sum(source == target for source, target in zip(text.sources, text.targets, strict=True) if source)
    if copies > MANY_COPIES * len(text):
        share = f"{copies / len(text):.0%}"
        LOGGER.warning("%s: source and target are equal in %s of the pairs; is one file named twice?", key, share)


# ---- Dev and test text where none is named


@dataclass
class Splits:
    """All the text of a corpus. `train` is not cleaned yet; `notes` say what was held out of it.

    Where there is too little to hold any out, `dev` is `train` itself.
    """

    train: ParallelText
    dev: ParallelText
    test: ParallelText | None
    notes: list[str] = field(default_factory=list)


def load_splits(config: DataConfig) -> Splits:
    """Load the named splits, and hold out from the training text those that are not named."""
    everything, dev, test = (load_text(config, split) for split in ("train", "dev", "test"))
    assert everything is not None
    train, notes = everything, []
    if dev is None:
        train, dev = hold_out(everything, config.holdout, config.seed, split="dev")
        notes += _note(everything, train, dev, "dev")
        dev = dev if len(dev) else train
    if test is None:
        before = train
        train, test = hold_out(before, config.holdout, config.seed, split="test")
        notes += _note(before, train, test, "test")
    return Splits(train, dev, test if len(test) else None, notes)


def _note(before: ParallelText, kept: ParallelText, held: ParallelText, split: Split) -> list[str]:
    others = f"{len(before) - len(kept) - len(held):,} others of the same source sentences left out"
    return [f"{len(held):,} pairs held out of the training text as {split}; {others}"] if len(held) else []


def hold_out(text: ParallelText, n: int, seed: int, *, split: str = "dev") -> tuple[ParallelText, ParallelText]:
    """Part `text` in training and held-out pairs: `n` of them, at most 5 %, at least one.

    A held-out source sentence is in no training pair: its other translations are dropped. Blank pairs are not held
    out. Nothing is held out of fewer than four different sources. Whether a source comes before another depends on
    the two, `seed` and `split` alone, so that little changes when the corpus grows or is filtered.
    """
    first_with: dict[str, int] = {}
    for index, (source, target) in enumerate(zip(text.sources, text.targets, strict=True)):
        if source.strip() and target.strip():
            first_with.setdefault(source.strip(), index)
    if len(first_with) < 4:
        return text, ParallelText()
    n_held = min(n, max(1, int(MAX_HELD_OUT * len(text))), len(first_with) // 2)

    def rank(source: str) -> bytes:
        return hashlib.blake2b(f"{seed} {split}\n{source}".encode()).digest()

    held = set(heapq.nsmallest(n_held, first_with, key=rank))
    kept = [index for index, source in enumerate(text.sources) if source.strip() not in held]
    return text.pick(kept), text.pick(sorted(first_with[source] for source in held))


def text_sha256(text: ParallelText) -> str:
    """SHA-256 of the pairs, whatever files they came from."""
    digest = hashlib.sha256()
    for lines in (text.sources, text.targets):
        for start in range(0, len(lines), 10_000):
            digest.update("\n".join([*lines[start : start + 10_000], ""]).encode())
        digest.update(b"\n")
    return digest.hexdigest()
