"""The word alignment of given pairs by a model's cross-attention, as `tfm translate --alignments` has it."""

from collections.abc import Sequence
from dataclasses import dataclass

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
from transformer_cli.models.device import choose_device
from transformer_cli.models.file import ModelFile, read_model, require
from transformer_cli.models.locate import locate_model
from transformer_cli.models.transformer import Transformer


@dataclass(frozen=True)
class ModelAligner:
    """WordLinks each word of a translation with the word of its source that it attends to most."""

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
            n_source, n_target = tokenizers.source.n_tags(sources[i]), tokenizers.target.n_tags(targets[i])
            words = [
                numbered_words(text, ids, tokenizer)
                for text, ids, tokenizer in (
                    (texts[i][0], tokenizers.source.text_ids(sources[i][n_source:]), tokenizers.source),
                    (texts[i][1], targets[i][n_target:], tokenizers.target),
                )
            ]
            found[i] = _linked(scores.attention_TS[n_target:, n_source:], *words)
        return found


def open_aligner(config: AlignConfig) -> ModelAligner:
    """The model of --checkpoint. Raises TfmError."""
    device = choose_device(config.device)
    path = locate_model(config.checkpoint, config.runs)
    file = read_model(path)
    require(file, path, "transformer")
    tags = asked_tags(file, config.tag, config.source_lang, config.target_lang)
    check_given_tags(tags, file.tokenizers.source.tags)
    return ModelAligner(file.build(device), file, device, config.batch_tokens, tags)


def _linked(
    attention_TS: torch.Tensor, source: "NumberedWords | None", target: "NumberedWords | None"
) -> WordLinks | None:
    if source is None or target is None:
        return None
    links = align_words(attention_TS, source.of_tokens, target.of_tokens)
    return sorted({(source.originals[i], target.originals[j]) for j, i in enumerate(links)})


@dataclass(frozen=True)
class NumberedWords:
    """The word that each token is in, and for each of these words its number in the text between white space."""

    of_tokens: list[int]
    originals: list[int]


def numbered_words(text: str, ids: Sequence[int], tokenizer: Tokenizer) -> NumberedWords | None:
    """The words of the tokens of a text without tags; None where they cannot be told from the tokens.

    Normalisation leaves out words of format characters alone.
    """
    originals = [i for i, word in enumerate(text.split()) for _ in normalize(word).split()]
    pieces = WordPieces.of(tokenizer)
    found = pieces.words(np.array(ids), len(originals))
    of_tokens = word_numbers(ids, tokenizer) if found is None else found.tolist()
    return NumberedWords(of_tokens, originals) if max(of_tokens) + 1 == len(originals) and min(of_tokens) >= 0 else None
