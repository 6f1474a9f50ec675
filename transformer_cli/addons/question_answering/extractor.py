"""An answer extractor: the encoder, and a linear layer with two outputs, that a token is the first or the last one.

Shapes: B batch, S source, D width, L longest source, T targets of all sentences, two of each: start and end. A tensor
that begins with S holds sentences padded, [B, S, …], or packed, [S, …].
"""

from itertools import accumulate

import torch
from torch import Tensor, nn

from transformer_cli.addons.classification.classifier import Classifier, SegmentEmbedding
from transformer_cli.addons.embedding.pooling import source_layout
from transformer_cli.addons.question_answering.questions import END, START
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.data.transfer import to_device
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.layouts import AttentionLayout, PackedLayout
from transformer_cli.models.transformer import DEFAULT_MODEL_OPTIONS, ModelOptions

# Logit of a token that cannot be: not infinite, so that the divergence of two predictions (R-Drop) is a number.
IMPOSSIBLE = -1e4


class MatchEmbedding(SegmentEmbedding):
    """Segment embeddings, and a learned vector for each token of the passage that the question has, too.

    That is the feature `exact match` of Chen et al. 2017, section 3.2: equal tokens need not be found by attention.
    """

    def __init__(self, d_model: int, *, eos_id: int) -> None:
        super().__init__(d_model, eos_id=eos_id)
        self.weight_of_match = nn.Parameter(torch.empty(d_model))  # named so that it is taken over with `weight`
        nn.init.normal_(self.weight_of_match, std=d_model**-0.5)

    def embed(self, source_S: Tensor, source: AttentionLayout, segment_S: Tensor) -> Tensor:
        """The vectors that are added to the embeddings of the tokens, [S, D]."""
        matches_S = in_question(source_S, source, segment_S) & (source_S != self.eos_id)
        x_SD: Tensor = self(segment_S) + matches_S.unsqueeze(-1) * self.weight_of_match
        return x_SD


def in_question(source_S: Tensor, source: AttentionLayout, segment_S: Tensor) -> Tensor:
    """Whether each token of the second text is in the first one of the same pair, too."""
    if isinstance(source, PackedLayout):
        pair_S = (source.positions == 0).cumsum(dim=0)
    else:
        pair_S = torch.arange(len(source_S), device=source_S.device).unsqueeze(1).expand_as(source_S)
    key_S = pair_S * (1 << 32) + source_S
    return torch.isin(key_S, torch.where(segment_S == 0, key_S, -1)) & (segment_S == 1)


class SpanExtractor(Classifier):
    """A classifier of tokens of question and passage, with the segment embeddings of pairs (Devlin et al. 2019).

    The first token, BOS, is both ends of no answer.
    """

    kind = "span_extractor"

    def __init__(
        self, config: ModelConfig, source: Vocabulary, target: Vocabulary, options: ModelOptions = DEFAULT_MODEL_OPTIONS
    ) -> None:
        super().__init__(config, source, target, options)
        assert source.eos_id is not None
        self.segment_embedding = MatchEmbedding(config.d_model, eos_id=source.eos_id)

    def forward(self, source_BS: Tensor) -> Tensor:
        """Logits of start and end at every token, [B, S, 2]."""
        return self.token_logits(source_BS, source_layout(source_BS, self.source_pad_id))

    def token_logits(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        """Logits at every token, [S, 2]; IMPOSSIBLE where neither passage nor the first token is."""
        marks = self.segment_embedding
        assert isinstance(marks, MatchEmbedding)
        segment_S = marks.segments(source_S, source)
        x_SD = self.source_embedding(source_S) + marks.embed(source_S, source, segment_S)
        memory_SD = self.encoder(self.convolved(x_SD, source), source)
        logits_S2: Tensor = self.to_classes(self.dropout(memory_SD))
        is_mark_S = (source_S == marks.eos_id) | (source_S == self.source_pad_id)
        may_be_S = (segment_S == 1) & ~is_mark_S
        if isinstance(source, PackedLayout):
            may_be_S = may_be_S | (source.positions == 0)
        else:
            may_be_S[:, 0] = True
        return logits_S2.masked_fill(~may_be_S.unsqueeze(-1), IMPOSSIBLE)

    def predict(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        raise NotImplementedError  # of a sentence there is no class

    def logits(self, given: Inputs) -> Tensor:
        """Logits over the positions of its source at each target, [T, L]."""
        logits_S2 = self.token_logits(given.source_S, given.source)
        start_T, length_T = target_sources(given.source, given.target, len(given.target_in_T), logits_S2.device)
        column_L = torch.arange(given.source.max_length, device=logits_S2.device)
        row_TL = (start_T[:, None] + column_L).clamp(max=len(logits_S2) - 1)
        output_T = torch.where(given.target.positions == 0, START, END)
        logits_TL = logits_S2[row_TL, output_T[:, None]]
        return logits_TL.masked_fill(column_L >= length_T[:, None], IMPOSSIBLE)


def target_sources(source: PackedLayout, target: PackedLayout, n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The row of the first token of the sentence that each of `n` targets is of, [T], and the tokens of that."""
    if source.groups is None:
        assert source.cu_seqlens_N is not None
        assert target.cu_seqlens_N is not None
        n_targets_N = (target.cu_seqlens_N[1:] - target.cu_seqlens_N[:-1]).long()
        starts_N = source.cu_seqlens_N.long()
        lengths_N = starts_N[1:] - starts_N[:-1]
        return (
            starts_N[:-1].repeat_interleave(n_targets_N, output_size=n),
            lengths_N.repeat_interleave(n_targets_N, output_size=n),
        )
    assert target.groups is not None
    begins = accumulate((many * length for many, length in source.groups), initial=0)
    starts, lengths = [], []
    for begin, (many, length), (_, n_targets) in zip(begins, source.groups, target.groups, strict=False):
        starts.append((begin + torch.arange(many) * length).repeat_interleave(n_targets))
        lengths.append(torch.full((many * n_targets,), length))
    return to_device(torch.cat(starts), device), to_device(torch.cat(lengths), device)
