"""Implementations that training on a CPU chooses, beside the defaults of torch: a table of benchmarks/training.md.

python scripts/bench_choices.py [ROUNDS]
python scripts/bench_choices.py search          # the products of a search, a table of benchmarks/decoding.md
python scripts/bench_choices.py steps           # what else a search does, another
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_cli.config.model import ModelConfig, Positions, Vocabulary
from transformer_cli.decoding.search.top_k import largest_sums, largest_two
from transformer_cli.inference.incremental import TransformerDecoder
from transformer_cli.inference.packed_source import project_packed_memory
from transformer_cli.inference.prepack import PrepackedLinear, prepack
from transformer_cli.models.attention_kernels import decode_attention, fused_attention
from transformer_cli.models.build import build_model
from transformer_cli.models.device import tune_cpu_memory
from transformer_cli.models.embeddings import RotaryPositions, apply_rotary
from transformer_cli.models.layers import dropout_mask
from transformer_cli.models.layouts import PaddedLayout
from transformer_cli.models.linear import prefers_onednn, project
from transformer_cli.models.transformer import Transformer

ROUNDS = next((int(argument) for argument in sys.argv[1:] if argument.isdigit()), 15)
SHAPES = [
    (4096, 256, 768),
    (4096, 256, 1024),
    (4096, 1024, 256),
    (4096, 512, 2048),
    (4096, 2048, 512),
    (4096, 512, 8000),
]


def in_turn(tfm: Callable[[], object], default: Callable[[], object]) -> tuple[float, float, float]:
    """Milliseconds of each, and how many times as long the second takes: medians over the rounds after the first."""
    times: list[list[float]] = [[], []]
    for _ in range(ROUNDS + 1):
        for found, work in zip(times, (tfm, default), strict=True):
            start = time.perf_counter()
            work()
            found.append(1e3 * (time.perf_counter() - start))
    first, second = (found[1:] for found in times)
    return statistics.median(first), statistics.median(second), statistics.median(map(float.__truediv__, second, first))


def products(m: int, k: int, n: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """A projection and the gradient of its input: with the projection of tfm, and with F.linear."""
    x, weight, grad = torch.randn(m, k, requires_grad=True), torch.randn(n, k), torch.randn(m, n)
    return (
        lambda: torch.autograd.grad(project(x, weight), x, grad),
        lambda: torch.autograd.grad(F.linear(x, weight), x, grad),
    )


def attention() -> tuple[Callable[[], object], Callable[[], object]]:
    """Self-attention of a batch of captions and its gradient, in bf16 training: with the kernel of tfm, and torch's."""
    qkv = [torch.randn(256, 4, 16, 32, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    grad = torch.randn(256, 4, 16, 32, dtype=torch.bfloat16)

    def ours() -> object:
        with torch.autocast("cpu", torch.bfloat16):
            y = fused_attention(*qkv, None, causal=False, window=None, dropout=0.0)
        return torch.autograd.grad(y, qkv, grad)

    return ours, lambda: torch.autograd.grad(F.scaled_dot_product_attention(*qkv), qkv, grad)


def search_products() -> None:
    """Print what a core makes of the products of a search, by the libraries of `PrepackedLinear`."""
    torch.set_num_threads(1)
    print("| GFLOP/s | tfm | torch by itself | ratio |\n|---|---:|---:|---:|")
    for k, n in ((128, 384), (128, 128), (128, 512), (512, 128), (128, 10_112)):
        weight, bias = torch.randn(n, k), torch.randn(n)
        packed = PrepackedLinear(weight, bias)
        for rows in (4, 32, 64, 128, 512):
            x, n_calls = torch.randn(rows, k), max(1, 50_000_000 // (rows * k * n))
            ways = (partial(packed.forward, x), partial(F.linear, x, weight, bias))
            with torch.inference_mode():
                tfm, default, ratio = in_turn(*(partial(repeated, way, n_calls) for way in ways))
            flop = 2e-6 * rows * k * n * n_calls
            print(f"| {rows} × {k} × {n} | {flop / tfm:.0f} | {flop / default:.0f} | {ratio:.2f} |")


def search_steps() -> None:
    """Print how long parts of a search take beside plain torch, and how many kernels a step of one sentence calls."""
    torch.set_num_threads(1)
    tune_cpu_memory()
    q, kv = torch.randn(64, 4, 4, 32), torch.randn(2, 64, 4, 12, 32)
    qk, plain, pairs = torch.randn(400, 8, 32), RotaryPositions(32), RotaryPositions(32)
    pairs.is_complex = True
    before, log_p = torch.randn(85, 4, dtype=torch.float64), torch.randn(340, 8000).log_softmax(-1)
    rotations = [one(qk.flatten(1), PaddedLayout(1, offset=9)) for one in (pairs, plain)]
    model = prepack(small_model())
    source = captions(300)
    rows: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "attention of a step, 64 × 4 queries, 12 keys, 4 heads of 32": (
            lambda: decode_attention(q, kv[0], kv[1], None),
            lambda: F.scaled_dot_product_attention(q.transpose(1, 2), kv[0], kv[1]),
        ),
        "rotation of 400 queries and keys, 4 heads of 32": (
            lambda: apply_rotary(qk, rotations[0]),
            lambda: apply_rotary(qk, rotations[1]),
        ),
        "the 9 best of 4 × 8,000, 85 sentences": (
            lambda: largest_sums(before, log_p, 9),
            lambda: (before.view(-1, 1) + log_p).view(85, -1).topk(9),
        ),
        "the 2 best of 8,000, 340 sentences": (lambda: largest_two(log_p), lambda: log_p.topk(2)),
        "encoding of 300 sentences of 5 to 29 tokens": (
            lambda: project_packed_memory(model, source),
            lambda: model.decoder.project_memory(model.encode(source, model.source_layout(source))),
        ),
    }
    print("| ms | tfm | plain | ratio |\n|---|---:|---:|---:|")
    with torch.inference_mode():
        for name, ways in rows.items():
            tfm, default, ratio = in_turn(*ways)
            print(f"| {name} | {tfm:.2f} | {default:.2f} | {ratio:.2f} |")
    for beam_size in (1, 4):
        print(f"\nA step of one sentence, 4 layers, beam {beam_size}: {kernels_of_step(model, beam_size)} kernels")


def small_model() -> Transformer:
    """The model that `recipe=auto` chooses for 80,000 pairs: 4 + 4 layers of width 128 with rotary positions."""
    sizes = {"d_model": 128, "n_heads": 4, "d_ff": 512, "n_encoder_layers": 4, "n_decoder_layers": 4}
    vocabulary = Vocabulary(8000, 0)
    model = build_model(ModelConfig(positions=Positions.rotary, **sizes), vocabulary, vocabulary)  # type: ignore[arg-type]
    assert isinstance(model, Transformer)
    return model.eval()


def captions(n_sentences: int) -> torch.Tensor:
    """Sentences of 5 to 29 tokens, the longest first, padded."""
    source = torch.zeros(n_sentences, 29, dtype=torch.long)
    for i, row in enumerate(source):
        row[: 29 - 25 * i // n_sentences] = torch.randint(1, 8000, (29 - 25 * i // n_sentences,))
    return source


class Kernels(TorchDispatchMode):
    """Counts the calls of operators that are no views."""

    n_calls = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n_calls += not function.is_view and function.namespace in ("aten", "mkldnn")
        return function(*args, **(kwargs or {}))


def kernels_of_step(model: Transformer, beam_size: int) -> int:
    """The number that the second step calls, as each behind it does."""
    decoder, ids = TransformerDecoder(model), torch.full((beam_size,), 5)
    cache = decoder.start(captions(1), beam_size=beam_size, max_length=4)
    decoder.step(ids, cache)
    with torch.no_grad(), Kernels() as kernels:
        decoder.step(ids, cache)
    return kernels.n_calls


def repeated(work: Callable[[], object], n_times: int) -> None:
    for _ in range(n_times):
        work()


def churn() -> None:
    """Allocate and free tensors as large as logits, and print the median milliseconds of one."""
    if "keep" in sys.argv:
        tune_cpu_memory()
    x = torch.randn(4096, 8000)
    times = []
    for _ in range(40):
        start = time.perf_counter()
        _ = x + 1
        times.append(1e3 * (time.perf_counter() - start))
    print(statistics.median(times))


def churned(*arguments: str) -> float:
    """`churn` in a process of its own, since the allocator state is that of a process."""
    command = [sys.executable, __file__, "churn", *arguments]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, oneDNN preferred: {prefers_onednn()}\n")
    print("| ms | tfm | torch by itself | ratio |\n|---|---:|---:|---:|")
    rows = {f"projection and gradient of its input, {m} × {k} × {n}": products(m, k, n) for m, k, n in SHAPES}
    x = torch.randn(4096, 1024)
    rows["dropout, 4096 × 1024"] = lambda: x * dropout_mask(x, 0.1), lambda: F.dropout(x, 0.1)
    rows["attention and its gradient in bf16, 256 sentences of 16, 4 heads of 32"] = attention()
    for name, ways in rows.items():
        tfm, default, ratio = in_turn(*ways)
        print(f"| {name} | {tfm:.2f} | {default:.2f} | {ratio:.2f} |")
    pairs = [(churned("keep"), churned()) for _ in range(5)]
    tfm, default = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = statistics.median(without / kept for kept, without in pairs)
    print(f"| a sum in new memory, 4096 × 8000 | {tfm:.2f} | {default:.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    named = {"churn": churn, "search": search_products, "steps": search_steps}
    next((named[argument] for argument in sys.argv[1:] if argument in named), main)()
