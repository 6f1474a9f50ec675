"""A toy classifier: sentences of letters, whose class is told by the capital among them."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.toy import run as toy_run
from tests.toy.models import ENCODER_OVERRIDES, random_file, write_sets, written
from tests.toy.run import LETTERS
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.model import ModelConfig
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.models.file import ModelFile

__all__ = ["written"]

LABELS = ("high", "low", "middle")
CAPITALS = {"high": "HI", "low": "LO", "middle": "MD"}
SIZES = replace(toy_run.MODEL, name="classifier", n_encoder_layers=2, pooling="mean")
OVERRIDES = [
    *("data=labels", "data.tokenizer.vocab_size=30", "data.max_length=12", "data.max_ratio=100"),
    *("schedule.lr=0.01", "train.tokens_per_update=200", "train.max_tokens_per_microbatch=80"),
    *ENCODER_OVERRIDES,
]


def sentence(label: str, draw: random.Random) -> str:
    words = draw.sample(LETTERS, k=draw.randint(1, 5))
    words.insert(draw.randrange(len(words) + 1), draw.choice(CAPITALS[label]))
    return " ".join(words)


def table(n: int, seed: int) -> str:
    """Lines of label<TAB>text."""
    draw = random.Random(seed)
    return "".join(f"{label}\t{sentence(label, draw)}\n" for label in draw.choices(LABELS, k=n))


def write_tables(folder: Path, n_train: int = 200) -> list[str]:
    return write_sets(folder, "tsv", table, n_train=n_train, n_test=40)


@cache
def toy_tokenizer() -> Tokenizer:
    """Every letter is a token."""
    letters = LETTERS + "".join(CAPITALS.values())
    return train_tokenizer([" ".join(letters)] * 5, TokenizerConfig(vocab_size=37), seed=1)


def random_model(config: ModelConfig = SIZES, *, seed: int = 1, max_length: int = 12) -> ModelFile:
    """A model file, of a translator or a language model if `config` is one."""
    labels, languages = (LABELS, "text-label") if config.name == "classifier" else ((), "text-xx")
    tokenizers = Tokenizers(toy_tokenizer(), toy_tokenizer(), labels)
    return random_file(
        config, tokenizers, languages, seed=seed, gain=2, data={"name": "labels", "max_length": max_length}
    )
