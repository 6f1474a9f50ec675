"""A toy tagger: sentences of letters, where a capital and the letter behind it are an entity.

Each word says its label by itself, so that few updates are enough.
"""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.toy import run as toy_run
from tests.toy.models import ENCODER_OVERRIDES, random_file, write_sets, written
from tests.toy.run import LETTERS
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.models.file import ModelFile

__all__ = ["written"]

TYPES = {"H": ("PER", "p"), "L": ("LOC", "q")}  # and the letter behind
LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
SIZES = replace(toy_run.MODEL, name="tagger", n_encoder_layers=2)
OVERRIDES = [
    *("data=tags", "data.tokenizer.vocab_size=40", "data.max_length=24", "data.max_ratio=100"),
    *(
        "schedule.lr=0.03",
        "model.dropout=0.1",
        "train.tokens_per_update=150",
        "train.max_tokens_per_microbatch=60",
        "train.ema=null",
    ),
    *ENCODER_OVERRIDES,
]


def sentence(draw: random.Random) -> list[tuple[str, str]]:
    """Words of one to three letters, each with its label."""
    found: list[tuple[str, str]] = []
    for _ in range(draw.randint(1, 4)):
        found.append(("".join(draw.choices(LETTERS, k=draw.randint(1, 3))), "O"))
        if draw.random() < 0.5:
            capital = draw.choice("HL")
            kind, behind = TYPES[capital]
            found += [(capital, f"B-{kind}"), (behind, f"I-{kind}")]
    return found


def conll(n: int, seed: int) -> str:
    draw = random.Random(seed)
    return "\n".join("".join(f"{word} x {label}\n" for word, label in sentence(draw)) for _ in range(n))


def write_files(folder: Path, n_train: int = 200) -> list[str]:
    return write_sets(folder, "conll", conll, n_train=n_train, n_test=30)


@cache
def toy_tokenizer() -> Tokenizer:
    """Every letter is a token, and so is the beginning of a word."""
    letters = LETTERS + "HLpq"
    return train_tokenizer([" ".join(letters), letters] * 5, TokenizerConfig(vocab_size=34), seed=1)


def random_model(pooling: str = "first", *, max_length: int = 12, seed: int = 1) -> ModelFile:
    tokenizers = Tokenizers(toy_tokenizer(), toy_tokenizer(), LABELS)
    data = {"name": "tags", "task": "token_classification", "max_length": max_length}
    return random_file(replace(SIZES, pooling=pooling), tokenizers, "text-label", seed=seed, gain=2, data=data)
