"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), section 3, and its incremental decoder.

Shapes: B batch, S source, T target, L either length, D width, H heads, E head width, V vocabulary, N beam, R = B × N,
Y layers. A tensor that begins with S, T or L holds sentences padded, [B, L, …], or packed, [L, …].
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer_cli.config.model import ModelConfig, Norm, Positions, Tying
from transformer_cli.errors import ConfigError
from transformer_cli.models.attention import CrossAttention, KeysAndValues, SelfAttention, project_for_all
from transformer_cli.models.cache import DecoderCache, StaticCache
from transformer_cli.models.embeddings import (
    LearnedPositions,
    RotaryPositions,
    Rotation,
    SinusoidalPositions,
    TokenEmbedding,
)
from transformer_cli.models.layers import (
    CausalLayer,
    DecoderLayer,
    Dropout,
    EncoderLayer,
    FeedForward,
    Residual,
    make_norm,
)
from transformer_cli.models.layouts import Padded, Places, Sentences
from transformer_cli.registry import Registry

LayerT = TypeVar("LayerT", EncoderLayer, CausalLayer)
AttentionT = TypeVar("AttentionT", SelfAttention, CrossAttention)


class Stack(nn.Module):
    """What encoder and decoder have in common: where tokens stand, dropout on the way in, and a norm on the way out.

    Only pre-LN ends in a norm: its residual sum is never normalised on the way, post-LN's always is.
    """

    layers: Sequence[nn.Module]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.positions = make_positions(config)
        self.rotary = RotaryPositions(config.key_width) if config.positions is Positions.rotary else None
        self.dropout = Dropout(config.dropout)
        self.norm = make_norm(config.d_model, config.norm_kind) if config.norm is Norm.pre else nn.Identity()
        self.recomputes = False  # what the layers computed, in the backward pass, rather than hold it until then

    def enter(self, x_LD: Tensor, sentences: Places) -> tuple[Tensor, Rotation | None]:
        """Embeddings that know their position; or how far each position turns."""
        rotation = self.rotary(x_LD, sentences) if self.rotary is not None else None
        x_LD = self.positions(x_LD, sentences) if self.positions is not None else x_LD
        return self.dropout(x_LD), rotation

    def through(self, layer: nn.Module, *args: Any) -> Tensor:
        recomputes = self.recomputes and torch.is_grad_enabled()
        y_LD: Tensor = checkpoint(layer, *args, use_reentrant=False) if recomputes else layer(*args)
        return y_LD


