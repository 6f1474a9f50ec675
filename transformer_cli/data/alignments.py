"""The word alignment of a prepared corpus, for train.guided_alignment: estimated from the text, or read from a file.

It is kept in the cache beside the corpus, which does not change with it.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from transformer_cli.config.data import DataConfig
from transformer_cli.data.aligner import Aligner
from transformer_cli.data.cache import MANIFEST, Alignment, Array, EncodedCorpus, ensure_folder
from transformer_cli.data.hashes import Hashes
from transformer_cli.data.lines import open_text
from transformer_cli.data.pharaoh import links_of_file
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.environment import folder_named
from transformer_cli.errors import DataError
from transformer_cli.logs import LOGGER

WORD_ALIGNMENT = "word alignment"  # among the inputs of a run
_FORMAT = 3  # to be raised when the same text would get other links
_SOURCES, _TARGETS, _OFFSETS = "links.sources", "links.targets", "links.offsets"
_OFFSET_TYPE = np.dtype("<i8")


def with_alignment(prepared: Prepared, config: DataConfig) -> Prepared:
    """The corpus with a word alignment of its training pairs. Raises DataError for a file that does not fit them."""
    place = folder_named(config.cache) / config.name
    hashes, file = Hashes(place), None if config.alignments is None else Path(config.alignments)
    key: list[Any] = [_FORMAT, prepared.fingerprint]
    if file is not None:
        with open_text(file):  # says what is wrong with it
            key += [hashes.of([file]), prepared.inputs]
    folder = place / f"aligned-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]}"

    def build(empty: Path) -> None:
        with TemporaryDirectory(dir=empty) as scratch:
            if file is None:
                links = aligner_of(prepared.train, prepared.tokenizers, Path(scratch)).links()
            else:
                links = links_of_file(file, prepared.train, prepared.tokenizers, config, Path(scratch))
            _write(empty, prepared.train, links, "data.train" if file is None else f"data.alignments={file}")

    ensure_folder(folder, build, hashes)
    digest = hashlib.sha256((folder / MANIFEST).read_bytes()).hexdigest()
    train = replace(prepared.train, alignment=_open(folder, prepared.train))
    return replace(prepared, train=train, inputs={**prepared.inputs, WORD_ALIGNMENT: digest})


def aligner_of(corpus: EncodedCorpus, tokenizers: Tokenizers, scratch: Path) -> Aligner:
    """The aligner of a prepared text: BOS, EOS and tags have no links."""
    sides = tokenizers.source, tokenizers.target
    source, target = ([one.bos_id, one.eos_id, *one.tag_ids] for one in sides)
    spaces = [[i for i, piece in enumerate(one.pieces(range(len(one)))) if piece == SPACE] for one in sides]
    return Aligner(corpus, (source, target), scratch, spaces=(spaces[0], spaces[1]))


def _write(folder: Path, corpus: EncodedCorpus, links: Iterator[tuple[Array, Array, Array]], what: str) -> None:
    """`links` are source and target positions, and the number of each pair, of some pairs at a time."""
    kind, n_links, n_aligned = _position_type(corpus), 0, 0
    with (
        (folder / _SOURCES).open("wb") as sources,
        (folder / _TARGETS).open("wb") as targets,
        (folder / _OFFSETS).open("wb") as offsets,
    ):
        offsets.write(np.zeros(1, _OFFSET_TYPE).tobytes())
        for source, target, n in links:
            sources.write(source.astype(kind).tobytes())
            targets.write(target.astype(kind).tobytes())
            offsets.write((n_links + np.cumsum(n)).astype(_OFFSET_TYPE).tobytes())
            n_links, n_aligned = n_links + len(source), n_aligned + int((n > 0).sum())
    if not n_links:
        raise DataError(f"{what}: no word of the training pairs has a link. Set train.guided_alignment=0")
    LOGGER.info(
        "word alignment: %s links in %s of %s training pairs", f"{n_links:,}", f"{n_aligned:,}", f"{len(corpus):,}"
    )


def _open(folder: Path, corpus: EncodedCorpus) -> Alignment:
    """The alignment in `folder`, mapped into memory."""
    kind = _position_type(corpus)
    sources, targets = (np.memmap(folder / name, kind, "r").view(np.ndarray) for name in (_SOURCES, _TARGETS))
    return Alignment(sources, targets, np.memmap(folder / _OFFSETS, _OFFSET_TYPE, "r").view(np.ndarray))


def _position_type(corpus: EncodedCorpus) -> np.dtype[Any]:
    longest = max(int(corpus.source_lengths.max(initial=0)), int(corpus.target_lengths.max(initial=0)))
    return np.dtype("<u2" if longest <= 1 << 16 else "<u4")
