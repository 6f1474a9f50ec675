"""Lines without a letter are left as they are, unless the training text translates such lines."""

import io
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.addons.interop.test_export import model_file
from tests.models.test_model_file import packed
from tests.support.each import each
from tests.toy.translator import toy_tokenizer, translator_of
from transformer_cli.commands.translate.keys import TranslateConfig
from transformer_cli.commands.translate.run import TranslationFilter
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.config.shared import OutputFormat
from transformer_cli.data.cache import EncodedCorpus
from transformer_cli.data.normalization import has_letters
from transformer_cli.data.sentences import translates_letterless
from transformer_cli.data.tokenizer import Tokenizers, train_tokenizer
from transformer_cli.decoding.results import Candidate, TranslateOptions
from transformer_cli.decoding.segmentation import sentences_of
from transformer_cli.decoding.terminology import Term, Terminology
from transformer_cli.decoding.training_text import TrainingText, training_text
from transformer_cli.errors import ConfigError
from transformer_cli.models.file import unpack_model

LETTERLESS = ["123", "12:30", "!!!", "😀", "- - -", "3 + 4 = 7", "½ ²", "…", "**", "1 000,50 €"]
WORDS = ["the cat", "a1", "é", "ж 3", "日本", "５", "١٢", "x² + 1"]


@each("text", LETTERLESS)
def test_what_has_no_letter(text: str) -> None:
    assert not has_letters(text)


@each("text", WORDS)
def test_letters_and_digits_of_other_scripts_are_translated(text: str) -> None:
    assert has_letters(text)


@each(
    "options",
    [{}, {"n_best": 3}, {"search": "greedy", "beam_size": 1}, {"search": "mbr", "beam_size": 1, "n_samples": 2}],
)
def test_lines_without_a_letter_come_out_as_they_are(options: dict[str, Any]) -> None:
    lines = [*LETTERLESS, f"  {LETTERLESS[0]}\r", "the cat", *WORDS[1:3]]
    found = translator_of(toy_tokenizer(), **options).translate(lines)
    for line, result in zip(lines, found, strict=True):
        assert result.left_alone is not has_letters(line)
        if result.left_alone:
            assert result.candidates == [Candidate(line.strip(), 0.0)]
            assert (result.copied, result.unknown, result.n_quality_issues) == (False, (), 0)


def test_the_other_lines_are_translated_as_without_them() -> None:
    translator = translator_of(toy_tokenizer(), options=TranslateOptions(retry=True, alignments=True))
    alone = translator.translate(["the cat drank", "her chair ."])
    among = translator.translate(["12", "the cat drank", "!", "her chair ."])
    assert [among[1], among[3]] == alone
    assert (among[0].alignment, among[0].tokens) == ([], [])


def test_all_lines_are_translated_if_that_is_asked_for() -> None:
    every = translator_of(toy_tokenizer(), copy_letterless=False).translate(LETTERLESS)
    assert not any(result.left_alone for result in every)
    numbers = TrainingText(translates_letterless=True)
    assert translator_of(toy_tokenizer(), text=numbers).translate(LETTERLESS) == every
    assert translator_of(toy_tokenizer(), text=numbers, copy_letterless=True).translate(["! !"])[0].text == "! !"
    with pytest.raises(ConfigError, match=r"decode\.copy_letterless=maybe: unknown\. Choose auto, true or false"):
        DecodeConfig(copy_letterless="maybe")


def test_a_vocabulary_without_letters_is_not_for_a_language() -> None:
    digits = train_tokenizer([f"{n} {n * 7} {n % 9}" for n in range(300)], TokenizerConfig(vocab_size=60), seed=1)
    assert not translator_of(digits).translate(["1 2 3"])[0].left_alone


def test_a_prefix_or_a_term_asks_for_a_translation() -> None:
    tokenizer = toy_tokenizer()
    (prefix,) = tokenizer.encode(["the cat"])
    prefixed = translator_of(tokenizer, options=TranslateOptions(prefixes=True))
    assert prefixed.room(["! !"])[0] is not None
    assert prefixed.translate(["! !", "?"], prefixes=[tuple(prefix), ()])[0].text.startswith("the cat")
    terms = Terminology([Term("!", ("cat",), 1)], name="terms")
    results = translator_of(tokenizer, options=TranslateOptions(terminology=terms)).translate(["! !", "?"])
    assert [result.left_alone for result in results] == [False, True]


@each(
    "text, parts",
    [
        ("Go! 😀", ["Go! 😀"]),
        ("3. Open it. 12! Close it.", ["3. Open it. 12!", "Close it."]),
        ("1! 2! 3!", ["1! 2! 3!"]),
        ("Go. Stop.", ["Go.", "Stop."]),
    ],
)
def test_a_part_of_a_line_without_a_letter_is_not_translated_alone(text: str, parts: list[str]) -> None:
    assert sentences_of(text, "en") == parts


@each(
    "pairs, expected",
    [
        ([("12 3", "a b")] * 50, True),
        ([("12 3", "12 3")] * 50, False),
        ([("a b", "b a")] * 97 + [("12 3", "b a")] * 3, True),
        ([("a b", "b a")] * 99 + [("12 3", "b a")], False),
        ([("a b", "b a")] * 90 + [("12 3", "3 12")] * 4 + [("3", "3")] * 6, False),
        ([("a b", "b a")] * 50, False),
    ],
)
def test_the_training_text_decides(pairs: list[tuple[str, str]], expected: bool) -> None:
    tokenizer = train_tokenizer(
        ["a b 1 2 3", "b a 3 2 1", "aa bb ab 12 13 32"] * 9, TokenizerConfig(vocab_size=20), seed=1
    )
    sides = [
        [[*ids, tokenizer.eos_id] for ids in tokenizer.encode(side)] for side in map(list, zip(*pairs, strict=True))
    ]
    corpus = EncodedCorpus.of(sides[0], sides[1])
    assert translates_letterless(corpus, Tokenizers(tokenizer, tokenizer)) is expected


def test_a_model_file_says_that_its_training_text_translates_such_lines() -> None:
    plain, numbers = model_file(), replace(model_file(), translates_letterless=True)
    for model in (plain, numbers):
        read = unpack_model(packed(model), Path("m"))
        assert read.translates_letterless is model.translates_letterless
    assert training_text([numbers]).translates_letterless
    assert not training_text([numbers, plain]).translates_letterless


def test_the_command_counts_them_and_the_format_characters(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tfm")
    sink, source = io.BytesIO(), io.BufferedReader(io.BytesIO("12\nthe cat\nthe\u00ad cat\u200b\n!\n\n".encode()))  # type: ignore[arg-type]
    config = TranslateConfig(output_format=OutputFormat.jsonl)
    TranslationFilter(translator_of(toy_tokenizer()), sink, config).process_stream(source)
    records = [json.loads(line) for line in sink.getvalue().decode().split("\n")[:-1]]
    assert [records[n]["translation"] for n in (0, 3, 4)] == ["12", "!", ""]
    assert records[1]["translation"] == records[2]["translation"]
    assert (
        "1 line with format characters, which the model does not read, the first is line 3: U+00AD U+200B"
        in caplog.messages
    )
    assert "2 lines without a letter left as they are; decode.copy_letterless=false translates them" in caplog.messages