class Model(nn.Module):
    """What training, pictures and model files know of a model, whatever it is for."""

    multiple_of = 1  # columns that the product with the vocabulary is made of

    @property
    def stacks(self) -> Sequence[Stack]:
        """From the input to the output."""
        raise NotImplementedError

    def predict(self, source_S: Tensor, source: Sentences, target_in_T: Tensor, target: Sentences) -> Tensor:
        """Logits of what comes after each of `target_in_T`: [T, V] of packed sentences, [B, T, V] of padded ones."""
        raise NotImplementedError

    @torch.no_grad()
    def attention_weights(self, *inputs: Tensor, only: str | None = None) -> dict[str, list[Tensor]]:
        """The weights of every layer: "encoder" [B, H, S, S], "decoder" [B, H, T, T] and "cross" [B, H, T, S].

        `inputs` are those of `forward`. The fast kernels do not return weights: each attention is asked again, with its
        arguments of one forward pass.
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


class Encoder(Stack):
    """A stack of identical layers over the source (section 3.1)."""

    layers: Sequence[EncoderLayer]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        layers = nn.ModuleList(make_layer(EncoderLayer, config) for _ in range(config.n_encoder_layers))
        self.layers = cast(Sequence[EncoderLayer], layers)  # torch's list does not tell what it holds

    def forward(self, x_SD: Tensor, source: Sentences) -> Tensor:
        x_SD, rotation = self.enter(x_SD, source)
        for layer in self.layers:
            x_SD = self.through(layer, x_SD, source, rotation)
        memory_SD: Tensor = self.norm(x_SD)
        return memory_SD


class Decoder(Stack):
    """A stack of identical layers over the target so far, each of which also looks at the encoded source."""

    layers: Sequence[DecoderLayer]

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        layers = nn.ModuleList(make_decoder_layer(config) for _ in range(config.n_decoder_layers))
        self.layers = cast(Sequence[DecoderLayer], layers)
        self.projects_at_once = False  # the source for all layers: one large product rather than many small ones

    def forward(self, x_TD: Tensor, target: Sentences, memory_SD: Tensor, source: Sentences) -> Tensor:
        x_TD, rotation = self.enter(x_TD, target)
        projected: Sequence[KeysAndValues | None] = [None] * len(self.layers)
        if self.projects_at_once:
            projected = project_for_all([layer.cross_attention for layer in self.layers], memory_SD)
        for layer, its_own in zip(self.layers, projected, strict=True):
            x_TD = self.through(layer, x_TD, target, memory_SD, source, rotation, its_own)
        y_TD: Tensor = self.norm(x_TD)
        return y_TD

    def project(self, memory_BSD: Tensor) -> list[KeysAndValues]:
        """What every layer looks the source up by."""
        return [layer.cross_attention.project_memory(memory_BSD) for layer in self.layers]

    def step(self, x_RD: Tensor, cache: DecoderCache) -> Tensor:
        x_RD, rotation = self.enter(x_RD, cache.newest)
        cache.grow()
        for i, layer in enumerate(self.layers):
            x_RD = layer.step(x_RD, i, cache, rotation)
        y_RD: Tensor = self.norm(x_RD)
        return y_RD


MODELS: Registry[Callable[..., Model]] = Registry("model")


@MODELS.register("transformer")
class Transformer(Model):
    """The encoder-decoder of figure 1, from token ids to logits over the target vocabulary."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        source_vocab_size: int,
        target_vocab_size: int,
        source_pad_id: int,
        target_pad_id: int,
    ) -> None:
        super().__init__()
        tying, d_model, scaled = config.tie_embeddings, config.d_model, config.scale_embeddings
        if tying is Tying.three_way and (source_vocab_size, source_pad_id) != (target_vocab_size, target_pad_id):
            raise ConfigError(
                "model.tie_embeddings=three_way: needs data.tokenizer.joint=true, but the vocabularies differ"
                f" ({source_vocab_size} and {target_vocab_size} entries, padding {source_pad_id} and {target_pad_id})."
                " Set data.tokenizer.joint=true, or choose model.tie_embeddings=decoder"
            )
        self.source_pad_id = source_pad_id
        # A tied matrix is registered once, so a model file holds it once.
        self.source_embedding = TokenEmbedding(source_vocab_size, d_model, pad_id=source_pad_id, scaled=scaled)
        self.own_target_embedding = (
            TokenEmbedding(target_vocab_size, d_model, pad_id=target_pad_id, scaled=scaled)
            if tying is not Tying.three_way
            else None
        )
        self.own_output = (
            TokenEmbedding(target_vocab_size, d_model, pad_id=target_pad_id, scaled=False)
            if tying is Tying.none
            else None
        )
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)

    @property
    def stacks(self) -> Sequence[Stack]:
        return [self.encoder, self.decoder]

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
        source = self._padded(source_BS, source_mask_BS)
        return self.predict(source_BS, source, target_in_BT, Padded(target_in_BT.size(1)))

    def predict(self, source_S: Tensor, source: Sentences, target_in_T: Tensor, target: Sentences) -> Tensor:
        return self._logits(self._states(source_S, source, target_in_T, target), multiple_of=self.multiple_of)

    def _states(self, source_S: Tensor, source: Sentences, target_in_T: Tensor, target: Sentences) -> Tensor:
        memory_SD = self.encoder(self.source_embedding(source_S), source)
        y_TD: Tensor = self.decoder(self.target_embedding(target_in_T), target, memory_SD, source)
        return y_TD

    @torch.no_grad()
    def predict_in_parts(
        self, source_BS: Tensor, target_in_BT: Tensor, real_BT: Tensor, *, n_rows: int
    ) -> Iterator[Tensor]:
        """Logits of the token after each `real_BT` of `target_in_BT`: [K, V], but `n_rows` at a time."""
        y_BTD = self._states(source_BS, self._padded(source_BS), target_in_BT, Padded(target_in_BT.size(1)))
        for y_KD in torch.split(y_BTD[real_BT], n_rows):  # [B, T, D] -> [K, D]
            yield self._logits(y_KD)

    @torch.no_grad()
    def start(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> DecoderCache:
        """A cache for at most `max_length` calls of `step` on `beam_size` rows for each source sentence.

        With `keeps_attention` it says after each step where the newest tokens looked.
        """
        return DecoderCache.start(
            *self._read(source_BS), beam_size=beam_size, max_length=max_length, keeps_attention=keeps_attention
        )

    @torch.no_grad()
    def start_static(
        self, source_BS: Tensor, *, beam_size: int, max_length: int, keeps_attention: bool = False
    ) -> StaticCache:
        """As `start`; the cache stays where it is in memory, and is used again by `restart`."""
        return StaticCache.start(
            *self._read(source_BS), beam_size=beam_size, max_length=max_length, keeps_attention=keeps_attention
        )

    @torch.no_grad()
    def restart(self, source_BS: Tensor, cache: StaticCache) -> None:
        """Put other sentences into `cache`, padded as those that it began with, and no more of them."""
        cache.restart(*self._read(source_BS))

    def _read(self, source_BS: Tensor) -> tuple[list[KeysAndValues], Tensor]:
        source = self._padded(source_BS)
        assert source.mask_B11L is not None
        return self.decoder.project(self.encoder(self.source_embedding(source_BS), source)), source.mask_B11L

    @torch.no_grad()
    def step(self, ids_R: Tensor, cache: DecoderCache) -> Tensor:
        """Logits of the token after `ids_R`, the newest token of each row; `cache` grows by one.

        The rows of a sentence have to begin with the same token.
        """
        n_alike = cache.n_alike
        y_RD = self.decoder.step(self.target_embedding(ids_R[::n_alike]), cache)
        return self._logits(y_RD).repeat_interleave(n_alike, dim=0) if n_alike > 1 else self._logits(y_RD)

    def alignment(self, source_BS: Tensor, target_in_BT: Tensor) -> Tensor:
        """From where in the source each target token comes, [B, T, S]; a row sums to 1.

        From the last layer but one, as in Garg et al. 2019: the position that writes a token, its heads' mean.
        """
        cross = self.attention_weights(source_BS, target_in_BT, only="cross")["cross"]
        return cross[max(len(cross) - 2, 0)].mean(dim=1)

    def _logits(self, y: Tensor, *, multiple_of: int = 1) -> Tensor:
        return self.output_embedding.logits(y, multiple_of=multiple_of)

    def _padded(self, source_BS: Tensor, source_mask_BS: Tensor | None = None) -> Padded:
        mask_BS = source_BS != self.source_pad_id if source_mask_BS is None else source_mask_BS
        # A sentence of nothing but padding may look at it: a softmax over nothing is not a number.
        mask_BS = mask_BS | ~mask_BS.any(dim=1, keepdim=True)
        return Padded(source_BS.size(1), mask_BS[:, None, None, :])


def make_positions(config: ModelConfig) -> SinusoidalPositions | LearnedPositions | None:
    if config.positions is Positions.rotary:
        return None  # which turns queries and keys instead
    if config.positions is Positions.learned:
        return LearnedPositions(config.d_model, max_positions=config.max_positions)
    return SinusoidalPositions(interleaved=config.positions is Positions.sinusoidal)


def make_layer(kind: type[LayerT], config: ModelConfig) -> LayerT:
    """Of a stack that has no source to look at."""
    return kind(
        make_attention(SelfAttention, config),
        make_feed_forward(config),
        residual=partial(make_residual, config),
    )


def make_decoder_layer(config: ModelConfig) -> DecoderLayer:
    return DecoderLayer(
        make_attention(SelfAttention, config),
        make_attention(CrossAttention, config),
        make_feed_forward(config),
        residual=partial(make_residual, config),
    )


def make_attention(kind: type[AttentionT], config: ModelConfig) -> AttentionT:
    return kind(
        config.d_model,
        config.n_heads,
        d_k=config.key_width,
        d_v=config.value_width,
        dropout=config.attention_dropout,
        bias=config.bias,
    )


def make_feed_forward(config: ModelConfig) -> FeedForward:
    return FeedForward(
        config.d_model,
        config.d_ff,
        activation=config.activation,
        dropout=config.activation_dropout,
        bias=config.bias,
    )


def make_residual(config: ModelConfig) -> Residual:
    return Residual(
        config.d_model, pre_norm=config.norm is Norm.pre, norm_kind=config.norm_kind, dropout=config.dropout
    )
