"""Prepacked weights give the products of the weights that they are made of.

Shapes: B batch, T target, V vocabulary, L rows, K columns in, N columns out.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.models.test_transformer import VARIANTS, toy_model, toy_pair
from tests.support.each import each
from tests.toy.translator import toy_tokenizer, translator_of
from transformer_cli.config.decode import Quantize
from transformer_cli.errors import ConfigError
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.inference.prepack import PrepackedLinear, can_prepack, prepack

every_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


@every_variant
def test_a_prepacked_model_has_the_logits_of_its_model(changes: dict[str, Any]) -> None:
    model, pair = toy_model(torch.float32, **changes), toy_pair()
    packed = prepack(model)
    torch.testing.assert_close(packed(*pair), model(*pair), rtol=0, atol=1e-5)
    decoders = [TransformerDecoder(one) for one in (model, packed)]
    caches = [one.start(pair[0], beam_size=2, max_length=4) for one in decoders]
    for ids_R in ([1, 1, 1, 1], [13, 14, 15, 16]):
        of_model, of_packed = (
            one.step(torch.tensor(ids_R), cache) for one, cache in zip(decoders, caches, strict=True)
        )
        torch.testing.assert_close(of_packed, of_model, rtol=0, atol=1e-5)


def test_prepacking_changes_nothing_in_the_model_and_shares_its_embeddings() -> None:
    model = toy_model(torch.float32)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    packed = prepack(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert packed.source_embedding.weight is model.source_embedding.weight
    assert model.output_embedding.as_output is None


def test_what_a_step_calls_most_are_functions() -> None:
    """A call of a module costs as much as a product of few rows."""
    called: set[str] = set()
    decoder = TransformerDecoder(prepack(toy_model(torch.float32, dropout=0.5)))
    cache = decoder.start(toy_pair()[0], beam_size=2, max_length=4)
    hook = torch.nn.modules.module.register_module_forward_hook(lambda one, *_: called.add(type(one).__name__))
    try:
        decoder.step(torch.tensor([1, 1, 1, 1]), cache)
    finally:
        hook.remove()
    assert called == {"TokenEmbedding", "SinusoidalPositions"}


@each("has_bias", [True, False])
@each("n_rows", [1, 5, 64, 200])
@each("by_onednn", [True, False])
def test_a_prepacked_product_is_the_product(
    by_onednn: bool, n_rows: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer_cli.inference.prepack.prefers_onednn", lambda: by_onednn)
    torch.manual_seed(n_rows)
    x_LK, weight_NK, bias_N = torch.randn(n_rows, 48), torch.randn(33, 48), torch.randn(33) if has_bias else None
    exact_LN = F.linear(x_LK.double(), weight_NK.double(), None if bias_N is None else bias_N.double())
    packed = PrepackedLinear(weight_NK, bias_N)
    assert (packed.weight is not None) is by_onednn
    torch.testing.assert_close(packed(x_LK).double(), exact_LN, rtol=0, atol=1e-4)
    torch.testing.assert_close(packed(x_LK[None]).double(), exact_LN[None], rtol=0, atol=1e-4)


def test_only_float32_on_a_cpu_is_prepacked() -> None:
    assert can_prepack(toy_model(torch.float32))
    assert not can_prepack(toy_model(torch.float64))
    assert not can_prepack(toy_model().to("meta", torch.float32))


def test_int8_is_refused_with_the_engine_that_has_it() -> None:
    with pytest.raises(
        ConfigError, match=r"decode\.quantize=int8: engine=torch .*--engine ctranslate2 decode\.quantize="
    ):
        translator_of(toy_tokenizer(), quantize=Quantize.int8)
