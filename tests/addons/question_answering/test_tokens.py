"""PassageTokens of passages and the characters that they are, windows, and the search for the best span."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_cli.addons.question_answering.spans import predict
from transformer_cli.addons.question_answering.tokens import (
    PassageEncoder,
    PassageTokens,
    WindowSize,
    token_bounds,
    token_windows,
)
from transformer_cli.config.data import TokenizerConfig, TokenizerKind
from transformer_cli.data.tokenizer import Tokenizer, train_tokenizer

LINES = ["The café sold apples, didn't it? 😀 in 1990s (Zürich)", "A dog saw the cat behind the wardrobe's door."] * 20


@pytest.fixture(scope="module", params=["bpe", "unigram", "bytes", "folded"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    config = {
        "bpe": TokenizerConfig(vocab_size=100),
        "unigram": TokenizerConfig(vocab_size=43, kind=TokenizerKind.unigram),
        "bytes": TokenizerConfig(vocab_size=360, byte_fallback=True),
        "folded": TokenizerConfig(vocab_size=90, fold_case=True),
    }[request.param]
    lines = [line.replace("😀", "") for line in LINES] if request.param == "bytes" else LINES
    return train_tokenizer(lines, config, seed=1)


TEXTS = [
    LINES[0],
    "😀😀 Zürich  \u00a0 cafe\u0301 😀x",  # combining marks, emoji that is one code point and two of UTF-16
    "co\u00adope\u00adrate 👩‍👩‍👧 1990s",
    "ＡＢＣ ½ … ⁇ \u2581 <0xE2> </s> @@",
    "漢字とかな",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokens_of_a_passage_are_all_of_its_words_in_order(tokenizer: Tokenizer, text: str) -> None:
    [tokens] = PassageEncoder(tokenizer).passages([text])
    assert len(tokens.ids) == len(tokens.starts) == len(tokens.ends)
    assert tokens.starts == sorted(tokens.starts)
    assert tokens.ends == sorted(tokens.ends)
    covered = set(itertools.chain.from_iterable(map(range, tokens.starts, tokens.ends)))
    assert {text[i] for i in range(len(text)) if i not in covered} <= {" ", "\u00a0"}


def test_the_text_of_each_token_is_what_stands_at_its_place() -> None:
    tokenizer = train_tokenizer(LINES, TokenizerConfig(vocab_size=100), seed=1)
    text = "😀 The café didn't"
    [tokens] = PassageEncoder(tokenizer).passages([text])
    for i, start, end in zip(tokens.ids, tokens.starts, tokens.ends, strict=True):
        piece = tokenizer.pieces([i])[0].replace("\u2581", "")
        assert text[start:end] == piece or not piece


@pytest.mark.parametrize("text", TEXTS)
def test_the_span_around_an_answer_is_the_smallest_that_holds_it(tokenizer: Tokenizer, text: str) -> None:
    [tokens] = PassageEncoder(tokenizer).passages([text])
    for start, end in itertools.combinations(range(len(text) + 1), 2):
        if text[start:end].strip() != text[start:end] or end - start > 12:
            continue
        span = tokens.span(start, end)
        assert span is not None
        first, last = span
        assert tokens.starts[first] <= start
        assert tokens.ends[last] >= end
        # With one token less on either side it would not be in the span.
        if first < last:
            assert tokens.ends[first] > start
            assert tokens.starts[last] < end


@pytest.mark.parametrize(
    ("word", "texts", "expected"),
    [
        ("dogs,", ["dog", "s", ","], [(0, 3), (3, 4), (4, 5)]),
        ("Dogs", ["dog", "s"], [(0, 3), (3, 4)]),
        ("cafe\u0301s", ["caf", "é", "s"], [(0, 3), (3, 5), (5, 6)]),
        ("a\u00adb", ["a", "b"], [(0, 2), (2, 3)]),
        ("x😀y", ["", "x", "\0", "y"], [(0, 1), (0, 1), (1, 2), (2, 3)]),
        ("\u00ad", ["\0"], [(0, 1)]),
    ],
)
def test_the_characters_of_tokens_are_found_where_they_spell_a_word_otherwise(
    word: str, texts: list[str], expected: list[tuple[int, int]]
) -> None:
    assert token_bounds(word, [text.encode() for text in texts]) == expected


def test_bytes_of_one_character_all_stand_for_it() -> None:
    assert token_bounds("a😀", [b"a", b"\xf0", b"\x9f", b"\x98", b"\x80"]) == [(0, 1), *[(1, 2)] * 4]


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20))
def test_windows_hold_every_token_and_overlap(n_tokens: int, room: int, stride: int) -> None:
    stride = min(stride, room)
    found = token_windows(n_tokens, room, stride)
    assert set(itertools.chain.from_iterable(found)) == set(range(n_tokens))
    assert all(0 < len(window) <= room for window in found)
    assert all(b.start - a.start == stride for a, b in itertools.pairwise(found))
    assert len(found) == 1 or n_tokens > room


def test_a_question_that_is_too_long_leaves_half_of_the_window_to_the_passage() -> None:
    size = WindowSize(max_length=13)
    cut = size.question(range(100))
    assert [len(window) for window in size.of(cut, 7)] == [5, 4]


# ---- The best span


def brute_force(
    logits: list[torch.Tensor], found: list[range], offset: int, max_answer: int
) -> dict[tuple[int, int], float]:
    """The best score of each span over all windows."""
    best: dict[tuple[int, int], float] = {}
    for window, one in zip(found, logits, strict=True):
        for a in window:
            for b in range(a, min(a + max_answer, window.stop)):
                at = offset - window.start
                score = float(one[at + a, 0] + one[at + b, 1])
                best[a, b] = max(score, best.get((a, b), -math.inf))
    return best


@settings(max_examples=40, deadline=None, database=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 8), st.integers(0, 10_000))
def test_the_search_finds_what_trying_every_span_finds(n: int, room: int, max_answer: int, seed: int) -> None:
    torch.manual_seed(seed)
    found, offset = token_windows(n, room, max(1, room // 2)), 4
    logits = [torch.randn(offset + len(window) + 3, 2).double() for window in found]
    passage = "abcdefghijkl"[:n]
    tokens = PassageTokens(list(range(n)), list(range(n)), list(range(1, n + 1)))
    prediction = predict(
        passage, tokens, found, logits, offset=offset, may_find_none=True, n_best=5, max_answer=max_answer
    )
    wanted = sorted(brute_force(logits, found, offset, max_answer).items(), key=lambda one: (-one[1], one[0]))[:5]
    assert [(one.start, one.end - 1) for one in prediction.spans] == [span for span, _ in wanted]
    assert [one.score for one in prediction.spans] == pytest.approx([score for _, score in wanted])
    none = min(float(one[0].sum()) for one in logits)
    assert prediction.none_score == pytest.approx(none)
    assert (prediction.best is None) == (none > wanted[0][1])
    assert prediction.text == ("" if prediction.best is None else passage[wanted[0][0][0] : wanted[0][0][1] + 1])
    assert sum(one.probability for one in prediction.spans) + prediction.none_probability <= 1 + 1e-9


def test_a_model_that_always_answers_never_finds_none() -> None:
    logits = torch.zeros(5, 2)
    logits[0] = 100
    tokens = PassageTokens([7], [0], [1])
    found = predict("a", tokens, [range(1)], [logits], offset=3, may_find_none=False)
    assert (found.text, found.spans[0].probability) == ("a", pytest.approx(1))
    assert predict("a", tokens, [range(1)], [logits], offset=3, may_find_none=True).text == ""
    assert predict("a", tokens, [range(1)], [logits], offset=3, may_find_none=True, threshold=300).text == "a"
