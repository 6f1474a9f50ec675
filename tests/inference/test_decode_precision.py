"""decode.precision and decode.batch_tokens=auto: what is computed in which type, how large a batch is, and near ties.

A CPU stands for an accelerator where an engine is told that it is one; torch's meta device where shapes are enough.
"""

import importlib.util
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.addons.interop.test_export import model_file
from tests.conftest import ROOT, slow
from tests.support.each import each
from tests.support.rehearsal import rehearse
from tests.toy.translator import (
    GREEDY,
    VARIANTS,
    engine_of,
    random_model,
    replace_search,
    sentences,
    texts,
    toy_tokenizer,
    translator_of,
)
from transformer_cli.addons.interop import conversions
from transformer_cli.addons.interop.ctranslate2_engine import CTranslate2Engine
from transformer_cli.config.decode import DecodeConfig, DecodePrecision
from transformer_cli.config.model import ModelConfig, Norm, Vocabulary
from transformer_cli.data.tokenizer import Tokenizers
from transformer_cli.decoding.search import Hypothesis, SearchRequest
from transformer_cli.decoding.torch_engine import TorchEngine
from transformer_cli.decoding.training_text import UNKNOWN_TEXT
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import EnvironmentFault
from transformer_cli.evaluation.search_signature import search_name, search_signature
from transformer_cli.inference import batch_size
from transformer_cli.inference.batch_invariance import EXACT_BUCKET, batch_size_of
from transformer_cli.inference.batch_size import bytes_per_sentence, forward_tokens, rows_that_fit, sentences_per_batch
from transformer_cli.inference.cuda_graphs import rounded_up
from transformer_cli.inference.force_decode import force_decode
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.inference.kv_cache import DecoderCache
from transformer_cli.inference.precision import choose_precision, converted, in_precision, on_device
from transformer_cli.models.build import build_model
from transformer_cli.models.ensemble import Ensemble
from transformer_cli.models.file import write_model
from transformer_cli.models.transformer import Transformer

CPU, META, GPU, MPS = (torch.device(name) for name in ("cpu", "meta", "cuda", "mps"))
AUTO, FP32, BF16, FP16 = DecodePrecision
SIXTEEN = [torch.bfloat16, torch.float16]


# ---- The choice


@pytest.mark.parametrize(
    ("wanted", "device", "has_bf16", "expected"),
    [
        (AUTO, CPU, False, FP32),
        (AUTO, MPS, False, FP32),
        (AUTO, GPU, True, BF16),
        (AUTO, GPU, False, FP16),
        (FP16, GPU, True, FP16),
        (FP16, MPS, False, FP16),
        (FP32, GPU, True, FP32),
        (BF16, GPU, False, "decode.precision=bf16: this GPU does not have it. Use decode.precision=fp16 or fp32"),
        (BF16, MPS, False, "decode.precision=bf16: device=mps does not have it. Use decode.precision=fp16 or fp32"),
        (BF16, CPU, False, "decode.precision=bf16: needs a GPU; on a CPU it is not faster. Use decode.precision=fp32"),
        (FP16, CPU, False, "decode.precision=fp16: needs a GPU; on a CPU it is not faster. Use decode.precision=fp32"),
    ],
)
def test_auto_is_the_fastest_precision_of_the_device_and_one_it_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    wanted: DecodePrecision,
    device: torch.device,
    has_bf16: bool,
    expected: DecodePrecision | str,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    if isinstance(expected, DecodePrecision):
        assert choose_precision(wanted, device) is expected
        return
    with pytest.raises(EnvironmentFault) as refused:
        choose_precision(wanted, device)
    assert str(refused.value).startswith(expected)


def test_a_reduced_precision_is_named_beside_scores_and_in_names_of_files() -> None:
    signatures = {
        precision: search_signature(DecodeConfig(precision=precision), seed=1) for precision in (AUTO, FP32, BF16, FP16)
    }
    assert signatures == {
        precision: "search:beam|beam_size:4|length_penalty:0.6|engine:torch|precision:"
        f"{precision.name}|batch_invariant:no"
        for precision in (AUTO, FP32, BF16, FP16)
    }
    names = {search_name(DecodeConfig(precision=precision), seed=1) for precision in (FP32, BF16, FP16)}
    assert names == {"beam4", "beam4-precision=bf16", "beam4-precision=fp16"}
    assert on_device(DecodeConfig(), META).precision is BF16  # what the commands name is what was computed
    assert on_device(DecodeConfig(), CPU).precision is FP32


