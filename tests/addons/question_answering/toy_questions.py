"""Toy questions: letters, of which each H in a passage is followed by the answer to "h", and each L by that to "l"."""

import json
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.toy import run as toy_run
from tests.toy.models import ENCODER_OVERRIDES, random_file, write_sets, written
from tests.toy.run import LETTERS
from transformer_cli.addons.question_answering.questions import ENDS
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.models.file import ModelFile

__all__ = ["written"]

SIZES = replace(toy_run.MODEL, name="span_extractor", n_encoder_layers=2, n_segments=2)
OVERRIDES = [
    *("data=questions", "data.tokenizer.vocab_size=auto", "data.max_length=24"),
    *("schedule.lr=0.01", "model.dropout=0", "train.tokens_per_update=600", "train.max_tokens_per_microbatch=300"),
    "train.ema=null",
    *ENCODER_OVERRIDES,
]


def question(draw: random.Random) -> dict[str, Any]:
    """A passage with one H and one L, each before the answer to its question."""
    words = draw.choices(LETTERS, k=draw.randint(4, 8))
    at_h, at_l = draw.sample(range(0, len(words) - 1), 2)
    while abs(at_h - at_l) < 2:
        at_h, at_l = draw.sample(range(0, len(words) - 1), 2)
    words[at_h], words[at_l] = "H", "L"
    asked = draw.choice("HL")
    context, at = " ".join(words), words.index(asked) + 1
    answer = {"text": words[at], "answer_start": 2 * at}
    return {"context": context, "qas": [{"id": context, "question": asked, "answers": [answer]}]}


def squad(paragraphs: list[dict[str, Any]]) -> str:
    return json.dumps({"version": "1.1", "data": [{"title": "toy", "paragraphs": paragraphs}]})


def content(n: int, seed: int) -> str:
    draw = random.Random(seed)
    return squad([question(draw) for _ in range(n)])


def one(context: str, *answers: tuple[int, str], question: str = "Who?", **more: Any) -> dict[str, Any]:
    """A passage with a question."""
    listed = [{"text": text, "answer_start": start} for start, text in answers]
    return {"context": context, "qas": [{"id": "1", "question": question, "answers": listed, **more}]}


def write_files(folder: Path, n_train: int = 300) -> list[str]:
    return write_sets(folder, "json", content, n_train=n_train, n_test=30)


@cache
def toy_tokenizer() -> Tokenizer:
    """Every letter is a token, and so is the beginning of a word."""
    letters = LETTERS + "HL"
    return train_tokenizer([" ".join(letters), letters] * 5, TokenizerConfig(vocab_size=30), seed=1)


def random_model(*, max_length: int = 12, labels: tuple[str, ...] = ENDS, seed: int = 1) -> ModelFile:
    tokenizers = Tokenizers(toy_tokenizer(), toy_tokenizer(), labels)
    data = {"name": "questions", "task": "question_answering", "max_length": max_length}
    return random_file(SIZES, tokenizers, "text-text", seed=seed, gain=2, data=data)
