"""(g) The loss of experiment=paper_base, update by update, on real text, for as long as the block may take."""

import math
import time
from contextlib import closing
from pathlib import Path

from gpu_blocks.block import Block
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.tfm_training import TfmTraining
from transformer_cli.config.compose import load_config
from transformer_cli.errors import DataError
from transformer_cli.training.loop import check_loss

COLUMNS = ("updates", "target tokens (M)", "learning rate", "loss", "nll", "target tokens/s")
EVERY, TOY_EVERY, TOY_ROWS = 100, 2, 3  # updates between two rows
LAST_S = 10  # kept for the end of the block
TOY = """
    lengths=wmt data.tokenizer.vocab_size=100 data.max_length=60 model.d_model=32 model.d_ff=64 model.n_heads=2
    model.n_encoder_layers=1 model.n_decoder_layers=1 train.tokens_per_update=400
"""
LANGUAGES = ("en", "de")
BARS = "▁▂▃▄▅▆▇█"


def run(block: Block) -> None:
    title = "experiment=paper_base"
    if block.text is None and not block.is_toy:
        block.leave_out(title, "no text; --text DIR names it")
        return
    words = ["subject=train", "experiment=paper_base", f"device={block.device.type}"]
    if block.is_toy:
        words += TOY.split()
    else:
        assert block.text is not None
        words += files(block.text)
    block.measure(title, lambda: follow(block, words), needs_s=40)


def files(folder: Path) -> list[str]:
    """Overrides for all pairs of files of one name, as train.en.gz and train.de.gz. Raises DataError for none."""
    english, german = LANGUAGES
    pairs = []
    for path in sorted(folder.iterdir()):
        name = path.name.removesuffix(".gz")
        if name.endswith(f".{english}"):
            stem = name.removesuffix(f".{english}")
            pairs += [(path, other) for end in ("", ".gz") if (other := folder / f"{stem}.{german}{end}").exists()]
    if not pairs:
        raise DataError(f"{folder}: no file NAME.{english} with NAME.{german} beside it. Name another folder")
    listed = ",".join(str(path.resolve()) for pair in pairs for path in pair)
    return [f"data.train=[{listed}]", "data.dev=null", "data.test=null", "data.downloads=[]"]


def follow(block: Block, words: list[str]) -> Measured:
    """Train until the time is used; every row is written down at once."""
    start = time.perf_counter()
    config: BenchConfig = load_config("bench", words)
    every, most = (TOY_EVERY, TOY_ROWS) if block.is_toy else (EVERY, math.inf)
    training = TfmTraining(config, block.device)
    run, settings = training.run, config.train
    vocab_size, n_pairs = len(training.prepared.tokenizers.target), len(training.prepared.train)
    about = (
        f"Loss of training, in nats per target token, smoothed and plain (nll), mean of {every} updates; {n_pairs:,}"
        f" pairs, {settings.tokens_per_update:,} target tokens an update, vocabulary of {vocab_size:,}. Preparing text"
        f" and model took {time.perf_counter() - start:.0f} s."
    )
    found, losses = Measured("loss", COLUMNS), []
    since, n_before = time.perf_counter(), 0
    with closing(training.ahead):
        while block.left_s > LAST_S and len(found.rows) < most:
            run.train_step(training.ahead.take(run.progress.step + 1))
            check_loss(run, training.process)
            step, n_tokens = run.progress.step, run.progress.n_tokens
            if step % every:
                continue
            means = run.metrics.means() or {"loss": math.nan, "nll": math.nan}
            speed = (n_tokens - n_before) / (time.perf_counter() - since)
            since, n_before = time.perf_counter(), n_tokens
            run.reset_metrics()
            losses.append(means["loss"])
            row = [f"{step:,}", f"{n_tokens / 1e6:.1f}", f"{run.schedule(step):.2e}", f"{means['loss']:.3f}"]
            found.rows.append([*row, f"{means['nll']:.3f}", f"{speed:,.0f}"])
            found.notes = [about, f"The loss: {sparkline(losses)}"]
            found.figures = {"every": every, "losses": losses}
            block.keep(found)
    if not found.rows:
        raise RuntimeError(f"{run.progress.step} updates in the time left, fewer than the {every} of a row")
    return found


def sparkline(values: list[float]) -> str:
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int((value - low) / span * len(BARS)))] for value in values)
