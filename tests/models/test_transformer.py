"""What must hold for every variant of the model, and its parameters counted by hand.

Shapes: B batch, S source, T target, L either length, D width, H heads, E head width, V vocabulary, N beam, R = B × N.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.support.each import each
from transformer_cli.config.model import Activation, Autoregression, ModelConfig, Norm, Positions, Tying, Vocabulary
from transformer_cli.errors import ConfigError
from transformer_cli.inference.incremental import TransformerDecoder, of_each_row
from transformer_cli.models.attention_kernels import attention_weights
from transformer_cli.models.build import build_model
from transformer_cli.models.layers import Dropout, FeedForward
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.models.transformer import Transformer

PAD, VOCABULARY = 3, 20

VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-LN": {"norm": Norm.pre},
    "post-RMS": {"norm_kind": "rms"},
    "pre-RMS": {"norm": Norm.pre, "norm_kind": "rms"},
    "concat": {"positions": Positions.sinusoidal_concat},
    "learned": {"positions": Positions.learned, "max_positions": 16},
    "learned pre-LN": {"positions": Positions.learned, "max_positions": 16, "norm": Norm.pre},
    "rotary": {"positions": Positions.rotary},
    "rotary pre-LN": {"positions": Positions.rotary, "norm": Norm.pre},
    "narrow heads": {"d_k": 2, "d_v": 6},
    "swiglu": {"activation": Activation.swiglu},
    "no biases": {"bias": False},
    "untied": {"tie_embeddings": Tying.none},
    "window": {"attention_window": 2},
    "narrow embeddings": {"d_embedding": 6},
    "narrow, own output": {"d_embedding": 6, "tie_embeddings": Tying.source_target},
    "SSRU": {"decoder": Autoregression.ssru},
    "SSRU pre-LN": {"decoder": Autoregression.ssru, "norm": Norm.pre, "bias": False},
}
every_variant = pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())


def toy_model(dtype: torch.dtype = torch.float64, **changes: Any) -> Transformer:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_heads": 4, "d_ff": 32, "n_encoder_layers": 2, "n_decoder_layers": 3}
    return sized(ModelConfig(**(sizes | changes))).to(dtype).eval()


def sized(config: ModelConfig, source: int = VOCABULARY, target: int = VOCABULARY) -> Transformer:
    return build_model(config, Vocabulary(source, PAD), Vocabulary(target, PAD))


def toy_pair() -> tuple[Tensor, Tensor]:
    """Two sentences of the same lengths, without padding."""
    return torch.tensor([[5, 6, 7, 8, 2], [9, 10, 11, 12, 2]]), torch.tensor([[1, 13, 14, 15], [1, 16, 17, 18]])


@every_variant
def test_a_target_token_changes_no_logits_before_it(changes: dict[str, Any]) -> None:
    model, (source_BS, target_BT) = toy_model(**changes), toy_pair()
    logits_BTV = model(source_BS, target_BT)
    for t in range(target_BT.size(1)):
        changed_BT = target_BT.clone()
        changed_BT[:, t] = 19
        again_BTV = model(source_BS, changed_BT)
        torch.testing.assert_close(again_BTV[:, :t], logits_BTV[:, :t], rtol=0, atol=0)
        assert not torch.isclose(again_BTV[:, t], logits_BTV[:, t]).all()


@every_variant
def test_padding_never_changes_the_logits(changes: dict[str, Any]) -> None:
    model, (source_BS, target_BT) = toy_model(**changes), toy_pair()
    padded = F.pad(source_BS, (0, 3), value=PAD), F.pad(target_BT, (0, 2), value=PAD)
    torch.testing.assert_close(model(*padded)[:, :4], model(source_BS, target_BT), rtol=0, atol=1e-12)


@every_variant
def test_a_sentence_never_depends_on_its_neighbours(changes: dict[str, Any]) -> None:
    model, (source_BS, target_BT) = toy_model(**changes), toy_pair()
    source_BS = torch.tensor([[5, 6, 2, PAD, PAD], source_BS[1].tolist()])
    alone_1TV = model(source_BS[:1, :3], target_BT[:1])
    torch.testing.assert_close(model(source_BS, target_BT)[:1], alone_1TV, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@every_variant
def test_decoding_step_by_step_equals_decoding_at_once(
    changes: dict[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    """Two beams of each of three sentences change places, and sentences leave, as in a search."""
    model = toy_model(dtype, **changes)
    source_BS = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, PAD, PAD], [11, 12, 13, 2, PAD]])
    prefix_RT = torch.randint(4, VOCABULARY, (3, 1)).repeat_interleave(2, dim=0)  # a sentence's rows begin alike
    moves = {  # after this many steps: the rows and the sentences that go on
        2: ([1, 0, 2, 2, 5, 4], None),  # beams change places, and one takes over from its neighbour
        4: ([0, 0, 5, 4], [0, 2]),  # the middle sentence is done
        6: ([3, 3], [1]),
    }
    decoder = TransformerDecoder(model)
    cache = decoder.start(source_BS, beam_size=2, max_length=8)
    for length in range(1, 9):
        at_once_RV = model(source_BS.repeat_interleave(2, dim=0), prefix_RT)[:, -1]
        logits_RV = of_each_row(decoder.step(prefix_RT[:, -1], cache), len(prefix_RT))
        torch.testing.assert_close(logits_RV, at_once_RV, rtol=0, atol=tolerance)
        assert cache.length == length
        if length in moves:
            rows, sentences = moves[length]
            cache.reorder(torch.tensor(rows), None if sentences is None else torch.tensor(sentences))
            prefix_RT = prefix_RT[rows]
            source_BS = source_BS if sentences is None else source_BS[sentences]
        prefix_RT = torch.cat([prefix_RT, torch.randint(4, VOCABULARY, (len(prefix_RT), 1))], dim=1)


@every_variant
def test_the_attention_that_a_search_keeps_is_the_mean_over_the_heads_of_the_last_layer(
    changes: dict[str, Any],
) -> None:
    model = toy_model(**changes)
    source_BS = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 2, PAD, PAD], [11, 12, 13, 2, PAD]])
    prefix_RT = torch.tensor([[1], [1], [1], [1], [1], [1]])
    decoder = TransformerDecoder(model)
    cache = decoder.start(source_BS, beam_size=2, max_length=4, keeps_attention=True)
    for ids in ([13, 14, 15, 16, 17, 18], [4, 5, 6, 7, 8, 9], [0, 0, 0, 0, 0, 0]):
        decoder.step(prefix_RT[:, -1], cache)
        cross_RHTS = model.attention_weights(source_BS.repeat_interleave(2, dim=0), prefix_RT)["cross"][-1]
        expected_BNS = cross_RHTS[:, :, -1].mean(1).unflatten(0, (3, 2))
        torch.testing.assert_close(cache.attention_BNS, expected_BNS, rtol=0, atol=1e-10)
        prefix_RT = torch.cat([prefix_RT, torch.tensor(ids)[:, None]], dim=1)


def test_the_memory_of_a_sentence_is_kept_once_for_all_its_beams() -> None:
    source_BS, _ = toy_pair()
    cache = TransformerDecoder(toy_model()).start(source_BS, beam_size=5, max_length=7)
    assert all(k_BHSE.shape == (2, 4, 5, 4) for k_BHSE in cache.memory_keys_BHSE + cache.memory_values_BHSE)
    assert all(past_GHME.shape == (2, 4, 7 * 5, 4) for past_GHME in cache.keys_GHME + cache.values_GHME)


def test_beams_that_change_places_move_no_keys() -> None:
    source_BS, _ = toy_pair()
    model = toy_model()
    decoder = TransformerDecoder(model)
    cache = decoder.start(source_BS, beam_size=5, max_length=7)
    decoder.step(torch.arange(10), cache)
    written = [keys_GHME[:, :, :5].clone() for keys_GHME in cache.keys_GHME]
    cache.reorder(torch.tensor([1, 1, 0, 4, 2, 5, 9, 8, 6, 6]))
    for keys_GHME, before in zip(cache.keys_GHME, written, strict=True):
        assert torch.equal(keys_GHME[:, :, :5], before)


def test_more_steps_than_announced_are_refused() -> None:
    model = toy_model()
    decoder = TransformerDecoder(model)
    cache = decoder.start(toy_pair()[0], beam_size=1, max_length=1)
    decoder.step(torch.tensor([1, 1]), cache)
    with pytest.raises(AssertionError, match="more steps"):
        decoder.step(torch.tensor([1, 1]), cache)


@every_variant
def test_a_source_of_padding_alone_gives_numbers_and_gradients(changes: dict[str, Any]) -> None:
    model, (source_BS, target_BT) = toy_model(**changes).train(), toy_pair()
    source_BS = torch.tensor([[PAD] * 5, [5, 2, PAD, PAD, PAD]])
    logits_BTV = model(source_BS, target_BT)
    logits_BTV.square().sum().backward()
    assert logits_BTV.isfinite().all()
    shown = model.attention_weights(source_BS, target_BT)
    assert all(weights_BHTS.isfinite().all() for layers in shown.values() for weights_BHTS in layers)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@every_variant
def test_packed_sentences_have_the_logits_and_gradients_of_each_alone(changes: dict[str, Any]) -> None:
    model, cpu = toy_model(**changes), torch.device("cpu")
    pairs = [([5, 6, 2], [1, 13]), ([7, 8, 2], [1, 14]), ([2], [1]), ([9, 10, 11, 12, 2], [1, 15, 16, 17])]
    source = PackedLayout.of_groups([(2, 3), (1, 1), (1, 5)], cpu)
    target = PackedLayout.of_groups([(2, 2), (1, 1), (1, 4)], cpu)
    source_S, target_T = (torch.tensor([id for pair in pairs for id in pair[side]]) for side in (0, 1))
    alone_TV = torch.cat([model(torch.tensor([one]), torch.tensor([other]))[0] for one, other in pairs])
    expected = torch.autograd.grad(alone_TV.square().sum(), list(model.parameters()))
    packed_TV = model.predict(source_S, source, target_T, target)
    torch.testing.assert_close(packed_TV, alone_TV, rtol=0, atol=1e-12)
    found = torch.autograd.grad(packed_TV.square().sum(), list(model.parameters()))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_a_mask_of_the_batch_is_used_instead_of_the_padding_id() -> None:
    model, (source_BS, target_BT) = toy_model(), toy_pair()
    mask_BS = torch.tensor([[True, True, True, False, False]] * 2)
    torch.testing.assert_close(model(source_BS, target_BT, mask_BS), model(source_BS[:, :3], target_BT))


@every_variant
def test_the_weights_shown_are_the_weights_used(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose fast attention is replaced by the written-out one gives the same logits, from the same weights."""
    model, (source_BS, target_BT) = toy_model(**changes), toy_pair()
    source_BS[1, 3:] = PAD
    logits_BTV = model(source_BS, target_BT)
    shown = model.attention_weights(source_BS, target_BT)
    used = []

    def written_out(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, _: float, *, is_causal: bool) -> Tensor:
        used.append(attention_weights(q, k, mask, causal=is_causal))
        return used[-1] @ v

    monkeypatch.setattr(F, "scaled_dot_product_attention", written_out)
    torch.testing.assert_close(model(source_BS, target_BT), logits_BTV, rtol=0, atol=1e-12)
    is_recurrent = changes.get("decoder") is Autoregression.ssru  # which has no weights to show
    assert {name: [tuple(weights.shape) for weights in layers] for name, layers in shown.items()} == {
        "encoder": [(2, 4, 5, 5)] * 2,
        "decoder": [] if is_recurrent else [(2, 4, 4, 4)] * 3,
        "cross": [(2, 4, 4, 5)] * 3,
    }
    of_decoder = [shown["cross"]] if is_recurrent else [shown["decoder"], shown["cross"]]
    in_turn = shown["encoder"] + [w for layer in zip(*of_decoder, strict=True) for w in layer]
    for weights_BHTS, used_BHTS in zip(in_turn, used, strict=True):
        torch.testing.assert_close(weights_BHTS, used_BHTS, rtol=0, atol=1e-12)
        torch.testing.assert_close(weights_BHTS.sum(-1), torch.ones_like(weights_BHTS.sum(-1)))
    by_real = [weights_BHSS[1, :, :3] for weights_BHSS in shown["encoder"]]  # under a window, padding attends to itself
    assert all(weights[..., 3:].abs().max() == 0 for weights in by_real + [w_BHTS[1] for w_BHTS in shown["cross"]])


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def counted_by_hand(vocabulary: int, d_model: int, d_ff: int, n_layers: int) -> int:
    attention = 4 * (d_model * d_model + d_model)  # Q, K, V and the output projection, with biases
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    norm = 2 * d_model
    encoder = n_layers * (attention + feed_forward + 2 * norm)
    decoder = n_layers * (2 * attention + feed_forward + 3 * norm)
    return vocabulary * d_model + encoder + decoder


