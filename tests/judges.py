"""The programs that `scripts/judges` installs, each run by its own Python; tests that need one skip without it."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from transformer_cli.decoding.search.request import Hypothesis
from transformer_cli.interop.foreign import Imported
from transformer_cli.interop.verify import CPU, log_probs, search
from transformer_cli.models.file import ModelFile
from transformer_cli.models.transformer import Transformer

N_LINES = 200

SCRAMBLE = """
import sys, torch
torch.manual_seed(1)
checkpoint = torch.load(sys.argv[1], map_location="cpu")
for group in [checkpoint["model"], checkpoint.get("generator") or {}]:
    for name, x in group.items():
        if x.is_floating_point() and x.numel() > 1 and not name.endswith(".pe"):
            is_scale = name.endswith("norm.weight") or "layer_norm" in name and name.endswith("weight")
            x.normal_(1.0 if is_scale else 0.0, 0.2)
torch.save(checkpoint, sys.argv[1])
"""


def judge(name: str) -> Path:
    """Its Python, as `scripts/judges NAME` prints it."""
    folder = Path(os.environ.get("TFM_JUDGES", ROOT / ".judges")) / name
    if not list(folder.glob("installed-*")):
        pytest.skip(f"no {name} here: run scripts/judges {name}")
    return folder / "bin" / "python"


def call(python: Path, *arguments: str | Path, cwd: Path) -> str:
    """What a module of the judge (`-m name`), its script of that name, or code (`-c`) prints."""
    first, *rest = map(str, arguments)
    command = [str(python), first] if first in ("-m", "-c") else [str(python.parent / first)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [*command, *rest], cwd=cwd, capture_output=True, text=True, env=environment | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def scramble(python: Path, checkpoint: Path) -> None:
    """Random weights of a size that matters, written by the judge: biases and norms are no longer 0 and 1."""
    call(python, "-c", SCRAMBLE, checkpoint, cwd=checkpoint.parent)


def lines_of(file: Path, n: int = N_LINES) -> list[str]:
    return file.read_text(encoding="utf-8").split("\n")[:n]


def built(imported: Imported) -> tuple[ModelFile, Transformer]:
    weights = {name: read() for name, read in imported.weights.items()}
    model = ModelFile(imported.config, imported.tokenizers, weights, imported.source_lang, imported.target_lang, step=0)
    return model, model.build(CPU)


def scores(imported: Imported, sources: Sequence[str], targets: Sequence[str]) -> list[list[float]]:
    """Of each token of given translations, EOS counted, by our model and from our own pieces."""
    model, transformer = built(imported)
    source, target = model.tokenizers.source.encode(sources), model.tokenizers.target.encode(targets)
    return log_probs(transformer, source, target, model.tokenizers)


def translations(imported: Imported, sources: Sequence[str], *, beam_size: int) -> list[tuple[str, Hypothesis]]:
    """By our own search, without a penalty of length."""
    model, transformer = built(imported)
    torch.set_num_threads(1)
    found = search(
        transformer, model.tokenizers.source.encode(sources), tokenizers=model.tokenizers, beam_size=beam_size
    )
    return [(model.tokenizers.target.decode(h.ids), h) for h in found]


def differing(ours: Sequence[tuple[str, Hypothesis]], theirs: Sequence[str]) -> list[tuple[str, str]]:
    """Lines of another text; of one that we cut at our limit, only its first half is compared."""
    found = []
    for (text, hypothesis), other in zip(ours, theirs, strict=True):
        half = len(text) // 2
        if text != other and (hypothesis.finished or text[:half] != other[:half]):
            found.append((text, other))
    return found


def largest_relative(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return max(abs(a - b) / max(abs(b), 1.0) for a, b in zip(ours, theirs, strict=True))
