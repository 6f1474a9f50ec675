"""Word alignment from attention weights.

Shapes: S source tokens and T target tokens, both with their EOS.
"""

from collections.abc import Sequence

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
    """The source word of each target word with the largest sum of attention weights; of equals the first.

    `source_words` and `target_words` are the words of the tokens, without EOS; attention to EOS does not count.
    """
    weights_TS = attention_TS[: len(target_words), : len(source_words)].double()
    source_of, target_of = (weights_TS.new_tensor(words).long() for words in (source_words, target_words))
    by_source_TW = weights_TS.new_zeros(len(target_words), max(source_words) + 1).index_add_(1, source_of, weights_TS)
    by_word_WW = by_source_TW.new_zeros(max(target_words) + 1, by_source_TW.size(1))
    links: list[int] = by_word_WW.index_add_(0, target_of, by_source_TW).argmax(dim=1).tolist()
    return links
