"""Attention maps: the weights are those that the model used; merging, shortening, word links and JSON of them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.addons.attention_maps.toy_attention_maps import toy_maps, words
from tests.support.each import each
from tests.toy.translator import PLAIN, VARIANTS, random_model, sentences, toy_tokenizer
from transformer_cli.addons.attention_maps.keys import AttentionKind
from transformer_cli.addons.attention_maps.maps import (
    AttentionMaps,
    compute_attention_maps,
    find_word,
    merge_subwords,
    readable_labels,
    shorten,
    strongest_heads,
    strongest_links,
    to_json,
    view,
)
from transformer_cli.config.model import Autoregression, ModelConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.errors import CheckpointError
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.inference.prepack import prepack
from transformer_cli.models.attention import Attention, CrossAttention, SelfAttention
from transformer_cli.models.transformer import Transformer

KINDS = list(AttentionKind)
PAIRS = list(zip(sentences(4, seed=11), sentences(4, seed=12), strict=True))


def ids_of(pair: tuple[str, str]) -> tuple[list[int], list[int]]:
    source, target = toy_tokenizer().encode(pair)
    return source, target


def maps_of(model: Transformer, pair: tuple[str, str] = PAIRS[0], **options: Any) -> AttentionMaps:
    ids = toy_tokenizer()
    return compute_attention_maps(model, Tokenizers(ids, ids), *ids_of(pair), name="toy", **options)


def inputs_of(model: Transformer, pair: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Inputs of the model: one source and one target, as a batch."""
    ids, (source, target) = toy_tokenizer(), ids_of(pair)
    return torch.tensor([[*source, ids.eos_id]]), torch.tensor([[ids.bos_id, *target]])


def random_maps(
    source: list[str], read: list[str], written: list[str], *, layers: int = 2, heads: int = 3
) -> AttentionMaps:
    torch.manual_seed(5)
    n, m = len(source), len(read)
    causal = torch.zeros(m, m).masked_fill(torch.ones(m, m, dtype=torch.bool).triu(1), -torch.inf)
    return AttentionMaps(
        source,
        read,
        written,
        torch.randn(layers, heads, n, n).softmax(-1),
        (torch.randn(layers, heads, m, m) + causal).softmax(-1),
        torch.randn(layers, heads, m, n).softmax(-1),
        "the source",
        "the translation",
        "toy",
        [],
    )


# ---- What the model really used


@each("config", VARIANTS.values())
def test_each_row_sums_to_one_and_decoder_rows_are_causal(config: ModelConfig) -> None:
    model = random_model(toy_tokenizer(), config=config)
    for pair in PAIRS:
        maps = maps_of(model, pair)
        n, m = len(maps.source), len(maps.read)
        for kind, n_layers, shape in (
            (AttentionKind.encoder, config.n_encoder_layers, (n, n)),
            (AttentionKind.decoder, config.n_decoder_layers, (m, m)),
            (AttentionKind.cross, config.n_decoder_layers, (m, n)),
        ):
            weights = view(maps, kind).weights_YHRC
            if kind is AttentionKind.decoder and config.decoder is Autoregression.ssru:
                n_layers = 0
            assert weights.shape == (n_layers, config.n_heads, *shape)
            assert weights.dtype is torch.float32
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]), rtol=0, atol=1e-6)
        assert not maps.decoder_YHTT.triu(1).any()


def recomputed(attention: Attention, weights_HRC: Tensor, values_CHE: Tensor) -> Tensor:
    """Equation 1 of the paper and what follows it, from the weights: softmax(…) V, the heads side by side, Wᴼ."""
    y_RHE = torch.einsum("hrc,che->rhe", weights_HRC, values_CHE)
    return attention.to_out(y_RHE.flatten(1))


