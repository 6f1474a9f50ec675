"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), section 3.

Shapes: B batch, S source, T target, L either length, K target tokens of all sentences, D width, H heads, V vocabulary,
R rows of a search. A tensor that begins with S, T or L holds sentences padded, [B, L, …], or packed, [L, …].
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer_cli.config.model import Autoregression, DecoderStart, ModelConfig, Norm, Positions, Tying, Vocabulary
from transformer_cli.errors import ConfigError
from transformer_cli.models.attention import CrossAttention, KeysAndValues, SelfAttention, project_memory_at_once
from transformer_cli.models.attention_kernels import attention_weights
from transformer_cli.models.cache_protocol import EncoderDecoderCache
from transformer_cli.models.embeddings import (
    LearnedPositions,
    RotaryPositions,
    Rotation,
    SinusoidalPositions,
    TokenEmbedding,
    make_embedding,
    make_output,
)
from transformer_cli.models.inputs import Inputs
from transformer_cli.models.layers import (
    CausalLayer,
    DecoderLayer,
    Dropout,
    EncoderLayer,
    FeedForward,
    Residual,
    make_norm,
)
from transformer_cli.models.layouts import AttentionLayout, PaddedLayout, SequenceLayout
from transformer_cli.models.ssru import SSRU

LayerT = TypeVar("LayerT", EncoderLayer, CausalLayer)
AttentionT = TypeVar("AttentionT", SelfAttention, CrossAttention)


@dataclass(frozen=True)
class ModelOptions:
    """How a model is computed. Its parameters and, but for rounding, its outputs are the same with any of them."""

    activation_checkpointing: bool = False  # recompute each layer's activations in the backward pass
    projects_memory_at_once: bool = False  # keys and values for all decoder layers: one large product, not many small
    vocab_multiple_of: int = 1  # in training, pad the product with the vocabulary to a multiple of so many columns


DEFAULT_MODEL_OPTIONS = ModelOptions()


class Stack(nn.Module):
    """What encoder and decoder share: positions and dropout before the layers, and a final norm.

    Only pre-LN has a final norm: its residual sum is never normalised on the way, post-LN's always is.
    """

    layers: Sequence[nn.Module]
    call: Callable[..., Any]  # of a part with its arguments: training compiles it

    def __init__(self, config: ModelConfig, options: ModelOptions) -> None:
        super().__init__()
        self.call = call_part
        self.positions = make_positions(config)
        self.rotary = RotaryPositions(config.key_width) if config.positions is Positions.rotary else None
        self.attention_window = config.attention_window  # of its self-attention
        self.dropout = Dropout(config.dropout)
        self.norm = make_norm(config) if config.norm is Norm.pre else nn.Identity()
        self.activation_checkpointing = options.activation_checkpointing
        self.layer_drop = config.layer_drop

    def embed_positions(self, x_LD: Tensor, layout: SequenceLayout) -> tuple[Tensor, Rotation | None]:
        """Embeddings with positional encodings added; rotary ones are returned, for each layer to apply."""
        rotation = self.rotary(x_LD, layout) if self.rotary is not None else None
        x_LD = self.positions(x_LD, layout) if self.positions is not None else x_LD
        return self.dropout(x_LD), rotation

    def run_layer(self, layer: nn.Module, x_LD: Tensor, *args: Any) -> Tensor:
        """The output of a layer; `x_LD` itself where training skips it (LayerDrop, Fan et al. 2020, section 3.1).

        As in fairseq, each layer is drawn by itself, and the output of those that are left is not scaled. The draw is
        made on the CPU, so that nothing waits for a GPU.
        """
        if self.training and self.layer_drop and float(torch.rand(())) < self.layer_drop:
            return x_LD
        is_checkpointed = self.activation_checkpointing and torch.is_grad_enabled()
        run = partial(checkpoint, self.call, use_reentrant=False) if is_checkpointed else self.call
        y_LD: Tensor = run(layer, x_LD, *args)
        return y_LD


