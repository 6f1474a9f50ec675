"""CUDA graph replay finds what eager steps do, for any search, model and batch composition."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tests.conftest import slow
from tests.support.each import each
from tests.toy.translator import (
    GREEDY,
    PLAIN,
    SAMPLE,
    VARIANTS,
    engine_of,
    random_model,
    replace_search,
    sentences,
    toy_tokenizer,
    translator_of,
)
from transformer_cli.config.model import Positions
from transformer_cli.decoding.results import Translated
from transformer_cli.decoding.search.request import SYNC_INTERVAL
from transformer_cli.decoding.search.steps import SearchSteps
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.decoding.translator import Translator
from transformer_cli.inference.cuda_graphs import (
    CudaGraphCache,
    CudaGraphDecoder,
    Shape,
    StaticBuffers,
    StepFunction,
    can_capture,
    cuda_graph_capture,
    rounded_up,
    smaller,
)
from transformer_cli.inference.kv_cache import MAX_BEAM_GROUP, StaticCache
from transformer_cli.inference.static_steps import StaticProgram
from transformer_cli.models.ensemble import AnyModel, Ensemble

BEAM: dict[str, Any] = {"beam_size": 4, "n_best": 3}
CPU, GPU = torch.device("cpu"), torch.device("cuda")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Capturer:
    """Captures as a GPU does: the kernels with the tensors that they were started on, and no line of Python."""

    def __init__(self) -> None:
        self.n_captured = self.n_replayed = 0
        self.constants: list[Tensor] = []  # that the kernels read or write, the model's aside

    def __call__(self, step: StepFunction) -> StepFunction:
        self.n_captured += 1
        kernels = make_fx(lambda: step())()  # takes the step
        names = {str(node.target) for node in kernels.graph.nodes if node.op == "get_attr"}
        self.constants += [x for x in (getattr(kernels, name) for name in names) if isinstance(x, Tensor)]

        def replay() -> None:
            self.n_replayed += 1
            kernels()

        return replay


def replaying(
    model: AnyModel, *, max_bytes: int | None = None, sync_interval: int = SYNC_INTERVAL, **options: Any
) -> tuple[Translator, Capturer]:
    """A translator that works on a CPU as on a GPU: it replays, and the host synchronises every few steps."""
    translator, capturer = translator_of(toy_tokenizer(), model=model, **options), Capturer()
    engine = engine_of(translator)
    engine.decoder = CudaGraphDecoder(
        engine.model, source_pad_id=toy_tokenizer().pad_id, capture=capturer, max_bytes=max_bytes
    )
    run = engine._run
    replace_search(translator, lambda request: run(replace(request, sync_interval=sync_interval)))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["greedy", *map(slow, list(SEARCHES)[1:])])
def test_replayed_steps_find_the_same(name: str) -> None:
    search = SEARCHES[name]
    lines = [*sentences(21, seed=3), "a b"]
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    expected = translator_of(toy_tokenizer(), model=model, **search).translate(lines)
    translator, capturer = replaying(model, **search)
    found = translator.translate(lines)
    assert numbers(found) == numbers(expected)
    assert capturer.n_replayed > capturer.n_captured


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["odd", "SSRU", slow("paper"), slow("concat"), slow("modern")])
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
    for lines in (*batches, *batches):  # the buffers have grown to the largest when the second half begins
        assert numbers(translator.translate(lines)) == numbers(fresh.translate(lines))
    n_captured = capturer.n_captured
    for lines in batches:
        assert numbers(translator.translate(lines)) == numbers(fresh.translate(lines))
    assert capturer.n_captured == n_captured


def storages(tensors: Iterable[Tensor]) -> set[int]:
    return {x.untyped_storage().data_ptr() for x in tensors}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["greedy", slow("beam"), slow("groups"), slow("beams without a family")])
def test_whole_steps_are_captured_and_read_nothing_else(name: str) -> None:
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    translator, capturer = replaying(model, **SEARCHES[name])
    fresh = translator_of(toy_tokenizer(), model=model, **SEARCHES[name])
    lines = [sentences(n, seed=n, longest=9) for n in (8, 7)]
    translator.translate(lines[0])
    (static,) = decoder_of(translator).buffers.values()
    assert len(static.programs) > 0
    assert static.logits_RV is None, "a step of the model alone was captured"
    for program in static.programs.values():
        assert isinstance(program, SearchSteps)
        written = set(program.tensors()) - {program.state.sentence_index_B}
        assert storages(written) <= storages(capturer.constants)
    assert numbers(translator.translate(lines[1])) == numbers(fresh.translate(lines[1]))


@pytest.mark.parametrize("name", ["sample", slow("coverage"), slow("no repeats"), slow("shortest")])
def test_other_searches_replay_the_step_of_the_model(name: str) -> None:
    options = {"no repeats": {**BEAM, "no_repeat_ngram": 2}, "shortest": {**BEAM, "min_length": 3}, **SEARCHES}[name]
    model, lines = random_model(toy_tokenizer(), dtype=torch.float64), sentences(8, seed=3)
    translator, capturer = replaying(model, **options)
    assert numbers(translator.translate(lines)) == numbers(
        translator_of(toy_tokenizer(), model=model, **options).translate(lines)
    )
    (static,) = decoder_of(translator).buffers.values()
    assert static.logits_RV is not None
    assert not static.programs
    assert capturer.n_replayed > 0


@pytest.mark.slow
@torch.inference_mode()
def test_nothing_of_a_search_is_left_in_the_steps_that_it_captured() -> None:
    """Whatever Python holds of the first search is spoiled, and so are the tensors that no other may read."""
    model, lines = random_model(toy_tokenizer(), dtype=torch.float64), sentences(8, seed=3, longest=9)
    translator, _ = replaying(model, **BEAM)
    expected = numbers(translator.translate(lines))
    (static,) = decoder_of(translator).buffers.values()
    for x in (*static.cache.tensors(), *(x for program in static.programs.values() for x in program.tensors())):
        if x is not static.cache.own_FF:
            x.fill_(1)
    for front in static.fronts.values():
        front.attended_length = front.length = 10**9
    for program in static.programs.values():
        assert isinstance(program, SearchSteps)
        program.advance = program.scoring = program.hypothesis_states = program.model = None  # type: ignore[assignment]
        program.n_taken, program.exact = 10**9, True
    assert numbers(translator.translate(lines)) == expected


@pytest.mark.slow
def test_a_search_goes_on_with_half_the_rows_of_the_same_buffers() -> None:
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    translator, _ = replaying(model, sync_interval=2, **BEAM)
    translator.translate(sentences(16, seed=6))
    (static,) = decoder_of(translator).buffers.values()
    assert {16, 8} <= set(static.fronts) <= {16, 8, 4, 2, 1}
    assert len({storage for front in static.fronts.values() for storage in storages(front.tensors())}) == len(
        storages(static.cache.tensors())
    )


def decoder_with(capture: Any = lambda step: step() or step, **options: Any) -> CudaGraphDecoder:
    model = random_model(toy_tokenizer(), dtype=torch.float64)
    return CudaGraphDecoder(model, source_pad_id=toy_tokenizer().pad_id, capture=capture, **options)


@torch.inference_mode()
def test_static_buffers_stay_within_their_bytes_and_the_latest_remain() -> None:
    decoder, most = decoder_with(max_bytes=1_000_000), 0
    for n_sentences in (1, 4, 3):
        for length in (10, 20, 40, 80, 30):
            cache = decoder.start(torch.full((n_sentences, length), 5), beam_size=2, max_length=length + 6)
            decoder.step(torch.full((2 * n_sentences,), 3), cache)
            found = [x for static in decoder.buffers.values() for x in tensors_of(static)]
            assert sum(x.untyped_storage().nbytes() for x in found) == sum(s.n_bytes for s in decoder.buffers.values())
            assert decoder.buffers[cache.shape] is cache.static
            assert sum(static.n_bytes for static in decoder.buffers.values()) <= 1_000_000 or len(decoder.buffers) == 1
            assert [*decoder.buffers][-1] == cache.shape
            most = max(most, len(decoder.buffers))
    assert most > 2
    decoder.release()
    assert not decoder.buffers


def tensors_of(static: StaticBuffers) -> list[Tensor]:
    """Every tensor that buffers have, each storage once."""
    assert isinstance(static.cache, StaticCache)
    lists = [x for x in vars(static.cache).values() if isinstance(x, list)]
    single = [x for x in (*vars(static.cache).values(), *vars(static).values()) if isinstance(x, Tensor)]
    return list({x.untyped_storage().data_ptr(): x for x in (*single, *(x for each in lists for x in each))}.values())


@torch.inference_mode()
@pytest.mark.parametrize("beam_size", [1, 4, MAX_BEAM_GROUP + 1])
def test_the_size_of_buffers_is_known_before_they_are_made(beam_size: int) -> None:
    decoder, example = decoder_with(), torch.full((1, 3), 5)
    shape = Shape(n_source=24, beam_size=beam_size, max_length=64, keeps_attention=True)
    known, made = (decoder._allocate(shape, 3, example, torch.device(name)) for name in ("meta", "cpu"))
    assert known.n_bytes == made.n_bytes == sum(x.untyped_storage().nbytes() for x in tensors_of(made))


@torch.inference_mode()
def test_buffers_grow_with_the_largest_batch_and_serve_all_smaller_ones() -> None:
    decoder = decoder_with()
    found = []
    for n_sentences in (3, 8, 5, 1, 8):
        found.append(decoder.start(torch.full((n_sentences, 9), 5), beam_size=2, max_length=20).static)
    assert found[0] is not found[1]
    assert all(static is found[1] for static in found[2:])
    assert len(decoder.buffers) == 1


@each("n", [1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 100, 1023, 1024, 1025])
def test_sizes_are_few_and_so_are_their_halves(n: int) -> None:
    sizes = {rounded_up(m) for m in range(1, n + 1)}
    assert n <= rounded_up(n) < 1.5 * n + 1
    assert len(sizes) <= 2 * n.bit_length()
    assert all(smaller(size, live) in sizes for size in sizes for live in range(1, size + 1))


def test_learned_positions_are_not_replayed() -> None:
    learned, other = (random_model(toy_tokenizer(), config=VARIANTS[name]) for name in ("learned", "paper"))
    assert VARIANTS["learned"].positions is Positions.learned
    assert not can_capture(learned, GPU)
    assert not can_capture(Ensemble([other, learned]), GPU)
    assert can_capture(Ensemble([other, other]), GPU)
    assert not can_capture(other, CPU)


@pytest.mark.gpu
@NEEDS_GPU
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
@NEEDS_GPU
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("search", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_a_gpu_replays_whole_steps_without_waiting(search: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(toy_tokenizer(), config=PLAIN, dtype=torch.float64).to(GPU)
    translator = translator_of(toy_tokenizer(), model=model, device="cuda", parallel=True, **search)
    lines = sentences(40, seed=8)
    expected = numbers(translator.translate(lines))
    assert all(static.programs for static in decoder_of(translator).buffers.values())
    take_step = CudaGraphCache.take_step

    def watched(cache: CudaGraphCache, program: StaticProgram) -> None:
        torch.cuda.set_sync_debug_mode("error")
        try:
            take_step(cache, program)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(CudaGraphCache, "take_step", watched)
    assert numbers(translator.translate(lines)) == expected


@pytest.mark.gpu
@NEEDS_GPU
def test_graphs_of_two_translators_come_and_go_on_a_gpu() -> None:
    """All graphs of one may be dropped before, for larger batches or for their memory."""
    lines = sentences(40, seed=9)
    models = [random_model(toy_tokenizer(), config=PLAIN, dtype=torch.float64, seed=n).to(GPU) for n in (1, 2)]
    eager, graphed = (
        [translator_of(toy_tokenizer(), model=one, device="cuda", parallel=parallel, **BEAM) for one in models]
        for parallel in (False, True)
    )
    for part in (lines[:1], lines, lines[:3], lines):
        for one, other in zip(eager, graphed, strict=True):
            assert numbers(other.translate(part)) == numbers(one.translate(part))
        decoder_of(graphed[0]).release()


@pytest.mark.gpu
@NEEDS_GPU
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("search", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_a_gpu_replays_the_kernels_of_each_precision(search: dict[str, Any], dtype: torch.dtype) -> None:
    """Memory-efficient attention with a mask, and products with a float32 result."""
    lines = sentences(40, seed=10)
    model = random_model(toy_tokenizer(), config=replace(PLAIN, d_model=64)).to(GPU, dtype)
    eager, graphed = (
        translator_of(toy_tokenizer(), model=model, device="cuda", parallel=parallel, **search).translate(lines)
        for parallel in (False, True)
    )
    n_same = sum(one.text == other.text for one, other in zip(eager, graphed, strict=True))
    assert n_same >= (40 if dtype is torch.float32 else 30)
    for one, other in zip(eager, graphed, strict=True):
        if one.text == other.text:
            rel = 0.03 if dtype is torch.bfloat16 else 1e-4
            assert other.hypotheses[0][1] == pytest.approx(one.hypotheses[0][1], rel=rel)


@pytest.mark.gpu
@NEEDS_GPU
def test_a_recording_for_a_gpu_reads_its_tensors_anew() -> None:
    x, y = torch.zeros(3, device=GPU), torch.zeros(3, device=GPU)
    replay = cuda_graph_capture(GPU)(lambda: y.add_(x + 1))
    assert y.tolist() == [1, 1, 1], "the step itself was taken, once"
    x.fill_(4)
    replay()
    assert y.tolist() == [6, 6, 6]
