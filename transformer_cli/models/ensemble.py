"""Several models that translate as one.

Shapes: B batch, S source, T target, K target tokens, V vocabulary, R rows = B × beam.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from transformer_cli.errors import CheckpointError
from transformer_cli.models.cache import DecoderCache, StaticCache
from transformer_cli.models.file import ModelFile, read_model, require
from transformer_cli.models.transformer import Transformer


@dataclass
class EnsembleCache:
    """What each member keeps, side by side."""

    caches: Sequence[DecoderCache]

    @property
    def attention_BNS(self) -> Tensor:
        """The members' mean."""
        return _mean([cache.attention_BNS for cache in self.caches if cache.attention_BNS is not None])

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        for cache in self.caches:
            cache.reorder(rows_R, sentences_B)


@dataclass
class StaticEnsembleCache(EnsembleCache):
    """As StaticCache, of each member."""

    caches: Sequence[StaticCache]

    @property
    def length(self) -> int:
        return self.caches[0].length

    def advance(self, attended: int) -> None:
        for cache in self.caches:
            cache.advance(attended)

    def take_over(self, other: "StaticEnsembleCache") -> None:
        for own, theirs in zip(self.caches, other.caches, strict=True):
            own.take_over(theirs)


class Ensemble(nn.Module):
    """Models of the same vocabularies, of any size, that answer with the mean of their logits.

    A model's logits are its log-probabilities but for a constant, so the ensemble's probability of a token is the
    geometric mean of its members', scaled so that those of all tokens add up to 1: one that a single member holds to be
    impossible is not said. (The arithmetic mean, of probabilities, would let each member add its own.)
    """

    def __init__(self, members: Sequence[Transformer]) -> None:
        super().__init__()
        assert members
        self.members = cast(Sequence[Transformer], nn.ModuleList(members))  # torch's list does not tell what it holds

    def forward(self, source_BS: Tensor, target_in_BT: Tensor, source_mask_BS: Tensor | None = None) -> Tensor:
        """As `Transformer.forward`, [B, T, V]."""
        return _mean([member(source_BS, target_in_BT, source_mask_BS) for member in self.members])

    def predict_in_parts(
        self, source_BS: Tensor, target_in_BT: Tensor, real_BT: Tensor, *, n_rows: int
    ) -> Iterator[Tensor]:
        """As `Transformer.predict_in_parts`, [K, V] in parts."""
        parts = [member.predict_in_parts(source_BS, target_in_BT, real_BT, n_rows=n_rows) for member in self.members]
        return (_mean(logits_KV) for logits_KV in zip(*parts, strict=True))

    def start(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> EnsembleCache:
        """As `Transformer.start`."""
        return EnsembleCache(
            [
                member.start(source_BS, beam_size=beam_size, max_length=max_length, keeps_attention=keeps_attention)
                for member in self.members
            ]
        )

    def start_static(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> StaticEnsembleCache:
        """As `Transformer.start_static`."""
        return StaticEnsembleCache(
            [
                member.start_static(
                    source_BS, beam_size=beam_size, max_length=max_length, keeps_attention=keeps_attention
                )
                for member in self.members
            ]
        )

    def restart(self, source_BS: Tensor, cache: StaticEnsembleCache) -> None:
        """As `Transformer.restart`."""
        for member, own in zip(self.members, cache.caches, strict=True):
            member.restart(source_BS, own)

    def step(self, ids_R: Tensor, cache: EnsembleCache) -> Tensor:
        """As `Transformer.step`, [R, V]."""
        return _mean([member.step(ids_R, own) for member, own in zip(self.members, cache.caches, strict=True)])

    def alignment(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        """As `Transformer.alignment`, [B, T, S]: the members' mean."""
        return _mean([member.alignment(source_BS, target_in_BT) for member in self.members])


def _mean(each: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, each) / len(each)


AnyModel = Transformer | Ensemble


def build_all(models: Sequence[ModelFile], device: torch.device) -> AnyModel:
    """One model, or the ensemble of several, ready to translate."""
    built = [model.build(device) for model in models]
    return built[0] if len(built) == 1 else Ensemble(built).eval()


def read_models(paths: Sequence[Path], kinds: Sequence[str] = ("transformer",)) -> list[ModelFile]:
    """Model files that can answer together, of one of the `kinds`. Raises CheckpointError, also if they cannot."""
    models = [read_model(path) for path in paths]
    require(models[0], paths[0], *kinds)
    for path, model in zip(paths, models, strict=True):
        require(model, path, models[0].config.name)
        refuse_unlike(models[0], paths[0], model, path)
    return models


def refuse_unlike(first: ModelFile, first_path: Path, other: ModelFile, path: Path) -> None:
    """Raise CheckpointError for another language or vocabulary than the first model's."""
    languages, others = ((model.source_lang, model.target_lang) for model in (first, other))
    if languages != others:
        _refuse(path, f"translates {' → '.join(others)}, but {first_path} {' → '.join(languages)}")
    for side in ("source", "target"):
        ours, theirs = (getattr(model.tokenizers, side).sha256 for model in (first, other))
        if ours != theirs:
            _refuse(path, f"its {side} vocabulary has SHA-256 {theirs[:12]}…, but that of {first_path} {ours[:12]}…")
    if first.tokenizers.labels != other.tokenizers.labels:
        _refuse(path, f"has {len(other.tokenizers.labels)} classes, which are not those of {first_path}")


def _refuse(path: Path, what: str) -> None:
    raise CheckpointError(f"{path}: {what}. Choose models that were trained on the same prepared data")
