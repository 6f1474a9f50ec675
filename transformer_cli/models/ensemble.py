"""Ensembles: several models that translate as one.

Shapes: B batch, S source, T target, K target tokens, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import ModelFile, read_model, require
from transformer_cli.models.transformer import TokenModel, Transformer


class Ensemble(nn.Module):
    """Models of the same vocabularies, of any size. The ensemble's logits are the mean of theirs.

    A model's logits are its log-probabilities but for a constant, so the ensemble's probability of a token is the
    geometric mean of its members', normalised: a token that is impossible for one member is impossible for all. (With
    the arithmetic mean, of probabilities, each member could add tokens of its own.)
    """

    def __init__(self, members: Sequence[Transformer]) -> None:
        super().__init__()
        assert members
        self.members = cast(
            Sequence[Transformer], nn.ModuleList(members)
        )  # torch's list does not declare the type of its items

    def forward(self, source_BS: Tensor, target_in_BT: Tensor, source_mask_BS: Tensor | None = None) -> Tensor:
        """The mean prediction as `Transformer.forward` returns it, [B, T, V]."""
        return mean([member(source_BS, target_in_BT, source_mask_BS) for member in self.members])

    def predict_in_parts(
        self, source_BS: Tensor, target_in_BT: Tensor, real_K: Tensor, *, n_rows: int
    ) -> Iterator[Tensor]:
        """Predicts as `Transformer.predict_in_parts` does, [K, V] in parts."""
        parts = [member.predict_in_parts(source_BS, target_in_BT, real_K, n_rows=n_rows) for member in self.members]
        return (mean(logits_KV) for logits_KV in zip(*parts, strict=True))

    def alignment(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        """The members' mean of `Transformer.alignment`, [B, T, S]."""
        return mean([member.alignment(source_BS, target_in_BT) for member in self.members])


def mean(each: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, each) / len(each)


AnyModel = Transformer | Ensemble
AnyTokenModel = TokenModel | Ensemble  # whose targets have log-probabilities


def build_all(models: Sequence[ModelFile], device: torch.device, *, copies: bool = True) -> AnyModel:
    """One model, or the ensemble of several, ready to translate. `copies`: see `ModelFile.build_as`."""
    built = [model.build(device, copies=copies) for model in models]
    return built[0] if len(built) == 1 else Ensemble(built).eval()


def read_models(paths: Sequence[Path], kinds: Sequence[str] = ("transformer",)) -> list[ModelFile]:
    """Model files that can form an ensemble, of one of the `kinds`. Raises CheckpointError, also if they cannot."""
    models = [read_model(path) for path in paths]
    require(models[0], paths[0], *kinds)
    for path, model in zip(paths, models, strict=True):
        require(model, path, models[0].kind)
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
