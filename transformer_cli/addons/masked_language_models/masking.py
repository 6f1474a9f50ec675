"""The masks of a masked language model (Devlin et al. 2019, section 3.1).

Of the tokens of a sentence 15 % are chosen; 80 % of these are replaced by the mask, 10 % by a random token, and 10 %
stay as they are. The model has to predict what each of them was. At least one is chosen in each sentence, as in the
program of the paper; otherwise as many as are 15 % in the mean of all sentences.

The mask is no entry of the vocabulary: its id is the first one behind it. No text is ever taken for it, and an encoder
that is trained so has the vocabulary of any other.
"""

from collections.abc import Sequence

import numpy as np

from transformer_cli.addons.masked_language_models.keys import Masking
from transformer_cli.data.cache import Array, EncodedCorpus
from transformer_cli.data.shuffling import splitmix64
from transformer_cli.data.tokenizer import Tokenizer

_CHOICE, _COUNT, _KIND, _RANDOM = (np.uint64(n << 32) for n in range(1, 5))  # what a number is drawn for


def mask_id(tokenizer: Tokenizer) -> int:
    return len(tokenizer)


def special_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids that are no text: nothing is masked where they are, and no token is replaced by them."""
    return sorted({tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, *tokenizer.end_ids, *tokenizer.tag_ids})


def masked(pairs: EncodedCorpus, seeds: Array, tokenizer: Tokenizer, shares: Masking) -> EncodedCorpus:
    """The sentences that are the targets of `pairs`, masked, with one of `seeds` for each.

    The sources are the sentences from BOS to EOS as the model reads them, the targets are the tokens that were chosen,
    and `word_ends` has their positions in the source.
    """
    special = special_ids(tokenizer)
    lengths = pairs.target_lengths.astype(np.int64)
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    place = np.arange(len(sentence)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids = pairs.target_ids[pairs.target_offsets[0] : pairs.target_offsets[-1]].astype(np.int64)
    of_tokens = splitmix64(np.repeat(seeds, lengths) ^ splitmix64(place.astype(np.uint64)))
    is_text = ~np.isin(ids, special)
    n_text = np.bincount(sentence, weights=is_text, minlength=len(lengths))
    n_chosen = np.maximum(1, np.floor(n_text * shares.mask_share + _uniform(seeds, _COUNT))).astype(np.int64)
    # The first of each sentence in a random order, in which what is no text comes last.
    order = np.lexsort((_uniform(of_tokens, _CHOICE) + ~is_text, sentence))
    is_chosen = np.zeros(len(ids), np.bool_)
    is_chosen[order] = place < np.repeat(n_chosen, lengths)
    chosen = np.flatnonzero(is_chosen)
    kind = _uniform(of_tokens[chosen], _KIND)
    text_ids = np.setdiff1d(np.arange(len(tokenizer)), [*special, tokenizer.unk_id])
    random = text_ids[(_uniform(of_tokens[chosen], _RANDOM) * len(text_ids)).astype(np.int64)]
    read = np.where(kind < shares.random_share, random, mask_id(tokenizer))
    read = np.where(kind >= 1 - shares.kept_share, ids[chosen], read)
    sources = ids.copy()
    sources[chosen] = read
    starts = np.cumsum(lengths) - lengths
    offsets = np.concatenate(([0], np.cumsum(lengths + 1)))
    n_targets = np.bincount(sentence[chosen], minlength=len(lengths))
    return EncodedCorpus(
        np.insert(sources, starts, tokenizer.bos_id),
        offsets,
        (lengths + 1).astype(np.int32),
        ids[chosen],
        np.concatenate(([0], np.cumsum(n_targets))),
        n_targets.astype(np.int32),
        word_ends=place[chosen] + 1,
    )


def as_targets(sentences: Sequence[Sequence[int]]) -> EncodedCorpus:
    """A corpus of sentences without a source, as `masked` takes it."""
    return EncodedCorpus.of([[] for _ in sentences], sentences)


def _uniform(seeds: Array, purpose: np.uint64) -> Array:
    """A number of [0, 1) from each seed, another one for each purpose."""
    return (splitmix64(seeds + purpose) >> np.uint64(11)) * 2.0**-53
