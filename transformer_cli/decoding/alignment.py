"""Word alignment from attention weights.

Shapes: S source tokens and T target tokens, both with their EOS.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_cli.data.sentencepiece_model import SPACE
from transformer_cli.data.tokenizer import Tokenizer


def word_numbers(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """The number of the word that each token is in, or begins; words have white space between them."""
    so_far = (len(tokenizer.decode(ids[:n]).split()) for n in range(1, len(ids) + 1))
    numbers = [max(0, n_words - 1) for n_words in so_far]
    pieces = tokenizer.pieces(ids)
    for place in reversed(range(len(ids) - 1)):
        if pieces[place] == SPACE:  # decodes to nothing before there is a word behind it
            numbers[place] = numbers[place + 1]
    return numbers


def align_words(attention_TS: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> list[int]:
    """The source word of each target word, by the sums of attention weights of their tokens; of equals the first.

    A sum counts the more the larger a share it is of what the source word gets from all target words: a noun that its
    article attends to is not taken from the word that translates it. `source_words` and `target_words` are the words
    of the tokens, without EOS; attention to EOS does not count.
    """
    weights_TS = attention_TS[: len(target_words), : len(source_words)].double()
    source_of, target_of = (weights_TS.new_tensor(words).long() for words in (source_words, target_words))
    by_source_TW = weights_TS.new_zeros(len(target_words), max(source_words) + 1).index_add_(1, source_of, weights_TS)
    by_word_WW = by_source_TW.new_zeros(max(target_words) + 1, by_source_TW.size(1))
    by_word_WW.index_add_(0, target_of, by_source_TW)
    share_WW = by_word_WW / by_word_WW.sum(dim=0).clamp_min(torch.finfo(by_word_WW.dtype).tiny)
    links: list[int] = (by_word_WW * share_WW).argmax(dim=1).tolist()
    return links