def values_of(attention: Attention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The values of a sentence, as the attention finds them in what its `forward` is called with."""
    if isinstance(attention, CrossAttention):
        return attention.project_memory(args[2])[1][0]
    assert isinstance(attention, SelfAttention)
    return attention.project(args[0], kwargs.get("rotation"))[2][0]


def kind_of(path: str, attention: Attention) -> AttentionKind:
    return AttentionKind.cross if isinstance(attention, CrossAttention) else AttentionKind[path.split(".")[0]]


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
@torch.no_grad()
def test_layer_outputs_recomputed_from_the_weights_equal_the_fast_path(config: ModelConfig) -> None:
    model = random_model(toy_tokenizer(), config=config, gain=1.5)
    outputs: list[tuple[AttentionKind, Tensor, Tensor]] = []
    layers = dict.fromkeys(KINDS, 0)

    def compare(path: str, maps: AttentionMaps) -> Any:
        def hook(attention: Attention, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
            kind = kind_of(path, attention)
            weights_HRC = view(maps, kind).weights_YHRC[layers[kind]]
            layers[kind] += 1
            outputs.append((kind, recomputed(attention, weights_HRC, values_of(attention, args, kwargs)), output[0]))

        return hook

    for pair in PAIRS:
        maps, hooks = maps_of(model, pair), []
        layers = dict.fromkeys(KINDS, 0)
        for path, module in model.named_modules():
            if isinstance(module, SelfAttention | CrossAttention):
                hooks.append(module.register_forward_hook(compare(path, maps), with_kwargs=True))
        model(*inputs_of(model, pair))
        for hook in hooks:
            hook.remove()
    attentions = [module for module in model.modules() if isinstance(module, SelfAttention | CrossAttention)]
    assert len(outputs) == len(PAIRS) * len(attentions)
    for kind, ours, fast in outputs:
        torch.testing.assert_close(ours, fast, rtol=0, atol=1e-5, msg=lambda text, kind=kind: f"{kind.name}: {text}")
        assert fast.abs().max() > 0.01  # or the comparison would show little


@contextmanager
def recorded_steps() -> Iterator[dict[AttentionKind, list[tuple[int, Tensor]]]]:
    """Outputs of the decoder's attention layers at each step of a search, with their layers."""
    found: dict[AttentionKind, list[tuple[int, Tensor]]] = {kind: [] for kind in KINDS}
    self_step, cross_step = SelfAttention.step, CrossAttention.step

    def of_self(self: SelfAttention, x: Tensor, layer: int, *rest: Any) -> Tensor:
        found[AttentionKind.decoder].append((layer, self_step(self, x, layer, *rest)))
        return found[AttentionKind.decoder][-1][1]

    def of_cross(self: CrossAttention, x: Tensor, layer: int, *rest: Any) -> Tensor:
        found[AttentionKind.cross].append((layer, cross_step(self, x, layer, *rest)))
        return found[AttentionKind.cross][-1][1]

    with mock.patch.object(SelfAttention, "step", of_self), mock.patch.object(CrossAttention, "step", of_cross):
        yield found


@pytest.mark.parametrize("packs", [False, True], ids=["plain", "prepacked"])
@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
@torch.no_grad()
def test_a_search_step_by_step_used_the_same_weights(config: ModelConfig, packs: bool) -> None:
    model = random_model(toy_tokenizer(), config=config, gain=1.5)
    maps = maps_of(model)
    source, target_in = inputs_of(model, PAIRS[0])
    values: dict[tuple[AttentionKind, int], tuple[Attention, Tensor]] = {}
    hooks = []
    for path, module in model.named_modules():
        if isinstance(module, SelfAttention | CrossAttention) and path.startswith("decoder"):

            def keep(attention: Attention, args: Any, kwargs: Any, output: Tensor, path: str = path) -> None:
                place = kind_of(path, attention), int(path.split(".")[2])
                values[place] = attention, values_of(attention, args, kwargs)

            hooks.append(module.register_forward_hook(keep, with_kwargs=True))
    model(source, target_in)
    for hook in hooks:
        hook.remove()
    decoder = TransformerDecoder(prepack(model) if packs else model)
    with recorded_steps() as found:
        cache = decoder.start(source, beam_size=1, max_length=target_in.size(1))
        for token in target_in[0]:
            decoder.step(token[None], cache)
    for kind in (AttentionKind.decoder, AttentionKind.cross):
        weights = view(maps, kind).weights_YHRC
        for layer in range(len(weights)):
            attention, its_values = values[kind, layer]
            stepped = torch.cat([output for its_layer, output in found[kind] if its_layer == layer])
            ours = recomputed(attention, weights[layer], its_values)
            torch.testing.assert_close(ours, stepped, rtol=0, atol=1e-5)


@each("config", VARIANTS.values())
def test_weights_do_not_depend_on_the_batch(config: ModelConfig) -> None:
    model, ids = random_model(toy_tokenizer(), config=config, gain=1.5), toy_tokenizer()
    sources, targets = zip(*(inputs_of(model, pair) for pair in PAIRS), strict=True)
    padded = [
        torch.nn.utils.rnn.pad_sequence([row[0] for row in rows], batch_first=True, padding_value=ids.pad_id)
        for rows in (sources, targets)
    ]
    together = model.attention_weights(*padded)
    for b, pair in enumerate(PAIRS):
        maps = maps_of(model, pair)
        for kind in KINDS:
            alone = view(maps, kind).weights_YHRC
            if not len(alone):
                assert not together[kind.name]
                continue
            beside = torch.stack([layer[b] for layer in together[kind.name]])[:, :, : alone.size(2)]
            torch.testing.assert_close(beside[..., : alone.size(3)], alone, rtol=0, atol=1e-6)
            assert not beside[..., alone.size(3) :].any()  # nothing attends to padding


def test_labels_are_the_input_and_the_predicted_token_of_each_position() -> None:
    model = random_model(toy_tokenizer())
    pieces = toy_tokenizer().pieces(ids_of(PAIRS[0])[1])
    maps = maps_of(model)
    assert maps.source == [*toy_tokenizer().pieces(ids_of(PAIRS[0])[0]), "</s>"]
    assert (maps.read, maps.written) == (["<s>", *pieces], [*pieces, "</s>"])
    assert (maps.source_text, maps.translation, maps.model, maps.notes) == (*PAIRS[0], "toy", [])
    stopped = maps_of(model, finished=False)
    assert (stopped.read, stopped.written) == (["<s>", *pieces[:-1]], pieces)
    torch.testing.assert_close(stopped.cross_YHTS, maps.cross_YHTS[:, :, :-1], rtol=0, atol=1e-6)


def test_a_model_that_diverged_is_refused() -> None:
    model = random_model(toy_tokenizer())
    with torch.no_grad():
        model.encoder.layers[1].self_attention.to_qkv.weight.fill_(float("nan"))
    with pytest.raises(CheckpointError, match=r"its attention weights are not numbers .* use an earlier checkpoint"):
        maps_of(model)


# ---- Words, and long sentences


def test_merged_words_take_the_sum_over_keys_and_the_mean_over_queries() -> None:
    maps = random_maps(["▁un", "seen", "▁it", ".", "</s>"], ["<s>", "▁e", "lle"], ["▁e", "lle", "</s>"])
    words = merge_subwords(maps)
    assert (words.source, words.read, words.written) == (
        ["▁unseen", "▁it.", "</s>"],
        ["<s>", "▁elle"],
        ["▁elle", "</s>"],
    )
    assert words.notes == ["subwords merged into words"]
    w = maps.encoder_YHSS
    expected = (w[:, :, 0, 2] + w[:, :, 0, 3] + w[:, :, 1, 2] + w[:, :, 1, 3]) / 2
    torch.testing.assert_close(words.encoder_YHSS[:, :, 0, 1], expected)
    w = maps.cross_YHTS
    expected = (w[:, :, 0, 0] + w[:, :, 0, 1] + w[:, :, 1, 0] + w[:, :, 1, 1]) / 2
    torch.testing.assert_close(words.cross_YHTS[:, :, 0, 0], expected)
    torch.testing.assert_close(words.decoder_YHTT[:, :, 1, 0], maps.decoder_YHTT[:, :, 1:, 0].mean(2))


def test_byte_fallback_tokens_are_decoded_in_merged_words() -> None:
    maps = random_maps(["▁caf", "<0xC3>", "<0xA9>", "s", "</s>"], ["<s>"], ["</s>"])
    assert merge_subwords(maps).source == ["▁cafés", "</s>"]


LABELS = st.lists(st.sampled_from(["▁a", "b", "▁", ",", "▁cd", "é"]), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(LABELS, LABELS, st.integers(3, 12), st.booleans())
def test_rows_still_sum_to_one_after_merging_and_shortening(
    source: list[str], target: list[str], max_tokens: int, finished: bool
) -> None:
    written = [*target, "</s>"] if finished else target
    maps = random_maps([*source, "</s>"], ["<s>", *written[:-1]], written)
    for reduced in (merge_subwords(maps), shorten(maps, max_tokens), shorten(merge_subwords(maps), max_tokens)):
        for kind in KINDS:
            selected = view(reduced, kind)
            assert selected.weights_YHRC.shape[2:] == (len(selected.rows), len(selected.columns))
            torch.testing.assert_close(
                selected.weights_YHRC.sum(-1), torch.ones(2, 3, len(selected.rows)), rtol=0, atol=2e-6
            )
        assert not reduced.decoder_YHTT.triu(1).any()
    assert max(len(side) for side in (reduced.source, reduced.read, reduced.written)) <= max_tokens
    assert "".join(merge_subwords(maps).source) == "".join(maps.source)


def test_the_middle_of_a_long_sentence_becomes_one_group() -> None:
    source, target = [f"▁s{i}" for i in range(500)], [f"▁t{i}" for i in range(69)]
    maps = random_maps([*source, "</s>"], ["<s>", *target], [*target, "</s>"], layers=1, heads=1)
    short = shorten(maps)
    assert short.source == [*source[:58], "▁…", "</s>"]
    assert short.read == ["<s>", *target[:57], "▁…", "▁t68"]
    assert short.written == [*target[:58], "▁…", "</s>"]
    assert short.notes == [
        "of 501 source tokens the first 58 and the last are shown, the others as one: …;"
        " of 70 target tokens the first 58 and the last are shown, the others as one: …"
    ]
    w = maps.cross_YHTS
    torch.testing.assert_close(short.cross_YHTS[:, :, :58, :58], w[:, :, :58, :58])
    torch.testing.assert_close(short.cross_YHTS[:, :, 0, 58], w[:, :, 0, 58:500].sum(-1))
    torch.testing.assert_close(short.cross_YHTS[:, :, 58, 59], w[:, :, 58:69, 500].mean(-1))


def test_the_omitted_group_has_its_own_label_also_without_word_boundaries() -> None:
    maps = random_maps(["▁"] + ["字"] * 99 + ["</s>"], ["<s>"], ["</s>"], layers=1, heads=1)
    assert shorten(maps).source == ["▁"] + ["字"] * 57 + ["▁…", "</s>"]


def test_a_sentence_that_fits_is_unchanged() -> None:
    maps = random_maps(["▁a"] * 59 + ["</s>"], ["<s>"] * 60, ["▁b"] * 60)
    assert shorten(maps) is maps


# ---- The head that links two words


def test_only_whole_words_are_found() -> None:
    labels = ["▁It", "▁s", "it", "s", ",", "▁it", ".", "▁l", "'", "it", "▁un", "it", "</s>"]
    assert find_word(labels, "it") == [range(0, 1), range(5, 6), range(9, 10)]
    assert find_word(labels, "SITS") == [range(1, 4)]
    assert find_word(labels, "unit") == [range(10, 12)]
    assert find_word(labels, "s") == []  # neither of a word, nor of </s>
    assert find_word(labels, ".") == [range(6, 7)]


def test_the_head_with_the_largest_weight_between_two_words_is_found() -> None:
    maps = random_maps(
        ["▁a", "▁ch", "air", ",", "▁it", "</s>"], ["<s>", "▁chaise", "▁elle"], ["▁chaise", "▁elle", "</s>"]
    )
    maps.encoder_YHSS[:] = torch.tensor([0.3, 0.1, 0.1, 0.2, 0.2, 0.1])
    maps.encoder_YHSS[1, 2, 4] = torch.tensor([0.0, 0.5, 0.4, 0.1, 0.0, 0.0])
    (link,) = strongest_links(maps, "it", "chair")
    assert (link.kind, link.layer, link.head, link.n_heads) == (AttentionKind.encoder, 2, 3, 6)
    assert (link.weight, link.uniform) == pytest.approx((0.9, 2 / 6))
    assert str(link) == (
        "encoder layer 2 head 3: 0.900 of its attention, 2.7 times an even spread (0.333); the most of 6 heads"
    )
    (back,) = strongest_links(maps, "chair", "it")
    assert back.weight == pytest.approx(0.2)

    maps.decoder_YHTT[0, 1, 2] = torch.tensor([0.05, 0.95, 0.0])
    maps.cross_YHTS[:] = 1 / 6
    maps.cross_YHTS[1, 0, 1] = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 0.0])
    (own,) = strongest_links(maps, "elle", "chaise")
    assert (own.kind, own.layer, own.head) == (AttentionKind.decoder, 1, 2)
    assert (own.weight, own.uniform) == pytest.approx((0.95, 1 / 3))  # of three unmasked columns
    (across,) = strongest_links(maps, "elle", "it")
    assert (across.kind, across.layer, across.head, across.weight) == (AttentionKind.cross, 2, 1, 1.0)

    assert strongest_links(maps, "chaise", "elle") == []  # which comes later
    assert strongest_links(maps, "it", "elle") == []  # the source does not attend to its translation
    assert strongest_links(maps, "it", "table") == []


