"""Minimum Bayes risk: the same values as sacrebleu's, the same choice as trying every pair."""

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

from tests.toy.translator import random_model, replace_search, sentences, texts, toy_tokenizer, translator_of
from transformer_cli.config.compose import load_config
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.results import TranslateOptions
from transformer_cli.decoding.search import Hypothesis, SearchRequest, check_search
from transformer_cli.decoding.search.mbr import chrf_of_all, mean_chrf
from transformer_cli.errors import ConfigError
from transformer_cli.models.ensemble import Ensemble

IDS = toy_tokenizer()
MBR: dict[str, Any] = {"search": "mbr", "beam_size": 1, "n_samples": 8}
TEXT = st.text(alphabet="ab é\u3000ß.🙂", max_size=12) | st.sampled_from(["", " ", "a", "the cat", "the cat sat ."])


def by_sacrebleu(text: str, reference: str) -> float:
    return float(CHRF().sentence_score(text, [reference]).score)


def tried_out(samples: list[str]) -> list[float]:
    """The mean of each against the others, pair by pair."""
    rows = [[by_sacrebleu(one, other) for j, other in enumerate(samples) if j != i] for i, one in enumerate(samples)]
    return [math.fsum(row) / len(row) for row in rows]


@pytest.mark.parametrize("n_examples", [200, pytest.param(5000, marks=pytest.mark.nightly)])
def test_chrf_is_sacrebleus_to_the_last_bit(n_examples: int) -> None:
    @settings(max_examples=n_examples, deadline=None, database=None)
    @given(st.lists(TEXT, min_size=2, max_size=5))
    def check(samples: list[str]) -> None:
        found = chrf_of_all(samples)
        assert found.tolist() == [[by_sacrebleu(one, other) for other in samples] for one in samples]
        assert mean_chrf(samples) == tried_out(samples)

    check()


def test_so_it_is_on_real_sentences() -> None:
    lines = sentences(12, seed=1, longest=30) + ["Ein Mann fährt Rad.", "Ein Mann fährt mit dem Rad.", "Männer!"] * 2
    assert mean_chrf(lines) == tried_out(lines)
    assert len(set(mean_chrf(lines))) == 15, "equal texts have equal means, and others have not"


def test_two_by_hand() -> None:
    # "ab" and "abc": of single letters 2 match, of pairs 1, longer ones are only in one. "ab" for "abc": precision 1,
    # recall (2/3 + 1/2) / 2 = 7/12, F2 = 5 · 7/12 / (4 + 7/12) = 7/11. "abc" for "ab": F2 = 5 · 7/12 / (4 · 7/12 + 1).
    assert mean_chrf(["ab", "abc"]) == pytest.approx([100 * 7 / 11, 100 * 7 / 8])


def test_the_order_of_the_samples_moves_no_value() -> None:
    samples = sentences(20, seed=2) + sentences(5, seed=2)
    order = random.Random(3).sample(range(25), k=25)
    found = mean_chrf(samples)
    assert mean_chrf([samples[i] for i in order]) == [found[i] for i in order]


def test_the_choice_is_the_best_of_what_sampling_draws() -> None:
    model, lines = random_model(IDS, dtype=torch.float64), [*sentences(15, seed=4), ""]
    samples = translator_of(IDS, model=model, search="sample", beam_size=1, n_best=8, top_p=0.9).translate(lines)
    chosen = translator_of(IDS, model=model, n_best=8, top_p=0.9, **MBR).translate(lines)
    for drawn, found in zip(samples[:-1], chosen[:-1], strict=True):
        drawn_texts = [text for text, _ in drawn.hypotheses]
        values = tried_out(drawn_texts)
        order = sorted(range(8), key=lambda i: -values[i])  # of equals the first, as sampling ranks them
        order = [i for n, i in enumerate(order) if drawn_texts[i] not in [drawn_texts[j] for j in order[:n]]]
        assert [text for text, _ in found.hypotheses] == [drawn_texts[i] for i in order]
        assert [score for _, score in found.hypotheses] == [values[i] for i in order]
    assert chosen[-1].hypotheses == [("", 0.0)]
    assert texts(chosen) != texts(samples)
    assert texts(translator_of(IDS, model=model, top_p=0.9, **MBR).translate(lines)) == texts(chosen)


