"""Attention against the formulas of section 3.2 of the paper, one head and one query at a time.

Shapes: B batch, S source, T target, L either length, D width, H heads, E head width.
"""

import math

import pytest
import torch
from torch import Tensor

from tests.support.each import each
from transformer_cli.models.attention import CrossAttention, SelfAttention, project_memory_at_once
from transformer_cli.models.attention_kernels import attention_weights, decode_attention
from transformer_cli.models.embeddings import RotaryPositions
from transformer_cli.models.layouts import AttentionLayout, PackedLayout, PaddedLayout

SIZES = pytest.mark.parametrize(("d_k", "d_v"), [(4, 4), (2, 6), (6, 2)])


@torch.no_grad()
def attention_by_hand(query_BTD: Tensor, memory_BSD: Tensor, parts: dict[str, Tensor], may_look: Tensor) -> Tensor:
    """Concat(head_1, …, head_h) Wᴼ with a Python loop for each head, sentence and query; `may_look` is [B, T, S]."""
    outputs = []
    for b, (query_TD, memory_SD) in enumerate(zip(query_BTD, memory_BSD, strict=True)):
        heads = []
        for h in range(3):
            q_TE = query_TD @ parts["q"][h].T + parts["q_bias"][h]
            k_SE = memory_SD @ parts["k"][h].T + parts["k_bias"][h]
            v_SE = memory_SD @ parts["v"][h].T + parts["v_bias"][h]
            rows = []
            for t, q_E in enumerate(q_TE):
                seen = [s for s in range(len(memory_SD)) if may_look[b, t, s]]
                powers = [math.exp(float(q_E @ k_SE[s]) / math.sqrt(len(q_E))) for s in seen]
                rows.append(sum(power / sum(powers) * v_SE[s] for power, s in zip(powers, seen, strict=True)))
            heads.append(torch.stack(rows))
        outputs.append(torch.cat(heads, dim=-1) @ parts["out"].T + parts["out_bias"])
    return torch.stack(outputs)


def head_parts(attention: SelfAttention | CrossAttention, d_k: int, d_v: int) -> dict[str, Tensor]:
    if isinstance(attention, SelfAttention):
        weight, bias = attention.to_qkv.weight, attention.to_qkv.bias
    else:
        weight = torch.cat([attention.to_q.weight, attention.to_kv.weight])
        bias = torch.cat([attention.to_q.bias, attention.to_kv.bias])
    parts = {"out": attention.to_out.weight, "out_bias": attention.to_out.bias}
    widths = [3 * d_k, 3 * d_k, 3 * d_v]
    for name, w, b in zip("qkv", weight.split(widths), bias.split(widths), strict=True):
        parts[name], parts[f"{name}_bias"] = w.unflatten(0, (3, -1)), b.unflatten(0, (3, -1))
    return parts


def with_random_biases(attention: SelfAttention | CrossAttention) -> SelfAttention | CrossAttention:
    for name, parameter in attention.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return attention.double().eval()


def padding_mask(*lengths: int) -> Tensor:
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])[:, None, None, :]


@SIZES
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_equals_a_loop_over_heads_and_queries(d_k: int, d_v: int, causal: bool) -> None:
    torch.manual_seed(0)
    attention = with_random_biases(SelfAttention(8, 3, d_k=d_k, d_v=d_v, dropout=0.0, bias=True))
    x_BLD = torch.randn(2, 5, 8, dtype=torch.float64)
    mask_B11L = None if causal else padding_mask(5, 3)
    may_look = torch.ones(2, 5, 5, dtype=torch.bool).tril() if causal else mask_B11L[:, 0].expand(2, 5, 5)
    expected_BLD = attention_by_hand(x_BLD, x_BLD, head_parts(attention, d_k, d_v), may_look)
    torch.testing.assert_close(
        attention(x_BLD, PaddedLayout(5, mask_B11L), causal=causal), expected_BLD, rtol=0, atol=1e-12
    )


@SIZES
def test_cross_attention_equals_a_loop_over_heads_and_queries(d_k: int, d_v: int) -> None:
    torch.manual_seed(0)
    attention = with_random_biases(CrossAttention(8, 3, d_k=d_k, d_v=d_v, dropout=0.0, bias=True))
    x_BTD, memory_BSD = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    mask_B11S = padding_mask(6, 1)
    expected_BTD = attention_by_hand(
        x_BTD, memory_BSD, head_parts(attention, d_k, d_v), mask_B11S[:, 0].expand(2, 4, 6)
    )
    torch.testing.assert_close(
        attention(x_BTD, PaddedLayout(4), memory_BSD, PaddedLayout(6, mask_B11S)), expected_BTD, rtol=0, atol=1e-12
    )


