"""Narrow embeddings, the window of restricted self-attention, and the feed-forward layer as convolutions.

What holds for any model is tested of these elsewhere, as variants among others: padding, packing, caches, exports.

Shapes: B batch, S source, T target, L either length, D width, H heads, V vocabulary.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.addons.interop.test_export import model_file
from tests.addons.interop.test_marian import AS_MARIAN
from tests.inference.test_cuda_graphs import numbers, replaying
from tests.models.test_transformer import PAD, toy_model, toy_pair
from tests.support.each import each
from tests.toy import run as toy_run
from tests.toy.run import CPU
from tests.toy.translator import GREEDY, SIZES, random_model, sentences, texts, toy_tokenizer, translator_of
from transformer_cli.addons.benchmarks.matmuls import Projection, count_projections
from transformer_cli.addons.interop import ctranslate2, huggingface, marian
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.config.model import Activation, ModelConfig, Norm, Positions, Tying
from transformer_cli.config.train import InitConfig, TrainConfig, TrainSettings
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.errors import ConfigError
from transformer_cli.inference.incremental import TransformerDecoder, of_each_row
from transformer_cli.inference.kv_cache import MAX_BEAM_GROUP
from transformer_cli.models.attention import SelfAttention
from transformer_cli.models.embeddings import NarrowEmbedding, make_embedding
from transformer_cli.models.ensemble import AnyModel, Ensemble
from transformer_cli.models.file import ModelFile
from transformer_cli.models.layers import FeedForward
from transformer_cli.models.layouts import PackedLayout, PaddedLayout
from transformer_cli.training.checkpoints import CheckpointStore
from transformer_cli.training.freezing import is_trained
from transformer_cli.training.initialisation import Initial, initial_weights

# ---- The window


def dependence(layer: Any, length: int, **options: Any) -> Tensor:
    """Whether the output at each position depends on the input at each, [L, L], by the gradient."""

    def summed(x_LD: Tensor) -> Tensor:
        y_1LD: Tensor = layer(x_LD[None], PaddedLayout(length), **options)
        return y_1LD[0].square().sum(-1)

    x_LD = torch.randn(length, 16, dtype=torch.float64)
    gradient_LLD: Tensor = torch.autograd.functional.jacobian(summed, x_LD)  # type: ignore[no-untyped-call]
    return gradient_LLD.abs().amax(-1) > 0


@each("causal", [False, True])
@each("window", [1, 2, 3, 4, 7])
def test_a_position_depends_on_its_neighbourhood_and_on_nothing_else(window: int, causal: bool) -> None:
    torch.manual_seed(0)
    layer = SelfAttention(16, 4, d_k=4, d_v=4, dropout=0.0, bias=True, window=window).double()
    found = dependence(layer, 9, causal=causal)
    for i in range(9):
        if causal:
            wanted = range(max(0, i - window + 1), i + 1)  # the last `window` positions
        else:
            wanted = range(max(0, i - window // 2), min(9, i + window // 2 + 1))  # half of them on either side
        assert found[i].nonzero().flatten().tolist() == list(wanted)


def test_a_stack_widens_the_neighbourhood_by_one_window_a_layer() -> None:
    model = toy_model(attention_window=3, n_encoder_layers=3, n_decoder_layers=3)

    def encoder(x_1LD: Tensor, layout: PaddedLayout) -> Tensor:
        return model.encoder(x_1LD, layout)  # type: ignore[no-any-return]

    memory_1SD = torch.randn(1, 2, 16, dtype=torch.float64)

    def decoder(x_1LD: Tensor, layout: PaddedLayout) -> Tensor:
        return model.decoder(x_1LD, layout, memory_1SD, PaddedLayout(2))  # type: ignore[no-any-return]

    distance_LL = torch.arange(11)[:, None] - torch.arange(11)
    assert torch.equal(dependence(encoder, 11), distance_LL.abs() <= 3 * 1)
    assert torch.equal(dependence(decoder, 11), (distance_LL >= 0) & (distance_LL <= 3 * 2))


@pytest.mark.parametrize("window", [8, 100])
def test_a_window_that_reaches_the_ends_changes_no_bit(window: int) -> None:
    """5 source positions need 4 on either side."""
    (source_BS, target_BT), free, restricted = toy_pair(), toy_model(), toy_model(attention_window=window)
    assert free.state_dict().keys() == restricted.state_dict().keys()
    assert torch.equal(restricted(source_BS, target_BT), free(source_BS, target_BT))
    source = PackedLayout.of_groups([(2, 5)], CPU)
    target = PackedLayout.of_groups([(2, 4)], CPU)
    given = source_BS.flatten(), source, target_BT.flatten(), target
    assert torch.equal(restricted.predict(*given), free.predict(*given))
    assert not torch.equal(toy_model(attention_window=6)(source_BS, target_BT), free(source_BS, target_BT))


def test_padding_beyond_the_window_is_not_a_softmax_over_nothing() -> None:
    model, (source_BS, target_BT) = toy_model(attention_window=2), toy_pair()
    padded_BS = nn.functional.pad(source_BS, (0, 9), value=PAD)
    source = model.source_layout(padded_BS)
    assert model.encode(padded_BS, source).isfinite().all()
    torch.testing.assert_close(model(padded_BS, target_BT), model(source_BS, target_BT))


def test_weights_outside_the_window_are_exactly_zero() -> None:
    model, (source_BS, target_BT) = toy_model(attention_window=2), toy_pair()
    weights = model.attention_weights(source_BS, target_BT)
    distance_SS = torch.arange(5)[:, None] - torch.arange(5)
    for w_BHSS in weights["encoder"]:
        assert torch.equal(w_BHSS[0, 0] > 0, distance_SS.abs() <= 1)
    for w_BHTT in weights["decoder"]:
        assert torch.equal(w_BHTT[1, 1] > 0, (distance_SS[:4, :4] >= 0) & (distance_SS[:4, :4] < 2))
    assert all((w_BHTS > 0).all() for w_BHTS in weights["cross"])  # which is not restricted


LINES = sentences(9, seed=3)
RESTRICTED = ModelConfig(**SIZES, norm=Norm.pre, attention_window=3, d_embedding=12, tie_embeddings=Tying.source_target)
ROTARY = ModelConfig(**SIZES, attention_window=4, positions=Positions.rotary, d_embedding=8)
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": GREEDY,
    "beam": {"beam_size": 4, "n_best": 3},
    "groups of one row": {"beam_size": MAX_BEAM_GROUP + 1},
}


@each("config", [RESTRICTED, ROTARY])
@each("name", SEARCHES)
def test_the_score_of_a_search_with_a_cache_is_that_of_a_pass_without(name: str, config: ModelConfig) -> None:
    plain = random_model(toy_tokenizer(), dtype=torch.float64, seed=2)
    restricted = random_model(toy_tokenizer(), config=config, dtype=torch.float64)
    models: list[AnyModel] = [restricted, Ensemble([restricted, plain])]
    options = TranslateOptions(token_scores=True)  # by force-decoding
    for model in models if name == "beam" else models[:1]:
        found = translator_of(toy_tokenizer(), model=model, options=options, **SEARCHES[name]).translate(LINES)
        assert max(one.candidates[0].n_tokens for one in found) > 6
        for one in found:
            assert one.tokens is not None
            assert math.fsum(log_p for _, log_p in one.tokens) == pytest.approx(one.candidates[0].log_prob, abs=1e-9)


@pytest.mark.parametrize("beam_size", [1, 2])
def test_static_buffers_have_the_same_window(beam_size: int) -> None:
    """Static buffers mask what is before the window, and what is not yet written."""
    decoder, (source_BS, _) = TransformerDecoder(toy_model(attention_window=3)), toy_pair()
    growing = decoder.start(source_BS, beam_size=beam_size, max_length=8)
    static = decoder.static_cache(source_BS, *source_BS.shape, beam_size=beam_size, max_length=8)
    decoder.restart(source_BS, static)
    ids_R = torch.tensor([1, 1, 1, 1])[: 2 * beam_size]
    for length in range(8):
        static.advance(length, 8)
        logits_RV = of_each_row(decoder.step(ids_R, growing), len(ids_R))
        torch.testing.assert_close(decoder.step(ids_R, static), logits_RV)
        rows_R = (
            torch.arange(2 * beam_size) if beam_size == 1 else torch.tensor([[1, 0, 2, 2], [0, 1, 3, 2]][length % 2])
        )
        for cache in (growing, static):
            cache.reorder(rows_R)
        ids_R = torch.randint(4, 20, (2 * beam_size,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["greedy", "beam"])
def test_replayed_steps_have_the_same_window(name: str) -> None:
    model = random_model(toy_tokenizer(), config=RESTRICTED, dtype=torch.float64)
    expected = translator_of(toy_tokenizer(), model=model, **SEARCHES[name]).translate(LINES)
    assert numbers(replaying(model, **SEARCHES[name])[0].translate(LINES)) == numbers(expected)


def test_a_beam_of_one_is_greedy_under_a_window() -> None:
    model = random_model(toy_tokenizer(), config=RESTRICTED)
    found = [translator_of(toy_tokenizer(), model=model, **s).translate(LINES) for s in (GREEDY, {"beam_size": 1})]
    assert texts(found[0]) == texts(found[1])


def test_company_changes_no_bit_of_a_restricted_model() -> None:
    lines = sentences(8, seed=3, longest=25)
    model = random_model(toy_tokenizer(), config=RESTRICTED)
    translator = translator_of(toy_tokenizer(), model=model, batch_invariant=True, beam_size=2)
    together = translator.translate(lines)
    alone = [translator.translate([line])[0] for line in lines]
    assert [one.hypotheses for one in together] == [one.hypotheses for one in alone]


@pytest.mark.parametrize(
    ("write", "changes"),
    [(ctranslate2.write, {}), (huggingface.write, {}), (marian.write, AS_MARIAN)],
    ids=["ctranslate2", "huggingface", "marian"],
)
def test_a_format_without_restricted_attention_refuses_it_by_name(
    write: Callable[[ModelFile, Path], object], changes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"^model\.attention_window=4: .*tfm export onnx"):
        write(model_file(attention_window=4, **changes), tmp_path)
    assert list(tmp_path.iterdir()) == []


# ---- Narrow embeddings


def test_a_narrow_embedding_is_scaled_then_projected_and_projected_back_to_the_same_rows() -> None:
    config = ModelConfig(d_model=6, n_heads=1, d_embedding=4)
    embedding = make_embedding(config, 9, pad_id=0, is_output=True).double()
    assert isinstance(embedding, NarrowEmbedding)
    assert embedding.project_out is not None
    ids_L, y_LD = torch.tensor([3, 5, 0]), torch.randn(2, 6, dtype=torch.float64)
    e_VW, in_DW, out_WD = embedding.weight, embedding.project_in.weight, embedding.project_out.weight
    torch.testing.assert_close(embedding(ids_L), torch.stack([in_DW @ (2 * e_VW[i]) for i in ids_L]))  # √4
    torch.testing.assert_close(embedding.logits(y_LD), torch.stack([e_VW @ (out_WD @ y_D) for y_D in y_LD]))
    assert not embedding(ids_L)[2].any()  # the padding


def test_what_enters_the_layers_and_the_logits_begins_with_unit_variance() -> None:
    torch.manual_seed(0)
    config = ModelConfig(d_model=256, d_embedding=64)
    embedding = make_embedding(config, 2000, pad_id=0, is_output=True)
    with torch.no_grad():
        x_LD = embedding(torch.arange(1, 2000))
        logits_LV = embedding.logits(torch.randn(500, 256))
    assert x_LD.var().item() == pytest.approx(1, abs=0.1)
    assert logits_LV.var().item() == pytest.approx(1, abs=0.1)


def test_positions_are_added_in_float32_whatever_the_products_have() -> None:
    embedding = make_embedding(ModelConfig(d_model=6, n_heads=1, d_embedding=4), 9, pad_id=0)
    with torch.autocast("cpu", torch.bfloat16):
        assert embedding(torch.tensor([3])).dtype is torch.float32


def test_the_width_of_the_model_is_no_narrow_width() -> None:
    usual, same = toy_model().state_dict(), toy_model(d_embedding=16).state_dict()
    assert usual.keys() == same.keys()
    assert all(torch.equal(same[name], weight) for name, weight in usual.items())


TIED = {Tying.three_way: (1, 1), Tying.decoder: (2, 1), Tying.source_target: (1, 0), Tying.none: (2, 0)}


@each("tying", Tying)
def test_one_projection_in_for_each_embedding_and_one_out_for_a_tied_output(tying: Tying) -> None:
    model = toy_model(tie_embeddings=tying, d_embedding=6)
    names = [name.removesuffix(".weight").split(".") for name in model.state_dict() if ".project_" in name]
    assert tuple(sum(name[-1] == f"project_{way}" for name in names) for way in ("in", "out")) == TIED[tying]
    assert (model.source_embedding is model.target_embedding) is tying.shares_embedding
    assert (model.output_embedding is model.target_embedding) is not tying.has_own_output
    assert model.output_embedding.weight.shape == (20, 16 if tying.has_own_output else 6)


def test_the_products_of_narrow_embeddings_are_counted() -> None:
    """The products of 7 source and 5 target tokens are compared with those of a model with wide embeddings."""
    wide, narrow = (count_projections(toy_model(d_embedding=width), n_source=7, n_target=5) for width in (None, 6))
    added = [Projection(7, 6, 16), Projection(5, 6, 16), Projection(5, 16, 6), Projection(5, 6, 20)]
    assert narrow == wide - Counter([Projection(5, 16, 20)]) + Counter(added)


# ---- Training, and beginning with a trained model

OPTIONS: dict[str, dict[str, Any]] = {
    "window": {"attention_window": 2},
    "narrow": {"d_embedding": 6},
    "source_target": {"tie_embeddings": Tying.source_target},
    "all": {"attention_window": 3, "d_embedding": 6, "tie_embeddings": Tying.source_target},
}


@each("changes", OPTIONS.values())
def test_every_parameter_has_a_gradient(changes: dict[str, Any]) -> None:
    model = toy_model(**changes)
    model(*toy_pair()).square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("changes", [OPTIONS["all"]], ids=["all"])
def test_every_parameter_is_trained(changes: dict[str, Any], tmp_path: Path) -> None:
    config = toy_run.config(model=replace(toy_run.MODEL, **changes), max_steps=8, average_last=1)
    toy_run.run(tmp_path / "run", config)
    losses = [entry["loss"] for entry in toy_run.metrics(tmp_path / "run") if "loss" in entry]
    assert losses[-1] < losses[0]
    before = toy_run.model_file(**changes).weights
    after = CheckpointStore(tmp_path / "run").load_model(8)
    assert after.config == config.model
    assert before.keys() == after.weights.keys()
    assert all(not torch.equal(after.weights[name], weight) for name, weight in before.items())


def test_a_classifier_begins_with_narrow_embeddings_and_their_projection() -> None:
    model = toy_run.model_file(d_embedding=6, attention_window=2)
    config = replace(
        toy_run.config(),
        model=replace(model.config, name="classifier"),
        data=DataConfig(task="classification"),
        train=TrainSettings(best_metric="accuracy"),
    )
    taken = initial_weights(config, Initial(Path("x"), model, is_resumed=False), model.tokenizers)
    assert torch.equal(taken["source_embedding.project_in.weight"], model.weights["source_embedding.project_in.weight"])
    assert not any("project_out" in name for name in taken)


@pytest.mark.parametrize(("pattern", "trained"), [("embeddings", []), ("output", ["weight", "project_in.weight"])])
def test_projections_are_frozen_with_what_they_belong_to(pattern: str, trained: list[str]) -> None:
    config = replace(toy_run.config(), init=InitConfig(from_="x", freeze=[pattern]))
    names = ["weight", "project_in.weight", "project_out.weight"]
    assert [name for name in names if is_trained(f"source_embedding.{name}", config)] == trained


# ---- Messages


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_embedding": 17}, r"model\.d_embedding=17: wider than model\.d_model=16\. Choose less, or leave it out"),
        ({"d_embedding": 0}, r"model\.d_embedding=0: "),
        ({"attention_window": 0}, r"model\.attention_window=0: "),
    ],
)
def test_what_makes_no_model_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ModelConfig(d_model=16, n_heads=4, **changes)


def test_shared_embeddings_need_one_vocabulary() -> None:
    with pytest.raises(
        ConfigError, match=r"joint=false: model\.tie_embeddings=source_target needs .* model\.tie_embeddings=none"
    ):
        TrainConfig(
            model=ModelConfig(tie_embeddings=Tying.source_target),
            data=DataConfig(tokenizer=TokenizerConfig(joint=False)),
        )


# ---- Section 3.3: "two convolutions with kernel size 1"


@pytest.mark.parametrize("activation", [Activation.relu, Activation.gelu])
def test_the_feed_forward_layer_is_two_convolutions_of_kernel_size_1(activation: Activation) -> None:
    torch.manual_seed(0)
    layer = FeedForward(6, 10, activation=activation, dropout=0.0, bias=True).double()
    first, second = nn.Conv1d(6, 10, kernel_size=1).double(), nn.Conv1d(10, 6, kernel_size=1).double()
    with torch.no_grad():
        for convolution, linear in ((first, layer.to_hidden), (second, layer.to_out)):
            nn.init.normal_(linear.bias)
            convolution.weight.copy_(linear.weight[..., None])  # [out, in, 1]
            assert convolution.bias is not None
            convolution.bias.copy_(linear.bias)
    activate = nn.ReLU() if activation is Activation.relu else nn.GELU()
    convolutions = nn.Sequential(first, activate, second)
    x_BLD = torch.randn(2, 7, 6, dtype=torch.float64, requires_grad=True)
    y_BLD, expected_BLD = layer(x_BLD), convolutions(x_BLD.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(y_BLD, expected_BLD)
    both = [torch.autograd.grad(y.square().sum(), x_BLD, retain_graph=True)[0] for y in (y_BLD, expected_BLD)]
    torch.testing.assert_close(*both)
