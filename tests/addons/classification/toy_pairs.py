"""Pairs of texts small enough for a test: which of the two has the capital decides the class."""

import random
from dataclasses import replace
from pathlib import Path

import torch

from tests.addons.classification.toy_classifier import OVERRIDES, SIZES, random_model, toy_tokenizer
from tests.toy.run import LETTERS
from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.config.model import ModelConfig, Pooling
from transformer_cli.models.build import build_model
from transformer_cli.models.file import ModelFile

LABELS = ("first", "neither", "second")
PAIR_SIZES = replace(SIZES, n_segments=2)
PAIR_OVERRIDES = ["data=pairs", *OVERRIDES[1:], "data.max_length=20", "data.tokenizer.vocab_size=25"]


def pair_table(n: int, *, seed: int) -> str:
    """Lines of label<TAB>first<TAB>second."""
    draw = random.Random(seed)
    rows = []
    for label in draw.choices(LABELS, k=n):
        texts = [draw.sample(LETTERS, k=draw.randint(1, 5)) for _ in range(2)]
        if label != "neither":
            texts[LABELS.index(label) // 2][0] = "H"
        rows.append("\t".join([label, *map(" ".join, texts)]))
    return "\n".join(rows) + "\n"


def write_pairs(folder: Path, n_train: int = 200) -> list[str]:
    """Tables, and the overrides that name them."""
    for seed, (name, n) in enumerate({"train": n_train, "dev": 20, "test": 40}.items()):
        (folder / f"{name}.tsv").write_text(pair_table(n, seed=seed), encoding="utf-8")
    return [f"data.{name}={folder / name}.tsv" for name in ("train", "dev", "test")]


def pair_model(pooling: Pooling = Pooling.mean, *, seed: int = 1, **changes: int) -> Classifier:
    """A model of pairs with drawn weights, in evaluation mode."""
    torch.manual_seed(seed)
    ids = toy_tokenizer()
    config: ModelConfig = replace(PAIR_SIZES, pooling=pooling, **changes)
    model = build_model(
        config,
        source_vocab_size=len(ids),
        target_vocab_size=3,
        source_pad_id=ids.pad_id,
        target_pad_id=ids.pad_id,
        source_eos_id=ids.eos_id,
    )
    assert isinstance(model, Classifier)
    return model.eval()


def pair_file(pooling: Pooling = Pooling.mean, *, max_length: int = 20) -> ModelFile:
    """A model file with drawn weights and the labels of `toy_classifier`."""
    model = pair_model(pooling)
    like = random_model(SIZES, max_length=max_length)
    config = replace(PAIR_SIZES, pooling=pooling)
    return replace(like, config=config, weights=model.state_dict(), data={"name": "pairs", "max_length": max_length})
