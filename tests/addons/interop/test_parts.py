"""The canonical parts of a model, and our weights made of them."""

from typing import Any

import pytest
import torch

from tests.addons.interop.test_export import model_file
from tests.support.each import each
from transformer_cli.addons.interop.parts import part_names, parts_of, weights_from_parts
from transformer_cli.config.model import Activation, Norm, Positions, Tying

KINDS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre, learned": {"norm": Norm.pre, "positions": Positions.learned},
    "untied, biased output": {"tie_embeddings": Tying.none, "output_bias": True},
    "source and target tied": {"tie_embeddings": Tying.source_target, "output_bias": True},
    "decoder tied": {"tie_embeddings": Tying.decoder, "bias": False},
    "gated": {"activation": Activation.swiglu, "norm_kind": "rms", "norm": Norm.pre},
}


@each("changes", KINDS.values())
def test_weights_made_of_the_parts_are_the_weights(changes: dict[str, Any]) -> None:
    model = model_file(**changes)
    parts = parts_of(model)
    assert parts.keys() <= set(part_names(model.config))
    weights = weights_from_parts(model.config, parts.get)
    assert weights.keys() == model.weights.keys()
    for name, read in weights.items():
        assert torch.equal(read(), model.weights[name]), name


def test_a_bias_that_is_missing_is_zero() -> None:
    model = model_file()
    parts = {name: part for name, part in parts_of(model).items() if not name.endswith("self.q.bias")}
    bias = weights_from_parts(model.config, parts.get)["encoder.layers.0.self_attention.to_qkv.bias"]()
    width = model.config.d_model
    assert not bias[:width].any()
    assert torch.equal(bias[width:], model.weights["encoder.layers.0.self_attention.to_qkv.bias"][width:])


def test_a_matrix_that_is_missing_is_no_matrix_of_zeros() -> None:
    model = model_file()
    parts = {name: part for name, part in parts_of(model).items() if not name.endswith("self.q.weight")}
    with pytest.raises(AssertionError, match=r"encoder\.0\.self\.q\.weight"):
        weights_from_parts(model.config, parts.get)["encoder.layers.0.self_attention.to_qkv.weight"]()
