"""Subword regularization: each sentence is segmented anew in every epoch (Kudo 2018; Provilkov et al. 2020)."""

from itertools import pairwise

import numpy as np

from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.shuffling import splitmix64
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.data.words import EncodedWords, in_a_row


def resegmented(
    pairs: EncodedCorpus, tokenizers: Tokenizers, seeds: Array, *, dropout: float, max_length: int
) -> EncodedCorpus:
    """The same text in sampled segmentations, with one of `seeds` for each sentence (two for a pair).

    A sentence that would exceed `max_length` keeps its segmentation; classes are not segmented. Where words have
    labels, each word is segmented by itself.
    """
    if pairs.word_ends is not None:
        return _resegmented_words(pairs, pairs.word_ends, tokenizers.source, seeds[0], dropout, max_length)
    source = _side(tokenizers.source, pairs.source_ids, pairs.source_offsets, seeds, dropout, max_length)
    if tokenizers.labels:
        return EncodedCorpus.of(source, [[label] for label in pairs.target_ids.tolist()])
    target = _side(tokenizers.target, pairs.target_ids, pairs.target_offsets, seeds[1:], dropout, max_length)
    return EncodedCorpus.of(source, target)


def _resegmented_words(
    pairs: EncodedCorpus, word_ends: Array, tokenizer: Tokenizer, seeds: Array, dropout: float, max_length: int
) -> EncodedCorpus:
    ids, starts = pairs.source_ids.tolist(), pairs.source_offsets.tolist()
    bounds = pairs.target_offsets.tolist()
    sentences: list[list[list[int]]] = []
    for start, first, end in zip(starts[:-1], bounds[:-1], bounds[1:], strict=True):
        ends = [start, *(start + last + 1 for last in word_ends[first:end].tolist())]
        sentences.append([ids[a:b] for a, b in pairwise(ends)])
    words = [word for sentence in sentences for word in sentence]
    # The place of a word in its sentence gives each of them a seed of its own.
    place = np.arange(len(words)) - np.repeat(pairs.target_offsets[:-1], pairs.target_lengths)
    of_words = splitmix64(np.repeat(seeds, pairs.target_lengths) + (place.astype(np.uint64) << np.uint64(32)))
    drawn = iter(tokenizer.sample(words, (of_words >> np.uint64(33)).tolist(), alpha=dropout))
    kept: list[EncodedWords] = []
    for sentence in sentences:
        new = in_a_row([next(drawn) for _ in sentence])
        kept.append(new if len(new.ids) + len(tokenizer.end_ids) <= max_length else in_a_row(sentence))
    labels = [pairs.target_ids[first:end] for first, end in pairwise(bounds)]
    sources = [[*one.ids, *tokenizer.end_ids] for one in kept]
    return EncodedCorpus.of(sources, labels, [one.word_ends for one in kept])


def sentence_seeds(indices: Array, *, seed: int, epoch: int) -> Array:
    """Two numbers below 2**31 for each pair of the corpus, source and target: a function of these alone."""
    sides = 2 * epoch + np.arange(2, dtype=np.uint64)
    keys = splitmix64(sides + splitmix64(np.array([seed], np.uint64)))
    drawn: Array = splitmix64(keys[:, None] + indices.astype(np.uint64)) >> np.uint64(33)
    return drawn


def _side(
    tokenizer: Tokenizer, ids: Array, offsets: Array, seeds: Array, dropout: float, max_length: int
) -> list[list[int]]:
    """Sentences of a side, drawn with the first of `seeds`; the second texts of pairs (`data.pairs`) with the next."""
    flat, bounds = ids.tolist(), offsets.tolist()
    first = flat[:1] if flat[:1] == [tokenizer.bos_id] else []  # all sentences that are classified begin with it
    stored = [flat[start + len(first) : end - len(tokenizer.end_ids)] for start, end in pairwise(bounds)]  # without EOS
    texts = [_texts(sentence, tokenizer.eos_id) for sentence in stored]
    drawn: list[list[int]] = [[] for _ in texts]
    for n, of_texts in enumerate(zip(*texts, strict=True)):
        for sentence, text in zip(drawn, tokenizer.sample(of_texts, seeds[n].tolist(), alpha=dropout), strict=True):
            sentence += [*([tokenizer.eos_id] if n else []), *text]
    room = max_length - len(first)
    kept = (new if len(new) < room else old for old, new in zip(stored, drawn, strict=True))
    return [[*first, *sentence, *tokenizer.end_ids] for sentence in kept]


def _texts(sentence: list[int], eos_id: int) -> list[list[int]]:
    """The texts of a sentence: one, or two with EOS between them."""
    if eos_id not in sentence:
        return [sentence]
    end = sentence.index(eos_id)
    return [sentence[:end], sentence[end + 1 :]]