# ---- Weights and logits


def test_in_float32_there_is_no_second_copy_of_the_weights() -> None:
    model = random_model(toy_tokenizer())
    for wanted in (AUTO, FP32):
        assert in_precision(model, wanted, CPU) is model
    double = random_model(toy_tokenizer(), dtype=torch.float64)
    assert in_precision(double, AUTO, CPU) is double


@each("dtype", SIXTEEN)
@each("variant", VARIANTS)
def test_every_weight_is_converted_once_and_the_model_is_left_as_it_was(variant: str, dtype: torch.dtype) -> None:
    model = random_model(toy_tokenizer(), config=VARIANTS[variant]).train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = converted(model, dtype)
    assert {weight.dtype for weight in found.parameters()} == {dtype}
    assert sum(p.numel() for p in found.parameters()) == sum(p.numel() for p in model.parameters())  # tied ones, too
    assert not any(p.requires_grad for p in found.parameters())
    assert model.training
    assert not found.training
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    for name, weight in before.items():
        assert torch.equal(found.state_dict()[name], weight.to(dtype)), name


@each("dtype", SIXTEEN)
@each("device", [CPU, META])
def test_logits_and_log_probabilities_of_16_bits_are_float32(dtype: torch.dtype, device: torch.device) -> None:
    model = converted(random_model(toy_tokenizer()), dtype).to(device)
    members = [random_model(toy_tokenizer(), seed=seed) for seed in (1, 2)]
    ensemble = converted(Ensemble(members), dtype).to(device)
    with rehearse():
        decoder = TransformerDecoder(model)
        source_BS = torch.full((3, 5), 7, device=device)
        cache = decoder.start(source_BS, beam_size=2, max_length=4)
        assert {x.dtype for x in (*cache.keys_GHME, *cache.memory_keys_BHSE, cache.source_mask_BHNS)} == {dtype}
        logits_RV = decoder.step(torch.full((6,), 2, device=device), cache)
        assert logits_RV.dtype is torch.float32
        whole_BTV = model(source_BS, source_BS)
        assert (whole_BTV.dtype, whole_BTV.shape[:2]) == (torch.float32, (3, 5))
        assert ensemble(source_BS, source_BS).dtype is torch.float32


@each("dtype", SIXTEEN)
@each("variant", VARIANTS)
def test_in_16_bits_the_same_is_predicted_up_to_rounding(variant: str, dtype: torch.dtype) -> None:
    tokenizer, lines = toy_tokenizer(), sentences(6, seed=4)
    model = random_model(tokenizer, config=VARIANTS[variant], gain=1)
    ids = tokenizer.encode(lines)
    pairs = list(zip(ids, ids[::-1], strict=True))

    def scores(one: Transformer) -> Tensor:
        read = force_decode(
            one, pairs, Tokenizers(tokenizer, tokenizer), device=CPU, batch_tokens=64, with_attention=True
        )
        assert all(of_pair.attention_TS is not None and of_pair.attention_TS.numpy().any() for of_pair in read)
        return torch.tensor([log_p for of_pair in read for log_p in of_pair.log_probs])

    tolerance = 0.1 if dtype is torch.bfloat16 else 0.0125  # 8 bits of fraction against 11
    torch.testing.assert_close(scores(converted(model, dtype)), scores(model), rtol=0, atol=tolerance)


def test_every_search_decodes_in_16_bits() -> None:
    lines = sentences(5, seed=2)
    model = converted(random_model(toy_tokenizer()), torch.bfloat16)
    for options in (GREEDY, {"n_best": 2, "coverage_penalty": 0.2}, {"search": "sample", "beam_size": 1}):
        assert len(translator_of(toy_tokenizer(), model=model, **options).translate(lines)) == 5


def test_an_overflow_of_fp16_names_the_precision_to_choose() -> None:
    model = random_model(toy_tokenizer(), config=replace(VARIANTS["plain"], norm=Norm.pre))
    with torch.no_grad():
        for layer in model.encoder.layers:
            layer.feed_forward.to_out.weight.mul_(1e6)
    lines = sentences(3, seed=2)
    assert len(translator_of(toy_tokenizer(), model=converted(model, torch.bfloat16)).translate(lines)) == 3
    with pytest.raises(EnvironmentFault, match=r"decode\.precision=fp16: .* Use decode\.precision=fp32, or bf16"):
        translator_of(toy_tokenizer(), model=converted(model, torch.float16)).translate(lines)


