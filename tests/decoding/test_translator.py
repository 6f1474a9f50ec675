"""Lines to lines, with a small random Transformer: what matters is that its translation of a line never changes."""

import logging
import random
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import slow
from tests.support.each import each
from tests.toy.translator import (
    GREEDY,
    MARKS,
    SAMPLE,
    VARIANTS,
    engine_of,
    random_model,
    replace_search,
    sentences,
    texts,
    toy_tokenizer,
    translator_of,
)
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.decode import DecodeConfig, LongLines
from transformer_cli.data.sentences import has_several, split_sentences
from transformer_cli.data.tokenizer import Tokenizer, train_tokenizer
from transformer_cli.decoding import segmentation as long_lines
from transformer_cli.decoding.plan import Segment, named
from transformer_cli.decoding.postprocess import written_ids
from transformer_cli.decoding.results import Candidate, Translated, TranslateOptions
from transformer_cli.decoding.search import Constraints, Hypothesis, SearchRequest
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.decoding.torch_engine import batches
from transformer_cli.decoding.training_text import TrainingText
from transformer_cli.decoding.translator import Translator
from transformer_cli.errors import DataError
from transformer_cli.inference.kv_cache import DecoderCache
from transformer_cli.logs import LOGGER

BLANK = ["", " ", "\t", "\u00a0", "\u3000", " \t\u2003\r"]
ODD = [
    *("\u2028", "a\u0085b", "x\vy\fz", "\x00", "</s>", "<pad>", "🙂", "\ufeff", "\ufffd", "שלום", "e\u0301"),
    "\x1b[31m",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return toy_tokenizer()


def asked_lengths(watched: Translator) -> list[list[int]]:
    """Fills with the longest lengths that `watched` allows, batch by batch."""
    lengths: list[list[int]] = []

    def spy(request: SearchRequest[DecoderCache]) -> list[list[Hypothesis]]:
        lengths.append(request.max_lengths_B.tolist())
        return search(request)

    search = replace_search(watched, spy)
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
    monkeypatch.setattr(engine_of(blank).decoder, "start", None)  # calling it would raise
    done: list[int] = []
    assert blank.translate(BLANK, on_progress=done.append) == [Translated([Candidate("", 0.0)])] * len(BLANK)
    assert sum(done) == len(BLANK)


def test_D6_nothing_in_is_nothing_out(tokenizer: Tokenizer) -> None:
    assert translator_of(tokenizer).translate([]) == []


@each("options", [GREEDY, {"n_best": 2}])
@each("dtype", [torch.float32, torch.float64])
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
    step = engine_of(endless).decoder.step

    def never_ends(ids_R: torch.Tensor, cache: object) -> torch.Tensor:
        return step(ids_R, cache).index_fill(1, torch.tensor([tokenizer.eos_id]), -1e9)

    monkeypatch.setattr(engine_of(endless).decoder, "step", never_ends)
    assert [result.hit_limit for result in endless.translate(["the cat", ""])] == [True, False]


def test_D12_one_part_without_end_flags_its_line(tokenizer: Tokenizer) -> None:
    lines = ["the cat. the milk.", "the cat."]
    parts = translator_of(tokenizer, max_source_length=len(tokenizer.encode(lines)[0]) - 1)

    def only_the_first_part_ends(request: SearchRequest[DecoderCache]) -> list[list[Hypothesis]]:
        return [[Hypothesis([], -1.0, -1.0, finished=part == 0)] for _, _, part in request.seeds]

    replace_search(parts, only_the_first_part_ends)
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
    monkeypatch.setattr(LOGGER, "propagate", True)  # the command line may have turned it off
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


@each(
    "text, expected",
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
    assert split_sentences(text, "en") == expected


@each(
    "language, text, expected",
    [
        (
            "en",
            "Dr. Smith met Mr. J. R. Jones on Jan. 5, 2020. He left.",
            ["Dr. Smith met Mr. J. R. Jones on Jan. 5, 2020.", "He left."],
        ),
        ("en_GB", "See No. 5 there. Oh no. He left.", ["See No. 5 there.", "Oh no.", "He left."]),
        (
            "en",
            "Visit www.x.org/a.b?q=1. It costs 3.14, e.g. Today.",
            ["Visit www.x.org/a.b?q=1.", "It costs 3.14, e.g. Today."],
        ),
        ("en", "The U.S. President came. So did I.", ["The U.S. President came.", "So did I."]),
        ("en", '"Really?!" she asked. "Yes."', ['"Really?!" she asked.', '"Yes."']),
        ("en", "1. Open it. 2. Close it.", ["1. Open it.", "2. Close it."]),
        ("en", "all in small letters. no capitals here.", ["all in small letters.", "no capitals here."]),
        ("de", "Am 5. Mai 2020. Er ging z.B. nach Haus.", ["Am 5. Mai 2020.", "Er ging z.B. nach Haus."]),
        ("cs", "Byl 3. Ledna doma. Dnes ne.", ["Byl 3. Ledna doma.", "Dnes ne."]),
        ("fr", "« Bonjour. » Il part. Quoi ? Oui !", ["« Bonjour. »", "Il part.", "Quoi ?", "Oui !"]),
        ("es", "¿Qué? ¡No! El Sr. Paz.", ["¿Qué?", "¡No!", "El Sr. Paz."]),
        ("ru", "А. С. Пушкин родился. Он умер.", ["А. С. Пушкин родился.", "Он умер."]),
        ("ja", "「はい。」と言った。そう！", ["「はい。」と言った。", "そう！"]),
        ("zh-Hans", "你好。再见！（完。）好", ["你好。", "再见！", "（完。）", "好"]),
        ("hi", "यह है। वह है।", ["यह है।", "वह है।"]),
        ("ar", "كيف حالك؟ بخير.", ["كيف حالك؟", "بخير."]),
        ("xx", "Dr. Who. He.", ["Dr. Who.", "He."]),
    ],
)
def test_abbreviations_and_numbers_end_no_sentence(language: str, text: str, expected: list[str]) -> None:
    assert split_sentences(text, language) == expected


@each("text", ["今日は。明日は?！「はい。」終わり", "J. R. came. He left.", "no end", "a\u2028b. C", "1. One"])
def test_a_line_has_several_sentences_if_it_is_split_into_several(text: str) -> None:
    assert has_several(text, "en") is (len(split_sentences(text, "en")) > 1)


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=f"{MARKS}\u2028\t"), max_tokens=st.integers(2, 9))
def test_parts_of_a_line_hold_all_of_it(tokenizer: Tokenizer, text: str, max_tokens: int) -> None:
    parts = long_lines.split_line(text, tokenizer, max_tokens=max_tokens, language="en")
    assert all(1 <= len(part.ids) <= max_tokens for part in parts)
    for held in ("".join(tokenizer.decode(part.ids) for part in parts), "".join(part.text for part in parts)):
        assert "".join(held.split()) == "".join(text.split())