def test_D8_the_choice_depends_on_seed_and_line_and_on_no_batch() -> None:
    model, lines = random_model(IDS, dtype=torch.float64), sentences(12, seed=5)
    one = translator_of(IDS, model=model, **MBR).translate(lines)
    assert texts(translator_of(IDS, model=model, batch_tokens=1, **MBR).translate(lines)) == texts(one)
    assert texts(translator_of(IDS, model=model, seed=2, **MBR).translate(lines)) != texts(one)


def test_equal_samples_are_no_reason_to_draw_again() -> None:
    model = random_model(IDS, gain=4)  # which is sure of what it says, and so says it again
    translator, lines = translator_of(IDS, model=model, top_k=2, **MBR), sentences(12, seed=7)
    n_asked: list[int] = []

    def counting(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        n_asked.append(len(request.max_lengths_B))
        return search(request)

    search = replace_search(translator, counting)
    results = translator.translate(lines)
    assert sum(n_asked) == len(lines)
    drawn = translator_of(IDS, model=model, top_k=2, n_best=8, **MBR).translate(lines)
    assert len(results) == len(drawn)
    assert any(len(result.hypotheses) < 8 for result in drawn), "some came twice"


@pytest.mark.parametrize("n_best", [2, 5])
def test_no_text_stands_twice_among_the_best(n_best: int) -> None:
    model, lines = random_model(IDS, gain=4), sentences(12, seed=7)
    options: dict[str, Any] = {**MBR, "n_samples": 30, "top_k": 3}
    every = translator_of(IDS, model=model, n_best=30, **options).translate(lines)
    results = translator_of(IDS, model=model, n_best=n_best, **options).translate(lines)
    for result, all_of_it in zip(results, every, strict=True):
        drawn = {text for text, _ in all_of_it.hypotheses}
        assert len(drawn) == len(all_of_it.hypotheses)
        assert result.hypotheses == all_of_it.hypotheses[:n_best]
        scores = [score for _, score in all_of_it.hypotheses]
        assert scores == sorted(scores, reverse=True)
    assert any(n_best < len(all_of_it.hypotheses) < 30 for all_of_it in every)


def test_an_ensemble_may_choose_too() -> None:
    model = random_model(IDS, dtype=torch.float64)
    lines = sentences(5, seed=6)
    ensemble = translator_of(IDS, model=Ensemble([model, model]), **MBR)
    assert texts(ensemble.translate(lines)) == texts(translator_of(IDS, model=model, **MBR).translate(lines))


def test_every_sentence_of_a_long_line_is_chosen_for_itself() -> None:
    model = random_model(IDS, dtype=torch.float64)
    line = "the cat drank the milk. she sat down in her chair."
    translator = translator_of(IDS, model=model, max_source_length=12, **MBR)
    (found,) = translator.translate([line])
    assert found.split
    assert 0 <= found.hypotheses[0][1] <= 200, "the sum over both parts"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n_samples": 1}, r"decode\.n_samples=1: out of range"),
        ({"search": "greedy"}, r"decode\.n_samples=8: of minimum Bayes risk decoding, not decode\.search=greedy"),
        ({"search": "sample"}, r"decode\.n_samples=8: .*Choose decode=mbr, or leave it out"),
        ({"n_best": 9}, r"decode\.n_best=9: more than decode\.n_samples=8"),
        ({"beam_size": 4}, r"decode\.beam_size=4: needs decode\.search=beam, not mbr"),
    ],
    ids=["one sample", "greedy", "sampling", "too many best", "beam"],
)
def test_E4_settings_that_do_not_go_together_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_search(DecodeConfig(**{**MBR, **options}))


def test_a_second_try_with_a_beam_is_refused_because_its_scores_are_others() -> None:
    with pytest.raises(ConfigError, match=r"^on_issue=retry: .* Choose decode.search=beam, or leave out --on-issue$"):
        translator_of(IDS, options=TranslateOptions(retry=True), **MBR)


def test_it_is_a_choice_of_decode() -> None:
    config = load_config("translate", ["decode=mbr"]).decode
    assert (config.search, config.n_samples) == ("mbr", 32)
    assert load_config("evaluate", ["decode=mbr", "decode.n_samples=64"]).decode.n_samples == 64