@pytest.mark.slow
def test_ctranslate2_computes_in_the_precision_or_names_one_that_it_has(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    path = tmp_path / "model.safetensors"
    write_model(path, model_file(norm=Norm.pre))
    exported = conversions.conversion_of(path)

    def engine(precision: DecodePrecision) -> CTranslate2Engine:
        return CTranslate2Engine(
            exported.directory, exported.tokenizers, text=UNKNOWN_TEXT, device=CPU, precision=precision
        )

    assert engine(FP32).library.compute_type == "float32"
    with pytest.raises(EnvironmentFault, match=r"decode\.precision=fp16: CTranslate2 does not compute in float16 on"):
        engine(FP16)


# ---- The size of a batch


def base_model(device: torch.device = META) -> Transformer:
    """The paper's, with a vocabulary of 37,000 entries."""
    vocabulary = Vocabulary(37_000, pad_id=0)
    with device:
        return build_model(ModelConfig(), vocabulary, vocabulary)


def test_the_memory_of_a_sentence_is_that_of_its_cache_and_its_logits() -> None:
    """The expected bytes are computed by hand, for base in bf16 with 4 beams, 50 source and 100 target tokens."""
    model = base_model().to(torch.bfloat16)
    own = 2 * 6 * 4 * 100 * 2 * 512 + 2 * 4 * 100 * 4
    source = 2 * 50 * (2 * 6 * 2 * 512 + 2048 + 8 * 512)
    logits = 4 * 37_000 * 4 * (1 + 8)
    assert bytes_per_sentence(model, n_source=50, n_target=100, n_beams=4) == own + source + logits


@each("variant", VARIANTS)
def test_the_estimate_covers_the_tensors_that_a_search_holds(variant: str) -> None:
    model = random_model(toy_tokenizer(), config=VARIANTS[variant])
    cache = TransformerDecoder(model).start(torch.full((1, 20), 7), beam_size=4, max_length=40)
    tensors: list[Tensor] = [*cache.keys_GHME, *cache.values_GHME, *cache.memory_keys_BHSE, *cache.memory_values_BHSE]
    tensors += cache.states_RD
    held = sum(x.numel() * x.element_size() for x in tensors)
    most = 3 if cache.keys_GHME else 6  # times what is held: the activations count more where the cache is small
    assert held < bytes_per_sentence(model, n_source=20, n_target=40, n_beams=4) < most * held + 40 * 90 * 4


def test_a_quarter_of_the_free_memory_is_used_and_no_more_rows_than_are_faster() -> None:
    for n_fit, expected in ((1, 1), (2, 2), (3, 3), (5, 4), (6, 6), (7, 6), (8, 8), (13, 12), (31, 24), (100, 96)):
        assert rows_that_fit(4 * 50 * n_fit + 49, 50, n_beams=4) == expected == smaller_graph(n_fit)
    assert rows_that_fit(10**12, 50, n_beams=4) == batch_size.MOST_ROWS // 4
    assert rows_that_fit(10, 50, n_beams=4) == 1


def smaller_graph(n: int) -> int:
    """The largest size up to `n` that the CUDA graphs do not round up."""
    return max(size for size in range(1, n + 1) if rounded_up(size) == size)


def sizes(device: torch.device, batch_tokens: int | str, free: int | None, n_beams: int = 4) -> Callable[[int], int]:
    return sentences_per_batch(
        batch_tokens, base_model(), device, n_beams=n_beams, n_target_of=lambda n: n + 50, free=free
    )


def test_auto_is_4096_on_a_cpu_and_twice_as_many_with_a_beam() -> None:
    for n_beams, tokens in ((1, 4096), (2, 4096), (4, 2048), (8, 1024), (20, 409)):
        for n_source in (50, 1023, 5000):
            assert sizes(CPU, "auto", None, n_beams)(n_source) == tokens // n_source


@each("n_beams", [1, 4, 40])
def test_the_logits_of_a_batch_on_a_cpu_stay_small(n_beams: int) -> None:
    n_sentences, n_vocab = sizes(CPU, "auto", None, n_beams)(2), len(base_model().output_embedding.weight)
    few, many = 4096 // n_beams // 2, 8192 // n_beams // 2
    assert n_sentences == max(few, min(many, 2**25 // n_vocab // n_beams))


def test_auto_follows_the_memory_of_a_gpu() -> None:
    for n_source in (1, 7, 50, 1023, 5000):
        assert sizes(CPU, 4096, None)(n_source) == 1024 // n_source
        assert sizes(GPU, 4096, 10**10)(n_source) == 1024 // n_source  # a number is a number
    small, large = sizes(GPU, "auto", 4 * 10**9), sizes(GPU, "auto", 80 * 10**9)
    assert large(10) == 1024  # 4,096 rows
    assert 24 < small(50) < small(10) < large(50) < large(10)
    assert small(20_000) == 1
    assert sizes(META, "auto", None)(50) == 16_384 // 4 // 50


def test_a_forward_pass_has_one_function_for_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (forward_tokens("auto", CPU), forward_tokens("auto", MPS), forward_tokens(9, GPU)) == (4096, 16_384, 9)
    for free, expected in ((2 * 10**9, 5_000), (80 * 10**9, 65_536), (0, 1)):
        monkeypatch.setattr(batch_size, "free_memory", lambda device, free=free: free)
        assert forward_tokens("auto", GPU) == expected


# ---- Near ties, decoded again together


def as_accelerator(translator: Translator) -> TorchEngine:
    engine = engine_of(translator)
    engine.redecodes_together = True
    engine.decoder = engine.decoder.decoder  # in batches that are not rounded
    return engine


def spy_on(translator: Translator, *, is_tie: Callable[[Sequence[int]], bool]) -> list[SearchRequest[Any]]:
    """The requests of all searches, of which the first pass marks the sentences whose seed `is_tie`."""
    seen: list[SearchRequest[Any]] = []

    def marking(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        seen.append(request)
        found = real(request)
        if request.exact:
            return found
        return [
            [replace(one, is_near_tie=is_tie(seed)) for one in hypotheses]
            for seed, hypotheses in zip(request.seeds, found, strict=True)
        ]

    real = replace_search(translator, marking)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("options", [GREEDY, {"n_best": 3}], ids=["greedy", "beam"])
def test_near_ties_of_all_batches_are_decoded_again_in_shapes_of_their_own_length(options: dict[str, Any]) -> None:
    lines = sentences(50, seed=5, longest=24)
    translator = translator_of(toy_tokenizer(), batch_tokens=400, **options)
    expected = translator.translate(lines)
    engine = as_accelerator(translator)
    seen = spy_on(translator, is_tie=lambda seed: seed[1] % 3 == 0)
    found = translator.translate(lines)
    assert texts(found) == texts(expected)
    first, second = ([one for one in seen if one.exact is exact] for exact in (False, True))
    assert len(first) > 2
    assert sum(len(one.seeds) for one in first) == 50
    assert {seed[1] for one in second for seed in one.seeds} == {n for n in range(1, 51) if n % 3 == 0}
    ids = toy_tokenizer().encode(lines)
    buckets = {-(-(len(ids[n - 1]) + 1) // EXACT_BUCKET) for n in range(3, 51, 3)}
    assert len(second) == len(buckets)
    for one in second:
        assert len(one.seeds) == batch_size_of(EXACT_BUCKET)
        assert one.source_lengths_B is not None
        assert len({-(-n // EXACT_BUCKET) for n in one.source_lengths_B.tolist()}) == 1
    assert {one.near_tie for one in seen} == {engine.near_tie}


@pytest.mark.slow
def test_the_second_result_does_not_depend_on_the_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits are wrong in another way for every number of rows, as kernels round, and alike in each row."""
    tokenizer, lines = toy_tokenizer(), sentences(24, seed=9)
    model, exact_step = random_model(tokenizer, dtype=torch.float64), TransformerDecoder.step
    rows: set[int] = set()

    def rough(self: TransformerDecoder, ids_R: Tensor, cache: DecoderCache) -> Tensor:
        logits_RV = exact_step(self, ids_R, cache)
        generator = torch.Generator().manual_seed(len(ids_R))
        return logits_RV + 0.1 * torch.rand(logits_RV.size(1), generator=generator, dtype=torch.float64)

    monkeypatch.setattr(TransformerDecoder, "step", rough)

    def translations(order: Sequence[int], batch_tokens: int, *, together: bool) -> list[str]:
        translator = translator_of(tokenizer, model=model, batch_tokens=batch_tokens)
        engine = as_accelerator(translator)
        engine.second_pass = together
        spy_on(translator, is_tie=lambda seed: True)
        step = engine.decoder.step

        def counting(ids_R: Tensor, cache: DecoderCache) -> Tensor:
            rows.add(len(ids_R))
            return step(ids_R, cache)

        monkeypatch.setattr(engine.decoder, "step", counting)
        results = dict(zip(order, texts(translator.translate([lines[i] for i in order])), strict=True))
        return [results[i] for i in range(len(lines))]

    shuffled = random.Random(1).sample(range(24), 24)
    arrangements: list[tuple[Sequence[int], int]] = [(range(24), 4096), (shuffled, 200), (shuffled, 1)]
    alone = [translations(order, n, together=False) for order, n in arrangements]
    assert alone[0] != alone[1], "without the second pass rounding decides, and differs"
    assert len(rows) > 3
    again = [translations(order, n, together=True) for order, n in arrangements]
    assert again[0] == again[1] == again[2]


def test_a_second_pass_too_large_for_the_memory_is_cut_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = sentences(20, seed=5)
    expected = texts(translator_of(toy_tokenizer()).translate(lines))
    translator = translator_of(toy_tokenizer(), batch_tokens=300)
    as_accelerator(translator)
    spy_on(translator, is_tie=lambda seed: True)
    start, tried = TransformerDecoder.start, []

    def small(self: TransformerDecoder, source_BS: Tensor, **kwargs: Any) -> Any:
        tried.append(len(source_BS))
        if len(source_BS) > 9:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return start(self, source_BS, **kwargs)

    monkeypatch.setattr(TransformerDecoder, "start", small)
    assert texts(translator.translate(lines)) == expected
    assert 32 in tried
    assert max(tried[tried.index(32) + 3 :]) <= 9


def test_in_16_bits_there_is_no_second_pass() -> None:
    translator = translator_of(toy_tokenizer(), model=converted(random_model(toy_tokenizer()), torch.bfloat16))
    as_accelerator(translator)
    seen = spy_on(translator, is_tie=lambda seed: True)
    translator.translate(sentences(4, seed=1))
    assert [one.exact for one in seen] == [False]
    assert seen[0].near_tie == 0


# ---- Memory


@pytest.mark.parametrize("n_rows", [slow(1), 3])
def test_later_batches_begin_with_as_many_sentences_as_fitted(monkeypatch: pytest.MonkeyPatch, n_rows: int) -> None:
    lines = sentences(40, seed=6)
    expected = texts(translator_of(toy_tokenizer(), batch_tokens=600).translate(lines))
    start, tried = TransformerDecoder.start, []

    def small(self: TransformerDecoder, source_BS: Tensor, **kwargs: Any) -> Any:
        tried.append(len(source_BS))
        if len(source_BS) > n_rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return start(self, source_BS, **kwargs)

    monkeypatch.setattr(TransformerDecoder, "start", small)
    assert texts(translator_of(toy_tokenizer(), batch_tokens=600).translate(lines)) == expected
    fitted = next(i for i, n in enumerate(tried) if n <= n_rows)
    assert tried[:fitted] == sorted(tried[:fitted], reverse=True)
    assert max(tried[fitted:]) <= tried[fitted]


# ---- The figures


@pytest.mark.slow
def test_the_script_measures_each_precision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("bench_near_ties", ROOT / "scripts" / "bench_near_ties.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    write_model(tmp_path / "model.safetensors", model_file())
    (tmp_path / "lines").write_text("\n".join(sentences(12, seed=3)) + "\n")
    script.main([str(tmp_path / "model.safetensors"), str(tmp_path / "lines"), "--precisions", "fp32,bf16"])
    head, _, fp32, bf16 = capsys.readouterr().out.splitlines()
    assert head.startswith("| precision | gap |")
    assert fp32.startswith("| fp32 | ")
    assert fp32.endswith(" | 0.00% | 0.00% |"), "no text changes with the second pass, nor against itself"
    assert " | none | " in bf16
