"""Measurements on a GPU: see scripts/bench_gpu. If only the requirements of tfm are installed, run it with
PYTHONPATH=. python3 scripts/bench_gpu.py

Shapes: K target tokens, D width, N sentences, L length, H heads, E head width.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import DeviceType
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_cli.benchmarks.baselines import Baseline
from transformer_cli.benchmarks.decoders import DEFAULT, HUGGING_FACE, TFM, HuggingFace, TfmEngine
from transformer_cli.benchmarks.decoding_rounds import FIXED_LENGTH
from transformer_cli.benchmarks.machine import bench_machine
from transformer_cli.benchmarks.matmuls import flops, peak_rate, projections, seconds_alone
from transformer_cli.benchmarks.parts import COMPILED, IN_PARTS, bench_attention, bench_loss
from transformer_cli.benchmarks.report import Measured
from transformer_cli.benchmarks.tfm_training import TfmTraining
from transformer_cli.benchmarks.timing import Spread, best, in_turn, ratio
from transformer_cli.benchmarks.training import bench_train, skeleton
from transformer_cli.benchmarks.workload import random_model
from transformer_cli.config.bench import BenchConfig
from transformer_cli.config.compose import load_config
from transformer_cli.models.layouts import PackedLayout
from transformer_cli.training.loss import smoothed_nll
from transformer_cli.training.precision import choose_dtype

MODES = ("none", "auto")  # of train.compile
BASELINE = "nn.Transformer lean"
# An update of 25,000 tokens on average is sometimes a little larger, and must still be one batch.
FULL = (
    "train.tokens_per_update=25000 train.max_tokens_per_microbatch=28000"
    " data.tokenizer.vocab_size=37000 data.max_length=128"
)
TOY = """
    train.tokens_per_update=400 train.max_tokens_per_microbatch=448 data.tokenizer.vocab_size=100 data.max_length=60
    model.d_model=32 model.d_ff=64 model.n_heads=2 model.n_encoder_layers=1 model.n_decoder_layers=1