PAIRS = [(2, 3, 4), (1, 1, 1), (3, 6, 2), (1, 6, 3)]  # pairs, source tokens, target tokens of each
SOURCE = PackedLayout.of_groups([(n, length) for n, length, _ in PAIRS], torch.device("cpu"))
TARGET = PackedLayout.of_groups([(n, length) for n, _, length in PAIRS], torch.device("cpu"))


def apart(x_LD: Tensor, packed: PackedLayout) -> list[Tensor]:
    """The sentences, [1, L, D] each."""
    return [x_LD[None] for x_LD in x_LD.split([length for n, length in packed.groups or [] for _ in range(n)])]


@each("causal", [False, True])
@each("rotary", [False, True])
def test_packed_sentences_look_at_themselves_as_each_does_alone(causal: bool, rotary: bool) -> None:
    torch.manual_seed(0)
    attention = with_random_biases(SelfAttention(8, 2, d_k=4, d_v=6, dropout=0.0, bias=True))
    x_SD, positions = (
        torch.randn(sum(n * length for n, length in SOURCE.groups or []), 8, dtype=torch.float64),
        RotaryPositions(4),
    )

    def looking(x_SD: Tensor, layout: AttentionLayout) -> Tensor:
        return attention(x_SD, layout, causal=causal, rotation=positions(x_SD, layout) if rotary else None)

    alone = [looking(x_1LD, PaddedLayout(x_1LD.size(1)))[0] for x_1LD in apart(x_SD, SOURCE)]
    torch.testing.assert_close(looking(x_SD, SOURCE), torch.cat(alone), rtol=0, atol=1e-12)


def test_packed_targets_look_at_their_own_sources() -> None:
    torch.manual_seed(0)
    attention = with_random_biases(CrossAttention(8, 2, d_k=4, d_v=6, dropout=0.0, bias=True))
    x_TD, memory_SD = (
        torch.randn(sum(n * length for n, length in side.groups or []), 8, dtype=torch.float64)
        for side in (TARGET, SOURCE)
    )
    alone = [
        attention(x_1TD, PaddedLayout(x_1TD.size(1)), memory_1SD, PaddedLayout(memory_1SD.size(1)))[0]
        for x_1TD, memory_1SD in zip(apart(x_TD, TARGET), apart(memory_SD, SOURCE), strict=True)
    ]
    torch.testing.assert_close(attention(x_TD, TARGET, memory_SD, SOURCE), torch.cat(alone), rtol=0, atol=1e-12)


@each("causal", [False, True])
@each("rotary", [False, True])
def test_the_weights_path_sums_to_one_and_gives_the_output_of_the_fast_path(causal: bool, rotary: bool) -> None:
    torch.manual_seed(0)
    attention = with_random_biases(SelfAttention(8, 2, d_k=4, d_v=6, dropout=0.0, bias=True))
    x_BLD = torch.randn(2, 5, 8, dtype=torch.float64)
    asked = {"causal": causal, "rotation": RotaryPositions(4)(x_BLD, PaddedLayout(5)) if rotary else None}
    mask_B11L = None if causal else padding_mask(5, 3)
    weights_BHLL = attention.weights(x_BLD, PaddedLayout(5, mask_B11L), **asked)
    torch.testing.assert_close(weights_BHLL.sum(-1), torch.ones(2, 2, 5, dtype=torch.float64))
    v_BHLE = attention.project(x_BLD, None)[2].transpose(1, 2)
    again_BLD = attention.to_out((weights_BHLL @ v_BHLE).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x_BLD, PaddedLayout(5, mask_B11L), **asked), again_BLD, rtol=0, atol=1e-12)


def test_rotated_attention_does_not_know_where_a_sentence_starts() -> None:
    torch.manual_seed(0)
    attention = SelfAttention(8, 2, d_k=4, d_v=4, dropout=0.0, bias=True).double()
    x_BLD = torch.randn(2, 5, 8, dtype=torch.float64)
    at_0, at_40 = (
        attention(x_BLD, PaddedLayout(5), rotation=RotaryPositions(4)(x_BLD, PaddedLayout(5, offset=offset)))
        for offset in (0, 40)
    )
    torch.testing.assert_close(at_0, at_40, rtol=0, atol=1e-12)
    assert not torch.isclose(at_0, attention(x_BLD, PaddedLayout(5))).any()


