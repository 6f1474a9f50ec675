"""Preparation of a corpus: cleaned, tokenized, encoded, and cached under a hash of everything it depends on.

Memory hardly grows with the corpus. Its decompressed text is spooled to a temporary folder in the cache; in memory are
some bytes a pair, dev and test, and the sample that SentencePiece is trained on. Ids are written chunk by chunk, and
memory-mapped in training.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, compress, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tqdm import tqdm

from transformer_cli.config.checks import AUTO
from transformer_cli.config.data import DataConfig
from transformer_cli.config.shard import WHOLE, Shard
from transformer_cli.config.tasks import Task
from transformer_cli.data.cache import MANIFEST, Array, CorpusWriter, EncodedCorpus, ensure_folder, manifest
from transformer_cli.data.cache_key import cache_key, input_hashes, is_mixed, vocabulary_sizes
from transformer_cli.data.checks.corpus_warnings import CorpusWarnings, Leak, find_warnings
from transformer_cli.data.clean import CleaningReport, CleanText, clean, keep_mask
from transformer_cli.data.cleaning.clean_corpora import FilteringReport
from transformer_cli.data.context import END_OF_CONTEXT, ContextEncoder
from transformer_cli.data.corpus import (
    ParallelText,
    TextPart,
    check_inline_tags,
    check_tags,
    check_weights,
    input_files,
    sentence_key,
)
from transformer_cli.data.download import fetch
from transformer_cli.data.encoding import Encoded, encoded
from transformer_cli.data.hashes import Hashes
from transformer_cli.data.own_vocabulary import check_tags_of, own_tokenizers
from transformer_cli.data.pairs import check_separates, texts_of
from transformer_cli.data.readers import Split, reader_of
from transformer_cli.data.shards import PartStore
from transformer_cli.data.shuffling import Part, times_per_epoch
from transformer_cli.data.splits import Splits, load_splits
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, sampled, train_tokenizer
from transformer_cli.environment import folder_named
from transformer_cli.errors import ConfigError
from transformer_cli.logs import LOGGER
from transformer_cli.system import n_processors

_PAIRS_PER_PROCESS = 50_000  # at least, to be worth its start
_FEW_LEFT = 0.1  # of the pairs of a corpus, at most which its weight is hardly that of the corpus
_LARGE_PAIRS, _LARGE_BYTES = 10_000, 20_000_000  # from this size the steps are logged, because they take seconds
_PARTS, _LABELS, _WARNINGS, _SETS, _CHUNKS = "parts.json", "labels.json", "warnings.json", "sets.json", "chunks.json"
_HELD, _FILTERING = "held.json", "filtering.json"
# Files that are no part of the fingerprint: they follow from the others and from the config.
_APART = (_WARNINGS, _SETS, _CHUNKS, _HELD, _FILTERING)


@dataclass(frozen=True)
class Prepared:
    """A corpus ready for training. Dev and test stay text: they are translated and scored as they were written.

    In classification the sources begin with BOS, and each target is one number: the index of the class in the
    tokenizers' labels. Where words have labels, they are the targets, and sources do not begin with BOS. Where answers
    are spans, the targets are the positions of two tokens. For a language model the sources are empty.
    """

    tokenizers: Tokenizers
    train: EncodedCorpus
    dev: ParallelText
    test: ParallelText | None
    fingerprint: str  # SHA-256 of all of the above
    report: CleaningReport
    parts: list[Part] = field(default_factory=list)  # corpora of `train`, unless each is seen once an epoch
    inputs: dict[str, str] = field(default_factory=dict)  # what it was made from, with the SHA-256 of each
    warnings: Sequence[str] = ()  # probable faults
    chunks: Sequence[int] = ()  # of data.bidirectional: numbers of pairs that are followed by the same ones, exchanged
    held: Sequence[str] = ()  # those of dev and test that were held out of the training text
    filtering: FilteringReport | None = None  # by the filters of data.clean
    corpora: Sequence[Mapping[str, Any]] = ()  # the facts of those that have any, as named ones do
    left_out: Sequence[str] = ()  # source sentences that are in no training pair, as `prepare` was given them


def prepare(
    config: DataConfig,
    *,
    progress: bool = False,
    tokenizers: Tokenizers | None = None,
    left_out: Sequence[str] = (),
    shard: Shard = WHOLE,
) -> Prepared:
    """Fetch, clean, split, tokenize and encode a corpus, or open what an earlier call has left in the cache.

    With `tokenizers`, text is encoded by those rather than by what is trained on it. No training pair has a source
    sentence of `left_out`, which are without tags; dev and test are what they are without. Raises DataError for text
    that cannot be used, ConfigError for options that do not fit it, EnvironmentFault if the cache cannot be written.

    A `shard` of several works on its parts of the text alone, and raises Incomplete while others have theirs to do.
    """
    reader = reader_of(config)
    if tokenizers is not None and config.tokenizer.model is not None:
        raise ConfigError(
            f"data.tokenizer.model={config.tokenizer.model}: the vocabulary is that of the model that training begins"
            " with. Leave it out"
        )
    tokenizers = tokenizers or own_tokenizers(config)
    if tokenizers is not None:
        check_tags_of(config, tokenizers)
        check_separates(config, tokenizers.source)
        if config.context_sentences:
            ContextEncoder(tokenizers.source, config.context_sentences)  # refuses a vocabulary that cannot
    fetch(config, progress=progress)
    check_weights(config)
    check_tags(config)
    check_inline_tags(config)
    reader.check()
    if config.is_swapped:
        LOGGER.info("data=%s: from %s to %s, with its sides exchanged", config.name, *config.languages[::-1])
    place = folder_named(config.cache) / config.name
    hashes = Hashes(place, verify=config.verify and os.environ.get("LOCAL_RANK", "0") == "0")  # once on each machine
    inputs = input_hashes(config, hashes)
    left_out_keys = frozenset(filter(None, map(sentence_key(config), left_out)))
    folder = place / f"prepared-{cache_key(config, inputs, tokenizers, left_out_keys)[:12]}"
    store = PartStore(folder.with_name(f"{folder.name}.parts"), shard) if shard != WHOLE else None

    def build(empty: Path) -> None:
        _build(empty, config, progress=progress, tokenizers=tokenizers, left_out=left_out_keys, store=store)

    if store is not None and not folder.exists():
        if not config.trained.translates:
            raise ConfigError(f"shard={shard}: data.task={config.task} is prepared in one piece. Leave it out")
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place, prefix=".shard-") as scratch:  # beside the lock: shards run side by side
            build(Path(scratch))
    ensure_folder(folder, build, hashes)
    if store is not None:
        shutil.rmtree(store.folder, ignore_errors=True)  # another shard may do the same
    prepared = _open(folder, config.trained)
    if is_mixed(config):
        prepared = replace(prepared, parts=_parts(folder, prepared.train, config))
    sides = {"source": prepared.tokenizers.source, "target": prepared.tokenizers.target}
    named = {f"data.{split}: {name}": sha256 for split, files in inputs.items() for name, sha256 in files}
    named |= {f"{side} tokenizer": sides[side].sha256 for side in sides}
    facts = [corpus.facts for corpus in reader.corpora("train") or () if corpus.facts]
    return replace(prepared, inputs=named, corpora=facts, left_out=left_out)


def _shown_size(config: DataConfig) -> str:
    sizes = vocabulary_sizes(config)["vocab_size"]
    return " and ".join("a suitable number of" if size == AUTO else f"{size:,}" for size in sizes)


@dataclass(frozen=True)
class _Cleaned:
    """The text of a corpus, before anything is encoded."""

    splits: Splits
    train: CleanText
    report: CleaningReport
    labels: list[str]
    warnings: CorpusWarnings
    dev: ParallelText | None
    test: ParallelText | None


def _build(
    folder: Path,
    config: DataConfig,
    *,
    progress: bool,
    tokenizers: Tokenizers | None,
    left_out: frozenset[str],
    store: PartStore | None,
) -> None:
    """Fill `folder` with the files that `_open` reads. Raises Incomplete where shards have parts still to make."""
    with TemporaryDirectory(dir=folder) as spool:
        if sum(path.stat().st_size for path in input_files(config, "train")) > _LARGE_BYTES:
            LOGGER.info("reading and cleaning the text of data.train")
        text = _cleaned(load_splits(config, Path(spool), store, progress=progress), config, left_out)
        n_left = text.report.n_read - text.report.n_bad  # lines too long for the model are known when they are encoded
        is_large = len(text.train) > _LARGE_PAIRS
        if tokenizers is None:
            if is_large:
                LOGGER.info("training a vocabulary of %s pieces", _shown_size(config))
            tokenizers = _own_or_of_shards(text.train, config, store)
        if is_large:
            LOGGER.info("encoding the text")
        kept = _encode(folder, text, tokenizers, config, store=store, progress=progress)
    text.report.require_pairs(config.trained)
    if is_mixed(config):
        _write_json(folder / _PARTS, text.train.shares(np.concatenate(kept)))
    if config.bidirectional:
        _write_json(folder / _CHUNKS, [int(keep.sum()) for keep in kept])
    (folder / "source.model").write_bytes(tokenizers.source.model_bytes)
    (folder / "target.model").write_bytes(tokenizers.target.model_bytes)
    _write_facts(folder, text)
    _write_scored_text(folder, text, config)
    _log_facts(text, n_left)


def _cleaned(splits: Splits, config: DataConfig, left_out: frozenset[str]) -> _Cleaned:
    """The training text without what must not be trained on. Raises DataError for text that cannot be used."""
    train, report = clean(
        splits.train,
        drop_duplicates=config.drop_duplicates,
        held_out=splits.held_out,
        left_out=left_out,
        tags=config.all_tags,
        key_of=sentence_key(config),
    )
    train = replace(train, contexts_of_text=splits.contexts)
    if splits.filtering is not None:
        splits.filtering.require_pairs()
    report.require_pairs(config.trained)
    labels = _labels(train, splits, config, left_out) if config.trained.has_labels else []
    warnings = find_warnings(train, splits, config)
    dev, test = _scored(splits.dev, labels, "dev", config), _scored(splits.test, labels, "test", config)
    return _Cleaned(splits, train, report, labels, warnings, dev, test)


def _encode(
    folder: Path,
    text: _Cleaned,
    tokenizers: Tokenizers,
    config: DataConfig,
    *,
    store: PartStore | None,
    progress: bool,
) -> list[Array]:
    """Write the ids of the training text; which pairs of each chunk were kept. What was too long, the report counts."""
    kept: list[Array] = []
    task = config.trained
    encode = task.encode if task.has_words or task.has_spans else partial(_encoded, store=store)
    with CorpusWriter(folder, **_vocab_sizes(tokenizers), has_words=task.has_words) as writer:
        for sources, targets, *word_ends in encode(
            text.train, tokenizers, text.labels, config, text.report, progress=progress, kept=kept
        ):
            writer.write((sources.ids, sources.lengths), (targets.ids, targets.lengths), *word_ends)
            if config.bidirectional:
                writer.write((targets.ids, targets.lengths), (sources.ids, sources.lengths))
    return kept


def _write_facts(folder: Path, text: _Cleaned) -> None:
    """Write what was found out about the text."""
    rare = ("n_format", "n_left_out")  # left out where they are none: they would change the fingerprint
    _write_json(folder / "report.json", {k: n for k, n in asdict(text.report).items() if n or k not in rare})
    if held_splits := [split for split, held in text.splits.held.items() if held.sources]:
        _write_json(folder / _HELD, held_splits)
    if text.splits.filtering is not None:
        _write_json(folder / _FILTERING, asdict(text.splits.filtering))
    _write_json(folder / _WARNINGS, asdict(text.warnings))
    if text.labels:
        _write_json(folder / _LABELS, text.labels)


def _write_scored_text(folder: Path, text: _Cleaned, config: DataConfig) -> None:
    """Write dev and test as text."""
    assert text.dev is not None
    texts = {"dev": text.dev} if text.test is None else {"dev": text.dev, "test": text.test}
    if not config.all_tags and any(one.parts for one in texts.values()):
        _write_json(folder / _SETS, {split: [asdict(part) for part in one.parts] for split, one in texts.items()})
        texts = {split: replace(one, parts=[]) for split, one in texts.items()}
    for split, one in texts.items():
        _write_text(folder / f"{split}.json", one)


def _log_facts(text: _Cleaned, n_left: int) -> None:
    """Log them only now: for text that cannot be prepared, the error is the only message."""
    splits = text.splits
    if "dev" in splits.held and not splits.held["dev"].sources:
        LOGGER.warning("data.train: too few pairs to hold any out; dev is the training text itself")
    filtered = splits.filtering.sentences() if splits.filtering is not None else ()
    for warning in splits.filtering.warnings() if splits.filtering is not None else ():
        LOGGER.warning("%s", warning)
    for line in [*filtered, *splits.notes(n_left), *text.report.lines()]:
        LOGGER.info("%s", line)


def _labels(train: CleanText, splits: Splits, config: DataConfig, left_out: frozenset[str]) -> list[str]:
    """The classes in all of data.train, also in the lines that are not trained on: a rare one may be nowhere else."""
    held_out = chain.from_iterable(held.text.targets for held in splits.held.values())
    key_of = sentence_key(config)
    pairs = splits.train.each() if left_out else ()
    others = (label for text, label in pairs if key_of(split_tags(text, config.all_tags)[1]) in left_out)
    return config.trained.find_labels(chain((label for _, label in train.each()), held_out, others))


def _scored(text: ParallelText | None, labels: list[str], split: Split, config: DataConfig) -> ParallelText | None:
    """Dev or test text as it is scored. Raises DataError for a class that is not one of `labels`."""
    return None if text is None else config.trained.scored_text(text, labels, split, config)


def _own_or_of_shards(text: CleanText, config: DataConfig, store: PartStore | None) -> Tokenizers:
    """The tokenizers that are trained on the text, once for all shards."""
    if store is None:
        return _train_tokenizers(text, config)
    trained: list[Tokenizers] = []

    def model(side: str) -> bytes:
        if not trained:
            trained.append(_train_tokenizers(text, config))
        bytes_of: bytes = getattr(trained[0], side).model_bytes
        return bytes_of

    source, target = (Tokenizer(store.keep(f"{side}.model", partial(model, side))) for side in ("source", "target"))
    return Tokenizers(source, source if config.tokenizer.joint else target)


def _train_tokenizers(text: CleanText, config: DataConfig) -> Tokenizers:
    """Train the tokenizers; only the sentences they are trained on are held in memory."""

    def train(sides: Sequence[int]) -> Tokenizer:
        n, tokenizer = len(text), config.tokenizer.of_side(sides[-1])
        if config.context_sentences and 0 in sides:
            tokenizer = replace(tokenizer, user_symbols=[*tokenizer.user_symbols, END_OF_CONTEXT])
        chosen = np.array(sampled(n * len(sides), config.tokenizer, seed=config.seed))
        lines = [_at(text, side, chosen[chosen // n == place] % n) for place, side in enumerate(sides)]
        tags = config.all_tags if 0 in sides else []
        lines = [(split_tags(line, tags)[1] for line in one) for one in lines] if tags else lines
        sentences = chain.from_iterable(lines)
        if config.n_texts == 2:
            sentences = chain.from_iterable(map(texts_of, sentences))
        what = "the training text" if config.tokenizer.joint else f"the {('source', 'target')[sides[0]]} text"
        share = len(chosen) / (n * len(sides))
        return train_tokenizer(sentences, tokenizer, seed=config.seed, tags=tags, share=share, text=what)

    if config.tokenizer.joint:
        joint = train([*([0] if config.trained.has_source else []), *([] if config.trained.has_labels else [1])])
        return Tokenizers(joint, joint)
    return Tokenizers(train((0,)), train((1,)))


def _at(text: CleanText, side: int, indices: Array) -> Iterator[str]:
    """The sentences of a side at `indices`, which are in order."""
    is_chosen = np.zeros(len(text), np.bool_)
    is_chosen[indices] = True
    return (pair[side] for pair in compress(text.each(), is_chosen))


def _encoded(
    text: CleanText,
    tokenizers: Tokenizers,
    labels: list[str],
    config: DataConfig,
    report: CleaningReport,
    *,
    progress: bool,
    kept: list[Array],
    store: PartStore | None,
) -> Iterator[tuple[Encoded, Encoded]]:
    """Chunks of the pairs that pass the filters of length and length ratio, as ids that end with EOS.

    `kept` gets a mask of each chunk.
    """
    off = None if progress else True  # None: on if stderr is a terminal
    n_processes = min(n_processors(), len(text) // _PAIRS_PER_PROCESS)
    numbers = {label: number for number, label in enumerate(labels)}
    classes = (numbers[label] for _, label in text.each()) if labels else iter(())
    source, target = tokenizers.source, tokenizers.target
    n_added = 2 if config.trained.begins else 1
    longest = config.max_length - n_added  # EOS, and BOS where it is there, are of the max_length tokens
    contexts = text.contexts()
    context = None if contexts is None else ContextEncoder(source, config.context_sentences)
    encoded_chunks = encoded(
        _sides(text, config),
        tokenizers,
        n_processes=n_processes,
        store=store,
        contexts=contexts,
        n_context=config.context_sentences,
        longest=longest,
    )
    with tqdm(total=len(text), desc="encoding", unit=" pairs", unit_scale=True, disable=off) as bar:
        for sources, targets in encoded_chunks:
            if config.n_texts == 2:  # whose sides are the two texts
                sources = sources.joined(targets, source)
            if config.truncate_source:
                n_whole = sources.lengths
                sources = sources.truncated(config.max_length - 1)
                report.n_truncated += int((n_whole > sources.lengths).sum())
            lengths = sources.lengths, targets.lengths
            if not config.trained.translates:  # what has one side is as long as that
                lengths = ((sources if config.trained.has_source else targets).lengths,) * 2
            n_tags = sources.count(source.tag_ids)
            if context is not None:  # which no length ratio counts, either
                n_tags = np.maximum(n_tags, sources.through_last(context.break_id))
            keep = keep_mask(*lengths, longest, config.max_ratio, report=report, n_tags=n_tags)
            report.max_length = config.max_length
            kept.append(keep)
            if config.trained.translates:
                yield sources.pick(keep, source.end_ids), targets.pick(keep, target.end_ids)
            elif config.trained.has_source:
                chosen = np.fromiter(islice(classes, len(keep)), np.int64, len(keep))[keep]
                classified = sources.pick(keep, source.end_ids, bos_id=source.bos_id)
                yield classified, Encoded(chosen, np.ones_like(chosen))
            else:
                written = targets.pick(keep, target.end_ids)
                yield Encoded(np.empty(0, np.int32), np.zeros_like(written.lengths)), written
            bar.update(len(keep))


def _sides(text: CleanText, config: DataConfig) -> Iterator[tuple[str, str]]:
    """The pairs; a side that is not encoded is empty. Two texts that are classified together are a side each."""
    if config.trained.translates:
        return text.each()
    if config.n_texts == 2:
        return (texts_of(source) for source, _ in text.each())
    if config.trained.has_source:
        return ((source, "") for source, _ in text.each())
    return (("", target) for _, target in text.each())


def _parts(folder: Path, corpus: EncodedCorpus, config: DataConfig) -> list[Part]:
    """The corpora that the training text is made of, and how often an epoch goes through each."""
    sizes: list[int] = json.loads((folder / _PARTS).read_bytes())
    read = dict(enumerate(_read_warnings(folder).n_read, 1))
    ends = corpus.target_offsets[np.cumsum([0, *sizes])]
    times = times_per_epoch(np.diff(ends).tolist(), config.weights or [1.0] * len(sizes), config.temperature)
    counts = [round(size * often) for size, often in zip(sizes, times, strict=True)]
    if not any(counts):
        raise ConfigError(f"data.weights={config.weights}: leave an epoch without a pair. Raise them")
    for number, (size, count) in enumerate(zip(sizes, counts, strict=True), 1):
        if not size:
            LOGGER.warning(
                "data.weights: all pairs of corpus %d are in an earlier one or left out in cleaning, so its weight has"
                " no effect. Name it first, or set data.drop_duplicates=false",
                number,
            )
        elif size <= _FEW_LEFT * (n_read := read[number]):
            LOGGER.warning(
                "data.weights: the weight of corpus %d acts on %s of its %s pairs, as the others are in an earlier"
                " corpus or left out in cleaning. Name it first, or set data.drop_duplicates=false",
                *(number, f"{size:,}", f"{n_read:,}"),
            )
        elif not count:
            LOGGER.warning("data.weights: an epoch has none of the %s pairs of corpus %d", f"{size:,}", number)
    return [Part(*part) for part in zip(sizes, times, strict=True)]


def _open(folder: Path, task: Task) -> Prepared:
    source = Tokenizer((folder / "source.model").read_bytes())
    target_bytes = (folder / "target.model").read_bytes()
    target = source if target_bytes == source.model_bytes else Tokenizer(target_bytes)
    labels = folder / _LABELS
    tokenizers = Tokenizers(source, target, tuple(json.loads(labels.read_bytes())) if labels.exists() else ())
    return Prepared(
        tokenizers=tokenizers,
        train=EncodedCorpus.open(folder, **_vocab_sizes(tokenizers)),
        dev=_read_text(folder, "dev"),
        test=_read_text(folder, "test") if (folder / "test.json").exists() else None,
        fingerprint=_fingerprint(folder),
        report=CleaningReport(**json.loads((folder / "report.json").read_bytes())),
        warnings=_read_warnings(folder).sentences(task),
        chunks=json.loads((folder / _CHUNKS).read_bytes()) if (folder / _CHUNKS).exists() else [],
        held=json.loads((folder / _HELD).read_bytes()) if (folder / _HELD).exists() else [],
        filtering=FilteringReport.read(folder / _FILTERING) if (folder / _FILTERING).exists() else None,
    )


def _fingerprint(folder: Path) -> str:
    """SHA-256 of the manifest, which holds that of every file, without those apart."""
    files = json.loads((folder / MANIFEST).read_bytes())["files"]
    return hashlib.sha256(manifest({name: files[name] for name in files if name not in _APART})).hexdigest()


def _read_warnings(folder: Path) -> CorpusWarnings:
    content = json.loads((folder / _WARNINGS).read_bytes())
    leaks = [Leak(**leak) for leak in content["leaks"]]
    return CorpusWarnings(leaks, content["direction"], content["n_read"])


def _vocab_sizes(tokenizers: Tokenizers) -> dict[str, int]:
    return {"source_vocab_size": len(tokenizers.source), "target_vocab_size": len(tokenizers.target)}


def _write_text(path: Path, text: ParallelText) -> None:
    parts = {"parts": [asdict(part) for part in text.parts]} if text.parts else {}
    contexts = {"contexts": text.contexts} if text.contexts else {}
    _write_json(path, {"sources": text.sources, "targets": text.targets, **parts, **contexts})


def _read_text(folder: Path, split: Split) -> ParallelText:
    content = json.loads((folder / f"{split}.json").read_bytes())
    apart = json.loads((folder / _SETS).read_bytes()) if (folder / _SETS).exists() else {}
    parts = [TextPart(**part) for part in apart.get(split) or content.get("parts", [])]
    contexts = list(map(tuple, content.get("contexts", [])))
    return ParallelText(content["sources"], content["targets"], parts=parts, contexts=contexts)


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="ascii")


def dev_of(config: DataConfig, fingerprint: str) -> ParallelText | None:
    """The dev set of the prepared corpus of this fingerprint, if the cache of `config` has it."""
    prepared = prepared_of(config, fingerprint)
    return None if prepared is None else prepared.dev


def prepared_of(config: DataConfig, fingerprint: str) -> Prepared | None:
    """The prepared corpus of this fingerprint, if the cache of `config` has it; nothing is made or read anew."""
    for folder in sorted((folder_named(config.cache) / config.name).glob("prepared-*")):
        with suppress(OSError, ValueError, KeyError):  # not of ours, or being made
            if _fingerprint(folder) == fingerprint:
                return _open(folder, config.trained)
    return None
