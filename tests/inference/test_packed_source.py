"""Encoding without padding gives the keys and values of padded sentences.

Shapes: B batch, S source, H heads, E head width.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.test_transformer import PAD, VARIANTS, toy_model
from tests.support.each import each
from transformer_cli.inference import packed_source
from transformer_cli.inference.incremental import TransformerDecoder, incremental_decoder
from transformer_cli.inference.packed_source import project_packed_memory
from transformer_cli.models.ensemble import Ensemble

LENGTHS = [3, 16, 4, 16, 7, 1, 4, 11]


def padded(lengths: list[int], seed: int = 1) -> Tensor:
    """Sentences of these lengths, [B, S]; of 0 tokens: of padding alone."""
    source_BS = torch.full((len(lengths), max(lengths)), PAD)
    generator = torch.Generator().manual_seed(seed)
    for row_S, length in zip(source_BS, lengths, strict=True):
        row_S[:length] = torch.randint(4, 15, (length,), generator=generator)
    return source_BS


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
@each("most", [1024, 20])  # tokens of a part: all in one, or each long sentence in its own
def test_packed_sentences_have_the_memory_of_padded_ones(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], most: int
) -> None:
    monkeypatch.setattr(packed_source, "_MOST_TOKENS", most)
    model, source_BS = toy_model(**changes), padded(LENGTHS)
    with torch.no_grad():
        found = project_packed_memory(model, source_BS)
        expected = model.decoder.project_memory(model.encode(source_BS, model.source_layout(source_BS)))
    assert found is not None
    for both, both_padded in zip(found, expected, strict=True):
        for x_BSHE, padded_BSHE in zip(both, both_padded, strict=True):
            is_real_BS11 = (source_BS != PAD)[:, :, None, None]
            torch.testing.assert_close(x_BSHE, padded_BSHE * is_real_BS11, rtol=0, atol=1e-10)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
@each("is_ensemble", [False, True])
def test_a_search_on_packed_sentences_takes_the_steps_of_one_on_padded_ones(
    changes: dict[str, Any], is_ensemble: bool
) -> None:
    model, source_BS = toy_model(**changes), padded([*LENGTHS, 0])  # the last one fills the batch
    model = Ensemble([model, toy_model(**changes)]) if is_ensemble else model
    decoders = [incremental_decoder(model, packs_source=packs) for packs in (True, False)]
    caches = [one.start(source_BS, beam_size=2, max_length=4) for one in decoders]
    for token in (1, 7, 9):
        ids_R = torch.full((2 * len(source_BS),), token)
        packed, plain = (one.step(ids_R, cache) for one, cache in zip(decoders, caches, strict=True))
        n_live = 2 * len(LENGTHS) * len(plain) // len(ids_R)
        torch.testing.assert_close(packed[:n_live], plain[:n_live], rtol=0, atol=1e-10)
        assert packed.isfinite().all()


@each(
    "lengths",
    {"no padding": [9] * 40, "one sentence": [30], "little padding, many lengths": list(range(20, 28))}.values(),
)
def test_what_has_little_padding_is_encoded_as_it_is(lengths: list[int]) -> None:
    assert project_packed_memory(toy_model(), padded(lengths)) is None


def test_padding_between_tokens_keeps_its_place() -> None:
    source_BS = padded(LENGTHS)
    source_BS[1, 5] = PAD
    assert project_packed_memory(toy_model(), source_BS) is None


def test_products_have_few_different_numbers_of_rows() -> None:
    """oneDNN compiles a kernel for each, and keeps it."""
    model, rows = toy_model(), set()
    layer = model.encoder.layers[0].feed_forward.to_hidden
    layer.register_forward_hook(lambda _, given, __: rows.add(len(given[0])))
    decoder = TransformerDecoder(model, packs_source=True)
    for n in range(10, 200, 7):
        decoder.start(padded([n, n // 3, *[3] * n], seed=n), beam_size=1, max_length=1)
    assert rows <= set(range(64, 1025, 64))
