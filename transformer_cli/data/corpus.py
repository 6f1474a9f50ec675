"""The text of a corpus: training, dev and test pairs, some held out of the training text where no files are named.

It is always pairs. Text to classify is paired with its label, and text for a language model with itself. Dev and test
text is held in memory; training text is spooled to a folder, and iterated over as often as it is needed.
"""

import hashlib
import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from transformer_cli.config.data import DataConfig, OnBad, Task
from transformer_cli.data.corpus_files import read_files
from transformer_cli.data.lines import Lines
from transformer_cli.data.readers import Corpus, Split, reader_of
from transformer_cli.data.readers.base import no_names
from transformer_cli.errors import ConfigError
from transformer_cli.logs import LOGGER

_HELD_OUT: tuple[Split, ...] = ("dev", "test")

MAX_HELD_OUT = 0.05  # of the pairs, in each of dev and test
MANY_COPIES = 0.3  # share of pairs whose sides are equal, above which one file was probably named twice


@dataclass
class ParallelText:
    """Source and target sentences, in memory; target i is the translation of source i."""

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
class SpooledText:
    """The corpora of a split, each with the lines of its files, from which every pass reads the pairs again."""

    corpora: list[tuple[Corpus, Sequence[Lines]]]
    sizes: list[int]  # pairs of each corpus

    @property
    def n_bad(self) -> int:
        return sum(len(_bad(files)) for _, files in self.corpora)

    def each(self) -> Iterator[tuple[str, str]]:
        """The pairs in their order."""
        return chain.from_iterable(corpus.pairs(files) for corpus, files in self.corpora)


Text = ParallelText | SpooledText


def load_text(config: DataConfig, split: Split) -> ParallelText | None:
    """The pairs of a split as they are in its files; None if the config names none. Raises DataError, ConfigError.

    Nothing is cleaned: blank lines stay, so that dev and test keep the numbering of their files. Only pairs with a
    line that is not UTF-8 or has too few columns are left out, if `data.on_bad` is skip.
    """
    corpora = _corpora(config, split)
    return None if corpora is None else _in_memory(_read(corpora, config, split, spool=None))


def stream_text(config: DataConfig, spool: Path) -> SpooledText:
    """The pairs of the training split like `load_text`, with their lines spooled to the folder `spool`."""
    return _read(_corpora(config, "train") or [], config, "train", spool)


def input_files(config: DataConfig, split: Split) -> list[Path]:
    """The files that `load_text` would read, each once: their content decides whether a cache is still good."""
    return list(dict.fromkeys(file.path for corpus in reader_of(config).corpora(split) or () for file in corpus.files))


def check_weights(config: DataConfig) -> None:
    """Raise ConfigError if `data.weights` does not have one for each corpus that the training split names."""
    if not config.weights:
        return
    corpora = reader_of(config).corpora("train")
    n_corpora = 1 if corpora is None else len(corpora)
    if len(config.weights) != n_corpora:
        raise ConfigError(
            f"data.weights={config.weights}: {len(config.weights)} weights, but data.train names {n_corpora} corpora."
            " Give a weight to each pair of files and each table"
        )


def _corpora(config: DataConfig, split: Split) -> list[Corpus] | None:
    corpora = reader_of(config).corpora(split)
    if corpora is None and split == "train":
        raise no_names("data.train", config.task)
    return corpora


def _read(corpora: Sequence[Corpus], config: DataConfig, split: Split, spool: Path | None) -> SpooledText:
    """Read the files and, once, all pairs. Raises DataError for lines that are no pair, unless they are skipped."""
    files = [file for corpus in corpora for file in corpus.files]
    lines = read_files(files, spool, skip_bad=config.on_bad is OnBad.skip)
    text = SpooledText([(corpus, [lines[file] for file in corpus.files]) for corpus in corpora], [])
    n_copies = 0
    for corpus, of_corpus in text.corpora:
        n_pairs = 0
        for source, target in corpus.pairs(of_corpus):
            n_pairs += 1
            n_copies += source == target != ""
        text.sizes.append(n_pairs)
    for corpus, of_corpus in text.corpora:
        for warning in corpus.warnings(of_corpus):
            LOGGER.warning("%s", warning)
        _report_bad(of_corpus)
    if n_copies > MANY_COPIES * sum(text.sizes) and config.task is not Task.language_model:
        share = f"{n_copies / sum(text.sizes):.0%}"
        LOGGER.warning(
            "data.%s: source and target are equal in %s of the pairs; is one file named twice?", split, share
        )
    return text


def _in_memory(text: Text) -> ParallelText:
    pairs = list(text.each())
    return ParallelText([source for source, _ in pairs], [target for _, target in pairs], text.n_bad)


def _bad(files: Sequence[Lines]) -> set[int]:
    return {index for lines in files for index in lines.bad}


def _report_bad(files: Sequence[Lines]) -> None:
    """Log how many pairs were dropped for lines that cannot be read, with the first ten faults."""
    faults = [fault for lines in files for fault in lines.bad.values()]
    if faults:
        first = "; ".join(faults[:10]) + ("; …" if len(faults) > 10 else "")
        LOGGER.warning("%s pairs dropped, their lines cannot be read: %s", f"{len(_bad(files)):,}", first)


# ---- Dev and test text where none is named


@dataclass
class HeldOut:
    """Pairs that were held out of the training text, and their source sentences."""

    text: ParallelText = field(default_factory=ParallelText)
    sources: frozenset[str] = frozenset()  # stripped; no training pair may have one of them
    n_before: int = 0  # pairs before these were held out


@dataclass
class Splits:
    """All the text of a corpus. `train` is not cleaned yet, and still has the pairs whose source is in `held_out`.

    Where there is too little to hold any out, `dev` is the training text itself.
    """

    train: Text
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
    text: Text,
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
    different: set[str] = set()  # no more than needed to compare with `n`
    found: dict[str, tuple[int, str, str]] = {}  # the n sources of highest rank so far, with the first pair of each
    ranks: list[tuple[int, str]] = []  # a heap of these
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
