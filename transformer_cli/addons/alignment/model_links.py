"""The word alignment of given pairs by a model's cross-attention, as `tfm translate --alignments` has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from transformer_cli.addons.alignment.keys import AlignConfig
from transformer_cli.addons.alignment.word_corpus import WordLinks
from transformer_cli.data.normalization import normalize
from transformer_cli.data.pharaoh import WordPieces
from transformer_cli.data.tags import split_tags
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.decoding.alignment import align_words, word_numbers
from transformer_cli.decoding.directions import asked_tags
from transformer_cli.decoding.plan import check_given_tags
from transformer_cli.evaluation.scoring import refuse_beyond_table
from transformer_cli.inference.batch_size import BatchTokens
from transformer_cli.inference.force_decode import force_decode
from transformer_cli.models.file import ModelFile, open_one_model
from transformer_cli.models.transformer import Transformer


@dataclass(frozen=True)
class ModelAligner:
    """Links each word of a translation with the word of its source that it attends to most."""

    model: Transformer
    file: ModelFile
    device: torch.device
    batch_tokens: BatchTokens
    tags: Sequence[str] = ()  # of every source that has none itself

    def links(self, pairs: Sequence[tuple[str, str]], *, first_line: int) -> list[WordLinks | None]:
        """The links of each pair by rising source word; None where the tokens of a pair are not those of its words.

        A blank side has no links. Raises DataError for a pair that is longer than the position table of the model.
        """
        tokenizers = self.file.tokenizers
        sources, targets = tokenizers.encode_scored(pairs, self.tags)
        refuse_beyond_table(self.file, [max(map(len, ids)) for ids in zip(sources, targets, strict=True)], first_line)
        texts = [(split_tags(source, tokenizers.source.tags)[1], target) for source, target in pairs]
        real = [i for i, pair in enumerate(texts) if all(normalize(side) for side in pair)]
        found: list[WordLinks | None] = [[] for _ in pairs]
        forced = force_decode(
            self.model,
            [(sources[i], targets[i]) for i in real],
            tokenizers,
            device=self.device,
            batch_tokens=self.batch_tokens,
            with_attention=True,
        )
        for i, scores in zip(real, forced, strict=True):
            assert scores.attention_TS is not None
            source = self._source_words.of(texts[i][0], sources[i])
            target = self._target_words.of(texts[i][1], targets[i])
            found[i] = _linked(scores.attention_TS, source, target)
        return found

    @cached_property
    def _source_words(self) -> "_WordNumbers":
        return _WordNumbers(self.file.tokenizers.source)

    @cached_property
    def _target_words(self) -> "_WordNumbers":
        return _WordNumbers(self.file.tokenizers.target)


def open_aligner(config: AlignConfig) -> ModelAligner:
    """The model of --checkpoint. Raises TfmError."""
    device, _, file = open_one_model(config, "transformer")
    tags = asked_tags(file, config.tag, config.source_lang, config.target_lang)
    check_given_tags(tags, file.tokenizers.source.tags)
    return ModelAligner(file.build(device), file, device, config.batch_tokens, tags)


@dataclass(frozen=True)
class NumberedWords:
    """The word that each token is in, and for each of these words its number in the text between white space."""

    first: int  # of the tokens; tags are before it
    of_tokens: list[int]
    originals: list[int]


class _WordNumbers:
    """The words of the tokens of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._pieces = tokenizer, WordPieces.of(tokenizer)

    def of(self, text: str, ids: Sequence[int]) -> NumberedWords | None:
        """The words of a text without tags, and of its ids with them; None where tokens and words cannot be matched.

        Normalisation leaves out words of format characters alone.
        """
        originals = [i for i, word in enumerate(text.split()) for _ in normalize(word).split()]
        of_text = np.flatnonzero(self._pieces.is_text[np.array(ids)])  # some models have tags behind the text
        if not len(of_text):
            return None
        first, end = int(of_text[0]), int(of_text[-1]) + 1
        found = self._pieces.words(np.array(ids[first:end]), len(originals))
        of_tokens = word_numbers(ids[first:end], self._tokenizer) if found is None else found.tolist()
        is_sound = max(of_tokens) + 1 == len(originals) and min(of_tokens) >= 0
        return NumberedWords(first, of_tokens, originals) if is_sound else None


def _linked(attention_TS: torch.Tensor, source: NumberedWords | None, target: NumberedWords | None) -> WordLinks | None:
    if source is None or target is None:
        return None
    links = align_words(attention_TS[target.first :, source.first :], source.of_tokens, target.of_tokens)
    return sorted({(source.originals[i], target.originals[j]) for j, i in enumerate(links)})
