"""The log-probabilities that a model gives to translations, or to lines of text that have no source."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import Positions
from transformer_cli.data.context import Context, ContextEncoder, contexts_of, without_breaks
from transformer_cli.data.tags import split_tags, with_tags
from transformer_cli.data.unknown import UnknownCounter, unknown_characters
from transformer_cli.decoding.plan import TagWarnings, named
from transformer_cli.decoding.search.scores import divisor
from transformer_cli.decoding.training_text import training_text
from transformer_cli.errors import DataError
from transformer_cli.inference.force_decode import force_decode
from transformer_cli.logs import LOGGER
from transformer_cli.models.ensemble import AnyTokenModel
from transformer_cli.models.file import ModelFile


@dataclass(frozen=True)
class ScoredTranslation:
    """A translation, force-decoded. An empty translation of an empty source has no pieces, as in `tfm translate`."""

    pieces: list[str]  # with EOS
    log_probs: list[float]  # of each piece, natural logarithms

    @property
    def log_prob(self) -> float:
        return math.fsum(self.log_probs)

    def normalized_score(self, config: DecodeConfig) -> float:
        """The score by which beam search ranks it, with `length_normalization`."""
        return self.log_prob / divisor(len(self.pieces), config)


def score_translations(
    model: AnyTokenModel,
    files: Sequence[ModelFile],
    config: DecodeConfig,
    device: torch.device,
    pairs: Sequence[tuple[str, str]],
    *,
    first_line: int = 1,
    unknown: UnknownCounter | None = None,
    tags: Sequence[str] = (),
    contexts: Sequence[Context] | None = None,
) -> list[ScoredTranslation]:
    """Force-decode each (source, translation); messages number them from `first_line`.

    A source that does not begin with a tag gets `tags`, which are the model's. For a document-level model, the sources
    are documents, which blank lines divide, unless `contexts` are given.

    Raises DataError for one that is longer than the position table of a model.
    """
    tokenizers = files[0].tokenizers
    entry, known, text = " ".join(tags), tokenizers.source.tags, training_text(files)
    if n_context := text.context_sentences:
        contexts = contexts or list(contexts_of((source for source, _ in pairs), n_context, known))
        pairs = [(without_breaks(source), translation) for source, translation in pairs]
    sources, targets = tokenizers.encode_scored(pairs, tags)
    pairs = [(with_tags(source, entry, known), translation) for source, translation in pairs]
    if unknown is not None:
        for i, (source, translation) in enumerate(pairs):
            of_source = unknown_characters(source, sources[i], tokenizers.source)
            unknown.add(first_line + i, of_source + unknown_characters(translation, targets[i], tokenizers.target))
    warnings = TagWarnings(text, tokenizers.source)
    for number, (source, _) in enumerate(pairs, start=first_line):
        if source.strip():
            warnings.check(number, source, split_tags(source, known)[0])
    longest = [max(map(len, ids)) for ids in zip(sources, targets, strict=True)]
    if contexts and n_context:
        encoder = ContextEncoder(tokenizers.source, n_context)
        sources = encoder.put_before(sources, contexts, text.longest_source(config))
    for file in files:
        refuse_beyond_table(file, longest, first_line)
    if not files[0].task.has_source:
        warn_longer(files[0], longest, first_line)
    elif too_long := [first_line + i for i, n in enumerate(longest) if n > text.longest_source(config)]:
        LOGGER.warning(
            "%s: longer than %s tokens, scored whole; `tfm translate` would split or cut a source like that",
            named(too_long),
            text.named_limit(config),
        )
    real = [i for i, n in enumerate(longest) if n]  # an empty translation of an empty source is not decoded
    id_pairs = [(sources[i], targets[i]) for i in real]
    forced_scores = force_decode(model, id_pairs, tokenizers, device=device, batch_tokens=config.batch_tokens)
    scored = [ScoredTranslation([], [])] * len(pairs)
    for i, forced in zip(real, forced_scores, strict=True):
        scored[i] = ScoredTranslation(
            tokenizers.target.pieces([*targets[i], tokenizers.target.eos_id]), forced.log_probs
        )
    return scored


def refuse_beyond_table(file: ModelFile, longest: Sequence[int], first_line: int) -> None:
    if file.config.positions is not Positions.learned:
        return
    for i, n in enumerate(longest):
        if n + 1 > file.config.max_positions:
            raise DataError(
                f"line {first_line + i}: {n + 1:,} tokens with its end, but the model has model.max_positions="
                f"{file.config.max_positions}. Shorten the line, or leave it out"
            )


def warn_longer(file: ModelFile, lengths: Sequence[int], first_line: int) -> None:
    """Warn of text without a source that is longer than the model was trained for; it is scored whole."""
    longest = file.data.get("max_length")
    if not isinstance(longest, int):
        return
    if too_long := [first_line + i for i, n in enumerate(lengths) if n + 1 > longest]:
        LOGGER.warning(
            "%s: longer than data.max_length=%d tokens, which the model was trained on; read whole",
            named(too_long),
            longest,
        )
