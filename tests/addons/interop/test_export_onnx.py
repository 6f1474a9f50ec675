"""The ONNX graphs say what the model says, in onnxruntime.

Shapes: B batch, S source, T target, V vocabulary.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.addons.interop.test_export import MARIAN, model_file, other_tokenizer, pairs
from tests.conftest import slow_but
from tests.golden.make import FOLDER
from tests.toy.run import sentences as letters
from tests.toy.translator import sentences
from transformer_cli.addons.interop import onnx as to_onnx
from transformer_cli.addons.interop import verify
from transformer_cli.addons.interop.export_file import listed_files
from transformer_cli.addons.interop.exported import facts_of
from transformer_cli.addons.interop.model_card import card
from transformer_cli.config.model import Activation, DecoderStart, Norm, Positions, Tying
from transformer_cli.data.packed_tokenizer import PackedTokenizer, Segmenter
from transformer_cli.data.tokenizer import Tokenizer, Tokenizers
from transformer_cli.models.file import ModelFile, read_model

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

CPU = torch.device("cpu")
LINES = sentences(6, seed=7)
VARIANTS: dict[str, dict[str, Any]] = {  # every value of every option that a graph depends on
    "paper": {},
    "marian": MARIAN,
    "fairseq": {
        "positions": Positions.sinusoidal_tensor2tensor,
        "first_position": 2,
        "norm": Norm.pre,
        "tie_embeddings": Tying.decoder,
    },
    "learned": {"positions": Positions.learned, "norm": Norm.pre, "activation": Activation.gelu, "bias": False},
    "modern": {
        "norm": Norm.pre,
        "norm_kind": "rms",
        "activation": Activation.swiglu,
        "positions": Positions.rotary,
        "bias": False,
        "d_k": 12,
        "d_v": 6,
    },
    "own vocabularies": {
        "tie_embeddings": Tying.none,
        "output_bias": True,
        "decoder_start": DecoderStart.zero,
        "activation": Activation.silu,
        "positions": Positions.sinusoidal_concat,
        "scale_embeddings": False,
        "n_encoder_layers": 1,
        "n_decoder_layers": 3,
    },
    "window, narrow": {"attention_window": 2, "d_embedding": 12, "decoder_start": DecoderStart.zero},
    "narrow, own output": {"attention_window": 5, "d_embedding": 12, "tie_embeddings": Tying.source_target},
}


def written(folder: Path, **changes: Any) -> tuple[ModelFile, to_onnx.Loaded]:
    model = model_file(other_tokenizer() if changes.get("tie_embeddings") is Tying.none else None, **changes)
    to_onnx.write(model, folder)
    return model, to_onnx.Loaded(folder)


@pytest.mark.parametrize("variant", slow_but(VARIANTS, "own vocabularies", "modern", "marian", "narrow, own output"))
def test_onnxruntime_predicts_and_translates_as_the_model(variant: str, tmp_path: Path) -> None:
    model, program = written(tmp_path, **VARIANTS[variant])
    verdict = verify.verify(model, program, LINES, is_float32=True)
    assert verdict.holds, verdict
    assert verdict.largest_difference < 1e-5
    assert verdict.greedy_identical == verdict.text_identical > 0
    assert verdict.beam_identical == verdict.beam_compared


def test_one_step_after_the_other_gives_what_all_at_once_gives(tmp_path: Path) -> None:
    model, program = written(tmp_path, positions=Positions.rotary)
    sources, targets = pairs(model)
    cache = program.start(program.padded(sources[:1]), beam_size=1, max_length=0)
    at_once = program.log_probs(sources[:1], targets[:1])[0]
    ids, each = [program.control.bos, *targets[0]], []
    for t, token in enumerate([*targets[0], program.control.eos]):
        log_p_V = program.step(torch.tensor([ids[t]]), cache)[0].log_softmax(-1)
        each.append(log_p_V[token].item())
        assert cache.past[0].shape[2] == t + 1
    assert each == pytest.approx(at_once, abs=1e-5)


def test_padding_of_a_source_changes_nothing(tmp_path: Path) -> None:
    model, program = written(tmp_path)
    sources, targets = pairs(model)
    assert len({len(ids) for ids in sources}) > 1
    together = program.log_probs(sources, targets)
    for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
        assert together[i] == pytest.approx(program.log_probs([source], [target])[0], abs=1e-5)


def test_each_weight_is_on_the_disk_once(tmp_path: Path) -> None:
    model, _ = written(tmp_path)
    table = 4 * to_onnx.N_POSITIONS * model.config.d_model  # of positions
    numbers = 4 * sum(weight.numel() for weight in model.weights.values())
    n_padding = (tmp_path / to_onnx.WEIGHTS).stat().st_size - table - numbers
    assert 0 <= n_padding < to_onnx.ALIGNMENT * 100
    assert (tmp_path / to_onnx.DECODER).stat().st_size < 60_000


def test_a_changed_weight_is_seen(tmp_path: Path) -> None:
    model, _ = written(tmp_path)
    weights = np.fromfile(tmp_path / to_onnx.WEIGHTS, np.float32)
    weights[:: len(weights) // 50] += 0.5
    weights.tofile(tmp_path / to_onnx.WEIGHTS)
    assert not verify.verify(model, to_onnx.Loaded(tmp_path), LINES, is_float32=True).holds


def test_equal_models_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        to_onnx.write(model_file(), tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name


def test_a_vocabulary_of_another_program_is_written_with_its_ids(tmp_path: Path) -> None:
    model = repacked(model_file())
    tokenizer = model.tokenizers.source
    to_onnx.write(model, tmp_path)
    assert json.loads((tmp_path / "source_vocabulary.json").read_bytes()) == tokenizer.pieces(range(len(tokenizer)))
    assert verify.verify(model, to_onnx.Loaded(tmp_path), LINES, is_float32=True).holds


@pytest.mark.parametrize("packed", [False, True], ids=["SentencePiece", "packed"])
def test_the_code_of_the_model_card_translates(tmp_path: Path, packed: bool) -> None:
    """Greedy search, by onnxruntime and SentencePiece alone; of a packed tokenizer by tfm's reader of it."""
    model = read_model(FOLDER / "joint-pre.safetensors")
    if packed:
        model = repacked(model)
    to_onnx.write(model, tmp_path)
    program = to_onnx.Loaded(tmp_path)
    text = card(facts_of(model, "", program="onnx", max_positions=None), files=listed_files(tmp_path))
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    line = letters(1, seed=5)[0]
    (wanted,) = program.translate_text([line], max_tokens=200)
    assert len(wanted) > 5
    code = code.replace("FOLDER", str(tmp_path)).replace("TEXT", line)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", env=environment)
    assert ran.stdout == f"{wanted}\n", ran.stderr


def repacked(model: ModelFile) -> ModelFile:
    """The same model with other ids than those of its SentencePiece model."""
    own = model.tokenizers.source
    pieces = own.pieces(range(len(own)))[::-1]
    special = {name: pieces.index(f"<{mark}>") for name, mark in [("pad", "pad"), ("unk", "unk"), ("bos", "s")]}
    packed = PackedTokenizer(
        Segmenter.sentencepiece, pieces, **special, eos=pieces.index("</s>"), model=own.model_bytes, normalizes=True
    )
    tokenizer = Tokenizer(packed.to_bytes())
    weights = {name: weight.flip(0) if "embedding" in name else weight for name, weight in model.weights.items()}
    return replace(model, tokenizers=Tokenizers(tokenizer, tokenizer), weights=weights)
