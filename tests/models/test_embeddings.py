"""Embeddings and positions against numbers worked out by hand from sections 3.4 and 3.5 of the paper."""

import math
from typing import Any

import pytest
import torch

from tests.support.each import each
from transformer_cli.errors import ConfigError
from transformer_cli.models.embeddings import (
    LearnedPositions,
    RotaryPositions,
    Rotation,
    SinusoidalPositions,
    TokenEmbedding,
    apply_rotary,
)
from transformer_cli.models.layouts import PaddedLayout


def sinusoids(length: int, d_model: int, *, interleaved: bool = True, **kind: Any) -> torch.Tensor:
    nothing_BLD = torch.zeros(1, length, d_model, dtype=torch.float64)
    return SinusoidalPositions(interleaved=interleaved, **kind)(nothing_BLD, PaddedLayout(length))[0]


# PE(pos, 2i) = sin(pos / 10000^(2i/512)); 10000^(256/512) = 100 and 10000^(384/512) = 1000.
POINTS = [
    (0, 0, 0.0, 1.0),
    (1, 0, 0.8414709848, 0.5403023059),  # of 1
    (2, 0, 0.9092974268, -0.4161468365),  # of 2
    (3, 256, 0.0299955002, 0.9995500337),  # of 3/100
    (100, 256, 0.8414709848, 0.5403023059),  # of 100/100
    (100, 384, 0.0998334166, 0.9950041653),  # of 100/1000
]


@each("position, column, sine, cosine", POINTS)
def test_sinusoids_are_those_of_the_paper(position: int, column: int, sine: float, cosine: float) -> None:
    interleaved, concatenated = sinusoids(128, 512), sinusoids(128, 512, interleaved=False)
    assert interleaved[position, column].item() == pytest.approx(sine, abs=1e-9)
    assert interleaved[position, column + 1].item() == pytest.approx(cosine, abs=1e-9)
    assert concatenated[position, column // 2].item() == pytest.approx(sine, abs=1e-9)
    assert concatenated[position, 256 + column // 2].item() == pytest.approx(cosine, abs=1e-9)


@pytest.mark.parametrize(("position", "column", "angle"), [(7, 0, 7.0), (7, 1, 0.07), (3, 2, 0.0003)])
def test_sinusoids_of_tensor2tensor_spread_over_one_step_less(position: int, column: int, angle: float) -> None:
    """10000^(-j / (6/2 - 1)): 1, 1/100 and 1/10000, where the paper's formula ends at 1/464."""
    table = sinusoids(16, 6, interleaved=False, tensor2tensor=True)
    assert table[position, column].item() == pytest.approx(math.sin(angle), abs=1e-9)
    assert table[position, 3 + column].item() == pytest.approx(math.cos(angle), abs=1e-9)


def test_the_first_position_is_where_the_table_begins() -> None:
    torch.testing.assert_close(sinusoids(300, 8, first=2), sinusoids(302, 8)[2:], rtol=0, atol=0)


def test_the_embedding_of_a_zero_start_is_zero_and_only_that() -> None:
    embedding = TokenEmbedding(5, 4, pad_id=0, scaled=True, zero_id=2)
    x_LD = embedding(torch.tensor([2, 3, 2]))
    assert not x_LD[[0, 2]].any()
    torch.testing.assert_close(x_LD[1], embedding.weight[3] * 2)


def test_an_output_bias_is_added_to_the_logits() -> None:
    embedding = TokenEmbedding(5, 4, pad_id=0, scaled=True, multiple_of=8, bias=True)
    assert embedding.bias is not None
    torch.nn.init.normal_(embedding.bias)
    x_LD = torch.randn(3, 4)
    expected_LV = x_LD @ embedding.weight.T + embedding.bias
    torch.testing.assert_close(embedding.logits(x_LD), expected_LV)
    torch.testing.assert_close(embedding.training_logits(x_LD), expected_LV)


def test_a_fixed_offset_is_one_rotation_wherever_it_starts() -> None:
    """Section 3.5: PE(pos + k) is a linear function of PE(pos); for one pair, a turn by k / 10000^(2i / d_model)."""
    table = sinusoids(300, 16)
    angle = 7 / 10_000 ** (4 / 16)
    turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    torch.testing.assert_close(table[7:, 4:6], table[:-7, 4:6] @ turn.T)


def test_sinusoids_have_no_longest_sentence() -> None:
    torch.testing.assert_close(sinusoids(5000, 8)[:10], sinusoids(10, 8), rtol=0, atol=0)
    assert sinusoids(5000, 8)[4999, 0].item() == pytest.approx(math.sin(4999), abs=1e-9)


@each("length", [1, 2, 255, 256, 257, 511, 512, 513, 1025])
def test_every_length_has_a_row_for_each_position(length: int) -> None:
    assert sinusoids(length, 8)[length - 1, 0].item() == pytest.approx(math.sin(length - 1), abs=1e-9)


@pytest.mark.parametrize("positions", [SinusoidalPositions(interleaved=True), LearnedPositions(8, max_positions=400)])
def test_positions_may_be_counted_from_the_middle(positions: torch.nn.Module) -> None:
    x_BLD = torch.randn(2, 300, 8)
    torch.testing.assert_close(
        positions(x_BLD[:, 290:], PaddedLayout(10, offset=290)),
        positions(x_BLD, PaddedLayout(300))[:, 290:],
        rtol=0,
        atol=0,
    )


def test_a_sentence_beyond_the_learned_positions_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"^model.max_positions=4: fewer than the 6 tokens .* model.max_positions=6"):
        LearnedPositions(8, max_positions=4)(torch.zeros(1, 1, 8), PaddedLayout(1, offset=5))


def test_a_sentence_of_exactly_the_learned_positions_is_read() -> None:
    positions = LearnedPositions(8, max_positions=4)
    torch.testing.assert_close(positions(torch.zeros(1, 4, 8), PaddedLayout(4))[0], positions.weight.detach())
    fourth_D = positions(torch.zeros(1, 1, 8), PaddedLayout(1, offset=3))[0, 0]
    torch.testing.assert_close(fourth_D, positions.weight[3].detach())
    with pytest.raises(ConfigError, match=r"^model.max_positions=4: fewer than the 5 tokens"):
        positions(torch.zeros(1, 5, 8), PaddedLayout(5))


def test_learned_positions_start_as_large_as_embeddings() -> None:
    torch.manual_seed(0)
    weight = LearnedPositions(64, max_positions=1000).weight
    assert weight.std().item() == pytest.approx(1 / 8, rel=0.02)  # N(0, 1 / d_model)
    assert weight.mean().item() == pytest.approx(0, abs=0.002)


def test_rotary_positions_turn_each_pair_by_its_own_angle() -> None:
    # Width 4: the pairs (0, 2) and (1, 3) turn by pos and by pos / 10000^(2/4) = pos / 100. At position 3:
    x = torch.zeros(4, 1, 4, dtype=torch.float64)
    rotation = RotaryPositions(4)(x, PaddedLayout(4))
    x[3, 0] = torch.tensor([1.0, 1.0, 0.0, 0.0])
    expected = torch.tensor([math.cos(3), math.cos(0.03), math.sin(3), math.sin(0.03)], dtype=torch.float64)
    torch.testing.assert_close(apply_rotary(x, rotation)[3, 0], expected)


def test_rotary_products_know_only_the_distance() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 8, dtype=torch.float64)
    rotation: Rotation = RotaryPositions(8)(torch.zeros(1, 60, 1, dtype=torch.float64), PaddedLayout(60))
    q_LE, k_LE = (apply_rotary(x.expand(60, 1, 8), rotation).squeeze(1) for x in (q, k))
    products = q_LE @ k_LE.T
    for distance in (0, 1, 17):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    torch.testing.assert_close(products[5, 5], q @ k)
    assert not torch.isclose(products[5, 5], products[5, 6])


