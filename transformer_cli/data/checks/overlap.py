"""A test set that is part of the training text, where that is at hand: its scores are too good."""

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import numpy as np

from transformer_cli.data.cache import Array
from transformer_cli.data.context import break_id
from transformer_cli.data.corpus import ParallelText
from transformer_cli.data.prepare import Prepared
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.logs import LOGGER

MAX_TOKENS = 300_000_000  # of prepared text, both sides: about ten seconds; more is not read for a warning
MANY_LEAKED_PAIRS = 0.01  # of dev or test that are training pairs too
MANY_LEAKED_SOURCES = 0.2  # whose source sentence alone is; 15 % in short sentences that are translated twice


def warn_of_overlap(
    name: str,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    prepared: Prepared,
    *,
    what: Literal["dev", "test"] = "test",
) -> None:
    """Log how many pairs of a test or dev set are training pairs, with any of its references; `sources` have no tags.

    A few, which chance explains, are no warning. Nothing is said of a corpus of more than MAX_TOKENS.
    """
    train = prepared.train
    if len(train.source_ids) + len(train.target_ids) > MAX_TOKENS:
        return
    found = leaks([ParallelText(list(sources), list(reference)) for reference in references], prepared)
    n, n_pairs = len(sources), len({int(i) for pairs, _ in found for i in pairs})
    n_sources = max(len(of_source) for _, of_source in found)
    found_in_it = (
        f"{name}: {n_pairs:,} of {n:,} {what} pairs are in the training text (source and target), and {n_sources:,} by"
        " their source"
    )
    if n_pairs > MANY_LEAKED_PAIRS * n or n_sources > MANY_LEAKED_SOURCES * n:
        LOGGER.warning(
            "%s, so its scores are too good. Remove them from the training text, or from the %s set",
            *(found_in_it, what),
        )
    elif n_pairs:
        LOGGER.info("%s", found_in_it)


def leaks(texts: Sequence[ParallelText], prepared: Prepared) -> list[tuple[Array, Array]]:
    """The indices, for each text, of the pairs that are training pairs, and of those whose source sentence is in one.

    Two sentences are equal if they are the same tokens, so white space does not count, nor do tags and contexts. Blank
    ones are ignored, as are those with `<unk>`, which is equal for other words. The texts have no tags.
    """
    corpus, tokenizers = prepared.train, prepared.tokenizers
    tags = tokenizers.source.tag_ids - set(tokenizers.source.prefix_ids)
    sources_of = [_keys_of(text.sources, tokenizers.source) for text in texts]
    targets_of = [_keys_of(text.targets, tokenizers.target) for text in texts]
    in_pair = [np.zeros(len(text), bool) for text in texts]
    in_source = [np.zeros(len(text), bool) for text in texts]
    divider = break_id(tokenizers.source) if prepared.dev.contexts else None
    source_keys = _sentence_keys(corpus.source_ids, corpus.source_offsets, tags, divider)
    target_keys = _sentence_keys(corpus.target_ids, corpus.target_offsets)
    for sources, targets in zip(source_keys, target_keys, strict=True):
        pairs = _pair_keys(sources, targets)
        for i, ((of_sources, _), (of_targets, _)) in enumerate(zip(sources_of, targets_of, strict=True)):
            in_source[i] |= np.isin(of_sources, sources)
            in_pair[i] |= np.isin(_pair_keys(of_sources, of_targets), pairs)
    return [
        (
            np.flatnonzero(pair & source_tells & target_tells),
            np.flatnonzero(source & source_tells),
        )
        for pair, source, (_, source_tells), (_, target_tells) in zip(
            in_pair, in_source, sources_of, targets_of, strict=True
        )
    ]


_SENTENCES_AT_A_TIME = 20_000


def _keys_of(lines: list[str], tokenizer: Tokenizer) -> tuple[Array, Array]:
    """The key of each line, and whether it tells the line from others: not if that is blank, or has `<unk>`."""
    sentences = [[*ids, *tokenizer.end_ids] for ids in tokenizer.encode(lines, as_written=True)]
    tells = [bool(line.strip()) and tokenizer.unk_id not in ids for line, ids in zip(lines, sentences, strict=True)]
    offsets = np.cumsum([0, *map(len, sentences)])
    ids = np.fromiter((token for sentence in sentences for token in sentence), np.int64, int(offsets[-1]))
    return np.concatenate([np.empty(0, np.uint64), *_sentence_keys(ids, offsets)]), np.array(tells, bool)


def _sentence_keys(
    ids: Array, offsets: Array, tags: Collection[int] = (), divider: int | None = None
) -> Iterator[Array]:
    """A 64-bit key of each sentence, many sentences at a time: equal sentences behind their tags, equal keys.

    What stands before the last `divider` of a sentence is its context.
    """
    for first in range(0, len(offsets) - 1, _SENTENCES_AT_A_TIME):
        bounds = offsets[first : first + _SENTENCES_AT_A_TIME + 1]
        starts, lengths = bounds[:-1] - bounds[0], np.diff(bounds)
        position = np.arange(bounds[-1] - bounds[0]) - np.repeat(starts, lengths)
        # Random odd factors for the positions: a sum of products collides once in 2^63 or so.
        factors = np.random.Philox(key=1).random_raw(int(lengths.max())) | np.uint64(1)
        chosen = ids[bounds[0] : bounds[-1]]
        is_tag = np.isin(chosen, list(tags)) if tags else np.zeros(len(chosen), bool)
        if divider is not None:
            is_tag |= position <= np.repeat(_last_places(chosen == divider, starts, position), lengths)
        position = np.where(is_tag, 0, position - np.repeat(np.add.reduceat(is_tag, starts, dtype=np.int64), lengths))
        values = (chosen.astype(np.uint64) + np.uint64(1)) * factors[position]
        values[is_tag] = 0
        yield np.add.reduceat(values, starts)


def _last_places(is_there: Array, starts: Array, position: Array) -> Array:
    """The last position of each sentence at which a token is there; -1 where there is none."""
    found: Array = np.maximum.reduceat(np.where(is_there, position, -1), starts)
    return found


def _pair_keys(source_keys: Array, target_keys: Array) -> Array:
    keys: Array = source_keys * np.uint64(0x9E3779B97F4A7C15) + target_keys
    return keys