def test_sentences_are_packed_into_as_few_parts_as_there_is_room_for(tokenizer: Tokenizer) -> None:
    each = [
        "The cat sat.",
        "A woman drank.",
        "It was milk.",
        "And her chair, in the cat, it was a pretty woman and milk.",
    ]
    lengths = [len(ids) for ids in tokenizer.encode(each)]
    room = lengths[0] + lengths[1]
    assert lengths[1] + lengths[2] <= room < min(lengths[0] + lengths[1] + lengths[2], lengths[3])
    parts = long_lines.split_line(" ".join(each), tokenizer, max_tokens=room, language="en")
    assert [part.text for part in parts[:2]] == ["The cat sat. A woman drank.", "It was milk."]
    assert all(part.text.endswith(",") for part in parts[2:-1]), "a sentence that is too long is divided behind clauses"
    assert [part.ids for part in parts] == tokenizer.encode([part.text for part in parts])


IN_SENTENCES = TrainingText(source_lang="en", target_lang="fr", multi_sentence_share=0.01)


@each(
    "text, options, n_parts",
    [
        (IN_SENTENCES, {}, [2, 1, 0, 1]),
        (replace(IN_SENTENCES, multi_sentence_share=0.5), {}, [1, 1, 0, 1]),
        (TrainingText(), {}, [1, 1, 0, 1]),  # a file that does not say
        (TrainingText(), {"split_sentences": True}, [2, 1, 0, 1]),
        (IN_SENTENCES, {"split_sentences": False}, [1, 1, 0, 1]),
    ],
)
def test_a_line_of_several_sentences_is_split_for_a_model_of_single_ones(
    tokenizer: Tokenizer, text: TrainingText, options: dict[str, Any], n_parts: list[int]
) -> None:
    lines = ["The cat sat. A woman drank milk.", "The cat sat.", "", "it was her chair"]
    model = random_model(tokenizer)
    given = translator_of(tokenizer, model=model, text=text, n_best=2, **options)
    results = given.translate(lines)
    assert [result.n_parts for result in results[:2]] == n_parts[:2]
    assert not any(result.split or result.cut for result in results)
    if n_parts[0] == 2:
        alone = translator_of(tokenizer, model=model, n_best=2).translate(["The cat sat.", "A woman drank milk."])
        assert results[0].text == " ".join(result.text for result in alone)
        prefix = written_ids("her chair", tokenizer)
        assert prefix is not None
        assert given.room(lines)[0] == len(tokenizer.encode(["The cat sat."])[0]) + 6
        (begun,) = given.translate(lines[:1], prefixes=[prefix])
        assert begun.text.startswith("her chair")
        assert begun.text.endswith(alone[1].text), "a prefix is for the first part"


