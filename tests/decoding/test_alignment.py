"""Words and what they come from."""

import torch

from tests.support.each import each
from tests.toy.translator import toy_tokenizer
from transformer_cli.decoding.alignment import align_words, word_numbers


def test_each_token_belongs_to_a_word() -> None:
    tokenizer = toy_tokenizer()
    for text in ("the cat drank milk .", "drinks seats madams", "a", "½ Ω"):
        (ids,) = tokenizer.encode([text])
        numbers = word_numbers(ids, tokenizer)
        assert len(numbers) == len(ids)
        words = [
            "".join(tokenizer.pieces([i])[0] for i, n in zip(ids, numbers, strict=True) if n == w) for w in range(9)
        ]
        assert numbers == sorted(numbers)
        assert len([word for word in words if word]) == len(text.split())
        if "½" not in text:
            assert [word.replace("▁", "") for word in words if word] == text.split()


def test_a_space_by_itself_is_of_the_word_that_it_begins() -> None:
    tokenizer = toy_tokenizer()
    (ids,) = tokenizer.encode(["cat ½ Ω"])
    spaces = [place for place, piece in enumerate(tokenizer.pieces(ids)) if piece == "▁"]
    numbers = word_numbers(ids, tokenizer)
    assert spaces
    assert all(numbers[place] == numbers[place + 1] == numbers[place - 1] + 1 for place in spaces)


@each(
    "attention, source_words, target_words, expected",
    [
        ([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.0, 1.0]], [0, 1], [0, 1], [0, 1]),  # the last ones are ends
        ([[0.4, 0.3, 0.3, 0.0]] * 2, [0, 1, 1], [0], [1]),  # a word has what its tokens have
        ([[0.6, 0.4, 0.0], [0.1, 0.9, 0.0], [1.0, 0.0, 0.0]], [0, 1], [0, 0], [1]),  # and attends as they do
        ([[0.1, 0.2, 0.7]] * 2, [0, 1], [0], [1]),  # the source's end is no word
        ([[0.5, 0.5, 0.0]] * 2, [0, 1], [0], [0]),  # of equals the first
        ([[0.4, 0.5, 0.1], [0.0, 0.9, 0.1]], [0, 1], [0, 1], [0, 1]),  # the second word has 0.9 of another one
        ([[0.1, 0.8, 0.1], [0.0, 0.9, 0.1]], [0, 1], [0, 1], [1, 1]),  # or both come from it
    ],
)
def test_a_word_comes_from_where_its_tokens_look(
    attention: list[list[float]], source_words: list[int], target_words: list[int], expected: list[int]
) -> None:
    assert align_words(torch.tensor(attention), source_words, target_words) == expected
