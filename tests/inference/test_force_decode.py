"""Force-decoding: the score that a search gave a translation is the one that the model gives it."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.support.each import each
from tests.toy.translator import GREEDY, SAMPLE, VARIANTS, random_model, sentences, toy_tokenizer
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import ModelConfig
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.search import SEARCHES, ControlIds, SearchRequest, rows_per_sentence
from transformer_cli.decoding.search.scores import length_penalty
from transformer_cli.errors import CheckpointError
from transformer_cli.inference import force_decode as forced
from transformer_cli.inference.force_decode import ForcedScores, IdPair, force_decode
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.models.transformer import Transformer

IDS = toy_tokenizer()
TOKENIZERS = Tokenizers(IDS, IDS)
CPU = torch.device("cpu")
KINDS = {"greedy": GREEDY, "beam": {"n_best": 4}, "sample": {**SAMPLE, "n_best": 3}}


def pairs_of(n: int, *, seed: int, longest: int = 12) -> list[IdPair]:
    sources = IDS.encode(sentences(n, seed=seed, longest=longest))
    return list(zip(sources, IDS.encode(sentences(n, seed=seed + 100, longest=longest)), strict=True))


def read(
    model: Transformer, pairs: Sequence[IdPair], *, batch_tokens: int = 400, with_attention: bool = False
) -> list[ForcedScores]:
    return force_decode(model, pairs, TOKENIZERS, device=CPU, batch_tokens=batch_tokens, with_attention=with_attention)


@each("config", VARIANTS.values())
@each("dtype, tolerance", [(torch.float32, 5e-5), (torch.float64, 1e-12)])
def test_each_token_has_the_log_softmax_of_a_plain_forward_pass(
    config: ModelConfig, dtype: torch.dtype, tolerance: float
) -> None:
    model, pairs = random_model(IDS, config=config, dtype=dtype), pairs_of(20, seed=1)
    for (source, target), found in zip(pairs, read(model, pairs), strict=True):
        with torch.no_grad():
            logits_TV = model(torch.tensor([[*source, IDS.eos_id]]), torch.tensor([[IDS.bos_id, *target]]))[0]
        every = logits_TV.double().log_softmax(dim=-1)
        expected = [float(every[t, i]) for t, i in enumerate([*target, IDS.eos_id])]
        assert found.log_probs == pytest.approx(expected, abs=tolerance)
        assert found.log_prob == pytest.approx(sum(expected), abs=10 * tolerance)
        assert found.attention_TS is None


@each("options", KINDS.values())
@each("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_force_decoding_gives_the_scores_of_the_search(
    options: dict[str, object], dtype: torch.dtype, tolerance: float
) -> None:
    model = random_model(IDS, dtype=dtype)
    sources = IDS.encode(sentences(30, seed=2))
    config = DecodeConfig(**{"max_extra_length": 6, **options})  # type: ignore[arg-type]
    source_BS = forced._padded([[*ids, IDS.eos_id] for ids in sources], IDS.pad_id)
    lengths_B = torch.tensor([len(ids) + 7 for ids in sources])
    decoder = TransformerDecoder(model)
    cache = decoder.start(source_BS, beam_size=rows_per_sentence(config), max_length=int(lengths_B.max()))
    control = ControlIds.of(IDS)
    request = SearchRequest(decoder.step, cache, control, lengths_B, config, [(1, b) for b in range(len(sources))])
    with torch.inference_mode():
        found = SEARCHES[config.search](request)
    rows = [(ids, hypothesis) for ids, in_line in zip(sources, found, strict=True) for hypothesis in in_line]
    ended = 0
    for (_, hypothesis), back in zip(rows, read(model, [(ids, h.ids) for ids, h in rows]), strict=True):
        log_probs = back.log_probs if hypothesis.finished else back.log_probs[:-1]
        score = math.fsum(log_probs) / length_penalty(len(log_probs), config.alpha)
        assert hypothesis.score == pytest.approx(score, abs=tolerance)
        ended += hypothesis.finished
    assert 0 < ended < len(rows), "both those that end and those that are cut"


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_D9_batch_composition_changes_no_number(dtype: torch.dtype, tolerance: float) -> None:
    model, pairs = random_model(IDS, dtype=dtype), pairs_of(30, seed=3)
    pairs += pairs_of(1, seed=9, longest=200)
    alone = [read(model, [pair], with_attention=True)[0] for pair in pairs]
    for batch_tokens in (1, 100, 1_000_000):
        for one, other in zip(alone, read(model, pairs, batch_tokens=batch_tokens, with_attention=True), strict=True):
            assert other.log_probs == pytest.approx(one.log_probs, abs=tolerance)
            assert one.attention_TS is not None
            assert other.attention_TS is not None
            assert torch.allclose(one.attention_TS, other.attention_TS, atol=tolerance, rtol=0)


def test_D7_pairs_in_another_order_give_numbers_in_that_order() -> None:
    model, pairs = random_model(IDS, dtype=torch.float64), pairs_of(30, seed=4)
    found = [back.log_prob for back in read(model, pairs)]
    assert len(set(found)) > 25
    order = random.Random(5).sample(range(30), k=30)
    shuffled = [back.log_prob for back in read(model, [pairs[i] for i in order])]
    assert shuffled == pytest.approx([found[i] for i in order], abs=1e-12)


def test_all_that_can_be_said_has_probability_one() -> None:
    """The probabilities of each next token and of the end, force-decoded one by one, add up to 1."""
    model = random_model(IDS, dtype=torch.float64)
    (source,), (target,) = IDS.encode(["the cat drank"]), IDS.encode(["the milk"])
    ends = read(model, [(source, target)])[0].log_probs[-1]
    longer = read(model, [(source, [*target, i]) for i in range(len(IDS)) if i != IDS.eos_id])
    total = math.exp(ends) + math.fsum(math.exp(back.log_probs[len(target)]) for back in longer)
    assert total == pytest.approx(1, abs=1e-12)


def test_an_empty_translation_is_scored_as_its_end_alone() -> None:
    model = random_model(IDS)
    (source,) = IDS.encode(["the cat"])
    nothing, of_nothing = read(model, [(source, []), ([], source)], with_attention=True)
    assert len(nothing.log_probs) == 1
    assert len(of_nothing.log_probs) == len(source) + 1
    assert nothing.attention_TS is not None
    assert nothing.attention_TS.shape == (1, len(source) + 1)
    assert of_nothing.attention_TS is not None
    assert of_nothing.attention_TS.flatten().tolist() == [1.0] * (len(source) + 1)
    assert read(model, []) == []


@pytest.mark.parametrize("n_decoder_layers", [1, 2, 3])
def test_attention_is_that_of_the_last_layer_but_one(n_decoder_layers: int) -> None:
    config = replace(VARIANTS["plain"], n_decoder_layers=n_decoder_layers)
    model, pairs = random_model(IDS, config=config), pairs_of(8, seed=6)
    for (source, target), back in zip(pairs, read(model, pairs, with_attention=True), strict=True):
        shown = model.attention_weights(torch.tensor([[*source, IDS.eos_id]]), torch.tensor([[IDS.bos_id, *target]]))
        assert back.attention_TS is not None
        assert back.attention_TS.shape == (len(target) + 1, len(source) + 1)
        expected_TS = shown["cross"][max(n_decoder_layers - 2, 0)][0].mean(dim=0)
        assert torch.allclose(back.attention_TS, expected_TS, atol=1e-6)
        assert torch.allclose(back.attention_TS.sum(dim=1), torch.ones(len(target) + 1))


def test_only_so_many_logits_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, pairs = random_model(IDS), pairs_of(20, seed=7)
    expected = read(model, pairs, batch_tokens=1000)
    rows: list[int] = []
    logits = model.output_embedding.logits

    def watched(y_KD: torch.Tensor) -> torch.Tensor:
        rows.append(len(y_KD))
        return logits(y_KD)

    monkeypatch.setattr(model.output_embedding, "logits", watched)
    monkeypatch.setattr(forced, "ROWS", 7)
    for one, other in zip(expected, read(model, pairs, batch_tokens=1000), strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-5)
    assert max(rows) == 7
    assert sum(rows) == sum(len(target) + 1 for _, target in pairs), "and none for padding"


def test_D8_batches_keep_to_their_size_and_lose_nothing() -> None:
    pairs = pairs_of(200, seed=8, longest=40)
    found = list(forced._batches(pairs, max_tokens=300))
    assert sorted(i for batch in found for i in batch) == list(range(200))
    for batch in found:
        assert len(batch) * max(max(map(len, pairs[i])) + 1 for i in batch) <= 300
    assert len(found) < 60
    assert [len(batch) for batch in forced._batches(pairs, max_tokens=1)] == [1] * 200


def test_a_model_whose_scores_are_not_numbers_is_refused() -> None:
    model = random_model(IDS)
    with torch.no_grad():
        model.target_embedding.weight.fill_(math.nan)
    with pytest.raises(CheckpointError, match=r"the model: its scores are not numbers .* use an earlier checkpoint"):
        read(model, pairs_of(2, seed=1))


def test_training_goes_on_in_training_mode() -> None:
    pairs = pairs_of(5, seed=1)
    model = random_model(IDS).train()
    assert read(model, pairs) == read(random_model(IDS), pairs)
    assert model.training


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_D22_a_gpu_force_decodes_as_a_cpu_does() -> None:
    model, pairs = random_model(IDS, dtype=torch.float64), pairs_of(30, seed=3)
    expected = read(model, pairs, with_attention=True)
    found = force_decode(
        model.cuda(), pairs, TOKENIZERS, device=torch.device("cuda"), batch_tokens=400, with_attention=True
    )
    for one, other in zip(expected, found, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-9)
        assert one.attention_TS is not None
        assert other.attention_TS is not None
        assert torch.allclose(one.attention_TS, other.attention_TS)
