"""Parts of an update by themselves, in the ways that there are to compute them.

Shapes: K target tokens, D width, V vocabulary, N sentences, L length, H heads, E head width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_cli.benchmarks.report import Measured
from transformer_cli.benchmarks.timing import Spread, in_turn, ratio
from transformer_cli.models.attention import attention_weights
from transformer_cli.schema import BenchConfig
from transformer_cli.training.learner import choose_dtype
from transformer_cli.training.loss import smoothed_nll

OURS = "tfm"
COLUMNS = ("", "ms, forward and backward", "tfm is faster by", "largest error of a gradient, relative")

Way = Callable[[], Tensor]  # to a loss, summed; the leaves hold the gradients after it


def bench_loss(config: BenchConfig, device: torch.device) -> Measured:
    """From the decoder's last layer to the gradient of what went in, output projection included."""
    dtype = choose_dtype(config.train.precision, device)
    n_tokens = min(config.train.tokens_per_batch, config.train.tokens_per_update)
    vocab_size, d_model, smoothing = (
        config.data.tokenizer.vocab_size,
        config.model.d_model,
        config.train.label_smoothing,
    )
    generator = torch.Generator().manual_seed(config.seed)
    x_KD = torch.randn(n_tokens, d_model, generator=generator).to(device).requires_grad_()
    weight_VD = (torch.randn(vocab_size, d_model, generator=generator) * d_model**-0.5).to(device).requires_grad_()
    targets_K = torch.randint(vocab_size, (n_tokens,), generator=generator).to(device)

    def logits() -> Tensor:
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
            return F.linear(x_KD, weight_VD)

    def cross_entropy(logits_KV: Tensor) -> Tensor:
        return F.cross_entropy(logits_KV.float(), targets_K, label_smoothing=smoothing, reduction="sum")

    ways: dict[str, Way] = {
        OURS: lambda: smoothed_nll(logits(), targets_K, smoothing=smoothing)[0],
        "F.cross_entropy": lambda: cross_entropy(logits()),
    }
    linear_cross_entropy = getattr(F, "linear_cross_entropy", None)  # torch 2.13 and later
    if linear_cross_entropy is not None:
        ways["F.linear_cross_entropy"] = lambda: linear_cross_entropy(
            x_KD, weight_VD, targets_K, label_smoothing=smoothing, reduction="sum"
        )
    if device.type == "cuda":
        compiled = torch.compile(cross_entropy)
        ways["F.cross_entropy, compiled"] = lambda: compiled(logits())
    exact = [x.detach().double().requires_grad_() for x in (x_KD, weight_VD)]
    loss = F.cross_entropy(F.linear(*exact), targets_K, label_smoothing=smoothing, reduction="sum")
    loss.backward()  # type: ignore[no-untyped-call]
    return compare("loss", ways, [x_KD, weight_VD], [gradient(x) for x in exact], config.rounds, device)


def bench_attention(config: BenchConfig, device: torch.device) -> Measured:
    """One self-attention of sentences of one length, as many as make a batch, at three lengths."""
    dtype = choose_dtype(config.train.precision, device)
    n_tokens = min(config.train.tokens_per_batch, config.train.tokens_per_update)
    found = Measured("attention", COLUMNS)
    for length in (15, 30, 100):
        shape = (max(1, n_tokens // length), config.model.n_heads, length, config.model.key_width)
        generator = torch.Generator().manual_seed(config.seed)
        qkv = [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for _ in range(3)]
        mask_N11L = torch.ones(shape[0], 1, 1, length, dtype=torch.bool, device=device)
        ways: dict[str, Way] = {
            OURS: lambda qkv=qkv: F.scaled_dot_product_attention(*qkv).square().sum(),  # type: ignore[misc]
            "with a mask": lambda qkv=qkv, mask=mask_N11L: (  # type: ignore[misc]
                F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], mask).square().sum()
            ),
            "written out": lambda qkv=qkv: (attention_weights(*qkv[:2]) @ qkv[2]).square().sum(),  # type: ignore[misc]
        }
        exact = [x.detach().double().requires_grad_() for x in qkv]
        (attention_weights(*exact[:2]) @ exact[2]).square().sum().backward()  # type: ignore[no-untyped-call]
        part = compare("attention", ways, qkv, [gradient(x) for x in exact], config.rounds, device)
        found.rows += [[f"{row[0]}, {length} tokens", *row[1:]] for row in part.rows]
        found.ratios |= {f"{name}, {length} tokens": value for name, value in part.ratios.items()}
        found.figures |= {f"{name}, {length} tokens": value for name, value in part.figures.items()}
    return found


def compare(
    subject: str,
    ways: dict[str, Way],
    leaves: list[Tensor],
    expected: list[Tensor],
    rounds: int,
    device: torch.device,
) -> Measured:
    """Each way in turn; how far its gradients are from those of float64 is measured first."""

    def run(way: Way) -> None:
        for leaf in leaves:
            leaf.grad = None
        way().backward()  # type: ignore[no-untyped-call]

    errors = {}
    for name, way in ways.items():
        run(way)
        pairs = zip(leaves, expected, strict=True)
        errors[name] = max(float((gradient(x) - wanted).abs().max() / wanted.abs().max()) for x, wanted in pairs)
    taken = in_turn({name: lambda way=way: run(way) for name, way in ways.items()}, rounds=rounds, device=device)  # type: ignore[misc]
    found = Measured(subject, COLUMNS)
    for name, times in taken.items():
        faster = ratio(times, taken[OURS])
        if name != OURS:
            found.ratios[f"tfm to {name}"] = faster
        milliseconds = Spread.of([1e3 * time for time in times]).shown(",.1f")
        found.rows.append([name, milliseconds, "" if name == OURS else faster.shown(".2f"), f"{errors[name]:.1e}"])
        found.figures[name] = times
    return found


def gradient(x: Tensor) -> Tensor:
    assert x.grad is not None
    return x.grad
