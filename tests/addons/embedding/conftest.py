"""What the tests of `tfm embed` share."""

from pathlib import Path

import pytest

from tests.addons.classification.toy_classifier import random_model, written
from tests.conftest import Run
from transformer_cli.models.file import ModelFile


@pytest.fixture
def embed(tfm: Run, tmp_path: Path) -> Run:
    """`tfm embed` in a folder with a model; `stdin` are bytes."""

    def run(*arguments: str, stdin: bytes = b"", model: ModelFile | None = None) -> tuple[int, str, str]:
        written(tmp_path, model or random_model())
        return tfm("embed", "--checkpoint", "model.safetensors", *arguments, stdin=stdin)

    return run