# Table 3 says 65 and 213 million. The layers of base have 44.1 million parameters, those of big 176.4: with one matrix
# of the vocabulary that leaves 40.7 thousand rows in base and 35.8 in big, so no single vocabulary gives both figures.
# The "about 37000 tokens" of section 5.1 make it 63.1 and 214.2.
@pytest.mark.parametrize(
    ("changes", "d_model", "d_ff", "millions"),
    [({}, 512, 2048, 63.1), ({"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3}, 1024, 4096, 214.2)],
    ids=["base", "big"],
)
def test_base_and_big_have_the_parameters_of_the_paper(
    changes: dict[str, Any], d_model: int, d_ff: int, millions: float
) -> None:
    with torch.device("meta"):
        count = parameters(sized(ModelConfig(**changes), 37_000, 37_000))
    assert count == counted_by_hand(37_000, d_model, d_ff, n_layers=6)
    assert round(count / 1e6, 1) == millions


# Each: what changes against d_model 16, 4 heads of 4, d_ff 32, 2 + 3 layers, and by how many parameters.
# There are 2 + 3 · 2 = 8 attentions, 5 feed-forward layers and 2 · 2 + 3 · 3 = 13 norms.
ATTENTIONS, FEED_FORWARDS, NORMS = 8, 5, 13
COUNTS: dict[str, tuple[dict[str, Any], int]] = {
    "d_k": ({"d_k": 3}, -ATTENTIONS * 2 * 4 * (16 + 1)),
    "d_v": ({"d_v": 5}, ATTENTIONS * (4 * (16 + 1) + 4 * 16)),
    "n_encoder_layers": ({"n_encoder_layers": 3}, 4 * 16 * 17 + 2 * 16 * 32 + 32 + 16 + 2 * 32),
    "n_decoder_layers": ({"n_decoder_layers": 2}, -(2 * 4 * 16 * 17 + 2 * 16 * 32 + 32 + 16 + 3 * 32)),
    "d_ff": ({"d_ff": 33}, FEED_FORWARDS * (16 + 1 + 16)),
    "n_heads": ({"n_heads": 2}, 0),
    "bias": ({"bias": False}, -ATTENTIONS * 4 * 16 - FEED_FORWARDS * (32 + 16)),
    "pre-LN": ({"norm": Norm.pre}, 2 * 2 * 16),  # the last norm of each stack
    "rms": ({"norm_kind": "rms"}, -NORMS * 16),  # scales, but does not shift
    "swiglu": ({"activation": Activation.swiglu}, FEED_FORWARDS * (16 * 32 + 32)),
    "gelu": ({"activation": Activation.gelu}, 0),
    "silu": ({"activation": Activation.silu}, 0),
    "concat": ({"positions": Positions.sinusoidal_concat}, 0),
    "learned": ({"positions": Positions.learned, "max_positions": 9}, 2 * 9 * 16),
    "rotary": ({"positions": Positions.rotary}, 0),
    "two matrices": ({"tie_embeddings": Tying.decoder}, 20 * 16),
    "three matrices": ({"tie_embeddings": Tying.none}, 2 * 20 * 16),
    "unscaled": ({"scale_embeddings": False}, 0),
    "window": ({"attention_window": 2}, 0),
    "SSRU": ({"decoder": Autoregression.ssru}, -3 * (4 * 16 * 17 - 16 * 16 - 16 * 17)),
    "own output": ({"tie_embeddings": Tying.source_target}, 20 * 16),
    "narrow": ({"d_embedding": 6}, -20 * 10 + 2 * 6 * 16),  # of the one matrix, in and out
    "narrow, two matrices": ({"d_embedding": 6, "tie_embeddings": Tying.decoder}, -20 * 16 + 2 * 20 * 6 + 3 * 6 * 16),
    "narrow, own output": ({"d_embedding": 6, "tie_embeddings": Tying.source_target}, 20 * 6 + 6 * 16),
    "narrow, three matrices": ({"d_embedding": 6, "tie_embeddings": Tying.none}, 2 * 20 * 6 + 2 * 6 * 16),
}


@each("changes, more", COUNTS.values())
def test_every_knob_changes_the_model_by_what_it_should(changes: dict[str, Any], more: int) -> None:
    paper, model, pair = toy_model(), toy_model(**changes), toy_pair()
    assert parameters(model) - parameters(paper) == more
    assert not torch.isclose(model(*pair), paper(*pair)).all()


ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.relu: lambda x: x * (x > 0),
    Activation.gelu: lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    Activation.silu: lambda x: x / (1 + torch.exp(-x)),
}


@each("activation", Activation)
def test_the_feed_forward_layer_is_its_formula(activation: Activation) -> None:
    layer = FeedForward(6, 10, activation=activation, dropout=0.0, bias=True).double()
    nn.init.normal_(layer.to_hidden.bias)
    x_BLD = torch.randn(2, 3, 6, dtype=torch.float64)
    hidden = x_BLD @ layer.to_hidden.weight.T + layer.to_hidden.bias
    if activation is Activation.swiglu:
        hidden = ACTIVATIONS[Activation.silu](hidden[..., :10]) * hidden[..., 10:]
    else:
        hidden = ACTIVATIONS[activation](hidden)
    torch.testing.assert_close(layer(x_BLD), hidden @ layer.to_out.weight.T)


@pytest.mark.parametrize(
    ("tying", "matrices"),
    [
        (Tying.three_way, {"source_embedding"}),
        (Tying.decoder, {"source_embedding", "own_target_embedding"}),
        (Tying.none, {"source_embedding", "own_target_embedding", "own_output"}),
    ],
)
def test_a_tied_matrix_is_stored_once(tying: Tying, matrices: set[str]) -> None:
    state = toy_model(tie_embeddings=tying).state_dict()
    assert {key.split(".")[0] for key, value in state.items() if VOCABULARY in value.shape} == matrices
    assert len({value.data_ptr() for value in state.values()}) == len(state)


def test_untied_vocabularies_may_differ() -> None:
    model = sized(ModelConfig(d_model=16, n_heads=4, d_ff=32, tie_embeddings=Tying.decoder), source=30, target=12)
    assert model(torch.tensor([[29, 2]]), torch.tensor([[1, 11, 4]])).shape == (1, 3, 12)


def test_three_way_tying_needs_one_vocabulary_and_says_which_key_makes_it() -> None:
    with pytest.raises(
        ConfigError, match=r"^model.tie_embeddings=three_way: needs data.tokenizer.joint=true, .*30 and 12"
    ):
        sized(ModelConfig(d_model=16, n_heads=4), source=30, target=12)


def test_an_unknown_model_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"^no model called `transfomer`; did you mean `transformer`\?"):
        sized(ModelConfig(name="transfomer"))


@each(
    "knob, places",
    [
        ("dropout", 2 + 2 * 2 + 3 * 3),  # on the embeddings of both stacks, and on each sub-layer's output
        ("activation_dropout", 2 + 3),
        ("attention_dropout", 0),  # which the attention kernel does itself
    ],
)
@each("norm", Norm)
def test_each_dropout_acts_in_training_and_not_in_use(knob: str, places: int, norm: Norm) -> None:
    model = toy_model(norm=norm, **({"dropout": 0.0} | {knob: 0.5}))
    without, pair = toy_model(norm=norm, dropout=0.0), toy_pair()
    torch.testing.assert_close(model(*pair), without(*pair), rtol=0, atol=0)
    used = []
    for module in model.modules():
        if isinstance(module, Dropout) and module.p:
            module.register_forward_hook(lambda module, args, output: used.append(output))
    model.train()
    assert not torch.isclose(model(*pair), without(*pair)).all()
    assert len(used) == places
    assert all(0.3 < (x == 0).float().mean() < 0.8 for x in used)  # a relu before it adds to the zeros
    torch.testing.assert_close(without.train()(*pair), without(*pair), rtol=0, atol=0)


def test_dropout_zeroes_its_share_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.ones(1000, 100, requires_grad=True)
    y = Dropout(0.3).train()(x)
    assert (y == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)  # 7 standard errors
    assert y[y != 0].unique().tolist() == pytest.approx([1 / 0.7], rel=2**-16)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())  # the gradient passes where the value passed


