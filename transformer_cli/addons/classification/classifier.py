"""A text classifier: the encoder, a vector of each sentence or pair of sentences, and a linear layer.

Shapes: B batch, S source, L either length, D width, P width of what is pooled, N sentences, C classes. A tensor that
begins with S holds sentences padded, [B, S, …], or packed, [S, …]. A pair is one sentence: BOS, its first text, EOS,
its second text, EOS.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_cli.addons.embedding.pooling import Pooling, offsets, source_layout
from transformer_cli.config.model import ModelConfig, Vocabulary
from transformer_cli.config.poolings import POOLINGS
from transformer_cli.models.attention import initialise
from transformer_cli.models.embeddings import make_embedding
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.layers import Dropout
from transformer_cli.models.layouts import AttentionLayout, PackedLayout
from transformer_cli.models.linear import Linear
from transformer_cli.models.transformer import DEFAULT_MODEL_OPTIONS, Encoder, Model, ModelOptions


class Classifier(Model):
    """Embeddings and encoder are those of a Transformer, and can take over its weights."""

    kind = "classifier"

    def __init__(
        self, config: ModelConfig, source: Vocabulary, target: Vocabulary, options: ModelOptions = DEFAULT_MODEL_OPTIONS
    ) -> None:
        super().__init__()
        self.source_pad_id = source.pad_id
        self.source_embedding = make_embedding(config, source.size, pad_id=source.pad_id)
        self.segment_embedding: SegmentEmbedding | None = None
        if config.n_segments > 1:
            assert source.eos_id is not None
            self.segment_embedding = SegmentEmbedding(config.d_model, eos_id=source.eos_id)
        self.dropout = Dropout(config.dropout)
        self.convolution: Convolution | None = None
        if config.convolution is not None:
            self.convolution = Convolution(config.d_model, config.convolution)
        self.encoder = Encoder(config, options)
        self.pooling: Pooling = POOLINGS[config.pooling].build(config)
        self.to_classes = Linear(self.pooling.width, target.size, is_output=True)
        initialise(self.to_classes)

    def forward(self, source_BS: Tensor) -> Tensor:
        """Logits of the classes, [B, C]."""
        return self.predict(source_BS, source_layout(source_BS, self.source_pad_id))

    def predict(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        """Logits of the classes of each sentence, [N, C]."""
        pooled_NP = self.pooling(*self.states(source_S, source))
        logits_NC: Tensor = self.to_classes(self.dropout(pooled_NP))
        return logits_NC

    def states(self, source_S: Tensor, source: AttentionLayout) -> tuple[Tensor, AttentionLayout, Tensor | None]:
        """The states of the encoder, [S, D], their layout, and the text of its pair that each token belongs to."""
        x_SD, segment_S = self.source_embedding(source_S), None
        if self.segment_embedding is not None:
            segment_S = self.segment_embedding.segments(source_S, source)
            x_SD = x_SD + self.segment_embedding(segment_S)
        return self.encoder(self.convolved(x_SD, source), source), source, segment_S

    def encoder_input(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        return self.convolved(self.source_embedding(source_S), source)

    def logits(self, given: Inputs) -> Tensor:
        return self.predict(given.source_S, given.source)

    def convolved(self, x_SD: Tensor, source: AttentionLayout) -> Tensor:
        """Embeddings as they enter the encoder."""
        return x_SD if self.convolution is None else x_SD + self.convolution(self.dropout(x_SD), source)


class Convolution(nn.Module):
    """relu(W [x_(t-r); …; x_(t+r)] + b) of each token t and the r on either side (Kim 2014, equation 2).

    Beyond the ends of a sentence are zeros.
    """

    def __init__(self, d_model: int, width: int) -> None:
        super().__init__()
        self.reach = width // 2
        self.to_out = Linear(width * d_model, d_model)
        initialise(self.to_out)

    def forward(self, x_SD: Tensor, source: AttentionLayout) -> Tensor:
        near = [shifted(x_SD, source, by) for by in range(-self.reach, self.reach + 1)]
        return F.relu(self.to_out(torch.cat(near, dim=-1)))


def shifted(x_SD: Tensor, source: AttentionLayout, by: int) -> Tensor:
    """The row of token t + `by` of the same sentence for each token t; zero where the sentence has none."""
    if isinstance(source, PackedLayout):
        position_S = source.positions
        is_there_S = position_S.roll(-by) == position_S + by  # else it is of another sentence
        return x_SD.roll(-by, dims=0) * is_there_S[:, None]
    if source.mask_B11L is not None:
        x_SD = x_SD * source.mask_B11L[:, 0, 0, :, None]
    column_L = torch.arange(source.length, device=x_SD.device) + by
    return x_SD.roll(-by, dims=1) * ((column_L >= 0) & (column_L < source.length))[:, None]


class SegmentEmbedding(nn.Module):
    """A learned vector for each text of a pair, added to the embeddings of its tokens (Devlin et al. 2019)."""

    def __init__(self, d_model: int, *, eos_id: int) -> None:
        super().__init__()
        self.eos_id = eos_id
        self.weight = nn.Parameter(torch.empty(2, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, segment_S: Tensor) -> Tensor:
        return F.embedding(segment_S, self.weight)

    def segments(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        """The text of its pair, 0 or 1, that each token belongs to: how many EOS are before it.

        Each EOS belongs to the text that it ends, and padding to the second. Packed pairs have two EOS each, so that
        those of all earlier pairs are an even number.
        """
        is_eos_S = (source_S == self.eos_id).int()
        before_S = is_eos_S.cumsum(dim=-1) - is_eos_S
        return before_S % 2 if isinstance(source, PackedLayout) else before_S.clamp(max=1)


class SegmentPooling(Pooling):
    """`pool_segments`, of a classifier of pairs."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.width = 4 * d_model

    def forward(self, x_SD: Tensor, source: AttentionLayout, segment_S: Tensor | None = None) -> Tensor:
        assert segment_S is not None
        return pool_segments(x_SD, source, segment_S)


