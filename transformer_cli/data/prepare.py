"""Raw text to what training reads: cleaned, tokenized, encoded, and kept under a key of all that it was made from.

Preparing holds the whole text of a corpus in memory, and SentencePiece its own copy of the sample that it is trained
on. Ids are written as they are made, chunk by chunk, and training maps their files: neither grows with the corpus.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from itertools import compress
from pathlib import Path

import numpy as np
from tqdm import tqdm

from transformer_cli.data.cache import MANIFEST, CorpusWriter, EncodedCorpus, ensure_folder, file_sha256
from transformer_cli.data.clean import CleaningReport, clean, keep_mask
from transformer_cli.data.corpus import (
    GENERATORS,
    ParallelText,
    Split,
    input_files,
    load_splits,
    load_text,
    text_sha256,
)
from transformer_cli.data.download import fetch
from transformer_cli.data.lines import open_text
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.environment import folder_named
from transformer_cli.logs import LOGGER
from transformer_cli.schema import DataConfig

_FORMAT = 2  # to be raised when the same key would give other files
_CHUNK = 10_000  # pairs encoded at a time
_SPLITS: tuple[Split, ...] = ("train", "dev", "test")
_ELSEWHERE = ("name", "root", "cache", "downloads")  # options that say where files are, not what is made of them


@dataclass(frozen=True)
class Prepared:
    """A corpus ready for training. Dev and test stay text: they are translated and scored as they were written."""

    tokenizers: Tokenizers
    train: EncodedCorpus
    dev: ParallelText
    test: ParallelText | None
    fingerprint: str  # SHA-256 of all of the above, whatever files it came from
    report: CleaningReport
    inputs: dict[str, str] = field(default_factory=dict)  # what it was made from, with the SHA-256 of each


def prepare(config: DataConfig, *, progress: bool = False) -> Prepared:
    """Fetch, clean, split, tokenize and encode a corpus, or open what an earlier call has left in the cache.

    Raises DataError for text that cannot be used, ConfigError for options that do not fit it, EnvironmentFault for a
    cache that cannot be written.
    """
    if config.builtin is not None:
        GENERATORS.check(config.builtin)
    fetch(config, progress=progress)
    inputs = _inputs(config)
    folder = folder_named(config.cache) / config.name / f"prepared-{_key(config, inputs)[:12]}"
    ensure_folder(folder, lambda empty: _build(empty, config, progress=progress))
    prepared = _open(folder)
    sides = {"source": prepared.tokenizers.source, "target": prepared.tokenizers.target}
    named = {f"data.{split}: {name}": sha256 for split, files in inputs.items() for name, sha256 in files}
    return replace(prepared, inputs=named | {f"{side} tokenizer": sides[side].sha256 for side in sides})


def _inputs(config: DataConfig) -> dict[Split, list[list[str]]]:
    """Name and SHA-256 of each file that a split is read from; a corpus that we make has no names."""
    if config.builtin is not None:
        texts = {split: load_text(config, split) for split in _SPLITS}
        return {split: [["", text_sha256(text)]] for split, text in texts.items() if text is not None}
    return {split: [_identity(path) for path in input_files(config, split)] for split in _SPLITS}


def _key(config: DataConfig, inputs: dict[Split, list[list[str]]]) -> str:
    """SHA-256 of the input files' bytes and of every option that changes what is made of them."""
    options = {name: value for name, value in asdict(config).items() if name not in _ELSEWHERE}
    everything = json.dumps([_FORMAT, options, list(inputs.values())], default=_enum_name, sort_keys=True)
    return hashlib.sha256(everything.encode()).hexdigest()


def _identity(path: Path) -> list[str]:
    with open_text(path):  # says what is wrong with a folder, a FIFO or a file that may not be read
        return [path.name, file_sha256(path)]


def _enum_name(value: object) -> str:
    assert isinstance(value, Enum)
    return value.name


