"""(f) Multi30k, English to German, from text to BLEU: minutes, and scores with their signatures."""

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from gpu_blocks.block import Block
from transformer_cli import api
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.data.lines import read_lines

COLUMNS = ("", "minutes", "updates", "dev BLEU", "test BLEU", "test lines", "s to translate them")
TEST = "test_2016_flickr"
# The CPU's recipe, and the paper's base model with larger updates.
BASE = (
    "model=base model.dropout=0.3 train.precision=bf16 train.tokens_per_update=4096"
    " train.max_tokens_per_microbatch=8192 schedule.lr=7.0e-4 schedule.warmup_steps=1000 train.max_steps=5000"
)
TOY = """
    data=demo_en_fr model=tiny model.d_model=16 model.d_ff=32 model.n_heads=2 train.max_steps=4 train.eval_every=2
    train.save_every=2 train.eval_lines=10
"""


def run(block: Block) -> None:
    if block.is_toy:
        block.measure("demo_en_fr, in place of Multi30k", lambda: demo(block))
        return
    if block.multi30k is None:
        block.leave_out("Multi30k", "no corpus; --multi30k DIR names it")
        return
    root = f"data.root={block.multi30k.resolve()}"
    block.measure("experiment=multi30k", lambda: trained(block, ["experiment=multi30k", root]), needs_s=60)
    block.measure("the base model", lambda: trained(block, ["experiment=multi30k", root, *BASE.split()]), needs_s=60)


def demo(block: Block) -> Measured:
    with TemporaryDirectory() as folder:
        lines = ["a man sleeps", "a dog runs"]
        return whole(block, TOY.split(), Path(folder), sources=lines, references=lines)


def trained(block: Block, overrides: list[str]) -> Measured:
    assert block.multi30k is not None
    sources, references = (read_lines(file_of(block.multi30k, language)).texts for language in ("en", "de"))
    with TemporaryDirectory() as folder:
        return whole(block, overrides, Path(folder), sources=sources, references=references)


def file_of(root: Path, language: str) -> Path:
    name = f"{TEST}.{language}"
    packed = root / f"{name}.gz"
    return packed if packed.exists() else root / name


def whole(block: Block, overrides: list[str], folder: Path, *, sources: list[str], references: list[str]) -> Measured:
    """Prepare, train, and translate the test set with the exported model."""
    start = time.perf_counter()
    usual = [f"runs={folder / 'runs'}", f"data.cache={folder / 'data'}", "name=gpu", f"device={block.device.type}"]
    result = api.train([*overrides, *usual])
    minutes = (time.perf_counter() - start) / 60
    translator = api.load(result.model_path, device=block.device.type, engine="torch")
    start = time.perf_counter()
    translations = [line.text for line in translator.translate(sources)]
    seconds = time.perf_counter() - start
    score = api.bleu(translations, [references])
    found = Measured("multi30k", COLUMNS)
    row = [" ".join(overrides[:1]), f"{minutes:.1f}", f"{result.step:,}", f"{result.dev_score:.2f}"]
    found.rows = [[*row, f"{score.value:.2f}", f"{len(sources):,}", f"{seconds:.1f}"]]
    found.notes = [
        f"Beam 4, length penalty 0.6. Signature of the test score: {score.signature}. Training, evaluations and saves"
        " are in the minutes, and so is the preparation of the corpus.",
        "Overrides: " + " ".join(word for word in overrides if not word.startswith("data.root=")),
    ]
    outcome = json.loads((folder / "runs" / "gpu" / "result.json").read_text(encoding="utf-8"))
    found.figures = {"minutes": minutes, "test BLEU": score.value, "result": outcome}
    return found