@each(
    "text, options, n_parts",
    [
        (replace(IN_SENTENCES, multi_sentence_share=0.5), {}, 2),
        (TrainingText(), {"split_sentences": False}, 2),
        (TrainingText(), {}, 4),  # as before model files described their training text
        (IN_SENTENCES, {}, 4),
    ],
)
def test_a_long_line_is_packed_only_for_a_model_that_has_met_several_sentences(
    tokenizer: Tokenizer, text: TrainingText, options: dict[str, Any], n_parts: int
) -> None:
    line = " ".join(["The cat sat."] * 4)
    room = 2 * len(tokenizer.encode(["The cat sat."])[0])
    (result,) = translator_of(tokenizer, text=text, max_source_length=room, **options).translate([line])
    assert result.n_parts == n_parts


def test_parts_are_joined_as_the_language_writes_them(tokenizer: Tokenizer) -> None:
    lines, model = ["The cat sat. A woman drank milk."], random_model(tokenizer)
    options = TranslateOptions(alignments=True, token_scores=True)
    spaced = translator_of(tokenizer, model=model, text=IN_SENTENCES, options=options).translate(lines)[0]
    japanese = replace(IN_SENTENCES, target_lang="ja")
    (joined,) = translator_of(tokenizer, model=model, text=japanese, options=options).translate(lines)
    assert joined.text.replace(" ", "") == spaced.text.replace(" ", "")
    assert len(joined.text) == len(spaced.text) - 1
    assert joined.alignment is not None
    assert [j for _, j in joined.alignment] == list(range(len(joined.text.split())))


