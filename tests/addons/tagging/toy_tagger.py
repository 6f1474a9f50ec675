"""A tagger small enough for a test: sentences of letters, where a capital and the letter behind it are an entity.

Each word says its label by itself, so that few updates are enough.
"""

import random
from functools import cache
from pathlib import Path

import torch

from tests.toy.run import LETTERS
from transformer_cli.addons.tagging.tagger import Tagger
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.model import ModelConfig, Norm, Pooling
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.models.build import build_model
from transformer_cli.models.file import ModelFile, write_model

TYPES = {"H": "PER", "L": "LOC"}
BEHIND = {"H": "p", "L": "q"}
LABELS = ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
SIZES = ModelConfig(name="tagger", n_encoder_layers=2, d_model=16, n_heads=2, d_ff=32, dropout=0.1, norm=Norm.pre)
OVERRIDES = [  # of `tfm train`: seconds
    *("data=tags", "data.tokenizer.vocab_size=40", "data.max_length=24", "data.max_ratio=100"),
    *("model.n_encoder_layers=1", "model.d_model=16", "model.n_heads=2", "model.d_ff=32", "norm=pre"),
    *("schedule=constant", "schedule.lr=0.03", "schedule.warmup_steps=1", "device=cpu", "model.dropout=0.1"),
    *(
        "train.tokens_per_update=150",
        "train.max_tokens_per_microbatch=60",
        "train.log_every=10",
        "train.average_last=1",
        "train.ema=null",
    ),
]


def sentence(draw: random.Random) -> list[tuple[str, str]]:
    """Words of one to three letters, each with its label."""
    found: list[tuple[str, str]] = []
    for _ in range(draw.randint(1, 4)):
        word = "".join(draw.choices(LETTERS, k=draw.randint(1, 3)))
        found.append((word, "O"))
        if draw.random() < 0.5:
            capital = draw.choice("HL")
            found += [(capital, f"B-{TYPES[capital]}"), (BEHIND[capital], f"I-{TYPES[capital]}")]
    return found


def conll(n: int, *, seed: int) -> str:
    draw = random.Random(seed)
    return "\n".join("".join(f"{word} x {label}\n" for word, label in sentence(draw)) for _ in range(n))


def write_files(folder: Path, n_train: int = 200) -> list[str]:
    """CoNLL files, and the overrides that name them."""
    for seed, (name, n) in enumerate({"train": n_train, "dev": 20, "test": 30}.items()):
        (folder / f"{name}.conll").write_text(conll(n, seed=seed), encoding="utf-8")
    return [f"data.{name}={folder / name}.conll" for name in ("train", "dev", "test")]


@cache
def toy_tokenizer() -> Tokenizer:
    """Every letter is a token, and so is the beginning of a word."""
    letters = LETTERS + "HLpq"
    return train_tokenizer([" ".join(letters), letters] * 5, TokenizerConfig(vocab_size=34), seed=1)


def random_model(pooling: Pooling = Pooling.first, *, max_length: int = 12, seed: int = 1) -> ModelFile:
    """A model file with drawn weights, four times as large as usual, so that it is sure of what it says."""
    config = ModelConfig(**{**vars(SIZES), "pooling": pooling})
    tokenizers = Tokenizers(toy_tokenizer(), toy_tokenizer(), LABELS)
    torch.manual_seed(seed)
    model = build_model(
        config,
        source_vocab_size=len(tokenizers.source),
        target_vocab_size=tokenizers.n_outputs,
        source_pad_id=tokenizers.source.pad_id,
        target_pad_id=tokenizers.target.pad_id,
    )
    assert isinstance(model, Tagger)
    with torch.no_grad():
        model.to_classes.weight *= 4
    return ModelFile(
        config=config,
        tokenizers=tokenizers,
        weights=model.state_dict(),
        source_lang="text",
        target_lang="label",
        step=7,
        data={"name": "tags", "task": "token_classification", "max_length": max_length},
    )


def written(folder: Path, model: ModelFile, name: str = "model.safetensors") -> Path:
    write_model(folder / name, model)
    return folder / name
