"""Whether a term stands where its source phrase is translated; and what the Translator makes of it."""

from collections.abc import Sequence

import pytest
import torch

from tests.support.each import each
from tests.toy.translator import engine_of, replace_search, toy_tokenizer, translator_of
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.decoding.placement import AlignedTranslation, Placement
from transformer_cli.decoding.results import Translated, TranslateOptions
from transformer_cli.decoding.search import Hypothesis, SearchRequest
from transformer_cli.decoding.terminology import Term, Terminology, occurrences
from transformer_cli.decoding.translator import Translator
from transformer_cli.inference.force_decode import ForcedScores
from transformer_cli.inference.kv_cache import DecoderCache

SOURCE = "the cat drank milk"
WOMAN = Term("cat", ("woman",), 1)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return toy_tokenizer()


def numbers(text: str, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """Ids of a text, and the word that each is of."""
    (ids,) = tokenizer.encode([text])
    words = [len(tokenizer.decode(ids[:n]).split()) for n in range(1, len(ids) + 1)]
    return ids, [n - 1 for n in words]


def attention(text: str, links: Sequence[int], tokenizer: Tokenizer) -> torch.Tensor:
    """Word j of `text` attends to word links[j] of the source, a little to the first word, and the end to the end."""
    (_, source_words), (_, words) = numbers(SOURCE, tokenizer), numbers(text, tokenizer)
    attention_TS = torch.zeros(len(words) + 1, len(source_words) + 1)
    for t, word in enumerate(words):
        attention_TS[t, 0] = 0.1
        attention_TS[t, -1] = 0.5  # as a token without a source
        attention_TS[t, source_words.index(links[word])] += 0.4
    attention_TS[-1, -1] = 1
    return attention_TS


def translation(text: str, links: Sequence[int], tokenizer: Tokenizer) -> AlignedTranslation:
    return AlignedTranslation(numbers(text, tokenizer)[0], attention(text, links, tokenizer))


@each(
    "text, links, is_misplaced",
    [
        ("the woman drank milk", [1, 1, 2, 3], False),  # an article attends to its noun, too
        ("a pretty woman drank milk", [1, 1, 1, 2, 3], False),
        ("the woman drank milk", [0, 3, 2, 3], True),  # it has become the milk
        ("the cat drank milk . woman", [0, 1, 2, 3, 3, 1], True),  # appended: the cat is still there
        ("the cat woman drank milk", [0, 1, 1, 2, 3], True),
        ("the woman drank milk woman", [0, 1, 2, 3, 1], True),  # twice
        ("the woman drank cat", [0, 1, 2, 3], False),  # this cat is the milk's translation
        ("the cat drank milk", [0, 1, 2, 3], False),  # is not there at all, which is reported as unsatisfied
    ],
)
def test_attention_tells_whether_a_term_is_in_its_place(
    tokenizer: Tokenizer, text: str, links: list[int], is_misplaced: bool
) -> None:
    plain = translation("the cat drank milk", [0, 1, 2, 3], tokenizer)
    placement = Placement(numbers(SOURCE, tokenizer)[0], Tokenizers(tokenizer, tokenizer), plain)
    assert placement.misplaced([WOMAN], translation(text, links, tokenizer)) == ((WOMAN,) if is_misplaced else ())


@each(
    "text, phrase, options, expected",
    [
        ("The cat, a cat", "cat", {}, [(4, 7), (11, 14)]),
        ("hot dogs", "hot dog", {}, []),
        ("hot dogs", "hot dog", {"has_ending": True}, [(0, 8)]),
        ("CAT", "cat", {}, []),
        ("CAT", "cat", {"any_case": True}, [(0, 3)]),
    ],
)
def test_a_phrase_is_found_where_it_stands(
    text: str, phrase: str, options: dict[str, bool], expected: list[tuple[int, int]]
) -> None:
    assert occurrences(text, phrase, **options) == expected


def translator_with(
    found: Sequence[tuple[str, list[int], float]],
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    **options: object,
) -> Translator:
    """A translator whose search for the term finds these, with their attention and log-probability."""
    plain = ("the cat drank milk", [0, 1, 2, 3], -1.0)
    weights = {text: attention(text, links, tokenizer) for text, links, _ in (plain, *found)}

    def search(request: SearchRequest[DecoderCache]) -> list[list[Hypothesis]]:
        chosen = found if request.constraints else [plain]
        hypotheses = [Hypothesis(numbers(text, tokenizer)[0], p, p, finished=True) for text, _, p in chosen]
        return [hypotheses[: request.config.n_best] for _ in request.constraints or request.max_lengths_B.tolist()]

    def score(pairs: Sequence[tuple[list[int], list[int]]], **_: object) -> list[ForcedScores]:
        return [ForcedScores([], weights[tokenizer.decode(target)]) for _, target in pairs]

    given = translator_of(
        tokenizer, options=TranslateOptions(terminology=Terminology([WOMAN], name="terms")), **options
    )
    replace_search(given, search)
    monkeypatch.setattr(engine_of(given), "score", score)
    return given


def translated(
    found: Sequence[tuple[str, list[int], float]],
    tokenizer: Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    **options: object,
) -> Translated:
    """What becomes of SOURCE."""
    (result,) = translator_with(found, tokenizer, monkeypatch, **options).translate([SOURCE])
    return result


APPENDED = ("the cat drank milk woman", [0, 1, 2, 3, 1], -4.0)
PLACED = ("the woman drank milk", [0, 1, 2, 3], -90.0)


def test_of_what_is_found_a_translation_with_its_term_in_place_is_taken(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = translated([APPENDED, PLACED], tokenizer, monkeypatch)
    assert (result.text, result.misplaced, result.unsatisfied) == (PLACED[0], (), ())
    both = translated([APPENDED, PLACED], tokenizer, monkeypatch, n_best=2)
    assert [candidate.text for candidate in both.candidates] == [PLACED[0], APPENDED[0]]


def test_a_term_that_is_nowhere_in_place_is_flagged(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    result = translated([APPENDED], tokenizer, monkeypatch)
    assert (result.text, result.misplaced, result.unsatisfied) == (APPENDED[0], (WOMAN,), ())
    assert caplog.messages == ["line 1: a term is not where its source phrase is translated, or stands beside it"]


def test_a_misplaced_term_is_reported_with_the_number_of_its_line(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = translator_with([APPENDED], tokenizer, monkeypatch)
    given.translate(["", SOURCE, "", SOURCE], first_line=41)
    assert [message.split(":")[0] for message in caplog.messages] == ["lines 42, 44"]


@pytest.mark.parametrize("limit", [0.5, None])
def test_a_misplaced_term_that_makes_a_translation_too_unlikely_is_left_out(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, limit: float | None
) -> None:
    n_tokens = len(numbers(APPENDED[0], tokenizer)[0]) + 1
    costly = (*APPENDED[:2], -1.0 * n_tokens)
    result = translated([costly], tokenizer, monkeypatch, max_misplaced_cost=limit)
    if limit is None:
        assert (result.text, result.unsatisfied, result.misplaced) == (APPENDED[0], (), (WOMAN,))
    else:
        assert (result.text, result.unsatisfied, result.misplaced) == ("the cat drank milk", (WOMAN,), ())
    assert translated([PLACED], tokenizer, monkeypatch, max_misplaced_cost=limit).text == PLACED[0]