def test_a_word_in_both_languages_is_found_in_each_kind() -> None:
    maps = random_maps(["▁Paris", "▁est", "</s>"], ["<s>", "▁est", "▁Paris"], ["▁est", "▁Paris", "</s>"])
    links = strongest_links(maps, "Paris", "est")
    assert sorted(link.kind.name for link in links) == ["cross", "decoder", "encoder"]
    assert [link.weight for link in links] == sorted((link.weight for link in links), reverse=True)
    for link in links:
        selected = view(maps, link.kind)
        row, column = find_word(selected.rows, "Paris")[0][0], find_word(selected.columns, "est")[0][0]
        assert link.weight == pytest.approx(float(selected.weights_YHRC[:, :, row, column].max()))
        assert link.weight == pytest.approx(float(selected.weights_YHRC[link.layer - 1, link.head - 1, row, column]))


# ---- Labels and JSON


def test_labels_are_readable() -> None:
    assert readable_labels(["▁un", "seen", ",", "▁l", "'", "eau", "▁", "x", "</s>"]) == (
        ["un", "·seen", ",", "l", "'", "eau", "▁", "x", "</s>"]
    )


def test_json_holds_every_weight_to_the_last_bit() -> None:
    for config in (PLAIN, VARIANTS["odd"]):
        maps = maps_of(random_model(toy_tokenizer(), config=config), notes=['a "note"'])
        text = "".join(to_json(maps))
        held = json.loads(text)
        assert list(held) == [
            *("model", "source_text", "translation", "notes", "source", "read", "written"),
            *("encoder", "decoder", "cross"),
        ]
        assert all(held[key] == getattr(maps, key) for key in list(held)[:7])
        for kind in KINDS:
            selected, entry = view(maps, kind), held[kind.name]
            assert (held[entry["rows"]], held[entry["columns"]]) == (selected.rows, selected.columns)
            weights = np.array(entry["weights"]).astype(np.float32)
            assert np.array_equal(weights, selected.weights_YHRC.numpy())
        as_written = json.loads(text, parse_float=str)
        numbers = np.concatenate([np.array(as_written[kind.name]["weights"]).flatten() for kind in KINDS])
        assert len(numbers) == sum(view(maps, kind).weights_YHRC.numel() for kind in KINDS)
        assert max(map(len, numbers.tolist())) <= len("1.23456789e-10")  # the digits of a float32, not of a double


