"""The training text of a tagger: its labels, and sentences of words as ids."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress

import numpy as np
from tqdm import tqdm

from transformer_cli.addons.tagging.words import WordEncoder, split_words
from transformer_cli.config.data import DataConfig
from transformer_cli.data.cache import Array
from transformer_cli.data.clean import CleaningReport, CleanText, keep_mask
from transformer_cli.data.encoding import Encoded, chunks
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.data.words import in_a_row
from transformer_cli.errors import DataError, quoted

MOST_LABELS = 100  # of words in a small text; more than one for twenty words are none
_SENTENCES = 10_000  # that are encoded at a time


def find_word_labels(sentences: Iterable[str]) -> list[str]:
    """The different labels of words, sorted by code points. Raises DataError for one label alone, or far too many."""
    counts = Counter(label for labels in sentences for label in split_words(labels))
    if len(counts) == 1:
        raise DataError(
            f"data.train: every word has the label {quoted(min(counts))}, so there is nothing to learn. Select the"
            " column of the labels with data.columns, as [0,3]"
        )
    if len(counts) > max(MOST_LABELS, counts.total() // 20):
        raise DataError(
            f"data.train: {len(counts):,} different labels of {counts.total():,} words, as {quoted(min(counts))}."
            " Select the column of the labels with data.columns, as [0,3]"
        )
    return sorted(counts)


def encoded_words(
    text: CleanText,
    tokenizers: Tokenizers,
    labels: Sequence[str],
    config: DataConfig,
    report: CleaningReport,
    *,
    progress: bool,
    kept: list[Array],
) -> Iterator[tuple[Encoded, Encoded, Array]]:
    """Chunks of the sentences that are short enough: their ids with EOS, the labels, and the words' last tokens.

    `kept` gets a mask of each chunk.
    """
    off = None if progress else True
    numbers = {label: number for number, label in enumerate(labels)}
    encoder = WordEncoder(tokenizers.source, as_written=True)
    n_ends = len(tokenizers.source.end_ids)
    with tqdm(total=len(text), desc="encoding", unit=" sentences", unit_scale=True, disable=off) as bar:
        for chunk in chunks(text.each(), _SENTENCES):
            words = encoder.encode([split_words(source) for source, _ in chunk])
            sentences = [in_a_row(one) for one in words]
            lengths = np.array([len(one.ids) for one in sentences])
            keep = keep_mask(lengths, lengths, config.max_length - n_ends, config.max_ratio, report=report)
            report.max_length = config.max_length
            kept.append(keep)
            chosen = [(s, split_words(target)) for s, (_, target) in compress(zip(sentences, chunk, strict=True), keep)]
            sources = Encoded.of_sentences([[*s.ids, *tokenizers.source.end_ids] for s, _ in chosen])
            targets = Encoded.of_sentences([[numbers[label] for label in its] for _, its in chosen])
            yield sources, targets, np.array([end for s, _ in chosen for end in s.word_ends], np.int64)
            bar.update(len(chunk))