"""
BATCHES, TOY_BATCHES = (1, 32, 256, 1024), (1, 4)  # sentences in a batch
AIM_FASTER, AIM_STEP_US = 10, 200  # than Hugging Face with 32 sentences; a greedy step of a single one
N_GRAPHED = 1000  # kernels in a row
N_SAME = 20  # updates after which the losses of a graph are compared
NO_GPU = "needs a GPU"


class Bench:
    """The measurements, with their device and size."""

    def __init__(self, *, is_toy: bool, minutes: float) -> None:
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.is_toy = is_toy or self.device.type == "cpu"
        self.until = time.monotonic() + 60 * minutes
        self.failed: list[str] = []
        self.loss: Measured | None = None

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def config(self, model: str = "base", *overrides: str, mode: str | None = None) -> BenchConfig:
        size = (TOY if self.is_toy else FULL).split()
        rounds = ["rounds=1"] if self.is_toy else ["rounds=4", "n_updates=8"]
        compiled = [f"train.compile={mode}"] if mode is not None else []
        words = ["subject=train", f"model={model}", "lengths=wmt", *rounds, *size, *compiled, *overrides]
        loaded: BenchConfig = load_config("bench", [*words, f"device={self.device.type}"])
        return loaded

    def section(self, title: str, work: Callable[[], Any]) -> Any:
        """Run `work` and return its result, or None if it fails or no time is left. Other sections still run."""
        if time.monotonic() > self.until:
            print(f"\n{title}: left out, no time", flush=True)
            self.failed.append(title)
            return None
        start = time.monotonic()
        try:
            found = work()
        except Exception as error:  # one failure must not cost the other measurements
            traceback.print_exc()
            self.failed.append(title)
            found = None
            print(f"\n{title}: failed, {type(error).__name__}", flush=True)
        if self.on_gpu:
            torch.cuda.empty_cache()
        print(f"[{title}: {time.monotonic() - start:.0f} s]", file=sys.stderr, flush=True)
        return found

    def show(self, measured: Measured) -> Measured:
        print(f"\n{measured.text(self.device)}", flush=True)
        return measured

    # ---- Translating

    def decode(self, dtype: torch.dtype, beam_size: int) -> Measured:
        """Target tokens a second of batches of sentences and translations of 20 tokens, in interleaved rounds."""
        config = self.config()
        model = random_model(config)
        decode = replace(config.decode, max_extra_length=0, batch_tokens=FIXED_LENGTH * beam_size * max(BATCHES))
        tfm = TfmEngine(model, decode, device=self.device, dtype=dtype)
        hugging_face = HuggingFace(model, extra=0, device=self.device, dtype=dtype)
        name = f"{'greedy' if beam_size == 1 else f'beam {beam_size}'}, {str(dtype).removeprefix('torch.')}"
        found = Measured("decode", (name, "tfm, tokens/s", HUGGING_FACE, "tfm is faster by", "tfm, µs a step"))
        random = np.random.default_rng(config.seed)
        for batch in TOY_BATCHES if self.is_toy else BATCHES:
            rows = random.integers(4, len(model.tokenizers.source), (batch, FIXED_LENGTH - 1)).tolist()
            preset = f"{batch} sentences a batch"
            work = {
                TFM: partial(tfm.decode, rows, beam_size=beam_size, preset=DEFAULT),
                HUGGING_FACE: partial(hugging_face.decode, rows, beam_size=beam_size, preset=preset),
            }
            lengths = {who: {len(ids) for ids in decoded()} for who, decoded in work.items()}
            assert all(lengths[who] == {FIXED_LENGTH} for who in work), lengths
            taken = in_turn(work, rounds=1 if self.is_toy else 5, device=self.device)
            rates = {who: [batch * FIXED_LENGTH / seconds for seconds in times] for who, times in taken.items()}
            faster, step = ratio(rates[TFM], rates[HUGGING_FACE]), 1e6 * Spread.of(taken[TFM]).median / FIXED_LENGTH
            row = [f"{batch:,} sentences", *(Spread.of(rates[who]).shown_briefly() for who in (TFM, HUGGING_FACE))]
            found.rows.append([*row, faster.shown(".2f"), f"{step:,.0f}"])
        found.notes = [
            f"Aims: {AIM_FASTER} times as fast with 32 sentences; {AIM_STEP_US} µs a step, encoder and all, with one,"
            " greedily."
        ]
        return found

    # ---- The seven questions

    def products(self) -> str:
        """(1) The rate of matrix products at the shapes of the model beside that of a large one."""
        config = self.config()
        dtype = choose_dtype(config.train.precision, self.device)
        n = config.train.tokens_per_update
        found = projections(skeleton(config, vocab_size=config.data.tokenizer.vocab_size), n_source=n, n_target=n)
        alone = sum(count * seconds_alone(one, dtype=dtype, device=self.device) for one, count in found.items())
        large = peak_rate(dtype, self.device)
        rate = flops(found) / alone
        return f"{rate / 1e12:,.1f} TFLOP/s, {rate / large:.0%} of {large / 1e12:,.1f}; {1e3 * alone:,.1f} ms an update"

    def attention(self) -> str:
        """(2) Packed flash attention beside padded sentences, 30 tokens each, forward and backward."""
        if not self.on_gpu:
            return NO_GPU
        from torch.nn.attention.varlen import varlen_attn

        n, length, n_heads, width = (32 if self.is_toy else 833), 30, 8, 64
        dtype = choose_dtype(self.config().train.precision, self.device)
        shape = (n * length, n_heads, width)
        q, k, v = (torch.randn(shape, device=self.device, dtype=dtype).requires_grad_() for _ in range(3))
        starts = torch.arange(0, n * length + 1, length, dtype=torch.int32, device=self.device)
        mask = torch.ones(n, 1, 1, length, dtype=torch.bool, device=self.device)

        def packed() -> Tensor:
            y = varlen_attn(q, k, v, starts, starts, length, length)
            return y[0] if isinstance(y, tuple) else y

        def flash() -> Tensor:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return packed()

        def padded(mask: Tensor | None) -> Tensor:
            rows = (x.view(n, length, n_heads, width).transpose(1, 2) for x in (q, k, v))
            return F.scaled_dot_product_attention(*rows, mask)

        ways = {"varlen, flash": flash, "varlen": packed, "padded": lambda: padded(None)}
        ways["padded, mask"] = lambda: padded(mask)

        def train_step(way: Callable[[], Tensor]) -> None:
            torch.autograd.grad(way().square().sum(), (q, k, v))

        taken = in_turn(
            {name: lambda way=way: train_step(way) for name, way in ways.items()}, rounds=5, device=self.device
        )
        return ", ".join(f"{name} {1e3 * Spread.of(times).median:.3f} ms" for name, times in taken.items())

    def cross_entropy(self) -> str:
        """(3) The compiled loss at 25,000 × 37,000, at once and in parts."""
        if self.loss is None:
            return "not measured"
        ways = [name for name in ("tfm", "F.cross_entropy", COMPILED, IN_PARTS) if name in self.loss.figures]
        return ", ".join(f"{name} {1e3 * Spread.of(self.loss.figures[name]).median:.2f} ms" for name in ways)

    def graph(self) -> str:
        """(4) Time of a kernel in a replayed CUDA graph."""
        if not self.on_gpu:
            return NO_GPU
        x = torch.zeros(1, device=self.device)

        def launch() -> None:
            for _ in range(N_GRAPHED):
                x.add_(1)

        launch()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        replayed, eager = (best(work, self.device) / N_GRAPHED for work in (graph.replay, launch))
        return f"{1e6 * replayed:.2f} µs replayed, {1e6 * eager:.2f} µs eager"

    def halves(self) -> str:
        """(5) An update as one batch, and as two of half the size, in each way to compile."""
        found = []
        for mode in MODES:
            whole = self.config(mode=mode)
            half = replace(
                whole, train=replace(whole.train, max_tokens_per_microbatch=whole.train.max_tokens_per_microbatch // 2)
            )
            trainers = {"one batch": TfmTraining(whole, self.device), "two": TfmTraining(half, self.device)}
            for trainer in trainers.values():
                trainer.round()
            rates: dict[str, list[float]] = {name: [] for name in trainers}
            for _ in range(whole.rounds):
                for name, trainer in trainers.items():
                    done = trainer.round()
                    rates[name].append(done.n_target_tokens / done.seconds)
            listed = ", ".join(f"{name} {Spread.of(values).shown_briefly()} tokens/s" for name, values in rates.items())
            found.append(f"{mode}: {listed}")
        return "; ".join(found)

    def kernels(self) -> str:
        """(6) Number of kernels of an update."""
        if not self.on_gpu:
            return NO_GPU
        base = replace(self.config(), n_updates=1)
        makers: dict[str, Callable[[], TfmTraining | Baseline]] = {
            f"tfm, {mode}": lambda mode=mode: TfmTraining(replace(self.config(mode=mode), n_updates=1), self.device)
            for mode in MODES
        }
        makers[BASELINE] = lambda: Baseline(BASELINE, base, self.device)
        makers[f"{BASELINE}, compiled"] = lambda: Baseline(BASELINE, base, self.device, compiled=True)
        return ", ".join(f"{name} {self.kernels_of(make()):,}" for name, make in makers.items())

    def kernels_of(self, worker: TfmTraining | Baseline) -> int:
        for _ in range(4):
            worker.round()
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            worker.round()
        on_gpu = [event for event in profile.events() if event.device_type == DeviceType.CUDA]
        kernels = [event for event in on_gpu if not getattr(event, "is_user_annotation", False)]
        return sum(not event.name.startswith(("Memcpy", "Memset")) for event in kernels)

    def whole_step(self) -> str:
        """(7) A whole update captured as a CUDA graph: does its loss equal the eager one?"""
        if not self.on_gpu:
            return NO_GPU
        config = self.config("base", "model.dropout=0", mode="none")
        eager, graphed = Step(config, self.device), Step(config, self.device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                eager()
                graphed()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            graphed()
        off = 0.0
        for _ in range(N_SAME):
            eager()
            graph.replay()
            off = max(off, abs(graphed.loss.item() / eager.loss.item() - 1))
        taken = in_turn({"eager": eager, "graph": graph.replay}, rounds=5, device=self.device)
        listed = ", ".join(f"{name} {1e3 * Spread.of(times).median:.1f} ms" for name, times in taken.items())
        return f"over {N_SAME} updates losses differ by at most {off:.1e}, relative; {listed}"


class Step:
    """Repeated updates on one batch, without a transfer to or from the GPU."""

    def __init__(self, config: BenchConfig, device: torch.device) -> None:
        training = TfmTraining(config, device)
        trainer, (batch, *_) = training.run.trainer, training.batches(1)
        self.model, self.autocast = trainer.whole_model, trainer.autocast
        self.smoothing, self.n_tokens = config.train.label_smoothing, batch.n_target_tokens
        self.source = PackedLayout.of_groups([(run.n_pairs, run.source_length) for run in batch.runs], device)
        self.target = PackedLayout.of_groups([(run.n_pairs, run.target_length) for run in batch.runs], device)
        self.batch = batch.to(device)
        rate = torch.tensor(1e-4, device=device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, fused=True, capturable=True)
        self.loss = torch.zeros((), device=device)

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            logits = self.model.predict(self.batch.source_S, self.source, self.batch.target_in_T, self.target)
        loss, _ = smoothed_nll(logits, self.batch.target_out_T, smoothing=self.smoothing)
        (loss / self.n_tokens).backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach() / self.n_tokens)


def train(bench: Bench) -> None:
    """Ceilings, parts, whole updates, and the seven questions."""
    bench.section("machine", lambda: bench.show(bench_machine(bench.config(), bench.device)))
    bench.loss = bench.section("loss", lambda: bench.show(bench_loss(bench.config(), bench.device)))
    bench.section("attention", lambda: bench.show(bench_attention(bench.config(), bench.device)))
    for model in ("base", "big"):
        bench.section(f"train {model}", lambda model=model: bench.show(bench_train(bench.config(model), bench.device)))
    questions = {
        "1 products at the model's shapes": bench.products,
        "2 packed or padded attention": bench.attention,
        "3 cross entropy, compiled": bench.cross_entropy,
        "4 a kernel in a graph": bench.graph,
        "5 one batch or two": bench.halves,
        "6 kernels of an update": bench.kernels,
        "7 a whole update as a graph": bench.whole_step,
    }
    answers = {title: bench.section(title, work) for title, work in questions.items()}
    print("\n" + "\n".join(f"{title}: {answer or 'failed, or no time'}" for title, answer in answers.items()))


def translate(bench: Bench) -> None:
    for dtype in (torch.bfloat16, torch.float32) if bench.on_gpu else (torch.float32,):
        for beam_size in (1, 4):
            title = f"decode {dtype}, beam {beam_size}"
            bench.section(title, lambda d=dtype, n=beam_size: bench.show(bench.decode(d, n)))


def main() -> int:
    parser = argparse.ArgumentParser(description="Measurements on a GPU.")
    parser.add_argument("what", nargs="?", choices=("train", "decode"), default="train")
    parser.add_argument("--toy", action="store_true", help="toy size")
    parser.add_argument("--minutes", type=float, default=6.0, help="no measurement starts after so many (6)")
    options = parser.parse_args()
    bench = Bench(is_toy=options.toy, minutes=options.minutes)
    if bench.is_toy:
        print(f"toy size, on a {'GPU' if bench.on_gpu else 'CPU'}: none of these figures means anything")

    (translate if options.what == "decode" else train)(bench)
    if bench.failed:
        print(f"\nfailed or left out: {', '.join(bench.failed)}", file=sys.stderr)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