def test_the_longest_source_is_what_the_model_was_trained_on(
    tokenizer: Tokenizer, warnings: pytest.LogCaptureFixture
) -> None:
    (ids,) = tokenizer.encode(["the cat drank milk"])
    fits, short = TrainingText(max_length=len(ids) + 1), TrainingText(max_length=len(ids))
    assert not translator_of(tokenizer, text=fits).translate(["the cat drank milk"])[0].split
    assert warnings.messages == []
    assert translator_of(tokenizer, text=short).translate(["the cat drank milk"])[0].split
    assert warnings.messages == [f"line 1: longer than the model's {len(ids) - 1} tokens, translated in parts"]
    assert not translator_of(tokenizer, text=short, max_source_length=99).translate(["the cat drank milk"])[0].split
    assert TrainingText().longest_source(DecodeConfig()) == 256
    table = TrainingText(max_length=500, max_positions=300)
    assert table.longest_source(DecodeConfig()) == table.longest_source(DecodeConfig(max_source_length=400)) == 299


def test_a_table_of_positions_ends_a_translation(tokenizer: Tokenizer) -> None:
    model = random_model(tokenizer, config=replace(VARIANTS["learned"], max_positions=10))
    text = TrainingText(max_length=10, max_positions=10)
    long_line = " ".join(["the cat sat"] * 9)
    (result,) = translator_of(tokenizer, model=model, text=text, max_extra_length=50).translate([long_line])
    assert result.split


def test_a_sentence_is_cut_between_words_where_it_can_be() -> None:
    pieces = ["▁a", "▁b", "c", "d", "▁e", "f", "g", "h", "i"]
    assert long_lines.cut_at_words(range(9), pieces, max_tokens=3) == [[0], [1, 2, 3], [4, 5, 6], [7, 8]]
    assert long_lines.cut_at_words(range(9), pieces, max_tokens=4) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert long_lines.cut_at_words(range(9), pieces, max_tokens=9) == [list(range(9))]
    assert long_lines.cut_at_words([], [], max_tokens=3) == []


@each(
    "text",
    ["." * 300_000, '."' * 150_000, "A. " * 90_000, "1. " * 90_000, "。" * 300_000, ". " * 150_000, " " * 300_000],
)
def test_hostile_lines_are_split_in_no_time(text: str) -> None:
    start = time.thread_time()  # others may have the machine
    split_sentences(text, "en")
    assert time.thread_time() - start < 5  # half a second; minutes, if it grew with the square of the length


