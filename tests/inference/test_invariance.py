"""Batch invariance: a translation does not depend on batch composition.

Three layers. In float64 a leak of logic (padding, the end of another sentence, a shared limit, a tie rule) shows as
more than rounding. In float32 the text of real lines is compared in many arrangements. With decode.batch_invariant
scores are compared bit by bit, after the kernels have been shown to give a row the same bits at any index.

Shapes: B batch, S source, T target, D width, H heads, E head width, M rows, V vocabulary, R = B × beam.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.conftest import slow
from tests.support.arrangements import ALONE, Arrangement, Difference, Hypotheses, differences, score_gap, translate_in
from tests.toy.run import train
from tests.toy.translator import (
    GREEDY,
    PLAIN,
    SAMPLE,
    VARIANTS,
    WORDS,
    engine_of,
    random_model,
    replace_search,
    sentences,
    texts,
    toy_tokenizer,
    translator_of,
)
from transformer_cli.config.data import DataConfig, TokenizerConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.model import ModelConfig
from transformer_cli.config.train import ScheduleConfig, TrainConfig, TrainSettings
from transformer_cli.data.lines import split_lines
from transformer_cli.data.prepare import prepare
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.decoding import search
from transformer_cli.decoding.search import Hypothesis, SearchRequest
from transformer_cli.decoding.search import loop as stepping
from transformer_cli.decoding.search.beam import Beam, Candidates
from transformer_cli.decoding.search.greedy import greedy_search
from transformer_cli.decoding.search.sampling import sample
from transformer_cli.decoding.search.steps import SearchState
from transformer_cli.decoding.torch_engine import TorchEngine, torch_translator
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import ConfigError
from transformer_cli.inference import batch_invariance as exact
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.inference.kv_cache import DecoderCache
from transformer_cli.models.file import read_model
from transformer_cli.models.layouts import PaddedLayout
from transformer_cli.models.transformer import Transformer

CPU = torch.device("cpu")
BEAM: dict[str, Any] = {"n_best": 4}
SEARCHES = {"greedy": GREEDY, "beam": BEAM, "sample": SAMPLE}
GUEST = " ".join(random.Random(6).choices(WORDS, k=400))
ROOM = {"max_source_length": 600}  # for the guest

Figures = Callable[[str, str], None]

# 20 ways: from one line at a time to thousands, in several orders, with long and short lines apart or together.
MANY = [
    ALONE,
    *(Arrangement(batch_tokens=tokens) for tokens in (600, 1024, 4096, 16_384)),
    *(Arrangement(batch_tokens=tokens, order=order) for tokens in (64 * 20, 4096, 32_768) for order in (1, 2, 3)),
    *(Arrangement(batch_tokens=tokens, order=order, sort=False) for tokens in (1000, 4096) for order in (4, 5)),
    Arrangement(order=6, at_a_time=64),
    Arrangement(order=7, at_a_time=1000, guest=GUEST),
]
FEW = [
    ALONE,
    Arrangement(),
    Arrangement(batch_tokens=140, order=1),
    Arrangement(batch_tokens=1000, order=2, sort=False),
    Arrangement(order=3, at_a_time=7),
    Arrangement(batch_tokens=100_000, order=4, guest=" ".join(GUEST.split()[:100])),
]
CASES = [  # each search with one kind of model; all of both are slow
    (variant, name) if (variant == "modern") == (name == "beam") else slow(variant, name)
    for variant in VARIANTS
    for name in SEARCHES
]


# 1. Logic, in float64.


def logic_differences(translator: Translator, lines: Sequence[str]) -> Iterator[str]:
    """Differences between any arrangement and each line alone, float64's rounding aside."""
    if translator.config.search == "sample":  # which also depends on a line's number
        others = [Arrangement(), Arrangement(batch_tokens=600, sort=False), Arrangement(at_a_time=5)]
    else:
        others = FEW[1:]
    alone = translate_in(ALONE, translator, lines)
    for arrangement in others:
        for difference in differences(lines, alone, translate_in(arrangement, translator, lines), tolerance=1e-11):
            yield f"{arrangement}: {difference}"


LINES = [*sentences(14, seed=3), "", "x"]