@each("kind", KINDS)
def test_the_strongest_heads_give_words_the_most_of_other_words(kind: AttentionKind) -> None:
    """Found once more, weight by weight."""
    source, written = ["▁She", "▁sat", ".", "</s>"], ["▁El", "le", "▁s", "'", "est", ".", "</s>"]
    shown = view(toy_maps(source, written, n_layers=3, n_heads=4, seed=5), kind)

    def strength(layer: int, head: int) -> float:
        sum_of_rows = 0.0
        for row, asks in enumerate(shown.rows):
            weights = [0.0]
            for column, answers in enumerate(shown.columns):
                is_near = kind is not AttentionKind.cross and abs(row - column) <= 1
                if not is_near and not {asks, answers} & {".", "'", "<s>", "</s>"}:
                    weights.append(float(shown.weights_YHRC[layer, head, row, column]))
            sum_of_rows += max(weights)
        return sum_of_rows

    layer, heads = strongest_heads(shown, is_self=kind is not AttentionKind.cross)
    strengths = [[strength(y, head) for head in range(4)] for y in range(3)]
    assert max(map(max, strengths)) == max(strengths[layer])
    for found, of_heads in zip(heads, strengths, strict=True):
        first, second = sorted(range(4), key=lambda head: -of_heads[head])[:2]
        assert found == sorted({first, second} if of_heads[second] >= of_heads[first] / 2 else {first})


def test_without_layers_no_head_is_the_strongest() -> None:
    empty = view(replace(toy_maps(words(4), words(5)), decoder_YHTT=torch.empty(0, 4, 5, 5)), AttentionKind.decoder)
    assert strongest_heads(empty, is_self=True) == (0, [])
