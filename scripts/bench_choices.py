"""Implementations that training on a CPU chooses, beside the defaults of torch: a table of benchmarks/training.md.

python scripts/bench_choices.py [ROUNDS]
python scripts/bench_choices.py search          # the products of a search, a table of benchmarks/decoding.md
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from transformer_cli.inference.prepack import PrepackedLinear
from transformer_cli.models.attention_kernels import fused_attention
from transformer_cli.models.device import tune_cpu_memory
from transformer_cli.models.layers import dropout_mask
from transformer_cli.models.linear import prefers_onednn, project

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
    churn() if "churn" in sys.argv else search_products() if "search" in sys.argv else main()
