"""The programs that `scripts/judges` installs, each run by its own Python; tests that need one skip without it."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from transformer_cli.addons.interop.foreign import Imported
from transformer_cli.addons.interop.verify import CPU, log_probs, padded_ids
from transformer_cli.config.decode import DecodeConfig
from transformer_cli.decoding.search import SEARCHES, ControlIds, Hypothesis, SearchRequest
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.models.file import ModelFile
from transformer_cli.models.transformer import Transformer

N_LINES = 200
LONGEST = 60  # tokens of a translation, here and there: a badly trained model repeats itself up to any limit

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
    """The Python of a judge, as `scripts/judges NAME` prints it."""
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
    """Our model's score of each token of given translations, EOS counted, from our own pieces."""
    model, transformer = built(imported)
    source, target = model.tokenizers.source.encode(sources), model.tokenizers.target.encode(targets)
    return log_probs(transformer, source, target, model.tokenizers)


def translations(
    imported: Imported, sources: Sequence[str], *, beam_size: int, min_length: int = 0
) -> list[tuple[str, Hypothesis]]:
    """Translations of at most LONGEST tokens by our own search, without a penalty of length."""
    model, transformer = built(imported)
    source, target = model.tokenizers.source, model.tokenizers.target
    torch.set_num_threads(1)
    kind = "beam" if beam_size > 1 else "greedy"
    config = DecodeConfig(search=kind, beam_size=beam_size, length_penalty=0, min_length=min_length)
    source_BS = padded_ids([[*ids, *source.end_ids] for ids in source.encode(sources)], source.pad_id)
    decoder = TransformerDecoder(transformer)
    with torch.inference_mode():
        cache = decoder.start(source_BS, beam_size=beam_size, max_length=LONGEST)
        limits_B = torch.full([len(source_BS)], LONGEST)
        found = SEARCHES[kind](SearchRequest(decoder.step, cache, ControlIds.of(target), limits_B, config))
    return [(target.decode(best.ids), best) for best, *_ in found]


def check_same(ours: Sequence[tuple[str, Hypothesis]], theirs: Sequence[str], *, beam_size: int) -> None:
    """Each line is the same, whole, cut or not; but for a near tie, and a beam that is cut.

    Of a beam without an end fairseq takes the hypothesis that is the likeliest with EOS behind it, we the likeliest. At
    most one line in a hundred may differ in these ways.
    """
    unlike = [(text, other, h) for (text, h), other in zip(ours, theirs, strict=True) if text != other]
    assert not [each[:2] for each in unlike if not each[2].is_near_tie and (each[2].finished or beam_size == 1)]
    assert len(unlike) <= len(ours) * 0.01, unlike


def largest_relative(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return max(abs(a - b) / max(abs(b), 1.0) for a, b in zip(ours, theirs, strict=True))
