"""Verification of an exported classifier or tagger: does it label as ours does?

The folder's own tokenizer has to give our ids, each logit has to be ours but for rounding, and so has each class that
rounding cannot turn.

Shapes: T words of a sentence, C classes.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor

from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.addons.embedding.encode import LineEncoder
from transformer_cli.addons.interop.verify import CPU, TOLERANCE, in_parts
from transformer_cli.addons.tagging.tagger import word_logits
from transformer_cli.addons.tagging.word_tagger import WordTagger
from transformer_cli.addons.tagging.words import split_words
from transformer_cli.data.pairs import texts_of
from transformer_cli.errors import CheckpointError
from transformer_cli.models.file import ModelFile

_BATCH_TOKENS = 1024


@dataclass(frozen=True)
class LabelIds:
    """A text as ids, with all that stands around it; of a tagger also the tokens of each word."""

    ids: list[int]
    n_of_words: list[int] = field(default_factory=list)

    def pooled(self, logits: Tensor, pooling: str) -> Tensor:
        """Logits of the words, [T, C], from those of the tokens; those of a text, [C], as they are."""
        if not self.n_of_words:
            return logits
        ends = torch.tensor(self.n_of_words).cumsum(0) - 1
        return word_logits(logits[: len(self.ids)], ends.tolist(), pooling)


class LabelProgram(Protocol):
    """Another program, with the exported model and its tokenizer loaded."""

    def encode(self, texts: Sequence[Sequence[str]]) -> list[LabelIds]:
        """The ids of each text, of both of a pair, or of the words of a sentence."""

    def logits(self, sentences: Sequence[LabelIds]) -> list[Tensor]:
        """The logits of each text, [C], or of its words, [T, C]."""


@dataclass(frozen=True)
class LabelVerdict:
    """What was compared; `labels` are those of texts, or of words."""

    lines: int
    ids_identical: int  # lines whose ids are ours
    labels: int
    labels_compared: int  # that rounding could not turn
    labels_identical: int
    largest_difference: float  # of a logit
    tolerance: float = TOLERANCE

    @property
    def holds(self) -> bool:
        is_near = self.largest_difference <= self.tolerance
        return self.ids_identical == self.lines and is_near and self.labels_identical == self.labels_compared

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines_of_text(self) -> list[str]:
        left = self.labels - self.labels_compared
        near = f", {left} not compared (rounding could choose another)" if left else ""
        return [
            f"ids of the text: {self.ids_identical} of {self.lines} lines identical",
            f"logits of {self.labels:,} labels: largest difference {self.largest_difference:.1e} (tolerance"
            f" {self.tolerance:g})",
            f"labels: {self.labels_identical:,} of {self.labels_compared:,} identical{near}",
        ]


def verify_labels(model: ModelFile, program: LabelProgram, lines: Sequence[str]) -> LabelVerdict:
    """Compare on `lines`. Raises CheckpointError where none is short enough for the model."""
    texts, ids, ours = _of_our_model(model, lines)
    if not texts:
        raise CheckpointError(
            f"data.max_length={model.data.get('max_length')}: no line that could be compared is as short, so nothing is"
            " exported. Export a model of longer texts"
        )
    theirs_ids = program.encode(texts)
    theirs = in_parts(program.logits, theirs_ids)
    same_ids = [a == b.ids for a, b in zip(ids, theirs_ids, strict=True)]
    # Other ids may be of another number; these lines are counted above.
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.shape == b.shape]
    if not pairs:
        return LabelVerdict(len(texts), sum(same_ids), 0, 0, 0, float("inf"))
    sides = (torch.cat([one.reshape(-1, one.size(-1)) for one in side]) for side in zip(*pairs, strict=True))
    ours_TC, theirs_TC = sides
    best_T2 = ours_TC.topk(min(2, ours_TC.size(1)), dim=1).values
    is_clear_T = best_T2[:, 0] - best_T2[:, -1] > 2 * TOLERANCE
    is_same_T = ours_TC.argmax(1) == theirs_TC.argmax(1)
    difference = (ours_TC - theirs_TC).abs().max().nan_to_num(torch.inf)
    return LabelVerdict(
        lines=len(texts),
        ids_identical=sum(same_ids),
        labels=len(ours_TC),
        labels_compared=int(is_clear_T.sum()),
        labels_identical=int((is_same_T & is_clear_T).sum()),
        largest_difference=float(difference),
    )


def _of_our_model(model: ModelFile, lines: Sequence[str]) -> tuple[list[Sequence[str]], list[list[int]], list[Tensor]]:
    """The parts of each text that is no longer than the model reads, its ids, and our logits of it."""
    if model.task.has_words:
        tagger = WordTagger(model, device=CPU, batch_tokens=_BATCH_TOKENS)
        sentences = [words for line in lines if (words := split_words(line))]
        ends = model.tokenizers.source.end_ids
        all_ids = [[*chain.from_iterable(words), *ends] for words in tagger.encoder.encode(sentences)]
        kept = [i for i, ids in enumerate(all_ids) if len(ids) <= tagger.max_length]
        sentences = [sentences[i] for i in kept]
        return list(sentences), [all_ids[i] for i in kept], tagger.tag(sentences)
    reader = LineEncoder(model.build_as(Classifier, CPU), model, device=CPU, batch_tokens=_BATCH_TOKENS)
    all_ids = reader.encode(lines)
    cut = set(reader.cut)
    kept = [i for i, ids in enumerate(all_ids) if ids and i + 1 not in cut]
    texts = [texts_of(lines[i]) if reader.n_texts == 2 else [lines[i]] for i in kept]
    return list(texts), [all_ids[i] for i in kept], reader.answers([all_ids[i] for i in kept])
