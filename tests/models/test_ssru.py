"""The recurrent decoder: the formula of Kim et al. 2019 computed token by token, and where it is refused.

That it is causal, does not see padding, and is the same packed and step by step, is checked with all other models.

Shapes: B batch, T target, D width.
"""

import pytest
import torch
from torch import Tensor

from tests.support.each import each
from transformer_cli.config.model import Autoregression, ModelConfig
from transformer_cli.errors import ConfigError
from transformer_cli.models.layouts import PackedLayout, PaddedLayout
from transformer_cli.models.ssru import SSRU, states


def layer(*, bias: bool = True) -> SSRU:
    torch.manual_seed(0)
    found = SSRU(6, bias=bias).double()
    if found.to_forget.bias is not None:
        torch.nn.init.normal_(found.to_forget.bias)
    return found


def by_hand(ssru: SSRU, x_TD: Tensor) -> Tensor:
    """f = σ(W_f x + b_f), c = f ⊙ c + (1 - f) ⊙ W x, and relu(c), for one token after another."""
    weight, forget, bias = ssru.to_input.weight, ssru.to_forget.weight, ssru.to_forget.bias
    c_D, outputs = torch.zeros(x_TD.size(1), dtype=x_TD.dtype), []
    for x_D in x_TD:
        f_D = 1 / (1 + torch.exp(-(forget @ x_D + (0 if bias is None else bias))))
        c_D = f_D * c_D + (1 - f_D) * (weight @ x_D)
        outputs.append(c_D * (c_D > 0))
    return torch.stack(outputs)


@each("bias", [True, False])
@each("length", [1, 2, 3, 8, 13])
def test_all_positions_at_once_are_those_one_after_another(bias: bool, length: int) -> None:
    ssru, x_BTD = layer(bias=bias), torch.randn(2, length, 6, dtype=torch.float64)
    expected = torch.stack([by_hand(ssru, x_TD) for x_TD in x_BTD])
    torch.testing.assert_close(ssru(x_BTD, PaddedLayout(length)), expected, rtol=0, atol=1e-12)


def test_packed_sentences_do_not_see_each_other() -> None:
    ssru, groups = layer(), [(2, 3), (1, 1), (3, 9)]
    x_KD = torch.randn(2 * 3 + 1 + 3 * 9, 6, dtype=torch.float64)
    lengths = [length for n, length in groups for _ in range(n)]
    expected = torch.cat([by_hand(ssru, x_TD) for x_TD in torch.split(x_KD, lengths)])
    found = ssru(x_KD, PackedLayout.of_groups(groups, torch.device("cpu")))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_gradients_are_those_of_finite_differences() -> None:
    layout = PackedLayout.of_groups([(1, 4), (2, 3)], torch.device("cpu"))
    forget_KD = torch.rand(10, 3, dtype=torch.float64, requires_grad=True)
    new_KD = torch.randn(10, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda *given: states(*given, layout), (forget_KD, new_KD))


def test_a_long_sentence_of_16_bits_keeps_its_state() -> None:
    """A gate forgets a thousandth a token: a state of bfloat16 would stay where it is."""
    forget_TD, new_TD = torch.full((1000, 1), 0.999), torch.full((1000, 1), 0.001)
    found = states(forget_TD, new_TD, PaddedLayout(1000))
    torch.testing.assert_close(found[-1, 0], torch.tensor(1 - 0.999**1000), rtol=1e-4, atol=0)
    ssru = SSRU(4, bias=True).to(torch.bfloat16)
    assert ssru.gate_and_input(torch.zeros(1, 4, dtype=torch.bfloat16))[0].dtype is torch.float32


@pytest.mark.parametrize("name", ["decoder", "classifier", "tagger"])
def test_only_a_translator_has_it(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.decoder=ssru: only of a translator"):
        ModelConfig(name=name, decoder=Autoregression.ssru)
