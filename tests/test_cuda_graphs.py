"""CUDA graph replay finds what eager steps do, for any search, model and batch composition."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tests.conftest import slow
from tests.toy_translator import GREEDY, PLAIN, SAMPLE, VARIANTS, random_model, sentences, toy_tokenizer, translator_of
from transformer_cli.config.model import Positions
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.decoding.translator import Translator
from transformer_cli.inference.cuda_graphs import (
    CudaGraphDecoder,
    Step,
    can_capture,
    cuda_graph_capture,
    rounded_up,
)
from transformer_cli.inference.kv_cache import MAX_BEAM_GROUP
from transformer_cli.models.ensemble import AnyModel, Ensemble

BEAM: dict[str, Any] = {"beam_size": 4, "n_best": 3}
CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Capturer:
    """Captures as a GPU does: the kernels with the tensors that they were started on, and no line of Python."""

    def __init__(self) -> None:
        self.n_captured = self.n_replayed = 0

    def __call__(self, step: Step) -> Step:
        self.n_captured += 1
        kernels = make_fx(lambda: step())()  # takes the step

        def replay() -> None:
            self.n_replayed += 1
            kernels()

        return replay


def replaying(model: AnyModel, **options: Any) -> tuple[Translator, Capturer]:
    translator, capturer = translator_of(toy_tokenizer(), model=model, **options), Capturer()
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    engine.decoder = CudaGraphDecoder(engine.model, source_pad_id=toy_tokenizer().pad_id, capture=capturer)
    return translator, capturer


def decoder_of(translator: Translator) -> CudaGraphDecoder:
    assert isinstance(translator.engine, TorchEngine)
    assert isinstance(translator.engine.decoder, CudaGraphDecoder)
    return translator.engine.decoder


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


@pytest.mark.parametrize("name", ["greedy", *map(slow, list(SEARCHES)[1:])])
def test_replayed_steps_find_the_same(name: str) -> None:
    search = SEARCHES[name]
    lines = [*sentences(21, seed=3), "a b"]
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    expected = translator_of(toy_tokenizer(), model=model, **search).translate(lines)
    translator, capturer = replaying(model, **search)
    found = translator.translate(lines)
    assert numbers(found) == numbers(expected)
    assert capturer.n_replayed > 2 * capturer.n_captured


@pytest.mark.parametrize("variant", ["odd", slow("paper"), slow("concat"), slow("modern")])
def test_replayed_steps_find_the_same_for_every_kind_of_model(variant: str) -> None:
    lines = sentences(9, seed=4)
    model = random_model(toy_tokenizer(), config=VARIANTS[variant], dtype=torch.float64)
    expected = translator_of(toy_tokenizer(), model=model, **BEAM).translate(lines)
    assert numbers(replaying(model, **BEAM)[0].translate(lines)) == numbers(expected)


@pytest.mark.slow
def test_the_members_of_an_ensemble_are_replayed_together() -> None:
    lines = sentences(9, seed=5)
    members = [
        random_model(toy_tokenizer(), config=VARIANTS[name], dtype=torch.float64, seed=seed)
        for seed, name in enumerate(("plain", "odd"))
    ]
    search = {**BEAM, "coverage_penalty": 0.2}
    expected = translator_of(toy_tokenizer(), model=Ensemble(members), **search).translate(lines)
    assert numbers(replaying(Ensemble(members), **search)[0].translate(lines)) == numbers(expected)


@pytest.mark.parametrize("search", [slow(GREEDY), BEAM], ids=["greedy", "beam"])
@pytest.mark.slow
def test_captured_steps_serve_other_sentences(search: dict[str, Any]) -> None:
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    translator, capturer = replaying(model, batch_tokens=160, max_extra_length=24, **search)
    fresh = translator_of(toy_tokenizer(), model=model, max_extra_length=24, **search)
    batches = [sentences(n, seed=n) for n in (5, 9, 1)]
    for lines in batches:
        assert numbers(translator.translate(lines)) == numbers(fresh.translate(lines))
    n_captured = capturer.n_captured
    for lines in batches:
        assert numbers(translator.translate(lines)) == numbers(fresh.translate(lines))
    assert capturer.n_captured == n_captured


def test_a_search_moves_to_smaller_shapes_as_sentences_end() -> None:
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    translator, _ = replaying(model, **BEAM)
    translator.translate(sentences(16, seed=6))
    sizes = {shape.n_sentences for shape in decoder_of(translator).buffers}
    assert {16, 8} <= sizes <= {16, 8, 4, 2, 1}


def test_only_the_latest_shapes_are_kept() -> None:
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    replayed = CudaGraphDecoder(model, source_pad_id=toy_tokenizer().pad_id, capture=lambda step: step)
    for length in range(1, SHAPES_KEPT + 3):
        replayed.start(torch.full((1, 16 * length), 5), beam_size=1, max_length=8)
    assert [shape.n_source for shape in replayed.buffers] == [16 * n for n in range(3, SHAPES_KEPT + 3)]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 100, 1023, 1024, 1025])
def test_sizes_are_few_and_little_larger(n: int) -> None:
    assert n <= rounded_up(n) < 1.25 * n
    assert len({rounded_up(m) for m in range(1, n + 1)}) <= 4 * n.bit_length()


def test_learned_positions_are_not_replayed() -> None:
    learned, other = (random_model(toy_tokenizer(), config=VARIANTS[name]) for name in ("learned", "paper"))
    assert VARIANTS["learned"].positions is Positions.learned
    assert not can_capture(learned, GPU)
    assert not can_capture(Ensemble([other, learned]), GPU)
    assert can_capture(Ensemble([other, other]), GPU)
    assert not can_capture(other, CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_a_gpu_replays_what_it_would_do_anew(search: dict[str, Any]) -> None:
    lines = sentences(40, seed=7)
    model = random_model(toy_tokenizer(), config=PLAIN, dtype=torch.float64).to(GPU)
    expected = translator_of(toy_tokenizer(), model=model, device="cuda", **search).translate(lines)
    translator = translator_of(toy_tokenizer(), model=model, device="cuda", parallel=True, **search)
    decoder_of(translator)
    for _ in range(2):
        assert numbers(translator.translate(lines)) == numbers(expected)


@pytest.mark.gpu
def test_a_recording_for_a_gpu_reads_its_tensors_anew() -> None:
    x = torch.zeros(3, device=GPU)
    replay = cuda_graph_capture(GPU)(lambda: x + 1)
    assert replay().tolist() == [1, 1, 1]
    x.fill_(4)
    assert replay().tolist() == [5, 5, 5]
