"""What the compiler makes of a layer: one graph, and one more for each size; and the helper that counts them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.conftest import slow
from tests.support.compiling import Compilations, graph_breaks_and_recompilations
from transformer_cli.config.model import Activation, Autoregression, ModelConfig, Norm, Positions
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.models.transformer import Decoder, Encoder

# What the compiler provokes itself when one compiled function is given what another has returned.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

X = torch.randn(4, 8)


def compiled(function: Any, **options: Any) -> Any:
    """Compiles by the part of the compiler that reads Python; the rest takes long and breaks nothing."""
    return torch.compile(function, backend="aot_eager", dynamic=False, **options)


def test_a_function_without_a_break_is_one_graph() -> None:
    found = graph_breaks_and_recompilations(lambda: [compiled(torch.relu)(X) for _ in range(3)])
    assert found == Compilations(n_compiled=1, recompilations=[], graph_breaks=[])


def test_a_break_is_counted_with_its_reason() -> None:
    def broken(x: Tensor) -> Tensor:
        y = x.sin()
        torch._dynamo.graph_break(msg="on purpose")
        return y.cos()

    found = graph_breaks_and_recompilations(lambda: compiled(broken)(X))
    assert "on purpose" in " ".join(found.graph_breaks)
    assert found.n_compiled == 2
    assert found.recompilations == []


def test_a_number_that_is_read_is_a_break() -> None:
    found = graph_breaks_and_recompilations(lambda: compiled(lambda x: x * 2 if x.sum() > 0 else x)(X))
    assert len(found.graph_breaks) == 1
    assert found.recompilations == []


def test_each_other_shape_is_a_recompilation() -> None:
    double = compiled(lambda x: x * 2)
    found = graph_breaks_and_recompilations(lambda: [double(X[:n]) for n in (2, 3, 4, 3, 2)])
    assert found.n_compiled == 3
    assert ["size mismatch" in reason for reason in found.recompilations] == [True, True]
    assert found.graph_breaks == []


def test_each_other_value_of_a_python_number_is_a_recompilation() -> None:
    scaled = compiled(lambda x, factor: x * factor)
    found = graph_breaks_and_recompilations(lambda: [scaled(X, factor) for factor in (2, 3, 2, 4)])
    assert (found.n_compiled, len(found.recompilations)) == (3, 2)


def test_more_recompilations_are_counted_than_torch_makes_by_itself() -> None:
    double = compiled(lambda x: x * 2)
    found = graph_breaks_and_recompilations(lambda: [double(torch.zeros(n)) for n in range(2, 14)])
    assert found.n_compiled == 12


def test_nothing_is_remembered_from_one_count_to_the_next() -> None:
    double = compiled(lambda x: x * 2)
    for _ in range(2):
        assert graph_breaks_and_recompilations(lambda: double(X)).n_compiled == 1


def test_layers_of_one_kind_share_a_graph() -> None:
    layers = [nn.Linear(8, 8) for _ in range(3)]
    call = compiled(lambda layer, x: layer(x))
    found = graph_breaks_and_recompilations(lambda: [call(layer, X) for layer in layers])
    assert found.n_compiled == 1


# ---- Our layers

SIZES: dict[str, Any] = {"n_encoder_layers": 2, "n_decoder_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32}
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "modern": {
        "norm": Norm.pre,
        "norm_kind": "rms",
        "positions": Positions.rotary,
        "activation": Activation.swiglu,
        "bias": False,
    },
    "without dropout": {"dropout": 0.0},
    "two widths": {"d_k": 12, "d_v": 8},
    "window": {"attention_window": 3},
    "SSRU": {"decoder": Autoregression.ssru},
}
EACH_VARIANT = pytest.mark.parametrize("name", ["paper", slow("modern"), *map(slow, list(VARIANTS)[2:])])
TOKENS = (12, 16)  # the sizes that batches are padded to


def layout(n_tokens: int) -> PackedLayout:
    """Two sentences."""
    half = n_tokens // 2
    offsets_N = torch.tensor([0, half, n_tokens], dtype=torch.int32)
    return PackedLayout(128, torch.arange(half).repeat(2), cu_seqlens_N=offsets_N)


def run_layers(name: str, call: Any) -> None:
    """Forward and backward passes of all layers of both stacks, each layer by `call`, twice over the sizes."""
    config = ModelConfig(**SIZES, **VARIANTS[name])
    encoder, decoder = Encoder(config).train(), Decoder(config).train()
    for n_tokens in TOKENS * 2:
        source, target = layout(n_tokens), layout(n_tokens)
        x_SD, x_TD = (torch.randn(n_tokens, config.d_model, requires_grad=True) for _ in range(2))
        memory_SD, rotation = encoder.embed_positions(x_SD, source)
        for layer in encoder.layers:
            memory_SD = call(layer, memory_SD, source, rotation)
        y_TD, rotation = decoder.embed_positions(x_TD, target)
        for decoder_layer in decoder.layers:
            y_TD = call(decoder_layer, y_TD, target, memory_SD, source, rotation)
        y_TD.sum().backward()  # type: ignore[no-untyped-call]


@EACH_VARIANT
def test_a_layer_is_one_graph_for_each_size(name: str) -> None:
    call = compiled(lambda layer, *args: layer(*args))
    found = graph_breaks_and_recompilations(lambda: run_layers(name, call))
    assert found.graph_breaks == []
    assert found.n_compiled == 2 * len(TOKENS), found.recompilations  # of the encoder's layers, and of the decoder's