def call_part(part: Callable[..., Any], *args: Any) -> Any:
    return part(*args)


class Encoder(Stack):
    """A stack of identical layers over the source (section 3.1)."""

    layers: Sequence[EncoderLayer]

    def __init__(self, config: ModelConfig, options: ModelOptions = DEFAULT_MODEL_OPTIONS) -> None:
        super().__init__(config, options)
        layers = nn.ModuleList(make_layer(EncoderLayer, config) for _ in range(config.n_encoder_layers))
        self.layers = cast(Sequence[EncoderLayer], layers)  # torch's list does not declare the type of its items

    def forward(self, x_SD: Tensor, source: AttentionLayout) -> Tensor:
        x_SD, rotation = self.call(self.embed_positions, x_SD, source)
        for layer in self.layers:
            x_SD = self.run_layer(layer, x_SD, source, rotation)
        memory_SD: Tensor = self.norm(x_SD)
        return memory_SD


class Decoder(Stack):
    """A stack of identical layers over the target so far, each of which also attends to the encoded source."""

    layers: Sequence[DecoderLayer]

    def __init__(self, config: ModelConfig, options: ModelOptions = DEFAULT_MODEL_OPTIONS) -> None:
        super().__init__(config, options)
        layers = nn.ModuleList(make_decoder_layer(config) for _ in range(config.n_decoder_layers))
        self.layers = cast(Sequence[DecoderLayer], layers)
        self.projects_memory_at_once = options.projects_memory_at_once
        is_recurrent = config.decoder is Autoregression.ssru
        self.state_width = config.d_model if is_recurrent else None  # of each layer; None: they have self-attention

    def forward(self, x_TD: Tensor, target: AttentionLayout, memory_SD: Tensor, source: AttentionLayout) -> Tensor:
        x_TD, rotation = self.call(self.embed_positions, x_TD, target)
        projected: Sequence[KeysAndValues | None] = [None] * len(self.layers)
        if self.projects_memory_at_once:
            projected = project_memory_at_once([layer.cross_attention for layer in self.layers], memory_SD)
        for layer, keys_and_values in zip(self.layers, projected, strict=True):
            x_TD = self.run_layer(layer, x_TD, target, memory_SD, source, rotation, keys_and_values)
        y_TD: Tensor = self.norm(x_TD)
        return y_TD

    def full_context(
        self, x_TD: Tensor, target: AttentionLayout, memory_SD: Tensor, source: AttentionLayout, *, layer: int
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys of the cross-attention of `layer`, where each position attends to the whole target.

        Garg et al. 2019, section 4.3: a pass for the alignment alone. Layers above are not computed.
        """
        x_TD, rotation = self.call(self.embed_positions, x_TD, target)
        for below in self.layers[:layer]:
            x_TD = self.run_layer(below, x_TD, target, memory_SD, source, rotation, None, False)
        return self.layers[layer].cross_scores(x_TD, target, memory_SD, rotation)

    def project_memory(self, memory_BSD: Tensor) -> list[KeysAndValues]:
        """Keys and values of the source, for the cross-attention of each layer."""
        return [layer.cross_attention.project_memory(memory_BSD) for layer in self.layers]

    def step(self, x_RD: Tensor, cache: EncoderDecoderCache) -> Tensor:
        """`forward` for the newest token of each row; the cache holds keys and values of all others."""
        x_RD, rotation = self.embed_positions(x_RD, cache.next_layout)
        cache.extend()
        for i, layer in enumerate(self.layers):
            x_RD = layer.step(x_RD, i, cache, rotation)
        y_RD: Tensor = self.norm(x_RD)
        return y_RD


class Model(nn.Module):
    """What training, pictures and model files use of any model."""

    kind: ClassVar[str]  # `Task.model` of the tasks that it is for

    def logits(self, given: Inputs) -> Tensor:
        """The logits of each target of a batch, [T, V]; of a classifier, one of each sentence."""
        raise NotImplementedError

    @property
    def stacks(self) -> Sequence[Stack]:
        """The stacks from the input to the output, in the order in which a model has made them."""
        return [part for part in self.children() if isinstance(part, Stack)]

    @torch.no_grad()
    def attention_weights(self, *inputs: Tensor, only: str | None = None) -> dict[str, list[Tensor]]:
        """The weights of every layer: "encoder" [B, H, S, S], "decoder" [B, H, T, T] and "cross" [B, H, T, S].

        `inputs` are those of `forward`. The fused kernels do not return weights: they are computed again from the
        arguments that each attention has in one forward pass.
        """
        weights: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}

        def record(attention: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, name: str) -> None:
            assert isinstance(attention, SelfAttention | CrossAttention)
            weights[name].append(attention.weights(*args, **kwargs))

        hooks = []
        for path, module in self.named_modules():
            if isinstance(module, SelfAttention | CrossAttention):
                name = "cross" if isinstance(module, CrossAttention) else path.split(".")[0]
                if only in (None, name):
                    hooks.append(module.register_forward_pre_hook(partial(record, name=name), with_kwargs=True))
        try:
            self(*inputs)
        finally:
            for hook in hooks:
                hook.remove()
        return weights


class TokenModel(Model):
    """A model whose targets are tokens: `states`, [T, D], from which an output layer makes logits."""

    @property
    def output_embedding(self) -> TokenEmbedding:
        raise NotImplementedError

    def states(self, given: Inputs) -> Tensor:
        """What the output layer makes logits of, [T, D]."""
        raise NotImplementedError

    def padded_states(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        """The same of padded sentences, [B, T, D], for scores of given targets; without a source, of these alone."""
        raise NotImplementedError

    @torch.no_grad()
    def predict_in_parts(
        self, source_BS: Tensor, target_in_BT: Tensor, real_K: Tensor, *, n_rows: int
    ) -> Iterator[Tensor]:
        """Logits of the token after those of `target_in_BT` with the indices `real_K`: [K, V], `n_rows` at a time."""
        y_BTD = self.padded_states(source_BS, target_in_BT)
        for y_KD in torch.split(y_BTD.flatten(0, 1)[real_K], n_rows):  # [B, T, D] -> [K, D]
            yield self.output_embedding.logits(y_KD)

    def alignment(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        """The source position of each target token as a distribution, [B, T, S]."""
        raise NotImplementedError


class Transformer(TokenModel):
    """The encoder-decoder of figure 1, from token ids to logits over the target vocabulary."""

    kind = "transformer"
    # Layer and head of cross-attention, from 0, that training taught the word alignment; None: it taught none.
    alignment_head: tuple[int, int] | None = None
    full_context_alignment = False  # whether that was taught in a pass where the decoder attends to the whole target

    def __init__(
        self, config: ModelConfig, source: Vocabulary, target: Vocabulary, options: ModelOptions = DEFAULT_MODEL_OPTIONS
    ) -> None:
        super().__init__()
        tying = config.tie_embeddings
        if tying.shares_embedding and (source.size, source.pad_id) != (target.size, target.pad_id):
            instead = Tying.none if tying.has_own_output else Tying.decoder
            raise ConfigError(
                f"model.tie_embeddings={tying.name}: needs data.tokenizer.joint=true, but the vocabularies differ"
                f" ({source.size} and {target.size} entries, padding {source.pad_id} and {target.pad_id})."
                f" Set data.tokenizer.joint=true, or choose model.tie_embeddings={instead.name}"
            )
        self.source_pad_id, self.target_pad_id = source.pad_id, target.pad_id
        multiple_of, is_tied = options.vocab_multiple_of, not tying.has_own_output
        zero_id = None
        if config.decoder_start is DecoderStart.zero:
            assert target.bos_id is not None
            zero_id = target.bos_id
        of_target = partial(make_embedding, config, target.size, pad_id=target.pad_id, multiple_of=multiple_of)
        of_target = partial(of_target, is_output=is_tied, bias=config.output_bias and is_tied, zero_id=zero_id)
        # A tied matrix is registered once, so a model file holds it once.
        self.own_target_embedding: TokenEmbedding | None = None
        if tying.shares_embedding:
            self.source_embedding = of_target()
        else:
            self.source_embedding = make_embedding(config, source.size, pad_id=source.pad_id, multiple_of=multiple_of)
            self.own_target_embedding = of_target()
        self.own_output: TokenEmbedding | None = None
        if not is_tied:
            self.own_output = make_output(config, target.size, pad_id=target.pad_id, multiple_of=multiple_of)
        self.encoder = Encoder(config, options)
        self.decoder = Decoder(config, options)

    @property
    def target_embedding(self) -> TokenEmbedding:
        return self.source_embedding if self.own_target_embedding is None else self.own_target_embedding

    @property
    def output_embedding(self) -> TokenEmbedding:
        return self.target_embedding if self.own_output is None else self.own_output

    def forward(self, source_BS: Tensor, target_in_BT: Tensor, source_mask_BS: Tensor | None = None) -> Tensor:
        """Logits of the token after each of `target_in_BT`, [B, T, V].

        `source_mask_BS` is True at real tokens; unset, all but the padding id is real.
        """
        source = self.source_layout(source_BS, source_mask_BS)
        return self.predict(source_BS, source, target_in_BT, PaddedLayout(target_in_BT.size(1)))

    def predict(
        self, source_S: Tensor, source: AttentionLayout, target_in_T: Tensor, target: AttentionLayout
    ) -> Tensor:
        """Logits of the token after each of `target_in_T`: [T, V] of packed sentences, [B, T, V] of padded ones."""
        return self.output_embedding.training_logits(self.decode(source_S, source, target_in_T, target))

    def encoder_input(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        """Embeddings as they enter the encoder."""
        x_SD: Tensor = self.source_embedding(source_S)
        return x_SD

    def logits(self, given: Inputs) -> Tensor:
        return self.predict(given.source_S, given.source, given.target_in_T, given.target)

    def states(self, given: Inputs) -> Tensor:
        return self.decode(given.source_S, given.source, given.target_in_T, given.target)

    def padded_states(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        target = PaddedLayout(target_in_BT.size(1))
        return self.decode(source_BS, self.source_layout(source_BS), target_in_BT, target)

    def encode(self, source_S: Tensor, source: AttentionLayout) -> Tensor:
        """The memory, [S, D] of packed sentences, [B, S, D] of padded ones."""
        memory_SD: Tensor = self.encoder(self.source_embedding(source_S), source)
        return memory_SD

    def decode(self, source_S: Tensor, source: AttentionLayout, target_in_T: Tensor, target: AttentionLayout) -> Tensor:
        """The output of the last layer, [T, D] of packed sentences, [B, T, D] of padded ones."""
        memory_SD = self.encode(source_S, source)
        y_TD: Tensor = self.decoder(self.target_embedding(target_in_T), target, memory_SD, source)
        return y_TD

    def alignment(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        """The source position of each target token as a distribution, [B, T, S].

        The cross-attention at the position that predicts a token: of the head that was taught it, or else, as in Garg
        et al. 2019, of the last layer but one, averaged over heads. With `full_context_alignment` that at the position
        that reads the token, in a pass of its own.
        """
        if self.full_context_alignment:
            return self._full_context_alignment(source_BS, target_in_BT)
        cross = self.attention_weights(source_BS, target_in_BT, only="cross")["cross"]
        if self.alignment_head is not None:
            layer, head = self.alignment_head
            return cross[layer][:, head]
        return cross[max(len(cross) - 2, 0)].mean(dim=1)

    @torch.no_grad()
    def _full_context_alignment(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        assert self.alignment_head is not None
        layer, head = self.alignment_head
        source, is_real_BT = self.source_layout(source_BS), target_in_BT != self.target_pad_id
        target = PaddedLayout(target_in_BT.size(1), is_real_BT[:, None, None, :])
        memory_BSD, x_BTD = self.encode(source_BS, source), self.target_embedding(target_in_BT)
        q_BTHE, k_BSHE = self.decoder.full_context(x_BTD, target, memory_BSD, source, layer=layer)
        q_B1TE, k_B1SE = (x_BLHE.narrow(-2, head, 1).transpose(1, 2) for x_BLHE in (q_BTHE, k_BSHE))
        read_BTS = attention_weights(q_B1TE, k_B1SE, source.mask_B11L).squeeze(1)
        # The next position reads the token that a position predicts. No position reads EOS: it has that of the last.
        n_B1 = is_real_BT.sum(dim=1, keepdim=True)
        at_BT = torch.minimum(torch.arange(1, target_in_BT.size(1) + 1, device=n_B1.device), (n_B1 - 1).clamp(min=0))
        return read_BTS.gather(1, at_BT[:, :, None].expand_as(read_BTS))

    @property
    def default_alignment_head(self) -> tuple[int, int]:
        """The head that guided alignment teaches: the first one of the last layer but one, as in Garg et al. 2019.

        Of a recurrent decoder that of the last layer, as in Marian: its layers are few, and attend to nothing else.
        """
        last = len(self.decoder.layers) - 1
        return (last if self.decoder.state_width is not None else max(last - 1, 0)), 0

    def source_layout(self, source_BS: Tensor, source_mask_BS: Tensor | None = None) -> PaddedLayout:
        mask_BS = source_BS != self.source_pad_id if source_mask_BS is None else source_mask_BS
        # A sentence of nothing but padding may attend to it: a softmax over nothing is NaN.
        mask_BS = mask_BS | ~mask_BS.any(dim=1, keepdim=True)
        return PaddedLayout(source_BS.size(1), mask_BS[:, None, None, :])


def make_positions(config: ModelConfig) -> SinusoidalPositions | LearnedPositions | None:
    if config.positions is Positions.rotary:
        return None  # queries and keys are rotated instead
    if config.positions is Positions.learned:
        return LearnedPositions(config.d_model, max_positions=config.max_positions)
    return SinusoidalPositions(
        interleaved=config.positions is Positions.sinusoidal,
        tensor2tensor=config.positions is Positions.sinusoidal_tensor2tensor,
        first=config.first_position,
    )


def make_layer(kind: type[LayerT], config: ModelConfig) -> LayerT:
    """A layer without cross-attention."""
    return kind(
        make_attention(SelfAttention, config, window=config.attention_window),
        make_feed_forward(config),
        residual=partial(Residual, config),
    )


def make_decoder_layer(config: ModelConfig) -> DecoderLayer:
    is_recurrent = config.decoder is Autoregression.ssru
    return DecoderLayer(
        SSRU(config.d_model, bias=config.bias)
        if is_recurrent
        else make_attention(SelfAttention, config, window=config.attention_window),
        make_attention(CrossAttention, config),
        make_feed_forward(config),
        residual=partial(Residual, config),
    )


def make_attention(kind: type[AttentionT], config: ModelConfig, **more: Any) -> AttentionT:
    return kind(
        config.d_model,
        config.n_heads,
        d_k=config.key_width,
        d_v=config.value_width,
        dropout=config.attention_dropout,
        bias=config.bias,
        **more,
    )


def make_feed_forward(config: ModelConfig) -> FeedForward:
    return FeedForward(
        config.d_model,
        config.d_ff,
        activation=config.activation,
        dropout=config.activation_dropout,
        bias=config.bias,
    )