def test_batches_keep_to_their_size_and_lose_nothing() -> None:
    chooser = random.Random(13)
    pieces = [Segment(line, 0, [7] * chooser.randint(1, 60)) for line in range(300)]
    found = list(batches(pieces, most=lambda n_source: 500 // n_source))
    assert sorted(piece.line for batch in found for piece in batch) == list(range(300))
    assert all(len(batch) * (max(len(piece.ids) for piece in batch) + 1) <= 500 for batch in found)
    assert [len(batch) for batch in batches(pieces, most=lambda n_source: 0)] == [1] * 300


@pytest.mark.parametrize("options", [GREEDY, slow({})], ids=["greedy", "beam"])
def test_D8_real_text_is_translated_alike_in_any_batch(
    tokenizer: Tokenizer, shared_data: Path, options: dict[str, object]
) -> None:
    lines = (shared_data / "multi30k" / "test_2016_flickr.en").read_bytes().decode().split("\n")[:40]
    model = random_model(tokenizer)
    expected = texts(translator_of(tokenizer, model=model, **options).translate(lines))
    assert texts(translator_of(tokenizer, model=model, batch_tokens=300, **options).translate(lines)) == expected


# ---- Prefixes, terms, second tries and what is read back


def test_a_translation_begins_with_its_prefix(tokenizer: Tokenizer) -> None:
    lines = [*sentences(8, seed=21), "", "the cat . the milk . the chair . the woman ."]
    wanted = ["the cat", "", "a pretty", "the c", "it was in", "prett", "woman", "", "", "chair"]
    for options in (GREEDY, {}, SAMPLE, {"batch_invariant": True}):
        given = translator_of(tokenizer, max_source_length=8, **options)
        prefixes = [written_ids(text, tokenizer) for text in wanted]
        assert None not in prefixes
        results = given.translate(lines, prefixes=prefixes)  # type: ignore[arg-type]
        assert all(result.text.startswith(text) for result, text in zip(results, wanted, strict=True))
        assert results[8].text == ""
        assert results[9].split
        alone = given.translate([lines[4]], first_line=5, prefixes=prefixes[4:5])  # type: ignore[arg-type]
        assert alone[0].text == results[4].text


def test_a_prefix_has_room_for_all_but_the_end(tokenizer: Tokenizer) -> None:
    given = translator_of(tokenizer, max_source_length=5, max_extra_length=3)
    lengths = asked_lengths(given)
    lines = ["the cat", "", "the cat . it was in her chair ."]
    given.translate(lines)
    room = given.room(lines)
    assert room[1] is None
    assert room[0] is not None
    assert room[0] + 1 in lengths[0]
    assert room[2] == len(given.planner.plan(lines)[2].segments[0].ids) + 3


def searched_by(
    search: Callable[[int, Constraints, int], list[int]], watched: Translator
) -> list[list[tuple[int, ...]]]:
    """Let `search` answer, given a sentence's number, constraints and longest length; fills with the required terms."""
    asked: list[list[tuple[int, ...]]] = []

    def answer(request: SearchRequest[DecoderCache]) -> list[list[Hypothesis]]:
        found = []
        for b, longest in enumerate(request.max_lengths_B.tolist()):
            constraints = request.constraints[b] if request.constraints else Constraints()
            ids = search(b, constraints, longest)
            found.append([Hypothesis(ids[:longest], -1.0, -2.0, finished=len(ids) < longest)])
            asked.append(list(constraints.terms))
        return found

    replace_search(watched, answer)
    return asked


def test_only_lines_that_lack_their_terms_are_translated_again(
    tokenizer: Tokenizer, warnings: pytest.LogCaptureFixture
) -> None:
    terms = [Term("cat", ("milk",), 1), Term("chair", ("woman", "sat"), 2), Term("was", ("a " * 30 + "b",), 3)]
    given = translator_of(
        tokenizer, options=TranslateOptions(terminology=Terminology(terms, name="terms")), batch_tokens=1
    )
    (sat,), (milk,) = tokenizer.encode(["it sat"]), tokenizer.encode(["milk"])

    def search(b: int, constraints: Constraints, longest: int) -> list[int]:
        return [*sat, *(i for term in constraints.terms for i in term if len(term) < longest)]

    asked = searched_by(search, given)
    results = given.translate(["her chair", "the cat", "the cat was", "and it"], first_line=11)
    assert texts(results) == ["it sat", "it sat milk", "it sat milk", "it sat"]
    assert [[term.source for term in result.unsatisfied] for result in results] == [[], [], ["was"], []]
    assert sorted(map(len, asked)) == [0, 0, 0, 0, 1, 1], "what has no room is not searched for"
    assert asked.count([tuple(milk)]) == 2
    (warning,) = [message for message in warnings.messages if "'was'" in message]
    assert warning.startswith("line 13: 'was' has no room or no likely place in its translation as 'a a ")


def test_a_term_that_costs_the_end_is_given_up(tokenizer: Tokenizer, warnings: pytest.LogCaptureFixture) -> None:
    terms = [Term("cat", ("milk",), 1)]
    given = translator_of(tokenizer, options=TranslateOptions(terminology=Terminology(terms, name="terms")))
    (milk,) = tokenizer.encode(["milk"])
    searched_by(lambda b, constraints, longest: milk * longest if constraints.terms else milk[:0], given)
    (result,) = given.translate(["the cat"])
    assert (result.text, result.hit_limit, result.unsatisfied) == ("", False, (terms[0],))
    assert len(warnings.messages) == 1


def test_a_term_that_the_vocabulary_cannot_write_is_named() -> None:
    text = [*sentences(200, seed=0), MARKS]
    narrow = train_tokenizer(text, TokenizerConfig(vocab_size=40, byte_fallback=False), seed=1)
    with pytest.raises(DataError, match=r"words\.tsv:7: '🙂' cannot be written with the pieces of this model"):
        translator_of(
            narrow, options=TranslateOptions(terminology=Terminology([Term("cat", ("🙂",), 7)], name="words.tsv"))
        )


def test_a_real_search_contains_each_term_or_reports_it(tokenizer: Tokenizer) -> None:
    terms = [Term("cat", ("pretty milk",), 1), Term("chair", ("woman",), 2), Term("in", ("a" * 200,), 3)]
    lines = sentences(30, seed=22)
    plain = translator_of(tokenizer).translate(lines)
    given = translator_of(tokenizer, options=TranslateOptions(terminology=Terminology(terms, name="terms")))
    results = given.translate(lines)
    n_terms = 0
    for line, before, result in zip(lines, plain, results, strict=True):
        in_line = [term for term in terms if term.source in line.split()]
        n_terms += len(in_line)
        for term in in_line:
            assert (term in result.unsatisfied) is not (term.targets[0] in result.text)
        if not in_line:
            assert result == before
    assert n_terms > 20
    order = random.Random(23).sample(range(len(lines)), k=len(lines))
    again = given.translate([lines[i] for i in order])
    assert texts(again) == [results[i].text for i in order]


def test_what_is_translated_again_is_kept_if_it_is_better(tokenizer: Tokenizer) -> None:
    lines = [*sentences(40, seed=24), ""]
    options: dict[str, Any] = {"max_source_length": 12, "batch_tokens": 400}
    first = translator_of(tokenizer, **options).translate(lines)
    results = translator_of(tokenizer, options=TranslateOptions(retry=True), **options).translate(lines)
    for before, after in zip(first, results, strict=True):
        assert after.retried is (before.n_quality_issues > 0)
        assert (
            after.n_quality_issues < before.n_quality_issues
            if after.replaced
            else after == replace(before, retried=after.retried)
        )
    assert 0 < sum(result.replaced for result in results) < sum(result.retried for result in results) < len(lines)
    order = random.Random(25).sample(range(len(lines)), k=len(lines))
    again = translator_of(tokenizer, options=TranslateOptions(retry=True), **options).translate(
        [lines[i] for i in order]
    )
    assert texts(again) == [results[i].text for i in order]


def test_what_was_cut_is_not_translated_again(tokenizer: Tokenizer) -> None:
    lines = sentences(40, seed=24)
    options = TranslateOptions(retry=True)
    results = translator_of(tokenizer, max_source_length=4, long_lines=LongLines.cut, options=options).translate(lines)
    assert any(result.cut and result.n_quality_issues for result in results)
    assert not any(result.cut and result.retried for result in results)


@pytest.mark.parametrize("options", [GREEDY, {}, {"max_source_length": 6}], ids=["greedy", "beam", "in parts"])
def test_token_scores_add_up_to_the_score_of_the_search(tokenizer: Tokenizer, options: dict[str, Any]) -> None:
    lines = [*sentences(20, seed=26), "", "今日は。明日は?！「はい。」終わり"]
    results = translator_of(
        tokenizer, options=TranslateOptions(alignments=True, token_scores=True), **options
    ).translate(lines)
    for line, result in zip(lines, results, strict=True):
        best = result.candidates[0]
        assert result.tokens is not None
        assert result.alignment is not None
        assert sum(log_prob for _, log_prob in result.tokens) == pytest.approx(best.log_prob, abs=1e-4)
        assert len(result.tokens) == best.n_tokens
        text = "".join(piece for piece, _ in result.tokens).replace("<unk>", "⁇").replace("</s>", "")
        assert text.replace("▁", "") == result.text.replace(" ", "")
        assert [j for _, j in result.alignment] == list(range(len(result.text.split())))
        assert all(0 <= i < len(line.split()) for i, _ in result.alignment)
