"""A classifier small enough for a test: sentences of letters, whose class is told by the capital among them."""

import random
from functools import cache
from pathlib import Path

import torch

from tests.toy.run import LETTERS
from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.config.data import TokenizerConfig
from transformer_cli.config.model import ModelConfig, Norm, Pooling
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers, train_tokenizer
from transformer_cli.models.build import build_model
from transformer_cli.models.file import ModelFile, write_model

LABELS = ("high", "low", "middle")
CAPITALS = {"high": "HI", "low": "LO", "middle": "MD"}
SIZES = ModelConfig(
    name="classifier",
    n_encoder_layers=2,
    d_model=16,
    n_heads=2,
    d_ff=32,
    dropout=0.1,
    norm=Norm.pre,
    pooling=Pooling.mean,
)
OVERRIDES = [  # of `tfm train`: seconds
    *("data=labels", "data.tokenizer.vocab_size=30", "data.max_length=12", "data.max_ratio=100"),
    *("model.n_encoder_layers=1", "model.d_model=16", "model.n_heads=2", "model.d_ff=32", "norm=pre"),
    *("schedule=constant", "schedule.lr=0.01", "schedule.warmup_steps=1", "device=cpu"),
    *(
        "train.tokens_per_update=200",
        "train.max_tokens_per_microbatch=80",
        "train.log_every=10",
        "train.average_last=1",
    ),
]


def table(n: int, *, seed: int) -> str:
    """Lines of label<TAB>text."""
    draw = random.Random(seed)
    return "".join(f"{label}\t{sentence(label, draw)}\n" for label in draw.choices(LABELS, k=n))


def sentence(label: str, draw: random.Random) -> str:
    words = draw.sample(LETTERS, k=draw.randint(1, 5))
    words.insert(draw.randrange(len(words) + 1), draw.choice(CAPITALS[label]))
    return " ".join(words)


def write_tables(folder: Path, n_train: int = 200) -> list[str]:
    """Tables, and the overrides that name them."""
    for seed, (name, n) in enumerate({"train": n_train, "dev": 20, "test": 40}.items()):
        (folder / f"{name}.tsv").write_text(table(n, seed=seed), encoding="utf-8")
    return [f"data.{name}={folder / name}.tsv" for name in ("train", "dev", "test")]


@cache
def toy_tokenizer() -> Tokenizer:
    """Every letter is a token."""
    letters = LETTERS + "".join(CAPITALS.values())
    return train_tokenizer([" ".join(letters)] * 5, TokenizerConfig(vocab_size=37), seed=1)


def random_model(config: ModelConfig = SIZES, *, seed: int = 1, max_length: int = 12) -> ModelFile:
    """A model file with drawn weights, four times as large as usual, so that it is sure of what it says."""
    tokenizers = Tokenizers(toy_tokenizer(), toy_tokenizer(), LABELS if config.name == "classifier" else ())
    torch.manual_seed(seed)
    model = build_model(
        config,
        source_vocab_size=len(tokenizers.source),
        target_vocab_size=tokenizers.n_outputs,
        source_pad_id=tokenizers.source.pad_id,
        target_pad_id=tokenizers.target.pad_id,
    )
    if isinstance(model, Classifier):
        with torch.no_grad():
            model.to_classes.weight *= 4
    return ModelFile(
        config=config,
        tokenizers=tokenizers,
        weights=model.state_dict(),
        source_lang="text",
        target_lang="label" if config.name == "classifier" else "xx",
        step=7,
        data={"name": "labels", "max_length": max_length},
    )


def written(folder: Path, model: ModelFile, name: str = "model.safetensors") -> Path:
    write_model(folder / name, model)
    return folder / name
