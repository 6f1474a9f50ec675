"""Key-value caches of incremental decoding.

Shapes: B sentences, N beams of each, R = B × N rows (row b·N + n is beam n of sentence b), G beam groups of F rows
each, M = F × target positions, S source, H heads, E head width, D width.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from transformer_cli.models.ensemble import mean
from transformer_cli.models.layouts import PaddedLayout, SequenceLayout
from transformer_cli.models.ssru import state_dtype

MAX_BEAM_GROUP = 16  # rows; each attends to the keys of all of them, so that work grows with its square


@dataclass(frozen=True)
class DevicePosition:
    """The layout of one token a row, all at the same position, which is a tensor: a captured graph serves them all."""

    max_length: int
    position_1: Tensor

    @property
    def positions(self) -> Tensor:
        return self.position_1


@dataclass(kw_only=True)
class KVCache:
    """Keys and values of the target so far, allocated once for the longest: all that a language model needs.

    The beams of a sentence form a group, whose keys and values are interleaved (token t of row f is at t·F + f). Each
    row attends to all of them, under a mask of its own history. So reordering the beams moves only rows of the mask.
    Beams that are too many for that are groups of one row, whose keys and values move.

    Lists have an entry for each layer. Masks are additive: 0 where a row may attend, -inf elsewhere.
    """

    keys_GHME: list[Tensor]
    values_GHME: list[Tensor]
    history_mask_GFM: Tensor | None  # None: groups of one row
    beam_size: int
    window: int | None = None  # positions that the newest token attends to, itself included; None: all
    length: int = 0
    first: int = 0  # position of the window
    mask_GHNM: Tensor | None = None  # `history_mask_GFM` of the positions that are attended to, see `of_each_head`

    @classmethod
    def empty(
        cls, like: Sequence[tuple[Tensor, Tensor]], n_sentences: int, *, beam_size: int, max_length: int, **more: Any
    ) -> Self:
        """An empty cache for keys and values like `like`, […, H, E], one a layer; `more` are fields of a subclass."""
        group_size = beam_size if like and 1 < beam_size <= MAX_BEAM_GROUP else 1
        n_groups = n_sentences * beam_size // group_size

        def allocate(x: Tensor) -> Tensor:
            return empty_by_position(x, n_groups, x.size(-2), max_length * group_size, x.size(-1))

        return cls(
            keys_GHME=[allocate(k) for k, _ in like],
            values_GHME=[allocate(v) for _, v in like],
            history_mask_GFM=(
                own_history_mask(group_size, like[0][0]).repeat(n_groups, 1, max_length) if group_size > 1 else None
            ),
            beam_size=beam_size,
            **more,
        )

    @property
    def group_size(self) -> int:
        return 1 if self.history_mask_GFM is None else self.history_mask_GFM.size(1)

    @property
    def finds_moved(self) -> bool:
        """Whether a reordering leaves alone what stays in its place; to find that waits for an accelerator."""
        return self.keys_GHME[0].is_cpu

    @property
    def n_used(self) -> int:
        """Positions of a group that a reordering has to move."""
        return self.length * self.group_size

    @property
    def next_layout(self) -> SequenceLayout:
        """The position of the next token."""
        return PaddedLayout(1, offset=self.length)

    @property
    def n_identical_rows(self) -> int:
        """How many consecutive rows of the next step are identical: in the first one, those of a group."""
        return self.group_size if self.length == 0 else 1

    def extend(self) -> None:
        """Reserve the memory of one more token of each row."""
        self.length += 1
        if self.window is not None:
            self.first = max(0, self.length - self.window)
        used = self.length * self.group_size
        assert all(used <= keys_GHME.size(2) for keys_GHME in self.keys_GHME[:1]), "more steps than `max_length`"
        if self.history_mask_GFM is not None:
            n_rows = 1 if self.length == 1 else self.group_size  # in the first step those of a group are identical
            mask_G1NM = self.history_mask_GFM[:, None, :n_rows, self.first * self.group_size : used]
            if self.first:
                mask_G1NM = mask_G1NM.contiguous()  # kernels of a GPU want its first number aligned
            self.mask_GHNM = of_each_head(mask_G1NM, self.keys_GHME[0].size(1))

    def append(self, layer: int, k_RHE: Tensor, v_RHE: Tensor) -> tuple[Tensor, Tensor]:
        """Store keys and values of the newest tokens; return those of the window, or of all so far."""
        n_new = self.group_size
        start = (self.length - 1) * n_new
        keys_GHME, values_GHME = self.keys_GHME[layer], self.values_GHME[layer]
        for x_GHME, new_RHE in ((keys_GHME, k_RHE), (values_GHME, v_RHE)):
            if n_new == 1:
                x_GHME.select(2, start).copy_(new_RHE)
            else:
                new_GFHE = torch.unflatten(new_RHE, 0, (x_GHME.size(0), -1))
                x_GHME.narrow(2, start, n_new).copy_(new_GFHE.transpose(1, 2))
        first = self.first * n_new
        n_attended = start + n_new - first
        return keys_GHME.narrow(2, first, n_attended), values_GHME.narrow(2, first, n_attended)

    def prefill(self, past: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Store keys and values of the first tokens of each sentence, [B, T, H, E], which its beams share."""
        group_size = self.group_size
        for layer, both in enumerate(past):
            for x_GHME, new_BTHE in zip((self.keys_GHME[layer], self.values_GHME[layer]), both, strict=True):
                new_GHTE = new_BTHE.transpose(1, 2).repeat_interleave(self.beam_size // group_size, dim=0)
                x_GHME[:, :, : new_BTHE.size(1) * group_size] = new_GHTE.repeat_interleave(group_size, dim=2)
        self.length = past[0][0].size(1)

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep these rows, and these sentences (None: all), in this order; both are indices of the present ones."""
        used = self.n_used
        if self.history_mask_GFM is not None:
            if sentences_B is not None:
                self.history_mask_GFM = _compact(self.history_mask_GFM, sentences_B)
            beam_GF1 = (rows_R % self.group_size).view(-1, self.group_size, 1)  # [R] -> [G, F, 1]
            used_GFM = self.history_mask_GFM[:, :, :used]
            used_GFM.copy_(used_GFM.gather(1, beam_GF1.expand_as(used_GFM)))
            groups_G = sentences_B
        else:
            groups_G = rows_R if sentences_B is not None or self.beam_size > 1 else None
        if groups_G is not None:
            reorder_groups((self.keys_GHME, self.values_GHME), groups_G, used=used, finds_moved=self.finds_moved)


@dataclass(kw_only=True)
class DecoderCache(KVCache):
    """The decoder's cache: also the keys and values of the source, for the cross-attention of each layer.

    One whose layers are recurrent has their states, and no keys and values of the target.
    """

    memory_keys_BHSE: list[Tensor]
    memory_values_BHSE: list[Tensor]
    source_mask_BHNS: Tensor  # N of 1, see `of_each_head`
    states_RD: list[Tensor] = field(default_factory=list)
    keeps_attention: bool = False
    attention_BNS: Tensor | None = None  # of the newest tokens: the last layer's mean over its heads

    @classmethod
    def start(
        cls,
        memory: Sequence[tuple[Tensor, Tensor]],
        source_mask_B11S: Tensor,
        *,
        beam_size: int,
        max_length: int,
        keeps_attention: bool,
        window: int | None = None,
        state_width: int | None = None,
    ) -> Self:
        """`memory` are keys and values of the source, [B, S, H, E], of each layer; `source_mask_B11S` is boolean.

        With a `state_width` the layers are recurrent.
        """
        n_sentences, k = len(source_mask_B11S), memory[0][0]
        return cls.empty(
            memory if state_width is None else [],
            n_sentences,
            beam_size=beam_size,
            max_length=max_length,
            states_RD=empty_states(memory, n_sentences * beam_size, state_width),
            memory_keys_BHSE=[by_position(k.transpose(1, 2)) for k, _ in memory],
            memory_values_BHSE=[by_position(v.transpose(1, 2)) for _, v in memory],
            source_mask_BHNS=of_each_head(additive_mask(source_mask_B11S, k.dtype), k.size(-2)),
            keeps_attention=keeps_attention,
            window=window,
        )

    @property
    def finds_moved(self) -> bool:
        return self.source_mask_BHNS.is_cpu

    def keep_attention(self, attention_BNS: Tensor) -> None:
        self.attention_BNS = attention_BNS.expand(-1, self.beam_size, -1)

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        super().reorder(rows_R, sentences_B)
        self.states_RD[:] = [_compact(state_RD, rows_R) for state_RD in self.states_RD]
        if sentences_B is not None:
            tensors = (self.memory_keys_BHSE, self.memory_values_BHSE)
            reorder_groups(tensors, sentences_B, finds_moved=self.finds_moved)
            self.source_mask_BHNS = _compact(self.source_mask_BHNS, sentences_B)


@dataclass(kw_only=True)
class StaticCache(DecoderCache):
    """A cache whose tensors keep their addresses, as captured CUDA graphs require.

    A captured step cannot depend on `length`, which is a number of Python: it reads `position_1` on the device, and
    attends to the first `attended_length` positions, of which those not yet written are masked, and those before the
    window.
    """

    position_1: Tensor  # of the newest token
    attended_length: int = 0
    own_FF: Tensor | None = None  # the mask of one token of each row of a group
    newest_F: Tensor | None = None  # where a group's newest tokens are

    @classmethod
    def allocate(
        cls,
        like: Sequence[tuple[Tensor, Tensor]],
        n_sentences: int,
        n_source: int,
        *,
        beam_size: int,
        max_length: int,
        keeps_attention: bool,
        window: int | None = None,
        state_width: int | None = None,
    ) -> Self:
        """A cache for a source with keys and values like `like`, [..., H, E], one a layer, and on their device."""

        def memory(x: Tensor) -> Tensor:
            return x.new_zeros(n_sentences, x.size(-2), n_source, x.size(-1))

        k = like[0][0]
        cache = cls.empty(
            like if state_width is None else [],
            n_sentences,
            beam_size=beam_size,
            max_length=max_length,
            memory_keys_BHSE=[memory(k) for k, _ in like],
            memory_values_BHSE=[memory(v) for _, v in like],
            source_mask_BHNS=k.new_zeros(n_sentences, 1, 1, n_source),
            keeps_attention=keeps_attention,
            window=window,
            states_RD=empty_states(like, n_sentences * beam_size, state_width),
            attention_BNS=k.new_zeros(n_sentences, beam_size, n_source) if keeps_attention else None,
            position_1=torch.zeros(1, dtype=torch.long, device=k.device),
        )
        for x_GHME in (*cache.keys_GHME, *cache.values_GHME):
            x_GHME.zero_()  # masked keys have weight 0, and 0 × NaN is NaN
        if cache.history_mask_GFM is not None:
            cache.own_FF = own_history_mask(cache.group_size, cache.history_mask_GFM)
        return cache

    def front(self, n_sentences: int) -> "StaticCache":
        """The first sentences only, in the same memory."""
        n_groups = n_sentences * self.beam_size // self.group_size
        mask_GFM, attention_BNS = self.history_mask_GFM, self.attention_BNS
        return replace(
            self,
            keys_GHME=[x[:n_groups] for x in self.keys_GHME],
            values_GHME=[x[:n_groups] for x in self.values_GHME],
            history_mask_GFM=None if mask_GFM is None else mask_GFM[:n_groups],
            memory_keys_BHSE=[x[:n_sentences] for x in self.memory_keys_BHSE],
            memory_values_BHSE=[x[:n_sentences] for x in self.memory_values_BHSE],
            source_mask_BHNS=self.source_mask_BHNS[:n_sentences],
            states_RD=[x[: n_sentences * self.beam_size] for x in self.states_RD],
            attention_BNS=None if attention_BNS is None else attention_BNS[:n_sentences],
        )

    def restart(self, memory: Sequence[tuple[Tensor, Tensor]], source_mask_B11S: Tensor) -> None:
        """Begin with other sentences, at most as many as before. The rows behind them are left as they are, unused."""
        n_sentences = len(source_mask_B11S)
        for layer, (k_BSHE, v_BSHE) in enumerate(memory):
            self.memory_keys_BHSE[layer][:n_sentences] = k_BSHE.transpose(1, 2)
            self.memory_values_BHSE[layer][:n_sentences] = v_BSHE.transpose(1, 2)
        self.source_mask_BHNS[:n_sentences] = additive_mask(source_mask_B11S, self.source_mask_BHNS.dtype)
        for state_RD in self.states_RD:
            state_RD.zero_()
        if self.source_mask_BHNS.dtype is torch.float16:  # in which those that were done may have overflowed: 0 × NaN
            for x_GHME in (*self.keys_GHME, *self.values_GHME):
                x_GHME.zero_()

    def tensors(self) -> Iterator[Tensor]:
        yield from (*self.keys_GHME, *self.values_GHME, *self.memory_keys_BHSE, *self.memory_values_BHSE)
        yield from self.states_RD
        yield from (self.source_mask_BHNS, self.position_1)
        yield from (x for x in (self.history_mask_GFM, self.own_FF, self.attention_BNS) if x is not None)

    def advance(self, position: int, attended_length: int) -> None:
        """Move to the position of the next token. To be called before each step, outside the graph."""
        self.position_1.fill_(position)
        self.attended_length = attended_length

    @property
    def n_identical_rows(self) -> int:
        return 1  # a captured step serves every position

    @property
    def finds_moved(self) -> bool:
        return False

    @property
    def n_used(self) -> int:
        return self.attended_length * self.group_size

    @property
    def next_layout(self) -> SequenceLayout:
        return DevicePosition(self.attended_length, self.position_1)

    def extend(self) -> None:
        index_M = torch.arange(self.n_used, device=self.position_1.device)
        self.newest_F = self.position_1 * self.group_size + index_M[: self.group_size]
        is_hidden_M = index_M > self.newest_F[-1:]  # not yet written
        if self.window is not None:
            is_hidden_M = is_hidden_M | (index_M < self.newest_F[:1] - (self.window - 1) * self.group_size)
        mask_GHFM = self.source_mask_BHNS.new_zeros(1, 1, 1, 1)
        if self.history_mask_GFM is not None:
            assert self.own_FF is not None
            self.history_mask_GFM.index_copy_(2, self.newest_F, self.own_FF.expand(len(self.history_mask_GFM), -1, -1))
            mask_GHFM = self.history_mask_GFM[:, None, :, : self.n_used]
        self.mask_GHNM = mask_GHFM.masked_fill(is_hidden_M, -math.inf)

    def append(self, layer: int, k_RHE: Tensor, v_RHE: Tensor) -> tuple[Tensor, Tensor]:
        assert self.newest_F is not None
        found = []
        for x_GHME, new_RHE in ((self.keys_GHME[layer], k_RHE), (self.values_GHME[layer], v_RHE)):
            x_GHME.index_copy_(2, self.newest_F, torch.unflatten(new_RHE, 0, (len(x_GHME), -1)).transpose(1, 2))
            found.append(x_GHME.narrow(2, 0, self.n_used))
        return found[0], found[1]

    def keep_attention(self, attention_BNS: Tensor) -> None:
        assert self.attention_BNS is not None
        self.attention_BNS.copy_(attention_BNS.expand(-1, self.beam_size, -1))


@dataclass
class EnsembleCache:
    """A cache of each member of an ensemble."""

    caches: Sequence[DecoderCache]

    @property
    def attention_BNS(self) -> Tensor:
        """The members' mean."""
        return mean([cache.attention_BNS for cache in self.caches if cache.attention_BNS is not None])

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        for cache in self.caches:
            cache.reorder(rows_R, sentences_B)


@dataclass
class StaticEnsembleCache(EnsembleCache):
    """A static cache of each member."""

    caches: Sequence[StaticCache]

    def front(self, n_sentences: int) -> "StaticEnsembleCache":
        return StaticEnsembleCache([cache.front(n_sentences) for cache in self.caches])

    def tensors(self) -> Iterator[Tensor]:
        for cache in self.caches:
            yield from cache.tensors()

    def advance(self, position: int, attended_length: int) -> None:
        for cache in self.caches:
            cache.advance(position, attended_length)


def empty_states(like: Sequence[tuple[Tensor, Tensor]], n_rows: int, width: int | None) -> list[Tensor]:
    """The states before the first token of as many recurrent layers, on the same device; none without a width."""
    return [] if width is None else [k.new_zeros(n_rows, width, dtype=state_dtype(k.dtype)) for k, _ in like]


def own_history_mask(group_size: int, like: Tensor) -> Tensor:
    """The additive mask of one token of each row of a group, [F, F]: a row attends to its own."""
    own_FF = torch.zeros(group_size, group_size, device=like.device).fill_diagonal_(1).log()  # 0, -inf elsewhere
    return own_FF.to(like.dtype)


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where the boolean `mask` is True, -inf elsewhere."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -math.inf)


def empty_by_position(like: Tensor, n_groups: int, n_heads: int, n_positions: int, width: int) -> Tensor:
    """A tensor [G, H, M, E], on a CPU with all rows of one position together: a step writes these at once."""
    if not like.is_cpu:
        return like.new_empty(n_groups, n_heads, n_positions, width)
    return like.new_empty(n_positions, n_groups, n_heads, width).permute(1, 2, 0, 3)


def by_position(x_GHME: Tensor) -> Tensor:
    """It as `empty_by_position` lays it out: a copy, unless it is so already."""
    if x_GHME.is_cpu and x_GHME.permute(2, 0, 1, 3).is_contiguous():
        return x_GHME
    n_groups, n_heads, n_positions, width = x_GHME.shape
    return empty_by_position(x_GHME, n_groups, n_heads, n_positions, width).copy_(x_GHME)


def rows_of_memory(x_GHME: Tensor) -> Tensor:
    """The memory that `empty_by_position` has allocated on a CPU: a row for each group at each position, [X, Y]."""
    position, row = x_GHME.stride(2), x_GHME.stride(0)
    assert (x_GHME.stride(3), row, position % row) == (1, x_GHME.size(1) * x_GHME.size(3), 0), "not by position"
    return x_GHME.as_strided((x_GHME.size(2) * position // row, row), (row, 1))


def of_each_head(mask_G1NM: Tensor, n_heads: int) -> Tensor:
    """A mask as `decode_attention` adds it: on a CPU once for each head, so that no layer has to expand it."""
    return mask_G1NM.expand(-1, n_heads, -1, -1).contiguous() if mask_G1NM.is_cpu else mask_G1NM


def _compact(x_BX: Tensor, from_B: Tensor) -> Tensor:
    """The rows `from_B`, moved to the front."""
    front_BX = x_BX[: len(from_B)]
    return front_BX.copy_(x_BX[from_B])


def moved(x_GHME: Tensor, from_G: Tensor, *, used: int | None) -> Tensor:
    _compact(x_GHME[:, :, :used], from_G)
    return x_GHME[: len(from_G)]


def reorder_groups(
    tensors: Iterable[list[Tensor]], from_G: Tensor, *, finds_moved: bool, used: int | None = None
) -> None:
    """Move the groups `from_G` to the front, in this order, and drop the rest.

    Only the `used` positions are copied, and with `finds_moved` only groups that change places, which the host waits
    for. All are read before any is written.
    """
    if not finds_moved:
        for layers in tensors:
            layers[:] = [moved(x_GHME, from_G, used=used) for x_GHME in layers]
        return
    to_K = (from_G != torch.arange(len(from_G), device=from_G.device)).nonzero().squeeze(1)
    from_K = from_G[to_K]
    for layers in tensors:
        if len(to_K) and layers:
            # Twice as fast by rows of memory as by an index of the groups.
            n_groups = layers[0].stride(2) // layers[0].stride(0)  # allocated
            first_M1 = torch.arange(0, n_groups * (layers[0].size(2) if used is None else used), n_groups)[:, None]
            to_X, from_X = (first_M1 + to_K).flatten(), (first_M1 + from_K).flatten()
            for x_GHME in layers:
                x_XY = rows_of_memory(x_GHME)
                x_XY.index_copy_(0, to_X, x_XY.index_select(0, from_X))
        layers[:] = [x_GHME[: len(from_G)] for x_GHME in layers]