def test_dropout_is_repeated_by_its_seed() -> None:
    model, pair = toy_model(dropout=0.3, attention_dropout=0.1, activation_dropout=0.1).train(), toy_pair()
    torch.manual_seed(7)
    first_BTV = model(*pair)
    torch.manual_seed(7)
    torch.testing.assert_close(model(*pair), first_BTV, rtol=0, atol=0)


def test_gradients_are_finite_and_alive_24_layers_deep() -> None:
    model = toy_model(torch.float32, norm=Norm.pre, n_encoder_layers=24, n_decoder_layers=24).train()
    source_BS, target_BT = toy_pair()
    F.cross_entropy(model(source_BS, target_BT).flatten(0, 1), target_BT.flatten()).backward()
    norms = {name: float(parameter.grad.norm()) for name, parameter in model.named_parameters()}
    assert all(1e-6 < norm < 1e3 for name, norm in norms.items() if name.endswith("weight")), norms
    first, last = (norms[f"encoder.layers.{i}.feed_forward.to_out.weight"] for i in (0, 23))
    assert 1 / 30 < first / last < 30


def test_a_fresh_model_knows_nothing() -> None:
    """The first loss is near ln V, the loss of a guess among all V tokens."""
    torch.manual_seed(0)
    model = sized(ModelConfig(d_model=128, n_heads=4, d_ff=256), 1000, 1000).eval()
    source_BS, target_BT = torch.randint(4, 1000, (2, 8, 20))
    out_BT = torch.randint(4, 1000, (8, 20))
    loss = F.cross_entropy(model(source_BS, target_BT).flatten(0, 1), out_BT.flatten())
    assert loss.item() == pytest.approx(6.908 + 0.5, abs=0.2)  # logits of unit variance cost half a nat more
