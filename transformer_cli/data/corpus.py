"""The text of a corpus: training, dev and test pairs, some held out of the training text where no files are named.

It is always pairs. Text to classify is paired with its label, and text for a language model with itself. Dev and test
text is held in memory; training text is spooled to a folder, and iterated over as often as it is needed.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import NoReturn

from transformer_cli.config.data import DataConfig, InlineTags, OnBad
from transformer_cli.config.tags import language_of, languages_of, tags_in
from transformer_cli.data.context import Context, contexts_of
from transformer_cli.data.corpus_files import read_files
from transformer_cli.data.detokenize import detokenized
from transformer_cli.data.lines import Lines, shown
from transformer_cli.data.normalization import canonical, canonical_fields
from transformer_cli.data.readers import Corpus, Split, reader_of
from transformer_cli.data.readers.base import no_names
from transformer_cli.data.readers.checked import PairHash, checked_pairs, same_pairs
from transformer_cli.data.readers.parallel import file_language
from transformer_cli.data.registry import FORMATS
from transformer_cli.data.tags import split_tags, with_tags
from transformer_cli.errors import ConfigError, DataError
from transformer_cli.logs import LOGGER
from transformer_cli.registry import is_ours

SPLITS: tuple[Split, ...] = ("train", "dev", "test")

# Endings of files, after the language or instead of it.
_FORMAT_ENDINGS = ("txt", "tsv", "csv", "json", "jsonl", "parquet", "tmx", "xliff", "xlf", "po", "sgm", "xml")
_MANY_COPIES = 0.3  # share of pairs whose sides are equal, above which one file was probably named twice


@dataclass(frozen=True)
class TextPart:
    """Pairs of dev or test that stand together and are scored by themselves: those of one corpus of several."""

    name: str  # its tags, or of its file
    n: int  # pairs
    target_lang: str  # empty where the lines may be in any of several


@dataclass
class ParallelText:
    """Source and target sentences, in memory; target i is the translation of source i."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    n_bad: int = 0  # pairs left out because a line of them could not be read
    parts: list[TextPart] = field(default_factory=list)  # each of several corpora; else none
    contexts: list[Context] = field(default_factory=list)  # of each source, with data.context_sentences; else none

    def __post_init__(self) -> None:
        assert len(self.sources) == len(self.targets)
        assert len(self.contexts) in (0, len(self.sources))

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
        return ParallelText(
            [self.sources[i] for i in indices],
            [self.targets[i] for i in indices],
            self.n_bad,
            contexts=[self.contexts[i] for i in indices] if self.contexts else [],
        )

    def first(self, n: int) -> "ParallelText":
        """The first `n` pairs; of several parts, as many of each as its share of all is, and at least one."""
        if n >= len(self):
            return self
        if not self.parts:
            return self.pick(range(n))
        wanted = [max(1, part.n * n // len(self)) if part.n else 0 for part in self.parts]
        starts = accumulate((part.n for part in self.parts), initial=0)
        rows = [range(start, start + n_wanted) for start, n_wanted in zip(starts, wanted, strict=False)]
        parts = [replace(part, n=n_wanted) for part, n_wanted in zip(self.parts, wanted, strict=True)]
        return replace(self.pick(chain.from_iterable(rows)), parts=parts)


@dataclass(frozen=True)
class SpooledText:
    """The corpora of a split, each with the lines of its files, from which every pass reads the pairs again."""

    corpora: list[tuple[Corpus, Sequence[Lines]]]
    sizes: list[int]  # pairs of each corpus
    tags: Sequence[str] = ()  # those of each corpus, with white space between them; none where no text has any
    known_tags: tuple[str, ...] = ()
    bad_pairs: list[str] = field(default_factory=list)  # what is wrong with those that a plugin's reader gave
    hashes: list[tuple[int, str]] = field(default_factory=list)  # of each corpus of a plugin, as the first pass gave it
    kept: Sequence[Sequence[int]] = ()  # the pairs of each corpus that filters have kept, by number, if asked for

    @property
    def n_bad(self) -> int:
        return sum(len(_bad(files)) for _, files in self.corpora) + len(self.bad_pairs)

    def each(self) -> Iterator[tuple[str, str]]:
        """The pairs in their order, the sources with their tags."""
        passes = (same_pairs(*of_corpus, first) for of_corpus, first in zip(self.corpora, self.hashes, strict=True))
        if not self.tags:
            return chain.from_iterable(passes)
        return (
            (with_tags(source, tags, self.known_tags), target)
            for pairs, tags in zip(passes, self.tags, strict=True)
            for source, target in pairs
        )


Text = ParallelText | SpooledText


def load_text(config: DataConfig, split: Split) -> ParallelText | None:
    """The pairs of a split as they are in its files; None if the config names none. Raises DataError, ConfigError.

    Nothing is cleaned: blank lines stay, so that dev and test keep the numbering of their files. Only pairs with a
    line that is not UTF-8 or has too few columns are left out, if `data.on_bad` is skip.
    """
    corpora = _corpora(config, split)
    if corpora is None:
        return None
    text = _read(corpora, config, split, spool=None)
    parts = [] if split == "train" else parts_of(text, config)
    return replace(in_memory(text), parts=parts, contexts=list(contexts_in(text, config)))


def contexts_in(text: Text, config: DataConfig) -> Iterator[Context]:
    """The context of each pair of a text in the order of its files; nothing without data.context_sentences."""
    n = config.context_sentences
    return contexts_of((source for source, _ in text.each()), n, config.all_tags, text.sizes) if n else iter(())


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


def check_tags(config: DataConfig) -> None:
    """Raise ConfigError if a split that names files does not have tags for each of its corpora."""
    if len(languages_of(config.target_lang)) > 1 and not config.all_tags:
        raise ConfigError(
            f"data.target_lang={config.target_lang}: several languages, and no tags that say which a line is translated"
            " into. Set data.tags, as ['<2de>','<2fr>']"
        )
    for split in SPLITS:
        if (corpora := reader_of(config).corpora(split)) is not None:
            _tags_of(corpora, config, split)


def check_inline_tags(config: DataConfig) -> None:
    """Raise ConfigError if inline tags are to be kept, and no file of the corpus has any."""
    if config.inline_tags is InlineTags.remove:
        return
    corpora = (corpus for split in SPLITS for corpus in reader_of(config).corpora(split) or ())
    formats = {file.format for corpus in corpora for file in corpus.files} - {None}
    if not any(FORMATS[str(name)].has_inline_tags for name in formats):
        raise ConfigError("data.inline_tags=keep: no file of TMX or XLIFF is named, but other text. Leave it out")


def _tags_of(corpora: Sequence[Corpus], config: DataConfig, split: Split) -> list[str]:
    """The tags of each corpus; an empty list if none of the training text has any. Raises ConfigError."""
    if not config.all_tags:
        return []
    key = "tags" if split == "train" else f"{split}_tags"
    entries = config.tags_of(split)
    if not entries and not config.tags:
        return [""] * len(corpora)  # with tags in the lines
    if len(entries) != len(corpora):
        n_corpora = f"{len(corpora)} corpora" if len(corpora) > 1 else "1 corpus"
        what = f"={entries}: {len(entries)} entries" if entries else ": not set, although data.tags is"
        raise ConfigError(
            f'data.{key}{what}, but data.{split} names {n_corpora}. Give the tags of each, or "" for none, in their'
            " order"
        )
    for number, (corpus, entry) in enumerate(zip(corpora, entries, strict=True), 1):
        language = language_of(tags_in(entry), config.target_lang)
        ending = file_language(corpus.files[-1].name) if len(corpus.files) == 2 else ""
        if language != ending and {language, ending} <= set(languages_of(config.target_lang)):
            raise ConfigError(
                f"data.{key}={entries}: corpus {number} of data.{split} has {entry}, but its translations are in"
                f" {shown(corpus.files[-1].name)}. Give the tags in the order of the corpora"
            )
    return entries


def parts_of(text: SpooledText, config: DataConfig) -> list[TextPart]:
    """The corpora of dev or test, if there are several.

    The name of one is its tags, and its file where others have the same; without any tags it is that of the file.
    """
    if not config.trained.translates or len(text.corpora) == 1:
        return []
    all_tags = text.tags if any(text.tags) else [""] * len(text.corpora)
    names: list[str] = []
    for (corpus, _), tags in zip(text.corpora, all_tags, strict=True):
        name = " ".join(tags_in(tags))
        if not any(all_tags):
            name = corpus.name or _stem(corpus, config)
        elif not name or text.tags.count(tags) > 1:
            name = " ".join(filter(None, [name, corpus.name or "".join(file.name for file in corpus.files[-1:])]))
        names.append(_distinct(name, names))
    languages = [language_of(tags_in(tags), config.target_lang) for tags in all_tags]
    return [TextPart(*part) for part in zip(names, text.sizes, languages, strict=True)]


def _stem(corpus: Corpus, config: DataConfig) -> str:
    """The name of its file, or of that of its translations, without a language and a format: `news` of news.de.gz."""
    name = corpus.files[-1].name if corpus.files else config.name
    endings = {*languages_of(config.source_lang), *languages_of(config.target_lang), *_FORMAT_ENDINGS}
    while (ending := name.rpartition(".")[2]) in endings and ending != name:
        name = name.removesuffix(f".{ending}")
    return name


def _distinct(name: str, others: Sequence[str]) -> str:
    """`name`, or with a number if one of the others is called so."""
    number, found = 1, name
    while found in others:
        number += 1
        found = f"{name} ({number})"
    return found


def _corpora(config: DataConfig, split: Split) -> list[Corpus] | None:
    corpora = reader_of(config).corpora(split)
    if corpora is None and split == "train":
        raise no_names("data.train", config.trained)
    return corpora


def _read(corpora: Sequence[Corpus], config: DataConfig, split: Split, spool: Path | None) -> SpooledText:
    """Read the files and, once, all pairs. Raises DataError for lines that are no pair, unless they are skipped."""
    files = [file for corpus in corpora for file in corpus.files]
    lines = read_files(files, spool, config)
    text = SpooledText(
        [(corpus, [lines[file] for file in corpus.files]) for corpus in corpora],
        sizes=[],
        tags=_tags_of(corpora, config, split),
        known_tags=tuple(config.all_tags),
    )
    n_copies = n_tagged = 0
    counts_copies = split != "train" and config.trained.has_source  # of training text when it is prepared
    first_tagged = ""
    on_fault = text.bad_pairs.append if config.on_bad is OnBad.skip else _refuse_pair
    if config.detokenize:
        text = replace(text, corpora=detokenized(text.corpora, text.tags, config, spool, on_fault))
    for corpus, of_corpus in text.corpora:
        n_pairs, pair_hash, is_own = 0, PairHash(), is_ours(corpus.pairs)
        for source, target in checked_pairs(corpus, of_corpus, on_fault):
            n_pairs += 1
            if not is_own:
                pair_hash.add((source, target))
            if counts_copies:
                n_copies += source != "" and (source == target or canonical(source) == canonical(target))
            if text.tags and not set(split_tags(source, text.known_tags)[0]) <= set(config.line_tags):
                n_tagged += 1
                first_tagged = first_tagged or f"pair {n_pairs:,} of {of_corpus[0].name if of_corpus else config.name}"
        text.sizes.append(n_pairs)
        text.hashes.append(pair_hash.value)
    if n_tagged:
        LOGGER.warning(
            "data.%s: %s source lines begin with a tag already, the first is %s; they keep it and get none of"
            " data.tags. Name it in data.line_tags if that is meant",
            *(split, f"{n_tagged:,}", first_tagged),
        )
    for corpus, of_corpus in text.corpora:
        for warning in corpus.warnings(of_corpus):
            LOGGER.warning("%s", warning)
        _report_bad(of_corpus)
    _report_dropped(text.bad_pairs, len(text.bad_pairs))
    if n_copies > _MANY_COPIES * sum(text.sizes):
        share = f"{n_copies / sum(text.sizes):.0%}"
        LOGGER.warning(
            "data.%s: source and target are equal in %s of the pairs; is one file named twice?", split, share
        )
    return text


def in_memory(text: Text) -> ParallelText:
    pairs = list(text.each())
    return ParallelText([source for source, _ in pairs], [target for _, target in pairs], text.n_bad)


def _refuse_pair(fault: str) -> NoReturn:
    raise DataError(f"{fault}. Correct the reader, or drop such pairs with data.on_bad=skip")


def _bad(files: Sequence[Lines]) -> set[int]:
    return {index for lines in files for index in lines.bad}


def _report_bad(files: Sequence[Lines]) -> None:
    """Log how many pairs were dropped for lines that cannot be read, with the first ten faults."""
    _report_dropped([fault for lines in files for fault in lines.bad.values()], len(_bad(files)))


def _report_dropped(faults: Sequence[str], n_pairs: int) -> None:
    if faults:
        first = "; ".join(faults[:10]) + ("; …" if len(faults) > 10 else "")
        LOGGER.warning("%s pairs dropped, their lines cannot be read: %s", f"{n_pairs:,}", first)


def sentence_key(config: DataConfig) -> Callable[[str], str]:
    """What makes two sources the same sentence, without their tags."""
    is_in_fields = config.trained.has_words or config.n_texts > 1
    return canonical_fields if is_in_fields else canonical


def text_sha256(text: ParallelText) -> str:
    """SHA-256 of the pairs, whatever files they came from."""
    digest = hashlib.sha256()
    for lines in (text.sources, text.targets):
        for start in range(0, len(lines), 10_000):
            digest.update("\n".join([*lines[start : start + 10_000], ""]).encode())
        digest.update(b"\n")
    return digest.hexdigest()