def test_positions_first_needed_by_a_search_can_be_trained_with() -> None:
    positions, width = RotaryPositions(22), 22  # a width that no other test has asked for
    with torch.inference_mode():
        positions(torch.zeros(1, 3, width), PaddedLayout(3))
    x = torch.randn(3, 1, width, requires_grad=True)
    apply_rotary(x, positions(x, PaddedLayout(3))).sum().backward()
    assert x.grad is not None


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    embedding = TokenEmbedding(10, 16, pad_id=3, scaled=True)
    torch.testing.assert_close(embedding(torch.tensor([5])), embedding.weight[5:6] * 4)
    plain = TokenEmbedding(10, 16, pad_id=3, scaled=False)
    torch.testing.assert_close(plain(torch.tensor([5])), plain.weight[5:6], rtol=0, atol=0)


def test_embeddings_start_with_unit_variance_and_a_zero_for_padding() -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(1000, 64, pad_id=3, scaled=True)
    assert embedding(torch.arange(4, 1000)).std().item() == pytest.approx(1, abs=0.01)
    assert embedding.weight[3].abs().max() == 0


@each("multiple_of", [1, 2, 4, 8, 64])
def test_the_output_layer_is_the_transpose_of_the_embedding_and_as_wide_as_the_vocabulary(multiple_of: int) -> None:
    torch.manual_seed(0)
    embedding = TokenEmbedding(10, 16, pad_id=3, scaled=True, multiple_of=multiple_of).double()
    x_BLD = torch.randn(2, 3, 16, dtype=torch.float64)
    expected_BLV = torch.einsum("bld,vd->blv", x_BLD, embedding.weight)
    torch.testing.assert_close(embedding.training_logits(x_BLD), expected_BLV)
    torch.testing.assert_close(embedding.logits(x_BLD), expected_BLV)


def test_padding_is_not_learned_from_as_input() -> None:
    embedding = TokenEmbedding(10, 16, pad_id=3, scaled=True)
    embedding(torch.tensor([[4, 3, 3]])).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad[4].abs().min() > 0
    assert embedding.weight.grad[3].abs().max() == 0
