"""(q) Limits of the machine, parts of an update, and what whole-update graphs would gain.

Shapes: K target tokens, N sentences, L length, H heads, E head width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu_blocks.block import NO_GPU, Block
from transformer_cli.addons.benchmarks.keys import BenchConfig
from transformer_cli.addons.benchmarks.machine import bench_machine
from transformer_cli.addons.benchmarks.matmuls import count_projections, flops, peak_rate, seconds_alone
from transformer_cli.addons.benchmarks.parts import bench_attention, bench_loss
from transformer_cli.addons.benchmarks.report import Measured
from transformer_cli.addons.benchmarks.tfm_training import TfmTraining
from transformer_cli.addons.benchmarks.timing import Spread, best, in_turn
from transformer_cli.addons.benchmarks.training import skeleton
from transformer_cli.training.forward import inputs
from transformer_cli.training.loss import smoothed_nll
from transformer_cli.training.precision import choose_dtype

N_GRAPHED = 1000  # kernels in a row
N_SAME = 20  # updates after which the losses of a graph are compared
COLUMNS = ("", "ms")


def run(block: Block) -> None:
    on_gpu_only: list[tuple[str, Callable[[], Measured]]] = [
        ("packed or padded attention", lambda: packed_or_padded(block)),
        ("a kernel in a CUDA graph", lambda: kernel_in_graph(block)),
        ("a whole update as a CUDA graph", lambda: whole_update(block)),
    ]
    block.measure("products at the model's shapes", lambda: products(block))
    block.measure("loss", lambda: bench_loss(block.config(), block.device), needs_s=20)
    block.measure("attention", lambda: bench_attention(block.config(), block.device), needs_s=15)
    for title, work in on_gpu_only:
        if block.on_gpu:
            block.measure(title, work)
        else:
            block.leave_out(title, NO_GPU)
    block.measure("machine", lambda: bench_machine(block.config(), block.device), needs_s=15)


def products(block: Block) -> Measured:
    """The rate of matrix products at the shapes of base and big beside that of a large one."""
    found = Measured("products", ("", "TFLOP/s", "of a large product", "ms an update"))
    for model in ("base", "big"):
        config = block.config(model)
        dtype = choose_dtype(config.train.precision, block.device)
        n = config.train.tokens_per_update
        each = count_projections(skeleton(config, vocab_size=config.data.tokenizer.vocab_size), n_source=n, n_target=n)
        alone = sum(count * seconds_alone(one, dtype=dtype, device=block.device) for one, count in each.items())
        large = peak_rate(dtype, block.device)
        rate = flops(each) / alone
        found.rows.append([model, f"{rate / 1e12:,.1f}", f"{rate / large:.0%}", f"{1e3 * alone:,.1f}"])
        found.figures[model] = {"products, FLOP/s": rate, "large product, FLOP/s": large, "seconds": alone}
    found.notes = ["Forward and backward, as many tokens on either side as an update has target tokens."]
    return found


def packed_or_padded(block: Block) -> Measured:
    """Variable-length attention beside padded sentences, 30 tokens each, forward and backward."""
    from torch.nn.attention.varlen import varlen_attn

    n, length, n_heads, width = (32 if block.is_toy else 833), 30, 8, 64
    dtype = choose_dtype(block.config().train.precision, block.device)
    shape = (n * length, n_heads, width)
    q, k, v = (torch.randn(shape, device=block.device, dtype=dtype).requires_grad_() for _ in range(3))
    starts = torch.arange(0, n * length + 1, length, dtype=torch.int32, device=block.device)
    mask = torch.ones(n, 1, 1, length, dtype=torch.bool, device=block.device)

    def packed() -> Tensor:
        y = varlen_attn(q, k, v, starts, starts, length, length)
        return y[0] if isinstance(y, tuple) else y

    def flash() -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return packed()

    def padded(mask: Tensor | None) -> Tensor:
        rows = (x.view(n, length, n_heads, width).transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(*rows, mask)

    def train_step(way: Callable[[], Tensor]) -> None:
        torch.autograd.grad(way().square().sum(), (q, k, v))

    ways = {"varlen, flash": flash, "varlen": packed, "padded": lambda: padded(None)}
    ways["padded, mask"] = lambda: padded(mask)
    taken = in_turn(
        {name: lambda way=way: train_step(way) for name, way in ways.items()}, rounds=5, device=block.device
    )
    return milliseconds(taken, f"{n} sentences of {length} tokens, forward and backward.")


def kernel_in_graph(block: Block) -> Measured:
    x = torch.zeros(1, device=block.device)

    def launch() -> None:
        for _ in range(N_GRAPHED):
            x.add_(1)

    launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    found = Measured("graph", ("", "µs a kernel"))
    for name, work in (("replayed", graph.replay), ("eager", launch)):
        seconds = best(work, block.device) / N_GRAPHED
        found.rows.append([name, f"{1e6 * seconds:.2f}"])
        found.figures[name] = seconds
    return found


def whole_update(block: Block) -> Measured:
    """A whole update captured as a CUDA graph: does its loss equal the eager one, and what does it gain?"""
    config = block.config("base", "model.dropout=0", mode="none")
    eager, graphed = Step(config, block.device), Step(config, block.device)
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
    taken = in_turn({"eager": eager, "graph": graph.replay}, rounds=5, device=block.device)
    return milliseconds(taken, f"Over {N_SAME} updates losses differ by at most {off:.1e}, relative.")


def milliseconds(taken: dict[str, list[float]], note: str) -> Measured:
    rows = [[name, Spread.of([1e3 * time for time in times]).shown(",.3f")] for name, times in taken.items()]
    return Measured("parts", COLUMNS, rows, [note], dict(taken))


class Step:
    """Repeated updates on one batch, without a transfer to or from the GPU."""

    def __init__(self, config: BenchConfig, device: torch.device) -> None:
        training = TfmTraining(config, device)
        trainer, (batch, *_) = training.run.trainer, training.batches(1)
        self.model, self.autocast = trainer.whole_model, trainer.autocast
        self.smoothing, self.n_tokens = config.train.label_smoothing, batch.n_target_tokens
        self.given = inputs(batch, device, trainer.kernel)
        rate = torch.tensor(1e-4, device=device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=rate, fused=True, capturable=True)
        self.loss = torch.zeros((), device=device)

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast():
            logits = self.model.logits(self.given)
        loss, _ = smoothed_nll(logits, self.given.target_out_T, smoothing=self.smoothing)
        (loss / self.n_tokens).backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach() / self.n_tokens)