def test_no_weight_falls_on_what_a_query_may_not_see() -> None:
    q_BHTE, k_BHSE = torch.randn(2, 3, 4, 8), torch.randn(2, 3, 4, 8)
    assert attention_weights(q_BHTE, k_BHSE, padding_mask(4, 2))[1, ..., 2:].abs().max() == 0
    assert attention_weights(q_BHTE, k_BHSE, causal=True).triu(1).abs().max() == 0


def test_two_equal_keys_share_the_weight_of_a_query() -> None:
    # d_k = 4: the scores are 2/√4 = 1 for the first two keys and 0 for the third: e, e and 1 over 2e + 1.
    k_11SE = torch.tensor([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1]])[None, None]
    weights = attention_weights(torch.tensor([1.0, 1, 0, 0])[None, None, None], k_11SE)
    torch.testing.assert_close(weights.flatten(), torch.tensor([0.4223188, 0.4223188, 0.1553624]))


def test_attention_dropout_acts_in_training_only() -> None:
    attention = SelfAttention(8, 2, d_k=4, d_v=4, dropout=0.5, bias=True)
    x_BLD = torch.randn(2, 5, 8)
    whole = PaddedLayout(5)
    assert not torch.equal(attention(x_BLD, whole), attention(x_BLD, whole))
    attention.eval()
    torch.testing.assert_close(attention(x_BLD, whole), attention(x_BLD, whole), rtol=0, atol=0)


def test_fused_projections_start_as_separate_ones_would() -> None:
    # Xavier uniform of a [48, 64] matrix at gain √½ spans ±√(½ · 6 / (48 + 64)) = ±0.16366; values are [24, 64] here.
    attention = SelfAttention(64, 8, d_k=6, d_v=3, dropout=0.0, bias=True)
    q, k, v = attention.to_qkv.weight.split([48, 48, 24])
    for weight, bound in ((q, 0.16366), (k, 0.16366), (v, math.sqrt(3 / (24 + 64)))):
        assert 0.97 * bound < weight.abs().max() <= bound + 1e-5
    assert attention.to_qkv.bias.abs().max() == 0


@each("bias", [True, False])
@each("n_layers", [1, 3])
def test_keys_and_values_of_all_layers_at_once_are_those_of_each(n_layers: int, bias: bool) -> None:
    torch.manual_seed(0)
    layers = [CrossAttention(8, 2, d_k=4, d_v=6, dropout=0.0, bias=bias).double() for _ in range(n_layers)]
    if bias:
        layers = [with_random_biases(layer) for layer in layers]
    memory_BSD = torch.randn(2, 5, 8, dtype=torch.float64)
    at_once = project_memory_at_once(layers, memory_BSD)
    assert len(at_once) == n_layers
    for layer, found in zip(layers, at_once, strict=True):
        for one, other in zip(found, layer.project_memory(memory_BSD), strict=True):
            torch.testing.assert_close(one, other)


@each("n_groups", [1, 40])
@each("n_queries", [1, 4])
@each("n_keys", [2, 7, 15, 16, 21])
@each("width", [4, 64])
@each("is_masked", [False, True])
def test_a_step_over_a_cache_is_equation_1(
    n_groups: int, n_queries: int, n_keys: int, width: int, is_masked: bool
) -> None:
    """However few or many the sums and the rows of the softmax are: each number of them has kernels of its own."""
    torch.manual_seed(0)
    q_GNHE = torch.randn(n_groups, n_queries, 3, width)
    k_GHME, v_GHME = torch.randn(2, n_groups, 3, n_keys, width)
    is_seen_G1NM = torch.rand(n_groups, 1, n_queries, n_keys) < 0.5
    is_seen_G1NM[..., 1] = True
    mask_GHNM = torch.zeros(is_seen_G1NM.shape).masked_fill(~is_seen_G1NM, -math.inf).expand(-1, 3, -1, -1)
    y_GNHE = decode_attention(q_GNHE, k_GHME, v_GHME, mask_GHNM if is_masked else None)
    weights_GHNM = attention_weights(q_GNHE.transpose(1, 2), k_GHME, is_seen_G1NM if is_masked else None)
    torch.testing.assert_close(y_GNHE, (weights_GHNM @ v_GHME).transpose(1, 2), rtol=0, atol=2e-6)
