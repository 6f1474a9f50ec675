"""A model with its products arranged for a search is the same model; of bytes, nearly, and alike in any company.

Shapes: B batch, T target, V vocabulary, L rows, K columns in, N columns out.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.test_transformer import VARIANTS, toy_model, toy_pair
from tests.toy_translator import GREEDY, random_model, sentences, toy_tokenizer, translator_of
from transformer_cli.config.decode import Quantize
from transformer_cli.config.model import ModelConfig
from transformer_cli.errors import ConfigError
from transformer_cli.inference.prepack import Int8Linear, PackedLinear, can_pack, has_fbgemm, pack

every_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


@every_variant
def test_a_packed_model_says_what_its_model_says(changes: dict[str, Any]) -> None:
    model, pair = toy_model(torch.float32, **changes), toy_pair()
    packed = pack(model, quantize=False)
    torch.testing.assert_close(packed(*pair), model(*pair), rtol=0, atol=1e-5)
    caches = [one.start(pair[0], beam_size=2, max_length=4) for one in (model, packed)]
    for ids_R in ([1, 1, 1, 1], [13, 14, 15, 16]):
        of_model, of_packed = (
            one.step(torch.tensor(ids_R), cache) for one, cache in zip((model, packed), caches, strict=True)
        )
        torch.testing.assert_close(of_packed, of_model, rtol=0, atol=1e-5)


@every_variant
def test_a_model_of_bytes_says_nearly_that(changes: dict[str, Any]) -> None:
    model, pair = toy_model(torch.float32, **changes), toy_pair()
    logits_BTV = model(*pair)
    difference_BTV = pack(model, quantize=True)(*pair) - logits_BTV
    # Two roundings to one part in 254 in each of some ten products in a row: a few percent of what there is to tell.
    assert 0 < difference_BTV.std() < 0.05 * logits_BTV.std()


def test_packing_leaves_the_model_as_it_was_and_shares_the_rest() -> None:
    model = toy_model(torch.float32)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    packed = pack(model, quantize=True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert packed.source_embedding.weight is model.source_embedding.weight
    assert model.output_embedding.as_output is None


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("n_rows", [1, 5, 200])
def test_a_packed_product_is_the_product(n_rows: int, has_bias: bool) -> None:
    torch.manual_seed(n_rows)
    x_LK, weight_NK, bias_N = torch.randn(n_rows, 48), torch.randn(33, 48), torch.randn(33) if has_bias else None
    exact_LN = F.linear(x_LK.double(), weight_NK.double(), None if bias_N is None else bias_N.double())
    torch.testing.assert_close(PackedLinear(weight_NK, bias_N)(x_LK).double(), exact_LN, rtol=0, atol=1e-4)


@pytest.fixture(params=["FBGEMM", "oneDNN"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either of the two that multiply bytes."""
    if request.param == "FBGEMM" and not has_fbgemm():
        pytest.skip("this torch is without FBGEMM")
    monkeypatch.setattr("transformer_cli.inference.prepack.has_fbgemm", lambda: request.param == "FBGEMM")
    return str(request.param)


@pytest.mark.parametrize("has_vnni", [True, False])
def test_a_product_of_bytes_is_what_rounding_by_hand_gives(
    library: str, has_vnni: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: has_vnni)
    torch.manual_seed(0)
    x_LK, weight_NK, bias_N = torch.randn(7, 64), torch.randn(20, 64), torch.randn(20)
    x_scale_L1 = x_LK.abs().amax(1, keepdim=True) / (127 if has_vnni else 63)
    w_scale_N1 = weight_NK.abs().amax(1, keepdim=True) / 127
    by_hand_LN = ((x_LK / x_scale_L1).round().double() @ (weight_NK / w_scale_N1).round().double().T) * (
        x_scale_L1 * w_scale_N1.T
    ).double() + bias_N.double()
    torch.testing.assert_close(Int8Linear(weight_NK, bias_N)(x_LK).double(), by_hand_LN, rtol=0, atol=1e-4)


def test_a_row_of_bytes_is_the_same_to_the_last_bit_beside_any_others(library: str) -> None:
    torch.manual_seed(0)
    product = Int8Linear(torch.randn(50, 64), torch.randn(50))
    x_LK = torch.randn(70, 64) * torch.logspace(-3, 3, 70)[:, None]
    together_LN = product(x_LK)
    for first, last in ((0, 1), (3, 8), (40, 70)):
        assert torch.equal(product(x_LK[first:last]), together_LN[first:last])


def test_rows_of_zeros_give_the_bias(library: str) -> None:
    bias_N = torch.randn(9)
    assert torch.equal(Int8Linear(torch.randn(9, 16), bias_N)(torch.zeros(2, 16)), bias_N.expand(2, -1))
    assert torch.equal(Int8Linear(torch.zeros(9, 16), bias_N)(torch.randn(2, 16)), bias_N.expand(2, -1))


@pytest.mark.parametrize("options", [{}, GREEDY], ids=["beam", "greedy"])
def test_translations_by_bytes_do_not_depend_on_their_neighbours(options: dict[str, Any]) -> None:
    tokenizer, lines = toy_tokenizer(), sentences(60, seed=5)
    # As wide as real heads: narrower ones round by where they stand in memory.
    model = random_model(tokenizer, config=ModelConfig(d_model=64, n_heads=2, d_ff=96, n_encoder_layers=2))
    found = [
        translator_of(tokenizer, model=model, quantize=Quantize.int8, batch_tokens=n, **options).translate(lines)
        for n in (1, 100, 4096)
    ]
    scores = [[result.hypotheses for result in results] for results in found]
    assert scores[0] == scores[1] == scores[2]


def test_only_float32_on_a_cpu_is_packed() -> None:
    assert not can_pack(toy_model(torch.float64), quantize=False)
    assert not can_pack(toy_model().to("meta", torch.float32), quantize=True)
    tokenizer = toy_tokenizer()
    with pytest.raises(ConfigError, match=r"decode.quantize=int8: is for CPUs"):
        translator_of(tokenizer, model=random_model(tokenizer, dtype=torch.float64), quantize=Quantize.int8)
    with pytest.raises(ConfigError, match=r"decode.quantize=int8: not proved with decode.batch_invariant=true"):
        translator_of(tokenizer, quantize=Quantize.int8, batch_invariant=True)
