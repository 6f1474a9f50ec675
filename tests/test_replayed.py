"""Steps that were recorded find what steps do that are taken anew, for any search, model and company."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tests.toy_translator import GREEDY, PLAIN, SAMPLE, VARIANTS, random_model, sentences, toy_tokenizer, translator_of
from transformer_cli.config.model import Positions
from transformer_cli.decoding.translator import Translated, Translator
from transformer_cli.inference.cuda_graphs import SHAPES_KEPT, Replayed, Step, can_replay, on_cuda, quartered
from transformer_cli.inference.kv_cache import MAX_BEAM_GROUP
from transformer_cli.models.ensemble import AnyModel, Ensemble

BEAM: dict[str, Any] = {"beam_size": 4, "n_best": 3}
CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Recorder:
    """Records as a GPU does: the kernels with the tensors that they were started on, and no line of Python."""

    def __init__(self) -> None:
        self.n_recorded = self.n_replayed = 0

    def __call__(self, step: Step) -> Step:
        self.n_recorded += 1
        kernels = make_fx(step)()

        def replay() -> Tensor:
            self.n_replayed += 1
            logits_RV: Tensor = kernels()
            return logits_RV

        return replay


def replaying(model: AnyModel, **options: Any) -> tuple[Translator, Recorder]:
    translator, recorder = translator_of(toy_tokenizer(), model=model, **options), Recorder()
    translator.decoder = Replayed(translator.model, source_pad_id=toy_tokenizer().pad_id, record=recorder)
    return translator, recorder


def numbers(results: list[Translated]) -> list[list[tuple[str, float]]]:
    return [[(text, round(score, 9)) for text, score in result.hypotheses] for result in results]


SEARCHES = {
    "greedy": GREEDY,
    "beam": BEAM,
    "beams without a family": {"beam_size": MAX_BEAM_GROUP + 1},
    "sample": SAMPLE,
    "coverage": {**BEAM, "coverage_penalty": 0.4},
    "groups": {"beam_size": 4, "diversity_groups": 2},
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_replayed_steps_find_the_same(search: dict[str, Any]) -> None:
    lines = [*sentences(21, seed=3), "a b"]
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    expected = translator_of(toy_tokenizer(), model=model, **search).translate(lines)
    translator, recorder = replaying(model, **search)
    found = translator.translate(lines)
    assert numbers(found) == numbers(expected)
    assert recorder.n_replayed > 2 * recorder.n_recorded


@pytest.mark.parametrize("variant", [name for name, config in VARIANTS.items() if config.positions.name != "learned"])
def test_replayed_steps_find_the_same_for_every_kind_of_model(variant: str) -> None:
    lines = sentences(9, seed=4)
    model = random_model(toy_tokenizer(), config=VARIANTS[variant], dtype=torch.float64)
    expected = translator_of(toy_tokenizer(), model=model, **BEAM).translate(lines)
    assert numbers(replaying(model, **BEAM)[0].translate(lines)) == numbers(expected)


def test_the_members_of_an_ensemble_are_replayed_together() -> None:
    lines = sentences(9, seed=5)
    members = [
        random_model(toy_tokenizer(), config=VARIANTS[name], dtype=torch.float64, seed=seed)
        for seed, name in enumerate(("plain", "odd"))
    ]
    search = {**BEAM, "coverage_penalty": 0.2}
    expected = translator_of(toy_tokenizer(), model=Ensemble(members), **search).translate(lines)
    assert numbers(replaying(Ensemble(members), **search)[0].translate(lines)) == numbers(expected)


@pytest.mark.parametrize("search", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_what_was_recorded_serves_other_sentences(search: dict[str, Any]) -> None:
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    translator, recorder = replaying(model, batch_tokens=160, max_extra_length=24, **search)
    fresh = translator_of(toy_tokenizer(), model=model, max_extra_length=24, **search)
    batches = [sentences(n, seed=n) for n in (13, 5, 14, 1)]
    for lines in batches:
        assert numbers(translator.translate(lines)) == numbers(fresh.translate(lines))
    n_recorded = recorder.n_recorded
    for lines in batches:
        assert numbers(translator.translate(lines)) == numbers(fresh.translate(lines))
    assert recorder.n_recorded == n_recorded


def test_a_search_moves_to_smaller_shapes_as_sentences_end() -> None:
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    translator, _ = replaying(model, **BEAM)
    translator.translate(sentences(16, seed=6))
    sizes = {shape.n_sentences for shape in translator.decoder.stages}
    assert {16, 8} <= sizes <= {16, 8, 4, 2, 1}


def test_only_the_latest_shapes_are_kept() -> None:
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    replayed = Replayed(model, source_pad_id=toy_tokenizer().pad_id, record=lambda step: step)
    for length in range(1, SHAPES_KEPT + 3):
        replayed.start(torch.full((1, 16 * length), 5), beam_size=1, max_length=8)
    assert [shape.n_source for shape in replayed.stages] == [16 * n for n in range(3, SHAPES_KEPT + 3)]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 100, 1023, 1024, 1025])
def test_sizes_are_few_and_little_larger(n: int) -> None:
    assert n <= quartered(n) < 1.25 * n
    assert len({quartered(m) for m in range(1, n + 1)}) <= 4 * n.bit_length()


def test_learned_positions_are_not_replayed() -> None:
    learned, other = (random_model(toy_tokenizer(), config=VARIANTS[name]) for name in ("learned", "paper"))
    assert VARIANTS["learned"].positions is Positions.learned
    assert not can_replay(learned, GPU)
    assert not can_replay(Ensemble([other, learned]), GPU)
    assert can_replay(Ensemble([other, other]), GPU)
    assert not can_replay(other, CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_gpu_replays_what_it_would_do_anew(search: dict[str, Any]) -> None:
    lines = sentences(40, seed=7)
    model = random_model(toy_tokenizer(), config=PLAIN, dtype=torch.float64).to(GPU)
    expected = translator_of(toy_tokenizer(), model=model, device="cuda", **search).translate(lines)
    translator = translator_of(toy_tokenizer(), model=model, device="cuda", whole_machine=True, **search)
    assert isinstance(translator.decoder, Replayed)
    for _ in range(2):
        assert numbers(translator.translate(lines)) == numbers(expected)


@pytest.mark.gpu
def test_a_recording_for_a_gpu_reads_its_tensors_anew() -> None:
    x = torch.zeros(3, device=GPU)
    replay = on_cuda(GPU)(lambda: x + 1)
    assert replay().tolist() == [1, 1, 1]
    x.fill_(4)
    assert replay().tolist() == [5, 5, 5]
