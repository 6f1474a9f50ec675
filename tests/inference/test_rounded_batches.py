"""A search whose batches have rounded sizes finds what one finds whose batches shrink by every sentence.

Shapes: R rows.
"""

from typing import Any

import pytest
from torch import Tensor

from tests.support.each import each
from tests.toy.translator import engine_of, random_model, sentences, texts, toy_tokenizer, translator_of
from transformer_cli.decoding.search import rows_per_sentence
from transformer_cli.inference.incremental import EnsembleDecoder, TransformerDecoder
from transformer_cli.inference.rounded_batches import RoundedDecoder, rounded_size
from transformer_cli.models.ensemble import Ensemble


@each("beam_size", [1, 4, 5, 40])
def test_batches_have_few_sizes_and_few_fillers(beam_size: int) -> None:
    sizes = [rounded_size(n, beam_size) for n in range(1, 400)]
    most, few = max(1, 32 // beam_size), 32 // beam_size
    assert all(n <= size < n + most and size <= 1.5 * n for n, size in enumerate(sizes, start=1))
    assert sizes[:few] == list(range(1, few + 1))  # a few rows are multiplied by another library
    assert sizes == sorted(sizes)
    assert len(set(sizes)) <= few + 8 + 400 // most


@each(
    "settings",
    [
        {"search": "greedy", "beam_size": 1},
        {"beam_size": 4},
        {"beam_size": 4, "coverage_penalty": 0.2},
        {"beam_size": 6, "n_best": 2, "diversity_groups": 3, "diversity_strength": 0.5},
        {"beam_size": 20},  # each hypothesis has keys of its own
        {"search": "sample", "beam_size": 1, "n_best": 3},
    ],
)
@each("n_members", [1, 2])
def test_rounded_batches_find_the_same(
    settings: dict[str, Any], n_members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, lines = toy_tokenizer(), sentences(70, seed=3)
    members = [random_model(tokenizer, seed=seed) for seed in range(n_members)]
    model = members[0] if n_members == 1 else Ensemble(members)
    rounded, plain = (translator_of(tokenizer, model=model, batch_tokens=4096, **settings) for _ in range(2))
    engine = engine_of(plain)
    assert isinstance(engine.decoder, RoundedDecoder)
    engine.decoder = engine.decoder.decoder
    assert isinstance(engine.decoder, TransformerDecoder | EnsembleDecoder)
    counted, n_rows = list[int](), rows_per_sentence(rounded.config)
    step = TransformerDecoder._step

    def counting(self: TransformerDecoder, ids_R: Tensor, *rest: Any) -> Tensor:
        counted.append(len(ids_R) // n_rows)
        return step(self, ids_R, *rest)

    monkeypatch.setattr(TransformerDecoder, "_step", counting)
    found = rounded.translate(lines)
    sizes = set(counted)
    assert max(sizes) > 32 // n_rows
    assert sizes <= {rounded_size(n, n_rows) for n in range(1, len(lines) + 1)}
    counted.clear()
    expected = plain.translate(lines)
    assert len(sizes) < len(set(counted)) or n_rows > 16  # of which two are more than 32 rows
    assert texts(found) == texts(expected)
    scores = [[one.score for line in result for one in line.candidates] for result in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