def pool_segments(x_SD: Tensor, source: AttentionLayout, segment_S: Tensor) -> Tensor:
    """[u; v; |u - v|; u * v] of the means u and v of both texts of each pair, [N, 4 D] (Conneau et al. 2017)."""
    if isinstance(source, PackedLayout):
        u_ND, v_ND = _segment_means(x_SD, source, segment_S)
    else:
        is_real_BS = x_SD.new_ones(x_SD.shape[:2], dtype=torch.bool)
        if source.mask_B11L is not None:
            is_real_BS = source.mask_B11L[:, 0, 0, :].expand_as(is_real_BS)
        weights = [((segment_S == n) & is_real_BS).to(x_SD.dtype).unsqueeze(-1) for n in (0, 1)]
        u_ND, v_ND = ((x_SD * weight_BS1).sum(dim=1) / weight_BS1.sum(dim=1).clamp(min=1) for weight_BS1 in weights)
    return torch.cat([u_ND, v_ND, (u_ND - v_ND).abs(), u_ND * v_ND], dim=-1)


def _segment_means(x_SD: Tensor, source: PackedLayout, segment_S: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of each text of packed pairs; zero for the second text of what is padding."""
    n_pairs = sum(n for n, _ in source.groups) if source.groups is not None else len(offsets(source)) - 1
    row_S = 2 * ((source.positions == 0).cumsum(dim=0) - 1) + segment_S
    sum_RD = x_SD.new_zeros(2 * n_pairs, x_SD.size(1)).index_add(0, row_S, x_SD)
    count_R = x_SD.new_zeros(2 * n_pairs).index_add(0, row_S, torch.ones_like(x_SD[:, 0]))
    mean_RD = sum_RD / count_R.clamp(min=1)[:, None]
    return mean_RD[0::2], mean_RD[1::2]