@pytest.mark.parametrize(("variant", "search_name"), CASES)
def test_D9_in_float64_company_changes_nothing(variant: str, search_name: str) -> None:
    tokenizer, options = toy_tokenizer(), SEARCHES[search_name]
    model = random_model(tokenizer, config=VARIANTS[variant], dtype=torch.float64)
    translator = translator_of(tokenizer, model=model, **options, **ROOM)
    assert len(set(texts(translator.translate(LINES)))) > 3, "a model that says the same of everything proves nothing"
    assert list(logic_differences(translator, LINES)) == []


def drop_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding is attended to."""
    real = Transformer.source_layout

    def padded(*args: Any) -> PaddedLayout:
        found = real(*args)
        assert found.mask_B11L is not None
        return replace(found, mask_B11L=torch.ones_like(found.mask_B11L))

    monkeypatch.setattr(Transformer, "source_layout", padded)


def share_the_longest_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sentence may become as long as the longest of its batch."""

    def shared(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        return real(replace(request, max_lengths_B=request.max_lengths_B.max().expand(len(request.max_lengths_B))))

    real = greedy_search
    method = replace(search.SEARCHES["greedy"], run=shared)
    monkeypatch.setitem(search.SEARCHES._entries, "greedy", method)


def stop_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence that is done ends its whole batch."""

    real = stepping.read_done_at
    monkeypatch.setattr(stepping, "read_done_at", lambda steps: [max(real(steps))] * len(steps.done_at_B))


def number_samples_by_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample's draws belong to its place in the batch."""

    def by_place(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        return real(replace(request, seeds=[(1, place) for place in range(len(request.seeds))]))

    real = sample
    method = replace(search.SEARCHES["sample"], run=by_place)
    monkeypatch.setitem(search.SEARCHES._entries, "sample", method)


def forget_who_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that go on take the memory of whoever stood there first."""

    def reorder(cache: DecoderCache, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        real(cache, rows_R, None if sentences_B is None else torch.arange(len(sentences_B)))

    real = DecoderCache.reorder
    monkeypatch.setattr(DecoderCache, "reorder", reorder)


@pytest.mark.parametrize(
    ("leak", "options"),
    [
        (drop_the_mask, GREEDY),
        (drop_the_mask, BEAM),
        (share_the_longest_length, GREEDY),
        (stop_with_the_first, GREEDY),
        (stop_with_the_first, BEAM),
        (number_samples_by_place, SAMPLE),
        (forget_who_left, GREEDY),
        (forget_who_left, BEAM),
    ],
)
def test_D9_a_leak_is_noticed(
    leak: Callable[[pytest.MonkeyPatch], None], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = toy_tokenizer()
    leak(monkeypatch)
    translator = translator_of(tokenizer, model=random_model(tokenizer, dtype=torch.float64), **options, **ROOM)
    assert any(logic_differences(translator, LINES))


def let_rounding_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    real = TorchEngine._run
    monkeypatch.setattr(TorchEngine, "_run", lambda engine, request: real(engine, replace(request, near_tie=0.0)))


def coarse_model(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Transformer:
    """A model whose logits are whole numbers, so that many are equal whatever a kernel's last bit says."""
    model = random_model(tokenizer, dtype=torch.float64)
    step = TransformerDecoder.step
    monkeypatch.setattr(TransformerDecoder, "step", lambda self, ids_R, cache: step(self, ids_R, cache).round())
    return model


@pytest.mark.parametrize("options", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_D10_ties_are_decided_alike_in_any_batch(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    let_rounding_decide(monkeypatch)  # by the rule, not by asking for each sentence alone
    tokenizer = toy_tokenizer()
    translator = translator_of(tokenizer, model=coarse_model(tokenizer, monkeypatch), **options, **ROOM)
    assert list(logic_differences(translator, LINES)) == []


def test_D10_a_tie_rule_that_depends_on_the_batch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule under test: in a batch of several, the higher id of equal tokens goes first."""

    def turned(
        beam: Beam, state: SearchState, log_p_RV: Tensor, ranking_RV: None, *, exact: bool
    ) -> tuple[Candidates, Tensor | None, Tensor]:
        if len(state.sentence_index_B) == 1:
            return real(beam, state, log_p_RV, ranking_RV, exact=exact)
        found, is_unsure, is_near_tie_B = real(beam, state, log_p_RV.flip(1), ranking_RV, exact=exact)
        return replace(found, ids_BM=log_p_RV.size(1) - 1 - found.ids_BM), is_unsure, is_near_tie_B

    real = Beam._candidates
    monkeypatch.setattr(Beam, "_candidates", turned)
    let_rounding_decide(monkeypatch)
    tokenizer = toy_tokenizer()
    model = coarse_model(tokenizer, monkeypatch)
    assert any(logic_differences(translator_of(tokenizer, model=model, **BEAM, **ROOM), LINES))


def rough_model(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, *, error: float) -> Transformer:
    """A model whose logits are wrong by up to `error`, in another way for every number of rows, as kernels round."""
    model = random_model(tokenizer, dtype=torch.float64)
    step = TransformerDecoder.step

    def rough(self: TransformerDecoder, ids_R: Tensor, cache: DecoderCache) -> Tensor:
        logits_RV = (step(self, ids_R, cache) * 20).round() / 20  # so that near ties are many
        generator = torch.Generator().manual_seed(len(ids_R))
        return logits_RV + (torch.rand(logits_RV.shape, generator=generator, dtype=torch.float64) * 2 - 1) * error

    monkeypatch.setattr(TransformerDecoder, "step", rough)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("options", [slow(GREEDY), slow(BEAM), {"n_best": 1}], ids=["greedy", "n-best", "beam"])
def test_D8_close_calls_are_made_alone(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, lines = toy_tokenizer(), sentences(24, seed=9)
    model = rough_model(tokenizer, monkeypatch, error=search.NEAR_TIE / 1000)
    translator = translator_of(tokenizer, model=model, **options, **ROOM)

    def turned() -> list[Difference]:
        found = [translate_in(arrangement, translator, lines) for arrangement in FEW[:4]]
        return [difference for other in found for difference in differences(lines, found[0], other, tolerance=1e-3)]

    assert turned() == []
    let_rounding_decide(monkeypatch)
    assert turned(), "without it rounding decides, and differs"


# 2. Text, in float32.


def real_lines(data: Path, n: int) -> list[str]:
    """Captions, short sentences and news in turn, so that the first few are of all kinds."""
    files = ("multi30k/test_2016_flickr", "multi30k/val", "tatoeba_en_de/test", "tatoeba_en_de/valid")
    read = [split_lines((data / f"{file}.en").read_bytes()) for file in (*files, "tatoeba_en_fr/test")]
    news = split_lines((data / "wmt14_en_de" / "newstest2013.en").read_bytes())
    lines = [line.decode() for in_file in [*read, news] for line in in_file]
    random.Random(0).shuffle(lines)
    assert len(lines) >= n
    return lines[:n]


@pytest.fixture(scope="session")
def trained(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Translator]:
    """A translator with a small model that has seen Multi30k for about three minutes.

    It is kept in the folder $TFM_RELIABILITY_CACHE, if that is set.
    """
    cache = os.environ.get("TFM_RELIABILITY_CACHE")
    folder = Path(cache) / "invariance" if cache else tmp_path_factory.mktemp("invariance")
    corpus, run_dir = shared_data / "multi30k", folder / "run"
    run_dir.mkdir(parents=True, exist_ok=True)
    config = TrainConfig(
        model=ModelConfig(n_encoder_layers=2, n_decoder_layers=2, d_model=128, n_heads=4, d_ff=512),
        data=DataConfig(
            source_lang="en",
            target_lang="de",
            train=[str(corpus / "train.en.gz"), str(corpus / "train.de.gz")],
            dev=[str(corpus / "val.en"), str(corpus / "val.de")],
            cache=str(folder / "data"),
            tokenizer=TokenizerConfig(vocab_size=4000),
        ),
        schedule=ScheduleConfig(name="linear", lr=3e-3, warmup_steps=200),
        train=TrainSettings(
            tokens_per_update=1024,
            max_tokens_per_microbatch=1536,
            max_steps=1500,
            eval_every=1500,
            save_every=500,
            eval_lines=100,
            average_last=1,
            keep_last=1,
        ),
    )
    model = read_model(train(config, prepare(config.data), run_dir, device=CPU).model_path)

    def translator(*, dtype: torch.dtype = torch.float32, **options: Any) -> Translator:
        return torch_translator(model.build(CPU).to(dtype), model.tokenizers, DecodeConfig(**options), device=CPU)

    return translator


def report(what: str, lines: Sequence[str], found: Sequence[Sequence[Hypotheses]], figures: Figures) -> int:
    """Write down how many line-translations have another text than in the first arrangement; print each of them."""
    first, *others = found
    differing = [
        difference
        for other in others
        for difference in differences(lines, first, other, tolerance=float("inf"))
        if difference.expected[0][0] != difference.found[0][0]
    ]
    gap = max(score_gap(one[:1], two[:1]) for other in others for one, two in zip(first, other, strict=True))
    figures(
        what, f"{len(differing)} of {len(lines) * len(found):,} line-translations differ; scores by at most {gap:.1e}"
    )
    for difference in differing:
        print(f"{what}: {difference}")
    return len(differing)


@pytest.mark.parametrize("options", [GREEDY, slow({})], ids=["greedy", "beam"])
def test_D8_company_changes_no_text_in_float32(options: dict[str, Any], figures: Figures) -> None:
    tokenizer, lines = toy_tokenizer(), sentences(60, seed=4)
    translator = translator_of(tokenizer, **options, **ROOM)
    found = [translate_in(arrangement, translator, lines) for arrangement in FEW]
    assert len({hypotheses[0][0] for hypotheses in found[0]}) > 30
    assert report("invariance fp32, random model", lines, found, figures) == 0


@pytest.mark.nightly
@pytest.mark.parametrize(("search_name", "n_lines"), [("greedy", 10_000), ("beam", 300)])
def test_D8_company_changes_no_text_of_10_000_real_lines(
    search_name: str, n_lines: int, trained: Callable[..., Translator], shared_data: Path, figures: Figures
) -> None:
    lines = real_lines(shared_data, n_lines)
    translator = trained(**SEARCHES[search_name] | {"n_best": 1}, **ROOM)
    found = [translate_in(arrangement, translator, lines) for arrangement in MANY]
    assert len(found) == 20
    assert len({hypotheses[0][0] for hypotheses in found[0]}) > n_lines // 2
    assert report(f"invariance fp32, {search_name}", lines, found, figures) == 0


# 3. Bits, with decode.batch_invariant.


def kernels() -> dict[str, Callable[[Tensor], Tensor]]:
    """What a search asks of torch, as functions of M rows that are read and written one by one."""
    generator = torch.Generator().manual_seed(0)

    def linear(n_in: int, n_out: int) -> Callable[[Tensor], Tensor]:
        weight, bias = torch.randn(n_out, n_in, generator=generator), torch.randn(n_out, generator=generator)
        return lambda x_MD: F.linear(x_MD, weight, bias)

    def attention(n_queries: int, n_keys: int, n_heads: int, width: int) -> Callable[[Tensor], Tensor]:
        n_q, n_k = n_heads * n_queries * width, n_heads * n_keys * width

        def attend(x_MD: Tensor) -> Tensor:
            q_BHTE, k_BHSE, v_BHSE = (
                part_MD.unflatten(1, (n_heads, -1, width)) for part_MD in x_MD.split([n_q, n_k, n_k], dim=1)
            )
            mask_B11S = k_BHSE[:, :1, :, 0].unsqueeze(2) > -1  # of the row's own making
            return F.scaled_dot_product_attention(q_BHTE, k_BHSE, v_BHSE, mask_B11S).flatten(1)

        attend.n_inputs = n_q + 2 * n_k  # type: ignore[attr-defined]
        return attend

    found: dict[str, Callable[[Tensor], Tensor]] = {
        f"linear {n_in}x{n_out}": linear(n_in, n_out)
        for n_in, n_out in [(32, 96), (34, 51), (128, 384), (128, 4000), (512, 2048), (2048, 512)]
    }
    for n_queries, n_keys, n_heads, width in [
        (1, 1, 4, 8),
        (1, 23, 4, 32),
        (4, 16, 4, 32),
        (16, 16, 2, 17),
        (48, 48, 8, 64),
    ]:
        name = f"attention {n_queries}x{n_keys}x{n_heads}x{width}"
        found[name] = attention(n_queries, n_keys, n_heads, width)
    for name, kernel in {
        "layer norm": lambda x_MD: F.layer_norm(x_MD, x_MD.shape[1:]),
        "rms norm": lambda x_MD: F.rms_norm(x_MD, x_MD.shape[1:]),
        "softmax": lambda x_MD: x_MD.softmax(dim=-1),
        "log-softmax": lambda x_MD: x_MD.log_softmax(dim=-1),
        "gelu": F.gelu,
        "silu": F.silu,
    }.items():
        for n_in in (96, 51, 4001):
            found[f"{name} {n_in}"] = kernel
    return found


def n_inputs(name: str, kernel: Callable[[Tensor], Tensor]) -> int:
    return getattr(kernel, "n_inputs", 0) or int(name.split()[-1].split("x")[0])


def places_that_matter(name: str, kernel: Callable[[Tensor], Tensor], n_rows: int) -> list[int]:
    """The places among `n_rows` in which one row gets other bits than it does in the first one."""
    generator = torch.Generator().manual_seed(n_rows)
    row_D = torch.randn(n_inputs(name, kernel), generator=generator)
    expected, found = None, []
    for place in range(n_rows):
        x_MD = torch.randn(n_rows, len(row_D), generator=generator) * 10 ** (place % 4 - 1)  # other rows each time
        x_MD[place] = row_D
        y_D = kernel(x_MD)[place]
        expected = y_D if expected is None else expected
        if not torch.equal(y_D, expected):
            found.append(place)
    return found


def test_one_thread_gives_a_row_the_same_bits_in_any_place(figures: Figures) -> None:
    with exact.one_thread():
        checked = [
            (name, n_rows, places_that_matter(name, kernel, n_rows))
            for name, kernel in kernels().items()
            for n_rows in (exact.BATCH_SIZE,)
        ]
    assert len(checked) > 25
    assert [case for case in checked if case[2]] == []
    figures("row independence, 1 thread", f"{len(checked)} kernels and shapes, 0 depend on the index or the other rows")


@pytest.mark.nightly
def test_with_two_threads_some_kernels_ask_for_the_place(figures: Figures) -> None:
    """Why decode.batch_invariant uses one: nothing is promised here but that the figure is written down."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        checked = [(name, places_that_matter(name, kernel, exact.BATCH_SIZE)) for name, kernel in kernels().items()]
    finally:
        torch.set_num_threads(before)
    dependent = [name for name, places in checked if places]
    assert len(checked) > 20
    figures(
        "row independence, 2 threads", f"{len(dependent)} of {len(checked)} kernels depend on the place: {dependent}"
    )


def test_a_softmax_gives_a_row_the_same_bits_among_any_number() -> None:
    """It alone is asked for by the search, which knows nothing of fillers."""
    row_V = torch.randn(4001, generator=torch.Generator().manual_seed(1))
    with exact.one_thread():
        for n_rows in (1, 2, 5, 13, 32, 100):
            x_RV = row_V.repeat(n_rows, 1)
            assert x_RV.log_softmax(dim=-1)[-1].equal(row_V[None].log_softmax(dim=-1)[0])
            assert x_RV.softmax(dim=-1)[-1].equal(row_V[None].softmax(dim=-1)[0])


def bits(found: Sequence[Hypotheses]) -> list[list[tuple[str, str]]]:
    return [[(text, score.hex()) for text, score in hypotheses] for hypotheses in found]


EXACT = [arrangement for arrangement in FEW if arrangement.sort]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "search_name"), CASES)
def test_D9_exact_scores_are_equal_to_the_last_bit(variant: str, search_name: str) -> None:
    options = SEARCHES[search_name]
    tokenizer, lines = toy_tokenizer(), [*sentences(8, seed=5), *sentences(2, seed=6, longest=30), "", "x"]
    model = random_model(tokenizer, config=VARIANTS[variant])
    translator = translator_of(tokenizer, model=model, batch_invariant=True, **options, **ROOM)
    expected = [translator.translate([line], first_line=n)[0].hypotheses for n, line in enumerate(lines, start=1)]
    for arrangement in EXACT:
        if arrangement.order is None or translator.config.search != "sample":
            assert bits(translate_in(arrangement, translator, lines)) == bits(expected), arrangement
    torch.set_num_threads(2)
    try:
        assert bits(translate_in(Arrangement(), translator, lines)) == bits(expected), "another number of threads"
        assert torch.get_num_threads() == 2, "left as it was"
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_exact_translations_are_the_usual_ones(options: dict[str, Any]) -> None:
    tokenizer, lines = toy_tokenizer(), [*sentences(40, seed=5), "", "the cat . " * 40]
    model = random_model(tokenizer, dtype=torch.float64)
    usual, exactly = (
        translator_of(tokenizer, model=model, batch_invariant=wanted, max_source_length=30, **options).translate(lines)
        for wanted in (False, True)
    )
    assert texts(exactly) == texts(usual)
    for one, other in zip(usual, exactly, strict=True):
        assert score_gap(one.hypotheses, other.hypotheses) < 1e-11
        assert (one.split, one.cut, one.hit_limit) == (other.split, other.cut, other.hit_limit)


def test_without_exact_some_bits_differ() -> None:
    """The tests above would otherwise hold whatever tfm does."""
    tokenizer, lines = toy_tokenizer(), sentences(40, seed=5)
    translator = translator_of(tokenizer, **GREEDY)
    assert bits(translate_in(ALONE, translator, lines)) != bits(translate_in(Arrangement(), translator, lines))


def test_a_search_that_shrinks_its_batch_is_noticed_by_its_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = toy_tokenizer()
    translator = translator_of(tokenizer, batch_invariant=True)
    seen: set[tuple[int, int]] = set()
    step = engine_of(translator).decoder.step

    def spy(ids_R: Tensor, cache: DecoderCache) -> Tensor:
        seen.add((len(ids_R), len(cache.keys_GHME[0])))
        return step(ids_R, cache)

    monkeypatch.setattr(engine_of(translator).decoder, "step", spy)
    translator.translate(sentences(30, seed=5, longest=8))  # all in the first bucket: 16 tokens with EOS
    assert seen == {(exact.batch_size_of(16) * 4, exact.batch_size_of(16))}  # rows, and families that share their keys


def test_exact_is_refused_where_it_is_not_proved() -> None:
    with pytest.raises(
        ConfigError, match=r"decode\.batch_invariant=true: not proved on device=cuda\. Choose device=cpu"
    ):
        translator_of(toy_tokenizer(), batch_invariant=True, device="cuda")
    unaligned = random_model(toy_tokenizer(), config=replace(PLAIN, d_v=7))
    with pytest.raises(
        ConfigError, match=r"decode\.batch_invariant=true: not proved for .* model\.n_heads × model\.d_v is 28"
    ):
        translator_of(toy_tokenizer(), model=unaligned, batch_invariant=True)


@pytest.mark.nightly
@pytest.mark.parametrize(("search_name", "n_lines"), [("greedy", 2000), ("beam", 200)])
def test_D9_exact_scores_of_real_lines_are_equal_to_the_last_bit(
    search_name: str, n_lines: int, trained: Callable[..., Translator], shared_data: Path, figures: Figures
) -> None:
    lines = real_lines(shared_data, n_lines)
    translator = trained(batch_invariant=True, **SEARCHES[search_name], **ROOM)
    arrangements = [
        Arrangement(),
        Arrangement(order=1),
        Arrangement(batch_tokens=1, order=2, at_a_time=100),
        Arrangement(batch_tokens=100_000, order=3, guest=GUEST),
    ]
    found = [bits(translate_in(arrangement, translator, lines)) for arrangement in arrangements]
    few = range(0, n_lines, 50)
    alone = [bits([translator.translate([lines[i]])[0].hypotheses])[0] for i in few]
    differing = sum(one != other for each in found[1:] for one, other in zip(found[0], each, strict=True))
    differing += sum(found[0][i] != one for i, one in zip(few, alone, strict=True))
    n = n_lines * len(found) + len(alone)
    figures(f"exact scores, {search_name}", f"{differing} of {n:,} line-translations differ in a bit")
    assert differing == 0


# 4. Scores.


def forced_score(model: Transformer, tokenizer: Tokenizer, line: str, hypothesis: Hypothesis) -> float:
    """What the model says of these ids when it reads them all at once."""
    source_BS = torch.tensor([[*tokenizer.encode([line])[0], tokenizer.eos_id]])
    ids = [*hypothesis.ids, *([tokenizer.eos_id] if hypothesis.finished else [])]
    with torch.no_grad():
        logits_TV = model(source_BS, torch.tensor([[tokenizer.bos_id, *ids[:-1]]]))[0]
    log_p_TV = logits_TV.log_softmax(dim=-1)
    log_prob = log_p_TV[range(len(ids)), ids].double().sum().item()
    return log_prob / ((5 + len(ids)) / 6) ** 0.6


def score_gaps(translator: Translator, lines: Sequence[str]) -> list[float]:
    """Differences between the score of each hypothesis, found in a batch, and its score by forced decoding."""
    found: dict[int, list[Hypothesis]] = {}

    def spy(request: SearchRequest[Any]) -> list[list[Hypothesis]]:
        results = real(request)
        found.update({seed[1] - 1: hypotheses for seed, hypotheses in zip(request.seeds, results, strict=True)})
        return results

    real = replace_search(translator, spy)
    results = translator.translate(lines)
    target, model = translator.tokenizers.target, engine_of(translator).model
    for i, hypotheses in found.items():
        assert results[i].hypotheses == [(target.decode(h.ids), h.score) for h in hypotheses]
    return [
        abs(hypothesis.score - forced_score(model, translator.tokenizers.source, lines[i], hypothesis))
        for i, hypotheses in found.items()
        for hypothesis in hypotheses
    ]


@pytest.mark.parametrize(("dtype", "tolerance"), [slow(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize(("variant", "search_name"), CASES)
def test_a_score_is_that_of_forced_decoding(
    variant: str, search_name: str, dtype: torch.dtype, tolerance: float
) -> None:
    options = SEARCHES[search_name]
    tokenizer, lines = toy_tokenizer(), sentences(8, seed=9)
    for seed in (1, 2):
        model = random_model(tokenizer, config=VARIANTS[variant], dtype=dtype, seed=seed, gain=1)
        for wanted in (False, True):
            gaps = score_gaps(translator_of(tokenizer, model=model, batch_invariant=wanted, **options), lines)
            assert len(gaps) == len(lines) * options.get("n_best", 1)
            assert max(gaps) < tolerance


@pytest.mark.nightly
@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_scores_of_real_lines_are_those_of_forced_decoding(
    options: dict[str, Any], trained: Callable[..., Translator], shared_data: Path, figures: Figures
) -> None:
    gaps = score_gaps(trained(**options), real_lines(shared_data, 500))
    figures(f"forced decoding, {options.get('search', 'beam')}", f"{len(gaps):,} scores, gap at most {max(gaps):.1e}")
    assert max(gaps) < 1e-5


# 5. Threads and precisions: written down, not promised.


@pytest.mark.nightly
def test_D22_threads_and_precisions_agree_on_nearly_every_line(
    trained: Callable[..., Translator], shared_data: Path, figures: Figures
) -> None:
    lines = real_lines(shared_data, 1000)
    expected = texts(trained().translate(lines))
    in_bf16 = texts(trained(dtype=torch.bfloat16).translate(lines[:200]))
    torch.set_num_threads(2)
    try:
        by_two = texts(trained().translate(lines))
    finally:
        torch.set_num_threads(1)
    n_equal = sum(one == other for one, other in zip(expected, by_two, strict=True))
    n_bf16 = sum(one == other for one, other in zip(expected, in_bf16, strict=False))
    figures("1 and 2 threads, beam 4", f"{n_equal:,} of {len(lines):,} texts are equal")
    figures("fp32 and bf16 on CPU, beam 4", f"{n_bf16} of {len(in_bf16)} texts are equal")
    assert n_equal >= 0.999 * len(lines)
    assert n_bf16 > 0
