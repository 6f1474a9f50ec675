"""Lines to lines, with a small random Transformer: what matters is that its translation of a line never changes."""

import logging
import random
import re
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy_translator import (
    GREEDY,
    MARKS,
    SAMPLE,
    WORDS,
    random_model,
    sentences,
    texts,
    toy_tokenizer,
    translator_of,
)
from transformer_cli.data.tokenizer import Tokenizer
from transformer_cli.decoding import long_lines, translator
from transformer_cli.decoding.search import Hypothesis, Task
from transformer_cli.decoding.translator import Piece, Translated, Translator, batches, named
from transformer_cli.models.transformer import DecoderCache
from transformer_cli.schema import LongLines

BLANK = ["", " ", "\t", "\u00a0", "\u3000", " \t\u2003\r"]
ODD = [
    "\u2028",
    "a\u0085b",
    "x\vy\fz",
    "\x00",
    "</s>",
    "<pad>",
    "🙂",
    "\ufeff",
    "\ufffd",
    "שלום",
    "e\u0301",
    "\x1b[31m",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return toy_tokenizer()


def asked_lengths(watched: Translator) -> list[list[int]]:
    """Fills with the longest lengths that `watched` allows, batch by batch."""
    search, lengths = watched.search, []

    def spy(task: Task[DecoderCache]) -> list[list[Hypothesis]]:
        lengths.append(task.max_lengths_B.tolist())
        return search(task)

    watched.search = spy
    return lengths


@pytest.mark.parametrize("options", [GREEDY, {}, SAMPLE], ids=["greedy", "beam", "sample"])
def test_D1_every_line_gets_one_line(tokenizer: Tokenizer, options: dict[str, object]) -> None:
    lines = [*ODD, *BLANK, *sentences(5, seed=1), "never seen: ½ Ω", "x" * 500]
    results = translator_of(tokenizer, max_source_length=40, **options).translate(lines)
    assert len(results) == len(lines)
    assert all(len(re.split("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", result.text)) == 1 for result in results)


def test_D2_blank_lines_stay_blank_and_never_meet_the_model(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    blank = translator_of(tokenizer, n_best=3)
    monkeypatch.setattr(blank.model, "start", None)  # calling it would raise
    done: list[int] = []
    assert blank.translate(BLANK, on_progress=done.append) == [Translated([("", 0.0)])] * len(BLANK)
    assert sum(done) == len(BLANK)


def test_D6_nothing_in_is_nothing_out(tokenizer: Tokenizer) -> None:
    assert translator_of(tokenizer).translate([]) == []


@pytest.mark.parametrize("options", [GREEDY, {"n_best": 2}], ids=["greedy", "beam"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_D7_shuffled_lines_give_shuffled_translations(
    tokenizer: Tokenizer, dtype: torch.dtype, options: dict[str, object]
) -> None:
    lines = [*sentences(40, seed=2), *BLANK, *ODD]
    translate = translator_of(tokenizer, model=random_model(tokenizer, dtype=dtype), **options).translate
    results = translate(lines)
    expected = texts(results)
    assert len(set(expected)) > 25, "a model that says the same of everything proves nothing"
    assert 5 < sum(result.hit_limit for result in results) < 45, "and so does one that never ends, or never goes on"
    order = random.Random(3).sample(range(len(lines)), k=len(lines))
    assert texts(translate([lines[i] for i in order])) == [expected[i] for i in order]


@pytest.mark.parametrize("options", [GREEDY, {"n_best": 4}, SAMPLE], ids=["greedy", "beam", "sample"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_D8_the_batch_size_changes_no_translation(
    tokenizer: Tokenizer, dtype: torch.dtype, tolerance: float, options: dict[str, object]
) -> None:
    lines, model = sentences(40, seed=4), random_model(tokenizer, dtype=dtype)
    by_tokens = translator_of(tokenizer, model=model, **options).translate(lines)
    for batch_tokens in (1, 7 * 15 * 4):  # one line each, and about seven
        others = translator_of(tokenizer, model=model, batch_tokens=batch_tokens, **options).translate(lines)
        for one, other in zip(by_tokens, others, strict=True):
            assert [text for text, _ in one.hypotheses] == [text for text, _ in other.hypotheses]
            scores = [score for _, score in other.hypotheses]
            assert [score for _, score in one.hypotheses] == pytest.approx(scores, abs=tolerance)


@pytest.mark.parametrize("options", [GREEDY, {}], ids=["greedy", "beam"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_D9_neighbours_change_no_translation(
    tokenizer: Tokenizer, dtype: torch.dtype, options: dict[str, object]
) -> None:
    lines = sentences(12, seed=5)
    long_line = " ".join(random.Random(6).choices(WORDS, k=200))
    model = random_model(tokenizer, dtype=dtype)
    translate = translator_of(
        tokenizer, model=model, max_source_length=2000, batch_tokens=1_000_000, **options
    ).translate
    alone = [translate([line])[0].text for line in lines]
    assert texts(translate(lines)) == alone
    assert texts(translate([*lines, long_line]))[:-1] == alone


@pytest.mark.parametrize("options", [GREEDY, {"n_best": 4}], ids=["greedy", "beam"])
def test_D10_two_runs_are_equal(tokenizer: Tokenizer, options: dict[str, object]) -> None:
    lines = sentences(20, seed=7)
    assert translator_of(tokenizer, **options).translate(lines) == translator_of(tokenizer, **options).translate(lines)


def test_D11_beam_one_is_greedy(tokenizer: Tokenizer) -> None:
    lines = sentences(30, seed=8)
    assert translator_of(tokenizer, beam_size=1).translate(lines) == translator_of(tokenizer, **GREEDY).translate(lines)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [GREEDY, {"n_best": 4}, SAMPLE], ids=["greedy", "beam", "sample"])
def test_D22_a_gpu_translates_like_a_cpu(tokenizer: Tokenizer, options: dict[str, object]) -> None:
    lines, model = sentences(40, seed=14), random_model(tokenizer, dtype=torch.float64)
    on_cpu = translator_of(tokenizer, model=model, **options).translate(lines)
    on_gpu = translator_of(tokenizer, model=model.cuda(), device="cuda", **options).translate(lines)
    assert texts(on_gpu) == texts(on_cpu)


def test_D12_a_translation_without_end_is_flagged(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = translator_of(tokenizer, **GREEDY)
    step = endless.model.step

    def never_ends(ids_R: torch.Tensor, cache: object) -> torch.Tensor:
        return step(ids_R, cache).index_fill(1, torch.tensor([tokenizer.eos_id]), -1e9)

    monkeypatch.setattr(endless.model, "step", never_ends)
    assert [result.hit_limit for result in endless.translate(["the cat", ""])] == [True, False]


def test_D12_one_part_without_end_flags_its_line(tokenizer: Tokenizer) -> None:
    lines = ["the cat. the milk.", "the cat."]
    parts = translator_of(tokenizer, max_source_length=len(tokenizer.encode(lines)[0]) - 1)

    def only_the_first_part_ends(task: Task[DecoderCache]) -> list[list[Hypothesis]]:
        return [[Hypothesis([], -1.0, -1.0, finished=part == 0)] for _, _, part in task.seeds]

    parts.search = only_the_first_part_ends
    results = parts.translate(lines)
    assert [(result.split, result.hit_limit) for result in results] == [(True, True), (False, False)]


def test_a_translation_is_at_most_so_much_longer_than_its_source(tokenizer: Tokenizer) -> None:
    short = translator_of(tokenizer, max_extra_length=3, beam_size=2)
    lengths = asked_lengths(short)
    short.translate(["the cat sat", "the cat"])
    n_tokens = [len(ids) for ids in tokenizer.encode(["the cat sat", "the cat"])]
    assert lengths == [[n + 1 + 3 for n in n_tokens]]  # both with EOS


def test_samples_depend_on_seed_and_line_number_alone(tokenizer: Tokenizer) -> None:
    lines = sentences(10, seed=10)
    model = random_model(tokenizer, dtype=torch.float64)
    together = translator_of(tokenizer, model=model, **SAMPLE).translate(lines)
    in_turn = [
        translator_of(tokenizer, model=model, **SAMPLE).translate([line], first_line=number)[0]
        for number, line in enumerate(lines, start=1)
    ]
    assert texts(together) == texts(in_turn)
    assert texts(together) != texts(translator_of(tokenizer, model=model, seed=2, **SAMPLE).translate(lines))


def test_n_best_are_as_many_as_asked(tokenizer: Tokenizer) -> None:
    for result in translator_of(tokenizer, beam_size=5, n_best=5).translate(sentences(10, seed=11)):
        assert len(result.hypotheses) == 5
        assert len({score for _, score in result.hypotheses}) == 5
        assert result.text == result.hypotheses[0][0]


def test_training_goes_on_in_training_mode(tokenizer: Tokenizer) -> None:
    model = random_model(tokenizer).train()
    in_training = translator_of(tokenizer, model=model)
    assert texts(in_training.translate(["the cat"])) == texts(translator_of(tokenizer).translate(["the cat"]))
    assert model.training


def test_progress_counts_every_line_once(tokenizer: Tokenizer) -> None:
    lines = [*sentences(20, seed=12), "", "the cat . the milk . " * 20]
    done: list[int] = []
    translator_of(tokenizer, max_source_length=20, batch_tokens=200).translate(lines, on_progress=done.append)
    assert sum(done) == len(lines)
    assert done[0] == 1, "the blank one needs no search"


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(translator.LOGGER, "propagate", True)  # the command line may have turned it off
    caplog.set_level(logging.WARNING, logger="tfm")
    return caplog


def test_D5_a_long_line_is_split_at_sentence_ends_and_nothing_is_lost(
    tokenizer: Tokenizer, warnings: pytest.LogCaptureFixture
) -> None:
    parts = ["the cat drank the milk.", "Was it very comfortable?!", "she sat down in her chair."]
    lines = ["the cat", " ".join(parts), "", "a woman sat"]
    split = translator_of(tokenizer, max_source_length=max(map(len, tokenizer.encode(parts))), n_best=2)
    results = split.translate(lines, first_line=101)
    alone = [split.translate([part])[0] for part in parts]
    for n in range(2):
        ranked = [result.hypotheses[n] for result in alone]
        assert results[1].hypotheses[n][0] == " ".join(text for text, _ in ranked if text)
        assert results[1].hypotheses[n][1] == pytest.approx(sum(score for _, score in ranked), abs=1e-4)
    assert [result.split for result in results] == [False, True, False, False]
    assert not any(result.cut for result in results)
    (warning,) = warnings.messages
    assert re.fullmatch(r"line 102: longer than decode\.max_source_length=\d+ tokens, translated in parts", warning)


def test_D5_a_long_line_is_cut_when_asked_and_named(tokenizer: Tokenizer, warnings: pytest.LogCaptureFixture) -> None:
    cut = translator_of(tokenizer, max_source_length=4, max_extra_length=0, long_lines=LongLines.cut)
    lengths = asked_lengths(cut)
    results = cut.translate(["the cat", "the cat sat down in her chair", "it", "a woman drank and sat"])
    assert lengths[0][:2] == [4 + 1, 4 + 1]
    assert [result.cut for result in results] == [False, True, False, True]
    assert not any(result.split for result in results)
    (warning,) = warnings.messages
    assert warning == (
        "lines 2, 4: longer than decode.max_source_length=4 tokens,"
        " the rest is left out; decode.long_lines=split translates all"
    )


def test_D5_a_warning_names_ten_lines_and_counts_the_rest() -> None:
    assert named([3]) == "line 3"
    assert named([3, 8]) == "lines 3, 8"
    assert named(range(1, 84)) == "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 73 more"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four… Five", ["One.", "Two!", "Three?", "Four…", "Five"]),
        ("Pi is 3.14 exactly. Or so.", ["Pi is 3.14 exactly.", "Or so."]),
        (
            'He said "Go." Then (he left.) And so on...  End',
            ['He said "Go."', "Then (he left.)", "And so on...", "End"],
        ),
        ("Wirklich?! Ja!!! «Gut.» Ende", ["Wirklich?!", "Ja!!!", "«Gut.»", "Ende"]),
        ("今日は。明日は?！「はい。」終わり", ["今日は。", "明日は?！", "「はい。」", "終わり"]),
        ("まさか。。。はい！！", ["まさか。。。", "はい！！"]),
        ("no end", ["no end"]),
        (" . ", ["."]),
        ("   ", []),
    ],
)
def test_sentences_end_where_a_reader_says(text: str, expected: list[str]) -> None:
    assert long_lines.sentences(text) == expected


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=f"{MARKS}\u2028\t"), max_tokens=st.integers(2, 9))
def test_parts_of_a_line_hold_all_of_it(tokenizer: Tokenizer, text: str, max_tokens: int) -> None:
    parts = long_lines.split_line(text, tokenizer, max_tokens=max_tokens)
    assert all(1 <= len(part) <= max_tokens for part in parts)
    held = "".join(tokenizer.decode(part) for part in parts)
    assert "".join(held.split()) == "".join(text.split())


def test_a_sentence_is_cut_between_words_where_it_can_be() -> None:
    pieces = ["▁a", "▁b", "c", "d", "▁e", "f", "g", "h", "i"]
    assert long_lines.cut_at_words(range(9), pieces, max_tokens=3) == [[0], [1, 2, 3], [4, 5, 6], [7, 8]]
    assert long_lines.cut_at_words(range(9), pieces, max_tokens=4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert long_lines.cut_at_words(range(9), pieces, max_tokens=9) == [list(range(9))]
    assert long_lines.cut_at_words([], [], max_tokens=3) == []


@pytest.mark.parametrize("text", ["." * 300_000, '."' * 150_000, "。" * 300_000, ". " * 150_000, " " * 300_000])
def test_hostile_lines_are_split_in_no_time(text: str) -> None:
    start = time.perf_counter()
    long_lines.sentences(text)
    assert time.perf_counter() - start < 2


def test_batches_keep_to_their_cells_and_lose_nothing() -> None:
    chooser = random.Random(13)
    pieces = [Piece(line, 0, [7] * chooser.randint(1, 60)) for line in range(300)]
    found = list(batches(pieces, max_cells=500))
    assert sorted(piece.line for batch in found for piece in batch) == list(range(300))
    assert all(len(batch) * (max(len(piece.ids) for piece in batch) + 1) <= 500 for batch in found)
    assert [len(batch) for batch in batches(pieces, max_cells=0)] == [1] * 300


@pytest.mark.parametrize("options", [GREEDY, {}], ids=["greedy", "beam"])
def test_D8_real_text_is_translated_alike_in_any_batch(
    tokenizer: Tokenizer, shared_data: Path, options: dict[str, object]
) -> None:
    lines = (shared_data / "multi30k" / "test_2016_flickr.en").read_bytes().decode().split("\n")[:40]
    model = random_model(tokenizer)
    expected = texts(translator_of(tokenizer, model=model, **options).translate(lines))
    assert texts(translator_of(tokenizer, model=model, batch_tokens=300, **options).translate(lines)) == expected
