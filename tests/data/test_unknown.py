"""Characters that a vocabulary does not have: which count, and what every command says of them."""

import io
import json
import logging

import pytest

from tests.toy.translator import sentences, toy_tokenizer, translator_of
from transformer_cli.commands.translate.keys import TranslateConfig
from transformer_cli.commands.translate.run import TranslationFilter
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.shared import OutputFormat
from transformer_cli.data.tokenizer import Tokenizer, train_tokenizer
from transformer_cli.data.unknown import UnknownCounter, shown_characters, unknown_characters
from transformer_cli.decoding.postprocess import written_ids
from transformer_cli.decoding.results import TranslateOptions

LINE = "the cat drank 東京 7 😀"


def with_bytes() -> Tokenizer:
    return train_tokenizer(sentences(200, seed=0), TokenizerConfig(vocab_size=330, byte_fallback=True), seed=1)


BOTH = pytest.mark.parametrize("tokenizer", [toy_tokenizer(), with_bytes()], ids=["unknown", "bytes"])


def unknown_in(text: str, tokenizer: Tokenizer) -> list[str]:
    (ids,) = tokenizer.encode([text])
    return list(unknown_characters(text, ids, tokenizer))


@BOTH
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LINE, ["東", "京", "7", "😀"]),
        ("the cat", []),
        ("東 東 the 東", ["東"]),
        ("the\u00a0cat\u3000drank\tit", []),  # white space of any kind
        ("the\u200dcat \ufeffdr\u00adank \u200bit\u200e", []),  # joiner, BOM, soft hyphen, zero-width space, mark
        ("the \x07cat\x1b", []),  # control characters
        ("👨\u200d👩\u200d👧 the ❤\ufe0f", ["👨\u200d👩\u200d👧", "❤\ufe0f"]),
        ("🇫🇷🇩🇪 👍🏽", ["🇫🇷", "🇩🇪", "👍🏽"]),
        ("\ue000 \ufffd", ["\ue000"]),
        ("cafe\u0301", ["f", "é"]),
    ],
)
def test_what_a_reader_would_miss_is_unknown(tokenizer: Tokenizer, text: str, expected: list[str]) -> None:
    assert unknown_in(text, tokenizer) == expected


def test_a_few_characters_are_shown_and_those_that_cannot_be_printed_as_numbers() -> None:
    assert shown_characters(["東", "\ue000", "👨\u200d👩\u200d👧"]) == "東 U+E000 👨\u200d👩\u200d👧"
    assert shown_characters([chr(0x4E00 + n) for n in range(12)]).endswith(" and 2 more")


def test_lines_are_counted_and_the_first_is_named(caplog: pytest.LogCaptureFixture) -> None:
    counter = UnknownCounter()
    counter.warn()
    for line, characters in enumerate([(), ("東", "京"), (), ("京", "😀")], start=1):
        counter.add(line, characters)
    counter.warn(where="news.en: ")
    assert caplog.messages == [
        "news.en: 2 lines with characters that the model's vocabulary does not have, the first is line 2: 東 京 😀"
    ]


def answered(text: str, config: TranslateConfig, tokenizer: Tokenizer) -> str:
    sink, source = io.BytesIO(), io.BufferedReader(io.BytesIO(text.encode()))  # type: ignore[arg-type]
    translator = translator_of(tokenizer, options=TranslateOptions(retry=True))
    TranslationFilter(translator, sink, config).process_stream(source)
    return sink.getvalue().decode()


@BOTH
def test_a_translation_says_which_characters_of_its_source_the_model_did_not_read(
    tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="tfm")
    config = TranslateConfig(output_format=OutputFormat.jsonl)
    out = answered(f"the cat\n\n{LINE}\n", config, tokenizer)
    records = [json.loads(line) for line in out.split("\n")[:-1]]
    assert [record["unknown_source"] for record in records] == [False, False, True]
    assert [record["unknown_characters"] for record in records] == [[], [], ["東", "京", "7", "😀"]]
    assert "⁇" not in out
    (summary,) = [message for message in caplog.messages if message.startswith("of 3 lines: ")]
    assert "1 unknown_source" in summary
    assert (
        "1 line with characters that the model's vocabulary does not have, the first is line 3: 東 京 7 😀"
        in caplog.text
    )


def test_what_a_second_try_cannot_mend_is_not_tried_again() -> None:
    translator = translator_of(toy_tokenizer(), options=TranslateOptions(retry=True), max_extra_length=30)
    for result in translator.translate([f"{line} 東" for line in sentences(20, seed=3)]):
        assert result.unknown == ("東",)
        assert result.retried is (
            result.hit_limit or result.repeats_itself or result.copied or result.empty or result.replaced
        )


def test_a_prefix_with_the_sign_of_unknown_text_is_not_written() -> None:
    assert written_ids("the ⁇", toy_tokenizer()) is None
    assert written_ids("the cat", toy_tokenizer()) is not None
