"""Toy pairs of texts: which of the two has the capital decides the class."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.addons.classification.toy_classifier import OVERRIDES, SIZES, random_model
from tests.toy import models
from tests.toy.run import LETTERS
from transformer_cli.addons.classification.classifier import Classifier
from transformer_cli.models.file import ModelFile

LABELS = ("first", "neither", "second")
PAIR_SIZES = replace(SIZES, n_segments=2)
PAIR_OVERRIDES = ["data=pairs", *OVERRIDES[1:], "data.max_length=20", "data.tokenizer.vocab_size=25"]


def pair_table(n: int, seed: int) -> str:
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
    return models.write_sets(folder, "tsv", pair_table, n_train=n_train, n_test=40)


def pair_model(pooling: str = "mean", *, seed: int = 1, **changes: Any) -> Classifier:
    tokenizers = random_model().tokenizers
    model = models.random_model(replace(PAIR_SIZES, pooling=pooling, **changes), tokenizers, seed=seed)
    assert isinstance(model, Classifier)
    return model


def pair_file(pooling: str = "mean", *, max_length: int = 20) -> ModelFile:
    """A model file with the labels of `toy_classifier`."""
    found = random_model(replace(PAIR_SIZES, pooling=pooling), max_length=max_length)
    return replace(found, data={**found.data, "name": "pairs"})