def _build(folder: Path, config: DataConfig, *, progress: bool) -> None:
    """Fill `folder` with the files that `_open` reads."""
    splits = load_splits(config)
    train, report = clean(splits.train, drop_duplicates=config.drop_duplicates)
    report.require_pairs()
    tokenizers = _train_tokenizers(train, config)
    (folder / "source.model").write_bytes(tokenizers.source.model_bytes)
    (folder / "target.model").write_bytes(tokenizers.target.model_bytes)
    with CorpusWriter(folder, **_vocab_sizes(tokenizers)) as writer:
        for sources, targets in _encoded(train, tokenizers, config, report, progress=progress):
            writer.append(sources, targets)
    report.require_pairs()
    _write_json(folder / "report.json", asdict(report))
    _write_text(folder / "dev.json", splits.dev)
    if splits.test is not None:
        _write_text(folder / "test.json", splits.test)
    # Not said before: of text that cannot be prepared, there is only the error to tell.
    if splits.dev is splits.train:
        LOGGER.warning("data.train: too few pairs to hold any out; dev is the training text itself")
    for line in [*splits.notes, *report.lines()]:
        LOGGER.info("%s", line)


def _train_tokenizers(text: ParallelText, config: DataConfig) -> Tokenizers:
    if config.tokenizer.joint:
        joint = train_tokenizer([*text.sources, *text.targets], config.tokenizer, seed=config.seed)
        return Tokenizers(joint, joint)
    sides = (text.sources, text.targets)
    source, target = (train_tokenizer(side, config.tokenizer, seed=config.seed) for side in sides)
    return Tokenizers(source, target)


def _encoded(
    text: ParallelText, tokenizers: Tokenizers, config: DataConfig, report: CleaningReport, *, progress: bool
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Chunks of the pairs that are neither too long nor too uneven, as ids that end with EOS."""
    off = None if progress else True  # None: on if stderr is a terminal
    with tqdm(total=len(text), desc="encoding", unit=" pairs", unit_scale=True, disable=off) as bar:
        for start in range(0, len(text), _CHUNK):
            sources = tokenizers.source.encode(text.sources[start : start + _CHUNK])
            targets = tokenizers.target.encode(text.targets[start : start + _CHUNK])
            keep = keep_mask(
                np.array([len(sentence) for sentence in sources]),
                np.array([len(sentence) for sentence in targets]),
                config.max_length - 1,  # EOS is one of the max_length tokens
                config.max_ratio,
                report=report,
            )
            report.max_length = config.max_length
            yield (
                [[*sentence, tokenizers.source.eos_id] for sentence in compress(sources, keep)],
                [[*sentence, tokenizers.target.eos_id] for sentence in compress(targets, keep)],
            )
            bar.update(len(sources))


def _open(folder: Path) -> Prepared:
    source = Tokenizer((folder / "source.model").read_bytes())
    target_bytes = (folder / "target.model").read_bytes()
    tokenizers = Tokenizers(source, source if target_bytes == source.model_bytes else Tokenizer(target_bytes))
    test = folder / "test.json"
    return Prepared(
        tokenizers=tokenizers,
        train=EncodedCorpus.open(folder, **_vocab_sizes(tokenizers)),
        dev=_read_text(folder / "dev.json"),
        test=_read_text(test) if test.exists() else None,
        fingerprint=file_sha256(folder / MANIFEST),  # it holds the SHA-256 of every other file
        report=CleaningReport(**json.loads((folder / "report.json").read_bytes())),
    )


def _vocab_sizes(tokenizers: Tokenizers) -> dict[str, int]:
    return {"source_vocab_size": len(tokenizers.source), "target_vocab_size": len(tokenizers.target)}


def _write_text(path: Path, text: ParallelText) -> None:
    _write_json(path, {"sources": text.sources, "targets": text.targets})


def _read_text(path: Path) -> ParallelText:
    content = json.loads(path.read_bytes())
    return ParallelText(content["sources"], content["targets"])


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), encoding="ascii")
